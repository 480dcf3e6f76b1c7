"""A request read once: cut into clauses, each with its kind, its words, its periods and what it points back to.

Planner, worker and answer all read these structs; none of them looks at the text again.
"""

import re
from collections.abc import Set as AbstractSet
from itertools import pairwise
from typing import Literal, TypeAlias

from msgspec import Struct, structs

from chargehand.models.demo.words import Token, content_stems, stem_set, tokenize, word_set
from chargehand.text.dates import Date, find_periods
from chargehand.text.words import join_words, split_sentences

LONGEST = 4_000
"""Characters of a request. A longer one is refused: nothing of it is cut off in silence."""

OFFERED_DAY = re.compile(r"(?:nearest|closest|did you mean)[^;?\n]{0,60}?(?P<day>\d{4}-\d\d-\d\d)", re.IGNORECASE)
"""How an error names a day that a rewritten task could use."""

MENTIONS_MODEL = "A language model can do more: see docs/first-model.md."

Kind: TypeAlias = Literal["ask", "draw", "convert", "keep"]

_KINDS: dict[str, Kind] = {
    **dict.fromkeys(("draw", "plot", "visualise", "visualize", "graph", "chart"), "draw"),
    "convert": "convert",
    **dict.fromkeys(("keep", "save", "store", "remember", "note"), "keep"),
}
ORDERS = word_set(
    """send cancel delete remove order book email call create update change pay refund buy sell translate predict
    forecast recommend suggest invent estimate schedule cook make build plan add put reset install deploy fix
    approve sign post publish upload forward reply rename move close open start stop write draft
    compose"""
)
"""Verbs that ask for something to be done, not to be said."""
_IMPERATIVES = (
    frozenset(_KINDS)
    | ORDERS
    | word_set(
        """find show list tell give say report compare check count calculate compute work assess explain measure
    summarise summarize look search analyse analyze describe determine rank name quote review get conduct gather"""
    )
)
QUESTION_WORDS = word_set("what what's which who who's whom whose when where why how")
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
_BEFORE_END = r"(?=\s*(?:\Z|[.,;?!]|(?:to|into|as|at|and)\b))"
_POINTERS = re.compile(
    r"\b(?:it|its|he|she|him|his|her|them|they|their|this|these|those|the same|what you find|"
    r"(?:of|about|with|for) that(?=\s*(?:\Z|[.,;?!])))\b|"
    rf"\bthe (?:totals?|sum|results?|findings|figures|answers?|numbers){_BEFORE_END}",
    re.IGNORECASE,
)
_TOTAL = re.compile(rf"\bthe (?:totals?|sum){_BEFORE_END}", re.IGNORECASE)
_OPEN_WORDS = stem_set("wrong help reason cause causing ideas any now mean possible")
"""Words of questions that ask no more than what to make of a statement: "What is wrong?"."""
_ADD_TO = re.compile(
    r"\A(?:add|put|append)\b.{0,300}\b(?:to|in|into|on|onto)\s+(?:the |our |my |your )?\w+", re.IGNORECASE
)
_LINK_BEHIND = re.compile(r"(?:[\s,]+(?:and|then|but|also|plus|finally))+[\s,]*\Z", re.IGNORECASE)
_ABOUT = re.compile(
    r"\b(?:says?|said|states?|tells?|writes?|known?|read|recommends?|advises?|mentions?)\b(?:\s+(?:us|me))?"
    r"(?P<link>\s+(?:about|of|on|regarding|concerning|for))?\b",
    re.IGNORECASE,
)


class RefusedError(Exception):
    """There is no result, and why.

    `may_retry`: the reason offers something that a rewritten task could use. `understood` is how many words of the
    clause were accounted for: the refusal that understood most is the one that is told. `is_own` is false where a tool
    or a person refused, not the rules.
    """

    def __init__(self, reason: str, *, may_retry: bool = False, understood: int = 0, is_own: bool = True) -> None:
        super().__init__(reason)
        self.reason = reason
        self.may_retry = may_retry
        self.understood = understood
        self.is_own = is_own


class Clause(Struct, frozen=True):
    """One thing that is asked for.

    `tokens` are its words outside of `periods`. `points_back` says that it speaks of what an earlier clause brings,
    `wants_total` that it is the total of that.
    """

    text: str
    kind: Kind
    tokens: tuple[Token, ...]
    periods: tuple[Date, ...] = ()
    points_back: bool = False
    wants_total: bool = False
    beside: tuple["Clause", ...] = ()
    """Questions before it and in the same sentence: what they name may hold for it too."""

    @property
    def content(self) -> list[Token]:
        """The words that have to be accounted for."""
        return [token for token in self.tokens if not token.is_free]

    @property
    def stems(self) -> frozenset[str]:
        return frozenset(token.key for token in self.content)

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
        words = [token.low for token in self.tokens[:6]]
        for at, word in enumerate(words):
            if word == "how" and at + 1 < len(words):
                return f"how {words[at + 1]}"
            if word in QUESTION_WORDS:
                return word.removesuffix("'s")
        return ""

    @property
    def period_beside(self) -> str:
        """A period that may hold for this clause too."""
        periods = [period.text for clause in self.beside for period in clause.periods]
        return periods[0] if periods and not self.periods else ""

    @property
    def opening(self) -> str:
        """Its first word."""
        return self.tokens[0].low if self.tokens else ""


