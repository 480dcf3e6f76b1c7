"""Instructions that stand by themselves: what pronouns mean, and what was said once for several clauses, spelled out.

Which task a pronoun means has been decided by then.
"""

import re
from collections.abc import Mapping, Sequence

from chargehand.models.offline.bearers import bearer_of
from chargehand.models.offline.clauses import Clause
from chargehand.models.offline.drafts import Draft, Proposed
from chargehand.models.offline.references import Pointer, owner_of, subject_of, when, where
from chargehand.models.offline.vocabulary import PAST
from chargehand.models.offline.words import dates

_PRESENT = re.compile(r"\b(?:is|are|do|does|have|has|can|may|must|should)\b", re.IGNORECASE)
_TOLD_APART = re.compile(r"\b(?:per|by|(?:in|of|for|from) each)\s+\w+", re.IGNORECASE)
_THEIRS = re.compile(
    r"\btheir\s+\(from t\d+: (?:[^()]*?)\b(?:per|(?:in|of|for|from) each)\s+(?P<group>\w+)[^()]*\)", re.IGNORECASE
)
_PAST = re.compile(rf"\b(?:did|was|were|had|{'|'.join(sorted(PAST))}|\w{{3,}}ed)\b", re.IGNORECASE)


def spelled(proposed: Proposed, text: str, found: Sequence[Pointer], after: Sequence[str]) -> str:
    """The clause with what its pronouns stand for in their place; `after` names the task each points at."""
    for pointer, name in reversed(list(zip(found, after, strict=True))):
        about = re.sub(r"\s*\([^()]*\)", "", proposed.draft(name).about)
        rest = text[pointer.end :]
        if pointer.text.lower() == "there":
            place = where(about)
            same_time = place and not dates(text) and when(about) not in place
            stands = f"{place} {when(about)}".strip() if same_time else place or pointer.text
        elif pointer.owns and (owner := owner_of(about)):
            stands = f"the {pointer.noun} of {owner} (the result of {name})"
            text = text[: pointer.start] + stands + rest[1 + len(pointer.noun) :]
            continue
        elif phrase := bearer_of(about, pointer) or subject_of(about, many=pointer.many):
            stands = f"{phrase} (the result of {name})"
        else:
            stands = f"{pointer.text} (from {name}: {about.rstrip('?.')})"
        if pointer.owns and stands.startswith("the "):
            stands, rest = f"the {pointer.noun} of {stands}", rest[1 + len(pointer.noun) :]
        text = text[: pointer.start] + stands + rest
    return text


def narrow(proposed: Proposed, draft: Draft, clause: Clause, clauses: Mapping[str, Clause]) -> None:
    """Say with a task what was said once for all: the scope, conditions, the period of the clause before."""
    if clause.scope and clause.scope.partition(" ")[2].lower() not in draft.about.lower():
        draft.about = f"{draft.about.rstrip('?')} {clause.scope[0].lower()}{clause.scope[1:]}"
    draft.about = _with_year(_for_each(draft.about, draft.kind), proposed.goal)
    if clause.given:
        draft.notes.append(f"Given: {clause.given}")
    draft.notes += clause.limits
    if not draft.after and draft.kind not in ("documents", "fetch"):
        _carry(proposed, draft, clause, clauses)


def _for_each(about: str, kind: str) -> str:
    """What is asked of "them" is asked for each, where they were told apart before: "in each country"."""
    found = _THEIRS.search(about) if kind == "data" else None
    if found is None or _TOLD_APART.search(about[: found.start()] + about[found.end() :]):
        return about
    end = "?" if about.rstrip().endswith("?") else ""
    return f"{about.rstrip('?. ')} per {found['group']}{end}"


def _with_year(about: str, goal: str) -> str:
    """A month or quarter without a year is that of the only year which the request names."""
    years = {dated.normal[:4] for dated in dates(goal) if dated.normal[0] != "-"}
    for dated in reversed(dates(about)) if len(years) == 1 else ():
        if re.search(r"\b(?:19|20)\d\d\b", dated.text) is None and re.search(r"[A-Za-z]", dated.text):
            about = f"{about[: dated.end]} {next(iter(years))}{about[dated.end :]}"
    return about


def _carry(proposed: Proposed, draft: Draft, clause: Clause, clauses: Mapping[str, Clause]) -> None:
    """Period and place of the last clause that the same worker has, where this clause names none.

    A question for what is so in general, or now, is not of that time.
    """
    if _PRESENT.search(clause.text) and not _PAST.search(clause.text):
        return
    for other in reversed(proposed.drafts[: proposed.drafts.index(draft)]):
        if other.worker != draft.worker or clauses[other.id].text == clause.text:
            continue
        period = when(other.about) if not dates(draft.about) else ""
        place = where(other.about) if clauses[other.id].sentence == clause.sentence else ""
        if place and (place in draft.about or where(draft.about) or place == period):
            place = ""
        added = " ".join(part for part in (place, period if period not in place else "") if part)
        if added:
            proposed.assumptions.append(f"{clause.text.rstrip('?.')!r} is taken to mean {added}, as before.")
            draft.about = f"{draft.about.rstrip('?. ')} {added}"
        return
