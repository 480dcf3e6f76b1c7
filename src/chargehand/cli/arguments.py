"""Arguments that several verbs take: options declared once, their types, and text from words or standard input."""

import math
import re
import sys
from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from chargehand.cli import ENGINE, STORE, USUAL_DATA, USUAL_JOURNAL, USUAL_MEMORY
from chargehand.config.environment import lookup
from chargehand.engine.declared import parse_duration
from chargehand.errors import Invalid, Refused
from chargehand.journal.protocol import is_named_inside
from chargehand.journal.store import NEWEST, latest_runs, run_names
from chargehand.models.providers import BUILT_IN
from chargehand.store_url import PostgresUrl, parse_store_url, postgres_url
from chargehand.text.words import listed

if TYPE_CHECKING:
    from chargehand.dispatch.engine import EngineUrl

MAX_TEXT = 1 << 20
_LONGEST = 1e9  # seconds: runs and tokens may be kept for many years
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")
RUN_HELP = "name of a run, or its beginning, or  last"


# --- types


def duration(text: str) -> float:
    """Seconds from `90s`, `5m`, `1h30m`, `30d`, `250ms` or a bare number."""
    written = text.strip()
    try:
        bare = re.fullmatch(r"\d+(?:\.\d+)?", written, re.ASCII)
        seconds = parse_duration(f"{written}s" if bare else written, longest=_LONGEST)
    except ValueError:
        seconds = 0.0
    if not seconds:
        raise ArgumentTypeError(f"{text!r} is no duration; write it like 90s, 5m or 1h")
    return seconds


def count(text: str) -> int:
    """A whole number from 0."""
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise ArgumentTypeError(f"{text!r} is no whole number; write it like 0 or 100")
    return int(text)


def positive(text: str) -> int:
    """A whole number from 1."""
    number = count(text)
    if number < 1:
        raise ArgumentTypeError(f"{text!r} is less than 1; write it like 1 or 16")
    return number


def store_place(text: str) -> Path | PostgresUrl:
    """Where a journal or a memory is, from a path or a URL such as `sqlite:///runs.db`."""
    try:
        return parse_store_url(text)
    except Invalid as error:
        raise ArgumentTypeError(str(error)) from None


def database(text: str) -> PostgresUrl:
    """The database of all stores."""
    try:
        return postgres_url(text)
    except Invalid as error:
        raise ArgumentTypeError(str(error)) from None


class TokenPrice(NamedTuple):
    """What a model charges, as it was typed."""

    dollars: tuple[float, ...]
    """For a million tokens that are read, that are written, and perhaps read from the cache, written to it for 5
    minutes, and written to it for an hour."""
    text: str


def token_price(text: str) -> TokenPrice:
    """Dollars per million tokens from `0.25/2`, in and out, up to `3/15/0.3/3.75/6`, with cache reads and writes."""
    try:
        dollars = tuple(float(amount) for amount in text.replace("$", "").split("/"))
    except ValueError:
        dollars = ()
    if not 2 <= len(dollars) <= 5 or not all(0 <= amount < 1e6 for amount in dollars):
        raise ArgumentTypeError(
            f"{text!r} is no price; write dollars per million tokens, in and out, like 0.25/2; further parts are for "
            "what is read from the cache, written to it for 5 minutes, and for an hour: IN/OUT/CACHED/WRITE/WRITE_HOUR"
        )
    return TokenPrice(dollars, text)


def model_handle(text: str) -> str:
    """The handle of a model, such as `openai:gpt-5-mini`; empty where the default is meant."""
    from chargehand.models.resolve import check_handle  # noqa: PLC0415 - --help must not wait for it

    try:
        if text:
            check_handle(text)
    except Invalid as error:
        raise ArgumentTypeError(str(error)) from None
    return text


def usd(text: str) -> int:
    """Millionths of a dollar from dollars."""
    try:
        amount = float(text.removeprefix("$"))
    except ValueError:
        amount = math.nan
    if not 0 <= amount < 1e9:
        raise ArgumentTypeError(f"{text!r} is no amount of dollars; write it like 0.50")
    return round(amount * 1_000_000)


