"""Background workers: they look back on the runs of their team, in runs of their own.

A turn is a run of the team that ended with an answer; messages and nested runs are none. Which turns are new to a
worker is read off the journal and nothing else: the request of a background run says what it covers, so a crash can
lose nothing. Nothing here can fail a turn: those are over.
"""

import logging
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Protocol, Self

import msgspec
from msgspec import Raw, Struct, structs

from chargehand.agents.inputs import own_words
from chargehand.agents.result import Result, fallback_answer, read_result
from chargehand.agents.roles import Worker
from chargehand.agents.setup import own_archives, own_blocks, toolset
from chargehand.engine import events as ev
from chargehand.engine.fold import replay
from chargehand.engine.plan import Task, TaskId
from chargehand.engine.policy import Seconds
from chargehand.engine.roster import Agent
from chargehand.engine.value import decode_value
from chargehand.engine.view import results
from chargehand.errors import Invalid, Refused, RunBusy, RunUnknown, StoreError
from chargehand.journal.protocol import Journal, RunRow
from chargehand.memory.blocks import Grant
from chargehand.memory.catalog import Memory
from chargehand.runtime.executor import Executor
from chargehand.runtime.nested import list_calls, request_tasks
from chargehand.runtime.runner import Outcome, Runner
from chargehand.tools.rules import needs_approval

logger = logging.getLogger(__name__)

_INSTRUCTION = (
    "Keep the memory of your team in order. The data are the turns since you last worked, oldest first: what was "
    "asked, what was answered, and what was missing. Note what is worth knowing later, correct what is no longer true, "
    "and shorten what is nearly full. What stands there already need not be noted again. Then say in one line what you "
    "changed."
)
_ROOM = 48_000  # characters of all turns together
# of a turn's characters, for what was asked and what was answered
_REQUEST_SHARE = 0.3
_ANSWER_SHARE = 0.6
_MAX_GAPS = 5
_WRITES = ("append", "write")
_PATIENCE: Seconds = 30 * 86_400.0
"""How long an unfinished run may wait. The time it works is bounded by its worker's `timeout`, for each attempt."""
MAX_RUNS = 20
"""Runs of one background worker at a time; what is due beyond that follows the next time."""
_FARTHEST = 100  # of the team's latest runs that are looked at, or four times `every`; older turns are never new
_FARTHEST_OF_ALL = 10_000  # runs of any team
TRIES = 3
"""How often a background run is tried for the same turns."""
_PAGE = 50
_MAX_TURNS = 50  # that one run covers
_NEWEST = 2**63 - 1
_ANSWERED = ("complete", "partial")


# --- which workers may be background workers


def check(memory: Memory | None, front: Sequence[Worker], background: Sequence[Worker]) -> None:
    """Raise Invalid for a worker that cannot work in the background, or could change nothing there."""
    names = [worker.name for worker in (*front, *background)]
    for worker in background:
        owner = f"worker {worker.name!r}"
        _check_alone(owner, worker)
        if names.count(worker.name) > 1:
            raise Invalid(f"two workers are called {worker.name!r}; give one of them another name")
        if memory is None:
            raise Invalid(f"{owner} works on the team's memory, and there is none; give the team one, with a block")
        if not _may_write(worker, memory):
            raise Invalid(
                f"{owner} works on text from outside, and there is nothing it may write that to; let it write to a "
                'block, for example blocks={"notes": "write"}; one that is trusted needs Grant("write", tainted=True)'
            )


def _check_alone(owner: str, worker: Worker) -> None:
    """Raise Invalid for what needs other workers or a person: once a turn is over there are none."""
    if worker.is_delegated:
        kind = "a team" if worker.call is None else "a function"
        raise Invalid(f"{owner} is {kind}, which does not work in the background; give `every` to a worker")
    if worker.fallbacks:
        raise Invalid(f"{owner} works after turns and has no fallback workers; use fallback_models instead")
    if worker.contacts:
        raise Invalid(f"{owner} works after turns and gets no messages; leave out its contacts")
    if worker.accept:
        raise Invalid(f"{owner} works after turns, unchecked; leave out `accept`")
    tools = toolset(owner, worker.tools)
    rules = worker.rules
    asking = (tool.name for tool in tools.values() if tool.may_need_approval or needs_approval(rules, tool.name))
    asks = next(asking, "")
    if asks:
        raise Invalid(f"{owner} has the tool {asks!r}, which a person must allow, and works in the background")


def _may_write(worker: Worker, memory: Memory) -> bool:
    """Whether there is anything it may write text from outside to."""
    own = own_blocks(worker)
    archives = own_archives(worker, memory.archives)
    for block in memory.blocks:
        grant = own.get(block.label, Grant(block.share))
        if grant.access in _WRITES and not block.read_only and (grant.tainted or not block.trusted):
            return True
    return any(archives.get(archive.name, Grant(archive.share)).access in _WRITES for archive in memory.archives)


