"""Time in a question: which days it is about, which two periods it holds against each other, and time as a grouping."""

import re
from datetime import date, timedelta

from msgspec import Struct, structs

from chargehand.models.offline.question.exceptions import left_out
from chargehand.models.offline.question.reading import Reading
from chargehand.models.offline.schema_text import Column, literal
from chargehand.models.offline.words import Dated, stem

# with one of these words two dates are two periods, and without one "from … to …" is a span
CONTRAST = frozenset(
    stem(word)
    for word in ("compare", "comparison", "change", "changed", "grow", "growth", "grew", "increase", "decrease",
                 "difference", "differ", "develop", "versus", "vs", "fall", "fell", "rise", "rose", "drop", "against")
)  # fmt: skip
_UNITS = {
    "month": "substr({0}, 1, 7)",
    "year": "substr({0}, 1, 4)",
    "quarter": "substr({0}, 1, 4) || '-Q' || ((CAST(substr({0}, 6, 2) AS INTEGER) + 2) / 3)",
    "week": "strftime('%Y-W%W', {0})",
    "day": "substr({0}, 1, 10)",
    "weekday": "CASE strftime('%w', {0}) WHEN '0' THEN 'Sunday' WHEN '1' THEN 'Monday' WHEN '2' THEN 'Tuesday'"
    " WHEN '3' THEN 'Wednesday' WHEN '4' THEN 'Thursday' WHEN '5' THEN 'Friday' ELSE 'Saturday' END",
}
_ADVERBS = {"monthly": "month", "yearly": "year", "annual": "year", "annually": "year", "quarterly": "quarter",
            "weekly": "week", "daily": "day", "months": "month", "years": "year", "quarters": "quarter",
            "weeks": "week", "days": "day", "date": "day", "weekdays": "weekday"}  # fmt: skip
_OPENING = re.compile(
    r"\b(since|from|after|starting|before|until|till|up to|through|between|as of|by)(?: the)?\s*\Z", re.IGNORECASE
)
_BRIDGE = re.compile(r"\A\s*(?:and|to|until|till|through|up to|-|\u2013)(?: the)?\s*\Z", re.IGNORECASE)


class Period(Struct, frozen=True):
    """From the first day to before the last one, and what it is called. Without a year only `month` is known."""

    name: str
    begin: str
    end: str
    month: str = ""


class Timing(Struct, frozen=True):
    """Which rows count, as SQL over the column `{0}`; with `contrast` also which period each belongs to.

    `never`: a period in which there must be no row at all of what is asked for. `dropped`: dates left out, as written.
    """

    where: str = ""
    contrast: str = ""
    periods: tuple[Period, ...] = ()
    never: str = ""
    dropped: tuple[str, ...] = ()


def unit_of(word: str) -> str:
    """The unit of time a word names, or nothing."""
    return _ADVERBS.get(word) or (word if word in _UNITS else "")


def grouped(unit: str, column: Column) -> str:
    return _UNITS[unit].format(column.sql)


def period(normal: str) -> Period:
    """A date in its normal form as a period."""
    if normal.startswith("--"):
        return Period(normal.strip("-"), "", "", normal[2:4] if normal[2:4].isdigit() else "")
    year = int(normal[:4])
    part = normal[5:]
    if not part:
        return Period(normal, f"{year}-01-01", f"{year + 1}-01-01")
    if part[0] in "QH":
        size = 3 if part[0] == "Q" else 6
        return _months(normal, year, (int(part[1]) - 1) * size + 1, size)
    if len(part) == 2:
        return _months(normal, year, int(part), 1)
    day = date.fromisoformat(normal)
    return Period(normal, normal, (day + timedelta(days=1)).isoformat())


def _months(name: str, year: int, first: int, size: int) -> Period:
    after = first + size
    return Period(name, f"{year}-{first:02}-01", f"{year + (after > 12)}-{after - 12 if after > 12 else after:02}-01")


def timing(reading: Reading) -> Timing:
    """What the dates of a question ask for; an empty one without dates."""
    out = {one.start: word for one in reading.dated if (word := left_out(reading, one))}
    if out:
        return _excepted(reading, out)
    return _timing(reading)


def _excepted(reading: Reading, out: dict[int, str]) -> Timing:
    """What is left when some dates are taken out: their rows, or whoever has one of them."""
    dropped = [one for one in reading.dated if one.start in out]
    reading.dated[:] = [one for one in reading.dated if one.start not in out]
    kept = structs.replace(_timing(reading), dropped=tuple(one.text for one in dropped))
    outside = " OR ".join(_within(period(one.normal)) for one in dropped)
    if any(word in {"but not", "and not", "not"} for word in out.values()):
        return structs.replace(kept, never=f"({outside})")
    where = f"{kept.where} AND NOT ({outside})" if kept.where else f"NOT ({outside})"
    return structs.replace(kept, where=where)


def _timing(reading: Reading) -> Timing:
    if not reading.dated:
        return Timing()
    periods = [period(one.normal) for one in reading.dated]
    if len(periods) >= 2:
        contrasts = any(one.stem in CONTRAST for one in reading.words)
        if _span(reading, *reading.dated[:2]) and not contrasts:
            return Timing(_within(Period("", periods[0].begin, periods[1].end)), periods=tuple(periods))
        several = list({one.name: one for one in periods}.values())
        if len(several) >= 2:
            return _contrast(several)
    return Timing(_alone(reading, reading.dated[0], periods[0]), periods=(periods[0],))


def _span(reading: Reading, one: Dated, other: Dated) -> bool:
    before = _OPENING.search(reading.text[: one.start])
    bridge = _BRIDGE.match(reading.text[one.end : other.start])
    if bridge is None:
        return False
    return before is not None or "and" not in bridge[0].lower()


def _contrast(periods: list[Period]) -> Timing:
    cases = " ".join(f"WHEN {_within(one)} THEN {literal(one.name)}" for one in periods)
    where = " OR ".join(_within(one) for one in periods)
    return Timing(f"({where})", f"CASE {cases} END", tuple(periods))


def _within(one: Period) -> str:
    if not one.begin:
        return f"substr({{0}}, 6, 2) = '{one.month}'"
    return f"({{0}} >= '{one.begin}' AND {{0}} < '{one.end}')"


def _alone(reading: Reading, dated: Dated, one: Period) -> str:
    opening = _OPENING.search(reading.text[: dated.start])
    word = opening[1].lower() if opening else ""
    if not one.begin or not word:
        return _within(one)
    if word == "after":
        return f"{{0}} >= '{one.end}'"
    if word in {"since", "from", "starting", "as of"}:
        return f"{{0}} >= '{one.begin}'"
    if word == "before":
        return f"{{0}} < '{one.begin}'"
    if word in {"until", "till", "up to", "through"}:
        return f"{{0}} < '{one.end}'"
    return _within(one)


def date_column(reading: Reading, tables: list[str]) -> Column | None:
    """The column of days that the question is about: one it names, else the first of the first table that has one."""
    known = [column for table in tables for column in reading.table(table).columns if column.dated]
    named = [one for one in reading.mentions if one.column in known and one.score >= 0.6]
    if named:
        chosen = max(named, key=lambda one: (one.score, one.table == tables[0]))
        reading.use_mention(chosen)
        return chosen.column
    return known[0] if known else None


def year_column(reading: Reading, tables: list[str]) -> Column | None:
    known = [column for table in tables for column in reading.table(table).columns]
    return next((one for one in known if one.numeric and one.name.lower() == "year"), None)
