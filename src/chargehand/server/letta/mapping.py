"""From what is kept to what `letta-client` reads, and back. Pure: nothing is looked up here."""

from typing import TypeVar, cast

from msgspec import UNSET, UnsetType, structs

from chargehand.memory.archives import Archive, Hit, Passage
from chargehand.memory.blocks import LIMIT, Block
from chargehand.server.letta.shapes import (
    ArchiveChange,
    ArchiveSent,
    ArchiveTold,
    BlockChange,
    BlockSent,
    BlockTold,
    FoundTold,
    PassageSent,
    PassageTold,
    moment,
)
from chargehand.server.problem import Problem
from chargehand.terms.policy import Instant
from chargehand.text.dates import parse_instant

Value = TypeVar("Value")
_HIDDEN = "letta.hidden"


def given(sent: Value | UnsetType | None, usual: Value) -> Value:
    """What was sent, if anything was; null counts as nothing."""
    return usual if sent is None or sent is UNSET else cast("Value", sent)


def items(kept: object) -> list[object]:
    """What a list in somebody's settings holds; nothing if it is none."""
    return cast("list[object]", kept) if isinstance(kept, list) else []


def instant(text: str, name: str) -> Instant:
    """A time that a client wrote; without a zone it is UTC."""
    try:
        return parse_instant(text)
    except ValueError as error:
        raise Problem(422, "invalid", f"{name} is {text[:60]!r}, which is no ISO 8601 time") from error


# --- blocks


def block_made(sent: BlockSent) -> Block:
    metadata = dict(sent.metadata or {})
    if sent.hidden:
        metadata[_HIDDEN] = True
    return Block(
        sent.label,
        sent.value,
        description=sent.description or "",
        limit=LIMIT if sent.limit is None else sent.limit,
        read_only=bool(sent.read_only),
        tags=tuple(sent.tags or ()),
        metadata=metadata,
        share="write",
        trusted=True,  # what a client writes into a persona or guidelines is meant to be followed
    )


def block_changed(block: Block, sent: BlockChange) -> Block:
    """The block with new fields; a new value is an edit, and not made here."""
    metadata = dict(given(sent.metadata, block.metadata))
    if sent.hidden is not UNSET:
        metadata[_HIDDEN] = bool(sent.hidden)
    return structs.replace(
        block,
        label=given(sent.label, block.label),
        description=given(sent.description, block.description),
        limit=given(sent.limit, block.limit),
        read_only=given(sent.read_only, block.read_only),
        tags=tuple(given(sent.tags, block.tags)),
        metadata=metadata,
    )


def is_hidden(block: Block) -> bool:
    return bool(block.metadata.get(_HIDDEN))


def block_told(block: Block) -> BlockTold:
    metadata = {name: value for name, value in block.metadata.items() if name != _HIDDEN}
    return BlockTold(
        id=block.id,
        value=block.value,
        label=block.label,
        limit=block.limit,
        description=block.description or None,
        read_only=block.read_only,
        tags=block.tags,
        metadata=metadata,
        version=block.version,
        hidden=True if is_hidden(block) else None,
        tainted=block.tainted,
        untainted=block.untainted,
    )


# --- archives and passages


def archive_made(sent: ArchiveSent) -> Archive:
    """An embedding that is not ours to have is the one that is: texts are found by it, or by words."""
    return Archive(sent.name, sent.description or "", metadata=dict(sent.metadata or {}))


def archive_changed(archive: Archive, sent: ArchiveChange) -> Archive:
    name = given(sent.name, archive.name)
    does = given(sent.description, archive.description)
    return structs.replace(archive, name=name, description=does)


def archive_told(archive: Archive) -> ArchiveTold:
    return ArchiveTold(
        id=archive.id,
        name=archive.name,
        description=archive.description or None,
        created_at=moment(archive.created),
        updated_at=moment(archive.updated),
        metadata=archive.metadata,
        embedding=archive.embedding,
    )


def passage_made(sent: PassageSent) -> Passage:
    created = instant(sent.created_at, "created_at") if sent.created_at else 0.0
    return Passage(sent.text, tuple(sent.tags or ()), dict(sent.metadata or {}), created=created)


def passage_told(passage: Passage) -> PassageTold:
    return PassageTold(
        id=passage.id,
        text=passage.text,
        archive_id=passage.archive,
        tags=passage.tags,
        metadata=passage.metadata,
        created_at=moment(passage.created),
    )


def hit_told(hit: Hit) -> FoundTold:
    one = hit.passage
    relevance = {"score": round(hit.score, 6), "meaning": hit.meaning, "why": hit.why}
    return FoundTold(id=one.id, content=one.text, timestamp=moment(one.created), tags=one.tags, relevance=relevance)
