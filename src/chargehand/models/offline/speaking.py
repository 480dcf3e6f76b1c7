"""Who speaks next in a talk, by rules: whoever fits the request and has not spoken. What is said is not read."""

import msgspec

from chargehand.models.offline.clauses import split
from chargehand.models.offline.matching import Bench, Embedder
from chargehand.models.subject import Speaking


def speak(subject: Speaking, embedder: Embedder | None = None) -> str:
    """JSON with `next` (null: everybody who fits has spoken) and `why`."""
    bench = Bench(subject.workers, embedder)
    spoken = {one.worker for one in subject.said} | {subject.last}
    for part in _parts(subject.goal):
        best = bench.best(part)
        if best is not None and best.profile.name not in spoken:
            return _reply(best.profile.name, f"fits best: {part}")
    left = [one for one in bench.rank(subject.goal, spoken) if one.serves]
    if left:
        return _reply(left[0].profile.name, "fits the request and has not spoken yet")
    return _reply(None, "everybody who fits the request has spoken" if subject.said else "nobody fits the request")


def _parts(goal: str) -> list[str]:
    """What is asked for, in order. Who fits a part of it may not fit the whole."""
    return list(dict.fromkeys(" ".join(f"{one.text} {one.scope}".split()) for one in split(goal)))


def _reply(name: str | None, why: str) -> str:
    return msgspec.json.encode({"next": name, "why": why[:200]}).decode()
