"""`chargehand`: the verbs, parsing a command, calling its verb, and errors in one line with their exit code."""

import argparse
import logging
import os
import re
import shlex
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import Any, NoReturn, cast

from chargehand import __version__
from chargehand.cli import USUAL_JOURNAL
from chargehand.cli.console import Console, OutputLost, clean
from chargehand.cli.exit_codes import INTERRUPTED, TERMINATED, Terminated, error_exit_code, help_text
from chargehand.errors import ChargehandError, PlanInvalid, RunUnknown
from chargehand.text.words import nearest_names

VERBS = {
    "run": "plan a request, carry it out and answer it",
    "plan": "plan a request, or check a plan, and say what it will take",
    "init": "make a team of your own to start from",
    "check": "check a team file",
    "doctor": "say what works here, and what is missing",
    "runs": "list, show, export, cancel, prune, back up and restore runs",
    "watch": "look on while another process drives a run",
    "resume": "go on with a run after a stop, a crash or a question",
    "replay": "do a run again from one task on",
    "message": "ask workers directly, by tag or by name",
    "memory": "what a team remembers: blocks and archives",
    "mcp": "tools of MCP servers: pin, diff, approve; teams for MCP clients: serve",
    "store": "copy runs and memory between files and PostgreSQL",
    "eval": "try cases on a team and say how good it is; save cases",
    "serve": "serve teams over HTTP, and a page that shows their runs",
    "worker": "drive runs that servers began, as one of many processes",
    "tokens": "who may call the server: create, list, revoke",
    "models": "small models on this machine: list, pull, remove",
    "feedback": "say how a routed run went, so that the team learns from it",
    "examples": "requests that were confirmed to be for a worker",
    "play": "run a scripted plan without a model",
    "completion": "print the lines that make a shell complete commands",
    "fault-server": "serve every fault a model provider can have, for tests",
}
"""What each verb is for. Its function has its name, in the module of its name, which is imported when it is called."""
_MODULES = {
    "watch": "run",
    "init": "team_file",
    "check": "team_file",
    "resume": "run",
    "replay": "run",
    "play": "run",
    "fault-server": "models",
    "eval": "evaluate",
    "feedback": "examples",
    "tokens": "serve",
    "completion": "main",
}
"""The modules of verbs that have none of their own name."""


# --- parsing


class _Parser(ArgumentParser):
    """Options are written out: what is short for one today may be short for two tomorrow."""

    _words: Sequence[str] = ()

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, allow_abbrev=False, **settings)
        self._positionals = self._optionals  # listed together: the help has to fit a screen

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride] - its own types are overloads
        self._words = [str(word) for word in args or ()]
        options, rest = super().parse_known_args(args, namespace)
        if rest:  # here, where the verb is known, and so its options
            self.error(f"unrecognized arguments: {' '.join(rest)}")
        return options, rest

    def error(self, message: str) -> NoReturn:
        choice = re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message)
        extra = re.match(r"unrecognized arguments: ([^\s=]+)", message)
        words = self._words[: self._words.index(choice[1])] if choice and choice[1] in self._words else self._words
        unknown = [word for word in words if word.startswith("--") and word not in self._option_string_actions]
        option = extra[1] if extra and extra[1].startswith("--") else ""
        if choice and unknown:
            option = unknown[0]  # the word was meant to be its value
        hint = ";"
        if option:
            message = f"there is no option {option}"
            names = [name.removeprefix("--") for name in self._option_string_actions]
            hint = _did_you_mean(option.removeprefix("--"), names, "--")
        elif choice:
            hint = _did_you_mean(choice[1], re.findall(r"[\w-]+", choice[2]))
        elif "arguments" in message and any(re.match(r"-[^-]", word) for word in self._words):
            hint = "; put  --  before words that begin with a dash;"
        elif extra and "--team" in self._option_string_actions:
            hint = f"; to name a team file: {self.prog} --team {shlex.quote(clean(extra[1]))};"
        self.exit(2, f"chargehand: {clean(message)}{hint} see  {self.prog} --help\n")


