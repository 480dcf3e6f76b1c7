"""`chargehand store copy`: everything that is kept in files into a database of PostgreSQL, or back, and verified."""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from chargehand.cli import USUAL_DATA, USUAL_JOURNAL
from chargehand.cli.arguments import Options, Verb, add_verbs, shared, store_place
from chargehand.cli.console import Console, progress_bar
from chargehand.cli.signals import StopSignals
from chargehand.errors import Corrupt, Invalid, Refused
from chargehand.journal.copy import (
    CopiedJournal,
    JournalSide,
    ReportProgress,
    check_target_journal,
    compare_journals,
    copy_journal,
    not_empty,
)
from chargehand.journal.store import open_journal
from chargehand.memory.copy import CopiedMemory, MemorySide, check_target_memory, compare_memories, copy_memory
from chargehand.memory.session import open_catalog
from chargehand.sqlite.connection import CATALOG, JOURNAL, is_ours
from chargehand.store_url import FIRST_TENANT, MEMORY, PostgresUrl

if TYPE_CHECKING:
    from chargehand.server.middleware.keys import ApiKey, KeyStore

Place: TypeAlias = Path | PostgresUrl
_JOURNAL_FILE = "runs.db"
_MEMORY_FILE = "memory.db"
_HELP = f"""\
SOURCE and TARGET are the folder of {_JOURNAL_FILE} and {_MEMORY_FILE}, or
postgresql://HOST/DATABASE, with ?tenant=NAME for another tenant than
{FIRST_TENANT}. A SOURCE may be one such file. With --server they are the folder
of all data of a server, or its database: all tenants, and tokens.

examples:
  chargehand store copy {Path(USUAL_JOURNAL).parent} postgresql://db.example/name
  chargehand store copy --server {USUAL_DATA} postgresql://db.example/name
  chargehand store copy --server postgresql://db.example/name restored

Stop what uses either of them first. SOURCE is not changed. TARGET must be
empty, or the beginning of the same copy: after an interruption the same
command continues. At the end both are read again and compared.
Not copied: evaluations, and the index of the Letta API, which a server makes
from the runs when it starts.
"""


def add_store(parser: ArgumentParser) -> None:
    add_verbs(parser, _VERBS)


def store(options: Namespace) -> int:
    """One of the verbs of stores."""
    if options.what is None:
        raise Invalid("say what to do: chargehand store copy SOURCE TARGET")
    return _VERBS[options.what].function(options)


# --- places


class _StorePair(Struct, frozen=True):
    """A store and what it is copied to; `is_there` says whether the source has it."""

    source: Place
    target: Place
    is_there: bool


class _TenantPair(Struct, frozen=True):
    """What is copied of one tenant. None: it is not asked for."""

    journal: _StorePair | None
    memory: _StorePair | None


def _tenant_pair(source: Place, target: Place) -> _TenantPair:
    """The stores of one tenant, or of the command line."""
    if isinstance(source, Path) and source.is_file():
        into = target if isinstance(target, PostgresUrl) or not target.is_dir() else target / source.name
        pair = _StorePair(source, into, is_there=True)
        if is_ours(source, JOURNAL):
            return _TenantPair(journal=pair, memory=None)
        if is_ours(source, CATALOG):
            return _TenantPair(journal=None, memory=pair)
        raise Invalid(f"{source} is neither a journal nor a memory of chargehand; name a folder with such files")
    for place in (source, target):
        if isinstance(place, Path) and place.is_file():
            raise Invalid(f"{place} is a file; name the folder of {_JOURNAL_FILE} and {_MEMORY_FILE}")
    return _TenantPair(_store_pair(source, target, _JOURNAL_FILE), _store_pair(source, target, _MEMORY_FILE))


def _store_pair(source: Place, target: Place, name: str) -> _StorePair:
    place = _inside(source, name)
    return _StorePair(place, _inside(target, name), is_there=isinstance(place, PostgresUrl) or place.exists())


def _inside(place: Place, name: str) -> Place:
    return place if isinstance(place, PostgresUrl) else place / name


def _has_stores(folder: Path) -> bool:
    return (folder / _JOURNAL_FILE).exists() or (folder / _MEMORY_FILE).exists()


def _check_source(source: Place) -> None:
    """Raise for a folder that has nothing to copy."""
    if isinstance(source, PostgresUrl) or source.is_file() or _has_stores(source):
        return
    if not source.is_dir():
        raise Refused(f"there is no folder {source}; name the one of {_JOURNAL_FILE} and {_MEMORY_FILE}")
    if any(_has_stores(child) for child in source.iterdir()):
        raise Refused(f"{source} is the folder of a server; to copy all its tenants and tokens, say --server")
    raise Refused(f"there is neither {_JOURNAL_FILE} nor {_MEMORY_FILE} in {source}; name the folder they are in")


