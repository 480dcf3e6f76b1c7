"""All that a worker has of memory at one step: what it is shown, its memory tools, and what came of calls of them."""

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

from chargehand.models.messages import Message, Reply, ToolCall, ToolSpec
from chargehand.models.offline.material import Outcome, outcomes
from chargehand.models.offline.remembering.family import APPENDING, FAMILY, remembered
from chargehand.models.offline.remembering.places import Labels, tidy
from chargehand.models.subject import Shown, Working

Call = tuple[str, str, dict[str, object]]
"""Its id, the tool, and the arguments."""


class Notebook(Struct, frozen=True):
    """`orders` is what the worker is told about itself, blocks that instruct included.

    `last` is what it said last, and `sent_back` what was wrong with it.
    """

    subject: Working
    tools: Mapping[str, ToolSpec]
    past: tuple[Outcome, ...]
    orders: str
    last: str = ""
    sent_back: str = ""

    @property
    def labels(self) -> Labels:
        return Labels(tuple(one.label for one in self.subject.blocks))

    @property
    def empty(self) -> bool:
        return not (self.tools or self.subject.blocks or self.subject.earlier)

    def block(self, label: str) -> Shown | None:
        return next((one for one in self.subject.blocks if one.label == label), None)

    def came_of(self, key: str) -> Outcome | None:
        """What came of the call with this id."""
        return next((one for one in self.past if one.call.id == key), None)

    def results(self, name: str) -> list[Outcome]:
        return [one for one in self.past if one.call.name == name]

    def has(self, *names: str) -> str:
        """The first of these tools that is there; empty where none is."""
        return next((one for one in names if one in self.tools), "")

    def appends(self) -> str:
        return self.has(*APPENDING)


def opened(subject: Working, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Notebook:
    past = tuple(one for one in outcomes(messages) if one.call.name in FAMILY)
    orders = messages[0].text if messages and messages[0].role == "system" else ""
    said = [one.text for one in messages if one.role == "assistant" and one.text]
    plain = msgspec.structs.replace(subject, instruction=tidy(subject.instruction))
    sent_back = messages[-1].text if said and messages[-1].role == "user" else ""
    return Notebook(plain, remembered(tools), past, orders, said[-1] if said else "", sent_back)


def calling(calls: Sequence[Call]) -> Reply:
    made = [ToolCall(key, name, msgspec.json.encode(arguments).decode()) for key, name, arguments in calls]
    return Reply(calls=tuple(made), finish="tools")


def giving_up(reason: str, *, final: bool = False) -> Reply:
    """`final`: no other wording would help."""
    return calling([("given_up", "give_up", {"reason": reason, **({"final": True} if final else {})})])


def gave_up(reply: Reply) -> str:
    """Why, where a reply gives up; else nothing."""
    return str(_given_up(reply).get("reason", ""))


def for_good(reply: Reply) -> bool:
    """Whether a reply gives up and says that no other wording would help."""
    return bool(_given_up(reply).get("final"))


def _given_up(reply: Reply) -> dict[str, object]:
    said = [one.arguments for one in reply.calls if one.name == "give_up"]
    return msgspec.json.decode(said[0], type=dict[str, object]) if said else {}
