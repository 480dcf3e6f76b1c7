"""Which router decides: rules first, then the one that is named, or the best there is."""

from collections.abc import Sequence

from chargehand.agents.crew import Hand
from chargehand.agents.planner import Lead
from chargehand.agents.routers.by_model import by_model
from chargehand.agents.routers.decision import Decision, Learnt, nobody
from chargehand.agents.routers.hybrid import by_both
from chargehand.agents.routers.meaning import by_meaning
from chargehand.agents.routers.rules import by_rules
from chargehand.agents.routers.tags import by_tags
from chargehand.agents.routers.words import by_words
from chargehand.agents.strategies import Route, Router
from chargehand.core.owed import Brief
from chargehand.models.subject import WorkerCard
from chargehand.terms.budget import NOTHING, Amount

# Confidence below which it is not clear who: each router has its own measure.
LEAST: dict[str, float] = {"rules": 0.0, "tags": 0.6, "words": 0.4, "meaning": 0.5, "model": 0.4, "hybrid": 0.4}


async def decide(
    way: Route, lead: Lead, brief: Brief, hand: Hand, cards: Sequence[WorkerCard], learnt: Learnt | None = None
) -> tuple[Decision, Amount | None]:
    """Who of these should do it, and what it cost to find out."""
    if way.rules:
        free = {card.name for card in cards} | {way.generalist}
        found = by_rules(brief.goal, {phrase: name for phrase, name in way.rules.items() if name in free})
        if found.worker is not None:
            return found, NOTHING
    if way.router == "rules":
        return nobody("rules", "no rule matches" if way.rules else "there are no rules"), NOTHING
    if not cards:
        return nobody(way.router, "there is nobody to choose from"), NOTHING
    router = fitting(lead) if way.router == "auto" else way.router
    if router == "tags":
        return by_tags(brief.goal, cards), NOTHING
    if router == "words":
        return await by_words(brief.goal, cards), NOTHING
    if router == "meaning":
        return await by_meaning(brief.goal, cards, lead.embedding, learnt), NOTHING
    if router == "hybrid" and lead.embedding is not None:
        return await by_both(lead, brief, hand, cards, learnt)
    return await by_model(lead, brief, hand, cards)


def fitting(lead: Lead) -> Router:
    """The best router with what is there. Small local models choose no better than meaning does, and take seconds."""
    if lead.embedding is None:
        return "model"
    return "meaning" if lead.model.card.in_process else "hybrid"
