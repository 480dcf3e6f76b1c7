"""Open a team's memory: the catalog, the embedding models, and what the team declares.

What is declared is made or brought up to date by `settle`; here is who opens it, and how long it stays open.
"""

import threading
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from chargehand.agents.worker import Worker
from chargehand.memory.catalog import Catalog
from chargehand.memory.declared import Memory
from chargehand.memory.embedding import Embedding
from chargehand.memory.opened import OpenMemory
from chargehand.models.find import Lookup, models_folder
from chargehand.runtime.settled import settle
from chargehand.runtime.shared import Shared


class Embeddings:
    """The embedding models of one memory, each found when it is first asked for."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self._found: dict[str, Embedding | None] = {}

    def __call__(self, handle: str) -> Embedding | None:
        from chargehand.models.embedding_find import find_embedding  # noqa: PLC0415 - only who searches needs it

        if handle not in self._found:
            self._found[handle] = find_embedding(handle, self._lookup, models_folder(self._lookup))
        return self._found[handle]

    async def close(self) -> None:
        async with AsyncExitStack() as stack:  # all of them, whichever fails
            for one in self._found.values():
                if one is not None:
                    stack.push_async_callback(one.close)
            self._found.clear()


@asynccontextmanager
async def open_memory(
    declared: Memory, team: str, workers: Sequence[Worker], lookup: Lookup
) -> AsyncGenerator[OpenMemory]:
    """The memory, with all that is declared made or brought up to date, and every worker attached to its share of it.

    A catalog that was handed in stays open; a file, or a memory of this process alone, is closed at the end.
    """
    catalog = await open_catalog(declared, team)
    try:
        async with opened(catalog, declared, team, workers, lookup) as memory:
            yield memory
    finally:
        if catalog is not declared.store:
            await catalog.close()


async def open_catalog(declared: Memory, team: str) -> Catalog:
    """The catalog a memory names, in the team's space."""
    from chargehand.stores.catalog import SqliteCatalog  # noqa: PLC0415 - only teams with a memory need it

    store = declared.store
    if store is None or isinstance(store, str | Path):
        return await SqliteCatalog.open(store, space=declared.space or team)
    return store


@asynccontextmanager
async def opened(
    catalog: Catalog, declared: Memory, team: str, workers: Sequence[Worker], lookup: Lookup
) -> AsyncGenerator[OpenMemory]:
    """The same on a catalog that is open, and stays so."""
    embeddings = Embeddings(lookup)
    try:
        memory = OpenMemory(catalog, embeddings)
        await settle(memory, declared, team, workers)
        yield memory
    finally:
        await embeddings.close()


class SharedMemory(Shared[OpenMemory]):
    """A team's memory, for as many runs at once as there are: opened by the first, closed by the last.

    A memory of this process alone lasts as long as the team.
    """

    def __init__(self, declared: Memory, team: str, workers: Sequence[Worker], lookup: Lookup) -> None:
        super().__init__()
        self._declared = declared
        self._team = team
        self._workers = tuple(workers)
        self._lookup = lookup
        self._kept: Catalog | None = None
        self._lock = threading.Lock()

    @asynccontextmanager
    async def _whole(self) -> AsyncGenerator[OpenMemory]:
        declared = self._declared
        team = self._team
        workers = self._workers
        lookup = self._lookup
        if declared.store is not None:
            async with open_memory(declared, team, workers, lookup) as memory:
                yield memory
            return
        async with opened(await self._keep(), declared, team, workers, lookup) as memory:
            yield memory

    async def _keep(self) -> Catalog:
        """The one memory of this process. Event loops in other threads may ask for it at the same time."""
        if self._kept is None:
            catalog = await open_catalog(self._declared, self._team)
            with self._lock:
                self._kept = self._kept or catalog
            if self._kept is not catalog:
                await catalog.close()
        return self._kept
