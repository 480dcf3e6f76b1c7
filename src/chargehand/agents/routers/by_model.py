"""Routing by a model: one call, whose reply names one of the workers it was told of, or nobody."""

from collections.abc import Sequence
from functools import lru_cache
from typing import cast

from msgspec import Raw

from chargehand.agents.crew import Hand, WorkFailed
from chargehand.agents.inputs import today
from chargehand.agents.lead import Lead, ask, held_call
from chargehand.agents.money import too_dear
from chargehand.agents.routers.decision import Decision, nobody
from chargehand.agents.shape import choice_schema, encode_schema, find_json, sent_back, text_schema, useless
from chargehand.core.owed import Brief
from chargehand.errors import Invalid
from chargehand.models.messages import Message, Request
from chargehand.models.subject import Routing, WorkerCard
from chargehand.terms.budget import Amount
from chargehand.terms.failure import Failure
from chargehand.terms.plan import Finding

# of a card, that a model is shown
_PHRASES = 12
_EXAMPLES = 3
_LONGEST = 300


async def by_model(lead: Lead, brief: Brief, hand: Hand, cards: Sequence[WorkerCard]) -> tuple[Decision, Amount | None]:
    """What the model says, and what that cost. What is wrong with a reply goes back to it as findings."""
    names = tuple(card.name for card in cards)
    system = lead.prompts.text("route", workers=listing(cards), instructions=lead.instructions)
    user = f"Request: {brief.goal}"
    if brief.findings:
        user += "\n\nYour last reply was of no use:\n" + sent_back(brief.findings)
    user += f"\n\n{today(brief)}"
    request = Request(
        (Message("system", system), Message("user", user)),
        schema=schema(names),
        settings=lead.settings,
        subject=Routing(brief.goal, tuple(cards)),
    )
    held = await held_call(lead, request, hand)
    if held is None:
        raise too_dear("asking a model who should do it", alone=not brief.tasks)
    hand.prompt(lead.model.card.handle, request.messages)
    called = await ask(lead, held, hand)
    try:
        return read(called.reply.text, names), called.used
    except Invalid as error:
        finding = Finding(code="no_route", place="route", message=f"{str(error)[:1].upper()}{str(error)[1:]}.")
        raise WorkFailed(Failure("logic", useless(lead.model.card.handle, error)), called.used, (finding,)) from error


@lru_cache(maxsize=64)
def schema(names: tuple[str, ...]) -> Raw:
    worker = choice_schema(names, or_null=True)
    return encode_schema(
        {
            "reason": text_schema(_LONGEST),
            "primary": worker,
            "secondary": worker,
            "confidence": {"type": "number", "minimum": 0, "maximum": 1},
        }
    )


def read(text: str, names: Sequence[str]) -> Decision:
    """The decision in a reply; Invalid, in words for whoever wrote it, where there is none."""
    found = find_json(text)
    if not isinstance(found, dict):
        raise Invalid("the reply must be a JSON object with `primary`, `secondary`, `reason` and `confidence`")
    table = cast("dict[str, object]", found)
    if "primary" not in table:
        raise Invalid("the reply lacks `primary`: a worker's name, or null")
    worker = _worker(table["primary"], names)
    second = _worker(table.get("secondary"), names)
    why = " ".join(str(table.get("reason") or "").split())[:_LONGEST] or "the model gave no reason"
    if worker is None:
        return nobody("model", why)
    said = table.get("confidence")
    sure = min(1.0, max(0.0, float(said))) if isinstance(said, int | float) else 0.5
    second = second if second != worker else None
    rest = ((second, round((1 - sure) * 0.5, 4)),) if second is not None else ()
    return Decision(
        worker=worker,
        second=second,
        confidence=sure,
        scores=((worker, round(max(sure, 0.01), 4)), *rest),
        why=why,
        router="model",
    )


def _worker(said: object, names: Sequence[str]) -> str | None:
    if said is None or said in ("", "null", "none", "None"):
        return None
    if said not in names:
        raise Invalid(f"there is no worker {str(said)[:80]!r}; there are {', '.join(names)}")
    return cast("str", said)


def listing(cards: Sequence[WorkerCard]) -> str:
    """Workers as a model chooses among them."""
    lines: list[str] = []
    for card in cards:
        tags = f" (tags: {', '.join(card.tags)})" if card.tags else ""
        lines.append(f"- {card.name}: {card.description or 'no description'}{tags}")
        able = [*card.phrases, *(one.name.replace("_", " ") for one in card.skills)][:_PHRASES]
        lines.extend([f"  - can: {'; '.join(able)}"] if able else [])
        examples = (*card.examples, *reversed(card.confirmed))[:_EXAMPLES]
        lines.extend(f"  - was asked: {example[:_LONGEST]}" for example in examples)
    return "\n".join(lines)
