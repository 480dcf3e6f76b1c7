"""Copying a catalog into another, of any kind, with all its spaces, and comparing the two."""

from itertools import zip_longest

from msgspec import Struct

from chargehand.errors import Corrupt
from chargehand.journal.copy import ReportProgress, not_empty
from chargehand.memory.catalog import (
    SECTIONS,
    START,
    Catalog,
    ChangeRecord,
    GrantRecord,
    MemoryRecord,
    PassageRecord,
    SaidRecord,
    Section,
    ThingRecord,
    TurnRecord,
)

_BATCH = 300
"""Records that are read, or kept, at once."""


class MemorySide(Struct, frozen=True):
    """A catalog that is copied or compared. `place` is how people name it."""

    catalog: Catalog
    place: str


class CopiedMemory(Struct, frozen=True):
    """What both sides hold after a copy."""

    things: int = 0
    versions: int = 0
    turns: int = 0
    passages: int = 0


class _Difference(Exception):
    """Two sections are not the same; the record is the first that one of them has, or has in another form."""

    def __init__(self, record: MemoryRecord) -> None:
        super().__init__()
        self.record = record


async def check_target_memory(source: MemorySide, target: MemorySide) -> None:
    """Raise unless the target holds the beginning of the copy, or nothing."""
    for space in await target.catalog.spaces():
        for section in SECTIONS:
            try:
                await _compare(source.catalog.of(space), target.catalog.of(space), section, whole=False)
            except _Difference as difference:
                present = f"{_describe(difference.record)} in its memory (space {space!r})"
                raise not_empty(target.place, present, source.place) from None


async def copy_memory(source: MemorySide, target: MemorySide, report: ReportProgress) -> None:
    """Copy what the target has not yet. The target was checked."""
    for space in await source.catalog.spaces():
        for section in SECTIONS:
            await _copy_section(source.catalog.of(space), target.catalog.of(space), section, report)


async def compare_memories(source: MemorySide, target: MemorySide, report: ReportProgress) -> CopiedMemory:
    """Read both again; Corrupt, with the name of the thing, unless they hold the same."""
    counts = dict.fromkeys(SECTIONS, 0)
    for space in sorted({*await source.catalog.spaces(), *await target.catalog.spaces()}):
        for section in SECTIONS:
            try:
                count = await _compare(source.catalog.of(space), target.catalog.of(space), section, whole=True)
            except _Difference as difference:
                raise Corrupt(
                    f"{source.place} and {target.place} differ after the copy: {_describe(difference.record)} in the "
                    f"memory (space {space!r}). Do not use the target; make sure that nothing writes to either of "
                    "them, empty the target and copy again"
                ) from None
            counts[section] += count
            report(f"{section} compared", counts[section], 0)
    return CopiedMemory(
        things=counts["things"], versions=counts["changes"], turns=counts["turns"], passages=counts["passages"]
    )


async def _copy_section(source: Catalog, target: Catalog, section: Section, report: ReportProgress) -> None:
    present = await _count(target, section)
    read = 0
    after = START
    while True:
        page = await source.export(section, after=after, limit=_BATCH)
        missing = page.records[max(0, present - read) :]
        if missing:
            await target.load(missing)
        read += len(page.records)
        report(section, read, 0)
        if len(page.records) < _BATCH:
            return
        after = page.position


async def _count(catalog: Catalog, section: Section) -> int:
    count = 0
    after = START
    while True:
        page = await catalog.export(section, after=after, limit=_BATCH)
        count += len(page.records)
        if len(page.records) < _BATCH:
            return count
        after = page.position


async def _compare(source: Catalog, target: Catalog, section: Section, *, whole: bool) -> int:
    """How many records both have; the target may end before the source unless it is `whole`."""
    count = 0
    after = START
    target_after = START
    while True:
        page = await source.export(section, after=after, limit=_BATCH)
        target_page = await target.export(section, after=target_after, limit=_BATCH)
        for record, present in zip_longest(page.records, target_page.records):
            if present is None and not whole:
                return count
            if record != present:
                raise _Difference(record if present is None else present)
            count += 1
        if len(page.records) < _BATCH:
            return count
        after = page.position
        target_after = target_page.position


def _describe(record: MemoryRecord) -> str:
    """What a record is, for people."""
    match record:
        case ThingRecord(thing):
            return thing.id
        case GrantRecord(owner, thing):
            return f"the grant of {owner} on {thing}"
        case ChangeRecord(block, change):
            return f"version {change.version} of {block}"
        case TurnRecord(speaker, turn):
            return f"turn {turn.number} of {speaker}"
        case SaidRecord(speaker):
            return f"what was said under keys to {speaker}"
        case PassageRecord(passage):
            return f"{passage.id} of {passage.archive}"
