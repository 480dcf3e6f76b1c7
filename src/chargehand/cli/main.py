"""`chargehand`: parses a command, calls its verb, and reports errors in one line with their exit code."""

import argparse
import logging
import os
import re
import shlex
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from io import TextIOWrapper
from pathlib import Path
from typing import Any, NoReturn, cast

from chargehand import __version__
from chargehand.cli import USUAL_JOURNAL
from chargehand.cli.commands import VERBS, add_options, loading, verb_function
from chargehand.cli.console import Console, OutputLost, clean
from chargehand.cli.exit_codes import INTERRUPTED, TERMINATED, Terminated, error_exit_code, help_text
from chargehand.errors import ChargehandError, PlanInvalid, RunUnknown

_DASHED = re.compile(r"-[^-]")  # an option of one letter, or a text


class _Parser(argparse.ArgumentParser):
    _words: Sequence[str] = ()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride] - its own types are overloads
        self._words = [str(word) for word in args or ()]
        found, rest = super().parse_known_args(args, namespace)
        if rest:  # here, where the verb is known, and so its options
            self.error(f"unrecognized arguments: {' '.join(rest)}")
        return found, rest

    def error(self, message: str) -> NoReturn:
        said = re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message)
        alike = get_close_matches(said[1], re.findall(r"[\w-]+", said[2]), 1, 0.6) if said else []
        if unknown := re.match(r"unrecognized arguments: (--[\w-]+)", message):
            alike = get_close_matches(unknown[1], self._option_string_actions, 1, 0.7)
        hint = f"; did you mean {alike[0]!r}?" if alike else ";"
        if "arguments" in message and any(_DASHED.match(word) for word in self._words):
            hint = "; put  --  before words that begin with a dash;"
        self.exit(2, f"chargehand: {clean(message)}{hint} see  {self.prog} --help\n")


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    def add_usage(self, usage: Any, actions: Any, groups: Any, prefix: Any = None) -> None:  # noqa: ARG002 - argparse's own
        """Only the words: the options are listed below."""
        super().add_usage(usage, [action for action in actions if not action.option_strings], [], prefix)


def parser(verb: str | None = None) -> argparse.ArgumentParser:
    """Every verb there is, with the options of all of them, or of the one that is named."""
    top = _Parser(
        "chargehand",
        description="A supervisor-worker system for LLM agents.",
        epilog=help_text(),
        formatter_class=_HelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"chargehand {__version__}")
    verbs = top.add_subparsers(dest="verb", required=True, metavar="VERB", parser_class=_Parser)
    for name, words in VERBS.items():
        about = words[:1].upper() + words[1:] + "."
        made = verbs.add_parser(
            name, help=words, description=about, epilog=help_text(name), formatter_class=_HelpFormatter
        )
        if verb is None or verb == name:
            add_options(name, made)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code it ends with."""
    try:
        return _main(list(sys.argv[1:] if arguments is None else arguments))
    except KeyboardInterrupt as stop:  # it may come while the command is still read
        return TERMINATED if isinstance(stop, Terminated) else INTERRUPTED


def _main(words: list[str]) -> int:
    _open_streams()
    _check_words(words)
    _check_verb(words)
    if not words:
        parser("").print_help()
        return 0
    with loading():
        options = parser(words[0]).parse_args(words)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # what this terminal cannot show must not end a run
    return perform(options)


def _open_streams() -> None:
    """Open standard streams that the caller closed on the null device.

    They are opened in their order, so each has its own number again and no other file takes it.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            number = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 - it stays open


def _check_words(words: Sequence[str]) -> None:
    for word in words:
        try:
            word.encode()
        except UnicodeEncodeError:
            print(f"chargehand: {word!r} is not text in UTF-8; send plain text", file=sys.stderr)
            sys.exit(2)


def _check_verb(words: Sequence[str]) -> None:
    verb = words[0] if words else "--help"  # without a word it is the help that is printed
    if verb.startswith("-") or verb in VERBS:
        return
    alike = get_close_matches(verb, VERBS, 1, 0.6)
    hint = f"did you mean {alike[0]!r}?" if alike else f"the verbs are {', '.join(VERBS)}"
    print(f"chargehand: there is no verb {verb!r}; {hint}", file=sys.stderr)
    sys.exit(2)


_REPORTS_RUNS = ("run", "resume", "replay", "play", "message", "doctor")
_REPORTED_LOGGERS = ("chargehand.runtime.run_log", "chargehand.models.guard")
"""Loggers whose warnings those verbs tell in words of their own."""


