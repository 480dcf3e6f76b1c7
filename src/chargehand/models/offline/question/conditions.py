"""Which rows a question is about: values and names it mentions. Comparisons with numbers are in `thresholds`."""

import re
from collections.abc import Iterator

from msgspec import Struct, structs

from chargehand.models.offline.question.joins import reaches
from chargehand.models.offline.question.reading import Mention, Reading
from chargehand.models.offline.schema_text import Column, literal
from chargehand.models.offline.vocabulary import PAST
from chargehand.models.offline.words import STOP, names, stem, tokens

_NOT = "not without except excluding never no neither nor besides unless"
NEGATIONS = frozenset(_NOT.split())
_JOINS = "the a an any all our those from in of for to and or by buy bought order ordered have"
_BETWEEN = frozenset(_JOINS.split())
_LEADS = frozenset({"many", "of", "for", "number"})
_SEVERAL = re.compile(r"\s+and the\s+")
_SIGNS = {"before": "<", "until": "<=", "after": ">", "since": ">=", "from": ">="}
_BORN = {stem("born"): stem("birth"), stem("published"): stem("publication"), stem("built"): stem("construction")}
_VAGUE = frozenset(
    stem(word) for word in ("time", "kind", "sort", "type", "way", "result", "number", "example", "each")
)


class Condition(Struct, frozen=True):
    """A test on one column. `values` are what it is compared with. `guessed`: whether they occur is not known yet.

    `negated`: rows with these values are left out, and `sql` without that is `positive`. `every`: the values
    are joined with "and".
    """

    sql: str
    column: Column
    values: tuple[str, ...] = ()
    part: bool = False
    guessed: bool = False
    negated: bool = False
    every: bool = False

    @property
    def positive(self) -> str:
        return self.sql.removeprefix("NOT ") if self.negated else self.sql


def conditions(reading: Reading, tables: list[str]) -> list[Condition]:
    """Tests for the values a question mentions; values of one column are alternatives."""
    chosen: dict[str, list[Mention]] = {}
    taken: set[int] = set()
    values = list(_values(reading))
    for mention in sorted(values, key=lambda one: (-one.score, one.begin)):
        places = set(range(mention.begin, mention.end))
        if places & (taken | reading.named) or (mention.part and places & reading.used):
            continue
        rivals = [
            one for one in values if (one.begin, one.end, one.score) == (mention.begin, mention.end, mention.score)
        ]
        nearest = min(rivals, key=lambda one: (not _behind(reading, one), *_distance(reading, one, tables)))
        best = _nearer(reading, nearest, tables)
        taken |= places
        reading.use(*places)
        if best.column is not None:
            kind = f"{best.column.sql} {left_out(reading, best.begin)}"
            chosen.setdefault(kind, []).append(best)
    return [_condition(reading, mentions) for mentions in chosen.values()]


def _nearer(reading: Reading, mention: Mention, tables: list[str]) -> Mention:
    """The same value in a table that is in use, where a link says that both columns hold the same.

    A table that is joined only for its copy of a key may hold it several times, and sums would grow with it.
    """
    column = mention.column
    if column is None or mention.part or mention.table in tables or not _distance(reading, mention, tables)[0]:
        return mention
    pairs = [pair for one in reading.links for pair in ((one.many, one.one), (one.one, one.many))]
    own = next((near for far, near in pairs if far == column and near.table in tables), None)
    return mention if own is None else structs.replace(mention, table=own.table, column=own)


def left_out(reading: Reading, at: int) -> bool:
    """Whether a value is to be left out: a negation stands before it, or before one it is joined to with "and"."""
    for place in range(at - 1, max(-1, at - 7), -1):
        word = reading.words[place]
        if word.low in NEGATIONS:
            reading.use(place)
            return True
        if word.low not in _BETWEEN and not any(one.kind == "value" for one in reading.at(place)):
            return False
        if word.low in {"and", "or"} and "but" in {one.low for one in reading.words[place:at]}:
            return False
    return False


def _values(reading: Reading) -> Iterator[Mention]:
    for one in reading.mentions:
        if one.kind != "value":
            continue
        # a word that is a table or column by name is meant as that, unless it was quoted
        named = [other for other in reading.at(one.begin) if other.kind != "value" and other.begin == one.begin]
        # and "our shop" is who asks, not one of the values of a column
        whose = reading.words[one.begin - 1].low in {"our", "my", "this"} if one.begin else False
        if (not any(other.score >= 1 for other in named) and not whose) or one.value in reading.quotes:
            yield one


def _behind(reading: Reading, mention: Mention) -> bool:
    """Whether the word right before a value names its column: "which topics need sampling" is about what they need."""
    return any(one.column == mention.column for one in reading.at(mention.begin - 1, "column"))


def _distance(reading: Reading, mention: Mention, tables: list[str]) -> tuple[bool, bool, int]:
    """Values of a column that is named next to them count first, then those of tables in use."""
    near = range(mention.begin - 2, mention.end + 2)
    beside = any(one.column == mention.column for at in near for one in reading.at(at, "column"))
    place = tables.index(mention.table) if mention.table in tables else len(tables)
    return not beside, mention.part, place


