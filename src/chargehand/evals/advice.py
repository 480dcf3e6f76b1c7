"""What to change so that requests go where they should: descriptions that overlap, examples that are missing.

It goes by words and by what went wrong. Whether a change helps is tried by `remedy`.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from chargehand.evals.scores import Score
from chargehand.models.offline.words import spoken, terms
from chargehand.models.subject import WorkerCard

_EVERYBODY = (
    "answers questions helps finds knows gives says tells keeps reads writes works does makes everything else others"
)
_LIKE = 0.45  # cosine of two descriptions from which they are hard to tell apart
_MOST_WORKERS = 200
_SHOWN = 3  # requests that advice quotes
_WORDS = 6
_OFTEN = 2  # mistakes of one sort from which there is something to advise


def overlaps(cards: Sequence[WorkerCard]) -> tuple[str, ...]:
    """Pairs of workers whose descriptions speak of the same things, the most alike first."""
    bags = _weighed(cards[:_MOST_WORKERS])
    alike: list[tuple[float, str]] = []
    for (one, ours), (other, theirs) in combinations(bags.items(), 2):
        common = {word: weight * theirs[word] for word, weight in ours.items() if word in theirs}
        if (likeness := sum(common.values())) >= _LIKE:
            words = sorted(common, key=lambda word: (-common[word], word))[:_WORDS]
            text = (
                f"the descriptions of {one} and {other} are {likeness:.0%} alike: both speak of {_whole(words, cards)}"
            )
            alike.append((likeness, text))
    return tuple(text for _, text in sorted(alike, key=lambda pair: -pair[0]))


def _weighed(cards: Sequence[WorkerCard]) -> dict[str, dict[str, float]]:
    """Each worker's words, rare ones weighing more, as vectors of length one."""
    every = frozenset(terms(_EVERYBODY))
    counted = {card.name: Counter(one for one in terms(_own(card)) if one not in every) for card in cards}
    held = Counter(word for bag in counted.values() for word in bag)
    found: dict[str, dict[str, float]] = {}
    for name, bag in counted.items():
        weights = {word: (1 + math.log(count)) * math.log(1 + len(cards) / held[word]) for word, count in bag.items()}
        long = math.sqrt(sum(weight * weight for weight in weights.values()))
        found[name] = {word: weight / long for word, weight in weights.items()} if long else {}
    return found


def _own(card: WorkerCard) -> str:
    """What is said of a worker; its tools have words of their own, which it did not choose."""
    return ". ".join((card.description, *card.phrases))


def _whole(words: Sequence[str], cards: Sequence[WorkerCard]) -> str:
    known: dict[str, str] = {}
    for card in cards:
        known |= spoken(_own(card))
    return ", ".join(known.get(word, word) for word in words)


def suggestions(scores: Sequence[Score], cards: Sequence[WorkerCard], out: str, *, by_route: bool) -> tuple[str, ...]:
    """One piece of advice for each sort of mistake that was made often, the commonest first.

    Examples help a team that is led by a route; who plans reads descriptions.
    """
    asked = Counter(one.wanted for one in scores)
    bags = _weighed(cards)
    told: list[str] = []
    for (wanted, got), found in _often(scores):
        said = _advice(wanted, got, found, bags, cards, out, by_route=by_route)
        told.append(f"{len(found)} of {asked[wanted]} {said}{_threshold(wanted, got, out) if by_route else ''}.")
    return tuple(told)


def examples(scores: Sequence[Score], cards: Sequence[WorkerCard]) -> dict[str, tuple[str, ...]]:
    """The requests that the advice would add to the examples of each worker."""
    found: dict[str, tuple[str, ...]] = {}
    known = {card.name for card in cards}
    for (wanted, _), wrong in _often(scores):
        if wanted in known:
            found[wanted] = (*found.get(wanted, ()), *(one.request for one in wrong[:_SHOWN]))
    return found


def _often(scores: Sequence[Score]) -> list[tuple[tuple[str, str], list[Score]]]:
    """Mistakes by their sort; where none was made often, the first."""
    wrong: dict[tuple[str, str], list[Score]] = {}
    for one in scores:
        if not one.passed:
            wrong.setdefault((one.wanted, one.got), []).append(one)
    ranked = sorted(wrong.items(), key=lambda item: (-len(item[1]), item[0]))
    return [one for one in ranked if len(one[1]) >= _OFTEN] or ranked[:1]


def _threshold(wanted: str, got: str, out: str) -> str:
    if out not in (wanted, got):
        return ""
    return f", or {'raise' if wanted == out else 'lower'} `threshold` of the route"


def _advice(
    wanted: str,
    got: str,
    found: Sequence[Score],
    bags: Mapping[str, Mapping[str, float]],
    cards: Sequence[WorkerCard],
    out: str,
    *,
    by_route: bool,
) -> str:
    quoted = ", ".join(f'"{one.request[:90]}"' for one in found[:_SHOWN])
    if wanted == out:
        return (
            f"requests that are for nobody went to {got}: {quoted}. Say in the description of {got} what it does not do"
        )
    known = bags.get(wanted, {})
    fresh = list(dict.fromkeys(_telling(found, known)))[:_WORDS]
    change = f"Add to the team file: `{wanted}: {{examples: [{quoted}]}}`"
    if not by_route:
        words = f", for example {', '.join(fresh)}" if fresh else ""
        change = f"Put what these speak of into the description of {wanted}{words}: {quoted}"
    if got == out:
        return f"requests for {wanted} were refused. {change}"
    if wanted not in bags or got not in bags:  # several of them, for one request
        return f"requests for {wanted} went to {got}: {quoted}. Say in the descriptions who does what alone"
    common = sorted(set(known) & set(bags[got]), key=lambda word: (-bags[got][word], word))[:_WORDS]
    both = f" Both speak of {_whole(common, cards)}: leave that to one of them." if common else ""
    return f"requests for {wanted} went to {got}.{both} {change}"


def _telling(found: Sequence[Score], known: Mapping[str, float]) -> Iterator[str]:
    """Words of requests that the description of their worker does not have."""
    for one in found[:_SHOWN]:
        whole = spoken(one.request)
        yield from (whole.get(term, term) for term in terms(one.request) if term not in known)
