"""`chargehand memory`: the blocks and archives of a team, for people. Works beside a run that uses the same file."""

import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from difflib import unified_diff
from pathlib import Path
from typing import TypeVar

from msgspec import Struct, structs

from chargehand.agents.memory_session import id_of, open_memory
from chargehand.cli import USUAL_MEMORY
from chargehand.cli.arguments import TEAM_FILE, Options, Verb, add_verbs, positive, read_text
from chargehand.cli.console import Console, Tone, clean_lines, print_table, progress_bar, short
from chargehand.cli.format import ago, bar, counted, when
from chargehand.cli.signals import StopSignals
from chargehand.config.build import check_name
from chargehand.config.environment import login_name
from chargehand.config.load import TeamMemory, load_memory
from chargehand.config.source import near
from chargehand.errors import Invalid, Refused, StoreUnavailable, Unknown
from chargehand.memory.archives import Archive, Filter, Hit, Inserted, Passage
from chargehand.memory.blocks import Block, Grant, Origin, Restore, Rethink
from chargehand.memory.chunking import KINDS, read_sources
from chargehand.memory.session import OpenMemory
from chargehand.runtime.trace import with_defaults
from chargehand.store_url import PostgresUrl
from chargehand.text.words import listed

_MAX_CHANGE = 80  # characters shown of a change
_NEARLY_FULL = 0.9
_MAX_HITS = 100
_MAX_HIT = 400  # characters shown of a passage
_BATCH = 16  # texts added between two reports of progress
_PAGE = 500
_CREATES = ("set", "add")
_Shared = TypeVar("_Shared", Block, Archive)


_COMMON = ("--team", "--store", "--memory", "--json", "--no-color")


def add_memory(parser: ArgumentParser) -> None:
    parser.epilog = f"Deleting, patching, tags and conversations: docs/memory.md, In Python.\n\n{parser.epilog or ''}"
    add_verbs(parser, _VERBS, *_COMMON, team=TEAM_FILE)


# --- the memory of a team


def memory(options: Namespace) -> int:
    """One of the verbs of memory; the list, where none is named."""
    verb: str = vars(options).get("what") or "list"
    declared = _find_memory(options, creates=verb in _CREATES)

    async def main() -> int:
        async with open_memory(declared.memory, declared.team, declared.workers, declared.lookup) as opened:
            await _VERBS[verb].function(_Session(options, declared, opened))
        return 0

    with StopSignals() as signals:
        return signals.run(main())


def _find_memory(options: Namespace, *, creates: bool) -> TeamMemory:
    """The memory that the options name. A file is created for a team that has memory, or if the verb `creates`."""
    declared = load_memory(options.team, memory=USUAL_MEMORY, elsewhere=options.memory)
    if isinstance(declared.memory.store, PostgresUrl):
        return declared
    file = Path(str(declared.memory.store))
    if not file.exists() and not declared.has_memory and not creates:
        problem = f"there is no memory {file}, and team {declared.team} has no memory section"
        raise Refused(f"{problem}; write one into its team file, or name another file with --memory")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreUnavailable(f"{file.parent} cannot be made: {error.strerror}; name another --memory") from error
    return declared


class _Session(Struct, frozen=True):
    """What a verb works with. Data goes to standard output; progress and remarks go to standard error."""

    options: Namespace
    declared: TeamMemory
    opened: OpenMemory

    @property
    def out(self) -> Console:
        return Console(sys.stdout)

    @property
    def origin(self) -> Origin:
        return Origin("person", login_name())

    def print(self, document: object, note: str, tone: Tone = "good") -> None:
        """What was done: the document where JSON is wanted, else the note."""
        if self.options.json:
            self.print_json(document)
        else:
            self.note(note, tone)

    def print_json(self, document: object) -> None:
        self.out.json(with_defaults(document))

    def note(self, text: str, tone: Tone = "dim") -> None:
        """Print a remark beside the data."""
        Console(sys.stderr).line(text, tone)

    async def list_all(self, kind: type[_Shared]) -> list[_Shared]:
        """All blocks or archives, page by page."""
        items: list[_Shared] = []
        while page := await self.opened.catalog.find(kind, after=items[-1].id if items else "", limit=_PAGE):
            items += page
        return items

    async def find(self, kind: type[_Shared], name: str) -> _Shared:
        """The block or archive of this name; Unknown, with the names there are, where there is none."""
        items = await self.opened.catalog.find(kind, name=name, limit=1)
        if items:
            return items[0]
        names = [item.label if isinstance(item, Block) else item.name for item in await self.list_all(kind)]
        what, make = ("block", "set") if kind is Block else ("archive", "add")
        hint = near(name, names) or f"; there are {listed(names) or 'none'}; memory {make} --create makes one"
        raise Unknown(f"there is no {what} {name!r}{hint}")

    async def find_or_create(self, item: _Shared, name: str) -> _Shared:
        """The block or archive of this name; with `--create` the item, shared with the team, where there is none."""
        try:
            return await self.find(type(item), name)
        except Unknown:
            if not self.options.create:
                raise
        check_name(name, "a block" if isinstance(item, Block) else "an archive")
        added = await self.opened.catalog.add(item, self.origin)
        await self.opened.catalog.attach(self.opened.team, added.id, Grant(added.share))
        return added

    def id_for(self, kind: type[Block | Archive], name: str) -> str:
        """The id that a declaration in the team file would give it, so that a later declaration finds it."""
        return id_of(kind, self.declared.memory.space or self.declared.team, name)


