"""Words of a text: tokens, stems, stop words, quoted phrases, its language, its sentences, and ranking (BM25)."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from functools import lru_cache

WORD = re.compile(r"[^\W_]+")
"""Letters and digits that stand together."""

LETTERS = re.compile(r"[^\W\d_]+")
"""Letters that stand together."""

_TOKEN = re.compile(r"\d{4}-\d\d-\d\d|\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?|[^\W\d_]+(?:['\u2019][^\W\d_]+)?")
_CAMEL_CASE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_CONTRACTION = re.compile(r"['\u2019](?:s|re|ve|ll|d|m)$")
QUOTED = re.compile(
    r'(?<!\w)"(?P<straight>[^"\n]{1,1000})"'
    r"|\u201c(?P<curved>[^\u201c\u201d\n]{1,1000})\u201d"
    r"|\u201e(?P<low>[^\u201c\u201d\u201e\n]{1,1000})[\u201c\u201d]"
    r"|\u00ab(?P<angled>[^\u00ab\u00bb\n]{1,1000})\u00bb"
)
"""What stands in double quotation marks of any kind: one of its groups is the phrase."""

_VOWEL = re.compile(r"[aeiouy]")

_FUNCTION_WORDS = """
    a am an and are as at be been being but by did do does for from had has have he her him his i in into is it its me
    my of on or our she than that the their them there they this to was we were which who whom whose with you your
"""
_QUESTION_WORDS = """
    about above after again all also any before below between both can could doing done down each either else every few
    further get give given got having here how if itself just know let like make many may might more much must need no
    nor not now off once only other out over own per please same shall should show so some such tell then these thing
    those through too under until up us use used using very want well what when where while why will within without
    would yes yet
    answer hello help hi kindly ok question said say says thank thanks whether
    aren't can't couldn't didn't doesn't don't hadn't hasn't haven't isn't shouldn't wasn't weren't won't wouldn't
    cant didnt doesnt dont isnt thats wasnt whats wont
"""

FUNCTION_WORDS = frozenset(_FUNCTION_WORDS.split())
"""Articles, pronouns, prepositions and auxiliary verbs: they say nothing about the subject of a text."""

STOP_WORDS = FUNCTION_WORDS | frozenset(_QUESTION_WORDS.split())
"""Words that say nothing about what a request is about."""

_NO_ADVERBS = frozenset({"supply", "family", "assembly", "multiply", "monopoly", "anomaly", "butterfly"})
_DERIVED_ENDINGS = (("ational", "ate"), ("ization", "ize"), ("fulness", "ful"), ("ingly", ""), ("edly", ""))


def split_words(text: str) -> list[str]:
    """The words of a text in lower case; every sign between them separates."""
    return WORD.findall(text.casefold())


def tokenize(text: str) -> list[str]:
    """The words and numbers of a text in lower case; snake_case and camelCase come apart, numbers stay whole."""
    spaced = _CAMEL_CASE.sub(" ", text.replace("_", " "))
    return [_normalize(token) for token in _TOKEN.findall(spaced)]


def _normalize(token: str) -> str:
    if token[0].isdigit():
        return token.replace(",", "")
    return _CONTRACTION.sub("", token.casefold()).replace("\u2019", "'")


def content_words(text: str) -> list[str]:
    """The tokens of a text without stop words."""
    return [token for token in tokenize(text) if token not in STOP_WORDS and (len(token) > 1 or token.isdigit())]


def stems(text: str) -> list[str]:
    """The stems of a text's content words, in order."""
    return [stem(word) for word in content_words(text)]


def words_by_stem(text: str) -> dict[str, str]:
    """For each stem of a text the first word that has it: people read words, not stems."""
    return {stem(word): word for word in reversed(tokenize(text))}


def singular(word: str) -> str:
    """A lower-case English noun in the singular; other words nearly as they are."""
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "shes", "ches", "xes")):
        return word[:-2]
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


@lru_cache(maxsize=8192)
def stem(word: str) -> str:
    """A lower-case word without the commonest English endings; words with the same stem may differ in meaning."""
    if len(word) <= 3 or not word.isalpha():
        return word
    word = _strip_verb_ending(_replace_derived_ending(singular(word)))
    if word.endswith(("tion", "sion")) and len(word) > 7:
        word = word[:-3]
    if word.endswith("ly") and len(word) > 5 and word not in _NO_ADVERBS:
        word = word[:-2]
    return word[:-1] if word.endswith("e") and len(word) > 3 else word


