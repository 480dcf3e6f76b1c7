"""Which embedding a route compares by: the one its team names, or what fits the language of its cards."""

from collections.abc import Sequence

from chargehand.agents.strategies import Route
from chargehand.memory.embedding import Embedding
from chargehand.models import embedding_multilingual as multilingual
from chargehand.models.embedding_find import find_embedding
from chargehand.models.find import Lookup
from chargehand.models.subject import WorkerCard
from chargehand.text.language import is_english


def find_route_embedding(way: Route, cards: Sequence[WorkerCard], lookup: Lookup) -> Embedding | None:
    """None for words. Raises Invalid where the team names an embedding that is not there."""
    if way.embed == "auto" and multilingual.is_here() and not is_english(_texts(cards)):
        return multilingual.MultilingualEmbedding()
    return find_embedding(way.embed, lookup)


def _texts(cards: Sequence[WorkerCard]) -> list[str]:
    return [text for card in cards for text in (card.description, *card.phrases, *card.examples)]
