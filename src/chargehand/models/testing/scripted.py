"""A model that says what it is told to, for tests of what is built on models. It needs no network and no key."""

import asyncio
import inspect
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeAlias

from msgspec import structs

from chargehand.engine.failure import Failure
from chargehand.engine.policy import Seconds
from chargehand.models.messages import Reply, Request, Usage
from chargehand.models.model import Hear, ModelCard, ModelFailed

Line: TypeAlias = Reply | str | Failure | ModelFailed
Script: TypeAlias = Sequence[Line] | Callable[[Request], Line | Awaitable[Line]]

_WORDS = re.compile(r"\S+\s*|\s+")


class ScriptedModel:
    """Replies from a list, in turn, or from a function of the request (plain or async).

    A string is a reply of that text; a `Failure` or `ModelFailed` fails the call. A list that has run out fails
    clearly, unless `repeat` says to go on with its last line. `latency` is waited before each reply; `micros` is what a
    reply costs (in millionths of a dollar) and `usage` what it used, where the reply does not say so itself. `faults`
    are failures by number of the call, counted from 1, and come before the script: the line of that call is not used
    up. What it was asked is in `requests`.

        model = ScriptedModel([Reply(calls=(ToolCall("1", "add", '{"a": 2, "b": 2}'),), finish="tools"), "It is 4."])
        model = ScriptedModel(lambda request: f"you said {request.messages[-1].text}", latency=0.05)
        model = ScriptedModel(["fine"], faults={1: Failure("network", "the line went dead")})
    """

    def __init__(
        self,
        script: Script,
        *,
        handle: str = "scripted",
        latency: Seconds = 0.0,
        micros: int | None = None,
        usage: Usage | None = None,
        faults: Mapping[int, Failure | ModelFailed] | None = None,
        repeat: bool = False,
        card: ModelCard | None = None,
    ) -> None:
        self._script = script
        self._card = card or ModelCard(handle, keeps_limit=True)
        self._latency = latency
        self._micros = micros
        self._usage = usage
        self._faults = dict(faults or {})
        self._repeat = repeat
        self._used = 0
        self.requests: list[Request] = []

    @property
    def card(self) -> ModelCard:
        return self._card

    async def reply(self, request: Request, hear: Hear | None = None) -> Reply:
        self.requests.append(structs.replace(request, messages=tuple(request.messages)))  # the caller's list grows
        fault = self._faults.get(len(self.requests))
        if self._latency:
            await asyncio.sleep(self._latency)
        line = fault if fault is not None else await self._line(request)
        if isinstance(line, Failure):
            raise ModelFailed(line)
        if isinstance(line, ModelFailed):
            raise line
        reply = self._priced(Reply(line) if isinstance(line, str) else line)
        if hear is not None:
            for word in _WORDS.findall(reply.text):
                hear(word)
        return reply

    async def _line(self, request: Request) -> Line:
        if not callable(self._script):
            return self._next(self._script)
        line = self._script(request)
        return await line if inspect.isawaitable(line) else line

    def _next(self, lines: Sequence[Line]) -> Line:
        number = self._used
        self._used += 1
        if number < len(lines):
            return lines[number]
        if self._repeat and lines:
            return lines[-1]
        message = f"the script of {self._card.handle} holds {len(lines)} replies and is asked for one more; add a line"
        return Failure("logic", message, permanent=True)

    def _priced(self, reply: Reply) -> Reply:
        usage = self._usage if reply.usage is None else reply.usage
        micros = self._micros if reply.micros is None else reply.micros
        if usage is reply.usage and micros is reply.micros and reply.model:
            return reply
        return structs.replace(reply, usage=usage, micros=micros, model=reply.model or self._card.handle)
