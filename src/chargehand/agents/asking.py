"""Who writes the answer, and the calls that takes: each is counted, also one that fails or is given up half-way.

What is asked is not known here.
"""

from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct

from chargehand.agents.crew import WorkFailed
from chargehand.agents.memory_text import Seen
from chargehand.agents.money import failed, reckoned, spent, total
from chargehand.agents.prompts import Prompts
from chargehand.models.code_errors import model_failed
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
    own: Callable[..., object] | None = None
    reserve: Amount = NOTHING
    shared: Callable[[], Awaitable[Sequence[Seen]]] | None = None


class Bill:
    """What the calls for one answer cost together."""

    def __init__(self) -> None:
        self._used: list[Amount | None] = []

    async def ask(self, writer: Writer, request: Request, hear: Hear | None = None) -> Reply:
        """One call; its failures are those of the whole answer, and so is a reply that says nothing."""
        reply = await self.reply(writer, request, hear)
        if not reply.text.strip():
            raise WorkFailed(Failure("logic", f"{writer.model.card.handle} answered with nothing"), self.total())
        return reply

    async def reply(self, writer: Writer, request: Request, hear: Hear | None = None) -> Reply:
        """One call, whatever comes back."""
        at = len(self._used)
        # nobody knows what a call costs that is given up before it comes back: what was held for it counts
        held = reckoned(writer.model, request, writer.reserve) if writer.reserve != NOTHING else None
        self._used.append(held)
        try:
            reply = await writer.model.reply(request, hear)
        except Exception as error:
            lost = model_failed(error)
            self._used[at] = failed(writer.model, lost) or held
            raise WorkFailed(lost.failure, self.total()) from error
        self._used[at] = spent(reply, held or NOTHING) or held
        return reply

    def total(self) -> Amount | None:
        """All of it; None where the cost of any call is not known."""
        return total(self._used)
