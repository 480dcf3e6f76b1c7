"""What one tenant has: runs, memory, a floor on which runs are carried. Nothing in it is seen from another house."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Self, TypeAlias, TypeVar, cast

import msgspec

from chargehand.memory.opened import OpenMemory
from chargehand.models.find import Finder, Lookup
from chargehand.runtime.driver import Driver
from chargehand.runtime.feed import Feed
from chargehand.runtime.remembered import Embeddings
from chargehand.runtime.stats import QUICK, Histogram, Labels, Stats
from chargehand.server.floor import Floor, closing
from chargehand.server.places import Places
from chargehand.server.settings import Settings, check_tenant
from chargehand.server.walls.redacted import RedactedJournal, redacted
from chargehand.stores.catalog import SqliteCatalog
from chargehand.terms.events import Entry
from chargehand.terms.policy import Seconds
from chargehand.terms.work import Work

Part = TypeVar("Part")
Whisper: TypeAlias = Callable[[Work, str], None]
MoveIn: TypeAlias = Callable[["House"], Awaitable[None]]
LETTA = "letta"
"""The space of the catalog in which agents of the Letta door live."""
logger = logging.getLogger(__name__)


_MAX_NAMES = 64


class TenantStats:
    """What `/metrics` tells of one tenant."""

    def __init__(self) -> None:
        self.runs = Stats(max_names=_MAX_NAMES)
        self.http_calls = defaultdict[Labels, float](float)
        """Calls that were answered, by door and status."""
        self.http_seconds = Histogram(QUICK)
        """Until the reply began, by door."""


class House:
    """One tenant's. `memory` is that of the Letta door; teams have spaces of their own beside it."""

    def __init__(
        self,
        tenant: str,
        settings: Settings,
        lookup: Lookup,
        finder: Finder,
        journal: RedactedJournal,
        catalog: SqliteCatalog,
        floor: Floor,
        stack: AsyncExitStack,
    ) -> None:
        self.tenant = tenant
        self.settings = settings
        self.lookup = lookup
        self.finder = finder
        self.journal = journal
        self.catalog = catalog
        self.floor = floor
        self.stack = stack
        """What is pushed onto it is closed with the house, after the runs on its floor were stopped."""
        self.whispers: dict[str, list[Whisper]] = {}
        """Who wants to hear the words of a run as they come, by run."""
        self.drivers: list[Driver] = []
        """Whoever drives runs here, of every door."""
        self.feed = Feed(journal)
        self.stats = TenantStats()
        self._parts: dict[object, object] = {}
        self.embedding = Embeddings(lookup)
        self.memory = OpenMemory(catalog.of(LETTA), self.embedding)

    @property
    def folder(self) -> Path:
        return self.settings.data / self.tenant

    def part(self, make: "Callable[[House], Part]") -> Part:
        """What a door keeps for this house: made when it is first asked for."""
        if make not in self._parts:
            self._parts[make] = make(self)
        return cast("Part", self._parts[make])

    def cleaned(self, value: Part) -> Part:
        """What somebody sent, without secrets: for what is kept outside the journal."""
        body = msgspec.json.encode(value)
        cleaned = self.journal.redactor.clean(body)
        return value if cleaned is body else msgspec.json.decode(cleaned, type=type(value))

    def heard(self, run: str, entries: Sequence[Entry]) -> None:
        """The listener of every driver in this house."""
        self.floor.heard(run, entries)
        self.feed(run, entries)
        self.stats.runs.record(run, entries)

    def driving(self, run: str) -> Driver | None:
        """Who drives a run just now; None if nobody here does."""
        return next((one for one in self.drivers if run in one.under_way), None)

    def whispered(self, run: str, work: Work, words: str) -> None:
        """Told of words as they come."""
        for hear in self.whispers.get(run, ()):
            hear(work, words)

    async def close(self) -> None:
        await self.embedding.close()


@asynccontextmanager
async def opened(
    tenant: str, settings: Settings, lookup: Lookup, finder: Finder, places: Places
) -> AsyncGenerator[House]:
    """A house, open. Runs on its floor are stopped, and can be resumed, before anything else is closed."""
    folder = settings.data / tenant
    await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
    async with AsyncExitStack() as stack:
        journal = await redacted(folder / "runs.db", settings, lookup)
        stack.push_async_callback(journal.close)
        catalog = await SqliteCatalog.open(folder / "memory.db", space=LETTA)
        stack.push_async_callback(catalog.close)
        furniture = await stack.enter_async_context(AsyncExitStack())
        floor = await stack.enter_async_context(Floor(places, tenant, settings.grace))
        house = House(
            tenant=tenant,
            settings=settings,
            lookup=lookup,
            finder=finder,
            journal=journal,
            catalog=catalog,
            floor=floor,
            stack=furniture,
        )
        furniture.push_async_callback(house.close)
        yield house


class Houses:
    """The houses of a server, each opened when it is first called at, and each in a task of its own.

    `move_in` is what there is to do in a house that was opened; nobody waits for it.
    """

    def __init__(self, settings: Settings, lookup: Lookup, move_in: MoveIn | None = None) -> None:
        self.settings = settings
        self.places = Places(settings.limits)
        self.stats = defaultdict[str, TenantStats](TenantStats)
        """By tenant, also of one whose house is not open yet."""
        self._move_in = move_in
        self._lookup = lookup
        self._finder = Finder(lookup, price=settings.price)
        self._jobs = asyncio.TaskGroup()
        self._open: dict[str, asyncio.Future[House]] = {}
        self._over = asyncio.Event()
        self._draining = False

    async def __aenter__(self) -> Self:
        await self._jobs.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        try:
            await self._jobs.__aexit__(kind, error, trace)
        finally:
            await self._finder.close()

    async def of(self, tenant: str) -> House:
        """The house of a tenant, opened if it is not open yet."""
        found = self._open.get(tenant)
        if found is None:
            check_tenant(tenant)
            if self._draining:
                raise closing()
            found = self._open[tenant] = asyncio.get_running_loop().create_future()
            self._jobs.create_task(self._keep(tenant, found))
        return found.result() if found.done() else await asyncio.shield(found)

    async def _keep(self, tenant: str, found: "asyncio.Future[House]") -> None:
        """Keep a house open until all of them are closed."""
        try:
            async with (
                opened(tenant, self.settings, self._lookup, self._finder, self.places) as house,
                asyncio.TaskGroup() as jobs,
            ):
                house.stats = self.stats[tenant]
                found.set_result(house)
                chores = None if self._move_in is None else jobs.create_task(_moved_in(self._move_in, house))
                await self._over.wait()
                if chores is not None:
                    chores.cancel()
        except Exception as error:
            if found.done():
                logger.exception("the house of %s did not close well", tenant)
                return
            del self._open[tenant]  # whoever calls next tries again
            found.set_exception(error)

    async def drain(self, grace: Seconds) -> None:
        """Begin nothing any more, give what is under way so long, and cut the rest. Everything can still be read."""
        self._draining = True
        async with asyncio.TaskGroup() as jobs:
            for house in self.open:
                jobs.create_task(house.floor.drain(grace))

    @property
    def open(self) -> tuple[House, ...]:
        return tuple(one.result() for one in self._open.values() if one.done())


async def _moved_in(move_in: MoveIn, house: House) -> None:
    try:
        await move_in(house)
    except Exception:  # it is served all the same
        logger.exception("not everything was put in order in the house of %s", house.tenant)
