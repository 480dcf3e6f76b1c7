"""Tokens of a text and the vocabulary of the demo model: English words only, nothing about any team."""

import re
from functools import lru_cache

from msgspec import Struct

from chargehand.text import words as text_words
from chargehand.text.numbers import NUMBER_WORDS

_TOKEN = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?%?(?![^\W\d_])|[^\W\d_]\w*(?:['\u2019][^\W\d_]+)?|\d\w*")
_NUMBER = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?")

_IRREGULAR = {
    "sold": "sell",
    "paid": "pay",
    "bought": "buy",
    "brought": "bring",
    "took": "take",
    "taken": "take",
    "made": "make",
    "gave": "give",
    "kept": "keep",
    "people": "person",
    "win": "won",
    "wins": "won",
    "came": "come",
    "lose": "lost",
    "loses": "lost",
    "lost": "lost",
}


def word_set(words: str) -> frozenset[str]:
    """The words of a text as a set."""
    return frozenset(words.split())


NEGATIONS = word_set(
    """not no never none without except excluding exclude excluded excludes nor neither besides outside nothing
    nobody minus lacking lack lacks missing cannot"""
)

FREE = word_set(
    """a an the of in on at to for from with by as is are was were be been being am do does did doing done has have
    had having will would can could may might must shall should i you he she it we they me him her us them my
    your his our their its mine this that these those there here and or but if so then also too please kindly
    hello hi hey thanks thank what which who whom whose when where why how say says tell give show list find
    out report let know get got just really exactly actually want wants wanted like needs about into onto
    regarding concerning figures figure overall question questions answer answers some much s re ve ll d m
    quick quickly briefly short shortly brief look up see display present provide compare names state another
    ones itself themselves through via during across against among yet still all"""
)
"""Words that say nothing of what is asked."""

MENTIONS_MODEL = "A language model can do more: see docs/first-model.md."


_NEGATIVE = re.compile(r"(?<![\w)])(?<![\d)]\s)[-\u2212]\d")


class Token(Struct, frozen=True, gc=False):
    """A word or number of a text, with its stem and its place."""

    text: str
    stem: str
    start: int
    end: int

    @property
    def is_negation(self) -> bool:
        return self.text.lower() in NEGATIONS or self.text.lower().endswith(("n't", "n\u2019t"))

    @property
    def is_free(self) -> bool:
        return self.text.lower().replace("\u2019", "'").split("'")[0] in FREE and not self.is_negation


def tokenize(text: str) -> list[Token]:
    """All words and numbers in order."""
    return [Token(match[0], stem(match[0]), match.start(), match.end()) for match in _TOKEN.finditer(text)]


def stems(text: str) -> list[str]:
    """The stems of all words of a text, in order."""
    return [stem(match[0]) for match in _TOKEN.finditer(text.replace("_", " "))]


def content_stems(text: str) -> frozenset[str]:
    """The stems of the words that carry meaning."""
    return frozenset(token.stem for token in tokenize(text.replace("_", " ")) if not token.is_free)


@lru_cache(maxsize=20_000)
def stem(word: str) -> str:
    """The form under which words of one family are compared; all contracted negations are `not`."""
    low = word.lower().replace("\u2019", "'")
    if low.endswith("n't"):
        return "not"
    low = low.removesuffix("'s").split("'")[0]
    low = low.removesuffix("ally") if low.endswith("ically") else low
    return text_words.stem(_IRREGULAR.get(low, low))


def stem_set(words: str) -> frozenset[str]:
    """The stems of the words of a text as a set."""
    return frozenset(map(stem, words.split()))


LIGHT_VERBS = stem_set("bring take carry have make get come belong place order exist go use record run stand hold")
"""Verbs that say no more than that something is so."""


def has_negative_number(text: str) -> bool:
    """Whether a number with a minus sign before it occurs, which is read as no number."""
    return _NEGATIVE.search(text) is not None


def number_value(text: str) -> float | None:
    """The number a token stands for: digits with thousands separators, or a small number word."""
    low = text.lower()
    if low in NUMBER_WORDS and low not in {"no", "none", "once", "twice"}:
        return float(NUMBER_WORDS[low])
    plain = text.rstrip("%")
    if _NUMBER.fullmatch(plain):
        return float(plain.replace(",", ""))
    return None


def shorten(text: str, length: int) -> str:
    """At most so many characters on one line."""
    flat = " ".join(text.split())
    return flat if len(flat) <= length else flat[: length - 1].rstrip() + "\u2026"


def join_words(words: list[str], link: str = "and") -> str:
    """a, b and c."""
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} {link} {words[-1]}"
