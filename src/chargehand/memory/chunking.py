"""Long texts cut into parts that end where a paragraph, a sentence or a word does. What is done with them is not here.

Every step looks only at a window of the text, so that time grows with its length and with nothing else.
"""

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

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


class Section(Struct, frozen=True):
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
    made: list[Part] = []
    held = heading = ""
    for section in sections(text):
        over, found = _of_section(section)
        for number, paragraph in enumerate(found):
            room = LONGEST - (len(heading) + 2 if heading else 0)
            enough = LEAST // 2 if number == 0 and over else LEAST  # a heading is a good place to end before
            if held and (len(held) >= enough or len(held) + 2 + len(paragraph) > room):
                made.append(Part(held, heading))
                held = ""
            if not held:
                heading = over if number else ""
            held = f"{held}\n\n{paragraph}" if held else paragraph
    return [*made, Part(held, heading)] if held else made


def sections(text: str) -> Iterator[Section]:
    """Each heading with what stands under it. A # in a block of code is no heading."""
    heading = ""
    above = ""
    body = list[str]()
    code = False
    for line in text.splitlines():
        code ^= bool(_FENCE.match(line))
        found = "" if code else heading_of(line)
        if found:
            yield Section(heading=heading, line=above, body="\n".join(body))
            heading = found
            above = line
            body = []
        else:
            body.append(line)
    yield Section(heading=heading, line=above, body="\n".join(body))


def heading_of(line: str) -> str:
    """What a heading in Markdown says (a blank, if it says nothing); empty for any other line."""
    if not line.startswith("#"):
        return ""
    rest = line.lstrip("#")
    if len(line) - len(rest) > 6 or not rest[:1].isspace():
        return ""
    said = rest.strip()
    if not said:
        return rest[1:2]
    # Marks may close the heading too, but something has to be left of it.
    return said if line[-1].isspace() else said.rstrip("#").rstrip() or said[:1]


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


def _of_section(section: Section) -> tuple[str, list[str]]:
    """The heading to carry along, and the paragraphs, the first one with the heading before it."""
    if len(section.line) > LONGEST_HEADING:
        return "", [*paragraphs(f"{section.line}\n\n{section.body}", LONGEST, _ALL_ENDS)]
    line = section.line.rstrip()
    if not line:
        return "", [*paragraphs(section.body, LONGEST, _ALL_ENDS)]
    found = [*paragraphs(section.body, LONGEST - len(line) - 2, _ALL_ENDS)]
    return line, [f"{line}\n\n{found[0]}", *found[1:]] if found else [line]


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
