"""Routing by meaning, and by a model where meaning is not clear: it chooses among the few that come into question."""

from collections.abc import Sequence

from msgspec import structs

from chargehand.agents.crew import Hand, WorkFailed
from chargehand.agents.planner import Lead
from chargehand.agents.routers.by_model import by_model
from chargehand.agents.routers.decision import Decision, Learnt
from chargehand.agents.routers.meaning import by_meaning
from chargehand.core.owed import Brief
from chargehand.models.subject import WorkerCard
from chargehand.terms.budget import NOTHING, Amount

CLEAR = 0.75  # confidence from which nobody else is asked
_MARGIN = 0.2  # of shares, between the first two
_FEW = 4


async def by_both(
    lead: Lead, brief: Brief, hand: Hand, cards: Sequence[WorkerCard], learnt: Learnt | None = None
) -> tuple[Decision, Amount | None]:
    """The decision and what it cost. A model that fails leaves it at what meaning says."""
    found = await by_meaning(brief.goal, cards, lead.embedding, learnt)
    if clear(found):
        return structs.replace(found, router="hybrid"), NOTHING
    near = dict(found.scores[:_FEW])
    few = [card for card in cards if card.name in near] or list(cards)
    try:
        said, used = await by_model(lead, brief, hand, few)
    except WorkFailed as error:
        why = f"{found.why}; not clear, and {lead.model.card.handle} was of no help: {error}"
        return structs.replace(found, why=why, router="hybrid"), error.used
    asked = f"not clear by meaning ({found.why}), so {lead.model.card.handle} chose of {', '.join(map(_name, few))}"
    why = f"{said.why}; {asked}"
    scores = said.scores or found.scores
    return structs.replace(said, why=why, scores=scores, router="hybrid"), used


def clear(found: Decision) -> bool:
    """Whether it needs no second opinion."""
    if found.worker is None or found.confidence < CLEAR:
        return False
    shares = [share for _, share in found.scores[:2]]
    return len(shares) < 2 or shares[0] - shares[1] >= _MARGIN


def _name(card: WorkerCard) -> str:
    return card.name
