"""Whether somebody's tools could take a request as it is put: tried before a task is given to them, without a call.

That a card speaks of the matter is not enough: its tables may lack a column, its tools an argument that nobody says.
"""

import re
from collections.abc import Sequence

from msgspec import structs

from chargehand.models.offline.accounted import own_words, strange
from chargehand.models.offline.arguments import fill
from chargehand.models.offline.choosing import Choice, choices
from chargehand.models.offline.computing import sums
from chargehand.models.offline.drafts import Draft
from chargehand.models.offline.kinds import asked
from chargehand.models.offline.matching import Bench, Score, content
from chargehand.models.offline.material import Material
from chargehand.models.offline.references import Pointer, parts
from chargehand.models.offline.text_to_sql import Asked, to_sql
from chargehand.models.offline.vocabulary import ASKING, AUXILIARY, RELATIVE
from chargehand.models.offline.words import related, terms
from chargehand.models.subject import Skill

_FREE = frozenset(
    {"sql", "statement", "query", "question", "words", "text", "prompt"}
)  # whatever is asked goes in there
_RESULT = re.compile(r"\s*\(the result of t\d+\)")
_MADE = frozenset({"plan", "schedule", "calculate", "compute", "estimate", "generate", "forecast", "predict"})


def able(skills: Sequence[Skill], text: str) -> bool:
    """Whether one of the tools can be called with what the text says; true where there are none."""
    return not skills or any(_takes(one, text) for one in choices(skills))


def _takes(choice: Choice, text: str) -> bool:
    match choice.role:
        case "query":
            return not choice.tables or isinstance(to_sql(text, choice.tables), Asked)
        case "search" | "draw":
            return True
        case "code":
            return False
        case "compute":
            return bool(sums(text, Material(), rounds=False))
        case "other" if not choice.parameters:
            known = set(terms(f"{choice.name} {choice.description}"))
            about = content(text)
            return 2 * sum(any(related(one, other) >= 0.6 for other in known) for one in about) >= len(about)
        case "other":
            closed = all(one.enum or one.type in {"integer", "number", "boolean"} for one in choice.parameters)
            if closed and _asks(text) and strange(text, own_words(choice)):
                return False  # it takes nothing that these words could go into
            return set(fill(choice, text, Material()).missing) <= _FREE


def _asks(text: str) -> bool:
    return text.partition(" ")[0].lower() in ASKING | RELATIVE | AUXILIARY


def instead(bench: Bench, text: str, score: Score, without: str) -> Score | None:
    """Who else could, where the best cannot: somebody whose tools take it, or who has documents to search."""
    named = score.kind in asked(text) and score.kind != "data"
    if named or score.profile.spare or able(score.profile.card.skills, text):
        return None
    others = [one for one in bench.rank(text, [score.profile.name, without]) if one.serves]
    fitting = [one for one in others if one.kind not in ("draw", "write") and able(one.profile.card.skills, text)]
    if text.partition(" ")[0].lower() in _MADE:  # what is to be made stands in no document: say what is missing
        return next((one for one in fitting if one.kind != "documents"), None)
    better = fitting[0] if fitting else bench.finder(text, always=True)
    return better if better is not None and better.profile.name != score.profile.name else None


def of_rows(bench: Bench, text: str, found: Sequence[Pointer], before: Sequence[Draft], score: Score) -> Score:
    """Who found the rows that "they" are, where the same rows say this too; else who was thought of."""
    pairs = [one for pointer, one in zip(found, before, strict=True) if pointer.many and one.kind == "data"]
    if score.kind != "documents" or len(pairs) != 1 or len(before) != 1:
        return score
    profile = next(one for one in bench.profiles if one.name == pairs[0].worker)
    for tool in choices(profile.card.skills):
        first = to_sql(pairs[0].about, tool.tables) if tool.role == "query" else None
        more = to_sql(_RESULT.sub("", text), tool.tables) if isinstance(first, Asked) else None
        if isinstance(first, Asked) and isinstance(more, Asked) and not more.overlooked and _which(first) in more.sql:
            return structs.replace(score, profile=profile, kind="data")
    return score


def _which(query: Asked) -> str:
    """The test by which rows were found, as it stands in the query; where there is none, all of the query."""
    test = query.sql.partition(" WHERE ")[2]
    return re.split(r" (?:GROUP BY|ORDER BY|LIMIT) ", test)[0] or query.sql


def put_together(text: str, found: Sequence[object], score: Score | None) -> bool:
    """Whether prose is wanted that rests on several results: not where one tool takes all that is to be compared."""
    sure = asked(text).get("write", 0)
    if sure >= 0.9 or sure < 0.5 or found or score is None:
        return sure >= 0.5
    return not any(one.role == "other" and _takes(one, text) for one in choices(score.profile.card.skills))


def apart(bench: Bench, phrase: str, kind: str) -> list[str]:
    """The things a phrase joins; none where one query brings all of them."""
    best = bench.best(phrase)
    whole = best is not None and any(
        one.role == "query" and _takes(one, phrase) for one in choices(best.profile.card.skills)
    )
    return [] if whole and kind != "calculate" else parts(phrase, kind)
