"""Long texts cut into parts that end where a paragraph, a sentence or a word does; and files as passages.

Every step looks only at a window of the text, so that time grows with its length and with nothing else.
"""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from chargehand.errors import Invalid
from chargehand.memory.archives import Passage
from chargehand.memory.blocks import Origin

LEAST = 700
LONGEST = 1100
"""Characters: a part ends with the first paragraph that makes it longer than the one, never longer than the other.

The local embedding model reads 256 pieces of words, which are about so many.
"""
LONGEST_HEADING = 200
SENTENCE_ENDS = (". ", "! ", "? ", "\n")
_ALL_ENDS = (*SENTENCE_ENDS, "。", "！", "？")  # noqa: RUF001 - these end sentences, too
_FENCE = re.compile(r"\s*(?:```|~~~)")
_BETWEEN = re.compile(r"\n\s*\n")


class TextSection(Struct, frozen=True):
    """What stands under a heading; `line` is the heading as it is written."""

    heading: str
    line: str
    body: str


class Part(Struct, frozen=True):
    """`heading` is the line that stands over the text, where the text does not have it itself."""

    text: str
    heading: str = ""

    def __str__(self) -> str:
        return f"{self.heading}\n\n{self.text}" if self.heading else self.text


def cut(text: str) -> list[Part]:
    """The parts of a text, in order: every word is in one of them. A short text is left as it is."""
    if len(text) <= LONGEST:
        return [Part(text)] if text.strip() else []
    parts: list[Part] = []
    pending = heading = ""
    for section in sections(text):
        over, pieces = _of_section(section)
        for number, paragraph in enumerate(pieces):
            room = LONGEST - (len(heading) + 2 if heading else 0)
            enough = LEAST // 2 if number == 0 and over else LEAST  # a heading is a good place to end before
            if pending and (len(pending) >= enough or len(pending) + 2 + len(paragraph) > room):
                parts.append(Part(pending, heading))
                pending = ""
            if not pending:
                heading = over if number else ""
            pending = f"{pending}\n\n{paragraph}" if pending else paragraph
    return [*parts, Part(pending, heading)] if pending else parts


def sections(text: str) -> Iterator[TextSection]:
    """Each heading with what stands under it. A # in a block of code is no heading."""
    heading = ""
    above = ""
    body = list[str]()
    code = False
    for line in text.splitlines():
        code ^= bool(_FENCE.match(line))
        title = "" if code else heading_of(line)
        if title:
            yield TextSection(heading=heading, line=above, body="\n".join(body))
            heading = title
            above = line
            body = []
        else:
            body.append(line)
    yield TextSection(heading=heading, line=above, body="\n".join(body))


def heading_of(line: str) -> str:
    """What a heading in Markdown says (a blank, if it says nothing); empty for any other line."""
    if not line.startswith("#"):
        return ""
    rest = line.lstrip("#")
    if len(line) - len(rest) > 6 or not rest[:1].isspace():
        return ""
    body = rest.strip()
    if not body:
        return rest[1:2]
    # Marks may close the heading too, but something has to be left of it.
    return body if line[-1].isspace() else body.rstrip("#").rstrip() or body[:1]


def paragraphs(body: str, longest: int, ends: Sequence[str] = SENTENCE_ENDS) -> Iterator[str]:
    """The paragraphs of a text without blanks around them, long ones cut behind a sentence, else behind a word."""
    for paragraph in _BETWEEN.split(body):
        start, stop = _stripped(paragraph, 0, len(paragraph))
        while stop - start > longest:
            at = start + _cut_at(paragraph, start, longest, ends)
            first, last = _stripped(paragraph, start, at)
            yield paragraph[first:last]
            start, _ = _stripped(paragraph, at, stop)
        if start < stop:
            yield paragraph[start:stop]


def _of_section(section: TextSection) -> tuple[str, list[str]]:
    """The heading to carry along, and the paragraphs, the first one with the heading before it."""
    if len(section.line) > LONGEST_HEADING:
        return "", [*paragraphs(f"{section.line}\n\n{section.body}", LONGEST, _ALL_ENDS)]
    line = section.line.rstrip()
    if not line:
        return "", [*paragraphs(section.body, LONGEST, _ALL_ENDS)]
    pieces = [*paragraphs(section.body, LONGEST - len(line) - 2, _ALL_ENDS)]
    return line, [f"{line}\n\n{pieces[0]}", *pieces[1:]] if pieces else [line]


