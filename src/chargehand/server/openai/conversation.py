"""A conversation as one goal: the last thing the user said is the request, what was said before is material for it.

Earlier turns may repeat what tools found somewhere, so they are given as data, never as orders. System messages come
from whoever makes the call and owns the request: they are part of it. The team's own instructions stay above both.
"""

from collections.abc import Sequence

from msgspec import Struct, structs

from chargehand.agents.nested import seen_before
from chargehand.models.envelope import new_nonce, wrap
from chargehand.server.openai.problem import refused

MOST = 32_000
"""Characters of earlier turns that are kept, the latest first."""
LONGEST = 8_000
"""Characters of one earlier turn."""
_WISHES = "Whoever asks also says this about the answer:"
_ORDERS = ("system", "developer")


class Turn(Struct, frozen=True):
    """Something that was said, by `user`, `assistant` or `tool`."""

    role: str
    text: str


class Conversation(Struct, frozen=True):
    request: str
    wishes: str = ""
    earlier: tuple[Turn, ...] = ()

    @property
    def turns(self) -> tuple[Turn, ...]:
        """What a next request goes on from; wishes are for one request only."""
        return bounded((*self.earlier, Turn("user", self.request)))


def conversation(turns: Sequence[Turn], param: str) -> Conversation:
    """The request among these turns and what belongs to it; a problem where there is none."""
    spoken = [one for one in turns if one.text.strip()]
    wishes = "\n\n".join(one.text.strip() for one in spoken if one.role in _ORDERS)
    said = [one for one in spoken if one.role not in _ORDERS]
    last = max((at for at, one in enumerate(said) if one.role == "user"), default=-1)
    if last < 0:
        raise refused(param, "nobody asks for anything; send a message of the user with some text", "invalid_value")
    return Conversation(said[last].text.strip(), wishes, bounded((*said[:last], *said[last + 1 :])))


def bounded(turns: Sequence[Turn]) -> tuple[Turn, ...]:
    """The latest of these turns, as far as there is room for them."""
    kept: list[Turn] = []
    room = MOST
    for one in reversed(turns):
        text = one.text if len(one.text) <= LONGEST else f"{one.text[: LONGEST - 2]} …"
        room -= len(text)
        if room < 0:
            break
        kept.append(structs.replace(one, text=text))
    return tuple(reversed(kept))


def goal(found: Conversation, *, heeds: bool) -> str:
    """What a team is asked. A model that reads facts only would take them for something to be done."""
    asked = f"{found.request}\n\n{_WISHES}\n{found.wishes}" if found.wishes and heeds else found.request
    if not found.earlier:
        return asked
    nonce = new_nonce()  # nobody who wrote a turn could know it
    told = (wrap(nonce, f"turn {at} ({one.role})", one.text) for at, one in enumerate(found.earlier, 1))
    return seen_before(asked, *told)
