"""Teams that work for others: one attempt is one step that starts a run, and what comes of that run is its result."""

import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Protocol

import msgspec
from msgspec import Struct, structs

from chargehand.agents.inputs import output_of, own_words
from chargehand.engine import events as ev
from chargehand.engine.budget import NOTHING, Amount, Budget
from chargehand.engine.failure import Failure, FailureKind, Gap, Missing
from chargehand.engine.owed import Brief
from chargehand.engine.plan import NO_TASK
from chargehand.engine.policy import Policy, Seconds
from chargehand.engine.roster import Roster
from chargehand.engine.state import RunState, Status
from chargehand.engine.value import decode_value
from chargehand.engine.view import results
from chargehand.errors import ChargehandError, Invalid
from chargehand.journal.protocol import Journal
from chargehand.models.artifacts import Artifact, WorkerOutput
from chargehand.models.resolve import Finder
from chargehand.runtime.executor import (
    Claim,
    Done,
    Executor,
    NestedRequest,
    NestedRun,
    RunBounds,
    StepContext,
    WorkFailed,
)
from chargehand.runtime.nested import identify_brief, material_of, nesting_of, question_inside
from chargehand.text.citations import rename_citations

# characters of a line, and lines
_LONGEST = 400
_MOST = 20
_MOST_ARTIFACTS = 8
_LARGEST_ARTIFACT = 64 * 1024
_PASSING: tuple[FailureKind, ...] = ("network", "timeout", "resource")  # what may be over the next time
_WHY = {"budget": "the money it was given was too little", "deadline": "its time ran out"}
_INWARDS = " > "
ONCE = "It has had effects already, so it is not tried again."
NOT_ALLOWED = "A person did not allow a call of it, so it is not tried again."


class TeamExecutor(Executor, Protocol):
    """The executor of a team."""

    @property
    def free(self) -> bool:
        """Whether nothing it does costs anything."""
        ...

    def supervision(self, budget: Budget) -> Amount:
        """What a call of the supervisor is taken to cost."""
        ...


class RunnableTeam(Protocol):
    """What is needed of a team that works for another."""

    name: str
    policy: Policy
    budget: Budget
    timeout: Seconds
    roster: Roster

    @property
    def queue(self) -> str:
        """The queue whose processes drive its runs; empty: it has none of its own."""
        ...

    @property
    def queues(self) -> frozenset[str]:
        """The queues that serve its runs, its workers and the teams among them."""
        ...

    @property
    def notice(self) -> str: ...

    @property
    def teams(self) -> "tuple[RunnableTeam, ...]":
        """The teams among its workers."""
        ...

    def bounded(self, *, budget: Budget | None = None, policy: Policy | None = None) -> "RunnableTeam":
        """The same team within other bounds."""
        ...

    async def unpriced_models(self, finder: Finder) -> tuple[str, ...]:
        """The handles of the models that a cap in dollars could not be kept with."""
        ...

    async def keep_budget(self, finder: Finder) -> "RunnableTeam":
        """The same team with a budget that can be kept."""
        ...

    def request(self, goal: str, now: float, *, seed: int | None = None) -> ev.RunRequested: ...

    async def offered(self, journal: Journal, request: ev.RunRequested) -> Sequence[ev.Event]:
        """What earlier runs of a journal have for this one."""
        ...

    def executor(self, finder: Finder | None = None) -> AbstractAsyncContextManager[TeamExecutor]: ...


# --- within bounds


def refuse_circles(name: str, team: object, inside: Sequence[RunnableTeam]) -> None:
    """Raise Invalid for a team that would work for itself, however many teams are in between."""
    for path in _paths(inside, ()):
        if path[-1] is team or any(inner is path[-1] for inner in path[:-1]):
            way = " > ".join([name, *(inner.name for inner in path)])
            raise Invalid(f"team {name!r} is inside itself ({way}); a team cannot work for itself: leave it out")


def _paths(teams: Sequence[RunnableTeam], above: tuple[RunnableTeam, ...]) -> Iterator[tuple[RunnableTeam, ...]]:
    for team in teams:
        yield (*above, team)
        if not any(each is team for each in above):
            yield from _paths(team.teams, (*above, team))


# --- an attempt


class Came(Struct, frozen=True, omit_defaults=True):
    """How the run of a team ended, as the step that waited for it is journaled.

    `acted`: something was changed in the world.
    """

    run: str
    ending: ev.Ending
    answer: object = None
    missing: Missing | None = None
    artifacts: tuple[Artifact, ...] = ()
    sources: tuple[str, ...] = ()
    failure: Failure | None = None
    acted: bool = False


