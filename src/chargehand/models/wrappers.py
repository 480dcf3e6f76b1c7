"""Models made of other things: a function or an object of the user's own, or several models as one pool."""

import asyncio
import inspect
import re
from collections.abc import Callable, Sequence
from itertools import count
from typing import Annotated, Any, TypeAlias, cast

from msgspec import Struct, structs

from chargehand.engine.declared import Write, argument_problem, is_async
from chargehand.engine.failure import Failure
from chargehand.engine.policy import Instant
from chargehand.errors import Invalid
from chargehand.models.actions import read_action, turns
from chargehand.models.messages import Message, Reply, Request
from chargehand.models.model import Hear, Model, ModelCard, ModelFailed

ModelFunction: TypeAlias = Callable[[Any], object]
"""A function, plain or async: of `messages` and returning text, or of a `request` and returning a `Reply` or text."""
_WHAT_TO_WRITE = (
    "a handle such as 'openai:gpt-5-mini', a function of `messages` that returns text, or an object with "
    "`async def reply(self, request, hear=None)`"
)
AnyModel: TypeAlias = Annotated[str | Model | ModelFunction, Write(_WHAT_TO_WRITE)]

_FENCE = re.compile(r"\A```\w*\n(.*?)\n?```\Z", re.DOTALL)


def as_model(model: AnyModel) -> str | Model:
    """A handle or a model as it is; a function, or a model that leaves something out, in the shape of a model."""
    if isinstance(model, str):
        return model
    if isinstance(model, type):
        raise Invalid(f"{model.__name__} is a class; make a model of it: {model.__name__}(...)")
    reply: Any = getattr(model, "reply", None)
    if callable(reply):
        card: object = getattr(model, "card", None)
        promised = inspect.get_annotations(getattr(reply, "__func__", reply)).get("return")
        if isinstance(card, ModelCard) and promised in (Reply, "Reply"):
            return cast("Model", model)
        if card is not None and not isinstance(card, ModelCard):
            raise Invalid(f"the card of {type(model).__name__} is {card!r}; write card = ModelCard('some-name')")
        return OwnModel(reply, card or ModelCard(type(model).__name__))
    if not callable(model):
        raise Invalid(f"{model!r} is no model; write {_WHAT_TO_WRITE}")
    return OwnModel(model, ModelCard(getattr(model, "__name__", type(model).__name__)))


def model_handle(model: AnyModel) -> str:
    """The handle by which people know a model, however it was given."""
    model = as_model(model)
    return model if isinstance(model, str) else model.card.handle


class OwnModel:
    """Calls a function of the user's for every reply. What its calls cost is known only if the card says so."""

    def __init__(self, function: Callable[..., object], card: ModelCard) -> None:
        self.card = card
        self._function = function
        self._numbers = count(1)
        self._is_async = is_async(function)
        names = list(inspect.signature(function).parameters)
        self._as_text = names[:1] == ["messages"]
        self._streams = "hear" in names
        if argument_problem(function, *((None, None) if self._streams else (None,))):
            takes = ", ".join(names) or "nothing"
            raise Invalid(
                f"the model {card.handle!r} takes {takes}; write it as a function of `messages` (it returns text) "
                "or of `request` (it returns a Reply)"
            )

    async def reply(self, request: Request, hear: Hear | None = None) -> Reply:
        asked = _as_text(request) if self._as_text else request
        arguments: tuple[object, ...] = (asked, hear) if self._streams else (asked,)
        if self._is_async:
            returned = await cast("Any", self._function(*arguments))
        else:  # a plain function may wait for a server, so it runs in a thread
            returned = await asyncio.to_thread(self._function, *arguments)
            if inspect.isawaitable(returned):
                returned = await returned
        reply = self._read(request, returned)
        if hear is not None and not self._streams and reply.text:
            hear(reply.text)
        return reply

    def _read(self, request: Request, returned: object) -> Reply:
        if isinstance(returned, Reply):
            return returned if returned.model else structs.replace(returned, model=self.card.handle)
        if not isinstance(returned, str):
            kind = "nothing" if returned is None else f"{type(returned).__name__}"
            message = f"the model {self.card.handle!r} returned {kind}; return text or a Reply"
            raise ModelFailed(Failure("logic", message, permanent=True))
        if self._as_text and request.tools:
            fenced = _FENCE.match(returned.strip())
            try:
                text, calls = read_action(fenced[1] if fenced else returned.strip(), next(self._numbers))
            except ValueError:  # plain words are an answer, too
                return Reply(returned, model=self.card.handle)
            return Reply(text, calls, "tools" if calls else "stop", model=self.card.handle)
        return Reply(returned, model=self.card.handle)


def _as_text(request: Request) -> Sequence[Message]:
    """The messages for a model that only reads and writes text: tools and the shape of the reply in words."""
    messages = turns(request.messages, request.tools)
    if request.schema is None:
        return messages
    what = "The answer" if request.tools else "Reply with one JSON document and nothing else. It"
    words = f"{what} must fit this JSON Schema: {bytes(request.schema).decode()}"
    if messages and messages[0].role == "system":
        return [Message("system", f"{messages[0].text}\n\n{words}"), *messages[1:]]
    return [Message("system", words), *messages]


# --- models of the user's own making


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