def _replace_derived_ending(word: str) -> str:
    for ending, replacement in _DERIVED_ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word.removesuffix(ending) + replacement
    return word


def _strip_verb_ending(word: str) -> str:
    for ending in ("ing", "ed"):
        root = word.removesuffix(ending)
        if root != word and len(root) >= 3 and _VOWEL.search(root):
            is_doubled = root[-1] == root[-2] and root[-1] not in "lsz"  # planned: plan
            return root[:-1] if is_doubled else root
    return word


def quoted_phrases(text: str) -> list[str]:
    """What stands in double quotation marks of any kind, in order."""
    phrases = (next(filter(None, match.groups())).strip() for match in QUOTED.finditer(text))
    return [phrase for phrase in phrases if phrase]


def shorten(text: str, length: int) -> str:
    """At most so many characters on one line."""
    flat = " ".join(text.split())
    return flat if len(flat) <= length else flat[: length - 1].rstrip() + "\u2026"


def join_words(words: Sequence[str], link: str = "and") -> str:
    """a, b and c."""
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} {link} {words[-1]}"


# --- language

# The commonest words of German, French, Spanish, Italian, Portuguese, Dutch, Polish and Turkish, without English ones.
_OTHER_WORDS = """
    aber auch auf aus bei beim bis das dem den der des dich die ein eine einem einen einer fragen fuer haben ich ihr
    im ist kann kein keine mein meine mich mit nach nicht nur oder ohne sich sie sind sowie ueber um und uns unser
    unter vom von vor wann warum was wenn wer werden wie wir wird wo zu zum zur
    au aux avec ce ces cette chez comment dans depuis des dont du elle elles en est et il ils je la le les leur leurs
    lui ma mais mes mon nous ou par pas plus pour puis quand que quel quelle qui sa sans ses son sont sur ta tous un
    une vos votre vous
    al como con cuando del donde el ella ellos esta este hay las los mas mi nos nosotros para pero por porque puedo
    quiere quiero se sin sobre su sus tiene una uno usted y
    alla alle anche che chi ci come con cosa da dal dalla degli dei del della delle di dove gli ho il io lo loro ma
    mio mia nei nel nella non per posso quando questo sono su sugli sul sulla tra una voglio
    ao aos ate com da das de do dos ela eles em essa esse eu foi isso mais meu minha muito na nao nas no nos num o os
    ou para pela pelo por quem se sem seu sua tem uma voce
    aan bij dat de deze dit een en er heb heeft het hij hoe ik ik je kan maar met mij mijn naar niet nog of om onze
    ook op over te uit van voor waar wat we wie wij zij zijn
    ale czy dla do gdzie jak jest lub mam mnie na nie od po przez sie to w z za ze
    bir bu da de icin ile ne nasil ve veya
"""
_OTHERS = frozenset(_OTHER_WORDS.split()) - STOP_WORDS


def is_english(texts: Iterable[str]) -> bool:
    """Whether texts are English by their commonest words; false only where other languages clearly prevail."""
    english = others = 0
    for text in texts:
        for word in LETTERS.findall(text.lower()):
            if word in STOP_WORDS:
                english += 1
            elif word in _OTHERS or not word.isascii():
                others += 1
    return others < 2 or others <= english


# --- sentences


_BREAK = re.compile(r"(?P<mark>[.!?;:])\s+|\n\s*")
_ABBREVIATIONS = "approx bzw ca cf dr e.g i.e incl inkl mr mrs ms prof st vs z z.b"
_ABBREVIATED = frozenset(_ABBREVIATIONS.split())
_BEFORE_DIGITS = "fig no nr p jan feb mar apr jun jul aug sep sept oct okt nov dec dez"
_ABBREVIATED_BEFORE_DIGITS = frozenset(_BEFORE_DIGITS.split())
_LONGEST_ABBREVIATION = 7
_MONTH = re.compile(
    r"(?:jan|feb|mar|mär|apr|may|mai|jun|jul|aug|sep|oct|okt|nov|dec|dez)[^\W\d_]{0,6}\b", re.IGNORECASE
)


def split_sentences(text: str, marks: str = ".!?") -> list[str]:
    """The sentences of a text, without the space around them; a line break always ends one.

    `marks` are the signs that end a sentence where space follows. An abbreviation or a numbered day (3. May) does not.
    """
    sentences = (text[start:end].strip() for start, end in find_sentences(text, marks))
    return [sentence for sentence in sentences if sentence]


