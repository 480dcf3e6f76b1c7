"""Scores of cases: a case is tried on a new team, which does not act on the world unless it is allowed to.

Cases of the kinds `run` and `worker` are carried out, `routing` and `plan` are planned only, and those of the kind
`verifier` put right and wrong results before the checks of the team.
"""

import copy
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TypeAlias, TypeVar

import msgspec
from msgspec import Struct, structs

from chargehand.agents.audit.failure_modes import audit_run
from chargehand.agents.checks import Check, Reviewer, Verifier
from chargehand.agents.draft import Draft, draft
from chargehand.agents.result import Result, read_result
from chargehand.agents.roles import Supervisor, Worker
from chargehand.agents.strategies import Route
from chargehand.agents.team_spec import TeamSpec
from chargehand.engine.events import AttemptFailed, Noted
from chargehand.engine.facts import NotReviewed
from chargehand.engine.failure import Failure
from chargehand.engine.plan import Plan, Task, TaskId, in_order, needs
from chargehand.engine.policy import Policy, Retry
from chargehand.errors import ChargehandError, Invalid, Refused
from chargehand.evals.cases import NO_WORKER, Case, Expect, PlanShape, as_tuple, kind_of
from chargehand.evals.graders import NO_JUDGE, answer_of, grade_answer
from chargehand.evals.report import Score
from chargehand.journal.memory import MemoryJournal
from chargehand.models.messages import Request
from chargehand.models.model import Model
from chargehand.models.request_facts import Working
from chargehand.models.resolve import Lookup
from chargehand.models.testing.scripted import ScriptedModel
from chargehand.runtime.executor import Executor
from chargehand.runtime.runner import Runner, checked
from chargehand.team import Team
from chargehand.text.words import did_you_mean
from chargehand.tools.tool import Tool

RUN_SEED = 7
TeamFactory: TypeAlias = Callable[[], Team]
_T = TypeVar("_T")


class Bench(Struct, frozen=True):
    """What cases are tried on: a new team for each, so that none sees what another left in memory."""

    team_factory: TeamFactory
    lookup: Lookup
    """Finds the keys of models that a case names."""
    judge: Model | None = None
    """Judges rubrics."""
    folder: str = ""
    """Where grader functions are looked for."""
    act: bool = False
    """Whether tools that change something are called."""

    def new_team(self) -> Team:
        team = self.team_factory()
        return team if self.act else require_approval(team)


def untried_score(case: Case, error: Exception) -> Score:
    """The score of a case that could not be tried: it has not passed."""
    prefix = "" if isinstance(error, ChargehandError) else f"{type(error).__name__}: "
    why = f"it could not be tried: {prefix}{error}"
    return Score(case=case.name, kind=kind_of(case), passed=False, why=(why,), error=True, request=case.request)


def check_workers(team: Team, names: Iterable[str]) -> None:
    """Raise Invalid for a worker that a case names and the team does not have."""
    if team.supervisor.factory is not None:
        return  # the names of workers that are made during a run are not known yet
    existing = [worker.name for worker in team.spec.workers]
    for name in names:
        if name not in existing:
            raise Invalid(f"there is no worker {name!r} on team {team.name}; {did_you_mean(name, existing)}")


# --- a team that does not act


def require_approval(team: Team) -> Team:
    """The same team, and the teams inside it, with approval needed for every tool that changes something.

    A tool that changes something and declares its effect as `read` is believed. Memory tools are left as they are: a
    case has a memory of its own.
    """
    spec = team.spec
    supervisor = spec.supervisor
    factory = supervisor.factory
    if factory is not None:
        factory = structs.replace(factory, tools=tuple(map(_tool_with_approval, factory.tools)))
        supervisor = structs.replace(supervisor, factory=factory)
    team = copy.copy(team)
    workers = tuple(map(_worker_with_approval, spec.workers))
    team.spec = structs.replace(spec, workers=workers, supervisor=supervisor)
    return team


def _worker_with_approval(worker: Worker) -> Worker:
    inner = worker.team
    if inner is not None and not isinstance(inner, Team):
        raise Refused(
            f"whether {worker.name}, a team of another kind, changes something is not known; try it with --act"
        )
    if worker.call is not None:
        raise Refused(f"whether the function of {worker.name} changes something is not known; try it with --act")
    if inner is not None:
        inner = require_approval(inner)
    return structs.replace(worker, tools=tuple(map(_tool_with_approval, worker.tools)), team=inner)


def _tool_with_approval(tool: _T) -> _T:
    if isinstance(tool, Tool) and tool.effect != "read" and not tool.approve:
        return structs.replace(tool, approve=True)
    return tool


