"""Questions for rows as they are: "list the products of Brasco", "what is the price of the Heron Tent"."""

from collections.abc import Sequence

from chargehand.models.offline.question.conditions import Condition
from chargehand.models.offline.question.draft import Draft
from chargehand.models.offline.question.grouping import Group, Ranking, group_of_table
from chargehand.models.offline.question.joins import Joined, join, reaches
from chargehand.models.offline.question.parameters import recorded_for
from chargehand.models.offline.question.periods import date_column
from chargehand.models.offline.question.reading import Mention, Reading
from chargehand.models.offline.schema_text import Column, Relation, identifier, literal

_MOST, _PAIR = 50, 2
_ARTICLES = frozenset({"the", "its", "their", "a", "an"})
# what follows one of these tells the rows apart: steps against size, steps that grow with the size
_AGAINST = frozenset({"by", "per", "with", "against", "over", "versus", "vs"})


def listing(reading: Reading, draft: Draft) -> str:
    """A query for rows; empty where the question names neither a table nor a column nor a value."""
    ranked, tests, limits, time = draft.ranked, draft.tests, draft.limits, draft.time
    root = _root(reading, ranked, tests)
    if not root or any(one.column is None for one in limits):
        return ""
    shown = _shown(reading, root, ranked)
    held = [one.column for one in tests if len(one.values) > 1 and one.column.table == root and not one.negated]
    if not tests and all(one.numeric or one.dated for one in shown):
        held.append(reading.table(root).identity)  # bare numbers say nothing
    shown = _by_first(reading, shown)
    shown = list(dict.fromkeys([*held, *shown]))  # of several that are named, each row says which it is
    tables = [root, *(column.table for column in shown), *(one.column.table for one in tests)]
    tables += [one.column.table for one in limits if one.column]
    tables += [one for one in _tables(reading) if reaches(reading, root, one)]
    tables += [ranked.column.table] if ranked and ranked.column else []
    tables = [one for one in dict.fromkeys(tables) if one not in draft.absent]
    if draft.absent:
        return _never(reading, draft, root, shown)
    when = None
    if time.where or time.never:
        near = [one.name for one in reading.schema if one.name not in tables and reaches(reading, root, one.name)]
        # what is compared with a number happened then, rather than what it happened to
        first = [one.column.table for one in limits if one.column]
        if time.never:  # who came in March and not in April has several rows to tell from
            first += [one.many.table for one in reading.links if one.one.table == root]
        when = date_column(reading, [*dict.fromkeys([*first, *tables, *near])])
        tables += [when.table] if when and when.table not in tables else []
    joined = join(reading, tables)
    if joined is None or ((time.where or time.never) and when is None):
        return ""
    key = shown[0] if _repeats(reading, shown) else reading.table(root).identity
    where = [*_tests(key, joined, tests), *without(draft, key, joined, when)]
    where += [f"{one.column.sql} {one.sign} {one.number}" for one in limits if one.column]
    where += [time.where.format(when.sql)] if when and time.where else []
    columns = ", ".join(f"{one.sql} AS {identifier(_alias(reading, one, shown))}" for one in shown)
    distinct = "DISTINCT " if joined.fans or _repeats(reading, shown) else ""
    sql = f"SELECT {distinct}{columns} FROM {joined.clause}"  # noqa: S608 - names and values are quoted
    if ranked and ranked.column and ranked.limit == 1:
        where.append(_first(ranked.column, joined, where, down=ranked.down))
    sql += f" WHERE {' AND '.join(where)}" if where else ""
    if ranked and ranked.column:
        most = _MOST if ranked.limit <= 1 else ranked.limit
        return f"{sql} ORDER BY {ranked.column.sql} {'DESC' if ranked.down else 'ASC'} LIMIT {most}"
    return f"{sql} ORDER BY 1" if _told_by(reading, shown) else sql


def _first(column: Column, joined: Joined, where: Sequence[str], *, down: bool) -> str:
    """A test for the highest or lowest number: where several rows have it, none of them alone is the answer."""
    tests = f" WHERE {' AND '.join(where)}" if where else ""
    best = f"SELECT {column.sql} FROM {joined.clause}{tests}"  # noqa: S608 - names and values are quoted
    return f"{column.sql} = ({best} ORDER BY {column.sql} {'DESC' if down else 'ASC NULLS LAST'} LIMIT 1)"


def _by_first(reading: Reading, shown: list[Column]) -> list[Column]:
    """The number by which others are told comes before them: the steps by size are a list of sizes."""
    first = _told_by(reading, shown)
    return [first, *(one for one in shown if one != first)] if first else shown


def _told_by(reading: Reading, shown: Sequence[Column]) -> Column | None:
    if len(shown) != _PAIR or not all(one.numeric for one in shown):
        return None
    named = [one.column for one in reading.mentions if _word_before(reading, one.begin) in _AGAINST]
    said = next((one for one in named if one in shown), None)
    return said or next((other for own in shown for other in shown if recorded_for(reading, own, other)), None)


def _word_before(reading: Reading, at: int) -> str:
    """The word in front of a noun, past an article."""
    lows = [one.low for one in reading.words[:at]]
    while lows and lows[-1] in _ARTICLES:
        lows.pop()
    return lows[-1] if lows else ""


def _tests(key: Column, joined: Joined, tests: Sequence[Condition]) -> list[str]:
    """What must hold. Who has several rows and must have one of each kind, or none of a kind, is looked up for each."""
    found: list[str] = []
    for one in tests:
        far = joined.fans and one.column.table != key.table
        inside = f"(SELECT {key.sql} FROM {joined.clause} WHERE {{}})"  # noqa: S608 - names and values are quoted
        if far and one.negated:
            found.append(f"{key.sql} NOT IN {inside.format(one.positive)}")
        elif far and len(one.values) > 1 and not one.part and one.every:
            each = [f"{one.column.sql} = {literal(value)}" for value in one.values]
            found += [f"{key.sql} IN {inside.format(test)}" for test in each]
        else:
            found.append(one.sql)
    return found


