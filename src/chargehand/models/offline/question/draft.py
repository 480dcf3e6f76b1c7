"""What a question asks for, put together part by part: measure, groups, rows, time. Still no SQL statement."""

from msgspec import Struct, field, structs

from chargehand.models.offline.question.beside import beside
from chargehand.models.offline.question.conditions import (
    Condition,
    conditions,
    guessed,
    named,
    years,
)
from chargehand.models.offline.question.exceptions import absent, identified
from chargehand.models.offline.question.flags import flags
from chargehand.models.offline.question.grouping import (
    Group,
    Ranking,
    entity,
    group_of_column,
    group_of_table,
    groups,
    ranking,
)
from chargehand.models.offline.question.joins import reaches
from chargehand.models.offline.question.measures import Measure, bare_column, count_table, measure, of_bare, told
from chargehand.models.offline.question.namesakes import namesakes
from chargehand.models.offline.question.parameters import parameter
from chargehand.models.offline.question.periods import Timing, timing
from chargehand.models.offline.question.reading import DOWN, UP, Mention, Reading, whoever
from chargehand.models.offline.question.shares import Share, share, share_place
from chargehand.models.offline.question.thresholds import Threshold, thresholds
from chargehand.models.offline.question.totals import total

_PLURALS = frozenset({"people", "children", "men", "women", "staff"})


class Draft(Struct):
    """A query while it is being put together."""

    measured: Measure | None
    groups: list[Group]
    ranked: Ranking | None
    tests: list[Condition]
    limits: list[Threshold]
    time: Timing
    defaulted: bool = False
    ratio: Share | None = None
    tables: list[str] = field(default_factory=list[str])
    absent: list[str] = field(default_factory=list[str])
    also: list[Measure] = field(default_factory=list[Measure])  # what is measured beside it
    parameter: str = ""  # the column for whose values the numbers were recorded, where that tells them apart


def draft_of(reading: Reading) -> tuple[Draft, list[str]]:
    kin = namesakes(reading)
    measured = (measure(reading) or total(reading)) if not whoever(reading) else None
    limits = thresholds(reading)
    found = groups(reading, measured)
    ranked = ranking(reading, measured)
    tables = [*(measured.tables if measured else ()), *(one.table for one in found if one.table)]
    tables += [one.table for one in reading.mentions if one.kind == "table" and one.score >= 1]
    tables += [ranked.column.table] if ranked and ranked.column else []
    if not tables:
        rate = share_place(reading)
        columns = [one for one in reading.mentions if one.kind == "column" and one.score >= 0.4 and one.begin != rate]
        tables += [one.table for one in columns if one.score == max(other.score for other in columns)]
    more, unknown = named(reading, tables)
    tests = [*more, *conditions(reading, tables), *flags(reading)]
    if not more:
        tests += guessed(reading, tables)
    tests += years(reading)
    draft = Draft(measured, found, ranked, tests, limits, timing(reading))
    if measured is not None and ranked is None and share_place(reading) < 0:
        draft.also += beside(reading, measured)
    draft.absent += [one.table for one in absent(reading)]
    draft.tests += [*identified(reading), *kin]
    if measured is None:
        _assume(reading, draft)
    _rank(draft)
    _each(reading, draft)
    if (at := share_place(reading)) >= 0:
        grouping = bool(draft.groups)
        draft.ratio = share(reading, at, draft.measured, draft.tests, grouped=grouping)
        if draft.ratio:
            draft.tests = [one for one in draft.tests if one not in draft.ratio.dropped]
            draft.defaulted = False
    _contrast(reading, draft)
    _apart(reading, draft)
    return draft, unknown


def _apart(reading: Reading, draft: Draft) -> None:
    """What was recorded for several sizes is told for each, and not added up, unless a total is asked for."""
    measured = draft.measured
    if measured is None or draft.ratio is not None or draft.time.contrast:
        return
    column = parameter(reading, measured, _told(draft))
    if column is None:
        return
    if draft.ranked is None:
        draft.groups.append(Group(column.sql, column.name, column.table))
        draft.parameter = column.name
    else:
        draft.measured = structs.replace(measured, label=f"total_{measured.label}")


