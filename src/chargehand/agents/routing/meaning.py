"""Routing by meaning: the request as a vector, near to what workers say and to what was theirs.

How vectors are made is the embedding's business, and how they are compared `space`'s.
"""

import logging
from collections import OrderedDict
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from chargehand.agents.routing.decision import MOST_SCORES, ConfirmedExamples, Decision, choose, nobody
from chargehand.agents.routing.words import Lexicon, Said, by_words, said
from chargehand.engine.plan import digest
from chargehand.errors import StoreUnavailable
from chargehand.memory.archives import Embedding
from chargehand.models.providers import install_command
from chargehand.models.request_facts import WorkerCard
from chargehand.tools.threads import THREADS
from chargehand.tools.tool import ToolFailed

if TYPE_CHECKING:
    from chargehand.agents.routing.space import Reading, Space

logger = logging.getLogger(__name__)

_LONGEST = 600.0  # seconds for learning; the planner's own clock ends it long before
_MOST = 8  # teams whose spaces are kept
_KEPT: "OrderedDict[str, Space]" = OrderedDict()
_MAX_VECTORS = 5000
_VECTORS: OrderedDict[tuple[str, str], bytes] = OrderedDict()
"""Vectors of texts by the handle of their embedding."""


class Meaning(Struct, frozen=True):
    """A team's space, and what makes vectors for it."""

    space: "Space"
    embedding: Embedding
    lexicon: Lexicon | None = None  # where descriptions are all there is, words tell more than nothing

    async def decide(self, text: str) -> Decision:
        (vector,) = await self.embedding.embed([text])
        found: Reading = await THREADS.call(
            lambda: self.space.read(vector, MOST_SCORES, self.by_words(text)), {}, _LONGEST
        )
        return decided(found)

    def by_words(self, text: str) -> list[float]:
        """What the words of a request add to the logits of the workers."""
        return [] if self.lexicon is None else self.lexicon.log_shares(text)


def decided(found: "Reading") -> Decision:
    """A reading in words."""
    (worker, share), *rest = found.shares
    second = rest[0][0] if rest else None
    if found.scope < found.threshold:
        why = f"nothing that anybody says or was asked is like it (nearest: {worker}, {_measure(found)})"
        return nobody("meaning", why, found.shares)
    beside = f", {second} {rest[0][1]:.0%}" if second else ""
    why = f"its meaning is nearest to {worker} ({share:.0%}{beside}; {_measure(found)})"
    return choose("meaning", found.shares, found.confidence, why)


def _measure(found: "Reading") -> str:
    return f"likeness {found.scope:.2f}, needed {found.threshold:.2f}"


async def meaning(
    cards: Sequence[WorkerCard], embedding: Embedding, examples: ConfirmedExamples | None = None
) -> Meaning:
    """A team is learnt once: the same texts and the same embedding have the same space, in any process.

    `examples` is where another process finds what this one learnt.
    """
    known = said(cards)
    parts = [part for one in known for part in (one.worker, *one.phrases, "", *one.clauses, "", *one.examples, "")]
    key = digest(embedding.handle, str(embedding.width), *parts)
    if (space := _KEPT.get(key)) is None:
        space = await _fitted_space(key, known, embedding, examples)
        _KEPT[key] = space
        while len(_KEPT) > _MOST:
            _KEPT.popitem(last=False)
    lexicon = Lexicon(cards) if all(one.described for one in known) else None
    return Meaning(space, embedding, lexicon)


async def _fitted_space(
    key: str, known: Sequence[Said], embedding: Embedding, examples: ConfirmedExamples | None
) -> "Space":
    """The space that was kept, or one that is fitted and kept now; only of embeddings that know their width."""
    from chargehand.agents.routing import space as spaces  # noqa: PLC0415 - numpy is in an extra

    key = digest(spaces.FORMAT, key)
    names = tuple(one.worker for one in known)
    body = await examples.fitted(key) if examples is not None and embedding.width else None
    if body is not None:
        try:
            return await THREADS.call(lambda: spaces.unpack_space(body, names, embedding.width), {}, _LONGEST)
        except ToolFailed as error:
            logger.info("the router is fitted anew: %s", error)
    vectors = await _embed(spaces.texts_of(known), embedding)
    space: Space = await THREADS.call(lambda: spaces.build(known, vectors), {}, _LONGEST)
    if examples is not None and embedding.width:
        packed: bytes = await THREADS.call(lambda: spaces.pack_space(space), {}, _LONGEST)
        if len(packed) <= spaces.MOST_BYTES:
            await examples.keep_fitted(key, packed)
    return space


async def _embed(texts: Sequence[str], embedding: Embedding) -> list[bytes]:
    """The vectors of texts; those of a team that gets one more example are known from before."""
    missing = list(dict.fromkeys(text for text in texts if (embedding.handle, text) not in _VECTORS))
    if len(missing) > _MAX_VECTORS:
        return await embedding.embed(texts)
    vectors = {text: _VECTORS[embedding.handle, text] for text in texts if (embedding.handle, text) in _VECTORS}
    if missing:
        vectors.update(zip(missing, await embedding.embed(missing), strict=True))
    for text, vector in vectors.items():
        _VECTORS[embedding.handle, text] = vector
    while len(_VECTORS) > _MAX_VECTORS:
        _VECTORS.popitem(last=False)
    return [vectors[text] for text in texts]


async def by_meaning(
    text: str, cards: Sequence[WorkerCard], embedding: Embedding | None, examples: ConfirmedExamples | None = None
) -> Decision:
    """By words, and saying so, where there is nothing that makes vectors."""
    if embedding is None:
        return await _by_words(text, cards, "there is no embedding")
    if find_spec("numpy") is None:
        return await _by_words(text, cards, f"numpy is not installed ({install_command('local')})")
    try:
        return await (await meaning(cards, embedding, examples)).decide(text)
    except (StoreUnavailable, ToolFailed) as error:  # nobody there; or vectors that are none
        return await _by_words(text, cards, str(error))


async def _by_words(text: str, cards: Sequence[WorkerCard], reason: str) -> Decision:
    found = await by_words(text, cards)
    return structs.replace(found, why=f"{found.why} (by words: {reason})")
