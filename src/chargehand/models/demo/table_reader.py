"""The reader of questions to tables: a clause has one of a few forms, and each word of it has a part in the query.

The words are held against the schema: nouns (a table, a column, a value), operators, and all others. A clause is read
once for each table, which is the base of the query. First times, values and the grouping are taken out; what is left
has to be one of `_FORMS`. Where two readings fit, neither is taken.
"""

import re
from datetime import date

from msgspec import Struct, structs

from chargehand.models.demo.request import Account, Clause, RefusedError
from chargehand.models.demo.tables import (
    Column,
    Condition,
    Grouping,
    Noun,
    Query,
    Schema,
    TableMeasure,
    TableSpec,
    column_measure,
    read_schema,
    row_count,
)
from chargehand.models.demo.words import NEGATIONS, Token, stem, stem_set, stems, word_set
from chargehand.text.dates import Date
from chargehand.text.numbers import number_value
from chargehand.text.words import join_words, singular

_OPERATORS = (
    ("E", "", "which, list, show, name, find, what"),
    ("C", "", "how many, how much, number of, number the, count of, count the"),
    ("A", "SUM", "total, sum, overall, altogether, combined, in all, in total"),
    ("A", "AVG", "average, mean, avg"),
    ("R", "DESC", "highest, largest, biggest, greatest, maximum, max, most, top"),
    ("R", "ASC", "lowest, smallest, minimum, min, fewest, least"),
    ("G", "", "per, each, every, by"),
    ("N", "", ", ".join((*NEGATIONS, "other than"))),
    ("X", "", "more than, greater than, less than, fewer than, at least, at most, over, above, under, below"),
    ("P", "", "month, year, day"),
    ("M", "", "revenue, turnover, sales"),
    ("S", "", "sell, sold"),
    ("&", "", "and, or, nor"),
)
"""Words that say what to do with nouns: their tag, the SQL they stand for, and how they are written."""
_OPERATOR_BY_WORDS = {words: (tag, sql) for tag, sql, phrases in _OPERATORS for words in phrases.split(", ")}
_NOUN_TAGS = {"value": "V", "table": "K", "text": "K", "key": "K", "number": "M", "day": "D"}
_FORMS = (
    ("count", re.compile("E?A?(?P<count>C)(?P<rows>T)")),
    ("sold", re.compile("(?P<count>C)S")),
    ("figure", re.compile("E?(?P<aggregate>[AR])?(?P<count>C)?(?P<measure>M)T?(?P<total>A)?")),
    ("first", re.compile("E(?P<limit>#)?(?P<asked>[KTP])(?P<rank>R)(?P<aggregate>A)?(?P<measure>[MT])")),
    ("first", re.compile("E?(?P<rank>R)(?P<limit>#)?(?P<asked>[KT])G(?P<aggregate>A)?(?P<measure>M)")),
    ("list", re.compile("E(?P<asked>[KT])(?P<rows>T)?")),
)
"""The forms of a question by the tags of its words, besides times, values and what it is grouped by.

E asks (which, list), C counts (how many), A is an aggregate, R a rank, G groups (per, by), T is the base table, K
another table or a column that rows can be put together by, P a month, year or day, M a measure, S sold, # a number.
No form has N (a negation), X (a comparison), & (and, or), ! (a noun with two meanings) or ? (a noun of a table that
the base does not refer to).
"""
_NAMING_QUESTIONS = word_set("who whose when where which")
_NOT_A_FACT = re.compile(
    r"\b(?:should|must|might|shall|ought|will|can|would|could|i|my|mine)\b"
    r"|\b(?:has|have|had|is|are|was|were|yet|still) to\b|\bto be\b",
    re.IGNORECASE,
)
"""What is wished, planned or possible, and who asks."""
_COSTS = re.compile(r"\b(?:do|does|did)\b.{1,200}\bcosts?\b", re.IGNORECASE)
_LIGHT_VERBS = stem_set("bring take carry have make get come belong place order exist go use record run stand hold")
"""Verbs that say no more than that something is so."""
_OF_A_COUNT = word_set("most fewest least")
_DID = word_set("did do does")
_AUXILIARIES = _DID | word_set("has have had was were is are")
_UNCLEAR = word_set("by from to through until till since after before between")
_SKIPPED = word_set("the in of month")
_TIME_UNITS = {"month": 7, "year": 4, "day": 10}
"""Periods, and how many characters of a date name them."""
_UNDONE = stem_set("cancelled canceled returned refunded rejected failed lost void draft")
"""Values of a status in which nothing was sold."""
_REDUCED = stem_set("discount rebate refund refunded tax vat fee shipping tip")
"""Words of columns by which revenue is more or less than quantity times price."""
_DAY_WORDS = stem_set("day date month week time on at")
_LONGEST_PHRASE = 6