# --- whole teams and single workers: their answers


_TASK = TaskId("t1")
"""The one task of a worker that is asked alone."""
_MAX_CALL_CHARS = 300
_MAX_ANSWER_CHARS = 2000


async def score_answer(bench: Bench, case: Case) -> list[Score]:
    """One case of the kinds `run` and `worker`."""
    expect = case.expect or Expect()
    worker = case.labels[0] if kind_of(case) == "worker" else ""
    if expect.rubric and bench.judge is None:
        raise Refused(NO_JUDGE)
    began = time.perf_counter()
    result = await _carry_out(bench.new_team(), case, worker)
    seconds = time.perf_counter() - began
    answer = answer_of(result.results.get(_TASK) if worker else result.answer)
    try:
        _refuse_to_act(bench, case, result)
        grade = await grade_answer(expect, answer, request=case.request, folder=bench.folder, judge=bench.judge)
    except ChargehandError as error:  # what the run took was taken all the same
        return [structs.replace(untried_score(case, error), seconds=seconds, usd=result.cost)]
    problems = (*grade.problems, *_run_problems(case, result, worker, seconds))
    findings = [] if worker else [finding for finding in audit_run(result.entries) if not finding.prevented]
    values = {
        "coverage": result.coverage.share,
        "gaps": float(len(result.gaps)),
        "calls": float(result.spent.calls),
        "tokens": float(result.spent.tokens),
        "failure_modes": float(len(findings)),
    }
    score = Score(
        case=case.name,
        kind=kind_of(case),
        passed=not problems,
        why=problems,
        values=values,
        seconds=seconds,
        usd=None if grade.usd is None else result.cost + grade.usd,
        request=case.request,
        got=answer.text[:_MAX_ANSWER_CHARS],
        wanted=(case.answer or msgspec.json.encode(expect).decode())[:_MAX_ANSWER_CHARS],
        notes=tuple(f"{finding.mode}: {finding.message} {finding.evidence}".rstrip() for finding in findings),
    )
    return [score]


async def _carry_out(team: Team, case: Case, worker: str) -> Result:
    """Run the request of a case in a journal of its own; with one task where a worker is named."""
    check_workers(team, (*case.workers, *case.labels))
    plan = None
    if worker:
        plan = Plan((Task(_TASK, case.request, worker),), "forward")
    team = team.bounded(policy=structs.replace(team.policy, approve=False))  # plans are not waited for
    team = await team.keep_budget()
    journal = MemoryJournal()
    now = time.time()
    request = checked(team.request(case.request, now, plan=plan, seed=RUN_SEED), now)
    async with team.executor() as executor:
        outcome = await Runner(journal, executor).start("eval", request)
        return read_result(outcome, await journal.read("eval"))


def _refuse_to_act(bench: Bench, case: Case, result: Result) -> None:
    """Raise Refused for a run that waits to act, or a team inside it, unless the case is to show just that."""
    if bench.act or case.ending == "needs_input":
        return
    question = result.question
    failures = [entry.event.failure for entry in result.entries if isinstance(entry.event, AttemptFailed)]
    waiting = [failure for failure in failures if failure.question is not None and failure.question.what == "tool"]
    nested = next((failure.message for failure in waiting if failure.kind != "approval"), "")
    if nested or (question is not None and question.what == "tool"):
        call = nested if question is None else f"it would call {question.text}"
        raise Refused(f"{call[:_MAX_CALL_CHARS]}; tools that change something are called only with --act")


def _run_problems(case: Case, result: Result, worker: str, seconds: float) -> Iterator[str]:
    """What of a run is not as it should be, besides its answer."""
    yield from _ending_problems(case, result, worker)
    worked = {task.worker for task in result.trace().tasks} | {task.worker for task in result.plan.tasks}
    if missing := [name for name in case.workers if name not in worked]:
        yield f"{', '.join(missing)} did not work on it; {', '.join(sorted(worked)) or 'no worker'} did"
    yield from _gap_problems(case, result)
    if result.coverage.share < case.coverage:
        yield f"it covers {result.coverage.share:.0%} of the plan; {case.coverage:.0%} are wanted"
    if case.max_usd is not None and result.cost > case.max_usd:
        yield f"it cost ${result.cost:.4f}; ${case.max_usd:g} are allowed"
    if case.max_seconds is not None and seconds > case.max_seconds:
        yield f"it took {seconds:.1f} s; {case.max_seconds:g} s are allowed"


