"""The last look at a plan: words of the request that no task, and nothing that was refused, speaks of.

Whether a worker takes account of its own task is checked where it works.
"""

from collections.abc import Iterable, Sequence

from chargehand.models.offline.clauses import LONGEST, Clause
from chargehand.models.offline.matching import content
from chargehand.models.offline.words import related, stem, tokens

_MOST = 5
_HEAD = 60  # characters


def unspoken(clauses: Iterable[Clause], told: Sequence[str]) -> list[str]:
    """The clauses of which something was lost, each with the words that were. `told` is all that the plan says."""
    plan = " ".join(told)
    known = set(content(plan)) | {stem(word) for word in tokens(plan)}
    found: list[str] = []
    for clause in clauses:
        said = clause.text.rstrip("?. ")
        if len(clause.text) >= LONGEST:
            found.append(f"What follows {clause.text[-_HEAD:]!r}: only {LONGEST:,} characters of a sentence are read.")
        if any(said[:_HEAD].lower() in one.lower() for one in told if len(said) > _HEAD):
            continue  # it stands there as it was put, perhaps shortened
        lost = [one for one in content(clause.text) if not any(related(one, other) >= 0.6 for other in known)]
        words = [word for word in dict.fromkeys(tokens(clause.text)) if stem(word) in lost]
        if words:
            found.append(f"{said[:200]}: no task speaks of {' and '.join(words[:_MOST])}.")
    return found