def _told(draft: Draft) -> list[str]:
    """The columns a question tells apart or is limited to."""
    limits = [one.column.sql for one in draft.limits if one.column]
    return [*(one.sql for one in draft.groups), *(one.column.sql for one in draft.tests), *limits]


def _assume(reading: Reading, draft: Draft) -> None:
    """What is measured where no word says it: a number that is named, else how many there are."""
    if counted := next((one.counted for one in draft.limits if one.counted), ""):
        draft.measured = count_table(counted)
        others = [one for one in reading.mentions if one.kind == "table" and one.table != counted and one.score >= 1]
        draft.groups += [group_of_table(reading.table(one.table)) for one in others[:1] if not draft.groups]
        return
    if draft.time.contrast and (number := bare_column(reading)) is not None and number.score >= 1:
        draft.measured = of_bare(reading, number)  # held against each other, period by period
        return
    if draft.time.contrast and told(reading):
        _periods(reading, draft)
        return
    if share_place(reading) >= 0 and not draft.groups and (tables := told(reading)):
        draft.measured = count_table(tables[0])
        return
    if not (draft.groups or (draft.ranked and draft.ranked.group and not draft.ranked.column)):
        _extreme(reading, draft)
        _side_by_side(reading, draft)
        return
    number = bare_column(reading) if not _many(reading, draft.ranked) else None
    group = draft.ranked.group if draft.ranked and draft.ranked.group else None
    if number is not None and group is not None and number.table == group.table and not draft.groups:
        _by_number(reading, draft, number, group)
        return
    if number is not None:
        draft.measured = of_bare(reading, number)
        return
    if draft.ranked is not None and not draft.ranked.counts:
        return
    if draft.ranked is None and _on_record(reading, draft):
        draft.groups.clear()
        return
    _count(reading, draft, group)


def _extreme(reading: Reading, draft: Draft) -> None:
    """The lowest of a number that is named beside it, where nobody is named whose it is: "the lowest budget"."""
    ranked, number = draft.ranked, bare_column(reading)
    if ranked is None or ranked.column or ranked.limit > 1 or number is None or number.column is None:
        return
    place = reading.place(UP | DOWN)
    found = of_bare(reading, number) if 0 <= place < number.begin <= place + 2 else None
    if found is not None:
        word, kind = ("highest", "MAX") if ranked.down else ("lowest", "MIN")
        draft.measured = structs.replace(found, kind=kind, label=f"{word}_{number.column.name}")


def _side_by_side(reading: Reading, draft: Draft) -> None:
    """What is compared and has many rows each is added up: "compare the hours of beginner and advanced topics"."""
    number = bare_column(reading)
    if draft.ranked or not reading.words or reading.words[0].low != "compare" or number is None or number.score < 1:
        return
    table = reading.table(number.table)
    kinds = [one for one in draft.tests if len(one.values) > 1 and one.column not in (table.label, table.identity)]
    if len(draft.tests) != len(kinds) or len(kinds) != 1 or kinds[0].column.table != table.name:
        return
    found = of_bare(reading, number)
    draft.measured = found if found is not None and found.kind == "SUM" else None


def _by_number(reading: Reading, draft: Draft, number: Mention, group: Group) -> None:
    """Ranked by a number that stands beside them."""
    if draft.ranked is None or _repeated(reading, draft, number):
        return
    draft.ranked = Ranking(draft.ranked.down, draft.ranked.limit, number.column, group)
    reading.use_mention(number)


def _repeated(reading: Reading, draft: Draft, number: Mention) -> bool:
    """Whether each that is ranked has several rows, of which the highest or lowest stands for it."""
    found, ranked = of_bare(reading, number), draft.ranked
    if found is None or ranked is None or ranked.limit == 1 or parameter(reading, found, _told(draft)) is None:
        return False
    kind, word = ("MAX", "highest") if ranked.down else ("MIN", "lowest")
    draft.measured = structs.replace(found, kind=kind, label=f"{word}_{found.label}")
    return True


