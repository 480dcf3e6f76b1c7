"""A result as what statements are held against: its numbers, its addresses, its words. Statements are not read here."""

import re
from collections.abc import Iterator, Sequence
from decimal import Decimal, InvalidOperation
from typing import cast

import msgspec

from chargehand.agents.quantities import Numbers, numbers

URL = re.compile(r"\b(?:https?://|www\.)[^\s<>\"'`|\\\]]{1,2000}", re.IGNORECASE)
_WORD = re.compile(r"[^\W_]+")
_LONGEST = 300_000  # characters of one result; of a longer one nothing can be said to be missing
_NODES = 200_000


def addresses(text: str) -> Iterator[tuple[str, int, int]]:
    """The URLs of a text, without what ends a sentence, and where they stand."""
    for found in URL.finditer(text):
        held = found[0].rstrip(".,;:!?*_")
        while held.endswith(")") and held.count("(") < held.count(")"):
            held = held[:-1].rstrip(".,;:!?*_")
        yield held, found.start(), found.start() + len(held)


def plain_words(text: str) -> str:
    """The words of a text alone, with one space before and behind each."""
    return f" {' '.join(_WORD.findall(text.casefold()))} "


def address(text: str) -> str:
    """A URL in one spelling."""
    return re.sub(r"^(?:https?://)?(?:www\.)?", "", text.casefold()).rstrip("/")


class Evidence:
    """What some values hold: any JSON, in which tables and lists are also worth what they come to.

    `counts` are how long its lists are, `sums` what its columns add up to. `whole` is False where there was more than
    was looked at; `size` is how many characters there were.
    """

    def __init__(self, *values: object) -> None:
        self._left = _NODES
        self._lengths: set[int] = set()
        self._sums: list[Decimal] = []
        self._plain: list[Decimal] = []
        parts: list[str] = []
        for value in values:
            held = msgspec.to_builtins(value) if isinstance(value, msgspec.Struct) else value
            self._walk(held, parts)
        text = "\n".join(parts)
        self.whole = len(text) <= _LONGEST and self._left > 0
        self.size = len(text)
        self._text = text[:_LONGEST]
        self.numbers = Numbers([*self._plain, *numbers(self._text)])
        self.whole = self.whole and not self.numbers.full
        self.counts = frozenset(self._lengths)
        self.sums = Numbers(self._sums)
        self._urls = frozenset(address(url) for url, _, _ in addresses(self._text))
        self._words = ""

    def says(self, words: str) -> bool:
        """Whether these plain words stand in it, one after the other."""
        self._words = self._words or plain_words(self._text)
        return words in self._words

    def links(self, url: str) -> bool:
        """Whether it names this address, or one under it."""
        plain = address(url)
        return plain in self._urls or any(one.startswith((f"{plain}/", f"{plain}?", f"{plain}#")) for one in self._urls)

    def _walk(self, value: object, parts: list[str]) -> None:
        line: list[object] = [value]
        while line and self._left > 0:
            self._left -= 1
            one = line.pop()
            if isinstance(one, dict):
                held = cast("dict[str, object]", one)
                parts.extend(str(key) for key in held)
                self._lengths.update(_rows(held))
                line.extend(item for key, item in held.items() if key != "svg")
            elif isinstance(one, list | tuple):
                items = cast("Sequence[object]", one)
                self._lengths.add(len(items))
                self._sums.extend(_totals(items))
                line.extend(items)
            elif isinstance(one, int | float) and not isinstance(one, bool):
                self._plain.extend(_number(one))
            elif isinstance(one, str):
                parts.append(one)
                self._lengths.add(listed(one))


def listed(text: str) -> int:
    """How many items or rows a text lists."""
    return len(re.findall(r"^[ \t]{0,12}(?:(?:[-*•]|\d{1,3}[.)])[ \t]|\|(?![ \t]{0,12}:?-))", text, re.MULTILINE))


def _rows(table: dict[str, object]) -> list[int]:
    rows, more = table.get("rows"), table.get("more")
    return [len(cast("list[object]", rows)) + more] if isinstance(rows, list) and isinstance(more, int) else []


def _number(value: object) -> list[Decimal]:
    try:
        found = Decimal(str(value))
    except InvalidOperation:
        return []
    return [found] if found.is_finite() else []


def _totals(items: Sequence[object]) -> Iterator[Decimal]:
    """What numbers in a list come to, or in each column of a list of rows: their sum and their mean."""
    columns: dict[object, list[Decimal]] = {}
    for item in items:
        if isinstance(item, list | tuple):
            cells: list[tuple[object, object]] = list(enumerate(cast("Sequence[object]", item)))
        else:
            cells = list(cast("dict[object, object]", item).items()) if isinstance(item, dict) else [("", item)]
        for at, cell in cells:
            if isinstance(cell, int | float) and not isinstance(cell, bool):
                columns.setdefault(at, []).extend(_number(cell))
    for held in columns.values():
        if len(held) > 1:
            total = sum(held, Decimal(0))
            yield total
            yield total / len(held)
