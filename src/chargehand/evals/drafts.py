"""Scores of plans that are not carried out: where a request goes (routing), and how good its plan is."""

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager

import msgspec
from msgspec import Struct

from chargehand.agents.draft import Draft, draft
from chargehand.agents.strategies import Route
from chargehand.engine.plan import Task, TaskId, in_order, needs
from chargehand.evals.bench import RUN_SEED, Bench, check_workers
from chargehand.evals.cases import Case, PlanShape, kind_of
from chargehand.evals.measures import OUT
from chargehand.evals.report import Score
from chargehand.runtime.executor import Executor
from chargehand.team import Team

_MAX_INSTRUCTION_CHARS = 80


@asynccontextmanager
async def open_draft_scorer(bench: Bench) -> AsyncGenerator[Callable[[Case], Awaitable[list[Score]]]]:
    """All cases are drafted by one executor: a plan that is not carried out leaves nothing behind."""
    team = await bench.new_team().keep_budget()
    async with team.executor() as executor:

        async def score_case(case: Case) -> list[Score]:
            return [await _score(team, executor, case)]

        yield score_case


async def _score(team: Team, executor: Executor, case: Case) -> Score:
    check_workers(team, _named_workers(case))
    began = time.perf_counter()
    drafted = await draft(executor, team.request(case.request, time.time(), seed=RUN_SEED))
    seconds = time.perf_counter() - began
    verdict = _judge_route(team, case, drafted) if case.plan is None else _judge_plan(case.plan, drafted)
    return Score(
        case=case.name,
        kind=kind_of(case),
        passed=not verdict.problems,
        why=verdict.problems,
        values=verdict.values,
        seconds=seconds,
        usd=None if drafted.spent is None else drafted.spent.micros / 1_000_000,
        request=case.request,
        got=verdict.got,
        wanted=verdict.wanted,
        notes=(*drafted.notes, *(finding.message for finding in drafted.findings)),
    )


def _named_workers(case: Case) -> Iterable[str]:
    yield from case.labels
    if case.plan is not None:
        yield from case.plan.workers
        for pair in (*case.plan.edges, *case.plan.independent):
            yield from pair


class _Verdict(Struct, frozen=True):
    """What is wrong with a plan, its figures, and what it is and should be in words."""

    problems: tuple[str, ...]
    values: dict[str, float]
    got: str
    wanted: str


# --- routes


def _judge_route(team: Team, case: Case, drafted: Draft) -> _Verdict:
    """Of a team that is not led by a `route`, every worker with a task counts."""
    strategy = team.supervisor.strategy
    wanted = set(case.labels)
    names = [task.worker for task in drafted.plan.tasks]
    if isinstance(strategy, Route) and strategy.secondary and len(wanted) < 2:
        names = names[:1]  # the secondary worker is asked as well; the route is the first
    chosen: set[str] = set(names)
    if not wanted and isinstance(strategy, Route) and chosen == {strategy.generalist}:
        chosen = set()  # what is out of scope goes to the generalist
    got = _label(team, chosen)
    label = _label(team, wanted)
    values = {"refused": float(not chosen)} if wanted else {"out_of_scope": float(not chosen)}
    if drafted.route is not None:
        values["confidence"] = drafted.route.confidence
    problems = () if chosen == wanted else (f"it went to {got}, and is for {label}",)
    return _Verdict(problems=problems, values=values, got=got, wanted=label)


def _label(team: Team, names: set[str]) -> str:
    known = [worker.name for worker in team.members if worker.name in names]
    return " + ".join([*known, *sorted(names.difference(known))]) or OUT


# --- plans


def _judge_plan(wanted: PlanShape, drafted: Draft) -> _Verdict:
    tasks = drafted.plan.tasks
    workers = {task.worker for task in tasks}
    edges = waiting_pairs(tasks)
    bound = [pair for pair in wanted.independent if pair in edges or pair[::-1] in edges]
    codes = [finding.code for finding in drafted.findings]
    values: dict[str, float] = {
        "tasks": len(tasks),
        "width": drafted.forecast.width if drafted.forecast else 0,
        "vague": codes.count("vague_instruction"),
        "unserved": len(drafted.unserved),
        "needless": len(bound),
    }
    problems: list[str] = []
    if wanted.workers:
        missing = [name for name in wanted.workers if name not in workers]
        values["workers"] = 1 - len(missing) / len(wanted.workers)
        others = ", ".join(sorted(workers)) or "no worker"
        problems += [f"{', '.join(missing)} has no task in it; {others} has"] if missing else []
    if wanted.edges:
        absent = [pair for pair in wanted.edges if pair not in edges]
        values["edges"] = 1 - len(absent) / len(wanted.edges)
        problems += [f"{second} does not work from the result of {first}" for first, second in absent]
    problems += [f"one of {first} and {second} waits for the other, and need not" for first, second in bound]
    problems += _exceeded_limits(wanted, values, drafted.unserved)
    return _Verdict(
        problems=tuple(problems),
        values=values,
        got="; ".join(map(_describe_task, tasks)) or "no tasks",
        wanted=msgspec.json.encode(wanted).decode(),
    )


def _exceeded_limits(wanted: PlanShape, values: dict[str, float], unserved: Sequence[str]) -> Iterator[str]:
    if values["vague"] > wanted.vague:
        yield f"{values['vague']:g} tasks are vague"
    if len(unserved) > wanted.unserved:
        yield f"no worker is given a part of the request: {'; '.join(unserved)}"
    if values["width"] < wanted.width:
        yield f"{values['width']:g} tasks can run in parallel; {wanted.width} are wanted"
    if wanted.max_tasks and values["tasks"] > wanted.max_tasks:
        yield f"it has {values['tasks']:g} tasks; {wanted.max_tasks} are enough"


def waiting_pairs(tasks: Sequence[Task]) -> frozenset[tuple[str, str]]:
    """Pairs of workers of which the second waits for the first, directly or through others."""
    ordered, _ = in_order(tasks)
    by_id = {task.id: task for task in ordered}
    before: dict[TaskId, set[TaskId]] = {}
    for task in ordered:
        direct = {name for name, _ in needs(task) if name in by_id}
        before[task.id] = direct.union(*(before[name] for name in direct))
    return frozenset((by_id[name].worker, task.worker) for task in ordered for name in before[task.id])


def _describe_task(task: Task) -> str:
    before = ", ".join(name for name, _ in needs(task))
    after = f" after {before}" if before else ""
    return f"{task.id} {task.worker}{after}: {task.instruction[:_MAX_INSTRUCTION_CHARS]}"
