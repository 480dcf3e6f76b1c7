"""`chargehand`: reads the words of a command and hands them to its verb. Verbs are imported when they are called."""

import argparse
import os
import re
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from io import TextIOWrapper
from typing import Any, NoReturn

from chargehand import __version__
from chargehand.cli.console import clean
from chargehand.cli.exits import told
from chargehand.cli.verbs import INTERRUPTED, TERMINATED, WORDS, Terminated, loading, options_of

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


def parser(verb: str | None = None) -> argparse.ArgumentParser:
    """Every verb there is, with the options of all of them, or of the one that is named."""
    shape = argparse.RawDescriptionHelpFormatter
    top = _Parser(
        "chargehand", description="A supervisor-worker system for LLM agents.", epilog=told(), formatter_class=shape
    )
    top.add_argument("--version", action="version", version=f"chargehand {__version__}")
    verbs = top.add_subparsers(dest="verb", required=True, metavar="VERB", parser_class=_Parser)
    for name, words in WORDS.items():
        about = words[:1].upper() + words[1:] + "."
        made = verbs.add_parser(name, help=words, description=about, epilog=told(name), formatter_class=shape)
        if verb is None or verb == name:
            options_of(name)(made)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code it ends with."""
    try:
        return _main(list(sys.argv[1:] if arguments is None else arguments))
    except KeyboardInterrupt as stop:  # it may come while the command is still read
        return TERMINATED if isinstance(stop, Terminated) else INTERRUPTED


def _main(words: list[str]) -> int:
    _check_verb(words)
    _open_streams()
    if not words:
        parser("").print_help()
        return 0
    with loading():
        options = parser(words[0]).parse_args(words)
        from chargehand.cli.command import perform  # noqa: PLC0415 - --help must not wait for what only verbs need
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # what this terminal cannot show must not end a run
    return perform(options)


def _open_streams() -> None:
    """Whoever closed one of the three streams gets nothing there, and gives nothing; that is no reason to break.

    They are opened in their order, so each has its own number again and no other file takes it.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            number = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 - it stays open


def _check_verb(words: Sequence[str]) -> None:
    verb = words[0] if words else "--help"  # without a word it is the help that is printed
    if verb.startswith("-") or verb in WORDS:
        return
    alike = get_close_matches(verb, WORDS, 1, 0.6)
    hint = f"did you mean {alike[0]!r}?" if alike else f"the verbs are {', '.join(WORDS)}"
    print(f"chargehand: there is no verb {verb!r}; {hint}", file=sys.stderr)
    sys.exit(2)
