"""The words that `chargehand memory` takes: its verbs, and what each is given. What they do is not known here."""

from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from chargehand.cli import USUAL_MEMORY


def add_memory(parser: ArgumentParser) -> None:
    _common(parser, nested=False)
    what = parser.add_subparsers(dest="what", metavar="VERB", title="verbs")

    def verb(name: str, words: str) -> ArgumentParser:
        made = what.add_parser(name, help=words, description=words[:1].upper() + words[1:] + ".")
        _common(made, nested=True)
        return made

    _blocks(verb)
    _changes(verb)
    _archives(verb)
    _people(verb)


def _common(parser: ArgumentParser, *, nested: bool) -> None:
    usual = SUPPRESS if nested else None  # what was said before the nested verb must stand
    words = "a team file or its folder (default: the nearest team.yaml upwards, else the bundled team)"
    parser.add_argument("--team", metavar="PATH", default=usual, help=words)
    words = f"the SQLite file (default: as the team says, else {USUAL_MEMORY})"
    parser.add_argument("--memory", metavar="PATH", type=Path, default=usual, help=words)
    parser.add_argument("--json", action="store_true", default=SUPPRESS if nested else False, help="one JSON document")
    parser.add_argument("--no-color", action="store_true", default=SUPPRESS if nested else False, help="no colours")


_Verb = Callable[[str, str], ArgumentParser]


def _blocks(verb: _Verb) -> None:
    verb("blocks", "every block: how full it is, its version, who changed it last")
    get = _labelled(verb("get", "what stands in a block"))
    get.add_argument("--version", metavar="N", type=_count, help="as it was in this version")
    history = _labelled(verb("history", "every change of a block, the latest first"))
    history.add_argument("--limit", metavar="N", type=_count, default=20, help="at most so many (default 20)")
    diff = _labelled(verb("diff", "what is different between two versions of a block"))
    diff.add_argument("old", metavar="FROM", type=_count, nargs="?", help="default: the version before the last")
    diff.add_argument("new", metavar="TO", type=_count, nargs="?", help="default: the last one")
    create = _labelled(verb("create", "make a block, shared with the team"))
    create.add_argument("--value", metavar="TEXT", default="", help="what stands in it to begin with; - reads it")
    create.add_argument("--description", metavar="TEXT", default="", help="what it is for")
    create.add_argument("--limit", metavar="N", type=_count, help="how many characters it may hold (default 20000)")
    create.add_argument("--trusted", action="store_true", help="it gives instructions: no text from outside")
    create.add_argument("--read-only", action="store_true", help="nobody but people changes it")
    accesses = ("none", "read", "append", "write")
    create.add_argument("--share", choices=accesses, default="read", help="what every worker may do (default read)")
    delete = _labelled(verb("delete", "delete a block and its history, or an archive and its passages"))
    delete.add_argument("--archive", action="store_true", help="the archive of this name, not the block")
    _sure(delete)


def _changes(verb: _Verb) -> None:
    whole = _labelled(verb("set", "put another text in the place of the whole block"))
    _text(whole)
    whole.add_argument("--expect", metavar="N", type=_count, help="only if this is the version that is there")
    _text(_labelled(verb("append", "add a line to a block")))
    replace = _labelled(verb("replace", "put another text in the place of one that occurs once"))
    replace.add_argument("old", metavar="OLD", help="the text that is there")
    replace.add_argument("new", metavar="NEW", help="the text that takes its place")
    replace.add_argument("--all", action="store_true", help="wherever it occurs")
    patch = _labelled(verb("patch", "apply the hunks of a unified diff to a block"))
    patch.add_argument("file", metavar="FILE", help="the diff; - for standard input")
    _labelled(verb("undo", "take the last change of a block back"))
    _labelled(verb("redo", "take the last undo back"))
    restore = _labelled(verb("restore", "bring the text of an earlier version back"))
    restore.add_argument("version", metavar="VERSION", type=_count, help="its number; `memory history` lists them")


