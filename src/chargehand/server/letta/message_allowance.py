"""What agents may use that write to each other because of one message of a client: calls of models, and dollars.

It is counted while the server runs. The agent that the client wrote to has its steps, and is not counted here: it is
told when the others have used up what there is, and answers with what it has.
"""

import logging
from collections import OrderedDict

from msgspec import Struct

from chargehand.agents.money import CallCap, calls_for
from chargehand.models.messages import Reply, Request
from chargehand.models.model import Hear, Model, ModelCard, ModelFailed
from chargehand.server.settings import Limits
from chargehand.terms.failure import Failure

logger = logging.getLogger(__name__)

_MOST_KEPT = 10_000
"""Messages of clients whose use is remembered."""


class Use(Struct):
    """What was used so far because of one message of a client. `unpriced` are calls that nobody knows the price of."""

    calls: int = 0
    micros: int = 0
    unpriced: int = 0


class MessageAllowances:
    """What was used, by the run of the client's message: runs inside it are named after it."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._uses: OrderedDict[str, Use] = OrderedDict()

    def metered(self, run: str, models: tuple[Model, ...]) -> tuple[Model, ...]:
        """The models for an agent in this run: counted where it works because of a message of another agent."""
        client_run, _, inside = run.partition("/")
        if not inside:
            return models
        use = self._uses.setdefault(client_run, Use())
        self._uses.move_to_end(client_run)
        while len(self._uses) > _MOST_KEPT:
            self._uses.popitem(last=False)
        return tuple(MeteredModel(model, use, self._limits) for model in models)


class MeteredModel:
    """A model that is not called any more when the calls or the dollars are used up."""

    def __init__(self, model: Model, use: Use, limits: Limits) -> None:
        self._model = model
        self._use = use
        self._limits = limits

    @property
    def card(self) -> ModelCard:
        return self._model.card

    async def reply(self, request: Request, hear: Hear | None = None) -> Reply:
        if spent := self._spent():
            said = f"{spent}; answer with what there is, or write to fewer agents"
            raise ModelFailed(Failure("budget", said, permanent=True), billed=False)
        self._use.calls += 1
        if self.card.price(1, 1) is None:
            self._count_unpriced()
        try:
            reply = await self._model.reply(request, hear)
        except ModelFailed as error:
            if error.usage is not None:
                self._use.micros += self.card.price(error.usage.input, error.usage.output) or 0
            raise
        self._use.micros += _micros(reply, self.card)
        return reply

    def _spent(self) -> str:
        beginning = "agents that wrote to each other because of one message have"
        if self._use.calls >= self._limits.message_calls:
            return f"{beginning} made {self._limits.message_calls} calls of models, which is all they may"
        if self._use.micros >= self._limits.message_micros:
            return f"{beginning} used ${self._limits.message_micros / 1_000_000:.2f}, which is all they may"
        most = calls_for(self._limits.message_micros)
        if self._use.unpriced >= most:
            return f"{beginning} made {most} calls of models that nobody knows the price of, which is all they may"
        return ""

    def _count_unpriced(self) -> None:
        """Calls are capped where dollars cannot be: that is logged once a message of a client."""
        if not self._use.unpriced:
            cap = CallCap((self.card.handle,), self._limits.message_micros / 1_000_000, self._most_calls())
            logger.warning("messages between agents: %s", cap.warning)
        self._use.unpriced += 1

    def _most_calls(self) -> int:
        return min(self._limits.message_calls, calls_for(self._limits.message_micros))


def _micros(reply: Reply, card: ModelCard) -> int:
    if reply.micros is not None:
        return reply.micros
    if reply.usage is None:
        return 0
    return card.price(reply.usage.input, reply.usage.output) or 0
