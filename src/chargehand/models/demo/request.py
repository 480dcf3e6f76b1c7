"""A request read once: cut into clauses, each with its kind, its words, its periods and what it points back to.

Planner, worker, checks and answer all read these structs; none of them looks at the text again.
"""

import calendar
import re
from datetime import date
from functools import lru_cache
from itertools import pairwise
from typing import Literal, TypeAlias

from msgspec import Struct, structs

from chargehand.text import words as text_words
from chargehand.text.dates import MONTH, find_dates, month_number
from chargehand.text.numbers import NUMBER_WORDS
from chargehand.text.words import split_sentences

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


# --- words


LONGEST = 4_000
"""Characters of a request. A longer one is refused: nothing of it is cut off in silence."""

Kind: TypeAlias = Literal["ask", "draw", "convert", "write", "keep"]

_KINDS: dict[str, Kind] = {
    **dict.fromkeys(("draw", "plot", "visualise", "visualize", "graph", "chart"), "draw"),
    "convert": "convert",
    **dict.fromkeys(("write", "draft", "compose"), "write"),
    **dict.fromkeys(("keep", "save", "store", "remember", "note"), "keep"),
}
ORDERS = word_set(
    """send cancel delete remove order book email call create update change pay refund buy sell translate predict
    forecast recommend suggest invent estimate schedule cook make build plan add put reset install deploy fix
    approve sign post publish upload forward reply rename move close open start stop"""
)
"""Verbs that ask for something to be done, not to be said."""
_IMPERATIVES = (
    frozenset(_KINDS)
    | ORDERS
    | word_set(
        """find show list tell give say report compare check count calculate compute work assess explain measure build
    make plan summarise summarize add put look search analyse analyze describe determine rank name quote review
    get send cancel delete remove order book email conduct gather estimate predict translate recommend suggest
    create update change"""
    )
)
LOOKING = word_set("research find search look tell say list show report")
"""Verbs that ask for what is known."""
_QUESTION_WORDS = word_set("what what's which who whom whose when where why how")
_OPENERS = word_set("is are was were do does did has have had can could will would should may must am in on at for")
_RELATIVE = word_set("which who whose where when")
_LINKS = word_set("and then but also afterwards finally")
_COURTESY = re.compile(
    r"\A(?:(?:hello|hi|hey|please|kindly|thanks|thank you|ok|okay|and|then|also|finally|so|now|first)\b[\s,!.]*|"
    r"(?:can|could|would|will) you(?: please)? (?!help)|i(?:'d| would) like (?:you )?to |"
    r"i want (?:you )?to (?!speak|talk)|"
    r"let me know |do you know )+",
    re.IGNORECASE,
)
_RESULTS = re.compile(r" ?\(the results? of [^()]{1,200}\)")
_ABOUT_FORM = ("Return ", "Earlier this failed:")
_TURN = re.compile(r"\n+Reply as [^\n:]{1,80}: it is your turn")
_REMARK = re.compile(r"(.{1,300}): say so\.?\Z")
_POINTERS = re.compile(
    r"\b(?:it|its|he|she|him|his|her|them|they|their|this|these|those|the same|what you find|"
    r"(?:of|about|with|for) that(?=\s*(?:\Z|[.,;?!])))\b|"
    r"\bthe (?:totals?|sum|results?|findings|figures|answers?|numbers)(?=\s*(?:\Z|[.,;?!]|(?:to|into|as|at|and)\b))",
    re.IGNORECASE,
)
_TOTAL = re.compile(r"\bthe (?:totals?|sum)(?=\s*(?:\Z|[.,;?!]|(?:to|into|as|at|and)\b))", re.IGNORECASE)
_OPEN_QUESTION = re.compile(
    r"(?:what (?:can|should|could|must|do|shall) (?:i|we) do(?: about (?:it|this|that))?|"
    r"what(?: is|'s) wrong(?: with (?:it|this|that))?|"
    r"(?:can|could) you help(?: me| us)?(?: with (?:it|this|that))?|what (?:could be|is) causing (?:this|it|that)|"
    r"what(?: is|'s) the (?:reason|cause)|why(?: is (?:that|this|it))?|what now|any ideas?|"
    r"what does (?:that|it|this) mean)[?.! ]*",
    re.IGNORECASE,
)
_ADD_TO = re.compile(
    r"\A(?:add|put|append|write)\b.{0,300}\b(?:to|in|into|on|onto)\s+(?:the |our |my |your )?\w+",
    re.IGNORECASE,
)
_LINK_BEHIND = re.compile(r"(?:[\s,]+(?:and|then|but|also|plus|finally))+[\s,]*\Z", re.IGNORECASE)
_ABOUT = re.compile(
    r"\b(?:says?|said|states?|tells?|writes?|known?|read|recommends?|advises?|mentions?)\b(?:\s+(?:us|me))?"
    r"(?P<link>\s+(?:about|of|on|regarding|concerning|for))?\b",
    re.IGNORECASE,
)
_SCOPE = re.compile(r"\A(?:in|during|for|on|since)\s+(?:the\s+)?\Z", re.IGNORECASE)
_YEAR = r"(?:19[89]\d|20\d\d)"
_PERIOD = re.compile(
    rf"""
      \b(?P<month>{MONTH})(?!\w)(?!\s+(?:i|we|you|they|he|she|it|the|be|not|a|an)\b)
    | (?:\b(?:in|of|during|since|for|from|to|until|till|before|after|than|and|or|year|between|through|per|by)\s+)
        (?P<year>{_YEAR})(?![\w-]|[.,]\d)
    """,
    re.IGNORECASE | re.VERBOSE,
)