def team_source(text: str) -> Path | str:
    """A team as the command line names it: `module:attr` stays text, all else is a path."""
    from chargehand.config.python_objects import is_python_name  # noqa: PLC0415 - --help must not wait for it

    return text if is_python_name(text) and not Path(text).exists() else Path(text)


# --- options

Options: TypeAlias = Mapping[str, Mapping[str, Any]]
"""Arguments by name, several names of one with a blank between them: what `ArgumentParser.add_argument` takes."""
USUAL_TEAM = "file or module:attr (default: nearest, else bundled)"
TEAM_FILE = "team file (default: nearest, else bundled)"
"""The help of `--team` for verbs that read a team file without its team: they do not take one in Python."""
_SHARED: Options = {
    "--team": {
        "metavar": "PATH",
        "help": USUAL_TEAM,
    },
    "--model": {
        "metavar": "NAME",
        "type": model_handle,
        "help": f"model of every worker: openai:gpt-5-mini, {BUILT_IN} ...",
    },
    "--effort": {
        "metavar": "LEVEL",
        "choices": ("none", "low", "medium", "high", "max"),
        "help": "thinking: none, low, medium, high or max",
    },
    "--price": {
        "metavar": "IN/OUT",
        "type": token_price,
        "help": "of an unlisted model, in $ per million tokens: 0.25/2",
    },
    "--store": {
        "metavar": "URL",
        "type": database,
        "help": f"postgresql://host/name (default ${STORE})",
    },
    "--engine": {
        "metavar": "URL",
        "help": f"temporal://host:7233 or local (${ENGINE})",
    },
    "--heartbeat": {
        "metavar": "TIME",
        "type": duration,
        "default": 15.0,
        "help": "silence after which it is replaced (default 15s)",
    },
    "--allow-host": {
        "metavar": "NAME",
        "action": "append",
        "default": [],
        "help": "a name it may be called by besides its address",
    },
    "--log-format": {
        "metavar": "FORMAT",
        "choices": ("text", "json"),
        "default": "",
        "help": "text, or json: one object a line, with run and task",
    },
    "--memory": {
        "metavar": "PATH",
        "type": store_place,
        "help": f"file or URL (default: team's or {USUAL_MEMORY})",
    },
    "--journal": {
        "metavar": "PATH",
        "type": store_place,
        "help": f"file or URL of the runs (default {USUAL_JOURNAL})",
    },
    "--data": {
        "metavar": "DIR",
        "type": Path,
        "default": Path(USUAL_DATA),
        "help": f"folder of the data (default {USUAL_DATA})",
    },
    "--script": {"metavar": "FILE", "help": "the script of a run that was played"},
    "--reuse": {
        "metavar": "RUN",
        "help": "take over unchanged results of this run, or of  last",
    },
    "--budget-usd": {
        "metavar": "USD",
        "type": usd,
        "help": "the most it may cost, planning included",
    },
    "--max-calls": {
        "metavar": "N",
        "type": positive,
        "help": "the most model calls it may make, planning included",
    },
    "--max-tokens": {
        "metavar": "N",
        "type": positive,
        "help": "the most tokens of all its calls together",
    },
    "--no-background": {
        "action": "store_true",
        "help": "leave background workers for the next time",
    },
    "--durability": {
        "metavar": "LEVEL",
        "choices": ("machine", "process"),
        "default": "machine",
        "help": "machine: entries survive power loss; process: a crash",
    },
    "--json": {"action": "store_true", "help": "one JSON document on standard output"},
    "--jsonl": {"action": "store_true", "help": "entries of the journal as JSON lines, as they come"},
    "--no-input": {"action": "store_true", "help": "never ask at the terminal"},
    "--no-color": {"action": "store_true", "help": "no colours, as with NO_COLOR=1"},
    "-q --quiet": {"action": "store_true", "help": "nothing but the answer, and what is wrong"},
    "-v --verbose": {
        "action": "store_true",
        "help": "every event, with what models are asked and say",
    },
}
TEAM = ("--team", "--model", "--effort", "--price", "--memory")
"""The options that name a team."""