# --- the stores of a server


async def _list_tenants(place: Place) -> list[str]:
    if isinstance(place, PostgresUrl):
        from chargehand.postgres.database import list_tenants  # noqa: PLC0415 - the driver is an extra

        return await list_tenants(place)
    return sorted(child.name for child in place.iterdir() if _has_stores(child)) if place.is_dir() else []


async def _server_pairs(source: Place, target: Place) -> list[_TenantPair]:
    for place in (source, target):
        if isinstance(place, PostgresUrl) and place.tenant != FIRST_TENANT:
            raise Invalid(f"{place} names one tenant, and --server means all; leave one of them out")
        if isinstance(place, Path) and place.is_file():
            raise Invalid(f"{place} is a file; with --server, name the folder of all data of a server")
    tenants = await _list_tenants(source)
    if not tenants:
        raise Refused(f"there are no tenants in {source}; name the folder, or the database, of a server")
    from chargehand.server.settings import check_tenant  # noqa: PLC0415 - the server is an extra

    pairs: list[_TenantPair] = []
    for tenant in sorted({*tenants, *await _list_tenants(target)}):
        check_tenant(tenant)  # it names a folder
        source_place = _of_tenant(source, tenant)
        pair = _tenant_pair(source_place, _of_tenant(target, tenant))
        if tenant not in tenants:  # then the target must have nothing of it
            pair = _TenantPair(_missing(pair.journal), _missing(pair.memory))
        pairs.append(pair)
    return pairs


def _missing(pair: _StorePair | None) -> _StorePair | None:
    return None if pair is None else _StorePair(pair.source, pair.target, is_there=False)


def _of_tenant(place: Place, tenant: str) -> Place:
    return place.of_tenant(tenant) if isinstance(place, PostgresUrl) else place / tenant


@contextmanager
def _open_keys(place: Place, *, create: bool = False) -> Generator["KeyStore | None"]:
    """The tokens of a server; None where there are none yet, and none are to be made."""
    from chargehand.server.middleware.gate import open_keys  # noqa: PLC0415 - the server is an extra
    from chargehand.server.settings import key_store_url  # noqa: PLC0415 - as above

    url = place if isinstance(place, PostgresUrl) else key_store_url(place)
    if isinstance(url, Path) and not url.exists() and not create:
        yield None
        return
    with closing(open_keys(url)) as store:
        yield store


def _list_keys(place: Place) -> "list[ApiKey]":
    with _open_keys(place) as store:
        return [] if store is None else list(store.all())


def _check_keys(source: Place, target: Place) -> None:
    wanted = _list_keys(source)
    for key in _list_keys(target):
        if key not in wanted:
            raise not_empty(str(target), f"token {key.id}", str(source))


def _copy_keys(source: Place, target: Place) -> None:
    present = _list_keys(target)
    missing = [key for key in _list_keys(source) if key not in present]
    if not missing:
        return
    with _open_keys(target, create=True) as store:
        assert store is not None, "it is made"
        for key in missing:
            store.add(key)


def _compare_keys(source: Place, target: Place) -> int:
    """How many there are."""
    wanted = _list_keys(source)
    if wanted != _list_keys(target):
        raise Corrupt(f"{source} and {target} have other tokens after the copy; make sure that no server uses them")
    return len(wanted)


# --- copying


class CopiedStores(Struct, frozen=True):
    """What both sides hold after a copy."""

    source: str
    target: str
    tenants: int
    runs: int
    entries: int
    examples: int
    things: int
    versions: int
    turns: int
    passages: int
    tokens: int


@asynccontextmanager
async def _journals(pair: _StorePair, *, create: bool = False) -> AsyncGenerator[tuple[JournalSide, JournalSide]]:
    """Both journals. Where one is not there, and is not to be created, it is an empty one."""
    source = await open_journal(pair.source if pair.is_there else MEMORY, create=False)
    try:
        # quicker: a loss of power leaves the beginning of the copy, and once both are compared all of it is on the disk
        durability = "process" if create else "machine"
        target = await open_journal(_present_target(pair, create=create), durability=durability)
        try:
            yield JournalSide(source, str(pair.source)), JournalSide(target, str(pair.target))
        finally:
            await target.close()
    finally:
        await source.close()


@asynccontextmanager
async def _memories(pair: _StorePair, *, create: bool = False) -> AsyncGenerator[tuple[MemorySide, MemorySide]]:
    """The same of catalogs."""
    source = await open_catalog(pair.source if pair.is_there else MEMORY)
    try:
        durability = "process" if create else "machine"
        target = await open_catalog(_present_target(pair, create=create), durability=durability)
        try:
            yield MemorySide(source, str(pair.source)), MemorySide(target, str(pair.target))
        finally:
            await target.close()
    finally:
        await source.close()