def describe_origin(origin: Origin) -> str:
    """Who wrote something, and in which run and task."""
    if origin.by == "team":
        return "the team file"
    name = f"{origin.by} {origin.name}".strip()
    run = f" in {origin.run}" if origin.run else ""
    task = f", {origin.task}" if origin.run and origin.task else ""
    return f"{name}{run}{task}{' (saw text from outside)' if origin.tainted else ''}"


async def _list(session: _Session) -> None:
    """Where memory is kept, its blocks and its archives."""
    team = session.declared.team
    file = str(session.declared.memory.store)
    blocks = await session.list_all(Block)
    archives = await session.list_all(Archive)
    if session.options.json:
        documents = [structs.asdict(archive) | await _count(session, archive) for archive in archives]
        session.print_json({"team": team, "file": file, "blocks": blocks, "archives": documents})
        return
    session.out.line(f"memory of team {team} in {file}", "bold")
    rows = [await _block_row(session, block) for block in blocks]
    tones: list[Tone] = ["warn" if _is_nearly_full(block) else "plain" for block in blocks]
    print_table(session.out, ("block", "characters", "version", "what it is", "changed"), rows, tones)
    rows = [await _archive_row(session, archive) for archive in archives]
    print_table(session.out, ("archive", "passages", "vectors", "model", "what it is", ""), rows)


async def _block_row(session: _Session, block: Block) -> tuple[str, ...]:
    catalog = session.opened.catalog
    flags = {"trusted": block.trusted, "read-only": block.read_only, "holds text from outside": block.tainted}
    about = ", ".join([*(name for name, is_set in flags.items() if is_set), f"share: {block.share}"])
    if not await catalog.owners(block.id):
        about = "not declared any more: no worker sees it"
    changed = ""
    for last in await catalog.history(block.id, limit=1):
        changed = f"{ago(last.when, time.time())} by {describe_origin(last.origin)}"
    return (block.label, _fullness(block), f"v{block.version}", about, changed)


async def _count(session: _Session, archive: Archive) -> dict[str, int]:
    passages, with_vectors = await session.opened.catalog.count(archive.id)
    return {"passages": passages, "with_vectors": with_vectors}


async def _archive_row(session: _Session, archive: Archive) -> tuple[str, ...]:
    counts = await _count(session, archive)
    model = archive.embedding + (f", {archive.width} wide" if archive.width else "")
    about = f"share: {archive.share}"
    return (archive.name, f"{counts['passages']:,}", f"{counts['with_vectors']:,}", model, about, archive.description)


# --- blocks


def _is_nearly_full(block: Block) -> bool:
    return len(block.value) >= _NEARLY_FULL * block.limit


def _fullness(block: Block) -> str:
    return f"{bar(len(block.value) / max(1, block.limit))} {len(block.value):,} of {block.limit:,}"


async def _get_block(session: _Session) -> None:
    """The text of a block, now or in a version."""
    block = await session.find(Block, session.options.label)
    version: int = session.options.version or block.version
    value = await _text_at(session, block, version)
    if session.options.json:
        session.print_json({**structs.asdict(block), "value": value, "shown": version})
        return
    out = session.out
    out.text(clean_lines(value) if out.terminal else value)  # into a file or a pipe: every character as it is
    if out.terminal and not value:
        session.note(f"{block.label} is empty")