def _did_you_mean(word: str, names: Iterable[str], prefix: str = "") -> str:
    alike = nearest_names(word, names, count=1)
    return f"; did you mean '{prefix}{alike[0]}'?" if alike else ";"


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    def add_usage(self, usage: Any, actions: Any, groups: Any, prefix: Any = None) -> None:  # noqa: ARG002 - argparse's own
        """Only the words: the options are listed below."""
        super().add_usage(usage, [action for action in actions if not action.option_strings], [], prefix)

    def add_argument(self, action: argparse.Action) -> None:
        """All but `--help`, which has just been used."""
        if action.dest != "help":
            super().add_argument(action)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        """The value of an option that has two names once."""
        if action.option_strings and action.nargs != 0:
            return f"{', '.join(action.option_strings)} {self._format_args(action, action.dest.upper())}"
        return super()._format_action_invocation(action)


def parser(verb: str | None = None) -> ArgumentParser:
    """Every verb there is, with the options of all of them, or of the one that is named."""
    top = _Parser(
        "chargehand",
        description="A supervisor-worker system for LLM agents.",
        epilog=f"chargehand VERB --help lists the options of a verb.\n\n{help_text()}",
        formatter_class=_HelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"chargehand {__version__}")
    verbs = top.add_subparsers(dest="verb", required=True, metavar="VERB", title="verbs", parser_class=_Parser)
    for name, words in VERBS.items():
        about = f"{words[:1].upper()}{words[1:]}."
        verb_parser = verbs.add_parser(
            name, help=words, description=about, epilog=help_text(name), formatter_class=_HelpFormatter
        )
        if verb is None or verb == name:
            _function(name, "add_")(verb_parser)
    return top


def _function(verb: str, prefix: str = "") -> Callable[[Any], Any]:
    """The function of a verb, or the one that adds its options."""
    module = import_module(f"chargehand.cli.{_MODULES.get(verb, verb)}")
    return cast("Callable[[Any], Any]", getattr(module, f"{prefix}{verb.replace('-', '_')}"))


# --- one command


def run_program() -> NoReturn:
    """Run the command of this process, and end it."""
    status = main()
    if "temporalio" in sys.modules:  # its threads may abort the process in Python's own shutdown
        logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(status)
    sys.exit(status)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code it ends with."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        _open_streams()
        _check_words(words)
        if not words:
            parser("").print_help()
            return 0
        options = parser(words[0]).parse_args(words)
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")  # what this terminal cannot show must not end a run
        return perform(options)
    except KeyboardInterrupt as stop:  # it may come while the command is still read
        return TERMINATED if isinstance(stop, Terminated) else INTERRUPTED
    except FileNotFoundError:
        try:
            Path.cwd()
        except FileNotFoundError:
            Console(sys.stderr).line(
                "chargehand: the folder you are in is not there any more; go to one that is", "bad"
            )
            return 2
        raise


