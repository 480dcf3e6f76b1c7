"""The lessons of one team as a router reads them: brought up to date, compared with a request, and weighed.

What they come to is `lessons`', and where they are kept the store's. A notebook never stands in a route's way: what
cannot be read is not learnt from.
"""

import logging
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from importlib.util import find_spec
from typing import cast

from msgspec import Struct, field, structs

from chargehand.agents.routers.decision import Decision
from chargehand.agents.routers.lessons import NEAREST, Near, firm, learnt, telling
from chargehand.agents.routers.likeness import Vectors, Words
from chargehand.errors import StoreError
from chargehand.memory.embedding import Embedding
from chargehand.stores.lessons import MOST, Lesson, Lessons, News
from chargehand.tools.threads import THREADS

logger = logging.getLogger(__name__)

_DRESSED = 64  # lessons that are embedded at a time: the rest waits for the next request
_LATE = 50  # how runs ended is taken in once there is a fiftieth of it more; what somebody said, at once
_SEEN = 256  # requests whose vectors are kept: most become lessons soon
_MANY = 200  # lessons from which they are not indexed on the event loop
_LONGEST = 60.0  # seconds
_SHELVES = 16  # teams whose lessons stay in memory
_KEPT: "OrderedDict[tuple[str, str], _Shelf]" = OrderedDict()


class _Pages(Struct, frozen=True):
    """All lessons as of one moment, by number, and those of them that count."""

    generation: str = ""
    latest: int = 0
    embedding: str = ""
    lessons: Mapping[int, Lesson] = {}
    counts: tuple[Lesson, ...] = ()


class _Index(Struct, frozen=True):
    """Lessons in two sorts, judged and not, each with what tells which are like a request."""

    pages: _Pages
    width: int | None
    sorts: tuple[tuple[tuple[Lesson, ...], Vectors | Words], ...]


class _Shelf(Struct):
    """What is known of a team's lessons. Several event loops may read it: what it holds is replaced, never changed."""

    pages: _Pages = _Pages()
    index: _Index | None = None
    seen: OrderedDict[tuple[str, str], bytes] = field(default_factory=OrderedDict[tuple[str, str], bytes])

    def see(self, embedding: str, text: str, vector: bytes) -> None:
        self.seen[embedding, text] = vector
        while len(self.seen) > _SEEN:
            self.seen.popitem(last=False)


