"""What a call of a model is expected to cost before it is made, and what it cost after."""

from collections.abc import Sequence
from typing import TypeAlias

from msgspec import Struct

from chargehand.agents.crew import Hand, WorkFailed
from chargehand.agents.history import tokens
from chargehand.agents.worker import Worker
from chargehand.errors import Invalid
from chargehand.models.messages import Reply, Request, Settings
from chargehand.models.model import Model, ModelFailed
from chargehand.terms.budget import NOTHING, Amount, Budget, Ledger
from chargehand.terms.failure import Failure

Lost: TypeAlias = list[tuple[Model, ModelFailed]]

_REPLY = 1024  # tokens a reply is expected to have where nobody set a limit
# what handles of models begin with that nobody charges for
_FREE = ("offline", "local:", "ollama:", "vllm:", "llamacpp:")
_SUPERVISION = (3000, 1000)  # tokens in and out
_NOTHING_SET = Settings()


class Priced(Struct, frozen=True):
    """A model, and what one call of it is taken to use; `micros` is None where nobody knows its price."""

    model: Model
    use: Amount
    micros: int | None


class Purse:
    """Estimates for one team. Without caps nothing is reserved, which saves the reckoning."""

    def __init__(self, *, capped: bool) -> None:
        self._capped = capped

    def reserve(self, models: Sequence[Model], tokens: int, worker: Worker) -> Amount:
        """What a call may cost at most, if all models but the last fail, as far as that can be known."""
        if not self._capped:
            return NOTHING
        out = worker.settings.max_tokens or _REPLY
        prices = [model.card.price(tokens, out) for model in models]
        micros = sum(worker.estimate.micros if one is None else one for one in prices)
        return Amount((tokens + out) * len(models), micros, len(models))

    def priced(self, model: Model, tokens: int, worker: Worker) -> Priced:
        """What a call of this one model may cost, whether or not anything is capped."""
        out = worker.settings.max_tokens or _REPLY
        price = model.card.price(tokens, out)
        micros = worker.estimate.micros or None if price is None else price
        return Priced(model, Amount(tokens + out, micros or 0, 1), micros)

    def used(self, reply: Reply, reserve: Amount) -> Amount | None:
        """What a call cost; None, or the reserve, for what nobody knows."""
        if reply.usage is None:
            return Amount(calls=1) if reserve is NOTHING else None
        micros = reserve.micros if reply.micros is None else reply.micros
        return Amount(reply.usage.input + reply.usage.output, micros, 1)

    def lost(self, calls: Sequence[tuple[Model, ModelFailed]]) -> Amount | None:
        """What failed calls cost, where the provider said so; in a run with caps their step keeps the reserve."""
        known = [] if self._capped else [failed(model, error) for model, error in calls]
        return total([one for one in known if one is not None])


def spent(reply: Reply, reserve: Amount) -> Amount | None:
    """What a call of the supervisor cost; for what nobody knows, what was reserved for it counts."""
    if reply.usage is None:
        return None
    micros = reserve.micros if reply.micros is None else reply.micros
    return Amount(reply.usage.input + reply.usage.output, micros, 1)


def failed(model: Model, error: ModelFailed) -> Amount | None:
    """What a failed call of the supervisor cost, where the provider said so."""
    if error.usage is None:
        return None
    price = model.card.price(error.usage.input, error.usage.output)
    return Amount(error.usage.input + error.usage.output, price or 0, 1)


def reckoned(model: Model, request: Request, least: Amount) -> Amount:
    """What a call of the supervisor may cost; `least` is what is held for one anyway (nothing: nothing is capped)."""
    if least == NOTHING:
        return NOTHING
    read = sum(tokens(one.text) for one in request.messages)
    out = request.settings.max_tokens or _SUPERVISION[1]
    price = model.card.price(read, out)
    return Amount(max(least.tokens, read + out), max(least.micros, price or 0), 1)


async def covered(hand: Hand, model: Model, request: Request, held: Amount) -> bool:
    """Whether one call may be made for which this much is held: if it takes more, the rest is held now."""
    need = reckoned(model, request, held)
    more = Amount(need.tokens - held.tokens, need.micros - held.micros)
    return more == NOTHING or await hand.afford(more, 1) == 1


def too_dear(what: str, *, alone: bool) -> WorkFailed:
    """The failure of who cannot pay for a call: for good, if it is `alone` and nobody gives anything back."""
    return WorkFailed(Failure("budget", f"the budget does not cover {what}", permanent=alone), NOTHING)


def with_lost(used: Amount | None, lost: Sequence[tuple[Model, ModelFailed]], reserve: Amount) -> Amount | None:
    """What a call cost together with those of the models that failed before another answered.

    Where something was reserved for them, one of them that nobody knows the cost of makes it unknown.
    """
    if used is None or (reserve != NOTHING and any(error.usage is None for _, error in lost)):
        return None
    known = [failed(model, error) or Amount(calls=1) for model, error in lost]
    tokens, micros = sum(one.tokens for one in known), sum(one.micros for one in known)
    return Amount(used.tokens + tokens, used.micros + micros, used.calls + len(known))


def with_given_up(used: Amount | None, others: Sequence[Amount]) -> Amount | None:
    """What a call cost together with those that were made as well and not waited for."""
    return total([used, *others]) if others else used


def supervision(budget: Budget, models: Sequence[str | Model], settings: Settings = _NOTHING_SET) -> Amount:
    """What a call of the supervisor is taken to cost.

    Never nothing where it may cost something: none is made once the money is spent, even if its price is not known yet.
    """
    if not Ledger(budget).capped:
        return NOTHING
    read, out = _SUPERVISION[0], max(_SUPERVISION[1], settings.max_tokens or 0)
    micros = 0 if budget.micros is None else max(_foreseen(one, budget.floor.micros, out) for one in models)
    return Amount(read + out, micros, 1)


def _foreseen(model: str | Model, kept: int, out: int) -> int:
    price = None if isinstance(model, str) else model.card.price(_SUPERVISION[0], out)
    handle = model if isinstance(model, str) else model.card.handle
    return price if price is not None else 0 if handle.startswith(_FREE) else max(1, kept)


def check_price(model: Model) -> None:
    """Raise Invalid for a model nobody knows the price of: a cap in dollars could not be kept."""
    if model.card.price(1, 1) is None:
        raise Invalid(
            f"nobody knows what {model.card.handle} costs, so the budget in dollars cannot be kept; "
            "cap tokens or calls instead, or say what a call costs: a worker's `estimate`, the budget's `floor`"
        )


def total(used: Sequence[Amount | None]) -> Amount | None:
    """What several calls cost together; None where that of one is not known."""
    known = [one for one in used if one is not None]
    if len(known) < len(used):
        return None
    return Amount(sum(one.tokens for one in known), sum(one.micros for one in known), sum(one.calls for one in known))
