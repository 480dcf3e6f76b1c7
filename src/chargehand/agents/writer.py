"""The model that writes answers and judges results, and the calls it makes for one answer."""

from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct

from chargehand.agents.prompts import Prompts
from chargehand.agents.recall import BlockView
from chargehand.agents.spending import Reservation, Spending, SupervisorCalls
from chargehand.engine.budget import NOTHING, Amount
from chargehand.engine.failure import Failure
from chargehand.models.messages import Reply, Settings
from chargehand.models.model import Hear, Model
from chargehand.runtime.executor import StepContext, WorkFailed


class Writer(Struct, frozen=True):
    """The model that writes answers and judges results."""

    model: Model
    prompts: Prompts
    instructions: str
    settings: Settings
    spending: Spending
    own: Callable[..., object] | None = None
    """A function that answers instead: it is given the goal, results and gaps."""
    reserve: Amount = NOTHING
    """What is held for a call in any case."""
    shared: Callable[[], Awaitable[Sequence[BlockView]]] | None = None
    """Reads the blocks that the whole team sees."""
    learns: bool = False
    """Whether a result that a judge selects confirms the route to its worker."""


class WriterCalls(SupervisorCalls):
    """The calls for one answer."""

    def __init__(self, writer: Writer, context: StepContext) -> None:
        super().__init__(context, writer.spending, writer.model, writer.settings, writer.reserve)
        self.writer = writer
        self.lost: list[str] = []
        """What of the results the writer did not get to read, in words."""

    def lose(self, what: str) -> None:
        self.lost.append(what)
        self.context.note(what)

    async def ask(self, held: Reservation, hear: Hear | None = None) -> Reply:
        """One call that must come back with words."""
        reply = await self.call(held, hear)
        if not reply.text.strip():
            raise WorkFailed(Failure("logic", f"{self.model.card.handle} answered with nothing"), self.total())
        return reply
