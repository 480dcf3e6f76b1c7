"""A conversation of an OpenAI client as one goal: its last user message, and what was said before as material."""

from collections.abc import Sequence

from msgspec import Struct, structs

from chargehand.engine.events import Material
from chargehand.engine.plan import TaskId
from chargehand.engine.value import encode_value
from chargehand.server.openai.answer_format import refused

MAX_EARLIER = 32_000
"""Characters of earlier turns that are kept, the latest first."""
MAX_TURN = 8_000
"""Characters of one earlier turn."""
_WISHES = "The client also says this about the answer:"
_WORDLESS_GOAL = "Respond to what the user sent: a file, without any words."
_WORDLESS_TURN = "(a file, without any words)"


class ChatTurn(Struct, frozen=True, omit_defaults=True):
    """Something that was said, by `user`, `assistant` or `tool`."""

    role: str
    text: str
    files: int = 0
    """How many files and pictures came with it."""

    @property
    def is_blank(self) -> bool:
        """Whether nothing was said and no file was sent."""
        return not self.text.strip() and not self.files


class Conversation(Struct, frozen=True):
    """The last user message is the request; what was said before is material for it.

    Earlier turns may repeat what tools found somewhere, so they are given as data, never as orders. `wishes` are system
    messages: they come from the owner of the request, so they are part of it. The team's own
    instructions stay above both.
    """

    request: ChatTurn
    wishes: str = ""
    earlier: tuple[ChatTurn, ...] = ()

    @property
    def turns(self) -> tuple[ChatTurn, ...]:
        """What a next request goes on from; wishes are for one request only."""
        return bounded((*self.earlier, self.request))

    def goal(self, *, heeds_wishes: bool) -> str:
        """What a team is asked. A model that reads facts only would take wishes for something to be done."""
        words = self.request.text or _WORDLESS_GOAL
        return f"{words}\n\n{_WISHES}\n{self.wishes}" if self.wishes and heeds_wishes else words

    def material(self) -> tuple[Material, ...]:
        """The earlier turns, as what a run is given besides its goal."""
        turns = [
            (f"turn {number} ({turn.role})", turn.text or _WORDLESS_TURN) for number, turn in enumerate(self.earlier, 1)
        ]
        return tuple(Material(TaskId(name), encode_value(text)) for name, text in turns)


def read_conversation(turns: Sequence[ChatTurn], param: str, before: Sequence[ChatTurn] = ()) -> Conversation:
    """Return the request among these turns with what belongs to it; raise a problem where there is none.

    Args:
        turns: What the client sent. Its last user message is the request: no older one takes its place.
        param: The field they were sent in.
        before: Turns that they go on from. The request may be among them only if the client sent what a tool returned.
    """
    wishes: list[str] = []
    spoken = list(before)
    for turn in turns:
        if turn.role in ("system", "developer"):
            wishes += [turn.text.strip()] if turn.text.strip() else []
        else:
            spoken.append(turn)
    last = max((number for number, turn in enumerate(spoken) if turn.role == "user"), default=-1)
    goes_on = last >= len(before) or any(turn.role == "tool" for turn in turns)
    if last < 0 or not goes_on or spoken[last].is_blank:
        problem = "the last user message is blank" if last >= len(before) else "there is no request"
        raise refused(param, f"{problem}; send a user message with some text or a file", "invalid_value")
    request = spoken.pop(last)
    earlier = bounded([turn for turn in spoken if not turn.is_blank])
    return Conversation(structs.replace(request, text=request.text.strip()), "\n\n".join(wishes), earlier)


def bounded(turns: Sequence[ChatTurn]) -> tuple[ChatTurn, ...]:
    """The latest of these turns, as far as there is room for them."""
    recent: list[ChatTurn] = []
    room = MAX_EARLIER
    for turn in reversed(turns):
        text = turn.text if len(turn.text) <= MAX_TURN else f"{turn.text[: MAX_TURN - 2]} …"
        room -= len(text)
        if room < 0:
            break
        recent.append(structs.replace(turn, text=text))
    return tuple(reversed(recent))
