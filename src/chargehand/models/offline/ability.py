"""Whether somebody's tools could take a request as it is put: tried before a task is given to them, without a call.

That a card speaks of the matter is not enough: its tables may lack a column, its tools an argument that nobody says.
"""

from collections.abc import Sequence

from chargehand.models.offline.arguments import fill
from chargehand.models.offline.choosing import Choice, choices
from chargehand.models.offline.computing import sums
from chargehand.models.offline.kinds import asked
from chargehand.models.offline.matching import Bench, Score
from chargehand.models.offline.material import Material
from chargehand.models.offline.text_to_sql import Asked, to_sql
from chargehand.models.subject import Skill

_FREE = frozenset(
    {"sql", "statement", "query", "question", "words", "text", "prompt"}
)  # whatever is asked goes in there


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
        case "other":
            return set(fill(choice, text, Material()).missing) <= _FREE


def instead(bench: Bench, text: str, score: Score, without: str) -> Score | None:
    """Who else could, where the best cannot: somebody whose tools take it, or who has documents to search."""
    named = score.kind in asked(text) and score.kind != "data"
    if named or score.profile.spare or able(score.profile.card.skills, text):
        return None
    others = [one for one in bench.rank(text, [score.profile.name, without]) if one.serves]
    fitting = [one for one in others if one.kind not in ("draw", "write") and able(one.profile.card.skills, text)]
    better = fitting[0] if fitting else bench.finder(text, always=True)
    return better if better is not None and better.profile.name != score.profile.name else None