def _open_streams() -> None:
    """Open standard streams that the caller closed on the null device.

    They are opened in their order, so each has its own number again and no other file takes it.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            number = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 - it stays open


def _check_words(words: Sequence[str]) -> None:
    """End the command where a word is no text, or the first is no verb."""
    problem = ""
    for word in words:
        if not word.isascii() and word != word.encode(errors="ignore").decode():
            problem = f"{word!r} is not text in UTF-8; send plain text"
    if words and not words[0].startswith("-") and words[0] not in VERBS:
        alike = nearest_names(words[0], VERBS, count=1)
        hint = f"did you mean {alike[0]!r}?" if alike else f"the verbs are {', '.join(VERBS)}"
        if " " in words[0].strip():
            hint = f"to have a request done: chargehand run {shlex.quote(clean(words[0]))}"
        problem = f"there is no verb {words[0]!r}; {hint}"
    if problem:
        print(f"chargehand: {problem}", file=sys.stderr)
        sys.exit(2)


_REPORTS_RUNS = ("run", "resume", "replay", "play", "message", "doctor")
_REPORTED_LOGGERS = ("chargehand.runtime.run_log", "chargehand.models.guard")
"""Loggers whose warnings those verbs tell in words of their own."""
_MCP_LOGGER = "chargehand.tools.mcp_session"
"""The same for verbs of `mcp` that ask servers what they offer."""
_TOLD_BY_WORKERS = ("chargehand.server.app", "chargehand.dispatch.job_driver")
"""Loggers that say when a worker stops, and which runs it takes over or hands over: told without --verbose too."""


def perform(options: Namespace) -> int:
    """Call the verb of a command; its exit code."""
    values = vars(options)
    if values.get("no_color"):
        os.environ["NO_COLOR"] = "1"
        os.environ.pop("FORCE_COLOR", None)
    try:
        _set_up_logging(options.verb, values)
        from chargehand.cli.arguments import resolve_runs, resolve_stores  # noqa: PLC0415 - --help must not wait for it

        resolve_stores(options)
        resolve_runs(options)
        return cast("int", _function(options.verb)(options))
    except ChargehandError as error:
        for line in f"chargehand: {_describe_error(error, options)}".split("\n"):
            Console(sys.stderr).prose(line, "bad")
        return error_exit_code(type(error))


def _set_up_logging(verb: str, values: Mapping[str, Any]) -> None:
    from chargehand.cli.log_lines import FORMAT, log_handler  # noqa: PLC0415 - --help must not wait for it

    handler = log_handler(values.get("log_format") or os.environ.get(FORMAT, "") or "text")
    if verb in _REPORTS_RUNS and not values.get("verbose"):
        handler.addFilter(lambda record: record.name not in _REPORTED_LOGGERS)
    if verb == "mcp" and values.get("what") != "serve":
        handler.addFilter(lambda record: record.name != _MCP_LOGGER)
    level = logging.INFO if values.get("verbose") else logging.WARNING
    logging.basicConfig(level=level, handlers=[handler], format="%(message)s")
    if verb == "worker":
        for name in _TOLD_BY_WORKERS:
            logging.getLogger(name).setLevel(logging.INFO)


# --- errors

_KEEPS_RUNS = ("run", "play", "resume", "replay", "message")


def _describe_error(error: ChargehandError, options: Namespace) -> str:
    from chargehand.cli.arguments import journal_words  # noqa: PLC0415 - as above

    values = vars(options)
    list_runs = shlex.join(("chargehand", "runs", *journal_words(values.get("journal") or Path(USUAL_JOURNAL))))
    if isinstance(error, RunUnknown):
        return f"{error}; those there are: {list_runs}"
    if isinstance(error, OutputLost):
        outcome = "what the command was to change is changed"
        return f"{error}; {f'runs are kept: {list_runs}' if options.verb in _KEEPS_RUNS else outcome}"
    if not isinstance(error, PlanInvalid):
        return str(error)
    file = str(values.get("plan") or values.get("source") or values.get("file") or "the plan")
    first = error.findings[0]
    more = len(error.findings) - 1
    see = f" ({more} more: chargehand plan --from {shlex.quote(file)})" if more else ""
    return f"{file}: {first.place}: {first.message} [{first.code}]{see}"


# --- completion

_HOW = """\
bash, in ~/.bashrc:
  eval "$(chargehand completion bash)"
zsh, in ~/.zshrc, after compinit:
  eval "$(chargehand completion zsh)"
fish, once:
  chargehand completion fish > ~/.config/fish/completions/chargehand.fish
Where it is kept in a file, make it anew after an upgrade.

"""
_FILES = ("PATH", "FILE", "SCRIPT", "TEXT|FILE")
_FOLDERS = ("DIR",)


def add_completion(parser: ArgumentParser) -> None:
    parser.epilog = _HOW + (parser.epilog or "")
    about = "the shell it is for: bash, zsh or fish"
    parser.add_argument("shell", metavar="SHELL", choices=("bash", "zsh", "fish"), help=about)


def completion(options: Namespace) -> int:
    """Print the script."""
    import shtab  # noqa: PLC0415 - only this verb needs it

    whole = parser()
    _mark_paths(whole, file=shtab.FILE, folder=shtab.DIRECTORY)
    Console(sys.stdout).text(shtab.complete(whole, options.shell))
    return 0


def _mark_paths(parser: ArgumentParser, *, file: object, folder: object) -> None:
    """Tell shtab which arguments are files and folders: their metavar says so."""
    for action in parser._actions:  # noqa: SLF001 - argparse has no other list of them
        if action.metavar in _FILES:
            vars(action)["complete"] = file
        elif action.metavar in _FOLDERS:
            vars(action)["complete"] = folder
        if isinstance(action.choices, Mapping):
            for inner in cast("Mapping[str, ArgumentParser]", action.choices).values():
                _mark_paths(inner, file=file, folder=folder)