class Item(Struct, frozen=True):
    """A word or a phrase of a clause, its place among them, and what it may name or do."""

    at: int
    text: str
    start: int
    end: int
    size: int = 1
    """How many words it has."""
    nouns: tuple[Noun, ...] = ()
    noun: Noun | None = None
    """What it names, as seen from the base table."""
    tag: str = ""
    """What it may be in a form; nothing for a word that has no part in a query."""
    sql: str = ""
    """What an operator stands for: the function of an aggregate, the direction of a rank."""
    number: float | None = None
    is_free: bool = False

    @property
    def low(self) -> str:
        return self.text.lower()

    @property
    def column(self) -> Column | None:
        return self.noun.column if self.noun is not None else None


def read_items(clause: Clause, schema: Schema) -> list[Item]:
    """The clause as a row of items, the longest phrases first, and an empty one behind the last."""
    items: list[Item] = []
    position = 0
    while position < len(clause.tokens):
        sizes = range(min(_LONGEST_PHRASE, len(clause.tokens) - position), 0, -1)
        phrases = [_read_item(clause, clause.tokens[position : position + size], len(items), schema) for size in sizes]
        item = next((item for item in phrases if item.nouns or item.tag), phrases[-1])
        items.append(item)
        position += item.size
    end = len(clause.text)
    return [*items, Item(at=len(items), text="", start=end, end=end)]


def _read_item(clause: Clause, tokens: tuple[Token, ...], at: int, schema: Schema) -> Item:
    phrase = tuple(token.stem for token in tokens)
    text = clause.text[tokens[0].start : tokens[-1].end]
    words = " ".join(token.low for token in tokens)
    is_free = len(tokens) == 1 and tokens[0].is_free
    item = Item(at=at, text=text, start=tokens[0].start, end=tokens[-1].end, size=len(tokens))
    nouns = _choose_nouns(schema.nouns.get(phrase, []), text, words, is_free=is_free)
    if nouns:
        return structs.replace(item, nouns=tuple(nouns))
    tag, sql = _OPERATOR_BY_WORDS.get("not" if phrase == ("not",) else words, ("", ""))
    return structs.replace(item, tag=tag, sql=sql, number=number_value(text), is_free=is_free)


def _choose_nouns(nouns: list[Noun], text: str, words: str, *, is_free: bool) -> list[Noun]:
    """What a phrase names: a value that is written the same way, else a table or column, else a value by its stem."""
    written = [noun for noun in nouns if noun.value.lower() == words]
    tables = [noun.table.name for noun in nouns if noun.kind == "table"]
    if is_free:
        return [noun for noun in written if noun.value == text]
    if written and tables and words != tables[0].lower():
        return written
    return [noun for noun in nouns if noun.kind != "value"] if tables else nouns


