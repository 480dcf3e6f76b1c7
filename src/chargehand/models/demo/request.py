"""A request read once: cut into clauses, each with its kind, its words, its periods and what it points back to.

Planner, worker, checks and answer all read these structs; none of them looks at the text again.
"""

import re
from typing import Literal, TypeAlias

from msgspec import Struct, structs

from chargehand.models.demo.dates import Period, find_periods
from chargehand.models.demo.words import Token, tokenize, word_set
from chargehand.text.sentences import split_sentences

LONGEST = 4_000
"""Characters of a request. A longer one is refused: nothing of it is cut off in silence."""

Kind: TypeAlias = Literal["ask", "draw", "convert", "write", "keep"]

_KINDS: dict[str, Kind] = {
    "draw": "draw",
    "plot": "draw",
    "visualise": "draw",
    "visualize": "draw",
    "graph": "draw",
    "chart": "draw",
    "convert": "convert",
    "write": "write",
    "draft": "write",
    "compose": "write",
    "keep": "keep",
    "save": "keep",
    "store": "keep",
    "remember": "keep",
    "note": "keep",
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
_LINKS = word_set("and then but also plus afterwards finally")
_COURTESY = re.compile(
    r"\A(?:(?:hello|hi|hey|please|kindly|thanks|thank you|ok|okay|and|then|also|finally|so|now|first)\b[\s,!.]*|"
    r"(?:can|could|would|will) you(?: please)? (?!help)|i(?:'d| would) like (?:you )?to |"
    r"i want (?:you )?to (?!speak|talk)|"
    r"let me know |do you know )+",
    re.IGNORECASE,
)
_RESULTS = re.compile(r" ?\(the results? of ([^()]{1,200})\)")
_TASK_ID = re.compile(r"\bt\d+\b")
_ABOUT_FORM = ("Return ", "Earlier this failed:")
_TURN = re.compile(r"\n+Reply as [^\n:]{1,80}: it is your turn")
_REMARK = re.compile(r"(.{1,300}): say so\.?\Z")
_POINTERS = re.compile(
    r"\b(?:it|its|them|they|their|this|these|those|the same|(?:of|about|with|for) that(?=\s*(?:\Z|[.,;?!])))\b|"
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
    r"\A(?:add|put|append|write)\b.{0,300}\b(?:to|in|into|on|onto)\s+(?:the |our |my |your )?(?P<place>\w+)",
    re.IGNORECASE,
)
_SCOPE = re.compile(r"\A(?:in|during|for|on|since)\s+(?:the\s+)?\Z", re.IGNORECASE)


class Clause(Struct, frozen=True):
    """One thing that is asked for.

    `tokens` are its words outside of `periods`. `points_back` says that it speaks of what an earlier clause brings,
    `wants_total` that it is the total of that. `inputs` are ids of tasks whose results are named in a task's text.
    """

    text: str
    kind: Kind
    tokens: tuple[Token, ...]
    periods: tuple[Period, ...] = ()
    points_back: bool = False
    wants_total: bool = False
    inputs: tuple[str, ...] = ()

    @property
    def content(self) -> list[Token]:
        """The words that have to be accounted for."""
        return [token for token in self.tokens if not token.is_free]

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
    def looks_up(self) -> bool:
        """Whether it asks for something that may be known already."""
        return bool(self.question) or self.opening in LOOKING

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
    text = re.sub(r"[^\S\n]+", " ", text)
    text = _with_years(_TURN.split(text, maxsplit=1)[0])
    clauses: list[Clause] = []
    remarks: list[str] = []
    statement = ""
    for sentence in split_sentences(text, ".?!;"):
        if not sentence or sentence.startswith(_ABOUT_FORM):
            continue
        if remark := _REMARK.match(sentence):
            remarks.append(remark[1] + ".")
            continue
        plain = _COURTESY.sub("", sentence).strip(" ,")
        if statement and (_is_question(plain) or _OPEN_QUESTION.fullmatch(plain)):
            clauses.append(_joined(statement, plain))
            statement = ""
            continue
        if statement:
            clauses.append(_joined(statement, ""))
            statement = ""
        if _is_statement(plain):
            statement = plain
        elif plain:
            clauses.extend(_split(plain, clauses))
    if statement:
        clauses.append(_joined(statement, ""))
    return ParsedRequest(tuple(clauses), tuple(remarks))


def _with_years(text: str) -> str:
    """The text with a year behind each month whose year is said elsewhere."""
    for period in reversed(find_periods(text)):
        if period.words != text[period.start : period.end].rstrip("."):
            text = text[: period.start] + period.words + text[period.end :]
    return text


def _first_word(text: str) -> str:
    found = re.match(r"[\w']+", text)
    return found[0].lower() if found else ""


def _is_question(text: str) -> bool:
    return _first_word(text) in _QUESTION_WORDS or text.endswith("?")


def _is_statement(text: str) -> bool:
    first = _first_word(text)
    return not _is_question(text) and first not in _IMPERATIVES and first not in _OPENERS and len(text.split()) > 2


def _joined(statement: str, question: str) -> Clause:
    """A statement and the question about it are one thing that is asked for; it points at nothing outside."""
    if question and not _OPEN_QUESTION.fullmatch(question):
        statement = f"{statement.rstrip('.!; ')}. {question}"
    return structs.replace(_clause(statement), points_back=False)


def _split(sentence: str, before: list[Clause]) -> list[Clause]:
    """The clauses of one sentence; a period at its beginning holds for all of them."""
    tokens = tokenize(sentence)
    starts = [tokens[at].start for at in range(1, len(tokens)) if _begins_clause(sentence, tokens, at)]
    cuts = [0, *starts]
    pieces = [sentence[start:end] for start, end in zip(cuts, [*cuts[1:], len(sentence)], strict=True)]
    texts = [text for piece in pieces if (text := _trimmed(piece))]
    scope = _leading_period(sentence)
    if not scope and (shared := _trailing_period(texts)):
        texts = [f"{text.rstrip('?. ')} in {shared}" for text in texts[:-1]] + texts[-1:]
    found: list[Clause] = []
    for text in texts:
        scoped = text
        if scope and found and not find_periods(text) and _KINDS.get(_first_word(text)) is None:
            scoped = f"{text.rstrip('?. ')} in {scope}"
        found.append(_same_again(scoped, [*before, *found]) or _clause(scoped))
    return found


def _begins_clause(sentence: str, tokens: list[Token], at: int) -> bool:
    word = tokens[at].text.lower()
    if word not in _IMPERATIVES and word not in _QUESTION_WORDS:
        return False
    previous = tokens[at - 1]
    gap = sentence[previous.end : tokens[at].start]
    if word in _QUESTION_WORDS and previous.text.lower() in _LINKS:
        return True
    if word in _QUESTION_WORDS:
        return "," in gap and word not in {"which", "who", "whose", "where", "when"}
    return previous.text.lower() in _LINKS or "," in gap


def _trimmed(piece: str) -> str:
    text = re.sub(r"(?:[\s,]+(?:and|then|but|also|plus|finally))+[\s,]*\Z", "", piece.strip(), flags=re.IGNORECASE)
    return _COURTESY.sub("", text).strip(" ,;")


def _leading_period(sentence: str) -> str:
    periods = find_periods(sentence[:60])
    if periods and _SCOPE.match(sentence[: periods[0].start]) and sentence[periods[0].end :].startswith(","):
        return periods[0].words
    return ""


def _trailing_period(texts: list[str]) -> str:
    """The period of the last of several questions that begin alike, where the others have none."""
    openings = {" ".join(text.lower().split()[:2]) for text in texts}
    if len(texts) < 2 or len(openings) > 1:
        return ""
    periods = [find_periods(text) for text in texts]
    return periods[-1][0].words if len(periods[-1]) == 1 and not any(periods[:-1]) else ""


def _same_again(text: str, before: list[Clause]) -> Clause | None:
    """Another time for the last question: "And in 2025?" asks the last question for another time."""
    clause = _clause(text)
    if clause.content or len(clause.periods) != 1 or clause.kind != "ask" or not before:
        return None
    last = before[-1]
    if last.kind != "ask" or len(last.periods) != 1:
        return None
    old = last.periods[0]
    return _clause(last.text[: old.start] + clause.periods[0].words + last.text[old.end :])


def _clause(text: str) -> Clause:
    inputs = tuple(_TASK_ID.findall(" ".join(match[1] for match in _RESULTS.finditer(text))))
    text = _RESULTS.sub("", text).strip()
    periods = tuple(find_periods(text))
    tokens = tuple(
        token for token in tokenize(text) if not any(period.start <= token.start < period.end for period in periods)
    )
    kind = _KINDS.get(_first_word(text), "ask")
    if kind == "ask" and _ADD_TO.match(text):
        kind = "keep"
    return Clause(
        text,
        kind,
        tokens,
        periods,
        points_back=bool(inputs) or _POINTERS.search(text) is not None,
        wants_total=_TOTAL.search(text) is not None,
        inputs=inputs,
    )
