"""Which of several results holds, by rules: the one that speaks most to the request, or the one with more behind it."""

from collections.abc import Sequence

import msgspec
from msgspec import structs

from chargehand.models.exhibits import Chart, Exhibit, Figure, Passages, Table
from chargehand.models.offline.closing import Part
from chargehand.models.offline.showing import product
from chargehand.models.offline.words import similarity, terms
from chargehand.models.subject import Judging


def judge(subject: Judging) -> str:
    """The ruling as JSON text."""
    parts = [Part(given, product(given.value)) for given in subject.results]
    if not parts:
        return _ruled(why="There is nothing to judge.", winner=None)
    return _backed(parts) if subject.manner == "contradiction" else _chosen(subject, parts)


def _chosen(subject: Judging, parts: Sequence[Part]) -> str:
    wanted = list(dict.fromkeys(terms(subject.goal)))
    scored = [(similarity(wanted, terms(_said(part))), part) for part in parts]
    best, chosen = max(scored, key=lambda one: one[0])
    ahead = "more than" if all(score < best for score, part in scored if part is not chosen) else "no less than"
    why = f"It speaks to {best:.0%} of what was asked, {ahead} the others."
    if subject.manner == "select":
        return _ruled(why=why, winner=chosen.task)
    return _ruled(why=why, agree=[part.task for part in parts if _same(part, chosen)], winner=chosen.task)


def _said(part: Part) -> str:
    """What a result says, without what was asked for to get it: everybody was asked the same."""
    if part.product.text:
        return part.product.text
    plain = [
        structs.replace(one, query="") if isinstance(one, Passages | Table) else one for one in part.product.exhibits
    ]
    return structs.replace(part, product=structs.replace(part.product, exhibits=tuple(plain))).words


def _same(one: Part, other: Part) -> bool:
    return " ".join(one.words.casefold().split()) == " ".join(other.words.casefold().split())


def _backed(parts: Sequence[Part]) -> str:
    """What was worked out or looked up outweighs what was only said; else nobody can tell."""
    scored = [(_weight(part), part) for part in parts]
    best, chosen = max(scored, key=lambda one: one[0])
    if sum(weight == best for weight, _ in scored) > 1:
        why = "The results have the same behind them, so which of them holds cannot be told from them."
        return _ruled(why=why, ruling="open", winner=None)
    shown = {3: "how it was worked out", 2: "the table it was read from", 1: "the source it comes from"}[best]
    return _ruled(why=f"It shows {shown}.", ruling=f"[{chosen.task}] holds", winner=chosen.task)


def _weight(part: Part) -> int:
    return max([*(_worth(one) for one in part.product.exhibits), int(bool(part.product.sources))], default=0)


def _worth(exhibit: Exhibit) -> int:
    match exhibit:
        case Figure():
            return 3 if exhibit.expression else int(bool(exhibit.source))
        case Table():
            return 2
        case Passages():
            return int(bool(exhibit.found))
        case Chart():
            return 0


def _ruled(**fields: object) -> str:
    return msgspec.json.encode(fields).decode()