def find_sentences(text: str, marks: str = ".!?") -> Iterator[tuple[int, int]]:
    """Where the sentences of a text begin and end."""
    start = 0
    for match in _BREAK.finditer(text):
        mark = match["mark"]
        is_line_end = "\n" in match[0]
        if not is_line_end and (mark not in marks or (mark == "." and not _ends_sentence(text, match))):
            continue
        yield start, match.start() + (mark is not None)
        start = match.end()
    if start < len(text):
        yield start, len(text)


def _ends_sentence(text: str, match: re.Match[str]) -> bool:
    """Whether a full stop with space behind it ends a sentence."""
    before = text[max(0, match.start() - _LONGEST_ABBREVIATION) : match.start()].split()
    last_word = before[-1].lstrip("([").casefold() if before else ""
    if last_word in _ABBREVIATED:
        return False
    if last_word in _ABBREVIATED_BEFORE_DIGITS and text[match.end() : match.end() + 1].isdigit():
        return False
    is_numbered_day = last_word.isdigit() and len(last_word) <= 2 and _MONTH.match(text, match.end())
    return not is_numbered_day


# --- BM25


_SATURATION = 1.5  # k1: how soon another occurrence of a term stops to count
_LENGTH_WEIGHT = 0.75  # b: how much a long document is held to be less about each of its terms


class BM25:
    """An index of documents, each given as its terms and known by its number. Made once, then asked."""

    def __init__(self, documents: Iterable[Sequence[str]]) -> None:
        self._lengths: list[int] = []
        self._postings: dict[str, list[tuple[int, int]]] = {}
        for number, terms in enumerate(documents):
            self._lengths.append(max(1, len(terms)))
            for term, count in Counter(terms).items():
                self._postings.setdefault(term, []).append((number, count))
        self._average_length = sum(self._lengths) / len(self._lengths) if self._lengths else 1.0

    @property
    def terms(self) -> list[str]:
        """Every term of the documents, the most common first."""
        return sorted(self._postings, key=lambda term: (-len(self._postings[term]), term))

    def holders(self, term: str) -> list[int]:
        """The documents that hold a term."""
        return [number for number, _ in self._postings.get(term, ())]

    def rarity(self, term: str) -> float:
        """How much a term tells: the fewer documents hold it, the more (inverse document frequency)."""
        holders = len(self._postings.get(term, ()))
        return math.log(1 + (len(self._lengths) - holders + 0.5) / (holders + 0.5))

    def scores(self, query: Iterable[str]) -> dict[int, float]:
        """The score of every document that holds a term of the query."""
        scores: dict[int, float] = {}
        for term in dict.fromkeys(query):
            rarity = self.rarity(term)
            for number, count in self._postings.get(term, ()):
                relative_length = self._lengths[number] / self._average_length
                penalty = _SATURATION * (1 - _LENGTH_WEIGHT + _LENGTH_WEIGHT * relative_length)
                scores[number] = scores.get(number, 0.0) + rarity * count * (_SATURATION + 1) / (count + penalty)
        return scores


# --- names that are not known: the nearest ones that are, and the end of the sentence that says

_SIMILARITY = 0.5
_MAX_LENGTH = 100  # comparing takes time that grows with the square of it
_MAX_LISTED = 16


def nearest_names(name: str, names: Iterable[str], *, count: int = 3, similarity: float = _SIMILARITY) -> list[str]:
    """The names that look most like one, the nearest first; `similarity` is how alike they must be, from 0 to 1."""
    return get_close_matches(name[:_MAX_LENGTH], list(names), count, similarity)


def did_you_mean(name: str, names: Iterable[str], otherwise: str = "") -> str:
    """The end of a sentence on a name that is not known: which one may be meant; else `otherwise`, or all there are."""
    candidates = list(dict.fromkeys(names))
    near = nearest_names(name, candidates)
    if near:
        return f"did you mean {' or '.join(map(repr, near))}?"
    return otherwise or f"there are {listed(candidates) or 'none'}"


def printable_line(text: str, longest: int) -> str:
    """Return the text on one line without control characters, cut to so many characters."""
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def listed(names: Iterable[str], count: int = _MAX_LISTED) -> str:
    """Names in a row, cut where there are too many of them."""
    candidates = list(names)
    return ", ".join(candidates[:count]) + (f" and {len(candidates) - count} more" if len(candidates) > count else "")