def _ending_problems(case: Case, result: Result, worker: str) -> Iterator[str]:
    if result.question is not None and case.ending != "needs_input":
        yield f"it waits for input: {result.question.what} {result.question.text}".rstrip()
    elif worker and _TASK not in result.results and case.ending is None:
        yield f"{worker} has no result: {'; '.join(gap.message for gap in result.gaps) or result.reason}"
    if case.ending is not None and result.ending != case.ending:
        yield f"it ended {result.ending} ({result.reason}), not {case.ending}"
    elif case.ending is None and result.ending in ("failed", "needs_input", "cancelled") and not worker:
        why = "".join(f": {gap.message[:_MAX_CALL_CHARS]}" for gap in result.gaps[:1])
        yield f"it ended {result.ending} ({result.reason}){why}"


def _gap_problems(case: Case, result: Result) -> Iterator[str]:
    instructions = {task.id: task.instruction for task in result.plan.tasks}
    texts = " ".join(f"{instructions.get(gap.task, '')} {gap.message}" for gap in result.gaps)
    plain = " ".join(texts.casefold().split())
    for wanted in as_tuple(case.gaps):
        if " ".join(wanted.casefold().split()) not in plain:
            yield f"no gap speaks of {wanted!r}"
    if case.max_gaps is not None and len(result.gaps) > case.max_gaps:
        yield f"it has {len(result.gaps)} gaps; {case.max_gaps} are allowed"


# --- plans that are not carried out: routes and plans


_MAX_INSTRUCTION_CHARS = 80


@asynccontextmanager
async def open_draft_scorer(bench: Bench) -> AsyncGenerator[Callable[[Case], Awaitable[list[Score]]]]:
    """All cases are drafted by one executor: a plan that is not carried out leaves nothing behind."""
    team = await bench.new_team().keep_budget()
    async with team.executor() as executor:

        async def score_case(case: Case) -> list[Score]:
            return [await _score_draft(team, executor, case)]

        yield score_case


async def _score_draft(team: Team, executor: Executor, case: Case) -> Score:
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
    problems = () if chosen == wanted else (f"it went to {got}, and is for {label}",)
    return _Verdict(problems=problems, values=values, got=got, wanted=label)


def _label(team: Team, names: set[str]) -> str:
    ordered = [worker.name for worker in team.members if worker.name in names]
    return " + ".join([*ordered, *sorted(names.difference(ordered))]) or NO_WORKER


# --- plans


def _judge_plan(wanted: PlanShape, drafted: Draft) -> _Verdict:
    tasks = drafted.plan.tasks
    return _Verdict(
        problems=tuple(_plan_problems(wanted, drafted, waiting_pairs(tasks))),
        values={"tasks": len(tasks)},
        got="; ".join(map(_describe_task, tasks)) or "no tasks",
        wanted=msgspec.json.encode(wanted).decode(),
    )


def _plan_problems(wanted: PlanShape, drafted: Draft, edges: frozenset[tuple[str, str]]) -> Iterator[str]:
    tasks = drafted.plan.tasks
    workers = sorted({task.worker for task in tasks})
    if missing := [name for name in wanted.workers if name not in workers]:
        yield f"{', '.join(missing)} has no task in it; {', '.join(workers) or 'no worker'} has"
    for first, second in wanted.edges:
        if (first, second) not in edges:
            yield f"{second} does not work from the result of {first}"
    for first, second in wanted.independent:
        if (first, second) in edges or (second, first) in edges:
            yield f"one of {first} and {second} waits for the other, and need not"
    vague = sum(finding.code == "vague_instruction" for finding in drafted.findings)
    if vague > wanted.vague:
        yield f"{vague} tasks are vague"
    if len(drafted.unserved) > wanted.unserved:
        yield f"no worker is given a part of the request: {'; '.join(drafted.unserved)}"
    width = drafted.forecast.width if drafted.forecast else 0
    if width < wanted.width:
        yield f"{width} tasks can run in parallel; {wanted.width} are wanted"
    if wanted.max_tasks and len(tasks) > wanted.max_tasks:
        yield f"it has {len(tasks)} tasks; {wanted.max_tasks} are enough"


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


# --- verifiers: right and wrong results put before the checks


_ONE_ATTEMPT = Policy(retry=Retry(attempts=1, fallback_attempts=1))
_SOURCE = "source-of-the-material"
_AUTHOR = "author-of-the-result"
_SOURCE_TASK = TaskId("t1")
_RESULT_TASK = TaskId("t2")
_BLANK = " \u200b"
"""A reply with nothing in it."""


