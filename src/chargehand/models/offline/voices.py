"""Several who were asked the same, each with a voice of its own in the answer: who said it, and what nobody had."""

from collections.abc import Sequence

from msgspec import structs

from chargehand.models.left_out import NOTHING, left
from chargehand.models.offline.closing import Part, asked


def voices(parts: Sequence[Part]) -> dict[str, str]:
    """Who speaks, to stand before what is said, by task; nothing where nobody else was asked the same."""
    same: dict[str, list[Part]] = {}
    for part in parts:
        same.setdefault(asked(part.given), []).append(part)
    several = [held for held in same.values() if len({one.given.worker for one in held}) > 1]
    return {one.task: f"{one.given.worker}: " for held in several for one in held if one.given.worker}


def heard(parts: Sequence[Part]) -> tuple[list[Part], list[str]]:
    """The results of those who had something to say, and a closing with what all of them left to others."""
    kept: list[Part] = []
    open_: list[set[str]] = []
    order: dict[str, None] = {}
    for part in parts:
        text, rest = left(part.product.text)
        order |= dict.fromkeys(rest)
        if text.strip() != NOTHING:
            open_.append(set(rest))
            kept.append(Part(part.given, structs.replace(part.product, text=text)))
    if not kept:
        return list(parts), []
    lines = [f"- {one}" for one in order if all(one in each for each in open_)]
    return kept, ["## Not answered", "\n".join(lines)] if lines else []