async def _text_at(session: _Session, block: Block, version: int) -> str:
    if version > block.version:
        raise Invalid(f"block {block.label!r} has no version {version}; the last one is {block.version}")
    return await session.opened.catalog.text_at(block.id, version)


async def _set_block(session: _Session) -> None:
    options = session.options
    text = read_text(options.text, "the text")
    if options.text == ["-"]:
        text = text.removesuffix("\n")
    new_block = Block(options.label, text, id=session.id_for(Block, options.label))
    block = await session.find_or_create(new_block, options.label)
    after = await session.opened.catalog.edit(block.id, Rethink(text), session.origin, expect=options.expect)
    _print_block(session, after)


async def _restore_block(session: _Session) -> None:
    block = await session.find(Block, session.options.label)
    version: int = session.options.version
    await _text_at(session, block, version)
    after = await session.opened.catalog.edit(block.id, Restore(version), session.origin)
    _print_block(session, after)


def _print_block(session: _Session, block: Block) -> None:
    session.print(block, f"{block.label}: version {block.version}, {_fullness(block)}")


async def _show_history(session: _Session) -> None:
    """Each change, when and by what it was made, with the lines that went and came."""
    block = await session.find(Block, session.options.label)
    catalog = session.opened.catalog
    changes = await catalog.history(block.id, limit=session.options.limit)
    if session.options.json:
        session.print_json(changes)
        return
    for change in changes:
        source = f" to the text of v{change.at}" if change.at and change.at != change.version else ""
        age = f"{when(change.when)}, {ago(change.when, time.time())}"
        origin = describe_origin(change.origin)
        session.out.line(f"v{change.version}  {age}  {change.kind}{source}  by {origin}", "bold")
        before = await catalog.text_at(block.id, change.version - 1) if change.version > 1 else ""
        _print_difference(session.out, before, await catalog.text_at(block.id, change.version))
    if changes and changes[-1].version > 1:
        session.note(f"… and {changes[-1].version - 1} earlier; see more with --limit")


def _print_difference(out: Console, before: str, after: str) -> None:
    """The lines that went and the lines that came, whole: a change is kept as the characters that differ."""
    changes = list(unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0))[2:]
    tones: dict[str, Tone] = {"-": "bad", "+": "good"}
    for sign, tone in tones.items():
        text = "\n".join(line[1:] for line in changes if line.startswith(sign)).strip()
        if text:
            length = "" if len(text) <= _MAX_CHANGE else f"  ({counted(len(text), 'character')})"
            out.line(f"    {sign} {short(text, _MAX_CHANGE)}{length}", tone)


# --- archives


async def _search_archive(session: _Session) -> None:
    """The best passages, with their scores and why."""
    options = session.options
    query = " ".join(options.query)
    if not query.strip():
        raise Invalid("the question is empty; say what to look for")
    within = Filter(tags=tuple(dict.fromkeys(options.tag)))
    archive = await session.find(Archive, session.options.archive)
    hits = await session.opened.search([archive], query, within=within, limit=min(options.limit, _MAX_HITS))
    if options.json:
        session.print_json(hits)
        return
    for number, hit in enumerate(hits, 1):
        _print_hit(session.out, number, hit)
    if not hits:
        session.out.line("nothing found")
    elif all(hit.meaning is None for hit in hits):
        session.note("words were compared, not meanings; vectors: chargehand memory embed, chargehand doctor")


def _print_hit(out: Console, number: int, hit: Hit) -> None:
    passage = hit.passage
    out.line(f"{number}. {hit.score:.3f}  {short(hit.why, 100)}", "bold")
    tags = " ".join(f"#{tag}" for tag in passage.tags)
    facts = (passage.id, when(passage.created), describe_origin(passage.origin), passage.origin.source, tags)
    out.line(f"   {short(' · '.join(filter(None, facts)), 200)}", "dim")
    text = clean_lines(passage.text)
    for line in (f"{text[:_MAX_HIT]} …" if len(text) > _MAX_HIT else text).splitlines():
        out.line(f"   {line}")


