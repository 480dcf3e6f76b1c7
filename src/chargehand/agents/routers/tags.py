"""Routing by tags: the words of a request that are tags of somebody. A tag that few have tells more."""

from collections import Counter
from collections.abc import Sequence

from chargehand.agents.routers.decision import Decision, nobody, shared
from chargehand.models.subject import WorkerCard
from chargehand.text.words import stem, tokenize


def by_tags(text: str, cards: Sequence[WorkerCard]) -> Decision:
    said = f" {' '.join(_stems(text))} "
    held = {card.name: {tag: f" {' '.join(_stems(tag))} " for tag in card.tags} for card in cards}
    found = {name: {one for one in tags.values() if one.strip() and one in said} for name, tags in held.items()}
    counts = Counter(tag for tags in found.values() for tag in tags)
    scores = shared({name: sum(1.0 / counts[tag] for tag in tags) for name, tags in found.items()})
    if not scores:
        return nobody("tags", "no word of the request is a tag of anybody")
    worker, confidence = scores[0]
    tags = ", ".join(tag for tag, one in held[worker].items() if one in found[worker])
    second = scores[1][0] if len(scores) > 1 else None
    return Decision(
        worker=worker,
        second=second,
        confidence=confidence,
        scores=scores,
        why=f"the request names {tags}",
        router="tags",
    )


def _stems(text: str) -> list[str]:
    return [stem(word) for word in tokenize(text.replace("-", " "))]