def _many(reading: Reading, ranked: Ranking | None) -> bool:
    """Whether the most of them are wanted, and not the largest: who has most results has many rows, not a high one."""
    rows = [one for one in reading.mentions if one.kind == "table" and one.score >= 1 and one.begin]
    several = [one for one in rows if (word := reading.words[one.end - 1].low).endswith("s") or word in _PLURALS]
    before = [reading.words[one.begin - 1].low for one in several]
    return ranked is not None and ranked.counts and bool({"most", "fewest", "least"} & set(before))


def _on_record(reading: Reading, draft: Draft) -> bool:
    """Whether each group is a row that says it: "the licence of each framework" is read, and nothing is counted."""
    rows = {one.sql: one.table for one in draft.groups if one.table}
    tables = {
        name for sql, name in rows.items() if sql == (reading.table(name).label or reading.table(name).identity).sql
    }
    texts = [one for one in reading.mentions if one.column and not (one.column.numeric or one.column.key)]
    return any(one.score >= 1 and one.table in tables and one.column and one.column.sql not in rows for one in texts)


def _count(reading: Reading, draft: Draft, group: Group | None) -> None:
    """How many there are of what is named besides the groups, else of what happens to them."""
    taken = {one.table for one in (*draft.groups, *((group,) if group else ()))}
    tables = [one for one in reading.mentions if one.kind == "table" and one.score >= 0.5]
    counted = next((one for one in tables if one.table not in taken), None)
    if counted is None:
        counted = next((one for one in tables if (draft.groups or group) and one.begin not in reading.used), None)
    if counted is not None:
        reading.use_mention(counted)
        draft.measured, draft.defaulted = count_table(counted.table), True
        return
    fitting = [one for one in (*draft.groups, *((group,) if group else ())) if one.table or one.unit]
    if fitting:
        draft.measured, draft.defaulted = count_table(_fact(reading, fitting[0].table)), True


def _periods(reading: Reading, draft: Draft) -> None:
    """Several things held against each other over time are counted: "how did returns change"."""
    named = next(one for one in reading.mentions if one.kind == "table" and one.score >= 1)
    if reading.words[named.end - 1].low.endswith("s"):
        reading.use_mention(named)
        draft.measured = count_table(named.table)


def _fact(reading: Reading, table: str) -> str:
    """The table that says what happens, rather than to what: the one that points to most others."""

    def weight(name: str) -> tuple[int, bool]:
        points = sum(link.many.table == name for link in reading.links)
        return points, any(one.dated for one in reading.table(name).columns)

    if table and weight(table)[0]:
        return table
    near = [one.name for one in reading.schema if not table or reaches(reading, table, one.name)]
    return max(near, key=weight)


def _rank(draft: Draft) -> None:
    """A ranking of groups makes them groups."""
    ranked = draft.ranked
    if ranked is None or draft.measured is None:
        return
    if not draft.groups and ranked.group is not None:
        draft.groups.append(ranked.group)
    elif not draft.groups and draft.measured.kind in {"SUM", "AVG"} and " * " not in draft.measured.inner:
        draft.measured = Measure("MAX" if ranked.down else "MIN", *_rest(draft.measured))


def _each(reading: Reading, draft: Draft) -> None:
    """Which of several has more than so much: the measure is taken for each."""
    first = reading.words[0].low if reading.words else ""
    if draft.groups or draft.measured is None or first not in {"which", "list"}:
        return
    if any(one.column is None and not one.counted for one in draft.limits) and (named := entity(reading, 1)):
        draft.groups.append(named[0])
        reading.use(1)


def _rest(measured: Measure) -> tuple[str, str, tuple[str, ...]]:
    return measured.inner, measured.label, measured.tables


def _contrast(reading: Reading, draft: Draft) -> None:
    """Several values of one column are held against each other."""
    if draft.measured is None:
        return
    for test in draft.tests:
        group = group_of_column(reading, test.column)
        if (
            len(test.values) > 1
            and not test.part
            and not test.negated
            and group.sql not in {one.sql for one in draft.groups}
        ):
            draft.groups.append(group)
            first = draft.ranked
            if first is not None:  # the first row would be of one of them only
                draft.ranked = Ranking(first.down, 0, first.column, first.group, first.counts)
