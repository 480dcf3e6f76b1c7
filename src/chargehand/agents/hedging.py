"""Hedged calls: a second model call where the first takes unusually long.

Off unless a team asks for it, and only for workers' calls. What both may cost is reserved and settled by `spending`.
"""

import asyncio
from collections import deque
from math import ceil, isfinite
from typing import Annotated

from msgspec import Meta, Struct, field

from chargehand.engine.budget import Amount
from chargehand.engine.declared import Declared, Length, written_as
from chargehand.engine.policy import Seconds
from chargehand.errors import Invalid
from chargehand.models.messages import Reply, Request
from chargehand.models.model import Hear, Model, ModelFailed, model_failed
from chargehand.runtime.executor import StepContext

_MAX_TIMES = 200
_ENOUGH_TIMES = 20
_UNUSUAL = 0.95
_MARGIN = 1.1  # five calls in a hundred are slower than the others by definition: what matters is by how much
_MAX_CREDIT = 10.0  # second calls that may be made one right after the other, however many calls were quick before


class Hedge(Declared, frozen=True, forbid_unknown_fields=True):
    """When a worker's call of its model is made a second time, while the first is still running.

    The second goes to the worker's next model, or to the same one where there is none. Under a budget only a call for
    which there is another model is made twice: what both may cost is reserved before.
    """

    after: Length | None = None
    """How long is too long; left out, a tenth longer than 95 in 100 of the model's last calls, once 20 were seen."""
    max_usd: Annotated[float, written_as("Dollars")] | None = None
    """What the second call may cost in dollars; left out, no more than the first."""
    share: Annotated[float, Meta(ge=0.001, le=0.5)] = 0.05
    """The share of all calls that may be made twice."""

    def __post_init__(self) -> None:
        if self.after is not None and not (self.after > 0 and isfinite(self.after)):
            raise Invalid(f"hedge.after is {self.after}; say how many seconds are too long, or leave it out")
        if self.max_usd is not None and not self.max_usd >= 0:
            raise Invalid(f"hedge.max_usd is {self.max_usd}; a price is zero or more, or left out")
        if not 0 < self.share <= 0.5:
            raise Invalid(f"hedge.share is {self.share}; it is more than 0 and at most 0.5, for example 0.05")


class HedgedCall(Struct, frozen=True):
    """One of the two calls."""

    model: Model
    request: Request
    use: Amount
    """What it is taken to have used if it is not waited for."""
    micros: int | None
    """What it is expected to cost; None where the price is unknown."""


class Race(Struct):
    """What came of a call that may have been made twice: a reply and its model, or only failures."""

    reply: Reply | None = None
    winner: Model | None = None
    calls: int = 1
    failed: list[tuple[Model, ModelFailed]] = field(default_factory=list[tuple[Model, ModelFailed]])
    abandoned: list[Amount] = field(default_factory=list[Amount])
    """What calls may have used that were not waited for."""


class Hedging:
    """How long the calls of one team take, for all its runs in this process."""

    def __init__(self, hedge: Hedge) -> None:
        self._hedge = hedge
        self._times: dict[str, deque[Seconds]] = {}
        self._credit = 0.0

    async def race(
        self, first: HedgedCall, second: HedgedCall | None, *, hear: Hear | None, context: StepContext
    ) -> Race:
        """Make a call, and where it takes too long the second one; the first good reply is used."""
        race = Race()
        patience = self._patience(first, second)
        self._credit = min(_MAX_CREDIT, self._credit + self._hedge.share)
        gate = _TextGate(hear)
        async with asyncio.TaskGroup() as jobs:
            running = {jobs.create_task(self._call(first, gate if hear else None, patience)): first}
            await asyncio.wait(running, timeout=patience)
            answers = gate.heard or any(job.done() for job in running)
            if second is not None and not answers and self._take_credit(first.model, second.model):
                late = f"hedged: {first.model.card.handle} has not answered within {patience:.3g} s"
                context.note(f"{late}, so {second.model.card.handle} is asked as well")
                race.calls = 2
                gate.is_shut = True
                running[jobs.create_task(self._call(second))] = second
            await _first_reply(race, running)
        if race.calls > 1 and race.winner is not None and race.reply is not None:
            context.note(f"hedged: {race.winner.card.handle} answered first")
            if hear is not None and race.reply.text:
                hear(race.reply.text)
        return race

    def _patience(self, first: HedgedCall, second: HedgedCall | None) -> Seconds | None:
        """After how long the second call is made; None where there is none to make."""
        if second is None or second.model.card.in_process or self._credit < 1.0 or not self._is_cheap(first, second):
            return None
        if self._hedge.after is not None:
            return self._hedge.after
        times = sorted(self._times.get(first.model.card.handle, ()))
        return _MARGIN * times[ceil(_UNUSUAL * len(times)) - 1] if len(times) >= _ENOUGH_TIMES else None

    def _is_cheap(self, first: HedgedCall, second: HedgedCall) -> bool:
        if second.micros is None:  # it is certain only that it costs no more than itself
            return second.model is first.model and self._hedge.max_usd is None
        max_micros = first.micros if self._hedge.max_usd is None else round(self._hedge.max_usd * 1_000_000)
        return max_micros is not None and second.micros <= max_micros

    def _take_credit(self, *models: Model) -> bool:
        """Whether the second call is made now: it must not add to the trouble of a provider."""
        if self._credit < 1.0 or not all(getattr(model, "calm", True) for model in models):
            return False
        self._credit -= 1.0
        return True

    async def _call(
        self, call: HedgedCall, hear: Hear | None = None, patience: Seconds | None = None
    ) -> Reply | ModelFailed:
        """What comes of one call. What it raises is returned: it must not end the other one."""
        clock = asyncio.get_running_loop().time
        begun = clock()
        times = self._times.setdefault(call.model.card.handle, deque(maxlen=_MAX_TIMES))
        try:
            reply = await call.model.reply(call.request, hear)
        except asyncio.CancelledError:
            if patience is not None and clock() - begun >= patience:  # else a run was cancelled, which says nothing
                times.append(clock() - begun)
            raise
        except Exception as error:  # noqa: BLE001 - a foreign model may raise anything
            return model_failed(error)
        times.append(clock() - begun)
        return reply


async def _first_reply(race: Race, running: dict[asyncio.Task[Reply | ModelFailed], HedgedCall]) -> None:
    """Wait for the first good reply; the other call is abandoned."""
    while running and race.reply is None:
        done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        for job in [job for job in running if job in done]:
            if race.reply is not None:
                break  # both came back at once: what the other used is counted below
            call = running.pop(job)
            outcome = job.result()
            if isinstance(outcome, Reply):
                race.reply = outcome
                race.winner = call.model
            else:
                race.failed.append((call.model, outcome))
    for job, call in running.items():
        job.cancel()
        race.abandoned.append(call.use)


class _TextGate:
    """Passes text on while only one model is called; with two it is not known yet whose text counts."""

    __slots__ = ("_hear", "heard", "is_shut")

    def __init__(self, hear: Hear | None) -> None:
        self._hear = hear
        self.heard = False
        self.is_shut = False

    def __call__(self, text: str) -> None:
        if self._hear is not None and not self.is_shut:
            self.heard = True
            self._hear(text)
