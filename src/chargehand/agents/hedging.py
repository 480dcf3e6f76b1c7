"""Asking a second model where the first takes unusually long: when, whom, at what price, and who was faster.

Off unless a team asks for it. What a call costs is reserved and booked elsewhere; only workers' calls are hedged.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from math import ceil, inf, isfinite
from typing import cast

from msgspec import Struct, field

from chargehand.agents.crew import Hand
from chargehand.agents.money import Lost, Priced
from chargehand.errors import Invalid
from chargehand.models.code_errors import model_failed
from chargehand.models.messages import Reply, Request
from chargehand.models.model import Hear, Model, ModelFailed
from chargehand.terms.budget import Amount
from chargehand.terms.keywords import Declared
from chargehand.terms.policy import Seconds

_SEEN = 200
_ENOUGH = 20
_UNUSUAL = 0.95
_MARGIN = 1.1  # five calls in a hundred are slower than the others by definition: what is meant is by how much
_MOST_SAVED = 10.0  # second calls that may be made one right after the other, however many calls were quick before


class Hedge(Declared, frozen=True, forbid_unknown_fields=True):
    """When a worker's call of its model is made a second time, while the first is still under way.

    That is once it takes longer than `after` seconds; left out, a tenth longer than 95 in 100 of that model's calls,
    once 20 were seen. The second goes to the worker's next model, or to the same one where there is none. It may cost
    `most_micros` (left out: no more than the first), and at most this `share` of all calls is made twice.
    """

    after: Seconds | None = None
    most_micros: int | None = None
    share: float = 0.05

    def __post_init__(self) -> None:
        if self.after is not None and not (self.after > 0 and isfinite(self.after)):
            raise Invalid(f"hedge.after is {self.after}; say how many seconds are too long, or leave it out")
        if self.most_micros is not None and not self.most_micros >= 0:
            raise Invalid(f"hedge.most_micros is {self.most_micros}; a price is zero or more, or left out")
        if not 0 < self.share <= 0.5:
            raise Invalid(f"hedge.share is {self.share}; it is more than 0 and at most 0.5, for example 0.05")


class Bet(Struct):
    """One call that may be made twice. `patience` left out: it is only measured. `held`: there is money for both."""

    first: Priced
    second: Priced
    patience: Seconds | None
    held: bool = True


class Raced(Struct):
    """What came of a bet: a reply and whose it is, or none. `lost` failed, `given_up` is what others may have used.

    `mistaken` raised what is no failure of a model: nobody knows what that used.
    """

    reply: Reply | None = None
    winner: Model | None = None
    mistaken: Lost = field(default_factory=list[tuple[Model, ModelFailed]])
    lost: Lost = field(default_factory=list[tuple[Model, ModelFailed]])
    given_up: list[Amount] = field(default_factory=list[Amount])


class Hedging:
    """What one team knows of its calls, for all its runs in this process."""

    def __init__(self, hedge: Hedge) -> None:
        self._hedge = hedge
        self._times: dict[str, deque[Seconds]] = {}
        self._saved = 0.0

    def bet(self, models: Sequence[Priced]) -> Bet:
        """What to do about the next call of a worker with these models."""
        first = models[0]
        second = models[min(1, len(models) - 1)]
        pays = self._cheap(first, second) and not second.model.card.in_process
        return Bet(first, second, self._patience(first.model) if pays and self._saved >= 1.0 else None)

    def _cheap(self, first: Priced, second: Priced) -> bool:
        if second.micros is None:  # nobody can say that it is cheap enough, except that it is no dearer than itself
            return second.model is first.model and self._hedge.most_micros is None
        most = first.micros if self._hedge.most_micros is None else self._hedge.most_micros
        return most is not None and second.micros <= most

    def _patience(self, model: Model) -> Seconds | None:
        if self._hedge.after is not None:
            return self._hedge.after
        times = sorted(self._times.get(model.card.handle, ()))
        return _MARGIN * times[ceil(_UNUSUAL * len(times)) - 1] if len(times) >= _ENOUGH else None

    def called(self) -> None:
        """A call is made."""
        self._saved = min(_MOST_SAVED, self._saved + self._hedge.share)

    def took(self, model: Model, seconds: Seconds) -> None:
        """A call came back with a reply, or was given up because it was slow: it would have taken at least as long."""
        self._times.setdefault(model.card.handle, deque(maxlen=_SEEN)).append(seconds)

    def spend(self, bet: Bet) -> bool:
        """Whether the second call is made now: it must not add to anybody's trouble."""
        if not bet.held or self._saved < 1.0 or not (_calm(bet.first.model) and _calm(bet.second.model)):
            return False
        self._saved -= 1.0
        return True


