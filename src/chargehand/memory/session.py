"""A team's memory while it is open: texts are cut, embedded and kept; questions are embedded and answered.

How passages are kept and ranked is the catalog's business.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING
from uuid import UUID, uuid5
from weakref import WeakValueDictionary

from msgspec.structs import replace

from chargehand.engine.policy import Instant
from chargehand.errors import Invalid, Refused, StoreUnavailable
from chargehand.journal.store import examine_journal
from chargehand.memory.archives import EVERYTHING, Archive, Embedding, Filter, Hit, Inserted, Passage, check_passages
from chargehand.memory.catalog import PREFIXES, Catalog, KeptConversation
from chargehand.memory.chunking import cut
from chargehand.store_url import MEMORY, PostgresUrl, StoreUrl, parse_store_url

if TYPE_CHECKING:
    from chargehand.sqlite.connection import Durability, Examined


async def open_catalog(
    url: StoreUrl = MEMORY,
    *,
    space: str = "default",
    durability: "Durability" = "machine",
    clock: Callable[[], Instant] = time.time,
) -> Catalog:
    """The catalog at a URL (`sqlite:///memory.db`, `postgresql://...`, `memory:`) or in a file, made if it is missing.

    Another kind of store is a `Catalog`, or the tables of one (`memory.tables`), and a line here. What a database of
    PostgreSQL promises on commit is its own setting, so `durability` is that of files.
    """
    place = None if url == MEMORY else parse_store_url(url)
    if isinstance(place, PostgresUrl):
        from chargehand.memory.postgres_catalog import PostgresCatalog  # noqa: PLC0415 - the driver is an extra

        return await PostgresCatalog.open(place, space=space, clock=clock)
    from chargehand.memory.sqlite_catalog import SqliteCatalog  # noqa: PLC0415 - only teams with a memory need it

    return await SqliteCatalog.open(place, space=space, durability=durability, clock=clock)


def examine_catalog(url: StoreUrl) -> "Examined":
    """What is wrong with a catalog that is there; takes a few seconds at most."""
    from chargehand.sqlite.connection import CATALOG, examine  # noqa: PLC0415 - as above

    place = parse_store_url(url)
    return examine_journal(place) if isinstance(place, PostgresUrl) else examine(place, CATALOG)


Embeddings = Callable[[str], Embedding | None]
"""The embedding model behind a handle (`auto` is one); None when there is none here: then words have to do."""
_Ask = Callable[[Sequence[str], str, bytes | None], Awaitable[list[Hit]]]
BATCH = 256
"""Passages embedded and kept at a time."""
_SPARE_BATCHES = 16  # for what others insert while the rest is embedded

logger = logging.getLogger(__name__)


class OpenMemory:
    """`catalog` has all the rest. `agents` are the ids of a team's workers, by name."""

    def __init__(
        self, catalog: Catalog, embeddings: Embeddings, *, clock: Callable[[], Instant] = time.time, team: str = ""
    ) -> None:
        self.catalog = catalog
        self.agents: dict[str, str] = {}
        self.team = team
        """The id of the group that is the whole team."""
        self._embeddings = embeddings
        self._clock = clock
        self._models: dict[str, Embedding | None] = {}
        self._warned: set[str] = set()
        self._gates: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def conversation_of(self, agent: str, scope: str) -> str:
        """Return the id under which the turns of an agent are kept in a scope; an empty scope is the agent's own."""
        if not scope:
            return agent
        return f"{PREFIXES[KeptConversation]}-{uuid5(UUID(agent.partition('-')[2]), scope)}"

    async def begin_conversation(self, agent: str, scope: str) -> str:
        """Make the conversation of a scope where it is not there yet; return its id."""
        which = self.conversation_of(agent, scope)
        if scope and await self.catalog.get(KeptConversation, which) is None:
            with suppress(Refused):  # another attempt made it meanwhile
                await self.catalog.add(KeptConversation(name=scope, agent=agent, tags=(agent,), id=which))
        return which

    def gate(self, name: str) -> asyncio.Lock:
        """A lock by name. That of an agent's id lets one at a time summarise: the next finds it done, pays nothing."""
        return self._gates.setdefault(name, asyncio.Lock())

    async def add(self, archive: Archive, passages: Sequence[Passage], *, agent: str = "") -> list[Inserted]:
        """Keep texts: cut into parts where they are long, with vectors where the archive's model is here.

        One answer for each part. A model that cannot be reached keeps nothing from being kept: the vectors can be made
        later (`embed_rest`). Long lists are kept in batches: after a crash, the same call again adds what is missing.
        An `agent` must have a grant for it.
        """
        check_passages(passages)  # before anything is kept: a bad text must not stop the batches half-way
        parts = list(_parts(passages, self._clock()))
        model = self._model(archive)
        inserted = list[Inserted]()
        for start in range(0, len(parts), BATCH):
            batch = parts[start : start + BATCH]
            vectors = None if model is None else await self._embed(model, [part.text for part in batch])
            if vectors is None:
                model = None  # not asked again for every batch: each may wait long for nothing
            inserted += await self._insert(archive, batch, vectors, "" if model is None else model.handle, agent)
        return inserted

    async def search(
        self,
        archives: Sequence[Archive],
        query: str,
        *,
        within: Filter = EVERYTHING,
        limit: int = 10,
        agent: str = "",
    ) -> list[Hit]:
        """The best passages of these archives. Archives of different models are searched apart and then merged.

        An `agent` must have a grant for each.
        """
        if limit < 1:
            return []
        groups: dict[str, tuple[Embedding | None, list[str]]] = {}
        for archive_id in archives:
            model = self._model(archive_id)
            _, ids = groups.setdefault("" if model is None else model.handle, (model, []))
            if archive_id.id not in ids:
                ids.append(archive_id.id)
        hits: list[Hit] = []
        for model, ids in groups.values():
            vectors = await self._embed(model, [query]) if model is not None and query.strip() else None
            ask = partial(
                self.catalog.search,
                within=within,
                limit=limit,
                handle="" if model is None else model.handle,
                agent=agent,
            )
            hits += await self._search(ids, query, vectors[0] if vectors else None, ask)
        hits.sort(key=lambda hit: -hit.score)
        return hits[:limit]

    async def embed_rest(self, archive: Archive, tell: Callable[[int], None] | None = None) -> int:
        """Make the vectors that are missing; how many there were. `tell` hears how far it is.

        Refused if the archive has no model here. StoreUnavailable leaves what was made so far.
        """
        model = self._model(archive)
        if model is None:
            raise Refused(
                f"archive {archive.name!r} has no embedding model here (its embedding is {archive.embedding!r}), so it "
                "is searched by words; get the model, or name another"
            )
        total, embedded = await self.catalog.count(archive.id)
        done = 0
        for _ in range((total - embedded) // BATCH + _SPARE_BATCHES):
            unembedded = await self.catalog.unembedded(archive.id, limit=BATCH)
            if not unembedded:
                break
            vectors = await model.embed([passage.text for passage in unembedded])
            by_id = {passage.id: vector for passage, vector in zip(unembedded, vectors, strict=True)}
            done += await self.catalog.add_vectors(archive.id, by_id, handle=model.handle)
            if tell is not None:
                tell(done)
        return done

    async def close(self) -> None:
        """Let go of the catalog and of every model that was asked for, whichever of them fails."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self.catalog.close)
            for model in {id(model): model for model in self._models.values() if model is not None}.values():
                stack.push_async_callback(model.close)
            self._models.clear()

    # --- inside

    def _model(self, archive: Archive) -> Embedding | None:
        if archive.embedding == "words":
            return None
        if archive.embedding not in self._models:
            self._models[archive.embedding] = self._embeddings(archive.embedding)
        return self._models[archive.embedding]

    async def _embed(self, model: Embedding, texts: Sequence[str]) -> list[bytes] | None:
        """None when the model cannot be reached."""
        try:
            return await model.embed(texts)
        except StoreUnavailable as error:
            self._warn(model.handle, f"{model.handle} cannot be reached, so words have to do for now: {error}")
            return None

    async def _insert(
        self, archive: Archive, batch: Sequence[Passage], vectors: Sequence[bytes] | None, handle: str, agent: str
    ) -> list[Inserted]:
        try:
            return await self.catalog.insert(archive.id, batch, vectors, handle=handle, agent=agent)
        except Invalid as error:
            if vectors is None or archive.embedding not in ("auto", handle):
                raise
            # It was begun with another model than `auto` is here, or than is declared now: texts are kept all the same.
            self._warn(archive.id, f"archive {archive.name!r} takes no vectors of {handle}: {error}")
            return await self.catalog.insert(archive.id, batch, agent=agent)

    async def _search(self, archives: Sequence[str], query: str, vector: bytes | None, ask: _Ask) -> list[Hit]:
        try:
            return await ask(archives, query, vector)
        except Invalid as error:
            if vector is None:
                raise
            if len(archives) == 1:  # its vectors are of another model
                self._warn(archives[0], f"archive {archives[0]} is searched by words: {error}")
                return await ask(archives, query, None)
        return [hit for archive in archives for hit in await self._search([archive], query, vector, ask)]

    def _warn(self, about: str, message: str) -> None:
        """Once: it would be said with every call."""
        if about not in self._warned:
            self._warned.add(about)
            logger.warning("%s", message)


def _parts(passages: Sequence[Passage], now: Instant) -> Iterator[Passage]:
    """Each passage, or its parts. Made from what is given alone, so that a repeated call makes the same."""
    keys: dict[str, int] = {}
    for passage in passages:
        origin = passage.origin
        if origin.key:  # the catalog takes the same key and part for a repetition, and these are not
            nth = keys[origin.key] = keys.get(origin.key, 0) + 1
            origin = replace(origin, key=f"{origin.key}+{nth}") if nth > 1 else origin
        whole = replace(passage, origin=origin, created=passage.created or now)
        parts = cut(passage.text)
        if len(parts) == 1:
            yield whole
            continue
        document = passage.document or f"document-{blake2b(passage.text.encode(), digest_size=16).hexdigest()}"
        for number, part in enumerate(parts):
            passage_id = passage.id if number == 0 else ""
            yield replace(whole, text=str(part), document=document, part=number, id=passage_id)