def _archives(verb: _Verb) -> None:
    verb("archives", "every archive: how many passages, how many of them with vectors, which model")
    search = _archive(verb("search", "the best passages of an archive for a question, and why"))
    search.add_argument("query", metavar="QUERY", nargs="+", help="what you want to know, in words")
    _tags(search)
    search.add_argument("--since", metavar="TIME", type=since, help="not older: 2026-05-17, 2026-05-17T09:30 or 7d")
    search.add_argument("--until", metavar="TIME", type=until, help="not younger")
    search.add_argument("--source", metavar="TEXT", default="", help="only what was found there")
    search.add_argument("--limit", metavar="N", type=_count, default=5, help="at most so many (default 5)")
    add = _archive(verb("add", "put texts or files into an archive"))
    add.add_argument("text", metavar="TEXT|FILE", nargs="+", help="words, or files and folders; - for standard input")
    add.add_argument("--tag", metavar="T", action="append", default=[], help="a word to find it by; may be repeated")
    add.add_argument("--source", metavar="TEXT", default="", help="where it is from (default: the file)")
    _created(add)
    passages = _archive(verb("passages", "the passages of an archive, in the order they came"))
    passages.add_argument("--limit", metavar="N", type=_count, default=20, help="at most so many (default 20)")
    passages.add_argument("--after", metavar="ID", default="", help="those after this one")
    forget = _archive(verb("forget", "delete passages"))
    forget.add_argument("ids", metavar="ID", nargs="+", help="as `memory passages` shows it")
    export = verb("export", "write the passages of an archive as JSON lines")
    export.add_argument("archive", metavar="ARCHIVE", nargs="?", default="", help="its name; or else --all")
    export.add_argument("--all", action="store_true", help="those of every archive")
    export.add_argument("-o", "--output", metavar="FILE", help="write them there (default: standard output)")
    read = _archive(verb("import", "put what `export` wrote into an archive; what is there already is not doubled"))
    read.add_argument("file", metavar="FILE", help="JSON lines, as `memory export` writes them")
    _created(read)
    _archive(verb("embed", "make the vectors that are missing"))


def _people(verb: _Verb) -> None:
    _tags(verb("agents", "who shares this memory"))
    verb("tags", "every tag of agents, blocks and archives, and how many carry it")
    talk = verb("talk", "what a worker remembers of its earlier tasks")
    talk.add_argument("worker", metavar="WORKER", help="its name; `memory agents` lists them")
    talk.add_argument("--limit", metavar="N", type=_count, default=20, help="at most so many (default 20)")
    how = talk.add_mutually_exclusive_group()
    how.add_argument("--search", metavar="QUERY", help="find turns by their words, old ones too")
    how.add_argument("--reset", action="store_true", help="forget all of it")
    how.add_argument("--compact", action="store_true", help="put all but the last turns behind a summary")
    _sure(talk)


# --- what several verbs take


def _labelled(parser: ArgumentParser) -> ArgumentParser:
    parser.add_argument("label", metavar="LABEL", help="the name of a block; `memory blocks` lists them")
    return parser


def _archive(parser: ArgumentParser) -> ArgumentParser:
    parser.add_argument("archive", metavar="ARCHIVE", help="its name; `memory archives` lists them")
    return parser


def _text(parser: ArgumentParser) -> None:
    parser.add_argument(
        "text", metavar="TEXT", nargs="+", help="- for standard input; put -- before a text that begins with -"
    )


def _tags(parser: ArgumentParser) -> None:
    parser.add_argument("--tag", metavar="T", action="append", default=[], help="with this tag; may be repeated")
    parser.add_argument("--match", choices=("any", "all"), default="any", help="one of the tags, or all (default any)")


def _sure(parser: ArgumentParser) -> None:
    parser.add_argument("--yes", action="store_true", help="yes, it is to be gone")


def _created(parser: ArgumentParser) -> None:
    parser.add_argument("--create", action="store_true", help="make the archive where there is none of this name")


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= (number := int(text[:10])) <= 1_000_000:
        raise ArgumentTypeError(f"{text!r} is no number from 1 to 1000000")
    return number


# --- times


def since(text: str) -> Callable[[float], float]:
    """From when on: a day begins at midnight here."""
    return _moment(text, timedelta())


def until(text: str) -> Callable[[float], float]:
    """Up to when: a day ends just before the next."""
    return _moment(text, timedelta(days=1) - timedelta(microseconds=1))


def _moment(text: str, more: timedelta) -> Callable[[float], float]:
    """A time once it is known what time it is: a date, a date with a time, or so long ago."""
    said, units = text.strip(), {"m": 60, "h": 3600, "d": 86_400, "w": 604_800}
    if said[-1:] in units and said[:-1].isdecimal() and len(said) <= 8:
        ago = int(said[:-1]) * units[said[-1]]
        return lambda now: now - ago
    try:
        found = datetime.fromisoformat(said)
        whole = found + more if len(said) <= 10 and "T" not in said else found
        at = (whole if whole.tzinfo is not None else whole.astimezone()).astimezone(UTC).timestamp()
    except (ValueError, OverflowError, OSError) as error:
        raise ArgumentTypeError(f"{text!r} is no time; write 2026-05-17, 2026-05-17T09:30 or 7d (ago)") from error
    return lambda _now: at
