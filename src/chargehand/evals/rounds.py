"""Many cases, some at once: within a budget, told of as they are done, none lost because of another."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

import msgspec
from msgspec import structs

from chargehand.errors import Invalid, Refused
from chargehand.evals.cases import Case, Dataset
from chargehand.evals.scores import Score
from chargehand.evals.trials import Each, untried

_Try: TypeAlias = Callable[[Case], Awaitable[list[Score]]]


class Progress:
    """Who is told of each case as it is scored. This one tells nobody."""

    def begun(self, datasets: Sequence[Dataset]) -> None:
        """These will be tried."""

    def scored(self, dataset: str, score: Score) -> None:
        """One more case is done, or one result of a case."""


class Rounds:
    """Tries cases, `at_once` of them at the same time, until `usd` dollars are spent. `stopped` says so then."""

    def __init__(self, at_once: int, usd: float | None, progress: Progress) -> None:
        if usd is not None and not usd >= 0:
            raise Invalid(f"a budget of {usd:g} dollars cannot be; name 0 or more")
        self.stopped = ""
        self._at_once, self._usd, self._progress = at_once, usd, progress
        self._micros, self._unknown = 0, False

    def of(self, dataset: str) -> Each:
        """Whoever tries the cases of a dataset, and tells of them."""

        async def each(cases: Sequence[Case], one: _Try) -> list[Score]:
            return await self._side_by_side(cases, one, lambda score: self._progress.scored(dataset, score))

        return each

    async def in_silence(self, cases: Sequence[Case], one: _Try) -> list[Score]:
        """The same without telling anybody."""
        return await self._side_by_side(cases, one, lambda _score: None)

    async def _side_by_side(self, cases: Sequence[Case], one: _Try, tell: Callable[[Score], None]) -> list[Score]:
        found: dict[int, list[Score]] = {}
        room = asyncio.Semaphore(self._at_once)

        async def tried(at: int, case: Case) -> None:
            async with room:
                found[at] = await self._tried(case, one)
            for score in found[at]:
                tell(score)

        async with asyncio.TaskGroup() as group:
            for at, case in enumerate(cases):
                group.create_task(tried(at, case))
        return [score for at in range(len(cases)) for score in found[at]]

    async def _tried(self, case: Case, one: _Try) -> list[Score]:
        if refusal := self._refusal():
            self.stopped = refusal
            return [untried(case, Refused(refusal))]
        try:
            scores = await one(case)
        except Exception as error:  # noqa: BLE001 - whatever foreign tools and graders do, the other cases count
            return [_sound(untried(case, error))]
        self._micros += sum(score.micros or 0 for score in scores)
        self._unknown = self._unknown or any(score.micros is None for score in scores)
        return [_sound(score) for score in scores]

    def _refusal(self) -> str:
        """Why no further case is begun. What costs nothing is within a budget of nothing."""
        if self._usd is None:
            return ""
        if self._unknown:
            return "nobody knows what cases cost here, so no budget can be kept: leave --budget-usd out"
        spent = self._micros and self._micros >= 1_000_000 * self._usd
        return f"the ${self._usd:g} of the whole evaluation are spent; allow more with --budget-usd" if spent else ""


def _sound(score: Score) -> Score:
    """The same in text that can be written: what foreign functions say may hold halves of characters."""
    try:
        msgspec.json.encode(score)
    except UnicodeEncodeError:
        why, notes = tuple(map(_plain, score.why)), tuple(map(_plain, score.notes))
        got, wanted = _plain(score.got), _plain(score.wanted)
        score = structs.replace(score, why=why, notes=notes, got=got, wanted=wanted)
        return structs.replace(score, case=_plain(score.case), request=_plain(score.request))
    return score


def _plain(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
