"""`chargehand memory`: the blocks and archives of a team, for people. Works beside a run that uses the same file."""

import re
import sys
from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import msgspec
from msgspec import Struct, field, structs

from chargehand.cli import USUAL_MEMORY
from chargehand.cli.console import (
    Console,
    ProgressLine,
    Tone,
    clean,
    clean_json,
    clean_lines,
    print_table,
    report_if_stopped,
    short,
)
from chargehand.cli.format import ago, bar, counted, now, size_of, when
from chargehand.cli.memory_session import MemorySession, describe_origin, find_memory, open_session
from chargehand.cli.signals import Termination
from chargehand.errors import Invalid, Refused, Unknown
from chargehand.memory.archives import Archive, Filter, Hit, Inserted, Passage
from chargehand.memory.blocks import Block, Change, Edit, Restore, Rethink
from chargehand.memory.editing import check_text
from chargehand.memory.origin import Origin
from chargehand.memory.sources import KINDS, read_sources

_MAX_INPUT = 1 << 20
_MAX_CHANGE = 80  # characters shown of a change
_NEARLY_FULL = 0.9
_MAX_HITS = 100
_MAX_HIT = 400  # characters shown of a passage
_SAMPLE = 200  # passages that the size of an archive is estimated from
_BATCH = 16  # texts added between two reports of progress
_PAGE = 500
_MAX_LINE = 4 << 20
_MAX_PARTS = 1_000_000
_LAST_MOMENT = 253_402_300_799.0  # the end of the year 9999
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_CREATES = ("set", "add", "import")


# --- options


def add_memory(parser: ArgumentParser) -> None:
    parser.epilog = "For deleting, patching, tags and conversations see docs/memory.md, In Python.\n\n" + (
        parser.epilog or ""
    )
    _add_common(parser, nested=False)
    verbs = parser.add_subparsers(dest="what", metavar="VERB", title="verbs")

    def add_verb(name: str, about: str) -> ArgumentParser:
        made = verbs.add_parser(name, help=about, description=about[:1].upper() + about[1:] + ".")
        _add_common(made, nested=True)
        return made

    _add_block_verbs(add_verb)
    _add_archive_verbs(add_verb)


def _add_common(parser: ArgumentParser, *, nested: bool) -> None:
    unset: object = SUPPRESS if nested else None  # what was said before the nested verb must stand
    off: object = SUPPRESS if nested else False
    about = "a team file or its folder (default: the nearest team.yaml upwards, else the bundled team)"
    parser.add_argument("--team", metavar="PATH", default=unset, help=about)
    about = f"the SQLite file (default: as the team says, else {USUAL_MEMORY})"
    parser.add_argument("--memory", metavar="PATH", type=Path, default=unset, help=about)
    parser.add_argument("--json", action="store_true", default=off, help="one JSON document")
    parser.add_argument("--no-color", action="store_true", default=off, help="no colours")


_AddVerb = Callable[[str, str], ArgumentParser]


def _add_block_verbs(add_verb: _AddVerb) -> None:
    add_verb("blocks", "every block: how full it is, its version, who changed it last")
    get = _with_label(add_verb("get", "the text of a block"))
    get.add_argument("--version", metavar="N", type=_count, help="as it was in this version")
    change = _with_label(add_verb("set", "replace the whole text of a block"))
    about = "- for standard input; put -- before a text that begins with -"
    change.add_argument("text", metavar="TEXT", nargs="+", help=about)
    change.add_argument("--expect", metavar="N", type=_count, help="only if this is the version that is there")
    change.add_argument("--create", action="store_true", help="make the block where there is none of this name")
    history = _with_label(add_verb("history", "every change of a block, the latest first"))
    history.add_argument("--limit", metavar="N", type=_count, default=20, help="at most so many (default 20)")
    restore = _with_label(add_verb("restore", "bring the text of an earlier version back"))
    restore.add_argument("version", metavar="VERSION", type=_count, help="its number; `memory history` lists them")


