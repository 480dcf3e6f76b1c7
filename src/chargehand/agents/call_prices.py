"""What calls of models cost at least and at most, in millionths of a dollar, from their prices and what they read.

Which calls a plan takes is not known here. None is for what nobody knows.
"""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from chargehand.models.model import Model, ModelCard
from chargehand.tools.tool import CAP

DENSE, LOOSE = 3, 6
"""Bytes a token has at least, and characters at most, as a rule: code and numbers are dense, long words are loose."""
RESULT = CAP // DENSE
"""Tokens of a result, or of what a tool returns, as far as a model is shown it."""
USUAL = 500
"""Tokens of a reply, a result or what a tool returns, as they usually are."""
_USUAL_CALLS = 3  # of a worker with tools
_USUALLY = 4  # characters a token, and so windows are filled


def at_least(models: Sequence[Model], kept: int, new: int) -> int | None:
    """One call of the cheapest of them that reads so many characters, those `kept` from earlier calls at a discount."""
    prices = [_least(model.card, kept, new) for model in models]
    known = [one for one in prices if one is not None]
    return min(known) if len(known) == len(prices) and known else None


def _least(card: ModelCard, kept: int, new: int) -> int | None:
    if card.micros_in is None or card.micros_out is None:
        return None
    cached = card.micros_in if card.micros_cached is None else min(card.micros_cached, card.micros_in)
    return int(kept // LOOSE * cached + new // LOOSE * card.micros_in + card.micros_out) + card.micros_call


def at_most(models: Sequence[Model], read: int, out: int, estimate: int = 0, *, besides: int = 0) -> int | None:
    """One call that reads so many tokens, if all of them but the last fail. `estimate` is for a price nobody knows.

    What it reads is cut where the window is full, except for what comes `besides`, as tools and schemas do.
    """
    prices = [model.card.price(min(read, reach(model.card.window)) + besides, out) for model in models]
    return total((estimate or None) if one is None else one for one in prices)


def reach(window: int) -> int:
    """Tokens that may stand in a window which is filled by a count of characters."""
    return -(-window * _USUALLY // DENSE)


def usually(models: Sequence[Model], characters: int, given: int, out: int, *, tools: bool) -> int | None:
    """What one attempt usually takes: of the first model, with so many results of others to read."""
    calls, reply = _USUAL_CALLS if tools else 1, min(out, USUAL)
    first = characters // _USUALLY + given * USUAL
    return total(at_most(models[:1], first + number * (reply + USUAL), reply) for number in range(calls))


class Turns(Struct, frozen=True):
    """So many calls in turn, each of which reads what those before it wrote, and `grows` more for each of them."""

    first: int
    besides: int
    out: int
    steps: int
    grows: int

    def at_most(self, models: Sequence[Model], estimate: int = 0) -> int | None:
        """All of them together."""
        full, spent = max((reach(model.card.window) for model in models), default=0), 0
        for step in range(self.steps):
            read = self.first + step * (self.out + self.grows)
            price = at_most(models, read, self.out, estimate, besides=self.besides)
            if price is None:
                return None
            if read >= full:  # no later one costs more
                return spent + (self.steps - step) * price
            spent += price
        return spent


def total(parts: Iterable[int | None]) -> int | None:
    """All of them together; None where one is not known."""
    found = 0
    for one in parts:
        if one is None:
            return None
        found += one
    return found


def tokens(*texts: str | bytes) -> int:
    """As many as these texts are at most, as a rule."""
    size = sum(len(one if isinstance(one, bytes) else one.encode(errors="replace")) for one in texts)
    return -(-size // DENSE)
