"""A plan as a tree, as Mermaid, and its forecast; findings in words."""

from collections.abc import Iterator, Sequence

from chargehand.agents.cost_forecast import BASIS, CostForecast, PlanForecast
from chargehand.cli.console import Console, clean, short
from chargehand.cli.format import counted, dollars, roughly, seconds
from chargehand.engine.budget import Amount
from chargehand.engine.forecast import Forecast
from chargehand.engine.plan import Finding, Plan, Task, TaskId, in_order, needs

_MAX_ROWS = 60  # tasks that a tree shows
_LEAST_ROOM = 16
_MAX_PATH = 8  # tasks of a critical path
_COMBINED = {
    "merge": "merged into one answer",
    "select": "of which the best is the answer",
    "vote": "of which the answer is the one most agree on",
    "reduce": "reduced to one answer",
    "forward": "of which one is handed through as the answer",
    "none": "whose results are the answer",
}


def print_plan(console: Console, plan: Plan, forecast: Forecast | None) -> None:
    """The tasks of a plan as a tree, and what it will take."""
    heading = f"{counted(len(plan.tasks), 'task')}, {_COMBINED[plan.combine]}" if plan.tasks else "nothing to do"
    console.line(f"plan: {heading}", "bold")
    for line in plan_tree(plan, console.columns):
        console.line(line)
    for line in forecast_lines(forecast) if forecast is not None else ():
        console.prose(line, "dim")


def plan_tree(plan: Plan, columns: int) -> list[str]:
    """One line a task, each under the input that comes last; what else it needs stands behind it."""
    rows = [(f"{indent}{short(task.id, 24)}", short(_worker(task), 20), task) for indent, task in _branches(plan.tasks)]
    visible = rows[:_MAX_ROWS]
    name_room = max((len(name) for name, _, _ in visible), default=0)
    worker_room = max((len(worker) for _, worker, _ in visible), default=0)
    lines: list[str] = []
    for name, worker, task in visible:
        head = f"{name:{name_room}}  {worker:{worker_room}}  "
        inputs = _describe_inputs(task)
        room = max(_LEAST_ROOM, columns - len(head) - len(inputs))
        lines.append(f"{head}{short(task.instruction, room)}{inputs}".rstrip())
    if len(rows) > _MAX_ROWS:
        lines.append(f"… and {len(rows) - _MAX_ROWS} more")
    return lines


def _worker(task: Task) -> str:
    if task.worker or task.match is None:
        return task.worker or "anybody"
    tags = [*task.match.all, *(["/".join(task.match.some)] if task.match.some else [])]
    return f"#{' #'.join(tags)}"


def _describe_inputs(task: Task) -> str:
    parts = [f"each of {task.for_each}"] if task.for_each else []
    quorum: list[str] = []
    for name, need in sorted(needs(task), key=lambda pair: pair[1] == "optional"):
        if need == "quorum":
            quorum.append(name)
        elif name != task.for_each:
            parts.append(name if need == "required" else f"{name} (optional)")
    if quorum:
        parts.append(f"{task.quorum} of ({', '.join(quorum)})")
    return clean(f"  needs {', '.join(parts)}") if parts else ""


def _branches(tasks: Sequence[Task]) -> Iterator[tuple[str, Task]]:
    """The tasks with their indents, depth first. Tasks in a circle have no place in a tree and come last."""
    ordered, _ = in_order(tasks)
    level: dict[TaskId, int] = {}
    children: dict[TaskId | None, list[Task]] = {}
    for task in ordered:
        inputs = [(level[name], need == "required", name) for name, need in needs(task) if name in level]
        level[task.id] = 1 + max((depth for depth, _, _ in inputs), default=0)
        _, _, parent = max(inputs, default=(0, False, None))
        children.setdefault(parent, []).append(task)
    stack = [("", task, task is children[None][-1]) for task in reversed(children.get(None, []))]
    while stack:
        indent, task, is_last = stack.pop()
        yield f"{indent}{'└─' if is_last else '├─'} ", task
        below = children.get(task.id, [])
        deeper = indent + ("   " if is_last else "│  ")
        stack += [(deeper, child, child is below[-1]) for child in reversed(below)]
    placed = {id(task) for task in ordered}
    yield from (("?─ ", task) for task in tasks if id(task) not in placed)


def forecast_lines(forecast: Forecast) -> list[str]:
    """What a plan will take, in a few lines; nothing about times and costs that were not stated."""
    names = list(forecast.critical_path[:_MAX_PATH])
    path = " → ".join([*names, "…"] if len(forecast.critical_path) > _MAX_PATH else names)
    lines: list[str] = []
    if forecast.timed:
        once = f", where {', '.join(map(clean, forecast.unbounded))} counts once" if forecast.unbounded else ""
        work = f"{seconds(forecast.serial)} of work, up to {forecast.width} at once{once}"
        lines.append(f"expected: {seconds(forecast.makespan)} ({work})")
        lines.append(f"critical: {path} ({seconds(forecast.critical)})")
    elif len(forecast.critical_path) > 1:
        lines.append(f"longest chain: {path}")
    usd = forecast.usd if isinstance(forecast, PlanForecast) else None
    costs = [_describe_usd(usd)] if usd is not None else []
    if usd is None and forecast.cost.micros:
        costs = [f"about {dollars(forecast.cost.micros)}"]
    stated = _tokens_and_calls(forecast.cost)
    if stated and not costs:
        stated[0] = f"about {stated[0]}"
    if costs or stated:
        lines.append(f"cost: {', '.join([*costs, *stated])}")
    if usd is not None and usd.about:
        lines.append(f"estimate: {BASIS}")
    return lines


def _describe_usd(cost: CostForecast) -> str:
    if cost.about is None:
        models = " and ".join(cost.unknown) or "one of the models"
        return f"unknown, since nobody knows what {models} costs"
    if cost.about == 0 and not cost.grows:
        return "$0, since no model that is asked costs anything"
    grows = f" or more ({cost.grows})" if cost.grows else ""
    cap = f", above the budget of {dollars(round(1_000_000 * (cost.budget or 0)))}" if cost.above_budget else ""
    return f"about {roughly(round(1_000_000 * cost.about))}{grows}{cap}"


def _tokens_and_calls(amount: Amount) -> list[str]:
    parts = [f"{amount.tokens:,} tokens"] if amount.tokens else []
    return [*parts, f"{amount.calls:,} calls"] if amount.calls else parts


def describe_finding(finding: Finding) -> str:
    """One finding on one line: how grave, where, what, and its code."""
    return f"{'error' if finding.grave else 'warning'}: {finding.place}: {finding.message} [{finding.code}]"


def mermaid(plan: Plan) -> str:
    """The plan as a Mermaid flowchart; a dotted arrow is an optional input."""
    nodes = {task.id: f"t{at}" for at, task in enumerate(plan.tasks)}
    lines = ["flowchart TD"]
    for task in plan.tasks:
        label = clean(f"{task.id}: {_worker(task)}").replace("&", "#amp;").replace('"', "#quot;").replace("<", "#lt;")
        lines.append(f'  {nodes[task.id]}["{label}"]')
        arrows = {"required": "-->", "optional": "-.->", "quorum": f"-- {task.quorum} of --->"}
        for name, need in needs(task):
            arrow = "-- each -->" if name == task.for_each else arrows[need]
            if name in nodes:
                lines.append(f"  {nodes[name]} {arrow} {nodes[task.id]}")
    return "\n".join(lines)