def _add_archive_verbs(add_verb: _AddVerb) -> None:
    add_verb("archives", "every archive: how many passages, how many of them with vectors, which model")
    search = _with_archive(add_verb("search", "the best passages of an archive for a question, and why"))
    search.add_argument("query", metavar="QUERY", nargs="+", help="what you want to know, in words")
    search.add_argument("--tag", metavar="T", action="append", default=[], help="with this tag; may be repeated")
    search.add_argument("--match", choices=("any", "all"), default="any", help="one of the tags, or all (default any)")
    search.add_argument("--since", metavar="TIME", type=_since, help="not older: 2026-05-17, 2026-05-17T09:30 or 7d")
    search.add_argument("--until", metavar="TIME", type=_until, help="not younger")
    search.add_argument("--source", metavar="TEXT", default="", help="only what was found there")
    search.add_argument("--limit", metavar="N", type=_count, default=5, help="at most so many (default 5)")
    add = _with_archive(add_verb("add", "put texts or files into an archive"))
    add.add_argument("text", metavar="TEXT|FILE", nargs="+", help="words, or files and folders; - for standard input")
    add.add_argument("--tag", metavar="T", action="append", default=[], help="a word to find it by; may be repeated")
    add.add_argument("--source", metavar="TEXT", default="", help="where it is from (default: the file)")
    export = add_verb("export", "write the passages of an archive as JSON lines")
    export.add_argument("archive", metavar="ARCHIVE", nargs="?", default="", help="its name; or else --all")
    export.add_argument("--all", action="store_true", help="those of every archive")
    export.add_argument("-o", "--output", metavar="FILE", help="write them there (default: standard output)")
    about = "put what `export` wrote into an archive; what is there already is not doubled"
    read = _with_archive(add_verb("import", about))
    read.add_argument("file", metavar="FILE", help="JSON lines, as `memory export` writes them")
    for parser in (add, read):
        about = "make the archive where there is none of this name"
        parser.add_argument("--create", action="store_true", help=about)
    _with_archive(add_verb("embed", "make the vectors that are missing"))


def _with_label(parser: ArgumentParser) -> ArgumentParser:
    parser.add_argument("label", metavar="LABEL", help="the name of a block; `memory blocks` lists them")
    return parser


def _with_archive(parser: ArgumentParser) -> ArgumentParser:
    parser.add_argument("archive", metavar="ARCHIVE", help="its name; `memory archives` lists them")
    return parser


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= (number := int(text[:10])) <= 1_000_000:
        raise ArgumentTypeError(f"{text!r} is no number from 1 to 1000000")
    return number


_Moment = Callable[[float], float]


def _since(text: str) -> _Moment:
    """From when on: a day begins at midnight here."""
    return _moment(text, timedelta())


def _until(text: str) -> _Moment:
    """Up to when: a day ends just before the next."""
    return _moment(text, timedelta(days=1) - timedelta(microseconds=1))


def _moment(text: str, end_of_day: timedelta) -> _Moment:
    """A time, given what time it is: a date, a date with a time, or so long ago."""
    words = text.strip()
    units = {"m": 60, "h": 3600, "d": 86_400, "w": 604_800}
    if words[-1:] in units and words[:-1].isdecimal() and len(words) <= 8:
        seconds = int(words[:-1]) * units[words[-1]]
        return lambda present: present - seconds
    try:
        moment = datetime.fromisoformat(words)
        if len(words) <= 10 and "T" not in words:
            moment += end_of_day
        at = moment.astimezone(UTC).timestamp()  # without a zone it is the time here
    except (ValueError, OverflowError, OSError) as error:
        raise ArgumentTypeError(f"{text!r} is no time; write 2026-05-17, 2026-05-17T09:30 or 7d (ago)") from error
    return lambda _present: at


# --- the verb


def memory(options: Namespace) -> int:
    """One of the verbs of memory; an overview, where none is named."""
    verb: str = vars(options).get("what") or ""
    _check_encoding(options)
    declared = find_memory(options, creates=verb in _CREATES)

    async def main() -> int:
        async with open_session(options, declared) as session:
            return await _VERBS[verb](session)

    with Termination() as termination:
        return termination.run(main())


