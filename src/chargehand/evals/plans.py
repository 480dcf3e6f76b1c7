"""Scores of plans: workers and edges there must be, width, inputs that are not read, vague tasks, parts left out."""

import time
from collections.abc import Iterator, Sequence
from random import Random

from msgspec import Struct

from chargehand.errors import ChargehandError
from chargehand.evals.bench import Bench, check_workers, failed_to_try
from chargehand.evals.cases import Case, PlanShape
from chargehand.evals.report import Score, Section, Table
from chargehand.evals.statistics import measure_accuracy, measure_usd, measure_value
from chargehand.runtime.draft import Draft, draft
from chargehand.terms.plan import Task, TaskId, in_order, needs

_RUN_SEED = 7
_MAX_INSTRUCTION_CHARS = 80


async def score_plan(bench: Bench, case: Case) -> list[Score]:
    """One case of the kind `plan`. Nothing is carried out."""
    wanted = case.plan or PlanShape()
    try:
        team = bench.new_team()
        pairs = (*wanted.edges, *wanted.independent)
        check_workers(team, (*wanted.workers, *(name for pair in pairs for name in pair)))
        team = await team.keep_budget()
        began = time.perf_counter()
        async with team.crew() as crew:
            drafted = await draft(crew, team.request(case.request, time.time(), seed=_RUN_SEED))
        seconds = time.perf_counter() - began
    except ChargehandError as error:
        return [failed_to_try(case, error)]
    figures = measure_plan(wanted, drafted)
    problems = tuple(_problems(wanted, figures, drafted.unserved))
    score = Score(
        case=case.name,
        kind="plan",
        passed=not problems,
        why=problems,
        values=figures.values(wanted),
        seconds=seconds,
        usd=None if drafted.spent is None else drafted.spent.micros / 1_000_000,
        request=case.request,
        got="; ".join(map(_describe_task, drafted.plan.tasks)) or "no tasks",
        wanted=_describe_wanted(wanted),
        notes=tuple(finding.message for finding in drafted.findings),
    )
    return [score]


class PlanFigures(Struct, frozen=True):
    """What a plan is, as far as cases can ask for it."""

    workers: frozenset[str]
    edges: frozenset[tuple[str, str]]
    """Pairs of workers of which the second waits for the first, directly or through others."""
    bound: tuple[tuple[str, str], ...]
    """Pairs that should be independent and are not."""
    tasks: int
    width: int
    unread_inputs: int
    vague: int
    unserved: int

    def values(self, wanted: PlanShape) -> dict[str, float]:
        values = {
            "tasks": float(self.tasks),
            "width": float(self.width),
            "vague": float(self.vague),
            "unserved": float(self.unserved),
            "needless": float(self.unread_inputs + len(self.bound)),
        }
        if wanted.workers:
            values["workers"] = sum(name in self.workers for name in wanted.workers) / len(wanted.workers)
        if wanted.edges:
            values["edges"] = sum(pair in self.edges for pair in wanted.edges) / len(wanted.edges)
        return values


def measure_plan(wanted: PlanShape, drafted: Draft) -> PlanFigures:
    edges = waiting_pairs(drafted.plan.tasks)
    codes = [finding.code for finding in drafted.findings]
    return PlanFigures(
        workers=frozenset(task.worker for task in drafted.plan.tasks),
        edges=edges,
        bound=tuple(pair for pair in wanted.independent if pair in edges or (pair[1], pair[0]) in edges),
        tasks=len(drafted.plan.tasks),
        width=drafted.forecast.width if drafted.forecast else 0,
        unread_inputs=codes.count("unread_input"),
        vague=codes.count("vague_instruction"),
        unserved=len(drafted.unserved),
    )


def waiting_pairs(tasks: Sequence[Task]) -> frozenset[tuple[str, str]]:
    """Pairs of workers of which the second waits for the first, directly or through others."""
    ordered, _ = in_order(tasks)
    by_id = {task.id: task for task in ordered}
    before: dict[TaskId, set[TaskId]] = {}
    for task in ordered:
        direct = {name for name, _ in needs(task) if name in by_id}
        before[task.id] = direct.union(*(before[name] for name in direct))
    return frozenset((by_id[name].worker, task.worker) for task in ordered for name in before[task.id])


def _problems(wanted: PlanShape, figures: PlanFigures, unserved: Sequence[str]) -> Iterator[str]:
    if missing := [name for name in wanted.workers if name not in figures.workers]:
        others = ", ".join(sorted(figures.workers)) or "no worker"
        yield f"{', '.join(missing)} has no task in it; {others} has"
    for first, second in wanted.edges:
        if (first, second) not in figures.edges:
            yield f"{second} does not work from the result of {first}"
    for first, second in figures.bound:
        yield f"one of {first} and {second} waits for the other, and need not"
    if figures.unread_inputs > wanted.needless:
        yield f"{figures.unread_inputs} inputs are waited for and not read"
    if figures.vague > wanted.vague:
        yield f"{figures.vague} tasks are vague"
    if figures.unserved > wanted.unserved:
        yield f"no worker is given a part of the request: {'; '.join(unserved)}"
    if figures.width < wanted.width:
        yield f"{figures.width} tasks can run in parallel; {wanted.width} are wanted"
    if wanted.max_tasks and figures.tasks > wanted.max_tasks:
        yield f"it has {figures.tasks} tasks; {wanted.max_tasks} are enough"


def _describe_task(task: Task) -> str:
    before = ", ".join(name for name, _ in needs(task))
    after = f" after {before}" if before else ""
    return f"{task.id} {task.worker}{after}: {task.instruction[:_MAX_INSTRUCTION_CHARS]}"


def _describe_wanted(wanted: PlanShape) -> str:
    parts: list[str] = []
    if wanted.workers:
        parts.append(f"workers: {', '.join(wanted.workers)}")
    if wanted.edges:
        parts.append(f"edges: {', '.join(f'{first} → {second}' for first, second in wanted.edges)}")
    if wanted.width:
        parts.append(f"width: {wanted.width}")
    return "; ".join(parts)


def report_plans(dataset: str, scores: Sequence[Score], random: Random) -> Section:
    tried = [score for score in scores if not score.error]
    measures = [measure_accuracy(scores)]
    if tried:
        asked = [name for name in ("workers", "edges") if any(name in score.values for score in tried)]
        measures += [measure_value(name, tried, random) for name in (*asked, "width")]
        measures += [measure_value(name, tried, random, "less") for name in ("needless", "vague", "unserved")]
        measures += measure_usd(tried, random)
    columns = ("tasks", "width", "needless", "vague", "unserved")
    rows = tuple(
        (
            score.case,
            "passed" if score.passed else "failed",
            *(f"{score.values.get(name, 0):g}" for name in columns),
        )
        for score in scores
    )
    table = Table("Plans", ("case", "", *columns), rows)
    return Section(dataset=dataset, kind="plan", scores=tuple(scores), measures=tuple(measures), tables=(table,))
