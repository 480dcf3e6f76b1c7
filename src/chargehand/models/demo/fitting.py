"""Which tool of which worker serves a clause. A tool fits only if every word of the clause is accounted for."""

from functools import lru_cache

from msgspec import Struct

from chargehand.models.demo.arithmetic import read_arithmetic
from chargehand.models.demo.memory import SEARCH, archive_question, asks_archive
from chargehand.models.demo.passages import asks_for_text, search_words
from chargehand.models.demo.request import ORDERS, Clause
from chargehand.models.demo.table_query import Lookup, Query, Unread, read_query
from chargehand.models.demo.tools import AMOUNTS, Filled, ToolCard, fill_arguments, tool_words
from chargehand.models.demo.words import (
    Token,
    content_stems,
    has_negative_number,
    join_words,
    stem,
    stems,
    tokenize,
    word_set,
)
from chargehand.models.subject import WorkerCard

_REPORTING = word_set("find show list tell give say report compare name get")
_IN_NAME = 3.0
_IN_HEADLINE = 2.0
_IN_DETAILS = 1.0
_ON_CARD = 0.5
_ARGUMENT = 1.0
_FITS = 2.0
_TABLE = 4.0
_TABLE_AFTER_LOOKUP = 2.5
_MOST_NAMES = 2


NEGATIVE = "negative numbers are not read"


class Fit(Struct, frozen=True):
    """A tool that can serve a clause. `is_certain` is false where only what it returns will tell."""

    tool: ToolCard
    score: float
    query: Query | Lookup | None = None
    filled: Filled | None = None
    is_certain: bool = True


class NoFit(Struct, frozen=True):
    """Why no tool serves a clause; `is_known` where it is understood and cannot be served."""

    reason: str
    is_known: bool = False
    understood: int = 0


def fit_clause(clause: Clause, worker: WorkerCard, tools: list[ToolCard]) -> Fit | NoFit:
    """The best tool of a worker for a clause that asks for something."""
    if has_negative_number(clause.text):
        return NoFit(NEGATIVE, is_known=True)
    if asks_archive(clause):
        tool = next((tool for tool in tools if tool.name == SEARCH), None)
        if tool is None or not archive_question(clause).content:
            return NoFit("no archive can be searched here")
        return Fit(tool, _TABLE, is_certain=False)
    fits: list[Fit] = []
    failures: list[NoFit] = []
    for tool in tools:
        outcome = _fit_tool(clause, worker, tool)
        if isinstance(outcome, Fit):
            fits.append(outcome)
        elif outcome is not None:
            failures.append(outcome)
    if fits:
        return _best(fits, clause)
    if failures:
        return max(failures, key=lambda failure: (failure.is_known, failure.understood))
    return NoFit("none of the tools is for this")


def _best(fits: list[Fit], clause: Clause) -> Fit | NoFit:
    if asks_for_text(clause):
        fits = [fit for fit in fits if fit.tool.kind == "search"] or fits
    certain = [fit for fit in fits if fit.is_certain]
    ranked = sorted(certain or fits, key=lambda fit: -fit.score)
    if len(ranked) > 1 and ranked[0].score - ranked[1].score < 0.01 and certain:
        names = join_words([fit.tool.name for fit in ranked[:2]], "or")
        return NoFit(f"{names} could be meant; say which")
    return ranked[0]


def _fit_tool(clause: Clause, worker: WorkerCard, tool: ToolCard) -> Fit | NoFit | None:
    match tool.kind:
        case "table":
            return _fit_table(clause, tool)
        case "search":
            return _fit_search(clause, worker, tool)
        case "compute":
            expression = read_arithmetic(clause)
            return Fit(tool, _TABLE) if expression is not None else None
        case "call":
            return _fit_call(clause, worker, tool)
        case "message":
            return _fit_message(clause, worker, tool)
        case _:
            return None


def _fit_table(clause: Clause, tool: ToolCard) -> Fit | NoFit:
    query = read_query(clause, tool.description)
    if isinstance(query, Unread):
        return NoFit(query.reason, query.is_known, query.understood)
    if isinstance(query, Lookup):
        return Fit(tool, _TABLE_AFTER_LOOKUP, query, is_certain=False)
    return Fit(tool, _TABLE, query)


