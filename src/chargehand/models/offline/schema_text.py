"""A database schema as a tool's description shows it, one line a table, and which columns tie two tables together.

The lines look like this: `table orders(id INTEGER, day TEXT like '2026-05-17', country TEXT one of 'DE','FR')`.
What a request means by its words is not known here.
"""

import re
from collections.abc import Iterator
from functools import lru_cache

from msgspec import Struct

from chargehand.models.offline.words import stem, tokens

_TABLE = re.compile(r"^\s*(?:[-*]\s+)?table\s+(?P<name>\"[^\"]+\"|\w+)\s*\((?P<columns>.*)\)", re.MULTILINE)
_LITERAL = re.compile(r"'((?:[^']|'')*)'")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_YEAR = re.compile(r"(?:1[89]|20)\d\d")
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_BEGINS = re.compile(r"\s*[\"A-Za-z_]")
_REST = re.compile(r"and \d+ more\Z")
_PLAIN = re.compile(r"[a-z_][a-z0-9_]*\Z")
_NUMERIC = ("INT", "REAL", "NUM", "FLOAT", "DOUBLE", "DEC")
_NAMES = frozenset(stem(word) for word in ("name", "title", "label"))
_MONEY = frozenset({"eur", "usd", "gbp", "chf", "sek", "nok", "dkk", "jpy", "cad", "aud", "inr", "cny", "pln"})
_UNITS = _MONEY | {"id", "kg", "km", "cm", "mm", "percent", "pct", "mins", "hrs", "sec", "ms"}
_LONG = {"km": "kilometre kilometer", "kg": "kilogram kilo", "litr": "liter", "min": "minute", "h": "hour hr"}
_SPELT = {stem(word): short for short, words in _LONG.items() for word in words.split()}
_RESERVED = frozenset({"order", "group", "index", "table", "values", "select", "from", "to", "transaction", "check"})


def root(word: str) -> str:
    """The stem of a word, with units in one spelling: kilometres are km."""
    bare = stem(word)
    return _SPELT.get(bare, bare)


@lru_cache(maxsize=8192)
def _stems(name: str) -> tuple[str, ...]:
    return tuple(root(word) for word in tokens(name)) or (name.lower(),)


class Column(Struct, frozen=True):
    """`values` are all values there are, where these are few; `samples` are some of many.

    `steps` are all numbers there are in a column of few numbers. `years`: the numbers shown are all years.
    """

    table: str
    name: str
    type: str
    values: tuple[str, ...] = ()
    samples: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    years: bool = False

    @property
    def sql(self) -> str:
        return f"{identifier(self.table)}.{identifier(self.name)}"

    @property
    def numeric(self) -> bool:
        return self.type.upper().startswith(_NUMERIC)

    @property
    def dated(self) -> bool:
        shown = (*self.values, *self.samples, "")[0]
        return bool(_DAY.match(shown)) or (not self.numeric and self.type.upper().startswith(("DATE", "TIMESTAMP")))

    @property
    def key(self) -> bool:
        """Whether it only tells rows apart or points to other tables."""
        return self.stems[-1:] == ("id",) or self.name.lower() in {"code", "key", "uuid", "no", "nr"}

    @property
    def stems(self) -> tuple[str, ...]:
        return _stems(self.name)

    @property
    def spoken(self) -> tuple[str, ...]:
        """What people call it: without a unit and without the mark of a key."""
        return tuple(one for one in self.stems if one not in _UNITS) or self.stems

    @property
    def currency(self) -> str:
        return next((one for one in tokens(self.name) if one in _MONEY), "")


class Relation(Struct, frozen=True):
    """A table."""

    name: str
    columns: tuple[Column, ...]

    @property
    def stems(self) -> tuple[str, ...]:
        return _stems(self.name)

    @property
    def identity(self) -> Column:
        """The column that tells its rows apart: by custom the first."""
        own = (*self.stems, "id")
        return next((one for one in self.columns if one.stems in (("id",), own)), self.columns[0])

    @property
    def label(self) -> Column | None:
        """The column people know its rows by."""
        own = self.stems[-1]
        texts = [one for one in self.columns if not one.numeric and not one.dated and not one.key]
        named = [one for one in texts if _NAMES & set(one.stems)]
        same = [one for one in texts if one.stems == (own,) and one is not self.columns[0]]
        return (same or named or [None])[0]

    def column(self, name: str) -> Column | None:
        return next((one for one in self.columns if one.name.lower() == name.lower()), None)