class ResultVariant(Struct, frozen=True):
    """A result that is put before the checks of a case: `name` and `request` are those of its score."""

    name: str
    request: str
    mistake: str
    """What is wrong with it; `right` where nothing is."""
    text: str


def result_variants(case: Case) -> Iterator[ResultVariant]:
    """The right results of a case of the kind `verifier`, then the wrong ones."""
    results = [("right", text) for text in as_tuple(case.right)] + list(case.wrong.items())
    for number, (mistake, text) in enumerate(results, 1):
        name = f"{case.name}: {mistake} ({number})"
        yield ResultVariant(name=name, request=f"{case.request}\n{text}", mistake=mistake, text=text)


async def score_results(bench: Bench, case: Case) -> list[Score]:
    """A score for each result that is put before the checks of a case of the kind `verifier`."""
    scores: list[Score] = []
    for variant in result_variants(case):
        try:
            score = await _score_variant(bench, case, variant)
        except ChargehandError as error:
            score = untried_score(case, error)
        scores.append(structs.replace(score, case=variant.name, mistake=variant.mistake))
    return scores


async def _score_variant(bench: Bench, case: Case, variant: ResultVariant) -> Score:
    team = _checking_team(bench, case, variant.text)
    began = time.perf_counter()
    result = await team.run(case.request)
    seconds = time.perf_counter() - began
    refusal = ""
    if _RESULT_TASK not in result.results:
        messages = [gap.message for gap in result.gaps if gap.task == _RESULT_TASK]
        refusal = messages[0] if messages else "it did not count as done"
    if broken := _broken_check(result):
        raise Refused(f"no check judged it: {broken}")
    is_right = variant.mistake == "right"
    why: tuple[str, ...] = ()
    if is_right and refusal:
        why = (f"refused, although it is right: {refusal}",)
    elif not is_right and not refusal:
        why = (f"not noticed: {variant.mistake}",)
    return Score(
        case=variant.name,
        kind="verifier",
        passed=not why,
        why=why,
        values={"false_alarms" if is_right else "caught": float(bool(refusal))},
        seconds=seconds,
        usd=result.spent.micros / 1_000_000,
        request=variant.request,
        got=refusal or "accepted",
        wanted="accepted" if is_right else "refused",
    )


def _checking_team(bench: Bench, case: Case, text: str) -> Team:
    """A team with the checks of the case, in which a worker returns this text."""
    team = bench.new_team()
    check_workers(team, case.labels)
    spec = team.spec
    checks = _checks_of(case, spec)

    def reply(request: Request) -> str:
        assert isinstance(request.subject, Working), "only workers have this model"
        return case.source if request.subject.worker.name == _SOURCE else text or _BLANK

    model = ScriptedModel(reply)
    workers = [Worker(_SOURCE, model=model), Worker(_AUTHOR, model=model, accept=tuple(checks))]
    reviewers = [check.worker for check in checks.values() if isinstance(check, Reviewer)]
    for worker in spec.workers:
        if worker.name in reviewers:
            reviewer_model = worker.model or spec.models[0]
            workers.append(
                Worker(name=worker.name, description=worker.description, prompt=worker.prompt, model=reviewer_model)
            )
    source = (Task(_SOURCE_TASK, "Hand over what there is to work from.", _SOURCE),) if case.source else ()
    task = Task(_RESULT_TASK, case.request, _AUTHOR, after=tuple(before.id for before in source))
    return Team(
        workers,
        supervisor=Supervisor(model=spec.models[0], judge=spec.models[2], plan=Plan((*source, task), "none")),
        policy=_ONE_ATTEMPT,
        checks=checks,
        lookup=bench.lookup,
    )


def _broken_check(result: Result) -> str:
    """Why a verdict says nothing of the checks: one did not work, or its reviewer could not be asked."""
    for entry in result.entries:
        match entry.event:
            case AttemptFailed(failure=Failure(code="check_failed", message=message)):
                return message
            case Noted(fact=NotReviewed(), text=text):
                return text
            case _:
                pass
    return ""


def _checks_of(case: Case, spec: TeamSpec) -> Mapping[str, Check]:
    """The checks that the case names, else those of its worker; where there are none, a verifier."""
    available = spec.checks
    names = case.checks or tuple(name for worker in case.labels for name in available.by_worker.get(worker, ()))
    if unknown := [name for name in names if name not in available.by_name]:
        existing = ", ".join(available.by_name) or "none"
        raise Invalid(f"the team has no check {unknown[0]!r}; there are {existing}")
    return {name: available.by_name[name] for name in names} or {"verifier": Verifier()}