class Notebook:
    """One team's, as one door shows it. What was read stays on the shelf for the next."""

    def __init__(self, store: Lessons, shelf: _Shelf) -> None:
        self._store = store
        self._shelf = shelf

    async def lessons(self) -> tuple[Lesson, ...]:
        """Every lesson, oldest first."""
        pages = await self._fresh(self._shelf.pages.embedding)
        return tuple(pages.lessons.values())

    async def consult(
        self, found: Decision, text: str, names: Collection[str], embedding: Embedding | None
    ) -> Decision:
        """The decision with what was learnt; `names` are those who come into question."""
        if found.router == "rules":
            return found
        try:
            near = await self.near(text, embedding)
        except StoreError as error:
            logger.warning("nothing is learnt from earlier routes: %s", error)
            return found
        return learnt(found, near, names)

    async def fitted(self, key: str) -> bytes | None:
        """As `decision.Learnt` says; None where it cannot be read."""
        try:
            return await self._store.fitted(key)
        except StoreError as error:
            logger.info("the router is fitted anew: %s", error)
            return None

    async def keep_fitted(self, key: str, body: bytes) -> None:
        try:
            await self._store.keep_fitted(key, body)
        except StoreError as error:
            logger.warning("the fitted router is not kept: %s", error)

    async def near(self, text: str, embedding: Embedding | None) -> list[Near]:
        """What lessons there are about requests like this one."""
        meant = embedding if embedding is not None and find_spec("numpy") is not None else None
        pages = await self._fresh("" if meant is None else meant.handle)
        if not pages.counts:
            return []
        if meant is not None:
            try:
                return await self._by_meaning(pages, text, meant)
            except StoreError as error:  # what makes vectors is not there
                logger.info("lessons are compared by words: %s", error)
        index = await self._indexed(pages, None)
        return [
            Near(lessons[at], min(1.0, like))
            for lessons, one in index.sorts
            if isinstance(one, Words)
            for at, like in one.near(text, NEAREST)
        ]

    async def _by_meaning(self, pages: _Pages, text: str, embedding: Embedding) -> list[Near]:
        if any(one.vector is None for one in pages.counts):
            pages = await self._dressed(pages, embedding)
        (vector,) = await embedding.embed([text])
        self._shelf.see(embedding.handle, text, vector)
        index = await self._indexed(pages, len(vector) // 4)
        return [
            Near(lessons[at], min(1.0, like))
            for lessons, one in index.sorts
            if isinstance(one, Vectors)
            for at, like in one.near(vector, NEAREST)
        ]

    async def _dressed(self, pages: _Pages, embedding: Embedding) -> _Pages:
        """The latest that have no vector get theirs. Those that this process routed are known already."""
        bare = [one for one in reversed(pages.counts) if one.vector is None]
        found = {one.number: known for one in bare if (known := self._shelf.seen.get((embedding.handle, one.request)))}
        rest = [one for one in bare if one.number not in found][:_DRESSED]
        if rest:
            made = await embedding.embed([one.request for one in rest])
            found.update(zip([one.number for one in rest], made, strict=True))
        await self._store.dress(embedding.handle, found)
        dressed = {number: structs.replace(pages.lessons[number], vector=vector) for number, vector in found.items()}
        self._shelf.pages = pages = _counted(pages, {**pages.lessons, **dressed})
        return pages

    async def _indexed(self, pages: _Pages, width: int | None) -> _Index:
        """Made once for what there is: nothing of it changes until there are new lessons."""
        index = self._shelf.index
        if index is not None and index.pages is pages and index.width == width:
            return index
        if len(pages.counts) < _MANY:
            index = _index(pages, width)
        else:
            index = cast("_Index", await THREADS.call(lambda: _index(pages, width), {}, _LONGEST))
        self._shelf.index = index
        return index

    async def _fresh(self, embedding: str) -> _Pages:
        pages = self._shelf.pages
        if pages.embedding != embedding:
            pages = _Pages(embedding=embedding)
        news = await self._store.since(pages.generation, pages.latest, embedding)
        due = news.whole or any(map(firm, news.lessons)) or len(news.lessons) > len(pages.lessons) // _LATE
        if due and (news.whole or news.lessons):
            known = _joined({} if news.whole else pages.lessons, news)
            pages = _counted(_Pages(news.generation, news.latest, embedding), known)
        self._shelf.pages = pages
        return pages


def notebook(store: Lessons) -> Notebook:
    """The notebook of a team. What was read of its lessons is kept, however often the file is opened."""
    key = (store.place, store.team)
    shelf = _KEPT[key] = _KEPT.pop(key, None) or _Shelf()
    while len(_KEPT) > _SHELVES:
        _KEPT.popitem(last=False)
    return Notebook(store, shelf)


def _index(pages: _Pages, width: int | None) -> _Index:
    sorts: list[tuple[tuple[Lesson, ...], Vectors | Words]] = []
    for judged in (True, False):
        mine = tuple(one for one in pages.counts if firm(one) is judged)
        if width is None:
            sorts.append((mine, Words([one.request for one in mine])))
            continue
        dressed = tuple(one for one in mine if one.vector is not None and len(one.vector) == 4 * width)
        sorts.append((dressed, Vectors([one.vector or b"" for one in dressed], width)))
    return _Index(pages, width, tuple(sorts))


def _joined(known: Mapping[int, Lesson], news: News) -> dict[int, Lesson]:
    """What a source says anew of a run takes the place of what it said before."""
    again = {(one.run, one.source) for one in news.lessons}
    found = {number: one for number, one in known.items() if (one.run, one.source) not in again}
    found.update((one.number, one) for one in news.lessons)
    return {number: found[number] for number in sorted(found)[-MOST:]}


def _counted(pages: _Pages, lessons: Mapping[int, Lesson]) -> _Pages:
    counts: Sequence[Lesson] = telling(tuple(lessons.values()))
    return _Pages(
        generation=pages.generation,
        latest=pages.latest,
        embedding=pages.embedding,
        lessons=lessons,
        counts=tuple(counts),
    )
