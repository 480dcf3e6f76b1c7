"""A request read once: cut into clauses, each with its kind, its words, its periods and what it points back to.

Planner, worker and answer all read these structs; none of them looks at the text again.
"""

import re
from itertools import pairwise
from typing import Literal, TypeAlias

from msgspec import Struct, structs

from chargehand.models.demo.words import Token, content_stems, stem_set, tokenize, word_set
from chargehand.text.dates import Date, find_periods
from chargehand.text.words import split_sentences

LONGEST = 4_000
"""Characters of a request. A longer one is refused: nothing of it is cut off in silence."""

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
_QUESTION_WORDS = word_set("what what's which who who's whom whose when where why how")
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
_SCOPE = re.compile(r"\A(?:in|during|for|on|since)\s+(?:the\s+)?\Z", re.IGNORECASE)


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
    """Questions before it, and those behind it in the same sentence: what they name may hold for it too."""

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
            if word in _QUESTION_WORDS:
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
        is_question = is_open or plain.endswith("?") or _first_word(plain) in _QUESTION_WORDS
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
            clauses += _with_clauses_beside(clauses, _split_sentence(plain))
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
    """The clauses of one sentence; a period at its beginning holds for all."""
    tokens = tokenize(sentence)
    starts = [0]
    starts += [token.start for before, token in pairwise(tokens) if _begins_clause(sentence, before, token)]
    pieces = [sentence[start:end] for start, end in pairwise([*starts, len(sentence)])]
    texts = [_COURTESY.sub("", _LINK_BEHIND.sub("", piece.strip())).strip(" ,;") for piece in pieces]
    texts = [text for text in texts if text]
    shared = _shared_period(sentence)
    clauses: list[Clause] = []
    for text in texts:
        lacks_period = not find_periods(text) and _first_word(text) not in _KINDS
        clause = _read_clause(f"{text.rstrip('?. ')} in {shared}" if shared and lacks_period else text)
        if clause.content or not shared:  # "In May 2026," says nothing more
            clauses.append(clause)
    return clauses


def _with_clauses_beside(before: list[Clause], sentence: list[Clause]) -> list[Clause]:
    """The clauses of a sentence, each with the questions of which something may hold for it too."""
    asked = [structs.replace(clause, beside=()) for clause in before if clause.kind == "ask"]
    return [
        structs.replace(
            clause, beside=(*asked, *(other for other in sentence if other is not clause and other.kind == "ask"))
        )
        for clause in sentence
    ]


def _begins_clause(sentence: str, before: Token, token: Token) -> bool:
    after_link = before.low in _LINKS
    after_comma = "," in sentence[before.end : token.start]
    if token.low in _QUESTION_WORDS:
        return after_link or (after_comma and token.low not in _RELATIVE)
    return token.low in _IMPERATIVES and (after_link or after_comma)


def _shared_period(sentence: str) -> str:
    """The period at the beginning ("In May 2026, ...")."""
    leading = find_periods(sentence[:60])
    if leading and _SCOPE.match(sentence[: leading[0].start]) and sentence[leading[0].end :].startswith(","):
        return leading[0].text
    return ""


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
