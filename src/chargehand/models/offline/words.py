"""Words of a text: tokens, stems, terms and how alike two lists of terms are; numbers, names and quotations in it.

What the words are about is decided elsewhere. Dates have a module of their own.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from chargehand.models.offline.dates import Dated, dates
from chargehand.models.offline.vocabulary import GROUPS, NUMBER_WORDS, PHRASES, STOP, VERBS

__all__ = ["STOP", "VERBS", "Dated", "dates", "kinship", "names", "numbers", "quoted", "related", "similarity", "stem"]
__all__ += ["spoken", "terms", "tokens", "weigh"]

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_TOKEN = re.compile(r"\d{4}-\d\d-\d\d|\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?|[^\W\d_]+(?:['\u2019][^\W\d_]+)?")
_PHRASES = [(re.compile(rf"\b(?:{pattern})\b", re.IGNORECASE), word) for pattern, word in PHRASES]
_QUOTES = (
    re.compile(r'"([^"\n]{1,400})"'),
    re.compile(r"\u201c([^\u201d\n]{1,400})\u201d"),
    re.compile(r"\u201e([^\u201c\u201d\n]{1,400})[\u201c\u201d]"),
    re.compile(r"\u00ab([^\u00bb\n]{1,400})\u00bb"),
    re.compile(r"\u2018([^\u2018\n]{1,400}?)\u2019(?!\w)"),
    re.compile(r"(?<![\w'])'([^'\n]{1,400}?(?:'\w[^'\n]{0,200}?)?)'(?![\w'])"),
    re.compile(r"`([^`\n]{1,400})`"),
)
_NOUN = re.compile(r"\s+([A-Za-z]+)(\s*(?:per\b|an?\b|each\b|every\b|/))?")
_NUMBER = re.compile(
    r"(?<![\w.,-])(?P<minus>[-\u2212])?[$\u20ac\u00a3]?(?P<digits>\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?|(?:a|one)(?=\s(?:thousand|million|billion)\b))"
    r"(?:\s?(?P<times>k|thousand|million|billion)\b)?(?![\w-]|[.,]\d)|\b(?P<word>" + "|".join(NUMBER_WORDS) + r")\b",
    re.IGNORECASE,
)
_NO_ADVERBS = frozenset({"supply", "family", "assembly", "multiply", "monopoly", "anomaly", "butterfly"})
_WHOLE = frozenset({"takings"})  # who takes long has no takings
_TIMES = {"k": 1000, "thousand": 1000, "million": 1_000_000, "billion": 1_000_000_000}
_IDENTIFIER = re.compile(r"(?<![\w-])(?:[A-Z][A-Za-z]*[-_]?\d[\w-]*|[A-Z]{2,}(?:-[A-Z\d]+)+)(?![\w])")
_CAPITAL = re.compile(
    r"[^\W\d_a-z][\w&\u2019'-]*(?:(?:\s+(?:of|de|von|van|der|del|la|&|and the)\s+|\s+)[^\W\d_a-z][\w&\u2019'-]*)*"
)
_SENTENCE_START = re.compile(r"(?:\A|[.!?:;]\s+|\n)\s*(?:[-*\u2022]\s+|\d+[.)]\s+)?[\"'\u201c(]*\Z")


def tokens(text: str) -> list[str]:
    """The words and numbers in it, in lower case; snake_case and camelCase come apart."""
    split = _CAMEL.sub(" ", text.replace("_", " "))
    return [_bare(word) for word in _TOKEN.findall(split)]


def _bare(word: str) -> str:
    if word[0].isdigit():
        return word.replace(",", "")
    return re.sub(r"['\u2019](?:s|re|ve|ll|d|m)$", "", word.lower()).replace("\u2019", "'")


@lru_cache(maxsize=8192)
def stem(word: str) -> str:
    """A word without its commonest English endings; the same stem does not mean the same word."""
    if len(word) <= 3 or not word.isalpha() or word in _WHOLE:
        return word
    word = _singular(word)
    for ending in ("ing", "ed"):
        left = word.removesuffix(ending)
        if left != word and len(left) >= 3 and re.search(r"[aeiouy]", left):
            word = left[:-1] if left[-1] == left[-2] and left[-1] not in "lsz" else left
            break
    if word.endswith(("tion", "sion")) and len(word) > 7:
        word = word[:-3]
    if word.endswith("ly") and len(word) > 5 and word not in _NO_ADVERBS:
        word = word[:-2]
    return word[:-1] if word.endswith("e") and len(word) > 3 else word


def _singular(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "shes", "ches", "xes")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith(("ss", "us", "is")) else word


def terms(text: str) -> list[str]:
    """Stems of the words that carry meaning, in order, with some phrases read as one word ("how many": count)."""
    for pattern, word in _PHRASES:
        text = pattern.sub(word, text)
    return [stem(word) for word in tokens(text) if word not in STOP and (len(word) > 1 or word.isdigit())]


def spoken(text: str) -> dict[str, str]:
    """The word behind each term of a text, as it stands there first: people read words, not stems."""
    for pattern, word in _PHRASES:
        text = pattern.sub(word, text)
    return {stem(word): word for word in reversed(tokens(text))}


def _groups() -> dict[str, frozenset[int]]:
    found: dict[str, set[int]] = {}
    for at, words in enumerate(GROUPS):
        for word in words:
            found.setdefault(stem(word), set()).add(at)
    return {word: frozenset(at) for word, at in found.items()}


_GROUP_OF = _groups()
_NONE: frozenset[int] = frozenset()


@lru_cache(maxsize=65536)
def related(one: str, other: str) -> float:
    """How near two stems are: 1 the same, 0.8 of one group of meaning, 0.6 the same beginning, 0 nothing in common."""
    if one == other:
        return 1.0
    if _GROUP_OF.get(one, _NONE) & _GROUP_OF.get(other, _NONE):
        return 0.8
    short, long = sorted((re.sub("y$", "i", one), re.sub("y$", "i", other)), key=len)
    if (
        len(short) >= 4
        and short.isalpha()
        and (long.startswith(short) or long[: max(6, len(short) - 2)] == short[: max(6, len(short) - 2)])
    ):
        return 0.6 if len(long) - len(short) <= 4 else 0.0
    return 0.0


def kinship(one: str, other: str) -> int:
    """In how many groups of meaning two words stand together: more than one tells USD from EUR for dollars."""
    return len(_GROUP_OF.get(stem(one.lower()), _NONE) & _GROUP_OF.get(stem(other.lower()), _NONE))


def weigh(documents: Iterable[Iterable[str]]) -> dict[str, float]:
    """How telling each term is among these lists of terms: 1 where all hold it, more the fewer do."""
    held: dict[str, int] = {}
    size = 0
    for document in documents:
        size += 1
        for term in set(document):
            held[term] = held.get(term, 0) + 1
    return {term: 1.0 + (size - count) / (count + 1.0) for term, count in held.items()}


def similarity(a_terms: Sequence[str], b_terms: Iterable[str], weights: Mapping[str, float] | None = None) -> float:
    """How much of `a_terms` is found in `b_terms`, 0 to 1, each term counting by its weight (1 where it has none)."""
    theirs = frozenset(b_terms)
    whole = found = 0.0
    for term in dict.fromkeys(a_terms):
        weight = weights.get(term, 1.0) if weights else 1.0
        whole += weight
        found += weight * (1.0 if term in theirs else max((related(term, other) for other in theirs), default=0.0))
    return found / whole if whole else 0.0


def numbers(text: str) -> list[str]:
    """Numbers in it as plain decimals ("1,200" is "1200", "3 million" is "3000000"), without those of dates."""
    return [one for one, _ in with_nouns(text)]


def with_nouns(text: str) -> list[tuple[str, str]]:
    """The numbers of a text, each with the stem of the word behind it; "rows per second" are no rows."""
    taken = [(dated.start, dated.end) for dated in dates(text)]
    taken += [found.span() for found in _IDENTIFIER.finditer(text)]
    found: list[tuple[str, str]] = []
    for match in _NUMBER.finditer(text):
        if any(start < match.end() and match.start() < end for start, end in taken):
            continue
        noun = _NOUN.match(text, match.end())
        said = stem(noun[1].lower()) + (" per" if noun[2] else "") if noun else ""
        found.append((_plain_number(match), said))
    return found


def _plain_number(match: re.Match[str]) -> str:
    if word := match["word"]:
        return NUMBER_WORDS[word.lower()]
    digits = match["digits"].replace(",", "")
    digits = digits if digits[0].isdigit() else "1"  # "a million"
    if times := match["times"]:
        whole, _, rest = digits.partition(".")
        zeros = len(str(_TIMES[times.lower()])) - 1
        digits = (whole + rest[:zeros].ljust(zeros, "0") + (f".{rest[zeros:]}" if rest[zeros:] else "")).lstrip(
            "0"
        ) or "0"
    return f"-{digits}" if match["minus"] else digits


def quoted(text: str) -> list[str]:
    """What stands between quotation marks of any kind, in order."""
    found: dict[int, tuple[int, str]] = {}
    for pattern in _QUOTES:
        for match in pattern.finditer(text):
            if not any(start < match.end() and match.start() < end for start, (end, _) in found.items()):
                found[match.start()] = (match.end(), match[1].strip())
    return [said for _, (_, said) in sorted(found.items()) if said]


def names(text: str) -> list[str]:
    """Capitalised words and runs of them that do not only begin a sentence, and identifiers such as ORD-1042."""
    spans = [(dated.start, dated.end) for dated in dates(text)]
    found = {match.start(): match[0] for match in _IDENTIFIER.finditer(text) if not _inside(match.start(), spans)}
    spans += [(start, start + len(name)) for start, name in found.items()]
    for match in _CAPITAL.finditer(text):
        start, name = match.start(), match[0]
        first, _, rest = name.partition(" ")
        if _SENTENCE_START.search(text[max(0, start - 200) : start]) and not _proper(first, rest):
            start, name = start + len(first) + 1, rest
        name = re.sub(r"['\u2019]s?$", "", name.strip())
        if len(name) > 1 and not any(begin < start + len(name) and start < end for begin, end in spans):
            found.setdefault(start, name)
    return list(dict.fromkeys(name for _, name in sorted(found.items())))


def _inside(at: int, spans: Iterable[tuple[int, int]]) -> bool:
    return any(start <= at < end for start, end in spans)


def _proper(first: str, rest: str) -> bool:
    bare = first.lower()
    if bare in STOP or bare in VERBS or stem(bare) in VERBS:
        return False
    return bool(rest) or (len(first) > 1 and first.isupper())
