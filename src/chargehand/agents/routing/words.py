"""Routers that need no library: by rules, by tags, by words; and the texts that a worker's card declares."""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence, Set

from msgspec import Struct, structs

from chargehand.agents.routing.decision import Decision, choose, no_worker, pool_equals, share_scores
from chargehand.models.request_facts import WorkerCard
from chargehand.text.words import split_sentences, stem, stems, tokenize, words_by_stem
from chargehand.tools.calling import THREADS
from chargehand.tools.remember import NAMES as MEMORY_TOOLS

# Where a sentence lists what a worker does. `like` lists too, but is a verb as well: both readings cost little.
_CLAUSE = re.compile(
    r"\s*(?:[,:;()\u2013\u2014]|\be\.g\.|\b(?:such as|for example|for instance|including|like|as well as|and|or"
    r"|und|oder|sowie|wie|zum Beispiel|et|ou|tels? que|par exemple)\b)[\s,:]*",
    re.IGNORECASE,
)
_SENTENCE_ENDS = ".!?;"
_LONGEST_TEXT = 600  # characters of one text
_MOST_TEXTS = 40  # texts taken from descriptions; phrases and examples are taken all
_SURE = 0.4  # of a request's words, that a worker knows: then nothing is taken off the confidence
_LONGEST_WAIT = 60.0  # seconds
_SHARPER = 3.0  # the power that makes scores into shares: of two scores, twice the one is eight times as likely
_LEAST_SHARE = 0.1  # added to each share where shares are multiplied: words alone exclude no worker


class WorkerTexts(Struct, frozen=True):
    """What a worker's card declares, as short texts."""

    worker: str
    phrases: tuple[str, ...]
    """What the worker can do."""
    examples: tuple[str, ...]
    """Requests that it was meant for."""
    clauses: tuple[str, ...] = ()
    """The parts of its description: a request is about one of many things."""
    described: bool = False
    """Whether the card has a description only: no skill phrases, no examples."""


def worker_texts(cards: Sequence[WorkerCard]) -> tuple[WorkerTexts, ...]:
    """The texts of each card. Its name counts only where it says nothing else: names of people mean nothing."""
    return tuple(_card_texts(card) for card in cards)


def _card_texts(card: WorkerCard) -> WorkerTexts:
    # every worker of a team may have the memory tools: they do not tell workers apart
    skills = [skill for skill in card.skills if skill.name not in MEMORY_TOOLS]
    tools = [_first_sentence(skill.description) or _plain(skill.name) for skill in skills]
    sentences = split_sentences(card.description, _SENTENCE_ENDS)
    phrases = _tidy([*card.phrases, *[*sentences, *tools][:_MOST_TEXTS]])
    clauses = _tidy([clause for sentence in sentences for clause in _clauses(sentence)])[:_MOST_TEXTS]
    examples = _tidy([*card.examples, *card.confirmed])
    described = bool(phrases) and not card.phrases and not card.examples
    if not phrases and not examples:
        phrases = _tidy([_plain(card.name), *card.tags])
    return WorkerTexts(worker=card.name, phrases=phrases, examples=examples, clauses=clauses, described=described)


def _first_sentence(description: str) -> str:
    return next(iter(split_sentences(description, _SENTENCE_ENDS)), "")


def _clauses(sentence: str) -> list[str]:
    """What a sentence lists; nothing where it says one thing."""
    clauses = [clause.strip(" .!?") for clause in _CLAUSE.split(sentence)]
    return clauses if len(clauses) > 1 else []


def _plain(name: str) -> str:
    return name.replace("_", " ").replace("-", " ")


def _tidy(texts: Sequence[str]) -> tuple[str, ...]:
    plain = (" ".join(text.split())[:_LONGEST_TEXT] for text in texts)
    return tuple(dict.fromkeys(text for text in plain if text))


# --- rules and tags


def by_rules(text: str, rules: Mapping[str, str]) -> Decision:
    """The worker of the longest phrase that stands in the text as whole words; of equals, of the first."""
    hits = [
        (-len(" ".join(phrase.split())), match.start(), phrase)
        for phrase in rules
        if phrase.split() and (match := _pattern(phrase).search(text))
    ]
    if not hits:
        return no_worker("rules", "no rule matches")
    hits.sort()
    phrase = hits[0][2]
    worker = rules[phrase]
    second = next((rules[other] for _, _, other in hits if rules[other] != worker), None)
    decision = choose("rules", [(worker, 1.0)], 1.0, f"the rule for {phrase!r}")
    return structs.replace(decision, second=second)