class Link(Struct, frozen=True):
    """`many` points to `one`: a row of the one side may have several on the other."""

    many: Column
    one: Column


def identifier(name: str) -> str:
    if _PLAIN.match(name.lower()) and name.lower() not in _RESERVED:
        return name
    return '"' + name.replace('"', '""') + '"'


def literal(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def read_schema(description: str) -> tuple[Relation, ...]:
    """The tables a description shows; none where it shows none."""
    found: list[Relation] = []
    for match in _TABLE.finditer(description):
        name = match["name"].strip('"')
        columns = tuple(_column(name, part) for part in _parts(match["columns"]) if not _REST.match(part))
        if columns:
            found.append(Relation(name, columns))
    return tuple(found)


def _parts(text: str) -> Iterator[str]:
    """Cut at commas that begin a new column: not inside quotes, and not between two values of one column."""
    begin, inside = 0, ""
    for at, character in enumerate(text):
        if inside or character in "'\"":
            inside = "" if character == inside else inside or character
        elif character == "," and _BEGINS.match(text, at + 1):
            yield text[begin:at].strip()
            begin = at + 1
    if text[begin:].strip():
        yield text[begin:].strip()


def _column(table: str, text: str) -> Column:
    name, _, rest = text.partition('"')[2].partition('"') if text.startswith('"') else text.partition(" ")
    kind, _, shown = rest.strip().partition(" ")
    literals = tuple(found.replace("''", "'") for found in _LITERAL.findall(shown))
    few = shown.startswith("one of")
    steps = tuple(_NUMBER.findall(shown)) if few and not literals else ()
    numbers = () if literals else tuple(_NUMBER.findall(shown))
    years = bool(numbers) and all(_YEAR.fullmatch(one) for one in numbers)
    return Column(table, name, kind or "TEXT", literals if few else (), () if few else literals, steps, years)


class _Face(Struct, frozen=True):
    """What others may point to in a table."""

    table: Relation
    own: tuple[str, ...]
    key: Column
    label: Column | None


@lru_cache(maxsize=64)
def links(schema: tuple[Relation, ...]) -> tuple[Link, ...]:
    """Every pair of columns two tables can be joined on, the surest first."""
    faces = [_Face(one, one.stems, one.identity, one.label) for one in schema]
    found: list[tuple[int, Link]] = []
    for table in schema:
        for column in table.columns:
            stems = column.stems
            pairs = (_points(column, stems, face) for face in faces if face.table is not table)
            found += [(pair[0], Link(column, pair[1])) for pair in pairs if pair is not None]
    found.sort(key=lambda pair: pair[0])
    surest: dict[frozenset[str], Link] = {}
    for _, link in found:
        surest.setdefault(frozenset((link.many.sql, link.one.sql)), link)
    return tuple(surest.values())


def _points(column: Column, stems: tuple[str, ...], to: _Face) -> tuple[int, Column] | None:
    """The column of a table that this one of another table points to, and how doubtful that is."""
    own, key, last = to.own, to.key, to.own[-1]
    if (
        stems == key.stems
        and column.name.lower() == key.name.lower()
        and stems in ((*own, "id"), (last, "id"), own, (last,))
    ):
        return 0, key
    if stems[-1] in ("id", "code") and stems in ((*own, "id"), (last, "id"), (*own, "code")):
        return 1, to.table.column(column.name) or key
    if stems[-2:] == (last, "id"):
        return 2, key
    if stems in (own, (last,)):
        target = to.table.column(column.name) or to.label or key
        if target.numeric is column.numeric:
            return 3, target
    first = to.table.columns[0]
    if stems == first.stems and column.name.lower() == first.name.lower() != "id" and not column.dated:
        return 4, first
    return None
