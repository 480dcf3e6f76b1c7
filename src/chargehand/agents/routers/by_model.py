"""Routing by a model: one call, whose reply names one of the workers it was told of, or nobody."""

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import cast

from msgspec import Raw

from chargehand.agents.crew import Hand
from chargehand.agents.inputs import today
from chargehand.agents.planner import Lead, Purpose, Question, ask, card_line
from chargehand.agents.routers.decision import Decision, nobody
from chargehand.agents.shape import choice_schema, encode_schema, find_json, sent_back, text_schema
from chargehand.core.owed import Brief
from chargehand.errors import Invalid
from chargehand.models.subject import Routing, WorkerCard
from chargehand.terms.budget import Amount

# of a card, that a model is shown
_PHRASES = 12
_EXAMPLES = 3
_LONGEST = 300


async def by_model(lead: Lead, brief: Brief, hand: Hand, cards: Sequence[WorkerCard]) -> tuple[Decision, Amount | None]:
    """What the model says, and what that cost. What is wrong with a reply goes back to it as findings."""
    names = tuple(card.name for card in cards)
    parts = [f"Request: {brief.goal}"]
    if brief.findings:
        parts.append("Your last reply was of no use:\n" + sent_back(brief.findings))
    question = Question(
        prompt="route",
        parts=[*parts, today(brief)],
        schema=schema(names),
        subject=Routing(brief.goal, tuple(cards)),
        slots={"workers": listing(cards)},
    )
    purpose = Purpose("asking a model who should do it", alone=not brief.tasks, code="no_route", place="route")
    return await ask(lead, question.request(lead), hand, purpose, partial(read, names=names))


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
        lines.append(card_line(card))
        able = [*card.phrases, *(one.name.replace("_", " ") for one in card.skills)][:_PHRASES]
        lines.extend([f"  - can: {'; '.join(able)}"] if able else [])
        examples = (*card.examples, *reversed(card.confirmed))[:_EXAMPLES]
        lines.extend(f"  - was asked: {example[:_LONGEST]}" for example in examples)
    return "\n".join(lines)