async def _embed_archive(session: _Session) -> None:
    """Make the vectors that are missing."""
    archive = await session.find(Archive, session.options.archive)
    counts = await _count(session, archive)
    missing = counts["passages"] - counts["with_vectors"]
    with progress_bar(archive.name) as show:
        try:
            embedded = await session.opened.embed_rest(archive, lambda done: show("vectors", done, missing))
        except Unknown:
            raise
        except Refused as error:
            pull = "chargehand models pull minilm  (chargehand doctor says what else is missing)"
            fix = "say  embed: auto  of it in the team file" if archive.embedding == "words" else pull
            raise Refused(f"{error}: {fix}") from error
    note = f"{archive.name}: {counted(embedded, 'vector') + ' made' if embedded else 'none was missing'}"
    session.print({"archive": archive.name, "made": embedded, "missing": max(0, missing - embedded)}, note)


async def _add_passages(session: _Session) -> None:
    """Texts, or whatever files hold. Long ones are cut into parts; what is there already is not kept twice."""
    options = session.options
    passages = _read_passages(options, session.origin)
    new_archive = Archive(options.archive, id=session.id_for(Archive, options.archive))
    archive = await session.find_or_create(new_archive, options.archive)
    inserted: list[Inserted] = []
    with progress_bar(archive.name) as show:
        for start in range(0, len(passages), _BATCH):
            show("texts", start, len(passages))
            inserted += await session.opened.add(archive, passages[start : start + _BATCH])
    new = sum(passage.new for passage in inserted)
    existing = len(inserted) - new
    already = f", {existing:,} were there already" if existing else ""
    document = {"archive": archive.name, "new": new, "known": existing, "ids": [passage.id for passage in inserted]}
    session.print(document, f"{archive.name}: {counted(new, 'new passage')}{already}")


def _read_passages(options: Namespace, origin: Origin) -> list[Passage]:
    """Standard input, files and folders where the words name such, else one text."""
    texts = list(_read_files(options.text)) or [("", read_text(options.text, "the text"))]
    passages: list[Passage] = []
    for name, text in texts:
        if not text.strip():
            raise Invalid(f"{options.source or name or 'the text'} is empty; give a text to keep")
        written_by = Origin(origin.by, origin.name, source=options.source or name)
        passages.append(Passage(text, tuple(dict.fromkeys(options.tag)), origin=written_by))
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


# --- the verbs

_LABEL: Options = {"label": {"metavar": "LABEL", "help": "the name of a block; `memory` lists them"}}
_ARCHIVE: Options = {"archive": {"metavar": "ARCHIVE", "help": "its name; `memory` lists them"}}
_CREATE: Options = {"--create": {"action": "store_true", "help": "make it where there is none of this name"}}
_TAG: Options = {
    "--tag": {"metavar": "T", "action": "append", "default": [], "help": "a word to find it by; may be repeated"}
}
_VERBS = {
    "list": Verb("every block and every archive", {}, _list),
    "get": Verb(
        "the text of a block",
        {**_LABEL, "--version": {"metavar": "N", "type": positive, "help": "as it was in this version"}},
        _get_block,
    ),
    "set": Verb(
        "replace the whole text of a block",
        {
            **_LABEL,
            "text": {"metavar": "TEXT", "nargs": "+", "help": "- for standard input; put -- before a leading -"},
            "--expect": {"metavar": "N", "type": positive, "help": "only if this is the version that is there"},
            **_CREATE,
        },
        _set_block,
    ),
    "history": Verb(
        "every change of a block, the latest first",
        {
            **_LABEL,
            "--limit": {"metavar": "N", "type": positive, "default": 20, "help": "at most so many (default 20)"},
        },
        _show_history,
    ),
    "restore": Verb(
        "bring the text of an earlier version back",
        {
            **_LABEL,
            "version": {"metavar": "VERSION", "type": positive, "help": "its number; `memory history` lists them"},
        },
        _restore_block,
    ),
    "search": Verb(
        "the best passages of an archive for a question, and why",
        {
            **_ARCHIVE,
            "query": {"metavar": "QUERY", "nargs": "+", "help": "what you want to know, in words"},
            **_TAG,
            "--limit": {"metavar": "N", "type": positive, "default": 5, "help": "at most so many (default 5)"},
        },
        _search_archive,
    ),
    "add": Verb(
        "put texts or files into an archive",
        {
            **_ARCHIVE,
            "text": {"metavar": "TEXT|FILE", "nargs": "+", "help": "words, or files and folders; - for standard input"},
            **_TAG,
            "--source": {"metavar": "TEXT", "default": "", "help": "where it is from (default: the file)"},
            **_CREATE,
        },
        _add_passages,
    ),
    "embed": Verb("make the vectors that are missing", _ARCHIVE, _embed_archive),
}