def _cut_at(text: str, start: int, longest: int, ends: Sequence[str]) -> int:
    """How long the next part is: in its second half, behind the last sentence, else the last word; else all of it."""
    half = start + longest // 2
    end = start + longest
    at = max(text.rfind(mark, half, end) + len(mark.rstrip()) for mark in ends) - start
    if at > longest // 2:
        return at
    at = text.rfind(" ", half, end) - start
    return at if at > 0 else longest


def _stripped(text: str, start: int, stop: int) -> tuple[int, int]:
    while start < stop and text[start].isspace():
        start += 1
    while start < stop and text[stop - 1].isspace():
        stop -= 1
    return start, stop


# --- files


KINDS = (".md", ".markdown", ".txt")
MOST_FILES = 2_000
MOST_BYTES = 32 * 1024 * 1024
_LARGEST = 8 * 1024 * 1024
_LOOKED_AT = 100_000


def read_sources(folder: Path) -> list[Passage]:
    """The texts of a folder, or of one file, in the order of their names; Invalid for what is no text.

    The source of each is its path below the folder, its origin the team.
    """
    files = source_files(folder)
    root = folder if folder.is_dir() else folder.parent
    texts = [(file.relative_to(root).as_posix(), text_of(file)) for file in files]
    return [Passage(text, origin=Origin("team", source=name)) for name, text in texts if text.strip()]


def source_files(folder: Path) -> list[Path]:
    """The files that `read_sources` would read; Invalid when there are none, too many, or one leads out."""
    if folder.is_file():
        files = [folder]
    elif folder.is_dir():
        files = _below(folder)
    else:
        raise Invalid(f"there is no file or folder {folder}; name one with .md or .txt files")
    if not files:
        raise Invalid(f"there are no .md or .txt files in {folder}; put some there, or name another folder")
    _check_size(folder, files)
    return files


def _below(folder: Path) -> list[Path]:
    root = folder.resolve()
    files = list[Path]()
    looked_at = 0
    for place, folders, names in os.walk(folder, followlinks=False):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        looked_at += len(names) + len(folders)
        if looked_at > _LOOKED_AT:
            raise Invalid(f"{folder} holds more than {_LOOKED_AT:,} files; name a folder with nothing but texts")
        for name in sorted(names):
            file = Path(place, name)
            if name.startswith(".") or file.suffix.lower() not in KINDS:
                continue
            if not _target(file).is_relative_to(root):
                raise Invalid(f"{file} is a link that leads out of {folder}; copy the text into the folder")
            if file.is_file():
                files.append(file)
    return files


def _target(file: Path) -> Path:
    try:
        return file.resolve()
    except (OSError, RuntimeError) as error:
        raise Invalid(f"{file} cannot be followed: {error}; take the link away") from error


def _check_size(folder: Path, files: list[Path]) -> None:
    sizes = [_size(file) for file in files]
    if len(files) > MOST_FILES or sum(sizes) > MOST_BYTES:
        have = f"{folder} holds {len(files):,} texts of {sum(sizes):,} bytes"
        raise Invalid(f"{have}; {MOST_FILES:,} and {MOST_BYTES:,} is the most, so split it over several archives")


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError as error:
        raise Invalid(f"{file} cannot be read: {error.strerror}; change its mode, or take it away") from error


def text_of(file: Path) -> str:
    """The text of one file; Invalid for what is too large, cannot be read, or is no text in UTF-8."""
    try:
        with file.open("rb") as opened:
            body = opened.read(_LARGEST + 1)
    except OSError as error:
        hint = "name a file that is there, or change its mode"
        raise Invalid(f"{file} cannot be read: {error.strerror}; {hint}") from error
    if len(body) > _LARGEST:
        raise Invalid(f"{file} is larger than {_LARGEST:,} bytes; split it into several files")
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Invalid(f"{file} is not text in UTF-8 (byte {error.start}); save it as UTF-8, or take it away") from error
    if "\0" in text:
        raise Invalid(f"{file} is not text: it holds zero bytes; take it away")
    return text
