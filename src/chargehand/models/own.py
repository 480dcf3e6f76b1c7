"""Models of the user's own making: an object with `reply`, or a plain function, in the shape the rest works with."""

import asyncio
import inspect
import re
from collections.abc import Callable, Sequence
from itertools import count
from typing import Annotated, Any, TypeAlias, cast

from msgspec import structs

from chargehand.engine.declared import Write
from chargehand.engine.failure import Failure
from chargehand.errors import Invalid
from chargehand.models.local.actions import read_action, turns
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
        names = self._parameters()
        self._as_text = names[:1] == ["messages"]
        self._streams = len(names) > 1
        self._is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004 - an object with an async __call__
        )

    def _parameters(self) -> list[str]:
        """The parameters that are filled: the request or its messages, and where there is a second one, `hear`."""
        parameters = inspect.signature(self._function).parameters.values()
        names = [
            parameter.name
            for parameter in parameters
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        ]
        needed = [
            parameter.name
            for parameter in parameters
            if parameter.default is parameter.empty and parameter.name in names
        ]
        if not names or len(needed) > 2 or (len(needed) == 2 and needed[1] != "hear"):
            takes = ", ".join(names) or "nothing"
            raise Invalid(
                f"the model {self.card.handle!r} takes {takes}; write it as a function of `messages` (it returns text) "
                "or of `request` (it returns a Reply)"
            )
        return names if len(names) > 1 and names[1] == "hear" else names[:1]

    async def reply(self, request: Request, hear: Hear | None = None) -> Reply:
        model = _as_text(request) if self._as_text else request
        arguments: tuple[object, ...] = (model, hear) if self._streams else (model,)
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