def hedging(hedge: Hedge | None) -> Hedging | None:
    """What a team that asks for it needs."""
    if not isinstance(cast("object", hedge), Hedge | None):  # people write `True`
        raise Invalid(f"hedge is {str(hedge)[:80]}; write hedge=Hedge(), or leave it out")
    return None if hedge is None else Hedging(hedge)


def _calm(model: Model) -> bool:
    """Whether a model's provider has room to spare; those without a guard say nothing of it."""
    return bool(getattr(model, "calm", True))


class _Gate:
    """Passes words on while only one model is asked. With two, nobody knows yet whose words count."""

    __slots__ = ("_hear", "any", "shut")

    def __init__(self, hear: Hear) -> None:
        self._hear = hear
        self.any = self.shut = False

    def __call__(self, words: str) -> None:
        if not self.shut:
            self.any = True
            self._hear(words)


async def race(team: Hedging, bet: Bet, request: Request, hear: Hear | None, hand: Hand) -> Raced:
    """Make the call, and where it takes too long the second one; the first reply is used, the other call given up."""
    raced = Raced()
    team.called()
    if bet.patience is None:
        _take(raced, bet.first, await _call(team, bet.first, request, hear))
    else:
        await _raced(raced=raced, team=team, bet=bet, patience=bet.patience, request=request, hear=hear, hand=hand)
    if raced.reply is None:
        raced.lost.extend(raced.mistaken)
    return raced


async def _raced(
    raced: Raced, team: Hedging, bet: Bet, patience: Seconds, request: Request, hear: Hear | None, hand: Hand
) -> None:
    gate = None if hear is None else _Gate(hear)
    async with asyncio.TaskGroup() as jobs:
        first = jobs.create_task(_call(team, bet.first, request, gate, slow=patience))
        await asyncio.wait((first,), timeout=patience)
        if first.done() or (gate is not None and gate.any) or not team.spend(bet):
            _take(raced, bet.first, await first)
            return
        one = bet.first.model.card.handle
        other = bet.second.model.card.handle
        hand.note(f"hedged: {one} has not answered within {patience:.3g} s, so {other} is asked as well")
        if gate is not None:
            gate.shut = True
        second = jobs.create_task(_call(team, bet.second, request, None))
        await _decide(raced, {first: bet.first, second: bet.second}, hand)
    if hear is not None and raced.reply is not None and raced.reply.text:
        hear(raced.reply.text)


_Came = Reply | Exception


async def _call(team: Hedging, whom: Priced, request: Request, hear: Hear | None, *, slow: Seconds = inf) -> _Came:
    """What comes of one call. Whatever it raises is handed back: it must not end the other one, nor cost its reply."""
    clock = asyncio.get_running_loop().time
    begun = clock()
    try:
        reply = await whom.model.reply(request, hear)
    except asyncio.CancelledError:
        if (passed := clock() - begun) >= slow:  # else it says nothing: a run may be cancelled at any moment
            team.took(whom.model, passed)
        raise
    except Exception as error:  # noqa: BLE001 - a foreign model may raise anything
        return error
    team.took(whom.model, clock() - begun)
    return reply


async def _decide(raced: Raced, running: dict[asyncio.Task[_Came], Priced], hand: Hand) -> None:
    """Wait for the first good reply. Who finished, if too late, has told what it used; the others are given up."""
    while running and raced.reply is None:
        done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        for job in [one for one in running if one in done]:
            whom = running.pop(job)
            if raced.reply is not None:
                raced.given_up.append(_known(whom, job.result()))
                continue
            _take(raced, whom, job.result())
            if raced.reply is not None:
                hand.note(f"hedged: {whom.model.card.handle} answered first")
    for job, whom in running.items():
        job.cancel()
        raced.given_up.append(whom.use)


def _take(raced: Raced, whom: Priced, came: _Came) -> None:
    if isinstance(came, Reply):
        raced.reply = came
        raced.winner = whom.model
    elif isinstance(came, ModelFailed):
        raced.lost.append((whom.model, came))
    else:
        raced.mistaken.append((whom.model, model_failed(came)))
        raced.given_up.append(whom.use)


def _known(whom: Priced, came: _Came) -> Amount:
    """What a call used that came too late, where that is known; else what was held for it."""
    if isinstance(came, ModelFailed) and came.usage is None and not came.billed:
        return Amount(calls=1)
    if not isinstance(came, Reply | ModelFailed) or came.usage is None:
        return whom.use
    micros = came.micros if isinstance(came, Reply) else None
    if micros is None:
        micros = whom.model.card.price(came.usage.input, came.usage.output) or 0
    return Amount(tokens=came.usage.input + came.usage.output, micros=micros, calls=1)
