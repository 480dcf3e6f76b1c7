"""`chargehand memory export` and `import`: passages as JSON lines, and back. Vectors can be made again."""

import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TextIO

import msgspec
from msgspec import Struct, field, structs

from chargehand.cli.console import Console, clean_json
from chargehand.cli.memory_space import Space
from chargehand.cli.phrases import counted
from chargehand.cli.progress import ProgressLine, told_if_stopped
from chargehand.errors import Invalid, Refused
from chargehand.memory.archives import Archive, Inserted, Passage
from chargehand.memory.editing import check_text
from chargehand.memory.origin import Origin

_PAGE = 500
_LONGEST = 4 << 20
_MOST_PARTS = 1_000_000
_LATEST = 253_402_300_799.0  # the end of the year 9999


class Line(Struct, frozen=True, forbid_unknown_fields=True):
    """One passage in a file. `archive` is the name it was written from."""

    text: str
    archive: str = ""
    id: str = ""
    tags: tuple[str, ...] = ()
    metadata: dict[str, object] = field(default_factory=dict[str, object])
    origin: Origin = Origin()
    created: float = 0.0
    document: str = ""
    part: int = 0


# --- out


async def export(space: Space) -> int:
    """Page by page: an archive need not fit into this process."""
    options = space.options
    if bool(options.archive) == bool(options.all):
        raise Invalid("say which archive to export, or --all of them; not both")
    chosen = await space.all(Archive) if options.all else [await space.archive(options.archive)]
    if options.output is None:
        console = Console(sys.stdout)
        async for text, _ in _lines(space, chosen):
            console.line(clean_json(text))
        return 0
    written = await _write(space, chosen, Path(options.output))
    space.note(f"written: {options.output}, {counted(written, 'passage')}")
    return 0


async def _write(space: Space, chosen: list[Archive], path: Path) -> int:
    """To a file beside it first: what was there is kept until all is written."""
    partial = path.with_name(f".{path.name}.partial")
    total = sum([(await space.catalog.count(one.id))[0] for one in chosen])
    line, written = ProgressLine(path.name, still=True), 0
    try:
        with partial.open("w", encoding="utf-8") as file:
            async for text, _ in _lines(space, chosen):
                _put(file, text)
                written += 1
                if written % _PAGE == 0:
                    line.show(f"{written:,} of {counted(total, 'passage')}", written, total)
        partial.replace(path)
    except OSError as error:
        raise Invalid(f"{path} cannot be written: {error.strerror}; name another file with -o") from error
    finally:
        line.end()
        partial.unlink(missing_ok=True)
    return written


def _put(file: TextIO, text: str) -> None:
    file.write(text + "\n")


async def _lines(space: Space, chosen: list[Archive]) -> AsyncIterator[tuple[str, Archive]]:
    for archive in chosen:
        after = ""
        while page := await space.catalog.passages(archive.id, after=after, limit=_PAGE):
            for one in page:
                line = Line(
                    one.text, archive.name, one.id, one.tags, one.metadata, one.origin, one.created, one.document,
                    one.part,
                )  # fmt: skip
                yield msgspec.json.encode(line).decode(), archive
            after = page[-1].id


# --- in


async def read_back(space: Space) -> int:
    """All of the file is checked before anything is written. Of a file with several archives, only this one's."""
    options = space.options
    path, name = Path(options.file), str(options.archive)
    total, names = 0, set[str]()
    for line in _read(path):
        total += 1
        names.add(line.archive)
    if len(names) > 1 and name not in names:
        raise Invalid(f"{path} holds {', '.join(sorted(names)[:8])} and nothing of {name!r}; name one of them")
    archive = await space.archive(name, create=options.create)
    new = known = 0
    progress = ProgressLine(archive.name, still=True)
    batch: list[Passage] = []
    with told_if_stopped(progress, lambda: f"at least {counted(new + known, 'passage')} of {archive.name} kept"):
        for number, line in enumerate(_read(path), 1):
            if len(names) == 1 or line.archive == name:
                batch.append(_passage(line))
            if batch and (len(batch) == _PAGE or number == total):
                done = await _insert(space, archive, batch)
                new += sum(one.new for one in done)
                known += sum(not one.new for one in done)
                batch = []
                progress.show(f"{number:,} of {counted(total, 'line')}", number, total)
    if options.json:
        return space.show({"archive": archive.name, "new": new, "known": known, "other": total - new - known})
    had = f", {known:,} were there already" if known else ""
    other = f", {total - new - known:,} of other archives left out" if total > new + known else ""
    space.note(f"{archive.name}: {counted(new, 'new passage')}{had}{other}", "good")
    if new and archive.embedding != "words":
        space.note(f"to compare meanings, make their vectors: chargehand memory embed {archive.name}", "dim")
    return 0


async def _insert(space: Space, archive: Archive, batch: list[Passage]) -> list[Inserted]:
    """With the ids of the file, so that what names them finds them again; new ones where those are taken here."""
    try:
        return await space.catalog.insert(archive.id, batch)
    except Refused:
        return await space.catalog.insert(archive.id, [structs.replace(one, id="") for one in batch])


def _passage(line: Line) -> Passage:
    return Passage(
        line.text, line.tags, line.metadata, line.origin, line.created, line.id, document=line.document, part=line.part
    )


def _read(path: Path) -> Iterator[Line]:
    try:
        with path.open("rb") as file:
            number = 0
            while body := file.readline(_LONGEST + 1):
                number += 1
                if len(body) > _LONGEST:
                    raise Invalid(f"{path}, line {number}: longer than {_LONGEST:,} bytes; is this what export wrote?")
                if body.strip():
                    yield _decoded(path, number, body)
    except OSError as error:
        raise Invalid(f"{path} cannot be read: {error.strerror}; name a file that export wrote") from error


def _decoded(path: Path, number: int, body: bytes) -> Line:
    try:
        line = msgspec.json.decode(body, type=Line)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise Invalid(f"{path}, line {number}: {error}; name a file that `chargehand memory export` wrote") from error
    if problem := _problem(line):
        raise Invalid(f"{path}, line {number}: {problem}; put it right, or take the line out")
    return line


def _problem(line: Line) -> str:
    """What keeps a passage from being kept, found before the first one is."""
    if not line.text.strip():
        return "its text is empty"
    try:
        check_text(line.text)
    except Invalid as error:
        return str(error).partition(";")[0]
    if not all(tag.strip() for tag in line.tags):
        return "one of its tags is empty"
    if not 0 <= line.part <= _MOST_PARTS:
        return f"it is part {line.part} of a text, and parts count from 0"
    return "" if 0 <= line.created <= _LATEST else f"it was created at {line.created}, which is no time since 1970"
