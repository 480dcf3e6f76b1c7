"""The hand of a worker who is handed no secrets: what a call brings is cleaned before it is recorded and used."""

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import msgspec
from msgspec import Raw, structs

from chargehand.agents.crew import Claim, Done, Hand
from chargehand.agents.relay import Relay
from chargehand.models.messages import Message
from chargehand.server.middleware.redaction import Redactor
from chargehand.terms.budget import NOTHING, Amount
from chargehand.terms.events import Effect, Failure, NoteCode
from chargehand.terms.plan import Task
from chargehand.terms.value import decode_value, encode_value

_Shape = TypeVar("_Shape")
_ENCODER = msgspec.json.Encoder()
_FAILURES = msgspec.json.Decoder(Failure)
_TASKS = msgspec.json.Decoder(tuple[Task, ...])
_LONGEST_WORD = 512
_OPEN_END = re.compile(rf"[!-~]{{1,{_LONGEST_WORD}}}\Z")
"""The word at the end of what was said so far: it may go on, and then be a secret."""
_KEY_BEGINS = "-----BEGIN "
_KEY_ENDS = "-----END "
_LONGEST_KEY = 16 * 1024


def as_done(done: Done, redactor: Redactor) -> Done:
    """The same without secrets; what came of it stays what it is where there are none."""
    body = bytes(encode_value(done.value))
    cleaned = redactor.clean(body)
    return done if cleaned is body else structs.replace(done, value=decode_value(cleaned))


class GuardedHand(Relay):
    """A hand around another."""

    __slots__ = ("_redactor", "_unsaid")

    def __init__(self, hand: Hand, redactor: Redactor) -> None:
        super().__init__(hand)
        self._redactor = redactor
        self._unsaid = ""

    async def step(
        self,
        name: str,
        call: Callable[[str], Awaitable[Done]],
        *,
        request: str = "",
        effect: Effect = "read",
        reserve: Amount | Claim = NOTHING,
        share: bool = False,
        shape: type[_Shape] = object,
    ) -> _Shape:
        async def cleaned(key: str) -> Done:
            done = await call(key)
            self.flush()
            body = self._redactor.clean(bytes(encode_value(done.value)))
            return structs.replace(done, value=Raw(body))

        return await super().step(
            name, cleaned, request=request, effect=effect, reserve=reserve, share=share, shape=shape
        )

    def prompt(self, model: str, messages: Sequence[Message], tools: tuple[str, ...] = ()) -> None:
        body = _ENCODER.encode(messages)
        cleaned = self._redactor.clean(body)
        if cleaned is not body:
            messages = msgspec.json.decode(cleaned, type=tuple[Message, ...])
        super().prompt(model, messages, tools)

    def say(self, text: str) -> None:
        """Words are passed on when they are whole: half a secret is not recognised."""
        said = self._unsaid + text
        found = _OPEN_END.search(said, max(0, len(said) - _LONGEST_WORD))
        cut = _open_key(said[: found.start()] if found else said)
        self._unsaid = said[cut:]
        if cut:
            super().say(self._redactor.text(said[:cut]))

    def flush(self) -> None:
        """Say the word that was kept back."""
        said = self._unsaid
        self._unsaid = ""
        if said:
            super().say(self._redactor.text(said))

    async def grow(self, tasks: Sequence[Task]) -> None:
        body = _ENCODER.encode(tasks)
        cleaned = self._redactor.clean(body)
        await super().grow(tasks if cleaned is body else _TASKS.decode(cleaned))

    def note(self, text: str, failure: Failure | None = None, code: NoteCode = "") -> None:
        cleaned = None if failure is None else clean_failure(failure, self._redactor)
        super().note(self._redactor.text(text), cleaned, code)


def _open_key(said: str) -> int:
    """Where a PEM block begins that has not come to its end; the end of the text where there is none."""
    start = said.rfind(_KEY_BEGINS)
    if start < 0 or len(said) - start > _LONGEST_KEY:
        return len(said)
    end = said.find(_KEY_ENDS, start)
    is_whole = end >= 0 and "-----" in said[end + len(_KEY_ENDS) :]
    return len(said) if is_whole else start


def clean_failure(failure: Failure, redactor: Redactor) -> Failure:
    """A failure without secrets, in its message and in the lines of its traceback; the very same one if it has none."""
    try:
        body = _ENCODER.encode(failure)
    except (TypeError, ValueError):
        return failure  # it cannot be written, and whoever tries will be told
    cleaned = redactor.clean(body)
    return failure if cleaned is body else _FAILURES.decode(cleaned)