def _fit_search(clause: Clause, worker: WorkerCard, tool: ToolCard) -> Fit | None:
    """A search may answer anything that is not an order; how well it fits is told by the words it is known for."""
    first = clause.tokens[0].text.lower() if clause.tokens else ""
    if is_order(first) or clause.points_back or not clause.content:
        return None
    wanted = {token.stem for token in search_words(clause, tool, worker)}
    named = {token.stem for token in clause.content} - wanted
    own = _words(f"{worker.name} {tool.name} {' '.join(worker.tags)}")
    card = _words(
        f"{worker.description} {tool.description} {' '.join(worker.phrases)} {' '.join(worker.examples[:50])}"
    )
    score = 3.0 * len(named & own) + 2.0 * len(named & card) + 0.5 * len(wanted & (card | own))
    return Fit(tool, score / 10 + (3.0 if asks_for_text(clause) else 0.0), is_certain=asks_for_text(clause))


def is_order(word: str) -> bool:
    """Whether a verb asks for something to be done, not to be said."""
    return word in ORDERS


def _fit_call(clause: Clause, worker: WorkerCard, tool: ToolCard) -> Fit | NoFit | None:
    filled = fill_arguments(tool, clause)
    if not isinstance(filled, Filled):
        overlap = len(_words(f"{tool.name} {tool.headline}") & {token.stem for token in clause.content})
        return NoFit(filled.reason, understood=overlap) if overlap > 1 else None
    matched = 0.0
    leftover: list[str] = []
    card = _words(f"{worker.name} {worker.description} {' '.join(worker.tags)} {' '.join(worker.phrases)}")
    for at, token in enumerate(clause.tokens):
        opens = at == 0 and token.text.lower() in _REPORTING
        if at in filled.used or token.is_free or token.text.lower() in AMOUNTS:
            continue
        weight = _word_weight(token, tool, card)
        matched += weight
        if not weight and not opens:
            leftover.append(token.text)
    if leftover:
        reason = f"{tool.name} takes nothing that says {join_words([repr(word) for word in leftover])}"
        return NoFit(reason, understood=int(matched)) if matched >= _FITS else None
    if matched < _FITS:
        return None
    score = matched + _ARGUMENT * len(filled.calls[0])
    score = score / 2 if filled.has_free_text else score
    return Fit(tool, score, filled=filled)


def _word_weight(token: Token, tool: ToolCard, card: frozenset[str]) -> float:
    """What it says for a tool that it, or its worker, uses a word of the clause."""
    word = token.stem
    if token.is_negation:
        return _ON_CARD if any(other.is_negation for other in tokenize(tool.headline)) else 0.0
    if word in stems(tool.name):
        return _IN_NAME
    if word in _words(tool.headline):
        return _IN_HEADLINE
    if word in tool_words(tool):
        return _IN_DETAILS
    return _ON_CARD if word in card else 0.0


def _fit_message(clause: Clause, worker: WorkerCard, tool: ToolCard) -> Fit | None:
    """Whoever asks others gets what its card says it is for."""
    overlap = card_score(clause, worker)
    leftover = len(clause.content) - overlap
    return Fit(tool, _TABLE + overlap) if overlap >= _FITS and leftover <= _MOST_NAMES else None


@lru_cache(maxsize=2_000)
def _words(text: str) -> frozenset[str]:
    return frozenset(content_stems(text))


def card_score(clause: Clause, worker: WorkerCard) -> float:
    """How many words of a clause are on a worker's card."""
    card = _words(
        f"{worker.name} {worker.description} {' '.join(worker.tags)} {' '.join(worker.phrases)} "
        f"{' '.join(worker.examples[:50])}"
    )
    return float(len(card & {token.stem for token in clause.content}))


def serves_kind(worker: WorkerCard, tools: list[ToolCard], kind: str) -> bool:
    """Whether a worker draws, converts or writes."""
    words = _words(f"{worker.description} {' '.join(worker.tags)} {worker.name}")
    if kind == "draw":
        return any(tool.kind == "chart" for tool in tools)
    if kind == "convert":
        return rate_tool(tools) is not None
    return bool(words & _WRITING) and not any(tool.kind in {"table", "search", "chart"} for tool in tools)


_WRITING = frozenset(map(stem, word_set("write writes writing draft drafts memo memos letter summaries")))


def rate_tool(tools: list[ToolCard]) -> ToolCard | None:
    """A tool that knows what currencies are worth."""
    for tool in tools:
        codes = any(len(choice) == 3 and choice.isupper() for held in tool.parameters for choice in held.choices)
        if tool.kind == "call" and codes and stem("rate") in stems(f"{tool.name} {tool.headline}"):
            return tool
    return None
