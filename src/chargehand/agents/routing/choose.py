"""Which router decides: rules first, then the one that is named, or the best there is; and routing by a model."""

from collections.abc import Sequence
from functools import lru_cache, partial

from msgspec import Raw, structs

from chargehand.agents.inputs import today
from chargehand.agents.planner import Lead, Purpose, Question, ask, card_line
from chargehand.agents.routing.decision import ConfirmedExamples, Decision, choose, nobody
from chargehand.agents.routing.meaning import by_meaning
from chargehand.agents.routing.words import by_rules, by_tags, by_words
from chargehand.agents.shape import choice_schema, encode_schema, find_object, one_line, sent_back, text_schema
from chargehand.agents.strategies import Route, Router
from chargehand.engine.budget import NOTHING, Amount
from chargehand.engine.owed import Brief
from chargehand.errors import Invalid
from chargehand.memory.archives import Embedding
from chargehand.models.embeddings import MultilingualEmbedding, find_embedding, has_multilingual
from chargehand.models.request_facts import Routing, WorkerCard
from chargehand.models.resolve import Lookup
from chargehand.runtime.executor import StepContext, WorkFailed
from chargehand.text.words import is_english

# Confidence below which it is not clear who: each router has its own measure.
LEAST: dict[str, float] = {"rules": 0.0, "tags": 0.6, "words": 0.4, "meaning": 0.5, "model": 0.4, "hybrid": 0.4}
CLEAR = 0.75  # confidence from which nobody else is asked
_MARGIN = 0.2  # of shares, between the first two
_FEW = 4
# of a card, that a model is shown
_PHRASES = 12
_EXAMPLES = 3
_LONGEST = 300


async def decide(
    strategy: Route,
    lead: Lead,
    brief: Brief,
    context: StepContext,
    cards: Sequence[WorkerCard],
    examples: ConfirmedExamples | None = None,
) -> tuple[Decision, Amount | None]:
    """Who of these should do it, and what it cost to find out."""
    if strategy.rules:
        free = {card.name for card in cards} | {strategy.generalist}
        found = by_rules(brief.goal, {phrase: name for phrase, name in strategy.rules.items() if name in free})
        if found.worker is not None:
            return found, NOTHING
    if strategy.router == "rules":
        return nobody("rules", "no rule matches" if strategy.rules else "there are no rules"), NOTHING
    if not cards:
        return nobody(strategy.router, "there is nobody to choose from"), NOTHING
    router = fitting(lead) if strategy.router == "auto" else strategy.router
    if router == "tags":
        return by_tags(brief.goal, cards), NOTHING
    if router == "words":
        return await by_words(brief.goal, cards), NOTHING
    if router == "meaning":
        return await by_meaning(brief.goal, cards, lead.embedding, examples), NOTHING
    if router == "hybrid" and lead.embedding is not None:
        return await by_both(lead, brief, context, cards, examples)
    return await by_model(lead, brief, context, cards)


def fitting(lead: Lead) -> Router:
    """The best router with what is there. Small local models choose no better than meaning does, and take seconds."""
    if lead.embedding is None:
        return "model"
    return "meaning" if lead.model.card.in_process else "hybrid"


def find_route_embedding(strategy: Route, cards: Sequence[WorkerCard], lookup: Lookup) -> Embedding | None:
    """None for words. Raises Invalid where the team names an embedding that is not there."""
    if strategy.embed == "auto" and has_multilingual() and not is_english(_texts(cards)):
        return MultilingualEmbedding()
    return find_embedding(strategy.embed, lookup)


def _texts(cards: Sequence[WorkerCard]) -> list[str]:
    return [text for card in cards for text in (card.description, *card.phrases, *card.examples)]


# --- by meaning, and by a model where meaning is not clear


async def by_both(
    lead: Lead,
    brief: Brief,
    context: StepContext,
    cards: Sequence[WorkerCard],
    examples: ConfirmedExamples | None = None,
) -> tuple[Decision, Amount | None]:
    """The decision and what it cost. A model that fails leaves it at what meaning says."""
    found = await by_meaning(brief.goal, cards, lead.embedding, examples)
    if clear(found):
        return structs.replace(found, router="hybrid"), NOTHING
    near = dict(found.scores[:_FEW])
    few = [card for card in cards if card.name in near] or list(cards)
    try:
        said, used = await by_model(lead, brief, context, few)
    except WorkFailed as error:
        why = f"{found.why}; not clear, and {lead.model.card.handle} was of no help: {error}"
        return structs.replace(found, why=why, router="hybrid"), error.used
    names = ", ".join(card.name for card in few)
    why = f"{said.why}; not clear by meaning ({found.why}), so {lead.model.card.handle} chose of {names}"
    scores = said.scores or found.scores
    return structs.replace(said, why=why, scores=scores, router="hybrid"), used


def clear(found: Decision) -> bool:
    """Whether it needs no second opinion."""
    if found.worker is None or found.confidence < CLEAR:
        return False
    shares = [share for _, share in found.scores[:2]]
    return len(shares) < 2 or shares[0] - shares[1] >= _MARGIN


# --- by a model


async def by_model(
    lead: Lead, brief: Brief, context: StepContext, cards: Sequence[WorkerCard]
) -> tuple[Decision, Amount | None]:
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
    return await ask(lead, question.request(lead), context, purpose, partial(read, names=names))


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
    table = find_object(text)
    if "primary" not in table:
        raise Invalid("the reply lacks `primary`: a worker's name, or null")
    worker = _worker(table["primary"], names)
    second = _worker(table.get("secondary"), names)
    why = one_line(table.get("reason"), _LONGEST) or "the model gave no reason"
    if worker is None:
        return nobody("model", why)
    written = table.get("confidence")
    confidence = min(1.0, max(0.0, float(written))) if isinstance(written, int | float) else 0.5
    scores = [(worker, round(max(confidence, 0.01), 4))]
    if second is not None and second != worker:
        scores.append((second, round((1 - confidence) * 0.5, 4)))
    return choose("model", scores, confidence, why)


def _worker(written: object, names: Sequence[str]) -> str | None:
    if written is None or written in ("", "null", "none", "None"):
        return None
    worker = next((name for name in names if name == written), None)
    if worker is None:
        raise Invalid(f"there is no worker {str(written)[:80]!r}; there are {', '.join(names)}")
    return worker


def listing(cards: Sequence[WorkerCard]) -> str:
    """Workers as a model chooses among them."""
    lines: list[str] = []
    for card in cards:
        lines.append(card_line(card))
        able = [*card.phrases, *(skill.name.replace("_", " ") for skill in card.skills)][:_PHRASES]
        lines.extend([f"  - can: {'; '.join(able)}"] if able else [])
        examples = (*card.examples, *reversed(card.confirmed))[:_EXAMPLES]
        lines.extend(f"  - was asked: {example[:_LONGEST]}" for example in examples)
    return "\n".join(lines)
