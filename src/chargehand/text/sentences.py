"""Sentences of a text."""

import re
from collections.abc import Iterator

_BREAK = re.compile(r"(?P<mark>[.!?;:])\s+|\n\s*")
_ABBREVIATIONS = "approx bzw ca cf dr e.g i.e incl inkl mr mrs ms prof st vs z z.b"
_ABBREVIATED = frozenset(_ABBREVIATIONS.split())
_BEFORE_DIGITS = "fig no nr p jan feb mar apr jun jul aug sep sept oct okt nov dec dez"
_ABBREVIATED_BEFORE_DIGITS = frozenset(_BEFORE_DIGITS.split())
_LONGEST_ABBREVIATION = 7
_MONTH = re.compile(
    r"(?:jan|feb|mar|mär|apr|may|mai|jun|jul|aug|sep|oct|okt|nov|dec|dez)[^\W\d_]{0,6}\b", re.IGNORECASE
)


def split_sentences(text: str, marks: str = ".!?") -> list[str]:
    """The sentences of a text, without the space around them; a line break always ends one.

    `marks` are the signs that end a sentence where space follows. An abbreviation or a numbered day (3. May) does not.
    """
    sentences = (text[start:end].strip() for start, end in find_sentences(text, marks))
    return [sentence for sentence in sentences if sentence]


def find_sentences(text: str, marks: str = ".!?") -> Iterator[tuple[int, int]]:
    """Where the sentences of a text begin and end."""
    start = 0
    for match in _BREAK.finditer(text):
        mark = match["mark"]
        is_line_end = "\n" in match[0]
        if not is_line_end and (mark not in marks or (mark == "." and not _ends_sentence(text, match))):
            continue
        yield start, match.start() + (mark is not None)
        start = match.end()
    if start < len(text):
        yield start, len(text)


def _ends_sentence(text: str, match: re.Match[str]) -> bool:
    """Whether a full stop with space behind it ends a sentence."""
    before = text[max(0, match.start() - _LONGEST_ABBREVIATION) : match.start()].split()
    last_word = before[-1].lstrip("([").casefold() if before else ""
    if last_word in _ABBREVIATED:
        return False
    if last_word in _ABBREVIATED_BEFORE_DIGITS and text[match.end() : match.end() + 1].isdigit():
        return False
    is_numbered_day = last_word.isdigit() and len(last_word) <= 2 and _MONTH.match(text, match.end())
    return not is_numbered_day
