"""What earlier routes teach: bounded leanings towards workers who did like requests well, and away from others.

A leaning multiplies somebody's share of belief, by no more than `FIRM` or less than its inverse: it turns what is not
clear, and never what is. Where lessons are kept is the store's business, and who writes them the runtime's.
"""

import math
from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct, structs

from chargehand.agents.routers.decision import Decision, shared
from chargehand.agents.routers.likeness import LEAST
from chargehand.stores.lessons import SOURCES, Lesson, Source

# What lessons may multiply somebody's share by. This and what follows is chosen on CLINC150's validation set.
FIRM = 10.0
MILD = 1.25  # the same, where nobody judged it: that it ended well shows little
NEAREST = 10  # lessons that count for one request, of each sort
SAME = 0.8  # likeness from which a request that seems to be nobody's is taken for one that was somebody's
_PULL = 6.0  # the logarithm of the factor that one lesson about the very same request would give
_WEIGHTS: dict[Source, float] = {"outcome": 0.15, "judge": 0.5, "eval": 1.0, "feedback": 1.0}
_LITTLE = 0.01  # a leaning that is not worth a word
_TOLD = 3


class Near(Struct, frozen=True):
    """A lesson about a request that is like the one at hand."""

    lesson: Lesson
    likeness: float

    @property
    def pull(self) -> float:
        """For the worker where it is above 0, against it below."""
        lean = _WEIGHTS[self.lesson.source] * (2 * self.lesson.score - 1)
        return _PULL * ((self.likeness - LEAST) / (1 - LEAST)) ** 2 * lean


def firm(lesson: Lesson) -> bool:
    """Whether somebody judged it."""
    return lesson.source != "outcome"


def telling(lessons: Sequence[Lesson]) -> list[Lesson]:
    """Those that count, oldest first: of each run what its best source says, of the same request what was said last."""
    best: dict[str, int] = {}
    for one in lessons:
        best[one.run] = max(best.get(one.run, 0), SOURCES.index(one.source))
    found: dict[tuple[str, str], Lesson] = {}
    for one in sorted(lessons, key=lambda each: each.number):
        key = (" ".join(one.request.lower().split()), one.worker)
        rank = SOURCES.index(one.source)
        if rank == best[one.run] and (key not in found or rank >= SOURCES.index(found[key].source)):
            found[key] = one
    return sorted(found.values(), key=lambda each: each.number)


def leanings(near: Sequence[Near]) -> dict[str, float]:
    """The logarithm of the factor for each worker that lessons tell of, within the bounds."""
    judged: dict[str, float] = {}
    ended: dict[str, float] = {}
    for one in near:
        sums = judged if firm(one.lesson) else ended
        sums[one.lesson.worker] = sums.get(one.lesson.worker, 0.0) + one.pull
    names = dict.fromkeys((*judged, *ended))
    return {name: _within(judged.get(name, 0.0) + _within(ended.get(name, 0.0), MILD), FIRM) for name in names}


def _within(lean: float, most: float) -> float:
    return max(-math.log(most), min(math.log(most), lean))


def learnt(found: Decision, near: Sequence[Near], names: Collection[str]) -> Decision:
    """The decision with what lessons make of it; the same one where they say nothing. `names` come into question."""
    if found.router == "rules" or not near:
        return found
    leans = {name: lean for name, lean in leanings(near).items() if name in names and abs(lean) > _LITTLE}
    if found.worker is None:
        return _taken_in(found, near, leans)
    if not any(name in leans for name, _ in found.scores):
        return found
    scores = shared({name: share * math.exp(leans.get(name, 0.0)) for name, share in found.scores})
    first = scores[0][0]
    second = scores[1][0] if len(scores) > 1 else found.second
    why = f"{found.why}; {_told(near, leans, dict(found.scores))}"
    if first != found.worker:
        why += f", so {first} instead of {found.worker}"
    return structs.replace(
        found, worker=first, second=second, scores=scores, why=why, confidence=_sure(found, first, leans)
    )


def _sure(found: Decision, first: str, leans: Mapping[str, float]) -> float:
    """How likely the first is right now. What the router believed is weighed anew, nobody's part included."""
    shares = dict(found.scores)
    whole = shares.get(found.worker or "", 0.0)
    others = (1 - found.confidence) / (1 - whole) if whole < 1 else 0.0
    belief = {name: found.confidence if name == found.worker else others * share for name, share in shares.items()}
    nobody = max(0.0, 1 - sum(belief.values()))
    weighed = {name: part * math.exp(leans.get(name, 0.0)) for name, part in belief.items()}
    total = sum(weighed.values()) + nobody
    return round(weighed[first] / total, 4) if total > 0 else found.confidence


def _taken_in(found: Decision, near: Sequence[Near], leans: Mapping[str, float]) -> Decision:
    """A request that seemed to be nobody's goes to whoever did the same well: somebody judged that it was theirs."""
    same = [one.lesson.worker for one in near if one.likeness >= SAME and firm(one.lesson) and one.pull > 0]
    able = [name for name in dict.fromkeys(same) if leans.get(name, 0.0) > 0]
    if not able:
        return found
    worker = max(able, key=lambda name: leans[name])
    sure = round(1 / (1 + math.exp(-leans[worker])), 4)
    why = f"{found.why}; but {_told(near, leans, {worker: 1.0})}, so {worker} gets it"
    return structs.replace(found, worker=worker, confidence=sure, scores=((worker, sure),), why=why)


def _told(near: Sequence[Near], leans: Mapping[str, float], shares: Mapping[str, float]) -> str:
    ranked = sorted((name for name in leans if name in shares), key=lambda name: -abs(leans[name]))
    parts = [f"{name} {math.exp(leans[name]):.2f} times as likely" for name in ranked[:_TOLD]]
    count = sum(one.lesson.worker in ranked for one in near)
    return f"learnt from {count} like request{'s' if count != 1 else ''}: {', '.join(parts)}"
