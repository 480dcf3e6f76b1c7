"""The `memory` section of a team file, what each worker may do with it, and the tools that need it or other workers.

Everything that is wrong is said of its place. Where memory is opened, and what its tools do, is not known here.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path as File

from msgspec import structs

from chargehand.agents.messages import MAIL, NEEDS_CONTACTS, NEEDS_TOOL, objections
from chargehand.agents.worker import Contacts
from chargehand.config.parts import Own, Parts, inside, within
from chargehand.config.schema import ArchiveShape, BlockShape, MemoryAccess, MemoryShape, WorkerShape
from chargehand.config.source import near
from chargehand.config.yaml import Path
from chargehand.errors import Invalid
from chargehand.memory.archives import Archive
from chargehand.memory.blocks import Access, Block, Grant
from chargehand.memory.catalog import Memory
from chargehand.memory.sources import source_files
from chargehand.text.names import listed
from chargehand.tools.remember import ARCHIVE_TOOLS, BLOCK_TOOLS
from chargehand.tools.remember import NAMES as MEMORY_TOOLS

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}\Z")
_HANDLE = re.compile(r"[A-Za-z0-9_.+-]+[:/]\S+\Z")
_MAX_LIMIT = 1_000_000
_LISTS: tuple[Access, ...] = ("read", "append", "write", "none")
NAMEABLE = (*MEMORY_TOOLS, *MAIL)
"""What needs no entry among the tools of the file: it is made where the memory and the team are."""
ALIASES = {"archive.search": "archival_memory_search", "archive.insert": "archival_memory_insert"}


def add_memory(parts: Parts) -> None:
    """The memory of a team and everybody's share of it. A team with a worker who remembers has one, said or not."""
    written = parts.team.memory
    remembers = any(not isinstance(worker, str) and worker.remembers for worker in parts.team.workers.values())
    if written is None and not remembers:
        return
    shape = written or MemoryShape()
    blocks = [_make_block(parts, label, block) for label, block in shape.blocks.items()]
    archives = [_make_archive(parts, name, archive) for name, archive in shape.archives.items()]
    sources = dict(_find_sources(parts, shape))
    parts.memory = Memory(_find_store(parts, shape.file), blocks, archives, sources=sources)


def _find_store(parts: Parts, written: str) -> File | str | None:
    if not written:
        return parts.elsewhere or parts.store
    named = None
    with parts.at("memory", "file"):
        named = within(parts.source.folder, written)
        if named.is_dir():
            raise Invalid(f"{written!r} is a folder; name a file, for example {written}/memory.db")
    return parts.elsewhere or named


# --- blocks


def _make_block(parts: Parts, label: str, written: BlockShape | str) -> Block:
    shape = BlockShape(value=written) if isinstance(written, str) else written
    path: Path = ("memory", "blocks", label)
    with parts.at(*path):
        check_name(label, "a block")
    value = parts.prose(path if isinstance(written, str) else (*path, "value"), shape.value)
    share = _shared(shape.share, "read")
    if not 1 <= shape.limit <= _MAX_LIMIT:
        parts.say((*path, "limit"), f"is {shape.limit}; it must be between 1 and {_MAX_LIMIT} characters")
    elif len(value) > shape.limit:
        sizes = f"{len(value):,} characters, and its limit is {shape.limit:,}"
        parts.say(path, f"its value has {sizes}; shorten it, or raise limit")
    _grant(parts, path, label, shape)
    if shape.read_only and (share in ("append", "write") or shape.append or shape.write):
        parts.say(path, "is read_only, and yet somebody may change it; take read_only away, or share it to read")
    return Block(
        label=label,
        value=value,
        description=shape.description,
        limit=shape.limit,
        read_only=shape.read_only,
        trusted=shape.trusted,
        share=share,
        tags=shape.tags,
    )


def _grant(parts: Parts, path: Path, label: str, shape: BlockShape) -> None:
    """What workers have of their own: access from one of the lists, and whether text from outside may go in."""
    share = _shared(shape.share, "read")
    given = dict(_read_lists(parts, path, shape))
    for worker, access in given.items():
        _own(parts, worker).blocks[label] = access
    if shape.tainted and not shape.trusted:
        words = "says who may put text from outside into it, and anybody may: it is not trusted; add  trusted: true"
        parts.say((*path, "tainted"), words, grave=False)
    for worker in _known_workers(parts, (*path, "tainted"), shape.tainted):
        access = given.get(worker, share)
        if access in ("none", "read"):
            words = f"{worker!r} may not change it at all; list it under append or write as well"
            parts.say((*path, "tainted"), words)
        _own(parts, worker).blocks[label] = Grant(access, tainted=True)


# --- archives


def _make_archive(parts: Parts, name: str, written: ArchiveShape | str) -> Archive:
    shape = ArchiveShape(description=written) if isinstance(written, str) else written
    path: Path = ("memory", "archives", name)
    with parts.at(*path):
        check_name(name, "an archive")
    check_embedding(parts, (*path, "embed"), shape.embed)
    for worker, access in _read_lists(parts, path, shape):
        _own(parts, worker).archives[name] = access
    return Archive(
        name=name,
        description=shape.description,
        embedding=shape.embed,
        share=_shared(shape.share, "write"),
        tags=shape.tags,
    )


def is_handle(embed: str) -> bool:
    """Whether this could name an embedding model."""
    return _HANDLE.match(embed) is not None


