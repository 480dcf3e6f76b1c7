"""What a clause leaves to the clauses before it: of whom or what it speaks, where they name it, and a bare "why".

Pronouns are the business of `references`; a period or place that is said once, that of `spelling`.
"""

from collections.abc import Sequence

from msgspec import structs

from chargehand.models.offline.ability import able
from chargehand.models.offline.choosing import Choice, choices, fit
from chargehand.models.offline.clauses import Clause
from chargehand.models.offline.matching import Bench, Score
from chargehand.models.offline.text_to_sql import Asked, to_sql
from chargehand.models.offline.vocabulary import VERBS
from chargehand.models.offline.words import names, tokens
from chargehand.models.subject import WorkerCard

_REASONS = frozenset({"why", "reason", "reasons", "because", "cause", "causes"})
_EACH = frozenset({"all", "every", "each", "per", "by", "any"})
_POINTING = frozenset({"it", "its", "them", "their", "that", "this", "these"})


def inherited(clauses: Sequence[Clause], bench: Bench) -> list[Clause]:
    """The clauses, each with whom or what the request named before, where that is missing to do it.

    A bare "why" is left out where whoever answers before says why of their own accord.
    """
    found: list[Clause] = []
    tools = [one for held in bench.profiles for one in choices(held.card.skills)]
    last, sentence = "", -1
    for clause in clauses:
        if named := names(clause.text) or _listed(clause.text, tools):
            last, sentence = (named[0] if len(named) == 1 else ""), clause.sentence
        elif last and not clause.scope and _lacks(clause, last, bench, same=clause.sentence == sentence):
            clause = structs.replace(clause, scope=f"for {last}")  # noqa: PLW2901 - the same clause, said in full
        if found and tokens(clause.text) == ["why"]:
            before, whole = bench.best(found[-1].text), f"Why: {found[-1].text}"
            if _explains(before, found[-1].text):
                continue
            other = bench.best(whole)
            if other is not None and before is not None and other.profile.name != before.profile.name:
                clause = structs.replace(clause, text=whole)  # noqa: PLW2901 - as above
        found.append(clause)
    return found


def _listed(text: str, tools: Sequence[Choice]) -> list[str]:
    """The values that some tool takes, as far as the text says them in full."""
    plain = f" {' '.join(tokens(text))} "
    values = {value for tool in tools for one in tool.parameters if one.required for value in one.enum}
    return [value for value in sorted(values) if f" {' '.join(tokens(value))} " in plain]


def _lacks(clause: Clause, name: str, bench: Bench, *, same: bool) -> bool:
    """Whether nobody's tools can take a clause as it is and somebody's can with the name.

    What is ordered in one sentence ("Look into Ash, and list the materials") is all of it, also where rows could be
    had of everything.
    """
    text = clause.text
    serving = [one for one in bench.rank(text) if one.serves and one.kind not in ("draw", "write")]
    if not serving or _EACH & set(tokens(text)):
        return False
    if able(serving[0].profile.card.skills, text):
        return same and _narrows(serving[0].profile.card, text, name)
    cards = [one.profile.card for one in serving if one.kind not in ("documents", "data")]
    return any(not able(card.skills, text) and able(card.skills, f"{text} for {name}") for card in cards)


def _narrows(card: WorkerCard, text: str, name: str) -> bool:
    """Whether a query for what is ordered would be limited to the name."""
    said = tokens(text)
    if not said or said[0] not in VERBS or _POINTING & set(said):
        return False
    for tool in choices(card.skills):
        asked = to_sql(f"{text} for {name}", tool.tables) if tool.role == "query" else None
        if isinstance(asked, Asked) and name in asked.about:
            return True
    return False


def _explains(score: Score | None, text: str) -> bool:
    """Whether the tool that fits a clause best says of itself that it gives reasons."""
    tools = choices(score.profile.card.skills) if score is not None else ()
    best = max(tools, key=lambda one: fit(one, text), default=None)
    return best is not None and bool(_REASONS & set(tokens(best.description)))