def _pattern(phrase: str) -> re.Pattern[str]:
    words = r"\s+".join(re.escape(word) for word in phrase.split())
    return re.compile(rf"(?<!\w){words}(?!\w)", re.IGNORECASE)


def by_tags(text: str, cards: Sequence[WorkerCard]) -> Decision:
    """The worker with most of the tags that stand in the text; one that few workers have tells more."""
    request = f" {_stems(text)} "
    tags_in_text = {card.name: {tag for tag in card.tags if f" {_stems(tag)} " in request} for card in cards}
    counts = Counter(tag for tags in tags_in_text.values() for tag in tags)
    scores = share_scores({name: sum(1.0 / counts[tag] for tag in tags) for name, tags in tags_in_text.items()})
    if not scores:
        return no_worker("tags", "no word of the request is a tag of a worker")
    worker, confidence = scores[0]
    decision = choose("tags", scores, confidence, f"the request names {', '.join(sorted(tags_in_text[worker]))}")
    return pool_equals(decision, {name for name, tags in tags_in_text.items() if tags == tags_in_text[worker]})


def _stems(text: str) -> str:
    return " ".join(stem(word) for word in tokenize(text.replace("-", " ")))


# --- words


class Lexicon:
    """What workers say, by word."""

    def __init__(self, cards: Sequence[WorkerCard]) -> None:
        self._profiles: dict[str, Counter[str]] = {}
        for card, texts in zip(cards, worker_texts(cards), strict=True):
            phrases = [*texts.phrases, *texts.examples, card.name, *card.tags]
            self._profiles[card.name] = Counter(stems(" ".join(phrases)))
        counts = Counter(term for profile in self._profiles.values() for term in profile)
        self._weights = {term: math.log(1 + len(cards) / count) for term, count in counts.items()}
        self._lengths = {name: self._length(profile) for name, profile in self._profiles.items()}

    def decide(self, text: str) -> Decision:
        terms = set(stems(text))
        scores = share_scores(self._scores(terms))
        if not scores:
            return no_worker("words", "no worker uses a word of the request")
        worker, share = scores[0]
        common = sorted(terms & self._profiles[worker].keys(), key=lambda term: (-self._weight(term), term))[:6]
        whole = words_by_stem(text)
        words = ", ".join(whole.get(term, term) for term in common)
        confidence = round(share * self._sureness(worker, terms), 4)
        decision = choose("words", scores, confidence, f"{worker} speaks of: {words}")
        matched = terms & self._profiles[worker].keys()
        equals = {name for name, profile in self._profiles.items() if terms & profile.keys() == matched}
        return pool_equals(decision, equals)

    def log_shares(self, text: str) -> list[float]:
        """What words add to the logits of another router, for each worker; nothing where they tell nothing."""
        terms = set(stems(text))
        scores = self._scores(terms)
        total = sum(scores.values())
        if not total:
            return [0.0] * len(scores)
        sureness = self._sureness(max(scores, key=scores.__getitem__), terms)
        return [sureness * math.log(score / total + _LEAST_SHARE) for score in scores.values()]

    def _scores(self, terms: Set[str]) -> dict[str, float]:
        """What the shares of workers are proportional to: the words they have in common with a request."""
        scores: dict[str, float] = {}
        for name, profile in self._profiles.items():
            common = [self._weight(term) * self._strength(term, profile) for term in terms & profile.keys()]
            scores[name] = (sum(common) / math.sqrt(self._lengths[name] or 1.0)) ** _SHARPER
        return scores

    def _sureness(self, worker: str, terms: Set[str]) -> float:
        """From 0 to 1, by how much of a request's words the worker uses."""
        weight = sum(self._weight(term) for term in terms & self._profiles[worker].keys())
        return min(1.0, weight / sum(map(self._weight, terms)) / _SURE)

    def _weight(self, term: str) -> float:
        """How telling a word is. One that no worker uses tells as much as one that a single worker uses."""
        return self._weights.get(term, math.log(1 + len(self._profiles)))

    def _strength(self, term: str, profile: Mapping[str, int]) -> float:
        return (1 + math.log(profile[term])) * self._weight(term)

    def _length(self, profile: Mapping[str, int]) -> float:
        return math.hypot(*[self._strength(term, profile) for term in profile])


async def by_words(text: str, cards: Sequence[WorkerCard]) -> Decision:
    """Beside the event loop: thousands of examples take half a second to read."""
    decision: Decision = await THREADS.call(lambda: Lexicon(cards).decide(text), {}, _LONGEST_WAIT)
    return decision
