"""Which turns of a team are new to one of its background workers, read off the journal and nothing else.

A turn is a run of the team that ended with an answer; messages and runs inside runs are none. What a background run
covers stands in its request, so nothing has to be counted and a crash can lose nothing. Only the runs since the one
before the last are looked at: one that was begun between a look and the background run it led to is found that way.
"""

from collections.abc import AsyncGenerator

from msgspec import Struct

from chargehand.agents.background import TurnTold, missing
from chargehand.agents.nested import text
from chargehand.agents.result import fallback_answer
from chargehand.engine import events as ev
from chargehand.engine.fold import replay
from chargehand.engine.policy import Instant
from chargehand.engine.value import decode_value
from chargehand.engine.view import results
from chargehand.errors import RunUnknown, StoreError
from chargehand.journal.protocol import Journal, RunRow
from chargehand.runtime.nested import had_effects

FARTHEST = 1000
FARTHEST_OF_ALL = 10_000
"""How many runs of the team are looked at, the latest ones, and how many of anybody: what is older is new to nobody."""

TRIES = 3
"""How often a background run is tried for the same turns."""

_PAGE = 50
# that one run covers, and leaves to the next
_MOST_TURNS = 50
_MOST_LEFT = 200
_NEWEST = 2**63 - 1
_ANSWERED = ("complete", "partial")


class Due(Struct, frozen=True):
    """A background run that should be under way: a new one, or one to go on with (`resumes`).

    `given_up` are turns that are left out from now on, because it failed too often for them.
    """

    run: str
    turns: tuple[tuple[str, bool], ...]
    resumes: bool = False
    given_up: tuple[str, ...] = ()

    @property
    def covered(self) -> tuple[str, ...]:
        return tuple(name for name, taken in self.turns if taken)


async def due(journal: Journal, team: str, worker: str, every: int) -> Due | None:
    """What a background worker should do now; None if nothing, or if a person must answer first."""
    name = f"{team}-{worker}-"
    seen, number = await _stand(journal, team, worker, name)
    last = seen.tries[0] if seen.tries else None
    given_up: tuple[str, ...] = ()
    if last is not None:
        before = _asked(last).turns
        if last.ended is None:
            waits = last.last is not None and isinstance(last.last.event, ev.InputRequested)
            return None if waits else Due(last.run, before, resumes=True)
        if not _good(last):
            if len(seen.tries) < TRIES and await _harmless(journal, last.run):
                return Due(f"{name}{number}", before)
            given_up = Due("", before).covered
    ended = sorted(seen.ended, key=lambda run: (seen.ended[run], run))
    if len(ended) < every:
        return None
    left = (*ended[_MOST_TURNS:], *seen.unended)[:_MOST_LEFT]
    turns = (*((run, True) for run in ended[:_MOST_TURNS]), *((run, False) for run in left))
    return Due(f"{name}{number}", turns, given_up=given_up)


async def told(journal: Journal, run: str) -> TurnTold:
    """One turn, for whoever looks back on it."""
    try:
        entries = await journal.read(run)
    except (StoreError, RunUnknown) as error:  # one that is damaged must not keep the others from being looked back on
        return TurnTold(f"(the turn {run} cannot be read: {error})", "")
    state = replay(entries)
    answer = fallback_answer(state) if state.answer is None else text(decode_value(state.answer))
    if not answer:
        answer = "\n\n".join(text(decode_value(one.value)) for one in results(state) if one.value is not None)
    ended = state.ended
    return TurnTold(state.requested.goal, answer, missing(() if ended is None else ended.gaps))


def covers(request: ev.RunRequested, team: str, worker: str = "") -> bool:
    """Whether this is the request of a background run of a team: of one worker, or of anybody."""
    named = request.roster.agents[0].name if request.roster.agents else ""
    return bool(request.turns) and request.team == team and worker in ("", named)


# --- looking


class _Seen(Struct):
    """New turns and when each ended, runs that may become turns, and the tries for the last ones, latest first."""

    ended: dict[str, Instant]
    unended: list[str]
    tries: list[RunRow]

    def take(self, run: str, last: ev.Entry | None) -> None:
        if last is None or not isinstance(last.event, ev.RunEnded):
            self.unended.append(run)
        elif last.event.ending in _ANSWERED:
            self.ended[run] = last.at


async def _stand(journal: Journal, team: str, worker: str, name: str) -> tuple[_Seen, int]:
    """What is new, and a number that no run has. The last one may be damaged, or farther back than anybody looks.

    It is looked again after each number that was taken: one that is under way by now must be seen, not done twice.
    """
    number = 1
    while True:
        seen = await _look(journal, team, worker)
        number = max(number, 1 + _number(seen.tries[0].run) if seen.tries else 1)
        if not await _ours(journal, f"{name}{number}", team, worker):
            return seen, number
        number *= 2


async def _look(journal: Journal, team: str, worker: str) -> _Seen:
    seen = _Seen({}, [], [])
    met: set[str] = set()
    left = FARTHEST
    async for one in _latest(journal):
        request = _asked(one)
        if request.team != team or request.parent is not None:
            continue
        left -= 1
        if left < 0:
            break
        if covers(request, team, worker):
            if seen.tries and _asked(seen.tries[0]).turns != request.turns:
                break
            seen.tries.append(one)
        elif not request.turns:
            met.add(one.run)
            seen.take(one.run, one.last)
    await _left(journal, seen, met)
    return seen


async def _left(journal: Journal, seen: _Seen, met: set[str]) -> None:
    """What the last background run covered is not new, and what it left is, however far back."""
    for run, taken in _asked(seen.tries[0]).turns if seen.tries else ():
        if taken:
            seen.ended.pop(run, None)
        elif run not in met:
            try:
                entries = await journal.read(run)
            except (StoreError, RunUnknown):
                continue
            seen.take(run, entries[-1])


async def _ours(journal: Journal, run: str, team: str, worker: str) -> bool:
    """Whether there is a background run of this name, and it is one of this worker's."""
    try:
        first = (await journal.read(run))[0].event
    except (StoreError, RunUnknown) as error:
        return isinstance(error, StoreError)  # a damaged one has its name all the same
    return isinstance(first, ev.RunRequested) and covers(first, team, worker)


async def _harmless(journal: Journal, run: str) -> bool:
    """Whether what a run did may be done once more: nothing was changed in the world, as far as can be read."""
    try:
        return not await had_effects(journal, run, await journal.read(run))
    except StoreError:
        return False


async def _latest(journal: Journal) -> AsyncGenerator[RunRow]:
    """The latest runs, one after the other, as many as are looked at."""
    before = _NEWEST
    left = FARTHEST_OF_ALL
    while left > 0 and (page := await journal.latest(before=before, limit=min(_PAGE, left))):
        for one in page:
            if not one.damage:
                yield one
        before = page[-1].number
        left = left - len(page)


def _asked(one: RunRow) -> ev.RunRequested:
    assert one.request is not None, "every run begins with its request"
    return one.request


def _good(one: RunRow) -> bool:
    return one.ended is not None and one.ended.ending in _ANSWERED


def _number(run: str) -> int:
    last = run.rpartition("-")[2]
    return int(last) if last.isascii() and last.isdecimal() else 0
