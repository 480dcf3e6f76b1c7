"""Per what a question wants its numbers, and which of the rows: the top three, the cheapest, the last one."""

import re
from collections.abc import Iterator

from msgspec import Struct

from chargehand.models.offline.question.joins import reaches
from chargehand.models.offline.question.measures import Measure
from chargehand.models.offline.question.periods import unit_of
from chargehand.models.offline.question.reading import DOWN, UP, Mention, Reading
from chargehand.models.offline.schema_text import Column, Relation, root
from chargehand.models.offline.words import STOP, numbers, stem

_PER = frozenset({"per", "each", "every", "across", "by", "among"})
_SORTED = frozenset({"sort", "sorted", "order", "ordered", "ranked", "rank", "grow", "grew", "increase", "increased",
                     "fell", "rose", "changed", "made", "written", "supplied"})  # fmt: skip
_SKIP = frozenset({"the", "a", "an", "each", "every", "single", "different", "individual", "our", "of", "all"})
_COSTLY, _LONG = "price cost fee fare", "length duration minutes hours pages"
_BIG, _AGED = "size capacity area population quantity amount", "age year born birth"
_ABOUT = {
    "cheapest": _COSTLY, "expensive": _COSTLY, "cheap": _COSTLY, "oldest": _AGED, "youngest": _AGED,
    "longest": _LONG, "shortest": _LONG, "heaviest": "weight", "lightest": "weight", "largest": _BIG, "biggest": _BIG,
    "smallest": _BIG, "fastest": "speed", "slowest": "speed", "tallest": "height", "farthest": "distance km",
    "strongest": "strength", "weakest": "strength", "highest": "height", "widest": "width", "deepest": "depth",
    "latest": "", "newest": "", "earliest": "", "recent": "",
}  # fmt: skip
_LIKE = {re.sub("i?est$", "", word): word for word in _ABOUT if word.endswith("est")}  # what is cheaper is about prices
_COUNTING = frozenset({"most", "top", "least", "fewest", "busiest", "bottom", "best", "worst"})
GENERIC = frozenset(stem(word) for word in ("name", "title", "label", "id"))
_BACKWARDS = frozenset(stem(word) for word in ("born", "birth", "year", "built"))
_PLENTY = 10
_SOME = 5


class Group(Struct, frozen=True):
    """`unit` is set for a grouping by time, whose column is chosen later."""

    sql: str
    label: str
    table: str = ""
    unit: str = ""


class Ranking(Struct, frozen=True):
    """Which rows first, and how many of them (0: all). Without a column the measure decides.

    `counts`: the word may mean the number of rows, as "most" does and "strongest" does not.
    """

    down: bool
    limit: int
    column: Column | None = None
    group: Group | None = None
    counts: bool = True


def group_of_table(table: Relation) -> Group:
    column = table.label or table.identity
    generic = GENERIC & set(column.stems)
    return Group(column.sql, _singular(table.name) if generic else column.name, table.name)


def group_of_column(reading: Reading, column: Column) -> Group:
    """The column itself, or what people call that which it points to."""
    if column == reading.table(column.table).label:
        return group_of_table(reading.table(column.table))
    for link in reading.links:
        if link.many == column or (link.one == column and column.table == link.one.table):
            table = reading.table(link.one.table)
            if table.label is not None and not column.dated and not _readable(column):
                return Group(table.label.sql, column.name.removesuffix("_id"), table.name)
    return Group(column.sql, column.name, column.table)


def _readable(column: Column) -> bool:
    """Whether a key is a word as it is: who asks for areas does not want the person in charge of each."""
    said = column.values or column.samples
    plain = [one for one in said if not any(sign.isdigit() for sign in one) and one.lower() == one]
    return not (column.key or column.numeric) and bool(said) and len(plain) == len(said)


def _singular(name: str) -> str:
    if name.endswith("ies"):
        return name[:-3] + "y"
    return name[:-2] if name.endswith(("sses", "xes", "ches")) else name.removesuffix("s")