def read_query(clause: Clause, description: str) -> Query:
    """The query for a clause over the tables that a tool's description lists; RefusedError where there is none."""
    schema = read_schema(description)
    if schema is None or clause.points_back:
        raise RefusedError("it speaks of an earlier result, which no table holds")
    items = read_items(clause, schema)
    queries: list[Query] = []
    refusals: dict[tuple[int, int], str] = {}
    for base in schema.tables.values():
        reader = _QueryReader(clause, items, schema, base)
        try:
            queries.append(reader.read())
        except RefusedError as refusal:
            own_nouns = sum(any(noun.table is base for noun in item.nouns) for item in items)
            refusals.setdefault((len(reader.used), own_nouns), refusal.reason)
    fewest = min((len(query.tables) for query in queries), default=0)
    simple = {query.sql: query for query in queries if len(query.tables) == fewest}
    bases = sorted({query.tables[0] for query in simple.values()})
    if len(simple) > 1:
        reason = f"it can be read of {join_words(bases, 'or')}; say which is meant"
    elif not simple:
        reason = refusals[max(refusals)]
    else:
        query = next(iter(simple.values()))
        scope = _scope_beside(clause, query, schema)
        if not scope:
            return query
        reason = f"whether it is of {scope} too is not said"
    known = Account(clause)
    known.use_words(_LIGHT_VERBS)
    for item in items:
        if item.nouns or item.tag or item.number is not None:
            known.use_span(item.start, item.end)
    raise RefusedError(reason, understood=known.understood)


def _scope_beside(clause: Clause, query: Query, schema: Schema) -> str:
    """A period or values of a question beside this one that may hold for it too; nothing where there are none."""
    if clause.period_beside and query.base.days:
        return clause.period_beside
    items = [item for other in clause.beside for item in read_items(other, schema)]
    values = [item.text for item in items if any(noun.value for noun in item.nouns)]
    return "" if query.conditions else join_words(values)


