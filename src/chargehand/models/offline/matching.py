"""Who could do what: cards read into profiles, and clauses scored against them.

What comes before what is the business of planning.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from chargehand.models.offline.kinds import BY_NAME, asked, done, generic
from chargehand.models.offline.remembering.family import bare
from chargehand.models.offline.schemas import parameter_names, said_in
from chargehand.models.offline.vocabulary import AUXILIARY, DEEDS, OPEN_DEEDS, PREPOSITIONS, STOP, VERBS
from chargehand.models.offline.words import dates, names, related, stem, terms, tokens, weigh
from chargehand.models.subject import WorkerCard

_VERB_STEMS = frozenset(map(stem, VERBS))
_OPEN_STEMS = frozenset(map(stem, OPEN_DEEDS))
_DETERMINERS = frozenset(("a", "an", "the", "all", "our", "my", "me", "us", "them", "it", "this", "these", "every"))
_SOURCE = re.compile(r"\b(?:do|does|did)\s+(?:(?:the|our)\s+)?(?:\w+\s+)?(\w+)\s+say\b", re.IGNORECASE)
_FACT = re.compile(r"(?:how (?:long|many|much|often|high|old|far|big|soon)|when|where|who)\b", re.IGNORECASE)
_NAMED = 6.0
_READ = 20_000  # characters of one tool's own words


class Embedder(Protocol):
    """Turns texts into vectors whose cosine says how near their meanings are."""

    def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]: ...


class Profile(Struct, frozen=True):
    """A card as words. `terms` says how much each counts; `spare` is somebody who takes what nobody else is for."""

    card: WorkerCard
    terms: Mapping[str, float]
    kinds: Mapping[str, float]
    spare: bool

    @property
    def name(self) -> str:
        return self.card.name


class Score(Struct, frozen=True):
    """How well somebody fits. `content` is how much of the subject they know, `kind` what they would do."""

    profile: Profile
    total: float
    content: float
    kind: str
    serves: bool


def profile(card: WorkerCard) -> Profile:
    found: dict[str, float] = {}
    tools = " ".join(f"{skill.name} {skill.description[:_READ]}" for skill in card.skills)
    for text, weight in (
        (f"{card.name} {card.description[:_READ]} {' '.join(card.tags)}", 1.0),
        (tools, 0.9),
        (" ".join(said_in(skill) for skill in card.skills), 0.7),
    ):
        for term in terms(text):
            found[term] = max(found.get(term, 0.0), weight)
    for term in terms(" ".join(name for skill in card.skills for name in parameter_names(skill))):
        found.setdefault(term, 0.3)  # that a tool takes an end does not mean that its owner knows when things end
    spare = "makes a worker" in card.description.lower() or "nobody else" in card.description.lower()
    own = f"{card.description[:_READ]} {' '.join(card.tags)} {' '.join(skill.name for skill in card.skills)}"
    return Profile(card, found, done(card.name, own, tools), spare)


class Bench:
    """The workers there are, ready to be compared."""

    def __init__(self, cards: Iterable[WorkerCard], embedder: Embedder | None = None) -> None:
        self.profiles = [profile(bare(card)) for card in cards]
        self._weights = weigh(held.terms for held in self.profiles)
        self._embedder = embedder
        self._vectors: Sequence[Sequence[float]] = ()

    def rank(self, text: str, without: Iterable[str] = ()) -> list[Score]:
        """Everybody but those `without`, the best first; ties keep the order of the team."""
        left_out = frozenset(without)
        wanted = asked(text)
        near = self._near(text)
        scores = [
            self._score(text, wanted, held, near[at])
            for at, held in enumerate(self.profiles)
            if held.name not in left_out and not held.spare
        ]
        return sorted(scores, key=lambda score: (not score.serves, -round(score.total, 6)))

    def best(self, text: str, without: Iterable[str] = ()) -> Score | None:
        """Who serves it best; None when nobody does."""
        ranked = self.rank(text, without)
        return ranked[0] if ranked and ranked[0].serves else self._spare(text, frozenset(without))

    def writer(self) -> Profile | None:
        """Somebody meant for prose: without tools, or by their own words."""
        return next((held for held in self.profiles if "write" in held.kinds and not held.spare), None)

    def finder(self, text: str, *, always: bool = False) -> Score | None:
        """Somebody who looks things up in documents, for a question that uses a word the team uses."""
        known = always or any(_held(term, held) >= 0.7 for term in content(text) for held in self.profiles)
        for held in self.profiles:
            if "documents" in held.kinds and not held.spare and known:
                return Score(held, 0.0, 0.0, "documents", serves=True)
        return None

    def of_kind(self, kind: str) -> Profile | None:
        return next((held for held in self.profiles if held.kinds.get(kind, 0) >= 0.8 and not held.spare), None)

    def _spare(self, text: str, without: frozenset[str]) -> Score | None:
        for held in self.profiles:
            if held.spare and held.name not in without and content(text):
                score = self._score(text, asked(text), held, 0.0)
                if score.serves or not held.card.skills:
                    return Score(held, score.total, score.content, score.kind, serves=True)
        return None

    def _score(self, text: str, wanted: Mapping[str, float], held: Profile, near: float) -> Score:
        about = self._about(text)
        subject = max(self._covered(about, held), near)
        whole = self._covered(dict.fromkeys(terms(text), 1.0), held)
        fit = {name: sure * held.kinds.get(name, 0.0) for name, sure in wanted.items()}
        kind = max(fit, key=lambda name: fit[name], default="")
        strength = fit.get(kind, 0.0)
        total = 0.4 * subject + 0.15 * whole + 0.45 * strength
        if kind and wanted[kind] >= 0.9 and strength >= 0.6:
            total += BY_NAME[kind].firm
        if strength < 0.3:
            kind = next((name for name, sure in held.kinds.items() if sure >= 0.9), "")
        return Score(held, total, subject, kind, self._serves(text, held, subject, whole, (kind, strength)))

    def _about(self, text: str) -> dict[str, float]:
        """What a text is about; a name counts in full where somebody's own words have it."""
        known = content(text)
        said = {term for term in known if any(term in held.terms for held in self.profiles)}
        if (asked_for := _SOURCE.search(text)) and (source := stem(asked_for[1].lower())) in said:
            known[source] = _NAMED  # who is asked for what the papers say has the papers
        return {term: max(own, 1.0) if term in said else own for term, own in known.items()}

    def _serves(self, text: str, held: Profile, subject: float, whole: float, fit: tuple[str, float]) -> bool:
        about = content(text)
        kind, strength = fit
        if strength < 0.3 and "write" in held.kinds and not held.card.skills and _FACT.match(text):
            return False  # who only writes knows nothing of their own
        if verb := deed(text):
            object_ = {term: weight for term, weight in about.items() if term != verb}
            return _held(verb, held) >= 0.6 and (verb in _OPEN_STEMS or self._covered(object_, held) >= 0.34)
        if not about:
            return strength >= 0.5 or whole >= 0.5
        if strength >= 0.6 and BY_NAME[kind].open:
            return True
        return subject >= 0.34 or (subject >= 0.2 and strength >= 0.4)

    def _covered(self, wanted: Mapping[str, float], held: Profile) -> float:
        total = found = 0.0
        for term, own in wanted.items():
            weight = own * min(3.0, self._weights.get(term, 1.0))
            total += weight
            found += weight * _held(term, held)
        return found / total if total else 0.0

    def _near(self, text: str) -> list[float]:
        if self._embedder is None or not self.profiles:
            return [0.0] * len(self.profiles)
        if not self._vectors:
            self._vectors = self._embedder.embed([f"{held.name}: {held.card.description}" for held in self.profiles])
        own = self._embedder.embed([text])[0]
        return [max(0.0, min(1.0, (_cosine(own, other) - 0.2) / 0.5)) for other in self._vectors]


