"""A conversation of an OpenAI client as one goal: its last user message, and what was said before as material."""

from collections.abc import Sequence

from msgspec import Struct, structs

from chargehand.engine.events import Material
from chargehand.engine.plan import TaskId
from chargehand.engine.value import encode_value
from chargehand.server.openai.answer_format import refused
from chargehand.text.left_out import cut_text, left_out

MAX_EARLIER = 32_000
"""Characters of earlier turns that are kept, the latest first."""
MAX_TURN = 8_000
"""Characters of one earlier turn."""
_WISHES = "The client also says this about the answer:"
_RULES = ("system", "developer")
_LONGEST_NAME = 64
_WORDLESS_GOAL = "Respond to what the user sent: a file, without any words."
_WORDLESS_TURN = "(a file, without any words)"


class ChatTurn(Struct, frozen=True, omit_defaults=True):
    """Something that was said, by `user`, `assistant`, `tool`, or as a rule by `system`."""

    role: str
    text: str
    files: int = 0
    """How many files and pictures came with it."""
    number: int = 0
    """Its place in the whole conversation, from 1; 0: a rule, or not known yet."""
    name: str = ""
    """Who said it, where the client names the speaker."""

    @property
    def is_blank(self) -> bool:
        """Whether nothing was said and no file was sent."""
        return not self.text.strip() and not self.files

    @property
    def is_rule(self) -> bool:
        """Whether it says how to answer, and is part of each request."""
        return self.role in _RULES

    @property
    def speaker(self) -> str:
        """Its role, and its name on one line."""
        return f"{self.role} {shown_name(self.name)}".strip()


def shown_name(name: str) -> str:
    """Return the name of a speaker as it is shown: on one line, and not all of a long one."""
    return " ".join(name.split())[:_LONGEST_NAME]


class Conversation(Struct, frozen=True):
    """The last user message is the request; what was said before is material for it.

    Earlier turns may repeat what tools found somewhere, so they are given as data, never as orders. Rules are system
    messages: they come from the owner of the request, so they are part of it. The team's own instructions stay above
    both.
    """

    request: ChatTurn
    rules: tuple[ChatTurn, ...] = ()
    """They hold for the requests that go on from this one, too."""
    instructions: str = ""
    """They hold for this request only."""
    earlier: tuple[ChatTurn, ...] = ()
    file_turns: tuple[int, ...] = ()
    """Of each file that came with the last messages, in order, the number of its turn; 0: it came with a rule."""

    @property
    def turns(self) -> tuple[ChatTurn, ...]:
        """What a next request goes on from."""
        said = sorted((*self.earlier, self.request), key=lambda turn: turn.number)
        return (*self.rules, *bounded(said))

    @property
    def left_out(self) -> int:
        """How many of the earliest turns are not among those that are kept."""
        return min(turn.number for turn in (*self.earlier, self.request)) - 1

    def goal(self, *, heeds_wishes: bool) -> str:
        """What a team is asked. A model that reads facts only would take wishes for something to be done."""
        words = self.request.text or _WORDLESS_GOAL
        if not heeds_wishes:
            return words
        name = shown_name(self.request.name)
        wishes = "\n\n".join(filter(None, (self.instructions, *(rule.text for rule in self.rules))))
        parts = (words, f"(This message is from {name}.)" if name else "", wishes and f"{_WISHES}\n{wishes}")
        return "\n\n".join(filter(None, parts))

    def material(self) -> tuple[Material, ...]:
        """The earlier turns, as what a run is given besides its goal."""
        turns = [(f"turn {turn.number} ({turn.speaker})", turn.text or _WORDLESS_TURN) for turn in self.earlier]
        if self.left_out:
            words = left_out(self.left_out, "earlier turn", "only the client has them")
            turns.insert(0, ("the beginning of the conversation", words))
        return tuple(Material(TaskId(name), encode_value(text)) for name, text in turns)


def read_conversation(
    turns: Sequence[ChatTurn], param: str, before: Sequence[ChatTurn] = (), instructions: str = ""
) -> Conversation:
    """Return the request among these turns with what belongs to it; raise a problem where there is none.

    Args:
        turns: What the client sent. Its last user message is the request: no older one takes its place.
        param: The field they were sent in.
        before: Turns that they go on from. The request may be among them only if the client sent what a tool returned.
        instructions: What the client says about this answer only.
    """
    spoken = [turn for turn in before if not turn.is_rule]
    said_before = len(spoken)
    spoken += [turn for turn in turns if not turn.is_rule]
    last = max((at for at, turn in enumerate(spoken) if turn.role == "user"), default=-1)
    goes_on = last >= said_before or any(turn.role == "tool" for turn in turns)
    if last < 0 or not goes_on or spoken[last].is_blank:
        problem = "the last user message is blank" if last >= said_before else "there is no request"
        raise refused(param, f"{problem}; send a user message with some text or a file", "invalid_value")
    request = spoken[last]
    numbered = _number([turn for turn in spoken if not turn.is_blank])
    place = sum(not turn.is_blank for turn in spoken[:last])
    new = iter(numbered[sum(not turn.is_blank for turn in spoken[:said_before]) :])
    file_turns: list[int] = []
    for turn in turns:
        number = 0 if turn.is_rule or turn.is_blank else next(new).number
        file_turns += [number] * turn.files
    rules = {turn.text.strip(): turn for turn in (*before, *turns) if turn.is_rule and turn.text.strip()}
    return Conversation(
        request=structs.replace(numbered[place], text=request.text.strip()),
        rules=tuple([ChatTurn("system", text) for text in rules]),
        instructions=instructions.strip(),
        earlier=bounded([*numbered[:place], *numbered[place + 1 :]]),
        file_turns=tuple(file_turns),
    )


def _number(turns: Sequence[ChatTurn]) -> list[ChatTurn]:
    """Return the turns with their numbers: those that have none follow on those that do."""
    numbered: list[ChatTurn] = []
    for turn in turns:
        number = turn.number or (numbered[-1].number + 1 if numbered else 1)
        numbered.append(structs.replace(turn, number=number))
    return numbered


def bounded(turns: Sequence[ChatTurn]) -> tuple[ChatTurn, ...]:
    """The latest of these turns, as far as there is room for them."""
    recent: list[ChatTurn] = []
    room = MAX_EARLIER
    for turn in reversed(turns):
        text = cut_text(turn.text, MAX_TURN, "only the client has them")
        room -= len(text)
        if room < 0:
            break
        recent.append(structs.replace(turn, text=text))
    return tuple(reversed(recent))
