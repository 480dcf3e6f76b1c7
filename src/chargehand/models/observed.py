"""What replies of each model took beyond what was reserved for them, and how many of its calls may be under way.

A cap bounds what is billed as long as models keep to `max_tokens`. Where that is not known of one, its calls start
slowly: one, then as many more as there were replies that kept to what was reserved for them.
"""

import asyncio
import logging

from msgspec import Struct

from chargehand.models.messages import Reply
from chargehand.models.model import Model, ModelCard

_ENOUGH = 16  # replies in a row, no longer than reserved, after which any number of calls may be under way

logger = logging.getLogger(__name__)


class Observed(Struct):
    """What calls of one model took beyond what was reserved for them, at most: later ones reserve as much.

    `excess` is the longest reply that was longer than asked for, 0 while there was none, and `longest` that of all.
    `was_cut`: a reply ended at its limit. `input` and `price` are how many times as many tokens were read, and as many
    dollars charged, as was reckoned. `kept` counts the replies in a row that were no longer than reserved, `under_way`
    the calls that have been let in and are not over.
    """

    excess: int = 0
    longest: int = 0
    was_cut: bool = False
    input: float = 1.0
    price: float = 1.0
    kept: int = 0
    under_way: int = 0

    def keeps_limit(self, card: ModelCard) -> bool:
        """Whether it is known to keep to `max_tokens`."""
        return not self.excess and (card.keeps_limit or self.was_cut)

    def length(self, card: ModelCard, limit: int) -> int:
        """How long a reply may be that is asked for within a limit."""
        return limit if self.keeps_limit(card) else max(limit, self.longest)

    def is_trusted(self, card: ModelCard) -> bool:
        """Whether its replies are taken to keep to what is reserved for them, however many are under way."""
        return self.kept >= _ENOUGH or self.keeps_limit(card)

    def may_start(self, card: ModelCard) -> bool:
        """Whether another call may be let in now."""
        return self.is_trusted(card) or self.under_way <= self.kept

    def add_reply(self, card: ModelCard, *, read: int, limit: int, reply: Reply) -> None:
        """Count a reply to a call that read so many tokens, as was reckoned, and asked for a reply within a limit."""
        usage = reply.usage
        if usage is None:  # booked as what was reserved: nothing can be learned from it
            self.kept += 1
            return
        is_longer = usage.output > self.length(card, limit)
        self.kept = 0 if is_longer else self.kept + 1
        if is_longer:
            logger.warning("%s wrote %d tokens where %d were asked for", card.handle, usage.output, limit)
        if usage.output > limit:
            self.excess = max(self.excess, usage.output)
        elif reply.finish == "length":
            self.was_cut = True
        self.longest = max(self.longest, usage.output)
        if read and usage.input > read:
            self.input = max(self.input, usage.input / read)
        price = card.price(usage.input, usage.output)
        if price and reply.micros is not None and reply.micros > price:
            self.price = max(self.price, reply.micros / price)


class Observations:
    """What was observed of every model, by its handle, for all teams that find their models in one place."""

    def __init__(self) -> None:
        self._by_handle: dict[str, Observed] = {}
        self._waiting: list[asyncio.Future[None]] = []

    def of(self, model: Model) -> Observed:
        return self._by_handle.setdefault(model.card.handle, Observed())

    async def enter(self, model: Model) -> None:
        """Wait until one more call of a model may be under way, and count it."""
        observed = self.of(model)
        while not observed.may_start(model.card):
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            await turn
        observed.under_way += 1

    def leave(self, model: Model) -> None:
        """A call that was let in is over."""
        self.of(model).under_way -= 1
        waiting = self._waiting
        self._waiting = []
        for turn in waiting:
            if not turn.done():
                turn.set_result(None)