def shared(*names: str, nested: bool = False) -> Options:
    """Options that several verbs take. Below another verb those given before it stand."""
    options = {name: dict(_SHARED[name]) for name in names}
    if nested:
        for settings in options.values():
            settings["default"] = SUPPRESS
    return options


EXECUTION: Options = shared(
    "--store", "--journal", "--durability", "--jsonl", "-q --quiet", "-v --verbose", "--no-input", "--no-color"
)
"""The options of verbs that execute a run."""
REQUEST: Options = {
    "request": {"metavar": "REQUEST", "nargs": "*", "help": "what is to be done, in words; - for standard input"},
    "--example": {
        "metavar": "N",
        "type": int,
        "nargs": "?",
        "const": 1,
        "help": "the team's own example number N (default 1)",
    },
    "--file": {
        "dest": "files",
        "metavar": "PATH",
        "action": "append",
        "default": [],
        "help": "a text, picture or PDF to work on; may be repeated",
    },
}


_GROUPS = {
    "output": ("-q --quiet", "-v --verbose", "--json", "--jsonl", "--save", "--no-input", "--no-color"),
    "more": (
        *("--price", "--memory", "--journal", "--store", "--data", "--durability"),
        *("--max-parallel", "--run", "--script", "--no-background"),
    ),
}
"""The options that the help of a verb lists after those that are used most."""


def add_options(parser: ArgumentParser, options: Options) -> None:
    """Add arguments to a verb, in groups: what is used most, output, more."""
    for names, settings in options.items():
        if not any(names in group for group in _GROUPS.values()):
            parser.add_argument(*names.split(), **settings)
    for title, group_names in _GROUPS.items():
        group = parser.add_argument_group(title)
        for names in group_names:
            if names in options:
                group.add_argument(*names.split(), **options[names])


def add_alternatives(parser: ArgumentParser, options: Options) -> None:
    """Add options of which one at most may be given."""
    group = parser.add_mutually_exclusive_group()
    for names, settings in options.items():
        group.add_argument(*names.split(), **settings)


class Verb(NamedTuple):
    """A verb below a verb: what it is for, its arguments and its function."""

    about: str
    options: Options
    function: Callable[..., Any]
    epilog: str = ""
    """Printed as it is at the end of its help."""


def add_verbs(parser: ArgumentParser, verbs: Mapping[str, Verb], *options: str, team: str = USUAL_TEAM) -> None:
    """The parsers of verbs below a verb. All of them take the options, also before their name.

    `team` is the help of `--team`.
    """
    add_options(parser, _with_team_help(shared(*options), team))
    group = parser.add_subparsers(dest="what", metavar="VERB", title="verbs")
    for name, verb in verbs.items():
        about = f"{verb.about[:1].upper()}{verb.about[1:]}."
        inner = group.add_parser(
            name, help=verb.about, description=about, epilog=verb.epilog, formatter_class=parser.formatter_class
        )
        add_options(inner, {**verb.options, **_with_team_help(shared(*options, nested=True), team)})


def _with_team_help(options: Options, text: str) -> Options:
    return {name: {**settings, "help": text} if name == "--team" else settings for name, settings in options.items()}


# --- text


def read_request(words: Sequence[str], verb: str = "run") -> str | None:
    """The request; None where there is none. `-` reads standard input, and so does no word at all in a pipe."""
    called = "the message" if verb == "message" else "the request"
    if not words and sys.stdin.isatty():
        return None
    text = read_text(words or ["-"], called).strip()
    if not text and not words:
        return None
    if not text:
        raise Invalid(f'{called} is empty; say what is to be done, for example: chargehand {verb} "Which ... and why?"')
    return text


