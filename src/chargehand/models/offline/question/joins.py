"""Which joins bring some tables together, along the links a schema shows."""

from collections.abc import Collection, Sequence

from msgspec import Struct

from chargehand.models.offline.question.reading import Reading
from chargehand.models.offline.schema_text import Link, identifier


class Joined(Struct, frozen=True):
    """`fans`: a row of the first table may occur several times. `tables` are all that are in it."""

    clause: str
    fans: bool
    tables: tuple[str, ...]


def join(reading: Reading, tables: Sequence[str], left: Collection[str] = ()) -> Joined | None:
    """A FROM clause with all these tables, the first one first; None where no link leads to one of them.

    Those in `left` are joined so that rows without a partner stay.
    """
    root = tables[0]
    inside = [root]
    clause, fans = identifier(root), False
    for table in tables[1:]:
        steps = _path(reading.links, inside, table)
        if steps is None:
            return None
        for link, target in steps:
            kind = "LEFT JOIN" if target in left else "JOIN"
            clause += f" {kind} {identifier(target)} ON {link.many.sql} = {link.one.sql}"
            fans = fans or link.many.table == target
            inside.append(target)
    return Joined(clause, fans, tuple(inside))


def _path(known: Sequence[Link], inside: Sequence[str], to: str) -> list[tuple[Link, str]] | None:
    """The shortest chain of links from what is joined already to a table, with the table each one adds."""
    if to in inside:
        return []
    came: dict[str, tuple[Link, str]] = {}
    line = list(inside)
    for here in line:  # grows while it is walked
        for link in known:
            for one, other in ((link.many.table, link.one.table), (link.one.table, link.many.table)):
                if one == here and other not in line:
                    came[other] = (link, here)
                    line.append(other)
    if to not in came:
        return None
    steps: list[tuple[Link, str]] = []
    while to in came and to not in inside:
        link, before = came[to]
        steps.append((link, to))
        to = before
    return steps[::-1]


def reaches(reading: Reading, root: str, table: str) -> bool:
    return root == table or _path(reading.links, [root], table) is not None