async def _show_overview(session: MemorySession) -> int:
    """Where memory is kept, its blocks and its archives."""
    file = session.file
    if session.options.json:
        blocks = await session.list_all(Block)
        archives = await session.list_all(Archive)
        document = {"team": session.declared.team, "file": str(file), "blocks": blocks, "archives": archives}
        return session.print_json(document)
    size = sum(part.stat().st_size for part in file.parent.glob(f"{file.name}*") if part.suffix != ".lock")
    session.out.line(clean(f"memory of team {session.declared.team} in {file}, {size_of(size)}"), "bold")
    session.out.line()
    await _list_blocks(session)
    session.out.line()
    return await _list_archives(session)


# --- blocks


async def _list_blocks(session: MemorySession) -> int:
    blocks = await session.list_all(Block)
    changes: dict[str, Change | None] = {}
    for block in blocks:
        latest = await session.catalog.history(block.id, limit=1)
        changes[block.id] = latest[0] if latest else None
    if session.options.json:
        return session.print_json([{**structs.asdict(block), "last": changes[block.id]} for block in blocks])
    if not blocks:
        session.out.line("no blocks")
        return 0
    rows: list[tuple[str, ...]] = []
    tones: list[Tone] = []
    for block in blocks:
        owned = await session.catalog.owners(block.id)
        flags = _flags(block) if owned else "nobody sees it: it is not declared any more"
        last = changes[block.id]
        changed = f"{ago(last.when, now())} by {describe_origin(last.origin)}" if last is not None else ""
        rows.append((block.label, _fullness(block), f"v{block.version}", flags, changed))
        tones.append("warn" if len(block.value) >= _NEARLY_FULL * block.limit else "plain")
    print_table(session.out, ("block", "characters", "version", "what it is", "changed"), rows, tones)
    return 0


def _fullness(block: Block) -> str:
    return f"{bar(len(block.value) / max(1, block.limit))} {len(block.value):,} of {block.limit:,}"


def _flags(block: Block) -> str:
    flags = {"trusted": block.trusted, "read-only": block.read_only, "holds text from outside": block.tainted}
    return ", ".join([*(name for name, is_set in flags.items() if is_set), f"share: {block.share}"])


async def _get_block(session: MemorySession) -> int:
    """The text of a block, now or in a version."""
    block = await session.find_block(session.options.label)
    version: int | None = session.options.version
    value = block.value if version is None else await _text_at(session, block, version)
    if session.options.json:
        return session.print_json({**structs.asdict(block), "value": value, "shown": version or block.version})
    out = session.out
    out.line(clean_lines(value) if out.terminal else value)  # into a file or a pipe: every character as it is
    if out.terminal and not value:
        session.note(f"{block.label} is empty", "dim")
    return 0


async def _text_at(session: MemorySession, block: Block, version: int) -> str:
    if version > block.version:
        raise Invalid(f"block {block.label!r} has no version {version}; the last one is {block.version}")
    return await session.catalog.text_at(block.id, version)


async def _set_block(session: MemorySession) -> int:
    options = session.options
    text = _read_text(options.text)
    if options.create and not await session.catalog.find(Block, name=options.label, limit=1):
        return _print_block(session, await session.create_block(options.label, text))
    return await _edit_block(session, Rethink(text), expect=options.expect)


async def _restore_block(session: MemorySession) -> int:
    block = await session.find_block(session.options.label)
    await _text_at(session, block, session.options.version)
    return await _edit_block(session, Restore(session.options.version))


async def _edit_block(session: MemorySession, edit: Edit, *, expect: int | None = None) -> int:
    block = await session.find_block(session.options.label)
    after = await session.catalog.edit(block.id, edit, session.origin, expect=expect)
    if after.version == block.version and not session.options.json:
        session.note(f"{after.label}: nothing changed, version {after.version}")
        return 0
    return _print_block(session, after)


def _print_block(session: MemorySession, block: Block) -> int:
    if session.options.json:
        return session.print_json(block)
    session.note(f"{block.label}: version {block.version}, {_fullness(block)}", "good")
    return 0