class Period(Struct, frozen=True):
    """A day, a month or a year that is named in a text, how it is written, and where it stands.

    Without a year (`year` is 0) it is of no use until one is found for it; without a month it is a year.
    """

    words: str
    start: int
    end: int
    year: int
    month: int = 0
    day: int = 0

    @property
    def first(self) -> date:
        return date(self.year, self.month or 1, self.day or 1)

    @property
    def last(self) -> date:
        month = self.month or 12
        return date(self.year, month, self.day or calendar.monthrange(self.year, month)[1])

    @property
    def is_day(self) -> bool:
        return self.day > 0

    def of_year(self, year: int) -> "Period":
        """The same period with a year, if it had none."""
        return self if self.year else structs.replace(self, year=year, words=f"{self.words} {year}")


def find_periods(text: str) -> list[Period]:
    """All periods in order. Where one year is said it is that of the others too."""
    periods = [
        Period(match.text.rstrip("."), match.start, match.end, match.year, match.month, match.day)
        for match in find_dates(text)
        if match.other is None and match.day <= calendar.monthrange(match.year or 2024, match.month)[1]
    ]
    for match in _PERIOD.finditer(text):
        name = match.lastgroup or ""
        words = match[name].rstrip(".")
        period = Period(words, match.start(name), match.start(name) + len(words), year=0)
        if name == "year":
            period = structs.replace(period, year=int(words))
        elif words[0].isupper():  # "may" and "march" are no months, or it cannot be told
            period = structs.replace(period, month=month_number(words))
        is_taken = any(other.start < period.end and period.start < other.end for other in periods)
        if not is_taken and (period.year or period.month):
            periods.append(period)
    years = {period.year for period in periods if period.year}
    if len(years) == 1:
        periods = [period.of_year(min(years)) for period in periods]
    return sorted(periods, key=lambda period: period.start)