def _held(term: str, held: Profile) -> float:
    if (exact := held.terms.get(term)) is not None:
        return exact
    return max((related(term, other) * weight for other, weight in held.terms.items()), default=0.0)


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    long = (sum(a * a for a in one) * sum(b * b for b in other)) ** 0.5
    return sum(a * b for a, b in zip(one, other, strict=False)) / long if long else 0.0


def content(text: str) -> dict[str, float]:
    """What a clause is about: its terms without dates and words for what is done.

    Proper names count for less, and a verb that it begins with for more.
    """
    plain = text
    for dated in reversed(dates(text)):
        plain = plain[: dated.start] + plain[dated.end :]
    proper = {stem(word) for name in names(plain) for word in tokens(name)}
    first = stem((tokens(plain[:60]) or [""])[0])
    found = {term: 0.4 if term in proper else 1.0 for term in terms(plain) if not generic(term) and not _number(term)}
    return {term: 1.5 if term == first and term in _VERB_STEMS else weight for term, weight in found.items()}


def _number(term: str) -> bool:
    return term[0].isdigit()


def deed(text: str) -> str:
    """The stem of the verb a clause begins with, where it changes something or is none that teams know in general.

    Who does such a thing must say so: that they know the cows does not mean that they sing to them.
    """
    said = tokens(text[:60])
    follows = said[1] if len(said) > 1 else ""
    if not said or follows in ("by", "of", "value", "values"):
        return ""
    strange = follows in _DETERMINERS and said[0].isalpha() and said[0] not in VERBS | STOP | PREPOSITIONS | AUXILIARY
    return stem(said[0]) if said[0] in DEEDS or strange else ""