async def _show_history(session: MemorySession) -> int:
    block = await session.find_block(session.options.label)
    changes = await session.catalog.history(block.id, limit=session.options.limit)
    if session.options.json:
        return session.print_json(changes)
    width = max((len(str(change.version)) for change in changes), default=1)
    for change in changes:
        _show_change(session.out, change, width)
    if changes and changes[-1].version > 1:
        session.note(f"… and {changes[-1].version - 1} earlier; see more with --limit", "dim")
    return 0


def _show_change(out: Console, change: Change, width: int) -> None:
    """What was done, when and by whom; under it the text that went and the text that came."""
    source = f" to the text of v{change.at}" if change.at and change.at != change.version else ""
    line = f"v{change.version:<{width}}  {when(change.when)}, {ago(change.when, now())}  {change.kind}{source}"
    out.line(clean(f"{line}  by {describe_origin(change.origin)}"), "bold")
    parts: tuple[tuple[str, str, Tone], ...] = (("-", change.removed, "bad"), ("+", change.added, "good"))
    for sign, text, tone in parts:
        if text:
            length = "" if len(text) <= _MAX_CHANGE else f"  ({counted(len(text), 'character')})"
            out.line(f"{'':{width + 3}}{sign} {short(text.strip(), _MAX_CHANGE)}{length}", tone)


# --- archives


async def _list_archives(session: MemorySession) -> int:
    archives = await session.list_all(Archive)
    sizes = [await _archive_size(session, archive) for archive in archives]
    if session.options.json:
        listed = zip(archives, sizes, strict=True)
        return session.print_json([{**structs.asdict(archive), **size} for archive, size in listed])
    if not archives:
        session.out.line("no archives")
        return 0
    rows = [
        (
            archive.name,
            f"{size['passages']:,}",
            f"{size['with_vectors']:,}",
            archive.embedding + (f", {archive.width} wide" if archive.width else ""),
            size_of(size["bytes"]),
            f"share: {archive.share}",
            archive.description,
        )
        for archive, size in zip(archives, sizes, strict=True)
    ]
    print_table(session.out, ("archive", "passages", "vectors", "model", "size", "what it is", ""), rows)
    return 0


async def _archive_size(session: MemorySession, archive: Archive) -> dict[str, int]:
    """How much there is. The bytes are estimated from the first texts and the width of the vectors."""
    passages, with_vectors = await session.catalog.count(archive.id)
    sample = await session.catalog.passages(archive.id, limit=_SAMPLE)
    text_bytes = sum(len(passage.text.encode(errors="replace")) for passage in sample)
    size = text_bytes * passages // max(1, len(sample)) + with_vectors * archive.width * 4
    return {"passages": passages, "with_vectors": with_vectors, "bytes": size}


async def _search_archive(session: MemorySession) -> int:
    """The best passages, with their scores and why."""
    options = session.options
    query = " ".join(options.query)
    if not query.strip():
        raise Invalid("the question is empty; say what to look for")
    within = Filter(
        tags=tuple(dict.fromkeys(options.tag)),
        tag_match=options.match,
        start=options.since(now()) if options.since else None,
        end=options.until(now()) if options.until else None,
        source=options.source,
    )
    archive = await session.find_archive(options.archive)
    hits = await session.opened.search([archive], query, within=within, limit=min(options.limit, _MAX_HITS))
    if options.json:
        return session.print_json(hits)
    best = max((hit.score for hit in hits), default=1.0)
    for number, hit in enumerate(hits, 1):
        _show_hit(session.out, number, hit, share=hit.score / best if best > 0 else 0.0)
    if not hits:
        session.out.line("nothing found")
    elif all(hit.meaning is None for hit in hits):
        session.note("words were compared, not meanings; vectors: chargehand memory embed, chargehand doctor", "dim")
    return 0