def _condition(reading: Reading, mentions: list[Mention]) -> Condition:
    column = mentions[0].column
    assert column is not None
    values = tuple(dict.fromkeys(one.value for one in mentions))
    negated = left_out(reading, mentions[0].begin)
    sign = "NOT " if negated else ""
    if any(one.part for one in mentions):
        tests = [f"LIKE {literal(f'%{one.value}%')}" if one.part else f"= {literal(one.value)}" for one in mentions]
        sql = " OR ".join(f"{column.sql} {one}" for one in dict.fromkeys(tests))
        return Condition(f"{sign}({sql})", column, values, part=True, negated=negated)
    if len(values) == 1:
        return Condition(f"{sign}{column.sql} = {literal(values[0])}", column, values, negated=negated)
    listed = ", ".join(literal(one) for one in values)
    joints = {one.low for one in reading.words[mentions[0].begin : mentions[-1].end]}
    every = "or" not in joints
    return Condition(f"{sign}{column.sql} IN ({listed})", column, values, negated=negated, every=every)


def named(reading: Reading, tables: list[str]) -> tuple[list[Condition], list[str]]:
    """Names and quotations no value matched: looked for in a column that shows only a sample, else unknown."""
    found: list[Condition] = []
    unknown: list[str] = []
    several = [part for one in names(reading.text) for part in _SEVERAL.split(one)]
    for name in dict.fromkeys((*reading.quotes, *several)):
        places = _places(reading, name)
        if not places or places & reading.used or _meant(reading, places):
            continue
        column = _open_column(reading, tables, min(places), name)
        if column is None:
            unknown.append(name)
        else:
            reading.use(*places)
            reading.named |= places
            found.append(_inside(column, name))
    return found, unknown


def _inside(column: Column, text: str) -> Condition:
    """Somewhere in the column; "Owl Headlamps" is also an Owl Headlamp."""
    words = [re.sub(r"(?<=[^s]{4})s$", "", word) for word in text.split()]
    pattern = literal("%" + "%".join(words) + "%")
    return Condition(f"{column.sql} LIKE {pattern}", column, (text,), part=True, guessed=True)


def _meant(reading: Reading, places: set[int]) -> bool:
    """Whether the words of a name are known: all of them together, or each on its own."""
    known = [one for at in places for one in reading.at(at) if one.score >= 0.6]
    together = any(places <= set(range(one.begin, one.end)) for one in known)
    if len(places) == 1 and any(one.part for at in places for one in reading.at(at, "value")):
        return True  # a supplier is called by the first word of its name
    return together or all(any(one.covers(at) for one in known) for at in places)


def guessed(reading: Reading, tables: list[str]) -> list[Condition]:
    """A word nothing in the schema knows, where a thing is named: "how many Sellmark backpacks", "revenue of lamps"."""
    for at, word in enumerate(reading.words):
        if at in reading.used or word.low in STOP or not word.low.isalpha() or len(word.low) < 4 or reading.at(at):
            continue
        if not _led(reading, at) or word.stem in _VAGUE or word.low in PAST or word.low.endswith("ed"):
            continue
        column = _open_column(reading, tables, at)
        if column is not None and (not tables or reaches(reading, tables[0], column.table)):
            reading.use(at)
            reading.named.add(at)
            return [_inside(column, word.low)]
    return []


def _led(reading: Reading, at: int) -> bool:
    """Whether "of", "for" or "how many" stands before a word, with only known words between."""
    for place in range(at - 1, -1, -1):
        if reading.words[place].low in _LEADS:
            return True
        if place not in reading.used or any(one.score >= 1 for one in reading.at(place, "table")):
            return False  # what is counted has been named already
    return False


def _places(reading: Reading, name: str) -> set[int]:
    parts = tokens(name)
    for at in range(len(reading.words) - len(parts) + 1):
        if [one.low for one in reading.words[at : at + len(parts)]] == parts:
            return set(range(at, at + len(parts)))
    return set()


def _open_column(reading: Reading, tables: list[str], at: int, name: str = "") -> Column | None:
    """The column a name may stand in: named just before it, or what people know a mentioned table's rows by."""
    near = [one for place in range(max(0, at - 2), at) for one in reading.at(place)]
    for mention in near:
        if mention.kind == "value" or mention.score < 0.5:
            continue
        if (one := mention.column) is not None and not (one.numeric or one.key or one.values):
            return one
        label = reading.table(mention.table).label
        if label is not None and not label.values:
            return label
    shape = _shape(name)
    shaped = [one for one in reading.columns() if shape and not one.dated and shape in map(_shape, one.samples)]
    labels = [label for table in reading.schema if (label := table.label) is not None and not label.values]
    mentioned = [one for one in labels if one.table in tables]
    return next(iter([*shaped, *mentioned, *labels]), None)


def _shape(text: str) -> str:
    """Codes look alike: B-104 and A-7 both read as letters, a dash, digits."""
    if not any(character.isdigit() for character in text):
        return ""
    shape = ""
    for character in text:
        kind = "9" if character.isdigit() else "A" if character.isalpha() else character
        shape += "" if shape.endswith(kind) else kind
    return shape


def years(reading: Reading) -> list[Condition]:
    """Years that are numbers in a column of their own, and so no dates: "born before 1960" is about `birth_year`."""
    named = [one for one in reading.columns() if one.numeric and stem("year") in one.stems and len(one.stems) > 1]
    known = [*named, *(one for one in reading.columns() if one.years and one.numeric and one not in named)]
    said = {_BORN.get(one.stem, one.stem): at for at, one in enumerate(reading.words)}
    for column in known:
        places = [said[part] for part in column.stems if part in said and part != stem("year")]
        for dated in [one for one in reading.dated if places and len(one.normal) == 4]:
            before = reading.text[: dated.start].split()[-1:] or [""]
            sign = _SIGNS.get(before[0].lower(), "=")
            reading.use(*places)
            reading.dated.remove(dated)
            return [Condition(f"{column.sql} {sign} {dated.normal}", column)]
    return []