def _present_target(pair: _StorePair, *, create: bool) -> Place | str:
    return pair.target if create or isinstance(pair.target, PostgresUrl) or pair.target.exists() else MEMORY


async def _check(pairs: Sequence[_TenantPair]) -> None:
    """Raise before anything is written."""
    for pair in pairs:
        if pair.journal is not None:
            async with _journals(pair.journal) as journals:
                await check_target_journal(*journals)
        if pair.memory is not None:
            async with _memories(pair.memory) as memories:
                await check_target_memory(*memories)


async def _copy(pairs: Sequence[_TenantPair], report: ReportProgress) -> None:
    for pair in pairs:
        if pair.journal is not None and pair.journal.is_there:
            async with _journals(pair.journal, create=True) as journals:
                await copy_journal(*journals, report)
        if pair.memory is not None and pair.memory.is_there:
            async with _memories(pair.memory, create=True) as memories:
                await copy_memory(*memories, report)


async def _compare(
    pairs: Sequence[_TenantPair], report: ReportProgress
) -> tuple[list[CopiedJournal], list[CopiedMemory]]:
    journals: list[CopiedJournal] = []
    memories: list[CopiedMemory] = []
    for pair in pairs:
        if pair.journal is not None:
            async with _journals(pair.journal) as sides:
                journals.append(await compare_journals(*sides, report))
        if pair.memory is not None:
            async with _memories(pair.memory) as catalogs:
                memories.append(await compare_memories(*catalogs, report))
    return journals, memories


async def copy_stores(source: Place, target: Place, *, server: bool, report: ReportProgress) -> CopiedStores:
    """Copy all, and compare both sides. What is refused is refused before anything is written."""
    if source == target:
        raise Invalid(f"{source} cannot be copied to itself; name another target")
    if server:
        pairs = await _server_pairs(source, target)
        _check_keys(source, target)
    else:
        _check_source(source)
        pairs = [_tenant_pair(source, target)]
    await _check(pairs)
    await _copy(pairs, report)
    if server:
        _copy_keys(source, target)
    journals, memories = await _compare(pairs, report)
    return CopiedStores(
        source=str(source),
        target=str(target),
        tenants=len(pairs),
        runs=sum(copied.runs for copied in journals),
        entries=sum(copied.entries for copied in journals),
        examples=sum(copied.examples for copied in journals),
        things=sum(copied.things for copied in memories),
        versions=sum(copied.versions for copied in memories),
        turns=sum(copied.turns for copied in memories),
        passages=sum(copied.passages for copied in memories),
        tokens=_compare_keys(source, target) if server else 0,
    )


# --- the verb


def _run_copy(options: Namespace) -> int:
    source: Place = options.source
    target: Place = options.target
    with _progress(quiet=options.quiet) as report, StopSignals() as signals:
        try:
            copied = signals.run(copy_stores(source, target, server=options.server, report=report))
        except KeyboardInterrupt:
            Console(sys.stderr).line("stopped; the same command continues from here", "warn")
            raise
    if options.json:
        Console(sys.stdout).json(copied)
    elif not options.quiet:
        Console(sys.stdout).line(_summarise(copied, server=options.server), "good")
    return 0


@contextmanager
def _progress(*, quiet: bool) -> Generator[Callable[[str, int, int], None]]:
    if quiet:
        yield lambda _what, _done, _total: None
        return
    with progress_bar("copy") as show:
        yield show


def _summarise(copied: CopiedStores, *, server: bool) -> str:
    counts = {
        "runs": copied.runs,
        "entries": copied.entries,
        "route examples": copied.examples,
        "things in memory": copied.things,
        "versions of blocks": copied.versions,
        "turns": copied.turns,
        "passages": copied.passages,
    }
    if server:
        counts = {"tenants": copied.tenants, **counts, "tokens": copied.tokens}
    held = ", ".join(f"{what} {count:,}" for what, count in counts.items())
    return f"copied to {copied.target}; both sides are equal: {held}"


_PLACES: Options = {
    "source": {"metavar": "SOURCE", "type": store_place, "help": "what is copied: a folder, or a URL of PostgreSQL"},
    "target": {"metavar": "TARGET", "type": store_place, "help": "where it is copied to; nothing must be there yet"},
    "--server": {"action": "store_true", "help": "both hold all data of a server: every tenant, and tokens"},
    **shared("--json", "-q --quiet", "--no-color"),
}
_VERBS = {"copy": Verb("copy runs and memory, and compare both sides", _PLACES, _run_copy, _HELP)}
