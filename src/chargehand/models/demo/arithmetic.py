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
_EXPRESSION = re.compile(r"(?<![\w.])\(?\d[\d,.]*\)?(?:\s*(?:\*\*|[-+*/])\s*\(?\d[\d,.]*\)?)+(?![\w.-])")
_SIGNS = {
    "+": re.compile(r"(?<=\d )plus(?= \d)", re.IGNORECASE),
    "-": re.compile(r"(?<=\d )minus(?= \d)", re.IGNORECASE),
    "*": re.compile(r"(?<=\d )(?:times|multiplied by|x)(?= \d)|(?<=\d)x(?=\d)|\u00d7", re.IGNORECASE),
    "/": re.compile(r"(?<=\d )divided by(?= \d)", re.IGNORECASE),
}
_ALLOWED = word_set(
    """what what's is are was the a calculate compute work out give me tell of it that this please how much many does
    do and to up add total sum together average mean them these those figures numbers amounts all result make come
    comes plus minus times multiplied divided by percent per cent s total"""
)
_TOGETHER = re.compile(r"\b(?:add(?:s|ed)? (?:\w+ )?up|sum|total|altogether|in all|together)\b", re.IGNORECASE)
_WORD = re.compile(r"[^\W_]+(?:'\w+)?")
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
    for sign, words in _SIGNS.items():
        text = words.sub(sign, text)
    percent = _PERCENT.search(text)
    match = percent or (_EXPRESSION.search(text) if not clause.periods else None)
    rest = text if match is None else f"{text[: match.start()]} {text[match.end() :]}"
    if any(word.lower() not in _ALLOWED for word in _WORD.findall(rest)):
        return None
    if percent is not None:
        number = (percent["number"] or "").replace(",", "")
        share = percent["share"]
        return Arithmetic(f"{share}% of {number}") if number else Arithmetic(share=share)
    if match is not None:
        return Arithmetic(match[0].replace(",", ""))
    if clause.points_back and not clause.periods:
        if _AVERAGE.search(text):
            return Arithmetic(operation="avg")
        if _TOGETHER.search(text):
            return Arithmetic(operation="sum")
    return None
