"""A list of names of which some are unknown: what is asked of the others is done, and that of those is told apart.

How such a list is read and put together anew is the business of `listed`.
"""

import re
from collections.abc import Sequence
from difflib import get_close_matches

from msgspec import structs

from chargehand.models.offline.ability import able
from chargehand.models.offline.clauses import Clause
from chargehand.models.offline.listed import listed, only, without
from chargehand.models.offline.matching import Bench
from chargehand.models.offline.material import Outcome

_BESIDE = re.compile(r"\s*\([^()]*\)")
_NEAR = 0.75
_FAILED = " failed: "


def known_apart(clauses: Sequence[Clause], bench: Bench) -> list[Clause]:
    """The clauses; one whose list holds names that the tools of the best cannot take is two, those apart."""
    found: list[Clause] = []
    for clause in clauses:
        strange = _strange(clause, bench)
        kept = without(clause.text, strange) if strange else ""
        split = [structs.replace(clause, text=one) for one in (kept, only(clause.text, strange))] if kept else [clause]
        found += split
    return found


def _strange(clause: Clause, bench: Bench) -> list[str]:
    items = listed(clause.text)
    best = bench.best(clause.text) if len(items) > 1 else None
    if best is None or best.profile.spare:
        return []
    skills, scope = best.profile.card.skills, clause.scope
    if able(skills, f"{clause.text} {scope}".strip()):
        return []
    strange = [one for one in items if not able(skills, f"{only(clause.text, [one])} {scope}".strip())]
    rest = without(clause.text, strange)
    return strange if strange and rest and able(skills, f"{rest} {scope}".strip()) else []


def unknown(text: str, reason: str, past: Sequence[Outcome]) -> list[str]:
    """The names of a list because of which a task was given up: some of them, but not all.

    One that is like another that the error names is left to whoever puts the task better.
    """
    items = listed(text)
    failed = [one for one in past if one.error]
    if _FAILED in reason:
        gone = [item for item in items if any(_refused(item, one) for one in failed)]
    else:
        told = _BESIDE.sub("", reason.rpartition(": ")[2])
        gone = [item for item in items if _word(item, told)]
    return gone if len(gone) < len(items) else []


def _refused(item: str, one: Outcome) -> bool:
    if not _word(item, one.call.arguments) or not _word(item, one.error) or "did you mean" in one.error:
        return False
    others = [word for word in re.findall(r"[\w-]+", one.error) if word != item]
    return not get_close_matches(item, others, 1, _NEAR)


def _word(item: str, text: str) -> bool:
    return re.search(rf"(?<![\w-]){re.escape(item)}(?![\w-])", text) is not None