def check_embedding(parts: Parts, path: Path, embed: str) -> None:
    if embed not in ("auto", "words") and not is_handle(embed):
        words = f"is {embed[:60]!r}; write auto, words, local:minilm, local:multilingual or a handle such as"
        parts.say(path, f"{words} openai:text-embedding-3-small{near(embed, ('auto', 'words'))}")


def _find_sources(parts: Parts, shape: MemoryShape) -> Iterator[tuple[str, File]]:
    """The texts that are put into an archive when it is opened."""
    for name, archive in shape.archives.items():
        if isinstance(archive, ArchiveShape) and archive.add:
            with parts.at("memory", "archives", name, "add"):
                file = inside(parts.source.folder, archive.add)
                try:
                    source_files(file)
                except Invalid as error:
                    raise Invalid(str(error).replace(str(file), repr(archive.add))) from error
                yield name, file


def archives_of(parts: Parts, worker: str) -> dict[str, Access] | None:
    """How a worker may use each archive it may use at all; None: all of them, as they are shared."""
    own = parts.own.get(worker)
    if own is None or not own.archives or parts.memory is None:
        return None
    access: dict[str, Access] = {
        archive.name: own.archives.get(archive.name, archive.share) for archive in parts.memory.archives
    }
    return {name: how for name, how in access.items() if how != "none"}


# --- what blocks and archives have in common


def _shared(written: MemoryAccess, everything: Access) -> Access:
    return everything if written == "all" else written


def check_name(name: str, what: str) -> None:
    """Raise Invalid for a label or a name that cannot be used."""
    if not _NAME.match(name):
        raise Invalid(f"{name[:70]!r} is no name for {what}; use up to 64 letters, digits, _, - and .")


def _read_lists(parts: Parts, path: Path, shape: BlockShape | ArchiveShape) -> Iterator[tuple[str, Access]]:
    """Each worker of the lists once; in two of them is one too many."""
    seen: dict[str, str] = {}
    for access in _LISTS:
        names: Sequence[str] = getattr(shape, access, ())
        for worker in _known_workers(parts, (*path, access), names):
            if worker in seen:
                where = f"under {seen[worker]} already" if seen[worker] != access else "here twice"
                parts.say((*path, access), f"{worker!r} is {where}; name it in one list, once")
                continue
            seen[worker] = access
            yield worker, access


def _known_workers(parts: Parts, path: Path, names: Sequence[str]) -> Iterator[str]:
    workers = parts.team.workers
    for index, name in enumerate(names):
        if name in workers:
            yield name
        elif name == "supervisor":
            parts.say((*path, index), "the supervisor may do anything here; name workers only")
        else:
            hint = near(name, workers) or f"; there are {listed(workers, 8) or 'none'}"
            parts.say((*path, index), f"there is no worker {name!r}{hint}")


def _own(parts: Parts, worker: str) -> Own:
    return parts.own.setdefault(worker, Own())


# --- tools for memory and messages, which a worker may name without an entry


def named_tools(parts: Parts, path: Path, shape: WorkerShape) -> tuple[str, ...]:
    """The tools for memory and messages among a worker's, by their own names; what is missing for them is said."""
    named: dict[str, None] = {}
    for index, written in enumerate(shape.tools):
        name = ALIASES.get(written, written)
        if name not in NAMEABLE or written in parts.team.tools:
            continue
        if name in named:
            parts.say((*path, index), "is here twice; name it once")
        elif name in MAIL:
            if len(parts.team.workers) < 2:
                parts.say((*path, index), f"{name} has nobody to write to: there is no other worker", grave=False)
        elif name not in given_tools(parts, shape):
            kind = "archives" if name in ARCHIVE_TOOLS else "blocks"
            need = f"needs something to work on; write  memory:  and under it  {kind}:  with a name"
            if name == "conversation_search":
                need = "searches what this worker remembers; add  remembers: true"
            parts.say((*path, index), f"{written} {need}")
        named[name] = None
    return tuple(named)


def given_tools(parts: Parts, shape: WorkerShape) -> list[str]:
    """All that a worker of this team may have, named or not: rules may speak of them."""
    tools = [name for name in MAIL if name in shape.tools]
    if parts.memory is not None and parts.memory.blocks:
        tools += BLOCK_TOOLS
    if parts.memory is not None and parts.memory.archives:
        tools += ARCHIVE_TOOLS
    if shape.remembers:
        tools.append("conversation_search")
    return tools


def contacts_of(parts: Parts, path: Path, name: str, shape: WorkerShape) -> Contacts | tuple[str, ...]:
    """Whom a worker may write to; what is missing for it, or means nobody, is said of its place."""
    written = shape.contacts
    place = (*path, "contacts")
    settings = written if isinstance(written, Contacts) else Contacts(written)
    contacts = structs.replace(settings, to=tuple(settings.to))
    sending = [(index, tool) for index, tool in enumerate(shape.tools) if tool in MAIL]
    if sending and not contacts.to:
        index, tool = sending[0]
        parts.say((*path, "tools", index), f"{tool} needs contacts: {NEEDS_CONTACTS}")
    elif contacts.to and not sending:
        parts.say(place, f"has no tool to write to them; {NEEDS_TOOL}")
    tags = {other: () if isinstance(worker, str) else worker.tags for other, worker in parts.team.workers.items()}
    if isinstance(written, Contacts):
        place = (*place, "to")
    for index, problem in objections(contacts, name, tags):
        parts.say((*place, index), problem)
    return contacts if contacts.max_messages is not None else tuple(contacts.to)