class Subteam(Struct, frozen=True, eq=False):
    """A team at work for another. Its executor is open."""

    worker: str
    team: RunnableTeam
    executor: TeamExecutor
    estimate: Amount = NOTHING
    queue: str = ""
    """The queue whose processes drive its runs; empty: whatever drives the run it works for."""

    @property
    def free(self) -> bool:
        """Whether its work costs nothing."""
        return self.executor.free

    async def attempt(self, brief: Brief, context: StepContext) -> Done:
        """Have the team do the task of a brief."""
        self._check_nesting(context.request)
        share = await context.run_share(self.estimate, self.team.budget)

        async def call(key: str) -> Done:
            return await self._run(key, brief, context)

        outcome = await context.step(
            self.team.name,
            call,
            kind="subteam",
            request=identify_brief(brief),
            effect="idempotent",
            reserve=share if share == NOTHING else Claim(share, resumable=True),
            shape=Came,
        )
        if outcome.failure is not None:
            raise WorkFailed(outcome.failure, NOTHING)
        if outcome.missing is not None:
            context.note(f"{self.worker} left something out: {'; '.join(outcome.missing.parts)}")
        return Done(handed(outcome), NOTHING, missing=outcome.missing)

    def _check_nesting(self, outer: ev.RunRequested) -> None:
        depth = nesting_of(outer)
        deepest = min(outer.policy.limits.max_nesting, self.team.policy.limits.max_nesting)
        if depth + 1 > deepest:
            problem = f"{self.worker} is a team inside {depth} others, and at most {deepest} are allowed"
            raise WorkFailed(Failure("logic", f"{problem} (policy.limits.max_nesting)", permanent=True), NOTHING)

    async def _run(self, key: str, brief: Brief, context: StepContext) -> Done:
        nested = NestedRequest(
            request=partial(self._request, brief),
            kind="team",
            executor=self.executor,
            offer=self.team.offered,
            answer=brief.handed_on,
            queue=self.queue,
        )
        try:
            run = await context.start_run(key, nested)
        except Invalid as error:  # said before anything was begun
            failure = Failure("logic", f"{self.worker} could not begin: {error}", permanent=True)
            return Done(Came("", "failed", failure=failure), NOTHING)
        except ChargehandError as error:
            raise WorkFailed(Failure("resource", f"{self.worker}: {error}")) from error
        if run.state.ended is None and run.state.input is not None:
            raise question_inside(run, workers=(self.worker,))
        return Done(came_of(self.worker, run), run.used, acted=run.calls)

    def _request(self, brief: Brief, bounds: RunBounds) -> ev.RunRequested:
        team = self.team.bounded(budget=self.team.budget.limited(bounds.budget.caps))
        request = team.request(brief.instruction, bounds.at)
        supervision = self.executor.supervision(request.budget)
        return structs.replace(
            request,
            roster=structs.replace(request.roster, supervision=supervision),
            inputs=material_of(brief),
            outside=brief.outside or bool(brief.inputs),
            replies=brief.replies or {},
            acted=(*brief.earlier, *(call for round_, call in brief.acted.values() if round_ < brief.round)),
        )


# --- what a team hands to the one it works for


def came_of(name: str, nested: NestedRun) -> Came:
    """What came of the run of a team that works as `name`. It has ended."""
    state = nested.state
    end = state.ended
    assert end is not None, "a run that waits for a person is asked about outside"
    missing = _missing_of(nested.run, name, state, end)
    if end.ending not in ("complete", "partial"):
        failure = _failure(nested, name, end, missing or Missing(()))
        return Came(nested.run, end.ending, missing=missing, failure=failure, acted=bool(nested.calls))
    values = [decode_value(result.value) for result in results(state) if result.value is not None]
    written = state.answer_written  # the team names what is missing by the ids of its own tasks
    answer = None if written is None else decode_value(written.whole(without=None if missing is None else "gaps"))
    if answer is None:
        answer = "\n\n".join(own_words(result) for result in values)
    if isinstance(answer, str):  # the tasks it cites are this team's: the reader has tasks of its own
        mark = re.sub(r"\W+", "_", name)
        answer = rename_citations(answer, state.tasks, f"{mark}_")
    products = [product for product in map(output_of, values) if product is not None]
    artifacts = [artifact for product in products for artifact in product.artifacts]
    small = [artifact for artifact in artifacts if len(msgspec.json.encode(artifact)) <= _LARGEST_ARTIFACT]
    return Came(
        run=nested.run,
        ending=end.ending,
        answer=answer,
        missing=missing,
        artifacts=tuple(small[:_MOST_ARTIFACTS]),
        sources=tuple(dict.fromkeys(source for product in products for source in product.sources)),
        acted=bool(nested.calls),
    )


def handed(outcome: Came) -> object:
    """The result of an attempt whose team has an answer. What is left out stands in its text."""
    if outcome.missing is None and not isinstance(outcome.answer, str):
        return outcome.answer  # a list or a record stays one
    text = own_words(outcome.answer)
    if outcome.missing is not None:
        listed = "\n".join(f"- {part}" for part in outcome.missing.parts)
        text = f"{text.strip()}\n\nNot answered:\n{listed}"
    return WorkerOutput(text, outcome.artifacts, outcome.sources)


# --- what is missing


