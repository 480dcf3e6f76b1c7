"""Models made of other things: a function or an object of the user's own, several models as one pool, hedged calls."""

import asyncio
import inspect
import logging
import re
from collections import deque
from collections.abc import Callable, Sequence
from itertools import count
from math import ceil
from typing import Annotated, Any, TypeAlias, cast

from msgspec import Struct, structs

from chargehand.engine.declared import Write, argument_problem, is_async
from chargehand.engine.failure import Failure
from chargehand.engine.policy import Instant, Seconds
from chargehand.engine.state import TextKind
from chargehand.errors import Invalid
from chargehand.models.actions import read_action, turns
from chargehand.models.guard import Guarded
from chargehand.models.messages import Message, Reply, Request
from chargehand.models.model import Hear, Model, ModelCard, ModelFailed, model_failed, tell_whole
from chargehand.models.rates import dearest

logger = logging.getLogger(__name__)

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


def model_handle(model: str | Model) -> str:
    """The handle by which people know a model."""
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
        argument = _as_text(request) if self._as_text else request
        arguments: tuple[object, ...] = (argument, hear) if self._streams else (argument,)
        if self._is_async:
            returned = await cast("Any", self._function(*arguments))
        else:  # a plain function may wait for a server, so it runs in a thread
            returned = await asyncio.to_thread(self._function, *arguments)
            if inspect.isawaitable(returned):
                returned = await returned
        reply = self._read(request, returned)
        if hear is not None and not self._streams:
            tell_whole(reply, hear)
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
        """What holds for any of them. No call costs more than its prices say, whichever of them answers."""
        cards = [model.card for model in self.models]
        prices = [price for card in cards if (price := card.rates) is not None]
        first = structs.replace(cards[0], micros_in=None)
        if len(prices) == len(cards):
            first = first.with_price(dearest(prices))
        return structs.replace(
            first,
            handle=pool_handle([card.handle for card in cards]),
            window=min(card.window for card in cards),
            native_tools=all(card.native_tools for card in cards),
            schema=all(card.schema for card in cards),
            images=all(card.images for card in cards),
            documents=all(card.documents for card in cards),
            notice=" ".join(dict.fromkeys(card.notice for card in cards if card.notice)),
            max_tokens=min((card.max_tokens for card in cards if card.max_tokens), default=0),
            keeps_limit=all(card.keeps_limit for card in cards),
            in_process=any(card.in_process for card in cards),
            free=all(card.free for card in cards),
            reads_facts=all(card.reads_facts for card in cards),
        )

    async def reply(self, request: Request, hear: Hear | None = None) -> Reply:
        """A reply of whichever is least loaded; its price is that of the replica that answered."""
        untried = list(self.models)
        sent = False
        while True:
            model = min(untried, key=self._rank)
            untried.remove(model)
            try:
                return await self._call(model, request, hear)
            except ModelFailed as error:
                error.sent = sent = sent or error.sent
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
            return structs.replace(reply, micros=model.card.price(reply.usage, reply.tier))
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


# --- a second call where the first takes unusually long


_MAX_TIMES = 200
_ENOUGH_TIMES = 20
_UNUSUAL = 0.95
_MARGIN = 1.1  # five calls in a hundred are slower than the others by definition: what matters is by how much
_MAX_CREDIT = 10.0  # second calls that may be made one right after the other, however many calls were quick before