def read_text(words: Sequence[str], called: str) -> str:
    """Words, or standard input for `-`: plain text in UTF-8, and not too much of it."""
    body = " ".join(words).encode()
    if body == b"-":
        called = "standard input"
        body = sys.stdin.buffer.read(MAX_TEXT + 1)
    if len(body) > MAX_TEXT:
        raise Invalid(f"{called} holds more than {MAX_TEXT:,} bytes; send less, and let a tool read the rest")
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        problem = f"{called} is not text in UTF-8 (byte {error.start} is {body[error.start]:#04x})"
        raise Invalid(f"{problem}; send plain text") from error
    if control := _CONTROL.search(text):
        problem = f"{called} is not plain text: character {control.start() + 1} is {control[0]!r}"
        raise Invalid(f"{problem}; send text, and name files instead of pasting them")
    return text.replace("\r\n", "\n")


def write_file(path: Path, body: str) -> None:
    """Write the file that `-o` names."""
    try:
        path.write_text(f"{body}\n", encoding="utf-8")
    except OSError as error:
        raise Invalid(f"{path} cannot be written: {error.strerror}; name another file with -o") from error


# --- stores


def resolve_stores(options: Namespace) -> None:
    """Put the database that the command, the environment or the team file names in the place of files not named."""
    values = vars(options)
    if "store" in values and options.store is None:
        options.store = _usual_store(values.get("team"))
    if "journal" in values and options.journal is None:
        options.journal = options.store or Path(USUAL_JOURNAL)
    if "memory" in values and options.memory is None:
        options.memory = options.store


def _usual_store(team: str | Sequence[Path | str] | None) -> PostgresUrl | None:
    """The database that the environment names, else the team file."""
    if written := lookup(STORE):
        try:
            return postgres_url(written)
        except Invalid as error:
            raise Invalid(f"{STORE}: {error}") from None
    from chargehand.config.load import store_of_team  # noqa: PLC0415 - --help must not wait for it

    teams = [team] if team is None or isinstance(team, str) else team or [None]
    return next((store for path in teams if (store := store_of_team(path)) is not None), None)


def journal_words(journal: Path | PostgresUrl) -> tuple[str, ...]:
    """The words that name the same journal again; none where it is the usual one."""
    if isinstance(journal, PostgresUrl):
        return () if lookup(STORE) else ("--store", str(journal))
    return () if str(journal) == USUAL_JOURNAL else ("--journal", str(journal))


def engine_of(options: Namespace) -> "EngineUrl | None":
    """The engine of the command line, else of the environment; None: each run is driven where it began."""
    from chargehand.dispatch.engine import parse_engine_url  # noqa: PLC0415 - few verbs need it

    return parse_engine_url(options.engine or lookup(ENGINE) or "")


# --- runs that are named

LAST = "last"
_PAGE = 50
_ARGUMENTS = {
    "run": ("reuse",),
    "play": ("reuse",),
    "runs": ("name",),
    "watch": ("name",),
    "resume": ("name",),
    "replay": ("name",),
    "feedback": ("name",),
}
"""The arguments of each verb that name a run."""


def resolve_runs(options: Namespace) -> None:
    """Put the whole name in the place of every run that the command names. Refused where several are meant."""
    for argument in _ARGUMENTS.get(options.verb, ()):
        typed: str | None = getattr(options, argument, None)
        if typed:
            setattr(options, argument, resolve_run(options.journal, typed))


def resolve_run(journal: Path | PostgresUrl, typed: str) -> str:
    """The name of the run that is meant; what was typed, where there is no such run or no journal."""
    if isinstance(journal, Path) and not journal.exists():
        return typed
    names = run_names(journal, typed)
    if typed in names:
        return typed
    if typed == LAST:
        return _last_run(journal)
    candidates = [name for name in names if not is_named_inside(name, names)]
    if len(candidates) > 1:
        raise Refused(f"{typed!r} may be any of {len(candidates)} runs: {listed(candidates)}; type more of its name")
    return candidates[0] if candidates else typed


def _last_run(journal: Path | PostgresUrl) -> str:
    """The run that was begun last, and not inside another."""
    before = NEWEST
    while page := latest_runs(journal, before=before, limit=_PAGE):
        for row in page:
            if not row.damage and (row.request is None or row.request.parent is None):
                return row.run
        before = page[-1].number
    raise Refused(f"there are no runs in {journal}; run something first, or name another with --journal")