def _show_hit(out: Console, number: int, hit: Hit, *, share: float) -> None:
    out.line(f"{number}. {bar(share)} {hit.score:.3f}  {short(hit.why, 100)}", "bold")
    passage = hit.passage
    is_part = passage.document and passage.document != passage.id
    facts = (
        passage.id,
        when(passage.created),
        describe_origin(passage.origin),
        passage.origin.source,
        f"part {passage.part + 1} of {passage.document}" if is_part else "",
        " ".join(f"#{tag}" for tag in passage.tags),
    )
    out.line(f"   {short(' · '.join(fact for fact in facts if fact), 200)}", "dim")
    text = clean_lines(passage.text)
    for line in (f"{text[:_MAX_HIT]} …" if len(text) > _MAX_HIT else text).splitlines():
        out.line(f"   {line}")


async def _add_passages(session: MemorySession) -> int:
    """Texts, or whatever files hold. Long ones are cut into parts; what is there already is not kept twice."""
    options = session.options
    passages = _read_passages(options.text, session.origin, source=options.source, tags=options.tag)
    archive = await session.find_archive(options.archive, create=options.create)
    progress = ProgressLine(archive.name, still=True)
    ids: list[str] = []
    new = 0
    with report_if_stopped(progress, lambda: f"at least {counted(len(ids), 'passage')} of {archive.name} kept"):
        for start in range(0, len(passages), _BATCH):
            progress.show(f"{start:,} of {counted(len(passages), 'text')}", start, len(passages))
            inserted = await session.opened.add(archive, passages[start : start + _BATCH])
            ids += [passage.id for passage in inserted]
            new += sum(passage.new for passage in inserted)
    if options.json:
        return session.print_json({"archive": archive.name, "new": new, "known": len(ids) - new, "ids": ids})
    known = f", {len(ids) - new:,} were there already" if len(ids) > new else ""
    session.note(f"{archive.name}: {counted(new, 'new passage')}{known}", "good")
    return 0


async def _embed_archive(session: MemorySession) -> int:
    """Make the vectors that are missing."""
    archive = await session.find_archive(session.options.archive)
    passages, with_vectors = await session.catalog.count(archive.id)
    missing = passages - with_vectors
    progress = ProgressLine(archive.name, still=True)
    made = 0

    def report(done: int) -> None:
        nonlocal made
        made = done
        progress.show(f"{done:,} of {counted(missing, 'vector')}", done, missing)

    with report_if_stopped(progress, lambda: f"at least {counted(made, 'vector')} of {archive.name} made"):
        try:
            made = await session.opened.embed_rest(archive, report)
        except Unknown:
            raise
        except Refused as error:
            fix = "chargehand models pull minilm  (chargehand doctor says what else is missing)"
            if archive.embedding == "words":
                fix = "say  embed: auto  of it in the team file"
            raise Refused(f"{error}: {fix}") from error
    if session.options.json:
        return session.print_json({"archive": archive.name, "made": made, "missing": max(0, missing - made)})
    session.note(f"{archive.name}: {counted(made, 'vector') + ' made' if made else 'none was missing'}", "good")
    return 0


# --- export and import: passages as JSON lines; vectors can be made again


class _Line(Struct, frozen=True, forbid_unknown_fields=True):
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


async def _export_archives(session: MemorySession) -> int:
    """Page by page: an archive need not fit into this process."""
    options = session.options
    if bool(options.archive) == bool(options.all):
        raise Invalid("say which archive to export, or --all of them; not both")
    archives = await session.list_all(Archive) if options.all else [await session.find_archive(options.archive)]
    if options.output is None:
        async for line in _export_lines(session, archives):
            session.out.line(clean_json(line))
        return 0
    written = await _write_export(session, archives, Path(options.output))
    session.note(f"written: {options.output}, {counted(written, 'passage')}")
    return 0


