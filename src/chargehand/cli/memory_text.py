"""What people hand to `chargehand memory`: words of the command, standard input, files. All of it bounded."""

import re
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from chargehand.errors import Invalid
from chargehand.memory.archives import Passage
from chargehand.memory.origin import Origin
from chargehand.memory.sources import KINDS, read_sources, text_of

MOST = 1 << 20
_STEERING = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def given_text(words: Sequence[str]) -> str:
    """The words as they are, or standard input for `-`."""
    if list(words) == ["-"]:
        return _checked(_standard_input(), "standard input")
    return _checked(" ".join(words), "the text")


def plain_text(text: str) -> str:
    """A text of the command that cannot be standard input."""
    return _checked(text, "the text")


def given_file(name: str) -> str:
    """The text of a file, or standard input for `-`."""
    return _checked(_standard_input(), "standard input") if name == "-" else _checked(text_of(Path(name)), name)


def _standard_input() -> str:
    body = sys.stdin.buffer.read(MOST + 1)
    if len(body) > MOST:
        raise Invalid(f"standard input holds more than {MOST:,} bytes; split it")
    try:
        return body.decode("utf-8-sig").removesuffix("\n")
    except UnicodeDecodeError as error:
        raise Invalid(f"standard input is not text in UTF-8 (byte {error.start}); send plain text") from error


def check_words(options: Namespace) -> None:
    """Raise Invalid for a word of the command that is no text: nothing is looked up with it."""
    for name, value in vars(options).items():
        words: list[object] = list(cast("list[object]", value)) if isinstance(value, list) else [value]
        for word in words:
            try:
                str(word).encode()
            except UnicodeEncodeError as error:
                raise Invalid(
                    f"what is given for {name} is not text: it has bytes that are not UTF-8; send plain text"
                ) from error


def _checked(text: str, where: str) -> str:
    if found := _STEERING.search(text):
        raise Invalid(f"{where} is not plain text: character {found.start() + 1} is {found[0]!r}; take it out")
    return text.replace("\r\n", "\n")


def given_passages(words: Sequence[str], origin: Origin, source: str, tags: Sequence[str]) -> list[Passage]:
    """What `add` is given: standard input, files and folders where the words name such, else one text."""
    if list(words) == ["-"]:
        return _passages([(source, given_text(words))], origin, tags)
    there = [word for word in words if word and _is_path(word)]
    if there and len(there) < len(words):
        strange = next(word for word in words if word not in there)
        raise Invalid(f"there is no file {strange!r}, and {there[0]!r} is one; name files only, or put text in quotes")
    if there:
        found = [_renamed(word, one) for word in words for one in read_sources(Path(word))]
        return _passages([(source or name, text) for name, text in found], origin, tags)
    if len(words) == 1 and words[0].lower().endswith(KINDS) and " " not in words[0]:
        raise Invalid(f"there is no file {words[0]!r}; name one that is there, or say it in more words")
    return _passages([(source, given_text(words))], origin, tags)


def _is_path(word: str) -> bool:
    try:
        return Path(word).exists()
    except (OSError, ValueError):  # too long for a name, or no name at all
        return False


def _renamed(word: str, passage: Passage) -> tuple[str, str]:
    """A text with the path as it was typed."""
    path = Path(word)
    return ((path / passage.origin.source) if path.is_dir() else path).as_posix(), passage.text


def _passages(found: Sequence[tuple[str, str]], origin: Origin, tags: Sequence[str]) -> list[Passage]:
    made: list[Passage] = []
    for source, text in found:
        if not text.strip():
            raise Invalid(f"{source or 'the text'} is empty; say something to be kept")
        by = Origin(origin.by, origin.name, source=source)
        made.append(Passage(text, tuple(dict.fromkeys(tags)), origin=by))
    return made
