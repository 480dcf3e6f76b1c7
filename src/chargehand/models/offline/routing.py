"""Who should do a request, by rules: whoever fits most of its parts. What is done about it is not decided here."""

import msgspec

from chargehand.models.offline.clauses import split
from chargehand.models.offline.matching import Bench, Embedder
from chargehand.models.offline.words import terms
from chargehand.models.subject import Routing, Skill, WorkerCard

_SCHEMA = msgspec.Raw(b'{"type":"object","properties":{}}')


def choose(subject: Routing, embedder: Embedder | None = None) -> str:
    """JSON with `primary`, `secondary` (or null), `reason` and `confidence`."""
    bench = Bench([_with_phrases(card) for card in subject.workers], embedder)
    parts = _parts(subject.goal)
    totals: dict[str, float] = {}
    for part in parts:
        for score in bench.rank(part):
            if score.serves:
                name = score.profile.name
                totals[name] = totals.get(name, 0.0) + score.total
    if not totals:
        spare = next((one for part in parts if (one := bench.best(part)) is not None), None)
        if spare is None:
            return _reply(None, None, "nobody's description has the words of the request", 0.0)
        return _reply(spare.profile.name, None, "it takes what nobody else is meant for", 0.6)
    ranked = sorted(totals.items(), key=lambda one: -round(one[1], 6))
    (first, best), *rest = ranked
    second = rest[0] if rest else None
    margin = 1.0 if second is None else (best - second[1]) / best
    return _reply(first, second[0] if second else None, _reason(first, subject), 0.5 + 0.5 * margin)


def _with_phrases(card: WorkerCard) -> WorkerCard:
    """Phrases and examples count as what a tool says of itself."""
    if not card.phrases and not card.examples:
        return card
    said = [Skill(one, one, _SCHEMA) for one in card.phrases]
    said += [Skill("was asked", one, _SCHEMA) for one in card.examples[:50]]
    return msgspec.structs.replace(card, skills=(*card.skills, *said))


def _parts(goal: str) -> list[str]:
    found = list(dict.fromkeys(" ".join(f"{one.text} {one.scope}".split()) for one in split(goal)))
    return found or [goal]


def _reason(name: str, subject: Routing) -> str:
    card = next(one for one in subject.workers if one.name == name)
    own = set(terms(" ".join((card.name, card.description, *card.tags, *card.phrases, *card.examples[:50]))))
    common = [one for one in dict.fromkeys(terms(subject.goal)) if one in own][:6]
    return f"{name} speaks of: {', '.join(common)}" if common else f"what is asked is the kind of work {name} does"


def _reply(first: str | None, second: str | None, reason: str, confidence: float) -> str:
    found = {"reason": reason[:300], "primary": first, "secondary": second, "confidence": round(confidence, 2)}
    return msgspec.json.encode(found).decode()