class Account:
    """The honesty rule: a clause is served only by a call that accounts for every word, number, date and name of it.

    Each way to serve a clause keeps an account: which words the call takes as arguments, and which ones the tool, the
    tables or the passage say themselves. What is left in the end makes the clause a gap.
    """

    def __init__(self, clause: Clause) -> None:
        self.clause = clause
        self.used: set[int] = set()
        """The places of the words that are accounted for."""
        self.used_periods: set[Date] = set()

    def use_span(self, start: int, end: int) -> None:
        """Account for all words between two places of the text."""
        self.used.update(at for at, token in enumerate(self.clause.tokens) if start <= token.start < end)

    def use_words(self, keys: AbstractSet[str]) -> None:
        """Account for all words with these keys."""
        self.used.update(at for at, token in enumerate(self.clause.tokens) if token.key in keys)

    @property
    def open_words(self) -> dict[int, Token]:
        """The words that are not accounted for yet, by their places; little words say nothing."""
        tokens = enumerate(self.clause.tokens)
        return {at: token for at, token in tokens if at not in self.used and not token.is_free}

    @property
    def understood(self) -> int:
        """How many words are accounted for."""
        return len(self.clause.content) - len(self.open_words)

    @property
    def leftover(self) -> list[str]:
        """Words and periods that are not accounted for."""
        words = [token.text for token in self.open_words.values()]
        return words + [period.text for period in self.clause.periods if period not in self.used_periods]

    def settle(self, problem: str) -> None:
        """RefusedError with the problem and the words it is about, unless everything is accounted for."""
        if self.leftover:
            raise RefusedError(
                f"{problem} {join_words([repr(words) for words in self.leftover])}", understood=self.understood
            )


class ParsedRequest(Struct, frozen=True):
    """All clauses of a request or of a task, and remarks that a result has to repeat."""

    clauses: tuple[Clause, ...]
    remarks: tuple[str, ...] = ()


def parse_request(text: str) -> ParsedRequest:
    """Read a request, or the instruction of a task; RefusedError where it is too long."""
    if len(text) > LONGEST:
        raise RefusedError(f"the request is longer than {LONGEST:,} characters")
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
        is_open = content_stems(plain) <= _OPEN_WORDS
        is_question = is_open or plain.endswith("?") or _first_word(plain) in QUESTION_WORDS
        if after_statement and is_question:  # a statement and the question about it are one thing that is asked for
            statement = clauses.pop().text
            whole = statement if is_open else f"{statement.rstrip('.!; ')}. {plain}"
            clauses.append(_read_clause(whole, is_statement=True))
            after_statement = False
            continue
        opens_request = _first_word(plain) in _IMPERATIVES | _OPENERS
        after_statement = not is_question and not opens_request and len(plain.split()) > 2
        if after_statement:
            clauses.append(_read_clause(plain, is_statement=True))
        else:
            sentence_clauses = _split_sentence(plain)
            asked = [clause for clause in (*clauses, *sentence_clauses) if clause.kind == "ask"]
            for clause in sentence_clauses:
                beside = tuple(other for other in asked if other.text != clause.text)
                clauses.append(structs.replace(clause, beside=beside))
    return ParsedRequest(tuple(clauses), tuple(remarks))


def _add_years(text: str) -> str:
    """The text with a year behind each month whose year is said elsewhere."""
    for period in reversed(find_periods(text)):
        if period.text != text[period.start : period.end].rstrip("."):
            text = text[: period.start] + period.text + text[period.end :]
    return text


def _first_word(text: str) -> str:
    match = re.match(r"[\w']+", text)
    return match[0].lower() if match else ""


def _split_sentence(sentence: str) -> list[Clause]:
    """The clauses of one sentence; "In May 2026," belongs to what follows it."""
    tokens = tokenize(sentence)
    starts = [0]
    for before, token in pairwise(tokens):
        if _begins_clause(sentence, before, token) and _read_clause(sentence[starts[-1] : before.end]).content:
            starts.append(token.start)
    pieces = [sentence[start:end] for start, end in pairwise([*starts, len(sentence)])]
    texts = [_COURTESY.sub("", _LINK_BEHIND.sub("", piece.strip())).strip(" ,;") for piece in pieces]
    return [_read_clause(text) for text in texts if text]


def _begins_clause(sentence: str, before: Token, token: Token) -> bool:
    after_link = before.low in _LINKS
    after_comma = "," in sentence[before.end : token.start]
    if token.low in QUESTION_WORDS:
        return after_link or (after_comma and token.low not in _RELATIVE)
    return token.low in _IMPERATIVES and (after_link or after_comma)


def _read_clause(text: str, *, is_statement: bool = False) -> Clause:
    """One clause. A statement points at nothing outside."""
    plain = _RESULTS.sub("", text).strip()
    periods = tuple(find_periods(plain))
    tokens = [
        token for token in tokenize(plain) if not any(period.start <= token.start < period.end for period in periods)
    ]
    is_of_results = _RESULTS.search(text) is not None or _POINTERS.search(plain) is not None
    return Clause(
        text=plain,
        kind=_KINDS.get(_first_word(plain), "keep" if _ADD_TO.match(plain) else "ask"),
        tokens=tuple(tokens),
        periods=periods,
        points_back=is_of_results and not is_statement,
        wants_total=_TOTAL.search(plain) is not None,
    )


def without_returns(instruction: str) -> str:
    """A task without the sentence that says what to return."""
    text = instruction.strip()
    at = text.rfind("Return ")
    is_last = at > 0 and text.endswith(".") and "." not in text[at:-1]
    return text[:at].rstrip() if is_last else text
