"""Words of a request that are mistyped words of the team: a letter too few or too many, two swapped, another vowel.

Only a word that nobody knows is read as another, and only where there is one it can be. Other mistakes are left: a
consonant in place of another is often another word.
"""

import re
from collections.abc import Sequence
from functools import lru_cache

from msgspec import structs

from chargehand.models.offline.schemas import said_in
from chargehand.models.offline.vocabulary import AUXILIARY, GROUPS, MONTHS, NUMBER_WORDS, PREPOSITIONS, STOP, VERBS
from chargehand.models.offline.words import stem
from chargehand.models.subject import Planning, WorkerCard, Working

SHORTEST = 6  # letters; shorter words have too many neighbours
_VOWELS = frozenset("aeiouy")
_READ = 20_000  # characters of what one worker says of itself
_WORD = re.compile(r"[^\W\d_]{3,}")
_SAID = re.compile(r"\"[^\"\n]*\"|\u201c[^\u201d\n]*\u201d|`[^`\n]*`|https?://\S+")
_GENERAL = STOP | VERBS | AUXILIARY | PREPOSITIONS | {*MONTHS, *NUMBER_WORDS} | {one for line in GROUPS for one in line}
_GENERAL_STEMS = frozenset(map(stem, _GENERAL))


def planned(subject: Planning) -> tuple[Planning, list[str]]:
    """The request as it was meant, and what was read as what."""
    text, read = meant(subject.goal, subject.workers)
    return (structs.replace(subject, goal=text), read) if read else (subject, [])


def tasked(subject: Working) -> Working:
    """A task as it was meant; who works knows only their own words."""
    text, read = meant(subject.instruction, (subject.worker,))
    return structs.replace(subject, instruction=text) if read else subject


def meant(text: str, cards: Sequence[WorkerCard]) -> tuple[str, list[str]]:
    """A text with the words of these workers in place of mistyped ones."""
    own = frozenset[str]().union(*map(_words, cards))
    stems = _GENERAL_STEMS | {stem(one) for one in own}
    kept = {at for found in _SAID.finditer(text) for at in range(*found.span())}
    read: list[str] = []

    def one(found: re.Match[str]) -> str:
        word = found[0].lower()
        if found.start() in kept or stem(word) in stems:
            return found[0]
        right = _right(word, own, orders=not found.start())
        if not right:
            return found[0]
        read.append(f"{found[0]!r} is read as {right!r}.")
        return right.capitalize() if found[0][0].isupper() else right

    return (_WORD.sub(one, text), read) if own else (text, [])


def _right(word: str, own: frozenset[str], *, orders: bool) -> str:
    """The one word it can be. The first of a request may be a shorter one, if it says what to do."""
    if orders and len(word) < SHORTEST:
        near = {one for one in VERBS if mistyped(word, one)}
    else:
        near = {one for one in own if _long(word, one) and mistyped(word, one)}
    return min(near, key=lambda one: (len(one), one)) if len({stem(one) for one in near}) == 1 else ""


def _long(word: str, right: str) -> bool:
    """Whether both are long enough; five letters are, where the sixth is missing inside."""
    if len(word) >= SHORTEST:
        return True
    return len(word) == SHORTEST - 1 and len(right) == SHORTEST and word[0] == right[0] and word[-1] == right[-1]


def mistyped(word: str, right: str) -> bool:
    """Whether a word is another one with a letter left out or too many, two neighbours swapped, or a wrong vowel."""
    short, long = sorted((word, right), key=len)
    if len(long) - len(short) == 1:
        return any(long[:at] + long[at + 1 :] == short for at in range(len(long)))
    if len(long) > len(short):
        return False
    wrong = [at for at in range(len(word)) if word[at] != right[at]]
    if len(wrong) == 1 and len(word) >= SHORTEST:  # "binery"; the first letter of a word is seldom mistyped
        return bool(wrong[0]) and {word[wrong[0]], right[wrong[0]]} <= _VOWELS
    if len(wrong) != 2 or wrong[1] - wrong[0] != 1:
        return False
    first, second = wrong
    return word[first] == right[second] and word[second] == right[first]


def _words(card: WorkerCard) -> frozenset[str]:
    skills = tuple(f"{one.name} {one.description[:_READ]} {said_in(one)}" for one in card.skills)
    return _cut(" ".join((card.name, card.description, *card.tags, *card.phrases, *card.examples[:50], *skills)))


@lru_cache(maxsize=64)
def _cut(said: str) -> frozenset[str]:
    return frozenset(one.lower() for one in _WORD.findall(said.replace("_", " ")))
