"""Which of many texts are like a request: by vectors where there are some, by words where there are none.

What the texts are, and what follows from it, is not known here.
"""

import math
from collections import OrderedDict
from collections.abc import Sequence
from functools import lru_cache
from heapq import nlargest
from typing import TYPE_CHECKING

from chargehand.memory.embedding import Embedding
from chargehand.text.words import stems

if TYPE_CHECKING:
    from chargehand.agents.routers.regression import Floats

LEAST = 0.3  # likeness below which two requests have nothing to do with each other
_KEPT = 32  # requests whose vector is kept


class Once:
    """An embedding that is not asked twice for the same request: who decides and who remembers both need its vector."""

    def __init__(self, embedding: Embedding) -> None:
        self._embedding = embedding
        self._known: OrderedDict[str, bytes] = OrderedDict()

    @property
    def handle(self) -> str:
        return self._embedding.handle

    @property
    def width(self) -> int:
        return self._embedding.width

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        if len(texts) != 1:
            return await self._embedding.embed(texts)
        vector = self._known.get(texts[0])
        if vector is None:
            (vector,) = await self._embedding.embed(texts)
            self._known[texts[0]] = vector
            while len(self._known) > _KEPT:
                self._known.popitem(last=False)
        return [vector]

    async def close(self) -> None:
        await self._embedding.close()


class Vectors:
    """Texts by their vectors, of length one."""

    def __init__(self, vectors: Sequence[bytes], width: int) -> None:
        import numpy  # noqa: PLC0415 - in an extra

        self._rows: Floats = numpy.frombuffer(b"".join(vectors), "<f4").reshape(len(vectors), width)

    def near(self, vector: bytes, most: int) -> list[tuple[int, float]]:
        """The texts that are most like it: their places and how like they are."""
        import numpy  # noqa: PLC0415 - in an extra

        if not len(self._rows):
            return []
        like = numpy.einsum("pd,d->p", self._rows, numpy.frombuffer(vector, "<f4"))
        count = min(most, len(like))
        places = numpy.argpartition(-like, count - 1)[:count]
        found = [(int(at), float(like[at])) for at in places]
        return sorted((one for one in found if one[1] > LEAST), key=lambda one: -one[1])


@lru_cache(maxsize=8192)  # as many as there are lessons: each new one makes the index anew, and stems are slow to find
def _held(text: str) -> frozenset[str]:
    return frozenset(stems(text))


class Words:
    """Texts by the words that carry meaning in them."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._sizes: list[int] = []
        self._places: dict[str, list[int]] = {}
        for at, text in enumerate(texts):
            held = _held(text)
            self._sizes.append(len(held))
            for term in held:
                self._places.setdefault(term, []).append(at)

    def near(self, text: str, most: int) -> list[tuple[int, float]]:
        """As above, by the share of words that both have."""
        asked = _held(text)
        common: dict[int, int] = {}
        for term in asked:
            for at in self._places.get(term, ()):
                common[at] = common.get(at, 0) + 1
        like = ((at, count / math.sqrt(len(asked) * self._sizes[at])) for at, count in common.items())
        return nlargest(most, (one for one in like if one[1] > LEAST), key=lambda one: one[1])