class RefusedError(Exception):
    """There is no result.

    `may_retry`: the reason offers something that a rewritten task could use. `is_known`: what is asked is understood,
    no other tool needs to be tried. `understood` is how many words were accounted for.
    """

    def __init__(self, reason: str, *, may_retry: bool = False, is_known: bool = False, understood: int = 0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.may_retry = may_retry
        self.is_known = is_known
        self.understood = understood


class Clause(Struct, frozen=True):
    """One thing that is asked for.

    `tokens` are its words outside of `periods`. `points_back` says that it speaks of what an earlier clause brings,
    `wants_total` that it is the total of that.
    """

    text: str
    kind: Kind
    tokens: tuple[Token, ...]
    periods: tuple[Period, ...] = ()
    points_back: bool = False
    wants_total: bool = False

    @property
    def content(self) -> list[Token]:
        """The words that have to be accounted for."""
        return [token for token in self.tokens if not token.is_free]

    @property
    def stems(self) -> frozenset[str]:
        return frozenset(token.stem for token in self.content)

    @property
    def about(self) -> re.Match[str] | None:
        """Where it turns from who says something to what it is about, if it asks what documents say."""
        if self.question not in {"what", "which", ""}:
            return None
        matches = list(_ABOUT.finditer(self.text))
        return next((match for match in matches if match["link"]), matches[0] if matches else None)

    @property
    def question(self) -> str:
        """How many, how much, how long, when, who, where, why, which, what, or nothing."""
        low = [token.text.lower() for token in self.tokens[:6]]
        for at, word in enumerate(low):
            if word == "how" and at + 1 < len(low):
                return f"how {low[at + 1]}"
            if word in _QUESTION_WORDS:
                return word
        return ""

    @property
    def opening(self) -> str:
        """Its first word."""
        return self.tokens[0].text.lower() if self.tokens else ""


class ParsedRequest(Struct, frozen=True):
    """All clauses of a request or of a task, and remarks that a result has to repeat."""

    clauses: tuple[Clause, ...]
    remarks: tuple[str, ...] = ()
    is_too_long: bool = False


def parse_request(text: str) -> ParsedRequest:
    """Read a request, or the instruction of a task."""
    if len(text) > LONGEST:
        return ParsedRequest((), is_too_long=True)
    text = _TURN.split(re.sub(r"[^\S\n]+", " ", text), maxsplit=1)[0]
    clauses: list[Clause] = []
    remarks: list[str] = []
    after_statement = False
    for sentence in split_sentences(_add_years(text), ".?!;"):
        plain = _COURTESY.sub("", sentence).strip(" ,")
        if not plain or sentence.startswith(_ABOUT_FORM):
            continue
        if remark := _REMARK.match(sentence):
            remarks.append(remark[1] + ".")
            continue
        is_open = _OPEN_QUESTION.fullmatch(plain) is not None
        is_question = is_open or plain.endswith("?") or _first_word(plain) in _QUESTION_WORDS
        if after_statement and is_question:  # a statement and the question about it are one thing that is asked for
            statement = clauses.pop().text
            clauses.append(_read_statement(statement if is_open else f"{statement.rstrip('.!; ')}. {plain}"))
            after_statement = False
            continue
        opens_request = _first_word(plain) in _IMPERATIVES | _OPENERS
        after_statement = not is_question and not opens_request and len(plain.split()) > 2
        clauses += [_read_statement(plain)] if after_statement else _split_sentence(plain)
    return ParsedRequest(tuple(clauses), tuple(remarks))


def _add_years(text: str) -> str:
    """The text with a year behind each month whose year is said elsewhere."""
    for period in reversed(find_periods(text)):
        if period.words != text[period.start : period.end].rstrip("."):
            text = text[: period.start] + period.words + text[period.end :]
    return text


def _first_word(text: str) -> str:
    match = re.match(r"[\w']+", text)
    return match[0].lower() if match else ""


def _read_statement(text: str) -> Clause:
    """A statement points at nothing outside."""
    return structs.replace(_read_clause(text), points_back=False)


def _split_sentence(sentence: str) -> list[Clause]:
    """The clauses of one sentence; a period at its beginning, or at the end of questions alike, holds for all."""
    tokens = tokenize(sentence)
    starts = [0]
    starts += [token.start for before, token in pairwise(tokens) if _begins_clause(sentence, before, token)]
    pieces = [sentence[start:end] for start, end in pairwise([*starts, len(sentence)])]
    texts = [text for piece in pieces if (text := _COURTESY.sub("", _LINK_BEHIND.sub("", piece.strip())).strip(" ,;"))]
    shared = _shared_period(sentence, texts)
    clauses: list[Clause] = []
    for text in texts:
        lacks_period = not find_periods(text) and _first_word(text) not in _KINDS
        clause = _read_clause(f"{text.rstrip('?. ')} in {shared}" if shared and lacks_period else text)
        if clause.content or not shared:  # "In May 2026," says nothing more
            clauses.append(clause)
    return clauses


def _begins_clause(sentence: str, before: Token, token: Token) -> bool:
    word = token.text.lower()
    after_link = before.text.lower() in _LINKS
    after_comma = "," in sentence[before.end : token.start]
    if word in _QUESTION_WORDS:
        return after_link or (after_comma and word not in _RELATIVE)
    return word in _IMPERATIVES and (after_link or after_comma)


def _shared_period(sentence: str, texts: list[str]) -> str:
    leading = find_periods(sentence[:60])
    if leading and _SCOPE.match(sentence[: leading[0].start]) and sentence[leading[0].end :].startswith(","):
        return leading[0].words
    openings = {" ".join(text.lower().split()[:2]) for text in texts}
    periods = [find_periods(text) for text in texts]
    are_alike = len(openings) == 1 or all(len(text.split()) <= 3 for text in texts[:-1])  # "how many orders and ..."
    is_trailing = len(texts) > 1 and are_alike and len(periods[-1]) == 1 and not any(periods[:-1])
    return periods[-1][0].words if is_trailing else ""


def _read_clause(text: str) -> Clause:
    plain = _RESULTS.sub("", text).strip()
    periods = tuple(find_periods(plain))
    tokens = [
        token for token in tokenize(plain) if not any(period.start <= token.start < period.end for period in periods)
    ]
    kind = _KINDS.get(_first_word(plain), "keep" if _ADD_TO.match(plain) else "ask")
    return Clause(
        text=plain,
        kind=kind,
        tokens=tuple(tokens),
        periods=periods,
        points_back=_RESULTS.search(text) is not None or _POINTERS.search(plain) is not None,
        wants_total=_TOTAL.search(plain) is not None,
    )


def without_returns(instruction: str) -> str:
    """A task without the sentence that says what to return."""
    text = instruction.strip()
    at = text.rfind("Return ")
    is_last = at > 0 and text.endswith(".") and "." not in text[at:-1]
    return text[:at].rstrip() if is_last else text