class _LogLines(logging.Handler):
    """One line a record, to whatever standard error is then: a view that moves may have taken its place."""

    def emit(self, record: logging.LogRecord) -> None:
        Console(sys.stderr).prose(clean(f"chargehand: {record.levelname.lower()}: {self.format(record)}"), "warn")


def perform(options: Namespace) -> int:
    """Call the verb of a command; its exit code."""
    given = vars(options)
    if given.get("no_color"):
        os.environ["NO_COLOR"] = "1"
        os.environ.pop("FORCE_COLOR", None)
    handler = _LogLines()
    if options.verb in _REPORTS_RUNS and not given.get("verbose"):
        handler.addFilter(lambda record: record.name not in _REPORTED_LOGGERS)
    logging.basicConfig(
        level=logging.INFO if given.get("verbose") else logging.WARNING, handlers=[handler], format="%(message)s"
    )
    try:
        with loading():
            from chargehand.cli.run_names import resolve_runs  # noqa: PLC0415 - --help must not wait for it

            verb = verb_function(options.verb)
        resolve_runs(options)
        return verb(options)
    except ChargehandError as error:
        Console(sys.stderr).prose(f"chargehand: {clean(_describe_error(error, options))}", "bad")
        return error_exit_code(type(error))
    except FileNotFoundError:
        if _folder_exists():
            raise
        Console(sys.stderr).line("chargehand: the folder you are in is not there any more; go to one that is", "bad")
        return 2


def _folder_exists() -> bool:
    """Whether the current folder is still there."""
    try:
        Path.cwd()
    except FileNotFoundError:
        return False
    return True


def _describe_error(error: ChargehandError, options: Namespace) -> str:
    if isinstance(error, RunUnknown):
        return f"{error}; those there are: chargehand runs{_journal_option(vars(options))}"
    if isinstance(error, OutputLost):
        return f"{error}; {_what_is_kept(options)}"
    if not isinstance(error, PlanInvalid):
        return str(error)
    file: str = next((found for name in ("plan", "source", "file") if (found := vars(options).get(name))), "the plan")
    first = error.findings[0]
    more = len(error.findings) - 1
    see = f" ({more} more: chargehand plan --from {shlex.quote(file)})" if more else ""
    return f"{file}: {first.place}: {first.message} [{first.code}]{see}"


# --- output that could not be written

_EXECUTES = ("run", "play", "resume", "message")
_CHANGES = {
    "memory": ("set", "restore", "add", "import", "embed"),
    "models": ("pull", "rm"),
    "tokens": ("revoke",),
    "runs": ("cancel", "prune", "backup", "restore"),
}  # what is done before anything is printed
_DONE = "it was done all the same; only its output is missing"
_AGAIN = "nothing was changed; make room, or send the output elsewhere, and do it again"
_TOKEN = "a token was made that nobody saw: chargehand tokens lists it; revoke it, and create another"  # noqa: S105 - words
_SERVED = "nothing is served; if a first token was made, nobody saw it: chargehand tokens create makes another"
_SAVED = "the case was saved all the same"
_EVAL = "eval keeps no runs"


def _what_is_kept(options: Namespace) -> str:
    """What became of what the command was to do, in words."""
    given = cast("Mapping[str, object]", vars(options))
    verb = str(given["verb"])
    if verb in _EXECUTES or (verb == "replay" and given["source"] is not None and not given["dry"]):
        return f"runs are kept: chargehand runs{_journal_option(given)}"
    if verb == "eval":
        return _what_eval_kept(options)
    if verb == "serve":
        return _SERVED
    if verb == "tokens" and given["what"] == "create":
        return _TOKEN
    return _DONE if _changed(verb, given) else _AGAIN


def _journal_option(given: Mapping[str, object]) -> str:
    """The words that name the same journal again; none for the usual one."""
    journal = str(given.get("journal", USUAL_JOURNAL))
    return "" if journal == USUAL_JOURNAL else f" --journal {shlex.quote(journal)}"


def _what_eval_kept(options: Namespace) -> str:
    first = options.what[0] if options.what else ""
    if first == "save" and options.to is not None:
        return _SAVED
    if first == "audit":
        return _AGAIN
    written = [
        str(one) for one in (options.output, options.markdown, options.junit) if one is not None and one.is_file()
    ]
    if written:
        return f"{_EVAL}, but the report is in {written[0]}"
    return f"{_EVAL}: write the report into a file with -o FILE"


def _changed(verb: str, given: Mapping[str, object]) -> bool:
    if verb == "init":
        return not given["list"]
    act = given.get("act") or given.get("what")
    return verb == "feedback" or bool(given.get("clear")) or act in _CHANGES.get(verb, ())