async def _write_export(session: MemorySession, archives: list[Archive], path: Path) -> int:
    """To a file beside it first: what was there is kept until all is written."""
    partial = path.with_name(f".{path.name}.partial")
    total = sum([(await session.catalog.count(archive.id))[0] for archive in archives])
    progress = ProgressLine(path.name, still=True)
    written = 0
    try:
        with partial.open("w", encoding="utf-8") as file:
            async for line in _export_lines(session, archives):
                file.write(line + "\n")
                written += 1
                if written % _PAGE == 0:
                    progress.show(f"{written:,} of {counted(total, 'passage')}", written, total)
        partial.replace(path)
    except OSError as error:
        raise Invalid(f"{path} cannot be written: {error.strerror}; name another file with -o") from error
    finally:
        progress.end()
        partial.unlink(missing_ok=True)
    return written


async def _export_lines(session: MemorySession, archives: list[Archive]) -> AsyncIterator[str]:
    for archive in archives:
        after = ""
        while page := await session.catalog.passages(archive.id, after=after, limit=_PAGE):
            for passage in page:
                line = _Line(
                    text=passage.text,
                    archive=archive.name,
                    id=passage.id,
                    tags=passage.tags,
                    metadata=passage.metadata,
                    origin=passage.origin,
                    created=passage.created,
                    document=passage.document,
                    part=passage.part,
                )
                yield msgspec.json.encode(line).decode()
            after = page[-1].id


async def _import_archive(session: MemorySession) -> int:
    """All of the file is checked before anything is written. Of a file with several archives, only this one's."""
    options = session.options
    path = Path(options.file)
    name = str(options.archive)
    total = 0
    names: set[str] = set()
    for line in _read_export(path):
        total += 1
        names.add(line.archive)
    if len(names) > 1 and name not in names:
        raise Invalid(f"{path} holds {', '.join(sorted(names)[:8])} and nothing of {name!r}; name one of them")
    archive = await session.find_archive(name, create=options.create)
    new = known = 0
    progress = ProgressLine(archive.name, still=True)
    batch: list[Passage] = []
    with report_if_stopped(progress, lambda: f"at least {counted(new + known, 'passage')} of {archive.name} kept"):
        for number, line in enumerate(_read_export(path), 1):
            if len(names) == 1 or line.archive == name:
                batch.append(_passage_of(line))
            if batch and (len(batch) == _PAGE or number == total):
                inserted = await _insert_passages(session, archive, batch)
                new += sum(passage.new for passage in inserted)
                known += sum(not passage.new for passage in inserted)
                batch = []
                progress.show(f"{number:,} of {counted(total, 'line')}", number, total)
    if options.json:
        return session.print_json({"archive": archive.name, "new": new, "known": known, "other": total - new - known})
    already = f", {known:,} were there already" if known else ""
    other = f", {total - new - known:,} of other archives left out" if total > new + known else ""
    session.note(f"{archive.name}: {counted(new, 'new passage')}{already}{other}", "good")
    if new and archive.embedding != "words":
        session.note(f"to compare meanings, make their vectors: chargehand memory embed {archive.name}", "dim")
    return 0


async def _insert_passages(session: MemorySession, archive: Archive, batch: list[Passage]) -> list[Inserted]:
    """With the ids of the file, so that references to them stay good; with new ones where those are taken here."""
    try:
        return await session.catalog.insert(archive.id, batch)
    except Refused:
        return await session.catalog.insert(archive.id, [structs.replace(passage, id="") for passage in batch])


def _passage_of(line: _Line) -> Passage:
    return Passage(
        text=line.text,
        tags=line.tags,
        metadata=line.metadata,
        origin=line.origin,
        created=line.created,
        id=line.id,
        document=line.document,
        part=line.part,
    )


def _read_export(path: Path) -> Iterator[_Line]:
    try:
        with path.open("rb") as file:
            number = 0
            while body := file.readline(_MAX_LINE + 1):
                number += 1
                if len(body) > _MAX_LINE:
                    raise Invalid(f"{path}, line {number}: longer than {_MAX_LINE:,} bytes; is this what export wrote?")
                if body.strip():
                    yield _decode_line(path, number, body)
    except OSError as error:
        raise Invalid(f"{path} cannot be read: {error.strerror}; name a file that export wrote") from error