def entity(reading: Reading, at: int) -> tuple[Group, Mention | None] | None:
    """What a word names that rows can be put together by."""
    if at >= len(reading.words):
        return None
    here = [one for one in reading.at(at) if one.kind != "value"]
    found = [one for one in here if not (one.column and one.column.dated)]
    each = at > 0 and reading.words[at - 1].low in {"per", "each", "and"}
    usable = [
        one
        for one in found
        if one.kind == "table"
        or (one.column and (not one.column.numeric or (each and reading.words[at].low == one.column.name.lower())))
        or _keyed(one)
    ]
    unit = unit_of(reading.words[at].low) if not _part_of_number(reading, at) else ""
    # "per month" is by the days of a column `month`, though the table may be called `months`
    dated = any(one.column and one.column.dated and one.score >= 1 for one in here)
    if unit and (dated or not any(one.score >= 1 for one in usable)):
        return Group("", unit, unit=unit), None
    if not usable:
        return None
    # a column of the very name beats a table that only sounds alike
    chosen = max(usable, key=lambda one: (one.score, one.kind == "table"))
    if chosen.kind == "table":
        return group_of_table(reading.table(chosen.table)), chosen
    return (group_of_column(reading, chosen.column), chosen) if chosen.column else None


def _part_of_number(reading: Reading, at: int) -> bool:
    """Whether a word for a time only helps to name a number: an annual value is not a value by year."""
    found = [one for one in reading.at(at, "column") if one.column and one.column.numeric and not _keyed(one)]
    return any(one.end - one.begin > 1 and one.score >= 1 for one in found)


def _keyed(mention: Mention) -> bool:
    return mention.column is not None and (mention.column.key or mention.column.name.lower() == "year")


def groups(reading: Reading, measured: Measure | None) -> list[Group]:
    """Everything after "per", "by", "for each", and adverbs like "monthly"."""
    found: dict[str, Group] = {}
    for at, word in enumerate(reading.words):
        if unit_of(word.low) and word.low.endswith("ly"):
            reading.use(at)
            found.setdefault(unit_of(word.low), Group("", unit_of(word.low), unit=unit_of(word.low)))
        sorts = word.low == "by" and at and reading.words[at - 1].low in _SORTED
        if word.low in _PER and not sorts:
            for group in _after(reading, at + 1):
                found.setdefault(group.label, group)
    if measured:
        for table in measured.tables:  # what is counted, or averaged over, is not also a group
            if (measured.kind == "COUNT" and measured.inner == "*") or measured.kind == "AVG":
                found.pop(_singular(table), None)
    return list(found.values())


def _after(reading: Reading, at: int) -> Iterator[Group]:
    """One entity, and more of them joined with "and"."""
    while at < len(reading.words):
        while at < len(reading.words) and reading.words[at].low in _SKIP:
            at += 1
        named = _phrase(reading, at)
        if named is None:
            return
        group, end = named
        reading.use(at - 1)
        yield group
        if end >= len(reading.words) or reading.words[end].low not in {"and", "then"}:
            return
        reading.use(end)
        at = end + 1


def _phrase(reading: Reading, at: int) -> tuple[Group, int] | None:
    """The last of several entities in a row ("product category" is a category), and where the phrase ends."""
    found: tuple[Group, int] | None = None
    named = entity(reading, at)
    while named is not None:
        group, mention = named
        end = mention.end if mention else at + 1
        reading.use(*range(at, end))
        found = group, end
        at = end
        named = entity(reading, end) if not group.unit else None
    return found


def ranking(reading: Reading, measured: Measure | None) -> Ranking | None:
    """What a superlative asks for."""
    at = next(
        (place for place, one in enumerate(reading.words) if one.low in UP | DOWN and place not in reading.used), -1
    )
    if at < 0:
        return _compared(reading)
    if any(one.kind == "value" for one in reading.at(at)):
        return None
    word = reading.words[at].low
    following = reading.words[at + 1].low if at + 1 < len(reading.words) else ""
    reading.use(at)
    about = following if following in _ABOUT else word
    if about == following or following in {"common", "frequent", "often"}:
        reading.use(at + 1)
    column = _beside(reading, at) or _about(reading, about)
    down = word in UP
    if column is not None and _BACKWARDS & set(column.stems) and about in {"oldest", "youngest"}:
        down = not down
    group, plural = _ranked(reading, at, measured)
    return Ranking(down, _limit(reading, at, plural=plural), column, group, word in _COUNTING)


