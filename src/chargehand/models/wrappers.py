"""Models made of other models."""

import asyncio
from collections.abc import Sequence

from msgspec import Struct, structs

from chargehand.engine.policy import Instant
from chargehand.models.messages import Reply, Request
from chargehand.models.model import Hear, Model, ModelCard, ModelFailed

_REST = 30.0  # seconds for which a replica that failed is asked only if all others failed, too


class ReplicaLoad(Struct):
    """What one process knows of a replica: its calls under way, all its calls, and until when it rests."""

    under_way: int = 0
    calls: int = 0
    rests_until: Instant = 0.0


class ReplicaPool:
    """Several models that serve as one: each call goes to the least loaded of those that work.

    Where that one fails, the call goes to the next, unless it was paid for and money was reserved for one call only.
    `loads` by handle are shared by all pools of a team, so that its runs do not all begin with the same replica.
    """

    def __init__(self, models: Sequence[Model], loads: dict[str, ReplicaLoad]) -> None:
        self.models = tuple(models)
        self._loads = loads

    @property
    def card(self) -> ModelCard:
        """What holds for any of them; the prices are those of the dearest."""
        cards = [model.card for model in self.models]
        dearest = max(cards, key=lambda card: card.price(1000, 1000) or 0)
        all_priced = all(card.price(1, 1) is not None for card in cards)
        return structs.replace(
            dearest,
            handle=pool_handle([card.handle for card in cards]),
            window=min(card.window for card in cards),
            native_tools=all(card.native_tools for card in cards),
            schema=all(card.schema for card in cards),
            notice=" ".join(dict.fromkeys(card.notice for card in cards if card.notice)),
            micros_in=dearest.micros_in if all_priced else None,
            max_tokens=min((card.max_tokens for card in cards if card.max_tokens), default=0),
            keeps_limit=all(card.keeps_limit for card in cards),
            in_process=any(card.in_process for card in cards),
            free=all(card.free for card in cards),
            reads_facts=all(card.reads_facts for card in cards),
        )

    async def reply(self, request: Request, hear: Hear | None = None) -> Reply:
        """A reply of whichever is least loaded; its price is that of the replica that answered."""
        untried = list(self.models)
        while True:
            model = min(untried, key=self._rank)
            untried.remove(model)
            try:
                return await self._call(model, request, hear)
            except ModelFailed as error:
                paid = request.pay_once and (error.billed or error.usage is not None)
                if not untried or error.failure.permanent or paid:
                    raise

    async def _call(self, model: Model, request: Request, hear: Hear | None) -> Reply:
        load = self._load(model)
        load.under_way += 1
        load.calls += 1
        try:
            reply = await model.reply(request, hear)
        except ModelFailed:
            load.rests_until = asyncio.get_running_loop().time() + _REST
            raise
        finally:
            load.under_way -= 1
        load.rests_until = 0.0
        if reply.micros is None and reply.usage is not None:
            return structs.replace(reply, micros=model.card.price(reply.usage.input, reply.usage.output))
        return reply

    def _rank(self, model: Model) -> tuple[bool, int, int]:
        """The smallest is asked first."""
        load = self._load(model)
        return load.rests_until > asyncio.get_running_loop().time(), load.under_way, load.calls

    def _load(self, model: Model) -> ReplicaLoad:
        return self._loads.setdefault(model.card.handle, ReplicaLoad())


def pool_handle(handles: Sequence[str]) -> str:
    """What a pool is called: by the models in it."""
    return " | ".join(dict.fromkeys(handles))