class _QueryReader:
    """One try to read a clause as a question about the rows of one table and what they refer to."""

    def __init__(self, clause: Clause, items: list[Item], schema: Schema, base: TableSpec) -> None:
        self.clause = clause
        self.schema = schema
        self.base = base
        self.joins = schema.joins(base.name)
        self.query = Query(base)
        self.items = [self._resolve(item, items[item.at - 1]) for item in items]
        self.open = {item.at: item for item in self.items if item.tag}
        """The items that have no part in the query yet, by their places."""
        self.used: set[int] = set()
        """The places of those that have one."""

    def _resolve(self, item: Item, before: Item) -> Item:
        """The item with what it names in the base table, else in those that this refers to, and its tag."""
        if item.number is not None:
            return structs.replace(item, tag="#")
        near = [noun for noun in item.nouns if noun.table.name in self.joins]
        near = [noun for noun in near if noun.table is self.base] or near
        kinds = {noun.kind for noun in near}
        if item.low in _TIME_UNITS and "value" not in kinds:
            return structs.replace(item, tag="P")
        if Noun(self.base) in near and ("number" not in kinds or before.tag in {"C", "R"}):
            return structs.replace(item, tag="T", noun=Noun(self.base))
        for kind, tag in _NOUN_TAGS.items():
            nouns = [noun for noun in near if noun.kind == kind]
            if nouns:
                return structs.replace(item, tag=tag if len(nouns) == 1 else "!", noun=nouns[0])
        return structs.replace(item, tag="?") if item.nouns else item

    def read(self) -> Query:
        """The query; RefusedError where a word cannot be read."""
        for item in self._tagged("!"):
            names = [noun.column.sql if noun.column is not None else noun.table.name for noun in item.nouns]
            raise RefusedError(f"{item.text!r} may be {join_words(names, 'or')}; say which is meant")
        if _COSTS.search(self.clause.text) and any(self.schema.tables[name].prices for name in self.joins):
            raise RefusedError("what it costs may be a price or a cost; say which")
        if self.clause.periods:
            self._read_times()
        for item in self._tagged("V"):
            self._read_value(item)
        for item in self._tagged("G"):
            self._read_group(item)
        self._read_form()
        account = Account(self.clause)
        account.use_words(_LIGHT_VERBS)
        if self.query.time_words:
            account.used_periods.update(self.clause.periods)
        for at in self.used:
            account.use_span(self.items[at].start, self.items[at].end)
        account.settle("nothing in the tables says")
        self.query.render(self.joins)
        return self.query

    def _take(self, *items: Item) -> None:
        """Give items a part in the query."""
        for item in items:
            self.used.add(item.at)
            self.open.pop(item.at, None)

    def _tagged(self, tag: str) -> list[Item]:
        """The open items with this tag."""
        return [item for item in self.open.values() if item.tag == tag]

    def _beside(self, item: Item, step: int) -> Item:
        """The next or the last item that is more than a little word; an empty one at the ends."""
        at = item.at + step
        while 0 <= at < len(self.items) and self.items[at].is_free and not self.items[at].tag:
            at += step
        return self.items[at] if 0 <= at < len(self.items) else self.items[-1]

    # --- times, values, grouping

    def _day_column(self) -> Column:
        """The column of the base table with the dates that are meant: the only one, if it is a plain date or named."""
        days = self.base.days
        named = {noun.column for item in self.items for noun in item.nouns}
        meant = [column for column in days if column in named]
        if not meant and len(days) == 1 and (_DAY_WORDS | {stem(self.base.name)}).intersection(stems(days[0].name)):
            meant = days
        if len(meant) != 1:
            raise RefusedError(f"which date of {self.base.name} is meant is not said")
        return meant[0]

    def _read_times(self) -> None:
        """One time that rows are of."""
        column = self._day_column()
        period = _check_period(self.clause.periods[0], column)
        preceding = [item.low for item in self.items if item.end <= period.start and item.low not in _SKIPPED]
        if len(self.clause.periods) > 1 or (preceding and preceding[-1] in _UNCLEAR):
            raise RefusedError("how the times belong together is not clear; ask for one, or for each month")
        self.query.time_words = f"{'on' if period.day else 'in'} {period.text}"
        self._take(*(item for item in self.items if column in {noun.column for noun in item.nouns}))
        sql = f"{column.sql} BETWEEN '{period.first_day}' AND '{period.last_day}'"
        self.query.conditions.append(Condition(sql, "", column))

    def _read_value(self, item: Item) -> None:
        """A value that rows have ("from Italy", "paid late")."""
        column = item.column
        assert item.noun is not None, "what has the tag V names a value"
        assert column is not None, "and the value is one of a column"
        self._check_value(item, column)
        before = self._beside(item, -1)
        if before.low == "by":  # "placed by Ada Brandt"
            self._take(before)
        for word in (self.items[item.at - 1], self.items[item.at + 1]):  # "class 3A", "the Harbour branch"
            named = [noun.column or noun.table.label for noun in word.nouns if not noun.value]
            if word.tag == "K" and column in named:
                self._take(word)
        quoted = item.noun.value.replace("'", "''")
        self.query.conditions.append(Condition(f"{column.sql} = '{quoted}'", item.text, column))
        self._take(item)

    def _check_value(self, item: Item, column: Column) -> None:
        """RefusedError where how a value goes with another one, or with who is asked for, is not clear."""
        is_action = any(stem(name).startswith(stem(item.text)) for name in self.schema.tables)
        if column.kind != "flag" and is_action:
            reading = f"what is done in {self.base.name}"  # "ordered" is a status, and what happens to all orders
            raise RefusedError(f"{item.text!r} may be {column.sql} or {reading}; say which is meant")
        if any(condition.column == column for condition in self.query.conditions):
            raise RefusedError(f"{item.text!r} is a second value of {column.sql}; ask for one")
        before = self.items[item.at - 1]
        is_of_asked = before.tag == "K" and self._beside(before, -1).tag == "E"
        is_done_by = any(noun.value for noun in before.nouns) and self.items[before.at - 1].low in _DID
        if item.at and (is_of_asked or is_done_by):  # "which rival won", "did Plotline win"
            raise RefusedError(f"whether {before.text!r} does it or it is done to {before.text!r} is not clear")

    def _read_group(self, word: Item) -> None:
        """What rows are put together by: "per country", "each month"; "by revenue" says what is ranked."""
        item = self._beside(word, 1)
        if item.at not in self.open or item.tag not in {"K", "T", "P"}:
            return
        group = self._group_by(item)
        values = [noun for noun in self._beside(item, 1).nouns if noun.value]
        if word.low == "by" and any(noun.table.name == group.table for noun in values):
            raise RefusedError(f"whether 'by {item.text}' says who does it is not clear")
        self._take(word, item)

    def _group_by(self, item: Item) -> Grouping:
        """Put rows together by days, months or years, the rows of a table, or the values of a column.

        Of a code it is the name behind it, in the table that it is the key of.
        """
        if self.query.group is not None:
            raise RefusedError("it groups by several things; ask for one")
        if item.noun is None:
            day = self._day_column()
            sql = f"substr({day.sql}, 1, {_TIME_UNITS[item.low]})"
            self.query.group = Grouping(sql, label=item.low, table=day.table, is_time=True)
            return self.query.group
        table = item.noun.table
        column = item.column or table.label
        is_name = self.base.key is not None and column in (self.base.key, self.base.label)
        for other in (self.schema.tables[name] for name in self.joins):
            is_key = other.key is not None and other.key.name == column.name
            if is_key and (column.kind == "key" or other.label.name == "name"):
                column = other.label
        self.query.group = Grouping(
            sql=column.sql,
            label=item.low if item.column is not None and item.low == item.column.label else singular(item.low),
            table=column.table,
            is_row=table is self.base and (item.column is None or is_name),
        )
        return self.query.group

    # --- the forms

    def _read_form(self) -> None:
        """What is asked for, by the form of what is left of the clause."""
        items = list(self.open.values())
        if not items:
            raise RefusedError("what is wanted is not said")
        tags = "".join(item.tag for item in items)
        if "&" in tags:
            raise RefusedError("it names several things; ask for one at a time")
        if supposed := _NOT_A_FACT.search(self.clause.text):
            raise RefusedError(f"{supposed[0]!r}: the tables say what is so, not what could be or who asks")
        readers = {
            "count": self._read_count,
            "sold": self._read_sold,
            "figure": self._read_figure,
            "first": self._read_first,
            "list": self._read_list,
        }
        for form, pattern in _FORMS:
            match = pattern.fullmatch(tags)
            if match is not None:
                readers[form]({name: items[match.start(name)] for name in match.groupdict() if match[name]})
                self._take(*items)
                break
        else:
            raise RefusedError(f"how {join_words([repr(item.text) for item in items])} belong together is not clear")
        if self.query.group is None and self.clause.question in _NAMING_QUESTIONS:
            raise RefusedError(f"a figure does not say {self.clause.question}; name the column that is wanted")

    def _read_count(self, parts: dict[str, Item]) -> None:
        """The number of rows; RefusedError where pieces or actions of a person may be meant."""
        rows = parts["rows"]
        between = self.items[parts["count"].at : rows.at]
        names = (self.base.label, self.base.key) if self.base.key is not None else ()
        if any(item.low in _AUXILIARIES for item in between):  # "how many lamps did Ada order"
            raise RefusedError(f"whether {rows.text!r} is what is counted is not clear")
        if any(condition.column in names for condition in self.query.conditions):
            raise RefusedError("whether rows or pieces are counted is not clear")
        self.query.measure = row_count(self.base, rows.low)

    def _read_sold(self, parts: dict[str, Item]) -> None:
        """How many pieces were sold."""
        if self.base.quantity is None or parts["count"].low == "how much":
            raise RefusedError("whether pieces or money are meant is not clear; say revenue, or how many")
        self._check_status()
        self.query.measure = structs.replace(column_measure(self.base.quantity, "SUM"), label="number sold")

    def _read_figure(self, parts: dict[str, Item]) -> None:
        """A sum, an average, an extreme, or the value of each row that is meant."""
        said = parts.get("aggregate") or parts.get("total")
        aggregate = {"DESC": "MAX", "ASC": "MIN"}.get(said.sql, said.sql) if said is not None else ""
        measure = self._measure(parts["measure"], aggregate)
        group = self.query.group
        is_of_rows = group.is_row if group is not None else bool(self.query.conditions)
        if not measure.aggregate and not is_of_rows:
            raise RefusedError(f"say whether the total, average, highest or lowest {measure.label} is meant")
        if aggregate == "AVG" and group is not None and (group.is_time or group.sql == self.base.columns[0].sql):
            raise RefusedError("an average may be of single rows or of their sums; ask for the sums")
        self.query.measure = measure
        self.query.wants_one = not measure.aggregate and "count" in parts

    def _read_list(self, parts: dict[str, Item]) -> None:
        """What is listed: "which customers"."""
        group = self._group_by(parts["asked"])
        if group.table != self.base.name and "rows" not in parts:
            raise RefusedError("what is to be looked up is not in the tables")

    def _read_first(self, parts: dict[str, Item]) -> None:
        """The first places: "which three products brought the most revenue"."""
        group = self._group_by(parts["asked"])
        rank = parts["rank"]
        item = parts["measure"]
        column = item.column
        if item.tag == "T" and rank.low in _OF_A_COUNT:
            measure = row_count(self.base, item.low)
        elif item.tag == "T":
            raise RefusedError(f"by what the {rank.low} are chosen is not said")
        elif column is None or "aggregate" in parts:
            measure = self._measure(item, parts["aggregate"].sql if "aggregate" in parts else "")
        elif group.is_row and column.table == self.base.name:
            measure = column_measure(column, "")
        elif rank.low in _OF_A_COUNT:
            measure = self._measure(item, "SUM")
        else:
            label = f"{rank.low} {column.label}"
            raise RefusedError(f"the {label} may be of one row, a total or an average; say which")
        if rank.sql == "ASC" and measure.aggregate:
            raise RefusedError(f"what has no {self.base.name} may be lower, and is not in the tables")
        self.query.measure = measure
        self.query.rank = rank.sql
        limit = parts["limit"].number if "limit" in parts else None
        self.query.limit = max(1, int(limit or 1))

    # --- measures

    def _measure(self, item: Item, aggregate: str) -> TableMeasure:
        """What an item measures: a column with numbers, or revenue, which is quantity times price."""
        column = item.column
        if column is not None:
            if column.table != self.base.name:
                raise RefusedError(f"{column.sql} would be counted several times")
            return column_measure(column, aggregate or ("SUM" if column.is_flow else ""))
        self._check_status()
        prices = [column for name in self.joins for column in self.schema.tables[name].prices]
        quantity = self.base.quantity
        has_more = any(_REDUCED.intersection(stems(column.name)) for column in self.base.columns)
        if quantity is None or len(prices) != 1 or has_more or aggregate not in {"", "SUM"}:
            raise RefusedError(f"this figure of {item.text} cannot be worked out from {self.base.name}")
        sql = f"ROUND(SUM({quantity.sql} * {prices[0].sql}), 2)"
        return TableMeasure(sql, "SUM", "revenue", table=prices[0].table, unit=prices[0].unit)

    def _check_status(self) -> None:
        """RefusedError where rows in which nothing was sold would count as sales."""
        tested = {condition.column for condition in self.query.conditions}
        for column in self.base.columns:
            undone = [value for value in column.values if stem(value) in _UNDONE]
            if column.kind == "text" and undone and column not in tested:
                raise RefusedError(
                    f"whether {join_words(undone)} {self.base.name} count is not said; name the {column.name}"
                )


def _check_period(period: Date, column: Column) -> Date:
    """The period, of the only year on record where none is said; RefusedError where there are no rows of it."""
    first = date.fromisoformat(min(column.values))
    last = date.fromisoformat(max(column.values))
    dated = period.of_year(first.year) if first.year == last.year else period
    if not dated.year:
        raise RefusedError(f"which year {period.text} is of is not said")
    if dated.first_day > last or dated.last_day < first:
        raise RefusedError(f"nothing is on record for {period.text}: {column.table} are from {first} to {last}")
    return dated