# --- running them


class BackgroundTeam(Protocol):
    """What is needed of a team."""

    name: str
    background_agents: tuple[tuple[Agent, int], ...]
    """Its background workers, and after how many turns each works."""

    @property
    def notice(self) -> str: ...

    def request(self, goal: str, now: float) -> ev.RunRequested: ...

    async def keep_budget(self) -> Self: ...

    def budget_notes(self) -> Sequence[ev.Event]: ...

    def executor(self) -> AbstractAsyncContextManager[Executor]: ...

    def open_journal(self) -> AbstractAsyncContextManager[Journal]: ...


class BackgroundRun(Struct, frozen=True):
    """What came of one background run."""

    worker: str
    outcome: Outcome
    covered: tuple[str, ...]

    @property
    def failed(self) -> bool:
        """It came to no end that counts, and waits for no person."""
        return self.outcome.ending not in _ANSWERED and self.outcome.question is None


class DueRun(Struct, frozen=True):
    """A background run that should be under way."""

    run: str
    number: int
    """Its number among the runs of its worker."""
    turns: tuple[str, ...]
    resumes: bool = False
    """It was begun and is resumed."""


async def run_due(
    team: BackgroundTeam, journal: Journal, on_start: Callable[[str], None] | None = None
) -> list[BackgroundRun]:
    """Run whatever is due now. `on_start` is called with the worker's name, before that costs anything."""
    done: list[BackgroundRun] = []
    async with AsyncExitStack() as stack:
        runner: Runner | None = None
        for agent, every in team.background_agents:
            for _ in range(MAX_RUNS):
                due = await find_due(journal, team.name, agent.name, every)
                if due is None:
                    break
                if on_start is not None:
                    on_start(agent.name)
                if runner is None:
                    team = await team.keep_budget()
                    runner = Runner(journal, await stack.enter_async_context(team.executor()))
                run = await _drive(team, runner, agent, due)
                if run is None:
                    break
                done.append(run)
                if run.failed:  # it is tried again the next time
                    break
    return done


async def _drive(team: BackgroundTeam, runner: Runner, agent: Agent, due: DueRun) -> BackgroundRun | None:
    """Start or resume a run; None if another process drives it, or has done it meanwhile."""
    journal = runner.journal
    try:
        if due.resumes:
            outcome = await runner.resume(due.run)
        else:
            request = await background_request(team, journal, agent, due)
            outcome = await runner.start(due.run, request, also=team.budget_notes())
    except RunBusy:
        return None
    except Refused:
        if not await _is_background_run(journal, due.run, team.name, agent.name):
            taken = f"a run is called {due.run!r}, as the next background run of {agent.name} would be"
            raise Refused(f"{taken}; rename the worker") from None
        return None
    if outcome.ending not in _ANSWERED:
        logger.warning("background run %s: %s (%s)", outcome.run, outcome.ending, outcome.reason)
    return BackgroundRun(agent.name, outcome, due.turns)


async def background_request(team: BackgroundTeam, journal: Journal, agent: Agent, due: DueRun) -> ev.RunRequested:
    """Return the request of a background run: turns as they were, for one worker, within the budget of the team."""
    now = time.time()
    count = len(due.turns)
    base = team.request(f"{agent.name} looks back on {count} turn{'' if count == 1 else 's'}.", now)
    request = request_tasks(base, [agent], [Task(TaskId("t1"), _INSTRUCTION, agent.name)])
    share = _ROOM // max(1, count)
    inputs: list[ev.Material] = []
    for number, run in enumerate(due.turns, 1):
        turn = await read_turn(journal, run, share)
        inputs.append(ev.Material(TaskId(f"turn {number}, run {run}"), Raw(msgspec.json.encode(turn))))
    return structs.replace(
        request,
        budget=structs.replace(request.budget, seconds=None),
        deadline=now + _PATIENCE,
        turns=tuple((run, True) for run in due.turns),
        background=due.number,
        inputs=tuple(inputs),
        outside=True,
    )


class BackgroundTurn(Struct, frozen=True, tag_field="kind", tag="turn", omit_defaults=True):
    """One turn, as a background worker reads it."""

    request: str
    answer: str
    gaps: tuple[str, ...] = ()
    """What was missing."""


