"""Who writes the answer, and the calls that takes: each is counted, also one that fails or is given up half-way.

What is asked is not known here.
"""

from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct

from chargehand.agents.crew import Hand, WorkFailed
from chargehand.agents.memory_text import Seen
from chargehand.agents.money import Held, Purse, call_held, hold, total
from chargehand.agents.prompts import Prompts
from chargehand.models.messages import Reply, Request, Settings
from chargehand.models.model import Hear, Model
from chargehand.terms.budget import NOTHING, Amount
from chargehand.terms.failure import Failure


class Writer(Struct, frozen=True):
    """Who answers, with what.

    `own` is a function that answers instead: it is given the goal, results and gaps. `shared` reads the blocks that the
    whole team sees.
    """

    model: Model
    prompts: Prompts
    instructions: str
    settings: Settings
    purse: Purse
    own: Callable[..., object] | None = None
    reserve: Amount = NOTHING
    shared: Callable[[], Awaitable[Sequence[Seen]]] | None = None


async def held_call(writer: Writer, request: Request, hand: Hand) -> Held | None:
    """A call of the model as it may be made, with what it takes held; None where nothing covers it."""
    return await hold(hand, writer.purse, writer.model, request, writer.reserve)


class Bill:
    """What the calls for one answer cost together."""

    def __init__(self) -> None:
        self._used: list[Amount | None] = []

    async def ask(self, writer: Writer, held: Held, hand: Hand, hear: Hear | None = None) -> Reply:
        """One call; its failures are those of the whole answer, and so is a reply that says nothing."""
        reply = await self.reply(writer, held, hand, hear)
        if not reply.text.strip():
            raise WorkFailed(Failure("logic", f"{writer.model.card.handle} answered with nothing"), self.total())
        return reply

    async def reply(self, writer: Writer, held: Held, hand: Hand, hear: Hear | None = None) -> Reply:
        """One call, for which money is held, whatever comes back."""
        at = len(self._used)
        # nobody knows what a call costs that is given up before it comes back: what was held for it counts
        self._used.append(held.amount if writer.purse.capped else None)
        try:
            called = await call_held(
                hand=hand, purse=writer.purse, model=writer.model, held=held, settings=writer.settings, hear=hear
            )
        except WorkFailed as error:
            self._used[at] = error.used
            raise WorkFailed(error.failure, self.total()) from error
        self._used[at] = called.used
        return called.reply

    def total(self) -> Amount | None:
        """All of it; None where the cost of any call is not known."""
        return total(self._used)
