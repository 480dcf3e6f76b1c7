"""A space of a catalog as records: read out page by page, and loaded. Every function runs within a transaction."""

from collections import defaultdict
from collections.abc import Sequence

from msgspec.structs import replace

from chargehand.memory.blocks import Block
from chargehand.memory.catalog import (
    KINDS,
    OWNERS,
    PREFIXES,
    ChangeRecord,
    GrantRecord,
    MemoryPage,
    MemoryRecord,
    PassageRecord,
    Position,
    SaidRecord,
    Section,
    ThingRecord,
    TurnRecord,
)
from chargehand.memory.conversations import Turn
from chargehand.memory.space import MemorySpace
from chargehand.memory.tables import Stored
from chargehand.memory.things import decode_thing

# --- reading


async def export(space: MemorySpace[Stored], section: Section, after: Position, limit: int) -> MemoryPage:
    if section == "things":
        rows = await space.things.listed(after[0], limit)
        things: list[MemoryRecord] = [ThingRecord(decode_thing(KINDS[kind], body)) for _, kind, body in rows]
        return MemoryPage(things, (rows[-1][0], 0) if rows else after)
    records: list[MemoryRecord] = []
    kinds = [PREFIXES[kind] for kind in OWNERS[section]]
    for number, which in await space.things.ids(kinds, after[0]):
        begin = after[1] if number == after[0] else 0
        numbered = await _read(space, section, number, which, after=begin, limit=limit - len(records))
        if numbered:
            records += [record for _, record in numbered]
            after = (number, numbered[-1][0])
        if len(records) >= limit:
            break
    return MemoryPage(records, after)


async def _read(
    space: MemorySpace[Stored], section: Section, number: int, which: str, *, after: int, limit: int
) -> Sequence[tuple[int, MemoryRecord]]:
    """The records that hang on a thing, each with its number there."""
    match section:
        case "grants":
            return await space.things.grants_of(number, which, after, limit)
        case "changes":
            return await space.changes.records(number, which, after, limit)
        case "turns":
            return await _turns(space, number, which, after, limit)
        case "said":
            keys = [] if after else await space.turns.keys(number)
            return [(1, SaidRecord(which, tuple(keys)))] if keys else []
        case "passages":
            (archive,) = await space.archives([which])
            return await space.passages.records(archive.stored, after, limit)
        case "things":
            return []


async def _turns(
    space: MemorySpace[Stored], number: int, speaker: str, after: int, limit: int
) -> list[tuple[int, TurnRecord]]:
    place = await space.turns.count(number, after)
    turns: list[tuple[int, TurnRecord]] = []
    for turn in await space.turns.listed(number, after, limit):
        place += 1
        upto = await space.turns.count(number, turn.upto) if turn.upto else 0
        turns.append((turn.number, TurnRecord(speaker, replace(turn, number=place, upto=upto))))
    return turns


# --- loading


async def load(space: MemorySpace[Stored], records: Sequence[MemoryRecord]) -> None:
    turns: defaultdict[str, list[Turn]] = defaultdict(list)
    passages: defaultdict[str, list[PassageRecord]] = defaultdict(list)
    for record in records:
        match record:
            case ThingRecord(thing):
                await space.things.add(thing)
            case GrantRecord(owner, thing, grant):
                await space.attach(owner, thing, grant)
            case ChangeRecord():
                await _load_change(space, record)
            case TurnRecord(speaker, turn):
                turns[speaker].append(turn)
            case SaidRecord(speaker, keys):
                await space.turns.add_keys(await space.speaker(speaker), keys)
            case PassageRecord(passage):
                passages[passage.archive].append(record)
    for speaker, spoken in turns.items():
        await _load_turns(space, speaker, spoken)
    for archive, inserted in passages.items():
        await _load_passages(space, archive, inserted)


async def _load_change(space: MemorySpace[Stored], record: ChangeRecord) -> None:
    version = record.change.version
    number = await space.need_number((PREFIXES[Block],), record.block)
    if not await space.changes.between(number, version, version):
        await space.changes.add(number, record.change, record.key, record.repeated)


async def _load_turns(space: MemorySpace[Stored], speaker: str, turns: Sequence[Turn]) -> None:
    number = await space.speaker(speaker, lock=True)
    numbers = await space.turns.numbers(number)
    new = [turn for turn in turns if turn.number > len(numbers)]
    numbers += await space.turns.new_numbers(len(new))
    written: list[Turn] = []
    for turn in new:
        # a summary that stands for no turn has a lower number than the first
        upto = numbers[turn.upto - 1] if turn.upto else numbers[0] - 1
        reached = upto if turn.role == "summary" else 0
        written.append(replace(turn, number=numbers[turn.number - 1], upto=reached))
    await space.turns.load(number, written)


async def _load_passages(space: MemorySpace[Stored], archive: str, records: Sequence[PassageRecord]) -> None:
    (opened,) = await space.archives([archive], lock=True)
    await space.write_passages(
        opened.stored,
        [record.passage for record in records],
        {place: record.vector for place, record in enumerate(records) if record.vector is not None},
        handle=next((record.handle for record in records if record.vector is not None), ""),
        now=0.0,
    )
