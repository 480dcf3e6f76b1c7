"""What a question asks for, put together part by part: measure, groups, rows, time. Still no SQL statement."""

from msgspec import Struct, field

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
from chargehand.models.offline.question.periods import Timing, timing
from chargehand.models.offline.question.reading import Reading, whoever
from chargehand.models.offline.question.shares import Share, share, share_place
from chargehand.models.offline.question.thresholds import Threshold, thresholds


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


def draft_of(reading: Reading) -> tuple[Draft, list[str]]:
    measured = measure(reading) if not whoever(reading) else None
    limits = thresholds(reading)
    found = groups(reading, measured)
    ranked = ranking(reading, measured)
    tables = [*(measured.tables if measured else ()), *(one.table for one in found if one.table)]
    tables += [one.table for one in reading.mentions if one.kind == "table" and one.score >= 1]
    more, unknown = named(reading, tables)
    tests = [*more, *conditions(reading, tables), *flags(reading)]
    if not more:
        tests += guessed(reading, tables)
    tests += years(reading)
    draft = Draft(measured, found, ranked, tests, limits, timing(reading))
    draft.absent += [one.table for one in absent(reading)]
    draft.tests += identified(reading)
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
    return draft, unknown


def _assume(reading: Reading, draft: Draft) -> None:
    """What is measured where no word says it: a number that is named, else how many there are."""
    if counted := next((one.counted for one in draft.limits if one.counted), ""):
        draft.measured = count_table(counted)
        others = [one for one in reading.mentions if one.kind == "table" and one.table != counted and one.score >= 1]
        draft.groups += [group_of_table(reading.table(one.table)) for one in others[:1] if not draft.groups]
        return
    if draft.time.contrast and told(reading):
        _periods(reading, draft)
        return
    if share_place(reading) >= 0 and not draft.groups and (tables := told(reading)):
        draft.measured = count_table(tables[0])
        return
    if not (draft.groups or (draft.ranked and draft.ranked.group and not draft.ranked.column)):
        return
    number = bare_column(reading)
    group = draft.ranked.group if draft.ranked and draft.ranked.group else None
    if number is not None and group is not None and number.table == group.table and not draft.groups:
        draft.ranked = Ranking(draft.ranked.down, draft.ranked.limit, number.column, group) if draft.ranked else None
        reading.use_mention(number)
        return
    if number is not None:
        draft.measured = of_bare(reading, number)
        return
    if draft.ranked is not None and not draft.ranked.counts:
        return
    _count(reading, draft, group)


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
