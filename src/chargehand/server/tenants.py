"""Tenants: each has its own runs, memory and API state, invisible to the others."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Any, Self, TypeAlias, TypeVar, cast

from chargehand.agents.memory_session import Embeddings
from chargehand.dispatch.dispatcher import JobDispatcher
from chargehand.dispatch.engine import Engine
from chargehand.engine.events import Entry
from chargehand.engine.policy import Seconds
from chargehand.engine.state import TextKind, Work
from chargehand.errors import ChargehandError
from chargehand.journal.store import open_journal
from chargehand.memory.catalog import Catalog
from chargehand.memory.session import OpenMemory, open_catalog
from chargehand.models.resolve import Finder, Lookup
from chargehand.runtime.approving import Callbacks
from chargehand.runtime.executor import Executor, Listener
from chargehand.runtime.feed import Feed
from chargehand.runtime.listeners import GuardedListener
from chargehand.runtime.run_loop import TextListener
from chargehand.runtime.runner import Runner
from chargehand.runtime.stats import QUICK, Histogram, Labels, Stats
from chargehand.server.middleware.redaction import RedactedExecutor, RedactedJournal, redactor_of
from chargehand.server.settings import ServerSettings, check_tenant
from chargehand.server.tenant_runs import Admission, TenantRuns, closing

Part = TypeVar("Part")
WordListener: TypeAlias = Callable[[Work, str, TextKind], None]
OnOpen: TypeAlias = Callable[["Tenant"], Awaitable[None]]
LETTA = "letta"
"""The space of the catalog in which agents of the Letta API live."""
logger = logging.getLogger(__name__)


_MAX_NAMES = 64


class TenantStats:
    """What `/metrics` tells of one tenant."""

    def __init__(self) -> None:
        self.runs = Stats(max_names=_MAX_NAMES)
        self.http_calls = defaultdict[Labels, float](float)
        """Calls that were answered, by API and status."""
        self.http_seconds = Histogram(QUICK)
        """Until the reply began, by API."""


class Tenant:
    """One tenant's runs and memory. `memory` is that of the Letta API; teams have spaces of their own beside it."""

    def __init__(
        self,
        name: str,
        tenants: "Tenants",
        journal: RedactedJournal,
        catalog: Catalog,
        runs: TenantRuns,
        stack: AsyncExitStack,
    ) -> None:
        self.name = name
        self.settings = tenants.settings
        self.stores = tenants.settings.stores(name)
        self.lookup = tenants.lookup
        self.finder = tenants.finder
        self.stats = tenants.stats[name]
        self.redactor = tenants.redactor
        self._listeners = tenants.listeners
        self.journal = journal
        self.catalog = catalog
        self.runs = runs
        self.stack = stack
        """What is pushed onto it is closed with the tenant, after its runs were stopped."""
        self.word_listeners: dict[str, list[WordListener]] = {}
        """Listeners to streamed text, by run."""
        self.entry_listeners: list[Listener] = []
        """Those of the APIs: told of all that was written, and with no entries of a run that is not driven any more."""
        self.runners: list[Runner] = []
        """The runners of every API."""
        self.dispatcher = None if tenants.engine is None else JobDispatcher(tenants.engine, journal, name)
        """Has runs driven by other processes; None: they are driven here."""
        self.feed = Feed(journal)
        self.embedding = Embeddings(self.lookup)
        self.memory = OpenMemory(catalog.of(LETTA), self.embedding)
        self._parts: dict[object, object] = {}
        self._jobs: asyncio.TaskGroup | None = None
        self._background: set[asyncio.Task[None]] = set()
        runs.on_left = lambda run: self._tell_listeners(run, ())
        stack.push_async_callback(self.embedding.close)

    def work_in(self, jobs: asyncio.TaskGroup) -> None:
        """Where work in the background goes on, until the tenant is closed."""
        self._jobs = jobs

    def start_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Start work that ends by itself, or with the tenant. Its errors are its own business."""
        assert self._jobs is not None, "a tenant is open before it is used"
        task = self._jobs.create_task(_guard(self.name, work))
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def stop_background(self) -> None:
        for task in self._background:
            task.cancel()

    def part(self, make: "Callable[[Tenant], Part]") -> Part:
        """What an API keeps for this tenant: made when it is first asked for."""
        if make not in self._parts:
            self._parts[make] = make(self)
        return cast("Part", self._parts[make])

    def redact(self, value: Part) -> Part:
        """A value without secrets, for what is kept outside the journal."""
        return self.redactor.value(value)

    def open_runner(
        self,
        executor: Executor,
        listener: Listener,
        on_text: TextListener | None = None,
        callbacks: Callbacks | None = None,
    ) -> Runner:
        """A runner of this tenant, whose executors are handed no secrets."""
        redacted = RedactedExecutor(executor, self.redactor, self._listeners)
        runner = Runner(
            self.journal,
            redacted,
            listener=listener,
            on_text=on_text,
            callbacks=callbacks,
            dispatcher=self.dispatcher,
        )
        self.runners.append(runner)
        return runner

    def on_entries(self, run: str, entries: Sequence[Entry]) -> None:
        """The listener of every runner of this tenant."""
        self.runs.on_entries(run, entries)
        self.feed(run, entries)
        self.stats.runs.record(run, entries)
        self._tell_listeners(run, entries)

    def _tell_listeners(self, run: str, entries: Sequence[Entry]) -> None:
        for hear in self.entry_listeners:
            hear(run, entries)

    def runner_of(self, run: str) -> Runner | None:
        """The runner that drives a run; None if none here does."""
        return next((runner for runner in self.runners if run in runner.under_way), None)

    def listen_to_words(self, run: str, hear: WordListener) -> Callable[[], None]:
        """Have `hear` called with what models write for a run, whichever process drives it; the result ends it."""
        self.word_listeners.setdefault(run, []).append(hear)
        words = self.journal.words
        unsubscribe = None if words is None else words.subscribe(run, hear)

        def leave() -> None:
            listeners = self.word_listeners.get(run, [])
            if hear in listeners:
                listeners.remove(hear)
            if not listeners:
                self.word_listeners.pop(run, None)
            if unsubscribe is not None:
                unsubscribe()

        return leave

    def on_words(self, run: str, work: Work, words: str, kind: TextKind) -> None:
        """Told of words as they come."""
        for hear in self.word_listeners.get(run, ()):
            hear(work, words, kind)


async def _guard(tenant: str, work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except Exception:
        logger.exception("work in the background of tenant %s ended with an error", tenant)


class Tenants:
    """The tenants of a server, each opened when it is first called, and each in a task of its own.

    `on_open` runs in the background after a tenant was opened.
    """

    def __init__(
        self,
        settings: ServerSettings,
        lookup: Lookup,
        on_open: OnOpen | None = None,
        *,
        listeners: Sequence[Listener] = (),
    ) -> None:
        self.settings = settings
        self.listeners = tuple(map(GuardedListener, listeners))
        """Who hears every entry of every run of every tenant, and of the runs inside them."""
        self.admission = Admission(settings.limits)
        self.stats = defaultdict[str, TenantStats](TenantStats)
        """By tenant, also of one that is not open yet."""
        self._on_open = on_open
        self.engine: Engine | None = None
        """Set before the first tenant is opened."""
        self.lookup = lookup
        self.redactor = redactor_of(settings, lookup)
        self.finder = Finder(lookup, price=settings.price, store=settings.store)
        self._jobs = asyncio.TaskGroup()
        self._open: dict[str, asyncio.Future[Tenant]] = {}
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
            await self.finder.close()

    async def of(self, name: str) -> Tenant:
        """A tenant, opened if it is not open yet."""
        opening = self._open.get(name)
        if opening is None:
            check_tenant(name)
            if self._draining:
                raise closing()
            opening = self._open[name] = asyncio.get_running_loop().create_future()
            self._jobs.create_task(self._keep_open(name, opening))
        return opening.result() if opening.done() else await asyncio.shield(opening)

    async def _keep_open(self, name: str, opening: "asyncio.Future[Tenant]") -> None:
        """Keep a tenant open until all of them are closed."""
        try:
            async with self._opened(name) as tenant, asyncio.TaskGroup() as jobs:
                tenant.work_in(jobs)
                opening.set_result(tenant)
                tenant.start_background(self._after_opening(tenant))
                await self._over.wait()
                tenant.stop_background()
        except Exception as error:
            if opening.done():
                logger.exception("tenant %s did not close well", name)
                return
            del self._open[name]  # the next call tries again
            opening.set_exception(error)

    @asynccontextmanager
    async def _opened(self, name: str) -> AsyncGenerator[Tenant]:
        """A tenant, open. Its runs are stopped, and can be resumed, before anything else is closed."""
        stores = self.settings.stores(name)
        async with AsyncExitStack() as stack:
            journal = RedactedJournal(await open_journal(stores.journal), self.redactor)
            stack.push_async_callback(journal.close)
            catalog = await open_catalog(stores.memory, space=LETTA)
            stack.push_async_callback(catalog.close)
            parts = await stack.enter_async_context(AsyncExitStack())
            runs = await stack.enter_async_context(TenantRuns(self.admission, name, self.settings.grace))
            yield Tenant(name, self, journal=journal, catalog=catalog, runs=runs, stack=parts)

    async def _after_opening(self, tenant: Tenant) -> None:
        if self._on_open is None:
            return
        try:
            await self._on_open(tenant)
        except ChargehandError as error:  # it is served all the same
            logger.warning("not everything was put in order for tenant %s: %s", tenant.name, error)
        except Exception:
            logger.exception("not everything was put in order for tenant %s", tenant.name)

    def close(self) -> None:
        """Begin nothing any more, and say so."""
        self._draining = True
        for tenant in self.open:
            tenant.runs.closing = True

    async def drain(self, grace: Seconds) -> None:
        """Begin nothing any more, give what is under way so long, and cut the rest. Everything can still be read."""
        self.close()
        async with asyncio.TaskGroup() as jobs:
            for tenant in self.open:
                jobs.create_task(tenant.runs.drain(grace))

    @property
    def open(self) -> tuple[Tenant, ...]:
        return tuple(opening.result() for opening in self._open.values() if opening.done())
