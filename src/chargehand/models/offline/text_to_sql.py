"""A question in plain English to one SELECT over a schema, or the reason why there is none.

It knows no synonyms but those of `words`, and guesses no table: what it cannot match it says.
"""

from msgspec import Struct, structs

from chargehand.models.offline.question.conditions import Condition
from chargehand.models.offline.question.coverage import listed, lost, uncovered
from chargehand.models.offline.question.draft import Draft, draft_of
from chargehand.models.offline.question.extent import nothing_then
from chargehand.models.offline.question.grouping import Group
from chargehand.models.offline.question.joins import Joined, join, reaches
from chargehand.models.offline.question.listing import listing, without
from chargehand.models.offline.question.measures import counts, told
from chargehand.models.offline.question.periods import Timing, date_column, grouped, year_column
from chargehand.models.offline.question.plainer import plainer
from chargehand.models.offline.question.ranges import asks_for_bounds, held_against_bounds
from chargehand.models.offline.question.reading import Reading, read
from chargehand.models.offline.question.thresholds import Threshold
from chargehand.models.offline.schema_text import Column, Relation, identifier

_MOST, _LONGEST = 200, 1_000
RANKED_WHOLE = "Rank them all."
"""A sentence of a task by which a ranking is wanted down to its end, though only the first is asked for."""


class Asked(Struct, frozen=True):
    """A query. `overlooked` are words of the question that it takes no account of.

    `about` are the values it is limited to, `guessed` those of which nobody knew whether they occur,
    `left_out` those it leaves out. `limited`: only
    the first rows were wanted. `parameter`: the column that tells apart numbers which are not for adding up.
    `gone`: that the days it is about are not on record.
    """

    sql: str
    overlooked: tuple[str, ...] = ()
    measured: str = ""
    grouped: tuple[str, ...] = ()
    contrast: bool = False
    limited: bool = False
    about: tuple[str, ...] = ()
    guessed: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    parameter: str = ""
    gone: str = ""


class Refusal(Struct, frozen=True):
    reason: str


def to_sql(text: str, schema: tuple[Relation, ...]) -> Asked | Refusal:
    """One query for one question."""
    reading = read(plainer(text[:_LONGEST], schema), schema)
    draft, unknown = draft_of(reading)
    if draft.ranked is not None and RANKED_WHOLE in text:
        draft.ranked = structs.replace(draft.ranked, limit=0)
    if unknown:
        return Refusal(f"nothing there is called {listed(unknown)}. It holds {_shown(schema)}")
    if asks_for_bounds(reading):
        sql = held_against_bounds(reading, draft)
        refusal = Refusal(f"it is not clear what is held against its range. It holds {_shown(schema)}")
        return _checked(reading, draft, Asked(sql)) if sql else refusal
    built = _counting(reading, draft) if draft.measured or draft.ratio else None
    if built is None and draft.measured is None and counts(reading):
        return Refusal(f"nothing there can be counted for this. It holds {_shown(schema)}")
    if built is None and draft.measured is None and draft.ratio is None:
        sql = listing(reading, draft)
        built = Asked(sql) if sql else Refusal(f"nothing in the question is about what it holds: {_shown(schema)}")
    if built is None:
        return Refusal(f"what the question needs cannot be brought together. It holds {_shown(schema)}")
    return _checked(reading, draft, built)


def _shown(schema: tuple[Relation, ...]) -> str:
    whole = "; ".join(f"{table.name}({', '.join(one.name for one in table.columns)})" for table in schema)
    return whole if len(whole) <= _LONGEST else ", ".join(table.name for table in schema)[:_LONGEST]


def _counting(reading: Reading, draft: Draft) -> Asked | None:
    measured, ratio = draft.measured, draft.ratio
    tables = list(
        dict.fromkeys(
            ratio.tables if ratio and ratio.left else measured.tables if measured else ratio.tables if ratio else ()
        )
    )
    tables += [one.table for one in draft.groups if one.table]
    tables += [one.column.table for one in (*draft.tests, *(ratio.dropped if ratio else ()))]
    tables += [one.column.table for one in draft.limits if one.column]
    tables += [one for one in told(reading) if reaches(reading, tables[0], one) and one not in draft.absent]
    column = _time_column(reading, draft, tables)
    if column is None and (draft.time.where or draft.time.never or any(one.unit for one in draft.groups)):
        return _by_year(reading, draft, tables)
    if column is not None:
        tables.append(column.table)
    return _select(reading, draft, list(dict.fromkeys(tables)), column)


def _time_column(reading: Reading, draft: Draft, tables: list[str]) -> Column | None:
    if not (draft.time.where or draft.time.never) and not any(one.unit for one in draft.groups):
        return None
    near = [one.name for one in reading.schema if one.name not in tables and reaches(reading, tables[0], one.name)]
    left = draft.ratio.left if draft.ratio else ""
    return date_column(reading, [one for one in dict.fromkeys([*tables, *near]) if one != left])


def _by_year(reading: Reading, draft: Draft, tables: list[str]) -> Asked | None:
    """Tables that know only years."""
    column = year_column(reading, [*dict.fromkeys(tables)])
    years = [one.name for one in draft.time.periods if len(one.name) == 4]
    if column is None or len(years) != len(draft.time.periods):
        return None
    if years:
        draft.tests.append(Condition(f"{column.sql} IN ({', '.join(years)})", column))
    draft.groups = [one if not one.unit else Group(column.sql, "year", column.table) for one in draft.groups]
    if len(years) > 1 and not draft.groups:
        draft.groups.append(Group(column.sql, "year", column.table))
    draft.time = Timing()
    return _select(reading, draft, list(dict.fromkeys([*tables, column.table])), None)


