"""Arguments that several verbs take: their types, the options themselves, and the request."""

import math
import re
import sys
from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from chargehand.cli import USUAL_JOURNAL, USUAL_MEMORY
from chargehand.errors import Invalid
from chargehand.models.known import BUILT_IN
from chargehand.terms.duration import parse_duration

MOST = 1 << 20
_LONGEST = 1e9  # seconds: runs and tokens may be kept for many years
_EXAMPLE = 'chargehand run "Which ... and why?"'


def read_request(words: Sequence[str], *, example: str = _EXAMPLE, called: str = "the request") -> str | None:
    """The request; None where nobody asked anything. `-` reads standard input, and so does no word at all in a pipe.

    `example` is what somebody could type who gave an empty one, `called` what it is for the verb.
    """
    said = " ".join(words)
    if words and said != "-":
        return _checked(said, called, example)
    if not words and sys.stdin.isatty():
        return None
    body = sys.stdin.buffer.read(MOST + 1)
    if not words and not body.strip():
        return None
    _check_size(len(body), "standard input")
    try:
        return _checked(body.decode(), "standard input", example)
    except UnicodeDecodeError as error:
        said = f"standard input is not text in UTF-8 (byte {error.start} is {body[error.start]:#04x})"
        raise Invalid(f"{said}; send the request as plain text") from error


def _check_size(size: int, where: str) -> None:
    if size > MOST:
        raise Invalid(f"{where} holds more than {MOST:,} bytes; ask in fewer words, and let a tool read the rest")


def _checked(text: str, where: str, example: str) -> str:
    try:
        _check_size(len(text.encode()), where)
    except UnicodeEncodeError as error:
        raise Invalid(f"{where} is not text: it has bytes that are not UTF-8; send plain text") from error
    found = re.search(r"[\x00-\x08\x0e-\x1f\x7f]", text)
    if found:
        said = f"{where} is not plain text: character {found.start() + 1} is {found[0]!r}"
        raise Invalid(f"{said}; send the request as text, and name files instead of pasting them")
    if not text.strip():
        raise Invalid(f"{where} is empty; say what is to be done, for example: {example}")
    return text.strip()


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
    if not text.isascii() or not text.isdigit():
        raise ArgumentTypeError(f"{text!r} is no whole number; write it like 0 or 100")
    return int(text)


def positive(text: str) -> int:
    """A whole number from 1."""
    number = count(text)
    if number < 1:
        raise ArgumentTypeError(f"{text!r} is less than 1; write it like 1 or 16")
    return number


class TokenPrice(NamedTuple):
    """Dollars for a million tokens that are read, and that are written; `text` is how it was typed."""

    read: float
    written: float
    text: str


def token_price(text: str) -> TokenPrice:
    """Dollars per million tokens from `0.25/2`, in and out."""
    read, _, written = text.replace("$", "").partition("/")
    try:
        price = TokenPrice(float(read), float(written), text)
    except ValueError:
        price = TokenPrice(math.nan, math.nan, text)
    if not (0 <= price.read < 1e6 and 0 <= price.written < 1e6):
        raise ArgumentTypeError(f"{text!r} is no price; write dollars per million tokens, in and out, like 0.25/2")
    return price


def usd(text: str) -> int:
    """Millionths of a dollar from dollars."""
    try:
        amount = float(text.removeprefix("$"))
    except ValueError:
        amount = math.nan
    if not 0 <= amount < 1e9:
        raise ArgumentTypeError(f"{text!r} is no amount of dollars; write it like 0.50")
    return round(amount * 1_000_000)


RUN_HELP = "the run, as  chargehand runs  names it; the beginning of its name; or  last"


# --- what several verbs take


def add_request(parser: ArgumentParser) -> None:
    words = "what is to be done, in words; - for standard input"
    parser.add_argument("request", metavar="REQUEST", nargs="*", help=words)
    words = "the team's own example number N (default 1)"
    parser.add_argument("--example", metavar="N", type=int, nargs="?", const=1, help=words)


def add_team(parser: ArgumentParser) -> None:
    words = "a team file or its folder (default: the nearest team.yaml upwards, else the bundled team)"
    parser.add_argument("--team", metavar="PATH", help=words)
    parser.add_argument(
        "--model", metavar="NAME", help=f"the model of everybody, for example openai:gpt-5-mini or {BUILT_IN}"
    )
    words = "what a model costs that no table has: dollars per million tokens, in and out, like 0.25/2"
    parser.add_argument("--price", metavar="IN/OUT", type=token_price, help=words)
    words = f"where the team's memory is kept (default: as the team says, else {USUAL_MEMORY})"
    parser.add_argument("--memory", metavar="PATH", type=Path, help=words)


def add_reuse(parser: ArgumentParser) -> None:
    words = "take over every result of this run whose task and inputs are unchanged; as for resume, also  last"
    parser.add_argument("--reuse", metavar="RUN", help=words)


def add_background(parser: ArgumentParser) -> None:
    words = "leave what background workers have to do for the next time"
    parser.add_argument("--no-background", action="store_true", help=words)


def add_execution(parser: ArgumentParser) -> None:
    add_journal(parser)
    words = "what a written entry survives: the loss of power, or only the end of the process (default machine)"
    parser.add_argument("--durability", choices=("machine", "process"), default="machine", help=words)
    parser.add_argument("--jsonl", action="store_true", help="the entries as JSON lines on standard output")
    parser.add_argument("-q", "--quiet", action="store_true", help="nothing but the answer, and what is wrong")
    parser.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="one line an event, also where there is a live view, and also for what models are asked and say",
    )
    parser.add_argument("--no-input", action="store_true", help="never ask at the terminal")
    add_color(parser)


def add_journal(parser: ArgumentParser, *, nested: bool = False) -> None:
    words = f"the SQLite file (default {USUAL_JOURNAL})"
    usual = SUPPRESS if nested else Path(USUAL_JOURNAL)  # what was said before the nested verb must stand
    parser.add_argument("--journal", metavar="PATH", type=Path, default=usual, help=words)


def add_color(parser: ArgumentParser) -> None:
    parser.add_argument("--no-color", action="store_true", help="no colours")
