"""Calls of tools in an attempt, as they are told: which step made which, and which were never made. Pure."""

from collections.abc import Callable, Sequence

import msgspec
from msgspec import Struct, field

from chargehand.models.messages import ToolCall
from chargehand.server.letta.message_shapes import CallTold
from chargehand.terms.failure import Question
from chargehand.terms.plan import digest
from chargehand.terms.value import decode_value, encode_value

_OURS = frozenset(("give_up", "read_more"))  # between an agent and us: a client never gave it these


class Return(Struct, frozen=True):
    """What a call came to, as its client reads it."""

    text: str
    good: bool


class Called(Struct):
    """One call. `number` is its place in the reply, from 1. `told`: its client has heard of it; `step` made it; `done`:
    so has its result.
    """  # noqa: D205 - one sentence

    call: CallTold
    number: int
    told: bool = False
    step: int = 0
    done: bool = False


class Calls(Struct):
    """The calls of one reply of a model."""

    calls: list[Called] = field(default_factory=list[Called])

    def take(self, calls: Sequence[ToolCall], call_id: Callable[[int], str]) -> None:
        """Take in the calls of a new reply. Clients know them by ids of ours: those of models need not be unique."""
        self.calls = [
            Called(CallTold(name=call.name, arguments=call.arguments, tool_call_id=call_id(number)), number)
            for number, call in enumerate(calls, 1)
            if call.name not in _OURS
        ]

    def untold(self) -> list[Called]:
        """Those that are to be told now."""
        found = [one for one in self.calls if not one.told]
        for one in found:
            one.told = True
        return found

    def pending(self, question: Question | None) -> list[Called]:
        """The calls that a person is asked about; they are told as a question."""
        if question is None:
            return []
        places = {question.call, *(one.call for one in question.also)}
        pending = [call for call in self.calls if call.number in places and not call.done]
        for call in pending:
            call.told = True
        return pending

    def begun(self, name: str, request: str, step: int) -> None:
        """A step was begun: find the call that it makes. Of several alike it is the first that has no result yet."""
        alike = [one for one in self.calls if one.call.name == name and not one.done]
        meant = [one for one in alike if digest(name, one.call.arguments) == request] or alike
        free = [one for one in meant if not one.step] or meant
        if free:
            free[0].step = step

    def ended(self, step: int) -> Called | None:
        for one in self.calls:
            if one.step == step and not one.done:
                one.done = True
                return one
        return None

    def left(self) -> list[Called]:
        """Those that came to nothing; nothing more will come of them."""
        found = [one for one in self.calls if not one.done]
        for one in found:
            one.done = True
        return found


def returned(result: msgspec.Raw) -> Return:
    """What a tool's step was written down as, in plain text."""
    value = decode_value(result)
    if not isinstance(value, dict):
        return Return(plain(value), good=True)
    error = value.get("error")  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - any JSON
    inner = value.get("value")  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - any JSON
    if isinstance(error, str) and error:
        return Return(error, good=False)
    return Return(plain(inner), good=True)  # pyright: ignore[reportUnknownArgumentType] - any JSON


def plain(value: object) -> str:
    if isinstance(value, str):
        return value
    return "None" if value is None else bytes(encode_value(value)).decode()


def words(result: msgspec.Raw) -> str:
    """The result of an attempt as its reader gets it."""
    value = decode_value(result)
    if isinstance(value, dict):
        text = value.get("text")  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - any JSON
        if isinstance(text, str):
            return text
    return plain(value)  # pyright: ignore[reportUnknownArgumentType] - any JSON
