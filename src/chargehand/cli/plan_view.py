"""A plan as a tree, as Mermaid, and its forecast; findings in words."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from chargehand.agents.cost_forecast import BASIS, CostForecast, PlanForecast
from chargehand.cli.console import clean, short
from chargehand.cli.format import counted, dollars, roughly, seconds
from chargehand.terms.budget import Amount
from chargehand.terms.forecast import Forecast
from chargehand.terms.plan import Finding, Plan, Task, TaskId, in_order, needs

_MOST = 60  # tasks that a tree shows
_LEAST_ROOM = 16
_COMBINED = {
    "merge": "merged into one answer",
    "select": "of which the best is the answer",
    "vote": "of which the answer is the one most agree on",
    "reduce": "reduced to one answer",
    "forward": "of which one is handed through as the answer",
    "none": "whose results are the answer",
}


class _Row(Struct, frozen=True):
    name: str
    who: str
    wants: str
    task: Task


def plan_heading(plan: Plan) -> str:
    if not plan.tasks:
        return "plan: nothing to do"
    return f"plan: {counted(len(plan.tasks), 'task')}, {_COMBINED[plan.combine]}"


def plan_tree(plan: Plan, columns: int) -> list[str]:
    """One line a task, each under the input that comes last; what else it needs stands behind it."""
    found = [_row(indent, task) for indent, task in _branches(plan.tasks)]
    name, who = (max((len(text) for text in texts), default=0) for texts in _columns(found))
    lines: list[str] = []
    for row in found[:_MOST]:
        head = f"{row.name:{name}}  {row.who:{who}}  "
        room = columns - len(head) - (len(row.wants) + 2 if row.wants else 0)
        said = short(row.task.instruction, max(_LEAST_ROOM, room))
        lines.append(f"{head}{said}  {row.wants}".rstrip())
    if len(found) > _MOST:
        lines.append(f"… and {len(found) - _MOST} more")
    return lines


def _columns(found: Sequence[_Row]) -> tuple[list[str], list[str]]:
    return [row.name for row in found[:_MOST]], [row.who for row in found[:_MOST]]


def _row(indent: str, task: Task) -> _Row:
    return _Row(name=indent + short(task.id, 24), who=short(_for_whom(task), 20), wants=_wants(task), task=task)


def _for_whom(task: Task) -> str:
    if task.worker or task.match is None:
        return task.worker or "anybody"
    tags = [*task.match.all, *(["/".join(task.match.some)] if task.match.some else [])]
    return f"#{' #'.join(tags)}"


def _wants(task: Task) -> str:
    parts = [f"each of {task.for_each}"] if task.for_each else []
    given = [one for one in needs(task) if one[0] != task.for_each]
    parts += [name for name, need in given if need == "required"]
    parts += [f"{name} (optional)" for name, need in given if need == "optional"]
    if quorum := [name for name, need in given if need == "quorum"]:
        parts.append(f"{task.quorum} of ({', '.join(quorum)})")
    return clean(f"needs {', '.join(parts)}") if parts else ""


def _branches(tasks: Sequence[Task]) -> Iterator[tuple[str, Task]]:
    """The tasks with their indents, depth first. Tasks in a circle have no place in a tree and come last."""
    line, _ = in_order(tasks)
    level: dict[TaskId, int] = {}
    children: dict[TaskId | None, list[Task]] = {}
    for task in line:
        inside = [(level[name], need == "required", name) for name, need in needs(task) if name in level]
        level[task.id] = 1 + max((one[0] for one in inside), default=0)
        _, _, mother = max(inside, default=(0, False, None))
        children.setdefault(mother, []).append(task)
    stack = [("", task, task is children[None][-1]) for task in reversed(children.get(None, []))]
    while stack:
        indent, task, last = stack.pop()
        yield f"{indent}{'└─' if last else '├─'} ", task
        below = children.get(task.id, [])
        deeper = indent + ("   " if last else "│  ")
        stack += [(deeper, one, one is below[-1]) for one in reversed(below)]
    placed = {id(task) for task in line}
    yield from (("?─ ", task) for task in tasks if id(task) not in placed)


def forecast_lines(forecast: Forecast) -> list[str]:
    """What a plan will take, in a few lines; nothing about times and costs that were not stated."""
    path = " → ".join([*map(clean, forecast.critical_path[:8]), *(["…"] if len(forecast.critical_path) > 8 else [])])
    lines: list[str] = []
    if forecast.timed:
        once = f", where {', '.join(map(clean, forecast.unbounded))} counts once" if forecast.unbounded else ""
        work = f"{seconds(forecast.serial)} of work, up to {forecast.width} at once{once}"
        lines.append(f"expected: {seconds(forecast.makespan)} ({work})")
        lines.append(f"critical: {path} ({seconds(forecast.critical)})")
    elif len(forecast.critical_path) > 1:
        lines.append(f"longest chain: {path}")
    cost = forecast.usd if isinstance(forecast, PlanForecast) else None
    if cost is not None:
        return [*lines, *_cost_lines(cost, forecast.cost)]
    stated = [dollars(forecast.cost.micros)] if forecast.cost.micros else []
    stated += _tokens_and_calls(forecast.cost)
    return [*lines, f"cost: about {', '.join(stated)}"] if stated else lines


def _cost_lines(cost: CostForecast, stated: Amount) -> list[str]:
    """The estimate in dollars; tokens and calls are still those that the workers state."""
    more = _tokens_and_calls(stated)
    if cost.about is None:
        models = clean(" and ".join(cost.unknown)) or "one of the models"
        return [", ".join([f"cost: unknown, since nobody knows what {models} costs", *more])]
    if cost.about == 0 and not cost.grows:
        return [", ".join(["cost: $0, since no model that is asked costs anything", *more])]
    grows = f" or more ({clean(cost.grows)})" if cost.grows else ""
    cap = f", above the budget of {dollars(round(1_000_000 * (cost.budget or 0)))}" if cost.above_budget else ""
    about = roughly(round(1_000_000 * cost.about))
    return [", ".join([f"cost: about {about}{grows}{cap}", *more]), f"estimate: {BASIS}"]


def _tokens_and_calls(amount: Amount) -> list[str]:
    parts = [f"{amount.tokens:,} tokens"] if amount.tokens else []
    return [*parts, f"{amount.calls:,} calls"] if amount.calls else parts


def describe_finding(found: Finding) -> str:
    """One finding on one line: how grave, where, what, and its code."""
    return f"{'error' if found.grave else 'warning'}: {clean(found.place)}: {clean(found.message)} [{found.code}]"


def mermaid(plan: Plan) -> str:
    """The plan as a Mermaid flowchart; a dotted arrow is an optional input."""
    number = {task.id: f"t{at}" for at, task in enumerate(plan.tasks)}
    lines = ["flowchart TD"]
    for task in plan.tasks:
        label = clean(f"{task.id}: {_for_whom(task)}").replace("&", "#amp;").replace('"', "#quot;").replace("<", "#lt;")
        lines.append(f'  {number[task.id]}["{label}"]')
        for name, need in needs(task):
            arrow = {"required": "-->", "optional": "-.->", "quorum": f"-- {task.quorum} of --->"}[need]
            arrow = "-- each -->" if name == task.for_each else arrow
            if name in number:
                lines.append(f"  {number[name]} {arrow} {number[task.id]}")
    return "\n".join(lines)