def _compared(reading: Reading) -> Ranking | None:
    """Who is cheaper than whom: both with the number it is about, the greater first."""
    than = reading.place({"than"})
    if than < 1 or not any(one.kind == "value" for one in reading.at(than + 1)):
        return None
    word, before = reading.words[than - 1].low, reading.words[than - 2].low if than > 1 else ""
    about = (
        word if before in {"more", "less"} else _LIKE.get(re.sub("i?er$", "", word), "") if word[-2:] == "er" else ""
    )
    column = _about(reading, about)
    if column is None:
        return None
    reading.use(than - 1, than, *((than - 2,) if before in {"more", "less"} else ()))
    return Ranking(down=True, limit=0, column=column, counts=False)


def _beside(reading: Reading, at: int) -> Column | None:
    """The number right behind the superlative, whatever the word alone would be about: "the largest market share"."""
    if at + 1 >= len(reading.words) or not _ABOUT.get(reading.words[at].low):
        return None
    found = [one for one in reading.at(at + 1, "column") if one.begin == at + 1 and one.score >= 1]
    numeric = [one for one in found if one.column and one.column.numeric and not one.column.key]
    if not numeric or reading.at(at + 1, "table"):
        return None
    reading.use_mention(numeric[0])
    return numeric[0].column


def _about(reading: Reading, word: str) -> Column | None:
    if word not in _ABOUT:
        return None
    stems = {root(one) for one in _ABOUT[word].split()}
    if not stems:
        return next((one for one in reading.columns() if one.dated and _mentioned(reading, one.table)), None)
    fitting = [one for one in reading.columns() if stems & set(one.stems) and (one.numeric or _born(one))]
    named = {one.table for one in reading.mentions if one.kind == "table" and one.score >= 1}
    fitting.sort(key=lambda one: (one.table not in named, not _mentioned(reading, one.table)))
    return fitting[0] if fitting else None


def _born(column: Column) -> bool:
    return column.dated and bool(_BACKWARDS & set(column.stems))


def _mentioned(reading: Reading, table: str) -> bool:
    return any(one.table == table and one.score >= 1 for one in reading.mentions)


def _ranked(reading: Reading, at: int, measured: Measure | None) -> tuple[Group | None, bool]:
    """Who is ranked: what follows "which", else what follows the superlative, else what stands before it."""
    asked = reading.place({"which", "what"})
    places = [*range(at + 1, min(at + 5, len(reading.words))), *range(at - 1, -1, -1)]
    if 0 <= asked < at:
        places = [*range(asked + 1, at), *places]
    for place in places:
        word = reading.words[place]
        if word.low in STOP and place > at and word.low not in {"three", "two"}:
            continue
        if entity(reading, place) is None or (named := _phrase(reading, place)) is None:
            continue
        group, end = named
        last = reading.words[end - 1].low
        if measured and measured.kind == "COUNT" and group.table == measured.tables[0]:
            continue
        if measured and group.table and not reaches(reading, measured.tables[0], group.table):
            continue
        return group, last.endswith("s") and not last.endswith("ss")
    return None, False


def _limit(reading: Reading, at: int, *, plural: bool) -> int:
    asked = reading.place({"which", "what"})
    for place in (at + 1, at - 1, at - 2, at + 2, *((asked + 1,) if asked >= 0 else ())):
        if 0 <= place < len(reading.words) and (said := numbers(reading.words[place].low)) and said[0].isdigit():
            reading.use(place)
            return min(int(said[0]), 100)
    if reading.words[at].low in {"top", "bottom"}:
        return _PLENTY if plural else 1
    return _SOME if plural else 1