def _missing_of(run: str, name: str, state: RunState, end: ev.RunEnded) -> Missing | None:
    """What a run left out, each with what was to be done, and the gaps of it and of those inside it; None: nothing."""
    parts: list[str] = []
    gaps: list[Gap] = []
    for gap in end.gaps:
        gaps.append(_outwards(run, name, gap))
        if not gap.run:
            task = state.tasks.get(gap.task)
            instruction_line = "" if task is None else task.task.instruction.partition("\n")[0].rstrip(". ")
            instruction = f"{_short(instruction_line, _LONGEST // 2)}: " if instruction_line else ""
            parts.append(f"{instruction}{gap.message}")
    for task_id in state.partial:
        missing = state.tasks[task_id].missing
        if missing is not None and missing.gaps:  # what a team inside it left out
            parts += missing.parts
    if end.ending == "partial" and state.answer is None and not parts:
        parts.append("the answer could not be written; these are the results")
    if end.ending == "partial" and state.answer is None and not gaps:
        gaps.append(Gap(NO_TASK, "unfinished", end.reason, "the answer could not be written", worker=name, run=run))
    if not parts:
        return None
    if (more := len(parts) - _MOST) > 0:
        parts[_MOST:] = [f"and {more} more"]
    if (more := len(gaps) - _MOST) > 0:
        gaps[_MOST:] = [Gap(NO_TASK, "unfinished", "gaps", f"and {more} more", worker=name, run=run)]
    return Missing(tuple(_short(f"{name}: {part}", _LONGEST) for part in parts), tuple(gaps))


def _outwards(run: str, name: str, gap: Gap) -> Gap:
    """A gap as the parent of the run sees it."""
    message = _short(gap.message, _LONGEST)
    if gap.run:
        return structs.replace(gap, task=NO_TASK, message=message, worker=f"{name}{_INWARDS}{gap.worker}")
    return structs.replace(gap, task=NO_TASK, message=message, worker=name, run=run, inner=gap.task)


def _short(line: str, most: int) -> str:
    flat = " ".join(line.split())
    return flat if len(flat) <= most else f"{flat[: most - 1]}…"


# --- why nothing came of it


def _failure(nested: NestedRun, name: str, end: ev.RunEnded, missing: Missing) -> Failure:
    if end.ending == "cancelled":
        return Failure("logic", f"{name}: its run {nested.run!r} was cancelled", permanent=True)
    if end.ending == "needs_input":
        return Failure("logic", f"{name}: no person answered in time in run {nested.run!r}", permanent=True)
    tasks = nested.state.tasks.values()
    failed = [task.failure for task in tasks if task.status is Status.FAILED and task.failure is not None]
    events = [entry.event for entry in nested.entries]
    if not tasks:
        failed = [event.failure for event in events if isinstance(event, ev.SupervisionFailed)][-1:]
    why = " ".join(failure.message for failure in failed) or _WHY.get(end.reason, "it could not make a plan")
    message = f"{name}: nothing came of it ({end.reason}). {' '.join(missing.parts) or why}".strip()
    is_final = bool(failed) and all(failure.permanent for failure in failed)
    # another run would not know, and do it or ask for it again
    once = ONCE if nested.calls else NOT_ALLOWED if refused_by_person(nested.entries) else ""
    if once and not is_final:
        message = f"{message.removesuffix('.')}. {once}"
    causes = [failure for event in events if (failure := ev.failure_in(event)) is not None]
    return Failure(
        _failure_kind(end.reason, {failure.kind for failure in failed}),
        message,
        max((failure.retry_after for failure in failed), default=0.0),
        is_final or bool(once),
        code_error=next((cause.code_error for cause in causes if cause.code_error is not None), None),
        refusal=next((cause.refusal for cause in causes if cause.refusal is not None), None),
        cap=end.cap,
        gaps=tuple(gap for gap in missing.gaps if gap.tool),
        ended=end.reason if end.reason in ("deadline", "budget") else "",
    )


def _failure_kind(reason: str, kinds: set[FailureKind]) -> FailureKind:
    """The class of what went wrong, so that it is tried again by the same rules as if a worker had failed so."""
    if "uncertain" in kinds:
        return "uncertain"
    if reason == "budget":
        return "budget"
    if reason == "deadline":
        return "timeout"
    passing: list[FailureKind] = [kind for kind in _PASSING if kind in kinds]
    return passing[0] if passing and len(passing) == len(kinds) else "logic"


def _rejects(answer: ev.InputAnswered) -> bool:
    return answer.verdict == "reject" or any(pending.verdict == "reject" for pending in answer.also)


def refused_by_person(entries: Sequence[ev.Entry]) -> bool:
    """Whether a person did not allow a call in a run, or in one inside it: what is asked there is asked here, too."""
    calls: set[int] = set()
    for event in (entry.event for entry in entries):
        if isinstance(event, ev.InputRequested) and event.what == "tool":
            calls.add(event.number)
        elif isinstance(event, ev.InputAnswered) and event.number in calls and _rejects(event):
            return True
    return False
