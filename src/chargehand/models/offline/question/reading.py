"""The words of a question and what in a schema each may mean: a table, a column, or a value of one.

Nothing is decided here: one word may mean several things, and later parts choose and mark what they used.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Literal

from msgspec import Struct, field

from chargehand.models.offline.schema_text import Column, Link, Relation, links, root
from chargehand.models.offline.words import STOP, VERBS, Dated, dates, quoted, related, stem, tokens

_WORD = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?%?|[^\W\d_]+(?:['\u2019][^\W\d_]+)?(?:-\d+\b)?|[<>]=?")
# parts of column names that alone say nothing about what is in the column
_FAINT = frozenset(
    stem(word) for word in ("id", "on", "at", "date", "day", "time", "name", "no", "number", "total", "percent", "code",
                            "type", "count", "in", "of", "by", "per", "is", "has", "key", "value")
)  # fmt: skip
# words that order something to be done, whatever column they sound like
_ORDERS = frozenset(
    stem(word)
    for word in ("sort", "rank", "list", "show", "compare", "calculate", "find", "report", "compute", "look", "versus",
                 "write", "draw", "times", "add", "return", "note", "sum", "total", "number", "count", "percent",
                 "share", "rate", "change", "most", "best", "top", "least", "lowest", "average", "difference")
)  # fmt: skip
# superlatives: the most of something first, or the least
UP = frozenset({"most", "top", "highest", "largest", "biggest", "best", "greatest", "longest", "oldest", "heaviest",
                 "latest", "newest", "busiest", "fastest", "strongest", "farthest", "tallest", "richest"})  # fmt: skip
DOWN = frozenset({"least", "lowest", "smallest", "fewest", "cheapest", "worst", "bottom", "shortest", "youngest",
                   "earliest", "lightest", "slowest", "nearest", "oldest-dated", "weakest"})  # fmt: skip
_DOING = VERBS | frozenset(stem(word) for word in VERBS)
IRREGULAR = {"lose": "lost", "loses": "lost", "win": "won", "wins": "won"}  # what is done, and what a row says of it
_CODE, _LONG = 3, 6


class Word(Struct, frozen=True):
    """One word: as written, in lower case, its stem, and where it stands."""

    raw: str
    low: str
    stem: str
    start: int


class Mention(Struct, frozen=True):
    """Words `begin` to `end` may mean this. `part`: the value only occurs inside longer ones."""

    kind: Literal["table", "column", "value"]
    begin: int
    end: int
    score: float
    table: str
    column: Column | None = None
    value: str = ""
    part: bool = False

    def covers(self, at: int) -> bool:
        return self.begin <= at < self.end


class Reading(Struct):
    """`used` are the places of words that found a meaning, `named` those of names that stand in no list of values."""

    text: str
    schema: tuple[Relation, ...]
    words: list[Word]
    dated: list[Dated]
    quotes: list[str]
    links: tuple[Link, ...]
    mentions: list[Mention] = field(default_factory=list[Mention])
    ordered: dict[int, list[Mention]] = field(default_factory=dict[int, list[Mention]])
    used: set[int] = field(default_factory=set[int])
    named: set[int] = field(default_factory=set[int])

    def table(self, name: str) -> Relation:
        return next(one for one in self.schema if one.name == name)

    def columns(self) -> Iterator[Column]:
        return (column for table in self.schema for column in table.columns)

    def place(self, words: Collection[str], after: int = 0) -> int:
        """Where the first of these words (or stems) stands; -1 where none does."""
        return next((at for at, one in enumerate(self.words) if at >= after and one.low in words), -1)

    def place_of(self, stems: Collection[str]) -> int:
        """Where the first word with one of these stems stands; -1 where none does."""
        return next((at for at, one in enumerate(self.words) if one.stem in stems), -1)

    def at(self, place: int, kind: str = "") -> list[Mention]:
        """What a word may mean, best first: by how sure it is, then by how many words agree."""
        return [one for one in self.ordered.get(place, ()) if not kind or one.kind == kind]

    def index(self) -> None:
        """Have the mentions at hand by place."""
        for one in sorted(self.mentions, key=lambda one: (-one.score, -(one.end - one.begin))):
            for place in range(one.begin, one.end):
                self.ordered.setdefault(place, []).append(one)

    def use(self, *places: int) -> None:
        self.used.update(places)

    def use_mention(self, mention: Mention) -> None:
        self.used.update(range(mention.begin, mention.end))


def read(text: str, schema: tuple[Relation, ...]) -> Reading:
    """The words of a question, without its dates, and all they may mean."""
    dated = dates(text)
    open_text = text
    for one in dated:
        open_text = open_text[: one.start] + " " * (one.end - one.start) + open_text[one.end :]
    words = [_word(match) for match in _WORD.finditer(open_text.replace("_", " "))]
    reading = Reading(text, schema, words, dated, quoted(text), links(schema))
    reading.mentions += _tables(reading)
    reading.mentions += _columns(reading)
    reading.mentions += _values(reading)
    reading.mentions += _doers(reading)
    reading.index()
    return reading


def _doers(reading: Reading) -> Iterator[Mention]:
    """Who does something: "who supplies the tents" asks for the supplier."""
    said = [one.low for one in reading.words[:3]]
    if not said or said[0] != "who" or len(said) < 2 or said[1] in STOP:
        return
    verb = re.sub("y$", "i", stem(said[1]))
    for table in reading.schema:
        if _does(table.name.removesuffix("s"), verb):
            yield Mention("table", 1, 2, 1.5, table.name)
        for column in table.columns:
            if not column.numeric and any(_does(part, verb) for part in tokens(column.name)):
                yield Mention("column", 1, 2, 1.5, table.name, column)


def _does(name: str, verb: str) -> bool:
    """Whether a name is that of the person who does it: a driver drives, a supplier supplies."""
    bare = re.sub("(?:er|or)$", "", name)
    return bare != name and len(verb) >= 3 and bare.startswith(verb) and len(bare) - len(verb) <= 1


def whoever(reading: Reading) -> bool:
    """Whether it asks who does something, and a table or column is called after just that."""
    return bool(reading.words) and reading.words[0].low == "who" and any(one.score >= 1.5 for one in reading.at(1))


def _word(match: re.Match[str]) -> Word:
    raw = match[0]
    low = re.sub(r"['\u2019]s$", "", raw.lower())
    return Word(raw, low.replace(",", "") if low[0].isdigit() else low, root(low), match.start())


def _tables(reading: Reading) -> Iterator[Mention]:
    for table in reading.schema:
        for begin in range(len(reading.words)):
            span = len(table.stems)
            if [one.stem for one in reading.words[begin : begin + span]] == list(table.stems):
                yield Mention("table", begin, begin + span, float(span), table.name)
            elif reading.words[begin].stem == table.stems[-1] and span > 1:
                yield Mention("table", begin, begin + 1, 0.7, table.name)
            elif span == 1 and _alike(reading.words[begin], table.stems[0]):
                yield Mention("table", begin, begin + 1, 0.5, table.name)


def _alike(word: Word, other: str) -> bool:
    return word.stem not in _ORDERS and word.low not in STOP and related(word.stem, other) >= 0.8


def _columns(reading: Reading) -> Iterator[Mention]:
    for column in reading.columns():
        stems = list(column.spoken)
        for begin in range(len(reading.words)):
            if found := _column_at(reading.words, begin, stems):
                end, score = found
                score -= 0.2 if column.key and stems != ["id"] else 0.0
                yield Mention("column", begin, end, score, column.table, column)


def _column_at(words: Sequence[Word], begin: int, stems: list[str]) -> tuple[int, float] | None:
    """Where a mention of the column that begins here ends, and how sure it is."""
    here = words[begin]
    window = [one.stem for one in words[begin : begin + len(stems)]]
    if window == stems or (len(stems) > 1 and sorted(window) == sorted(stems)):
        return begin + len(stems), float(len(stems))
    if len(stems) > 1 and here.stem in stems and here.stem not in _FAINT and here.stem.isalpha():
        return begin + 1, 0.6
    telling = [one for one in stems if one not in _FAINT] or stems
    if len(telling) == 1 and _alike(here, telling[0]):
        return begin + 1, 0.5 if len(stems) == 1 else 0.4
    return None


def _values(reading: Reading) -> Iterator[Mention]:
    named = {one for table in reading.schema for column in table.columns for one in (*table.stems, *column.stems)}
    for column in reading.columns():
        if column.numeric or column.dated:
            continue
        for value in column.values or column.samples:
            whole = list(_whole(reading.words, value))
            yield from (Mention("value", at, at + size, size + 0.5, column.table, column, value) for at, size in whole)
        yield from _parts_of_values(reading, column, named)


def _whole(words: Sequence[Word], value: str) -> Iterator[tuple[int, int]]:
    parts = tokens(value)
    if not parts:
        return
    strict = (value.isupper() and len(value) <= _CODE) or (len(parts) == 1 and parts[0] in STOP)
    for at in range(len(words)):
        window = words[at : at + len(parts)]
        if strict and "".join(one.raw for one in window) == value:
            yield at, len(window)
        elif not strict and len(window) == len(parts) and all(map(_same, window, parts)):
            yield at, len(parts)


def _same(word: Word, part: str) -> bool:
    """The same word, one of them in the plural perhaps; endings are only cut off long words: a franc is not France."""
    if word.low.removesuffix("s") == part.removesuffix("s") or IRREGULAR.get(word.low) == part:
        return True
    return len(word.stem) >= _LONG and word.stem == stem(part)


def _parts_of_values(reading: Reading, column: Column, named: set[str]) -> Iterator[Mention]:
    """Words that occur inside longer values: "backpacks" where there is an Ibex Backpack."""
    inside = {stem(part): part for value in column.values for part in tokens(value) if len(tokens(value)) > 1}
    for at, word in enumerate(reading.words):
        if len(word.low) > _CODE and word.stem in inside and not {word.stem, word.low} & (named | STOP | _DOING):
            yield Mention("value", at, at + 1, 0.5, column.table, column, inside[word.stem], part=True)


def best(mentions: Iterable[Mention]) -> Mention | None:
    return max(mentions, key=lambda one: (one.score, one.end - one.begin), default=None)