def without(draft: Draft, key: Column, joined: Joined, when: Column | None) -> list[str]:
    """A test for what has no row in some period."""
    if not draft.time.never or when is None:
        return []
    tests = [*(one.sql for one in draft.tests if not one.negated), draft.time.never.format(when.sql)]
    within = f"SELECT {key.sql} FROM {joined.clause} WHERE {' AND '.join(tests)}"  # noqa: S608 - see above
    return [f"{key.sql} NOT IN ({within})"]


def _never(reading: Reading, draft: Draft, root: str, shown: Sequence[Column]) -> str:
    """Rows of one table that have none in another, perhaps in some period: nothing else may be asked for besides."""
    key, table = reading.table(root).identity, draft.absent[0]
    other = join(reading, [root, table])
    beside = set(_tables(reading)) - {root, table}
    far = [one for one in (*(test.column for test in draft.tests), *shown) if one.table != root]
    if other is None or far or beside or draft.limits or draft.time.never or len(draft.absent) > 1:
        return ""
    when = date_column(reading, list(other.tables)) if draft.time.where else None
    if draft.time.where and when is None:
        return ""
    inside = f"SELECT {key.sql} FROM {other.clause}"  # noqa: S608 - see above
    inside += f" WHERE {draft.time.where.format(when.sql)}" if when else ""
    where = [*(one.sql for one in draft.tests), f"{key.sql} NOT IN ({inside})"]
    columns = ", ".join(f"{one.sql} AS {identifier(_alias(reading, one, shown))}" for one in shown)
    return f"SELECT DISTINCT {columns} FROM {identifier(root)} WHERE {' AND '.join(where)}"  # noqa: S608


def _root(reading: Reading, ranked: Ranking | None, tests: Sequence[Condition]) -> str:
    if ranked and ranked.group and ranked.group.table:
        return ranked.group.table
    known = [one for one in reading.mentions if one.kind != "value" and one.score >= 0.5]
    known.sort(key=lambda one: (one.kind != "table" or one.score < 1, -one.score, one.begin))
    for mention in known:
        reading.use_mention(mention)
        return mention.table
    if ranked and ranked.column:
        return ranked.column.table
    return _told_of(reading, tests) if tests else ""


def _told_of(reading: Reading, tests: Sequence[Condition]) -> str:
    """Where several tables hold what is named, the one whose rows point to the others: results rather than ranges."""
    tables = list(dict.fromkeys(one.column.table for one in tests))
    points = {link.many.table for link in reading.links if link.one.table in tables and link.many.table in tables}
    return next((one for one in tables if one in points), tables[0])


def _shown(reading: Reading, root: str, ranked: Ranking | None) -> list[Column]:
    """What people know the rows by, and the columns the question names; else all of them."""
    table = reading.table(root)
    named = _named(reading, root)
    for mention in named:
        reading.use_mention(mention)
    columns = [one.column for one in named if one.column]
    if ranked and ranked.column and ranked.column not in columns:
        columns.append(ranked.column)
    if not columns:
        return list(table.columns)
    label = table.label or (table.identity if ranked or root in _tables(reading) else None)
    only_texts = all(not one.numeric and not one.dated for one in columns)
    if label is None or (only_texts and root not in _tables(reading)):
        return columns
    return list(dict.fromkeys([label, *_called(table, label, columns), *columns]))


def _called(table: Relation, label: Column, columns: Sequence[Column]) -> list[Column]:
    """Beside a bare number or code the first text of the row: C3 alone says little to who asks for contracts."""
    texts = [one for one in table.columns if not one.numeric and not one.dated and not one.key]
    return texts[:1] if label.key and not any(one in texts for one in columns) else []


def _tables(reading: Reading) -> list[str]:
    return list(dict.fromkeys(one.table for one in reading.mentions if one.kind == "table" and one.score >= 1))


def _measure_of(reading: Reading, at: int) -> bool:
    """Whether a word is the unit of a number that is compared with."""
    return at > 0 and at - 1 in reading.used and reading.words[at - 1].low[0].isdigit()


def _named(reading: Reading, root: str) -> list[Mention]:
    """The columns named, each word for one of them only: of the root where it has one."""
    found: dict[int, Mention] = {}
    for one in reading.mentions:
        if one.kind != "column" or one.score < 0.4 or (one.column and one.column.key):
            continue
        if one.score < 1 and any(other.kind == "table" and other.score >= 1 for other in reading.at(one.begin)):
            continue
        if one.column and one.column.dated and _measure_of(reading, one.begin):
            continue  # "more than 30 days" speaks of no day
        best = found.get(one.begin)
        if best is None or (one.table == root, one.score) > (best.table == root, best.score):
            found[one.begin] = one
    return [found[at] for at in sorted(found)]


def _repeats(reading: Reading, shown: Sequence[Column]) -> bool:
    """Columns that do not tell rows apart would repeat themselves."""
    return len(shown) == 1 and shown[0] != reading.table(shown[0].table).identity


def _alias(reading: Reading, column: Column, shown: Sequence[Column]) -> str:
    same = [one for one in shown if one.name == column.name]
    if len(same) == 1 and column.name != "name":
        return column.name
    group: Group = group_of_table(reading.table(column.table))
    return group.label if group.sql == column.sql else f"{column.table}_{column.name}"
