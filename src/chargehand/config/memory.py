"""The `memory` section of a team file: blocks, archives, and what each worker may do with them.

Everything that is wrong is said of its place. Where memory is opened, and what its tools do, is not known here.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path as File

from chargehand.config.findings import Path, near
from chargehand.config.folder import inside, within
from chargehand.config.parts import Own, Parts
from chargehand.config.shapes import ArchiveShape, BlockShape, MemoryAccess, MemoryShape
from chargehand.errors import Invalid
from chargehand.memory.archives import Archive
from chargehand.memory.blocks import LIMIT, Access, Block, Grant
from chargehand.memory.declared import Memory
from chargehand.memory.sources import source_files

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}\Z")
_HANDLE = re.compile(r"[A-Za-z0-9_.+-]+[:/]\S+\Z")
_MOST = 1_000_000
_LISTS: tuple[Access, ...] = ("read", "append", "write", "none")


def add_memory(parts: Parts) -> None:
    """The memory of a team and everybody's share of it. A team with a worker who remembers has one, said or not."""
    written = parts.team.memory
    remembers = any(not isinstance(one, str) and one.remembers for one in parts.team.workers.values())
    if written is None and not remembers:
        return
    shape = written or MemoryShape()
    blocks = [_block(parts, label, one) for label, one in shape.blocks.items()]
    archives = [_archive(parts, name, one) for name, one in shape.archives.items()]
    sources = dict(_sources(parts, shape))
    parts.memory = Memory(_store(parts, shape), blocks, archives, sources=sources)


def _store(parts: Parts, shape: MemoryShape) -> File | str | None:
    if not shape.file:
        return parts.elsewhere or parts.store
    named = parts.made(("memory", "file"), lambda: within(parts.source.folder, shape.file), None)
    if named is not None and named.is_dir():
        parts.say(("memory", "file"), f"{shape.file!r} is a folder; name a file, for example {shape.file}/memory.db")
    return parts.elsewhere or named


# --- blocks


def _block(parts: Parts, label: str, written: BlockShape | str) -> Block:
    shape = BlockShape(value=written) if isinstance(written, str) else written
    path: Path = ("memory", "blocks", label)
    parts.made(path, lambda: check_name(label, "a block"), None)
    value = parts.prose(path if isinstance(written, str) else (*path, "value"), shape.value)
    share = _shared(shape.share, "read")
    limit = _limit(parts, path, shape, len(value))
    _grant(parts, path, label, shape)
    if shape.read_only and (share in ("append", "write") or shape.append or shape.write):
        parts.say(path, "is read_only, and yet somebody may change it; take read_only away, or share it to read")
    return Block(
        label=label,
        value=value,
        description=shape.description,
        limit=limit,
        read_only=shape.read_only,
        trusted=shape.trusted,
        share=share,
        tags=shape.tags,
    )


def _limit(parts: Parts, path: Path, shape: BlockShape, size: int) -> int:
    limit = LIMIT if shape.limit is None else int(shape.limit)
    if not 1 <= limit <= _MOST:
        parts.say((*path, "limit"), f"is {limit}; it must be between 1 and {_MOST} characters")
    elif size > limit:
        parts.say(path, f"its value has {size:,} characters, and its limit is {limit:,}; shorten it, or raise limit")
    return limit


def _grant(parts: Parts, path: Path, label: str, shape: BlockShape) -> None:
    """What workers have of their own: access from one of the lists, and whether text from outside may go in."""
    share = _shared(shape.share, "read")
    given = dict(_listed(parts, path, shape))
    for worker, access in given.items():
        _own(parts, worker).blocks[label] = access
    if shape.tainted and not shape.trusted:
        said = "says who may put text from outside into it, and anybody may: it is not trusted; add  trusted: true"
        parts.say((*path, "tainted"), said, grave=False)
    for worker in _known(parts, (*path, "tainted"), shape.tainted):
        access = given.get(worker, share)
        if access in ("none", "read"):
            said = f"{worker!r} may not change it at all; list it under append or write as well"
            parts.say((*path, "tainted"), said)
        _own(parts, worker).blocks[label] = Grant(access, tainted=True)


# --- archives


def _archive(parts: Parts, name: str, written: ArchiveShape | str) -> Archive:
    shape = ArchiveShape(description=written) if isinstance(written, str) else written
    path: Path = ("memory", "archives", name)
    parts.made(path, lambda: check_name(name, "an archive"), None)
    if shape.embed not in ("auto", "words") and not is_handle(shape.embed):
        said = f"is {shape.embed[:60]!r}; write auto, words, local:minilm, local:multilingual or a handle such as"
        parts.say((*path, "embed"), f"{said} openai:text-embedding-3-small{near(shape.embed, ('auto', 'words'))}")
    for worker, access in _listed(parts, path, shape):
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


def _sources(parts: Parts, shape: MemoryShape) -> Iterator[tuple[str, File]]:
    for name, one in shape.archives.items():
        if isinstance(one, ArchiveShape) and one.add:
            path = ("memory", "archives", name, "add")
            found = parts.made(path, lambda one=one: _source(parts.source.folder, one.add), None)
            if found is not None:
                yield name, found


def _source(folder: File, written: str) -> File:
    found = inside(folder, written)
    try:
        source_files(found)
    except Invalid as error:
        raise Invalid(str(error).replace(str(found), repr(written))) from error
    return found


def archives_of(parts: Parts, worker: str) -> dict[str, Access] | None:
    """How a worker may use each archive it may use at all; None: all of them, as they are shared."""
    own = parts.own.get(worker)
    if own is None or not own.archives or parts.memory is None:
        return None
    access: dict[str, Access] = {one.name: own.archives.get(one.name, one.share) for one in parts.memory.archives}
    return {name: how for name, how in access.items() if how != "none"}


# --- what blocks and archives have in common


def _shared(written: MemoryAccess, everything: Access) -> Access:
    return everything if written == "all" else written


def is_name(name: str) -> bool:
    """Whether this can be a label or the name of an archive."""
    return _NAME.match(name) is not None


def check_name(name: str, what: str) -> None:
    """Raise Invalid for a label or a name that cannot be used."""
    if not is_name(name):
        raise Invalid(f"{name[:70]!r} is no name for {what}; use up to 64 letters, digits, _, - and .")


def _listed(parts: Parts, path: Path, shape: BlockShape | ArchiveShape) -> Iterator[tuple[str, Access]]:
    """Each worker of the lists once; in two of them is one too many."""
    seen: dict[str, str] = {}
    for access in _LISTS:
        names: Sequence[str] = getattr(shape, access, ())
        for worker in _known(parts, (*path, access), names):
            if worker in seen:
                where = f"under {seen[worker]} already" if seen[worker] != access else "here twice"
                parts.say((*path, access), f"{worker!r} is {where}; name it in one list, once")
                continue
            seen[worker] = access
            yield worker, access


def _known(parts: Parts, path: Path, names: Sequence[str]) -> Iterator[str]:
    workers = parts.team.workers
    for at, name in enumerate(names):
        if name in workers:
            yield name
        elif name == "supervisor":
            parts.say((*path, at), "the supervisor may do anything here; name workers only")
        else:
            hint = near(name, workers) or f"; there are {', '.join(list(workers)[:8]) or 'none'}"
            parts.say((*path, at), f"there is no worker {name!r}{hint}")


def _own(parts: Parts, worker: str) -> Own:
    return parts.own.setdefault(worker, Own())
