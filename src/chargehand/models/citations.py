"""Citations by providers: what their replies say that a text rests on, in our own words and of a bounded size."""

from collections.abc import Iterable

from msgspec import structs

from chargehand.engine.facts import Citation
from chargehand.models.messages import Reply

MAX_CITATIONS = 50
"""Citations that are kept of one reply."""
_LONGEST = 1_000  # characters of a text that is cited
_LONGEST_NAME = 300


def with_citations(reply: Reply, citations: Iterable[Citation]) -> Reply:
    """Return the reply with what its provider cites, once each."""
    kept = tuple(dict.fromkeys(map(_bounded, citations)))[:MAX_CITATIONS]
    return structs.replace(reply, citations=kept) if kept else reply


def _bounded(citation: Citation) -> Citation:
    return structs.replace(
        citation,
        source=citation.source[:_LONGEST_NAME],
        text=citation.text[:_LONGEST],
        claim=citation.claim[:_LONGEST],
        url=citation.url[:_LONGEST],
    )
