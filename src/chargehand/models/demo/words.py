"""Words of requests, tools and data as the demo model compares them: by stems, with those that say nothing left out."""

import re
from functools import lru_cache

from msgspec import Struct

from chargehand.text import words as text_words

_TOKEN = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?%?(?![^\W\d_])|[^\W\d_]\w*(?:['\u2019][^\W\d_]+)?|\d\w*")


def word_set(words: str) -> frozenset[str]:
    """The words of a text as a set."""
    return frozenset(words.split())


def _word_pairs(words: str) -> dict[str, str]:
    each = words.split()
    return dict(zip(each[::2], each[1::2], strict=True))


_IRREGULAR = _word_pairs(
    """sold sell paid pay bought buy brought bring took take taken take made make gave give kept keep people person
    win won wins won came come lose lost loses lost"""
)
NEGATION = "<negation>"
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
    quickly briefly shortly look up see compare names ones itself themselves through via during across against
    among yet still all"""
)
"""Words that say nothing of what is asked."""


class Token(Struct, frozen=True, gc=False):
    """A word or number of a text, with its stem and its place."""

    text: str
    stem: str
    start: int
    end: int

    @property
    def low(self) -> str:
        return self.text.lower().replace("\u2019", "'")

    @property
    def is_negation(self) -> bool:
        return self.low in NEGATIONS or self.low.endswith("n't")

    @property
    def key(self) -> str:
        """Its stem; all negations are one."""
        return NEGATION if self.is_negation else self.stem

    @property
    def is_free(self) -> bool:
        """Whether it says nothing of what is asked; written in capitals it is a name: "US", the "A" of "hall A"."""
        is_name = self.text.isupper() and self.start > 0 and self.text != "I"
        return self.low.split("'")[0] in FREE and not self.is_negation and not is_name


def tokenize(text: str) -> list[Token]:
    """All words and numbers in order."""
    return [Token(match[0], stem(match[0]), match.start(), match.end()) for match in _TOKEN.finditer(text)]


def stems(text: str) -> list[str]:
    """The stems of all words of a text, in order."""
    return [stem(match[0]) for match in _TOKEN.finditer(text.replace("_", " "))]


@lru_cache(maxsize=4_000)
def said_words(text: str) -> frozenset[str]:
    """The keys of all words of a text."""
    return frozenset(token.key for token in tokenize(text.replace("_", " ")))


@lru_cache(maxsize=4_000)
def content_stems(text: str) -> frozenset[str]:
    """The keys of the words that carry meaning."""
    return frozenset(token.key for token in tokenize(text.replace("_", " ")) if not token.is_free)


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
