"""Arithmetic that is spelled out: a percentage of a number, an expression, a sum or an average of what was found."""

import re
from typing import Literal

from msgspec import Struct

from chargehand.models.demo.request import Clause
from chargehand.models.demo.words import word_set

_NUMBER = r"\d[\d,]*(?:\.\d+)?"
_PERCENT = re.compile(
    rf"(?P<share>\d+(?:\.\d+)?)\s*(?:%|percent|per cent)\s+of\s+"
    rf"(?:(?P<number>{_NUMBER})|(?P<pointer>it|that|this|the total|the sum))",
    re.IGNORECASE,
)
_EXPRESSION = re.compile(r"(?<![\w.])\(?\d[\d,.]*\)?(?:\s*(?:\*\*|[-+*/x\u00d7])\s*\(?\d[\d,.]*\)?)+(?![\w.-])")
_WORDED = re.compile(
    rf"(?P<first>{_NUMBER})\s+(?P<operation>plus|minus|times|multiplied by|divided by)\s+(?P<second>{_NUMBER})",
    re.IGNORECASE,
)
_OPERATIONS = {"plus": "+", "minus": "-", "times": "*", "multiplied by": "*", "divided by": "/"}
_ALLOWED = word_set(
    """what what's is are was the a calculate compute work out give me tell of it that this please how much many does
    do and to up add total sum together average mean them these those figures numbers amounts all result make come
    comes plus minus times multiplied divided by percent per cent s total"""
)
_TOGETHER = re.compile(r"\b(?:add(?:s|ed)? (?:\w+ )?up|sum|total|altogether|in all|together)\b", re.IGNORECASE)
_AVERAGE = re.compile(r"\b(?:average|mean)\b", re.IGNORECASE)


class Arithmetic(Struct, frozen=True):
    """What is to be worked out: an expression, or an operation on the numbers of an input."""

    expression: str = ""
    share: str = ""
    operation: Literal["", "sum", "avg"] = ""

    @property
    def needs_input(self) -> bool:
        return not self.expression


def read_arithmetic(clause: Clause) -> Arithmetic | None:
    """The arithmetic a clause spells out; None where it asks for anything else."""
    text = clause.text
    for pattern in (_PERCENT, _WORDED, _EXPRESSION):
        match = pattern.search(text)
        if match is not None and (pattern is _PERCENT or not clause.periods):
            is_all = _nothing_else(text[: match.start()] + " " + text[match.end() :])
            return _expression(pattern, match) if is_all else None
    if clause.points_back and not clause.periods and _nothing_else(text):
        if _AVERAGE.search(text):
            return Arithmetic(operation="avg")
        if _TOGETHER.search(text):
            return Arithmetic(operation="sum")
    return None


def _expression(pattern: re.Pattern[str], match: re.Match[str]) -> Arithmetic:
    if pattern is _EXPRESSION:
        return Arithmetic(re.sub(r"[x\u00d7]", "*", match[0].replace(",", "")))
    if pattern is _WORDED:
        operation = _OPERATIONS[match["operation"].lower()]
        return Arithmetic(f"{match['first'].replace(',', '')} {operation} {match['second'].replace(',', '')}")
    if match["number"]:
        return Arithmetic(f"{match['share']}% of {match['number'].replace(',', '')}")
    return Arithmetic(share=match["share"])


def _nothing_else(text: str) -> bool:
    return all(word.lower() in _ALLOWED for word in re.findall(r"[^\W_]+(?:'\w+)?", text))