def _decode_line(path: Path, number: int, body: bytes) -> _Line:
    try:
        line = msgspec.json.decode(body, type=_Line)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise Invalid(f"{path}, line {number}: {error}; name a file that `chargehand memory export` wrote") from error
    if problem := _line_problem(line):
        raise Invalid(f"{path}, line {number}: {problem}; put it right, or take the line out")
    return line


def _line_problem(line: _Line) -> str:
    """What keeps a passage from being kept; empty: nothing."""
    if not line.text.strip():
        return "its text is empty"
    try:
        check_text(line.text)
    except Invalid as error:
        return str(error).partition(";")[0]
    if not all(tag.strip() for tag in line.tags):
        return "one of its tags is empty"
    if not 0 <= line.part <= _MAX_PARTS:
        return f"it is part {line.part} of a text, and parts count from 0"
    return "" if 0 <= line.created <= _LAST_MOMENT else f"it was created at {line.created}, which is no time since 1970"


# --- texts from the command line, standard input and files, all of them bounded


def _read_text(words: Sequence[str]) -> str:
    """The words as they are, or standard input for `-`."""
    if list(words) != ["-"]:
        return _check_text(" ".join(words), "the text")
    body = sys.stdin.buffer.read(_MAX_INPUT + 1)
    if len(body) > _MAX_INPUT:
        raise Invalid(f"standard input holds more than {_MAX_INPUT:,} bytes; split it")
    try:
        return _check_text(body.decode("utf-8-sig").removesuffix("\n"), "standard input")
    except UnicodeDecodeError as error:
        raise Invalid(f"standard input is not text in UTF-8 (byte {error.start}); send plain text") from error


def _check_text(text: str, where: str) -> str:
    if control := _CONTROL.search(text):
        raise Invalid(f"{where} is not plain text: character {control.start() + 1} is {control[0]!r}; take it out")
    return text.replace("\r\n", "\n")


def _check_encoding(options: Namespace) -> None:
    """Raise Invalid for a word of the command that is not UTF-8."""
    for name, value in vars(options).items():
        words = cast("list[object]", value) if isinstance(value, list) else [value]
        try:
            "".join(map(str, words)).encode()
        except UnicodeEncodeError as error:
            problem = f"what is given for {name} is not text: it has bytes that are not UTF-8"
            raise Invalid(f"{problem}; send plain text") from error


def _read_passages(words: Sequence[str], origin: Origin, *, source: str, tags: Sequence[str]) -> list[Passage]:
    """Standard input, files and folders where the words name such, else one text."""
    texts = list(_read_files(words)) or [("", _read_text(words))]
    passages: list[Passage] = []
    for name, text in texts:
        if not text.strip():
            raise Invalid(f"{source or name or 'the text'} is empty; say something to be kept")
        written_by = Origin(origin.by, origin.name, source=source or name)
        passages.append(Passage(text, tuple(dict.fromkeys(tags)), origin=written_by))
    return passages


def _read_files(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The files and folders that the words name, each file with its path as typed; nothing where they name none."""
    paths = [word for word in words if word and _exists(word)]
    if paths and len(paths) < len(words):
        missing = next(word for word in words if word not in paths)
        raise Invalid(f"there is no file {missing!r}, and {paths[0]!r} is one; name files only, or put text in quotes")
    if not paths and len(words) == 1 and words[0].lower().endswith(KINDS) and " " not in words[0]:
        raise Invalid(f"there is no file {words[0]!r}; name one that is there, or say it in more words")
    for path in map(Path, paths):
        for passage in read_sources(path):
            yield (path / passage.origin.source if path.is_dir() else path).as_posix(), passage.text


def _exists(word: str) -> bool:
    try:
        return Path(word).exists()
    except (OSError, ValueError):  # too long for a name, or no name at all
        return False


_VERBS: dict[str, Callable[[MemorySession], Awaitable[int]]] = {
    "": _show_overview,
    "blocks": _list_blocks,
    "get": _get_block,
    "set": _set_block,
    "history": _show_history,
    "restore": _restore_block,
    "archives": _list_archives,
    "search": _search_archive,
    "add": _add_passages,
    "export": _export_archives,
    "import": _import_archive,
    "embed": _embed_archive,
}
