"""Who is meant by the name of a column elsewhere: rivals are those products that stand as a rival in the deals.

Tables that are tied by a key need none of this; `joins` brings them together.
"""

from msgspec import structs

from chargehand.models.offline.question.conditions import Condition
from chargehand.models.offline.question.joins import reaches
from chargehand.models.offline.question.reading import Reading
from chargehand.models.offline.schema_text import Column, literal


def namesakes(reading: Reading) -> list[Condition]:
    """A test for the values of a column that the question names and whose table has nothing of what it measures.

    From then on the word means the column of the same values in the table that has it.
    """
    home = _home(reading)
    for at, mention in enumerate(reading.mentions):
        far = mention.column
        if (
            mention.kind != "column"
            or far is None
            or mention.score < 1
            or not home
            or reaches(reading, home, far.table)
        ):
            continue
        near = _same(reading, home, far)
        if near is not None and not any(other.table == home for other in reading.at(mention.begin)):
            reading.mentions[at] = structs.replace(mention, table=home, column=near)
            reading.ordered.clear()
            reading.index()
            return [_among(near, far, {one.value for one in reading.mentions if one.kind == "value"})]
    return []


def _home(reading: Reading) -> str:
    """The table of the number that is named; nothing where several have one."""
    known = [one for one in reading.mentions if one.kind == "column" and one.column and one.column.numeric]
    sure = max((one.score for one in known), default=0.0)
    tables = {one.table for one in known if one.score == sure}
    told = {one.table for one in reading.mentions if one.kind == "table" and one.score >= 1}
    return next(iter(tables)) if len(tables) == 1 and told <= tables else ""


def _same(reading: Reading, home: str, far: Column) -> Column | None:
    held = set(far.values)
    fitting = [one for one in reading.table(home).columns if held and held < set(one.values)]
    return fitting[0] if len(fitting) == 1 else None


def _among(near: Column, far: Column, said: set[str]) -> Condition:
    """Those only; nothing is named in words where one of them is."""
    listed = ", ".join(literal(one) for one in far.values)
    about = () if said & set(far.values) else (f"{far.name.replace('_', ' ')}s only",)
    return Condition(f"{near.sql} IN ({listed})", near, about)