async def read_turn(journal: Journal, run: str, room: int) -> BackgroundTurn:
    """One turn, cut to so many characters at most; of the gaps, the first few."""
    try:
        entries = await journal.read(run)
    except (StoreError, RunUnknown) as error:  # a damaged one must not keep the others from being read
        return BackgroundTurn(f"(the turn {run} cannot be read: {error})", "")
    state = replay(entries)
    answer = fallback_answer(state) if state.answer is None else own_words(decode_value(state.answer))
    if not answer:
        values = [result.value for result in results(state) if result.value is not None]
        answer = "\n\n".join(own_words(decode_value(value)) for value in values)
    gaps = () if state.ended is None else state.ended.gaps
    return BackgroundTurn(
        request=_cut(state.requested.goal, int(room * _REQUEST_SHARE)),
        answer=_cut(answer, int(room * _ANSWER_SHARE)),
        gaps=tuple(_cut(gap.message, room // 50) for gap in gaps[:_MAX_GAPS]),
    )


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: max(0, most - 1)]}…"


# --- what is due


async def find_due(journal: Journal, team: str, worker: str, every: int) -> DueRun | None:
    """What a background worker should do now; None if nothing, or if a person must answer first."""
    name = f"{team}-{worker}-"
    number = 1
    while True:
        runs = [run async for run in _latest(journal, team, max(_FARTHEST, 4 * every))]
        own = [run for run in runs if _covers(_requested(run), team, worker)]
        if own:
            number = max(number, 1 + _requested(own[0]).background)
        # the last run may be damaged, or farther back; one that was begun meanwhile must be seen, not done twice
        if not await _is_background_run(journal, f"{name}{number}", team, worker):
            break
        number *= 2
    if own and own[0].ended is None:
        waits = own[0].last is not None and isinstance(own[0].last.event, ev.InputRequested)
        began = _requested(own[0]).background
        return None if waits else DueRun(own[0].run, began, _turns_of(own[0]), resumes=True)
    if own and await _is_retried(journal, own):
        return DueRun(f"{name}{number}", number, _turns_of(own[0]))
    covered = {turn for run in own for turn in _turns_of(run)}
    new = [run for run in runs if run.run not in covered and _is_turn(run)]
    new.sort(key=lambda run: (run.changed, run.run))
    if len(new) < every:
        return None
    return DueRun(f"{name}{number}", number, tuple(run.run for run in new[:_MAX_TURNS]))


async def _is_retried(journal: Journal, own: Sequence[RunRow]) -> bool:
    """Whether the last background run failed and is tried once more, for the same turns."""
    last = own[0]
    tries = sum(_turns_of(run) == _turns_of(last) for run in own)
    failed = last.ended is not None and last.ended.ending not in _ANSWERED
    return failed and tries < TRIES and await _is_harmless(journal, last.run)


def _turns_of(run: RunRow) -> tuple[str, ...]:
    """The turns that a background run covers."""
    return tuple(name for name, is_covered in _requested(run).turns if is_covered)


def _is_turn(run: RunRow) -> bool:
    """Whether a run of the team ended with an answer."""
    return not _requested(run).turns and run.ended is not None and run.ended.ending in _ANSWERED


async def _is_background_run(journal: Journal, run: str, team: str, worker: str) -> bool:
    """Whether there is a background run of this name, and it is one of this worker's."""
    try:
        first = (await journal.read(run))[0].event
    except RunUnknown:
        return False
    except StoreError:
        return True  # a damaged one has its name all the same
    return isinstance(first, ev.RunRequested) and _covers(first, team, worker)


def _covers(request: ev.RunRequested, team: str, worker: str) -> bool:
    """Whether this is the request of a background run of this worker."""
    agents = request.roster.agents
    return bool(request.turns and agents) and request.team == team and agents[0].name == worker


async def _is_harmless(journal: Journal, run: str) -> bool:
    """Whether what a run did may be done once more: nothing was changed in the world, as far as can be read."""
    try:
        entries = await journal.read(run)
        return not await list_calls(journal, run, entries, replay(entries))
    except StoreError:
        return False


async def _latest(journal: Journal, team: str, most: int) -> AsyncGenerator[RunRow]:
    """The latest runs of a team, one after the other; those inside others are none."""
    before = _NEWEST
    looked = 0
    while looked < _FARTHEST_OF_ALL:
        page = await journal.latest(before=before, limit=_PAGE)
        for run in page:
            if run.request is None or run.request.team != team or run.request.parent is not None:
                continue
            yield run
            most -= 1
            if not most:
                return
        if not page:
            return
        before = page[-1].number
        looked += len(page)


def _requested(run: RunRow) -> ev.RunRequested:
    assert run.request is not None, "every run begins with its request"
    return run.request


# --- as a method of a team


async def rest_team(team: BackgroundTeam) -> tuple[Result, ...]:
    """Do whatever background work of a team is due, and wait for it; see `Team.rest`."""
    if not team.background_agents:
        return ()
    async with team.open_journal() as journal:
        outcomes = [run.outcome for run in await run_due(team, journal)]
        return tuple([read_result(outcome, await journal.read(outcome.run), team.notice) for outcome in outcomes])
