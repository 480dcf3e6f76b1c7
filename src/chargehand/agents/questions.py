"""One question to the supervisor's model that is answered with a JSON object: how it is put, and how it is read.

What is asked, and what an answer means, is the business of the ways of leading.
"""

from collections.abc import Mapping, Sequence
from typing import cast

from msgspec import Raw, Struct, field

from chargehand.agents.crew import Hand, WorkFailed
from chargehand.agents.lead import Lead, ask, held_call, listing
from chargehand.agents.memory_text import Seen, instructions, material, shortened
from chargehand.agents.money import too_dear
from chargehand.agents.shape import find_json, useless
from chargehand.errors import Invalid
from chargehand.models.messages import Message, Request
from chargehand.models.subject import Subject
from chargehand.terms.budget import Amount
from chargehand.terms.failure import Failure
from chargehand.terms.plan import Finding

_TEXTS = 10  # sentences of one list
LONGEST_TASK = 4000  # characters of an instruction


class Question(Struct, frozen=True):
    """What is asked: the prompt, what fills its slots, what is said below it, and the shape of the answer."""

    prompt: str
    said: Sequence[str]
    schema: Raw
    subject: Subject
    slots: Mapping[str, str] = field(default_factory=dict[str, str])


class Answered(Struct, frozen=True):
    """The object that came back, and what it cost (None: nobody knows)."""

    table: Mapping[str, object]
    used: Amount | None


def worded(lead: Lead, asked: Question, nonce: str, blocks: Sequence[Seen] = ()) -> Request:
    """The call of the model that asks this, with what the team shares."""
    slots = {"workers": listing(lead.cards), "instructions": lead.instructions, **asked.slots}
    system = lead.prompts.text(asked.prompt, **slots) + instructions(blocks)
    shared = material(blocks, (), nonce, shortened(blocks, lead.model.card.window // 4)).strip()
    user = "\n\n".join(one for one in (shared, *asked.said) if one)
    messages = (Message("system", system), Message("user", user))
    return Request(messages, schema=asked.schema, settings=lead.settings, subject=asked.subject)


async def put(lead: Lead, request: Request, hand: Hand, *, aloud: bool = True, alone: bool = False) -> Answered:
    """The answer; WorkFailed, with a finding for whoever is asked next, where it is no JSON object.

    Who is `alone`, and cannot pay for it, need not ask again.
    """
    held = await held_call(lead, request, hand)
    if held is None:
        raise too_dear("a question this long", alone=alone)
    hand.prompt(lead.model.card.handle, request.messages)
    called = await ask(lead, held, hand, hand.say if aloud and hand.heard else None)
    try:
        return Answered(_object(called.reply.text), called.used)
    except Invalid as error:
        said = str(error)
        finding = Finding(code="not_an_answer", place="reply", message=f"{said[:1].upper()}{said[1:]}.")
        raise WorkFailed(Failure("logic", useless(lead.model.card.handle, error)), called.used, (finding,)) from error


def _object(text: str) -> Mapping[str, object]:
    found = find_json(text)
    if not isinstance(found, dict):
        raise Invalid(f"the reply must be a JSON object, not a {type(found).__name__}")
    return cast("dict[str, object]", found)


def who(said: object, names: Sequence[str]) -> str:
    """The worker a model means; nothing if it is none of them. Where there is only one, it need not be named."""
    plain = said.strip() if isinstance(said, str) else ""
    if plain in names:
        return plain
    if not plain:
        return names[0] if len(names) == 1 else ""
    alike = [name for name in names if name.casefold() == plain.casefold()]
    return alike[0] if len(alike) == 1 else ""


def yes(said: object, *, otherwise: bool = False) -> bool:
    """A truth as models write it: some put it in quotes."""
    if isinstance(said, str):
        return said.strip().casefold() in ("true", "yes")
    return said if isinstance(said, bool) else otherwise


def instruction(said: object) -> str:
    """A task as a model put it, no longer than a worker is told."""
    return said.strip()[:LONGEST_TASK] if isinstance(said, str) else ""


def words(said: object, longest: int = 300) -> str:
    """A text of a model, on one line and no longer than so many characters."""
    return " ".join(said.split())[:longest] if isinstance(said, str) else ""


def texts(said: object) -> tuple[str, ...]:
    """Sentences of a model, not too many."""
    listed = cast("list[object]", said) if isinstance(said, list) else []
    return tuple(text for one in listed[:_TEXTS] if (text := words(one)))
