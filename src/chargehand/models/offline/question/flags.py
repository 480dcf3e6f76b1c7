"""Columns of yes and no, which say of a row whether something is so. Other values are in `conditions`."""

from chargehand.models.offline.question.conditions import Condition, left_out
from chargehand.models.offline.question.reading import Reading
from chargehand.models.offline.schema_text import Column, literal
from chargehand.models.offline.words import stem

_ANSWERS = (("yes", "no"), ("true", "false"), ("y", "n"))
_IS = frozenset({"is", "are", "was", "were", "been", "that", "who", "which"})
_PRICES = frozenset(map(stem, ("price", "cost", "fee", "fare")))
_BEFORE = 3  # words before such a column in which a verb makes it a condition


def flags(reading: Reading) -> list[Condition]:
    """Columns of yes and no that say of what is asked for whether it is so: "invoices that were paid late"."""
    found: list[Condition] = []
    opens = bool(reading.words) and reading.words[0].low in {"how", "which", "who"}
    for mention in reading.mentions:
        column, places = mention.column, set(range(mention.begin, mention.end))
        if mention.kind != "column" or column is None or mention.score < 1 or places & reading.used:
            continue
        said = {one.lower(): one for one in column.values}
        answers = next((pair for pair in _ANSWERS if said.keys() == set(pair)), None)
        led = opens or bool({one.low for one in reading.words[max(0, mention.begin - _BEFORE) : mention.begin]} & _IS)
        if answers is None or not led:
            continue
        value = said[answers[left_out(reading, mention.begin)]]
        reading.use(*places)
        found.append(Condition(f"{column.sql} = {literal(value)}", column, (f"{_spoken(column)} {value}",)))
    return found or _free(reading)


def _free(reading: Reading) -> list[Condition]:
    """What is free costs nothing, where the only price there is stands in a table that is named."""
    at = reading.place({"free", "nothing"})
    if at > 0 and reading.words[at].low == "nothing" and reading.words[at - 1].low not in {"cost", "costs", "costing"}:
        return []
    after = reading.words[at + 1].low if 0 <= at < len(reading.words) - 1 else ""
    tables = {one.table for one in reading.mentions if one.kind == "table" and one.score >= 1}
    prices = [one for one in reading.columns() if one.numeric and one.table in tables and _PRICES & set(one.stems)]
    if at < 0 or at in reading.used or reading.at(at) or after in {"of", "from", "for"} or len(prices) != 1:
        return []
    reading.use(at, *((at - 1,) if reading.words[at].low == "nothing" else ()))
    return [Condition(f"{prices[0].sql} = 0", prices[0], (f"{_spoken(prices[0])} 0",))]


def _spoken(column: Column) -> str:
    return column.name.replace("_", " ")
