"""What a call of a model is expected to cost before it is made, and what it cost after."""

from collections.abc import Sequence

from chargehand.agents.worker import Worker
from chargehand.errors import Invalid
from chargehand.models.messages import Reply
from chargehand.models.model import Model, ModelFailed
from chargehand.terms.budget import NOTHING, Amount, Budget, Ledger

_REPLY = 1024  # tokens a reply is expected to have where nobody set a limit
_FREE = ("offline", "local:")  # what handles of models begin with that nobody charges for
_SUPERVISION = (3000, 1000)  # tokens in and out


class Purse:
    """Estimates for one team. Without caps nothing is reserved, which saves the reckoning."""

    def __init__(self, *, capped: bool) -> None:
        self._capped = capped

    def reserve(self, models: Sequence[Model], tokens: int, worker: Worker) -> Amount:
        """What one call may cost at most, whichever of the models answers, as far as that can be known."""
        if not self._capped:
            return NOTHING
        out = worker.settings.max_tokens or _REPLY
        prices = [model.card.price(tokens, out) for model in models]
        return Amount(tokens + out, max(worker.estimate.micros if one is None else one for one in prices), 1)

    def used(self, reply: Reply, reserve: Amount) -> Amount | None:
        """What a call cost; None, or the reserve, for what nobody knows."""
        if reply.usage is None:
            return Amount(calls=1) if reserve is NOTHING else None
        micros = reserve.micros if reply.micros is None else reply.micros
        return Amount(reply.usage.input + reply.usage.output, micros, 1)

    def lost(self, error: ModelFailed) -> Amount | None:
        """What a failed call cost, where the provider said so; its own step keeps the reserve otherwise."""
        if error.usage is None:
            return NOTHING
        return Amount(error.usage.input + error.usage.output, 0, 1)


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


def with_lost(used: Amount | None, lost: Sequence[tuple[Model, ModelFailed]]) -> Amount | None:
    """What a call cost together with those of the models that failed before another answered."""
    if used is None:
        return None
    known = [failed(model, error) or Amount(calls=1) for model, error in lost]
    tokens, micros = sum(one.tokens for one in known), sum(one.micros for one in known)
    return Amount(used.tokens + tokens, used.micros + micros, used.calls + len(known))


def supervision(budget: Budget, models: Sequence[str | Model]) -> Amount:
    """What a call of the supervisor is taken to cost.

    Never nothing where it may cost something: none is made once the money is spent, even if its price is not known yet.
    """
    if not Ledger(budget).capped:
        return NOTHING
    micros = 0 if budget.micros is None else max(_foreseen(one, budget.floor.micros) for one in models)
    return Amount(sum(_SUPERVISION), micros, 1)


def _foreseen(model: str | Model, kept: int) -> int:
    price = None if isinstance(model, str) else model.card.price(*_SUPERVISION)
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
