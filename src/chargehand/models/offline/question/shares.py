"""Shares and rates: how much of a whole each group is, how many of all rows fit, how many have a partner elsewhere."""

from msgspec import Struct

from chargehand.models.offline.question.conditions import Condition
from chargehand.models.offline.question.measures import Measure
from chargehand.models.offline.question.periods import CONTRAST
from chargehand.models.offline.question.reading import IRREGULAR, Reading
from chargehand.models.offline.schema_text import Link, literal
from chargehand.models.offline.words import related

_SHARE = frozenset({"share", "shares", "percentage", "percent", "proportion", "fraction", "rate", "rates", "ratio"})


_IS = frozenset({"is", "are", "was", "were"})


class Share(Struct, frozen=True):
    """A percentage as SQL; `left` is a table whose rows may be missing, `dropped` what is no longer a condition."""

    sql: str
    label: str
    tables: tuple[str, ...]
    left: str = ""
    dropped: tuple[Condition, ...] = ()


def share_place(reading: Reading) -> int:
    """Where a share or rate is asked for; -1 where none is, or where a column is called so."""
    for place, word in enumerate(reading.words[:-1]):
        if word.low.endswith("%") and reading.words[place + 1].low == "of":
            reading.use(place)
    at = reading.place(_SHARE)
    if at > 0 and reading.words[at - 1].low[0].isdigit():
        reading.use(at - 1, at)  # "15 percent of" is no share: it is worked out from what is found
        return -1
    if at > 1 and _changed(reading, at):
        reading.use(at)
        return -1
    if at < 0 or (any(one.score >= 1 for one in reading.at(at, "column")) and not _valued(reading, at)):
        return -1
    return at


def _changed(reading: Reading, at: int) -> bool:
    """Whether it is asked by how many percent something changed: that is worked out from both numbers."""
    led = reading.words[at - 2].low == "by" or reading.words[max(0, at - 3)].low == "by"
    asks = reading.words[at - 1].low in {"many", "what", "which", "much"}
    return led and asks and any(one.stem in CONTRAST for one in reading.words)


def share(
    reading: Reading, at: int, measured: Measure | None, tests: list[Condition], *, grouped: bool
) -> Share | None:
    """What percentage is asked for, by what is known of the question."""
    reading.use(at)
    if partner := _partner(reading, at):
        many, one = partner.many, reading.table(partner.one.table).identity
        sql = f"ROUND(100.0 * COUNT(DISTINCT {many.sql}) / COUNT(DISTINCT {one.sql}), 1)"
        return Share(sql, f"{_noun(many.table)}_rate_percent", (one.table, many.table), left=many.table)
    inside = _valued(reading, at) or _said_of_it(reading, at, [one for one in tests if one.values])
    row = measured.inner if measured and measured.kind == "SUM" else "1"
    tables = measured.tables if measured else tuple(dict.fromkeys(one.column.table for one in inside))
    if inside and tables:
        fits = " AND ".join(one.sql for one in inside)
        sql = f"ROUND(100.0 * SUM(CASE WHEN {fits} THEN {row} ELSE 0 END) / SUM({row}), 1)"
        return Share(sql, "share_percent", tables, dropped=tuple(inside))
    if grouped and measured:
        aggregate = measured.sql
        return Share(f"ROUND(100.0 * {aggregate} / SUM({aggregate}) OVER (), 1)", "share_percent", tables)
    return None


def _partner(reading: Reading, at: int) -> Link | None:
    """The link from the rows that count to all rows: "return rate" counts orders that have a return."""
    places = [*([at - 1] if at else []), *range(at + 1, len(reading.words))]
    near = [one for place in places for one in reading.at(place, "table") if one.score >= 1]
    for mention in near:
        others = {one.table for one in near} - {mention.table}
        for link in reading.links:
            told = mention.begin == at - 1 or link.one.table in others
            if link.many.table == mention.table and told:
                for one in near:
                    if one.table in (link.many.table, link.one.table):
                        reading.use_mention(one)
                return link
    return None


def _said_of_it(reading: Reading, at: int, tests: list[Condition]) -> list[Condition]:
    """What is said of a part: "what share of the deals with Ash was won" is a share of the deals with Ash."""
    verb = reading.place(_IS, at)
    if verb < 0 or at + 1 >= len(reading.words) or reading.words[at + 1].low != "of":
        return tests
    after = [one for one in tests if any(_value_at(reading, one, place) for place in range(verb, len(reading.words)))]
    return after or tests


def _value_at(reading: Reading, test: Condition, place: int) -> bool:
    return any(one.column == test.column and one.value in test.values for one in reading.at(place, "value"))


def _valued(reading: Reading, at: int) -> list[Condition]:
    """A value that the word before only sounds like: "cancellation rate"."""
    word = reading.words[at - 1].stem if at else ""
    for column in reading.columns():
        for value in column.values:
            if word and (related(word, value.lower()) >= 0.6 or IRREGULAR.get(word) == value.lower()):
                reading.use(at - 1)
                return [Condition(f"{column.sql} = {literal(value)}", column, (value,))]
    return []


def _noun(table: str) -> str:
    return table.removesuffix("s")