def _select(reading: Reading, draft: Draft, tables: list[str], time: Column | None) -> Asked | None:
    joined = join(reading, tables, left=(draft.ratio.left,) if draft.ratio and draft.ratio.left else ())
    if joined is None or (joined.fans and draft.measured and draft.measured.kind in {"SUM", "AVG"}):
        return None  # a row that occurs several times would be added up as often
    shown = [(grouped(one.unit, time) if one.unit and time else one.sql, one.label) for one in draft.groups]
    if draft.time.contrast and time and not any(one.unit for one in draft.groups):
        shown.append((draft.time.contrast.format(time.sql), "period"))
    apart = _apart(reading, draft, joined, time)
    if apart is None:
        return None
    values = _numbers(reading, draft, fans=joined.fans)
    columns = ", ".join(f"{sql} AS {identifier(label)}" for sql, label in [*shown, *values])
    where = [*(one.sql for one in draft.tests), *apart]
    where += [draft.time.where.format(time.sql)] if draft.time.where and time else []
    where += [f"{one.column.sql} {one.sign} {one.number}" for one in draft.limits if one.column]
    sql = f"SELECT {columns} FROM {joined.clause}"  # noqa: S608 - names and values are quoted
    sql += f" WHERE {' AND '.join(where)}" if where else ""
    if shown:
        having = [f"{values[0][0]} {one.sign} {one.number}" for one in draft.limits if not one.column]
        first = _first(draft, sql, shown, values[0][0], having)
        sql += f" GROUP BY {', '.join(str(at) for at in range(1, len(shown) + 1))}"
        having += [first] if first else []
        sql += f" HAVING {' AND '.join(having)}" if having else ""
        sql += _ordered(draft, len(shown), tied=bool(first))
    labels = tuple(label for _, label in shown)
    gone = nothing_then(draft.time, time)
    return Asked(sql, (), values[0][1], labels, bool(draft.time.contrast), parameter=draft.parameter, gone=gone)


def _apart(reading: Reading, draft: Draft, joined: Joined, time: Column | None) -> list[str] | None:
    """Tests for what must not be there; None where rows of one table would stand for those of another."""
    if draft.absent or (joined.fans and any(one.negated for one in draft.tests)):
        return None
    if not draft.time.never:
        return []
    measured = draft.measured
    if measured is None or measured.kind != "COUNT" or measured.inner != "*" or draft.groups or draft.time.contrast:
        return None
    return without(draft, reading.table(measured.tables[0]).identity, joined, time)


def _numbers(reading: Reading, draft: Draft, *, fans: bool) -> list[tuple[str, str]]:
    measured, ratio = draft.measured, draft.ratio
    found: list[tuple[str, str]] = []
    if measured and not (ratio and (ratio.left or ratio.dropped)):
        sql = measured.sql
        if measured.kind == "COUNT" and measured.inner == "*" and fans:
            sql = f"COUNT(DISTINCT {reading.table(measured.tables[0]).identity.sql})"
        found.append((sql, measured.label))
        found += [(one.sql, one.label) for one in draft.also]
    if ratio:
        found.append((ratio.sql, ratio.label))
    return found


def _first(draft: Draft, rows: str, shown: list[tuple[str, str]], number: str, having: list[str]) -> str:
    """A test for the highest or lowest number: where several have it, none of them alone is the answer."""
    ranked = draft.ranked
    if ranked is None or ranked.limit != 1 or " OVER (" in number:
        return ""
    groups = ", ".join(sql for sql, _ in shown)
    best = f"SELECT {number} FROM {rows.partition(' FROM ')[2]} GROUP BY {groups}"  # noqa: S608 - names are quoted
    best += f" HAVING {' AND '.join(having)}" if having else ""
    return f"{number} = ({best} ORDER BY 1 {'DESC' if ranked.down else 'ASC NULLS LAST'} LIMIT 1)"


def _ordered(draft: Draft, groups: int, *, tied: bool) -> str:
    ranked = draft.ranked
    if ranked is not None:
        most = _MOST if tied or not ranked.limit else ranked.limit
        return f" ORDER BY {groups + 1} {'DESC' if ranked.down else 'ASC'}, 1 LIMIT {most}"
    if any(one.unit or one.label == "year" for one in draft.groups) or draft.time.contrast or draft.parameter:
        return f" ORDER BY {', '.join(str(at) for at in range(1, groups + 1))} LIMIT {_MOST}"
    return f" ORDER BY {groups + 1} DESC, 1 LIMIT {_MOST}"


def _checked(reading: Reading, draft: Draft, built: Asked | Refusal) -> Asked | Refusal:
    """Not answered where something that was said would be left out."""
    if isinstance(built, Refusal):
        return built
    if reason := uncovered(reading, draft, built.sql):
        return Refusal(f"{reason}. It holds {_shown(reading.schema)}")
    tests = [*draft.tests, *(draft.ratio.dropped if draft.ratio else ())]
    return structs.replace(
        built,
        overlooked=tuple(dict.fromkeys(reading.words[at].raw for at in lost(reading, built.sql))),
        limited=draft.ranked is not None,
        about=(*(value for one in tests if not one.negated for value in one.values), *map(_compared, draft.limits)),
        left_out=(*(value for one in tests if one.negated for value in one.values), *draft.time.dropped),
        guessed=tuple(value for one in tests if one.guessed for value in one.values),
    )


def _compared(one: Threshold) -> str:
    what = one.column.name.replace("_", " ") if one.column else one.counted
    return f"{what} {one.sign} {one.number}".strip()
