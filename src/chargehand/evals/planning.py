"""Scores of plans: the workers and edges there must be, how wide they are, needless waits, vague tasks, parts left."""

from collections.abc import Iterator, Mapping, Sequence
from random import Random

from chargehand.agents.instances import meant
from chargehand.errors import ChargehandError
from chargehand.evals.cases import Case, Shape
from chargehand.evals.measures import accuracy, averaged, usd
from chargehand.evals.scores import Part, Score, Table
from chargehand.evals.trials import Bench, drafted, expected, untried
from chargehand.runtime.draft import Draft
from chargehand.terms.plan import Task, TaskId, in_order, needs


async def score_plan(bench: Bench, case: Case) -> Score:
    """One case of the kind `plan`. Nothing is carried out."""
    wanted = case.plan or Shape()
    try:
        team = bench.team()
        pairs = (*wanted.edges, *wanted.independent)
        expected(team, (*wanted.workers, *(name for pair in pairs for name in pair)))
        found, seconds = await drafted(team, case)
    except ChargehandError as error:
        return untried(case, error)
    tasks = found.plan.tasks
    waits = waiting(tasks)
    values = _values(wanted, found, waits)
    wrong = tuple(_wrong(wanted, found, waits, values))
    got = "; ".join(f"{one.id} {meant(one)}{_after(one)}: {one.instruction[:80]}" for one in tasks) or "no tasks"
    return Score(
        case.name, "plan", not wrong, wrong, values=values, seconds=seconds,
        micros=None if found.spent is None else found.spent.micros, request=case.request, got=got,
        wanted=_told(wanted), notes=tuple(one.message for one in found.findings),
    )  # fmt: skip


def waiting(tasks: Sequence[Task]) -> frozenset[tuple[str, str]]:
    """Pairs of workers of whom the second waits for the first, directly or along others."""
    line, _ = in_order(tasks)
    by_id = {task.id: task for task in line}
    behind: dict[TaskId, set[TaskId]] = {}
    for task in line:
        direct = {name for name, _ in needs(task) if name in by_id}
        behind[task.id] = direct.union(*(behind[name] for name in direct))
    return frozenset((meant(by_id[name]), meant(task)) for task in line for name in behind[task.id])


def needless(found: Draft) -> int:
    """Inputs that nobody seems to read."""
    return sum(one.code == "unread_input" for one in found.findings)


def _values(wanted: Shape, found: Draft, pairs: frozenset[tuple[str, str]]) -> dict[str, float]:
    used = {meant(task) for task in found.plan.tasks}
    values = {
        "tasks": float(len(found.plan.tasks)),
        "width": float(found.forecast.width if found.forecast else 0),
        "vague": float(sum(one.code == "vague_instruction" for one in found.findings)),
        "unserved": float(len(found.unserved)),
        "needless": float(needless(found) + sum(_bound(pair, pairs) for pair in wanted.independent)),
    }
    if wanted.workers:
        values["workers"] = sum(name in used for name in wanted.workers) / len(wanted.workers)
    if wanted.edges:
        values["edges"] = sum(pair in pairs for pair in wanted.edges) / len(wanted.edges)
    return values


def _bound(pair: tuple[str, str], pairs: frozenset[tuple[str, str]]) -> bool:
    return pair in pairs or (pair[1], pair[0]) in pairs


def _wrong(
    wanted: Shape, found: Draft, pairs: frozenset[tuple[str, str]], values: Mapping[str, float]
) -> Iterator[str]:
    used = {meant(task) for task in found.plan.tasks}
    if missing := [name for name in wanted.workers if name not in used]:
        yield f"{', '.join(missing)} has nothing to do in it; {', '.join(sorted(used)) or 'nobody'} has"
    for first, second in wanted.edges:
        if (first, second) not in pairs:
            yield f"{second} does not work from what {first} found"
    for pair in wanted.independent:
        if _bound(pair, pairs):
            yield f"one of {pair[0]} and {pair[1]} waits for the other, and need not"
    yield from _too_many(wanted, found, values)
    if values["width"] < wanted.width:
        yield f"{values['width']:g} tasks can be done side by side; {wanted.width} are wanted"
    if wanted.most_tasks and values["tasks"] > wanted.most_tasks:
        yield f"it has {values['tasks']:g} tasks; {wanted.most_tasks} are enough"


def _too_many(wanted: Shape, found: Draft, values: Mapping[str, float]) -> Iterator[str]:
    if (unread := needless(found)) > wanted.needless:
        yield f"{unread} inputs are waited for and not read"
    if values["vague"] > wanted.vague:
        yield f"{values['vague']:g} tasks are vague"
    if len(found.unserved) > wanted.unserved:
        yield f"nobody is given a part of the request: {'; '.join(found.unserved)}"


def _after(task: Task) -> str:
    named = ", ".join(name for name, _ in needs(task))
    return f" after {named}" if named else ""


def _told(wanted: Shape) -> str:
    said = [f"workers: {', '.join(wanted.workers)}"] if wanted.workers else []
    said += [f"edges: {', '.join(f'{one} → {other}' for one, other in wanted.edges)}"] if wanted.edges else []
    said += [f"width: {wanted.width}"] if wanted.width else []
    return "; ".join(said)


def report_plans(dataset: str, scores: Sequence[Score], random: Random) -> Part:
    """All that is to be said of such cases."""
    tried = [one for one in scores if not one.error]
    measures = [accuracy(scores)]
    if tried:
        known = [name for name in ("workers", "edges") if any(name in one.values for one in tried)]
        measures += [averaged(name, tried, random) for name in (*known, "width")]
        measures += [averaged(name, tried, random, "less") for name in ("needless", "vague", "unserved")]
        measures += usd(tried, random)
    heads = ("case", "", "tasks", "width", "needless", "vague", "unserved")
    rows = tuple(
        (one.case, "passed" if one.passed else "failed", *(f"{one.values.get(name, 0):g}" for name in heads[2:]))
        for one in scores
    )
    return Part(dataset, "plan", tuple(scores), tuple(measures), (Table("Plans", heads, rows),))
