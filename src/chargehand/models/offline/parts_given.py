"""Which row of a table that a task was given makes up the biggest or smallest part: it stands there, once looked at.

Only tables that say the parts themselves are read. What has to be worked out or looked up is not known here.
"""

import re
from decimal import Decimal

from chargehand.models.exhibits import Table
from chargehand.models.offline.material import Material, number
from chargehand.models.offline.showing import amount
from chargehand.models.offline.vocabulary import PREPOSITIONS, RELATIVE
from chargehand.models.offline.words import related, stem, terms, tokens

_ASKED = re.compile(
    r"(?:find out |report |say )?(?:which|what)\s+(?P<noun>\w+(?:\s+\w+)?)\s+"
    r"(?:makes?\s+up|is|are|has|have|holds?|accounts?\s+for|takes?(?:\s+up)?|forms?)\s+the\s+"
    r"(?P<how>biggest|largest|greatest|highest|smallest|lowest)\s+(?:part|share|portion|proportion|weight|percentage)"
    r"\s+of\s+(?P<whole>[^().?!]+?)\s*\(the result of t\d+\)\s*(?:[?.]|\Z)",
    re.IGNORECASE,
)
_SMALL = frozenset({"smallest", "lowest"})
_PARTS = frozenset(map(stem, ("share", "part", "portion", "proportion", "weight")))
_WITHIN = (PREPOSITIONS | RELATIVE) - {"of", "for"}
_SAME = 0.8


def biggest_part(instruction: str, given: Material) -> str:
    """The rows that have it, and their share, in a sentence; empty where that is not asked, or no table says it."""
    found = _ASKED.match(instruction.strip())
    if found is None or len(given.tables) != 1:
        return ""
    table, how = given.tables[0], found["how"].lower()
    label, share = _named(table, found["noun"]), _shares(table)
    if label < 0 or share < 0 or table.more or len(table.rows) < 2 or _of_some(found["whole"], table):
        return ""
    values = [number(row[share]) for row in table.rows]
    if not all(values):
        return ""
    best = (min if how in _SMALL else max)(map(Decimal, values))
    rows = [str(row[label]) for row, value in zip(table.rows, values, strict=True) if Decimal(value) == best]
    shown = amount(next(value for value in values if Decimal(value) == best))
    return f"The {how} {table.columns[share].replace('_', ' ')}: {' and '.join(rows)} with {shown}."


def _of_some(whole: str, table: Table) -> bool:
    """Whether the whole is only some of the rows, such as the biggest of the bonds: their shares are of another."""
    said = tokens(whole)
    cells = {stem(word) for row in table.rows for cell in row if isinstance(cell, str) for word in tokens(cell)}
    return any(word in _WITHIN or stem(word) in cells for word in said)


def _named(table: Table, noun: str) -> int:
    """The place of the column that names what is asked for; -1 where it is not the first text of the rows."""
    texts = [at for at in range(len(table.columns)) if all(isinstance(row[at], str) for row in table.rows)]
    theirs = terms(table.columns[texts[0]]) if texts else []
    alike = [any(related(one, other) >= _SAME for one in theirs) for other in terms(noun)]
    return texts[0] if texts and alike and all(alike) else -1


def _shares(table: Table) -> int:
    """The place of the only column that says how big a part each row is; -1 where there is none, or are several."""
    found = [at for at, name in enumerate(table.columns) if _PARTS & set(map(stem, tokens(name.replace("_", " "))))]
    return found[0] if len(found) == 1 else -1