class Hedging:
    """How long the calls of a team's models take, and how many second calls may be made, for all its runs.

    `after` is how long is too long; left out, the last calls of the model say it. `share` is the share of all calls
    that may be made twice.
    """

    def __init__(self, *, after: Seconds | None = None, share: float = 0.05) -> None:
        self._after = after
        self._share = share
        self._times: dict[str, deque[Seconds]] = {}
        self._credit = 0.0

    def begin(self, handle: str) -> Seconds | None:
        """A call of a model begins: after how long a second may be made; None where none may be."""
        has_credit = self._credit >= 1.0
        self._credit = min(_MAX_CREDIT, self._credit + self._share)
        times = sorted(self._times.get(handle, ()))
        if not has_credit or (self._after is None and len(times) < _ENOUGH_TIMES):
            return None
        if self._after is not None:
            return self._after
        return _MARGIN * times[ceil(_UNUSUAL * len(times)) - 1]

    def end(self, handle: str, seconds: Seconds) -> None:
        """A call took so long, or was given up after so long."""
        self._times.setdefault(handle, deque(maxlen=_MAX_TIMES)).append(seconds)

    def take_credit(self, *models: Model) -> bool:
        """Whether a second call is made now: it must not add to the trouble of a provider."""
        if self._credit < 1.0 or not all(model.is_calm for model in models if isinstance(model, Guarded)):
            return False
        self._credit -= 1.0
        return True


class HedgedModel:
    """Calls a model, and a second one as well where that takes unusually long; the first good reply is used.

    The call that is given up may be billed, too: both are counted like the one that is used. Where money was reserved
    for one call, and once text was heard, no second call is made.
    """

    def __init__(self, model: Model, second: Model, hedging: Hedging) -> None:
        self._model = model
        self._second = second
        self._hedging = hedging

    @property
    def card(self) -> ModelCard:
        return self._model.card

    async def reply(self, request: Request, hear: Hear | None = None) -> Reply:
        handle = self.card.handle
        clock = asyncio.get_running_loop().time
        begun = clock()
        patience = self._hedging.begin(handle)
        if patience is None or request.pay_once or self._second.card.in_process:
            reply = await self._model.reply(request, hear)
            self._hedging.end(handle, clock() - begun)
            return reply
        gate = _TextGate(hear)
        async with asyncio.TaskGroup() as jobs:
            calls = [jobs.create_task(_outcome(self._model, request, None if hear is None else gate))]
            await asyncio.wait(calls, timeout=patience)
            is_late = not calls[0].done() and not gate.heard
            if is_late and self._hedging.take_credit(self._model, self._second):
                logger.info(
                    "%s has not answered within %.3g s: %s is called", handle, patience, self._second.card.handle
                )
                gate.is_shut = True
                calls.append(jobs.create_task(_outcome(self._second, request, None)))
            outcome = await _first_reply(calls)
        if isinstance(outcome, ModelFailed):
            raise outcome
        self._hedging.end(handle, clock() - begun)
        if len(calls) == 1:
            return outcome
        if hear is not None:
            tell_whole(outcome, hear)
        return _counted_twice(outcome)


async def _outcome(model: Model, request: Request, hear: Hear | None) -> Reply | ModelFailed:
    """What comes of one call. What it raises is returned: it must not end the other one."""
    try:
        return await model.reply(request, hear)
    except Exception as error:  # noqa: BLE001 - a foreign model may raise anything
        return model_failed(error)


async def _first_reply(calls: Sequence[asyncio.Task[Reply | ModelFailed]]) -> Reply | ModelFailed:
    """The first good reply, the other call being given up; else the failure of the first."""
    for call in asyncio.as_completed(calls):
        outcome = await call
        if isinstance(outcome, Reply):
            for other in calls:
                other.cancel()
            return outcome
    return calls[0].result()


def _counted_twice(reply: Reply) -> Reply:
    usage = reply.usage
    if usage is not None:
        usage = usage + usage
    return structs.replace(reply, usage=usage, micros=None if reply.micros is None else 2 * reply.micros)


class _TextGate:
    """Passes text on while only one model is called; with two it is not known yet whose text counts."""

    __slots__ = ("_hear", "heard", "is_shut")

    def __init__(self, hear: Hear | None) -> None:
        self._hear = hear
        self.heard = False
        self.is_shut = False

    def __call__(self, text: str, kind: TextKind = "answer", /) -> None:
        if self._hear is not None and not self.is_shut:
            self.heard = self.heard or kind == "answer"
            self._hear(text, kind)
