"""Which tool of which worker serves a clause. A tool fits only if every word of the clause is accounted for."""

import re
from typing import TypeAlias

from msgspec import Struct

from chargehand.models.demo.request import ORDERS, Clause, RefusedError
from chargehand.models.demo.table_query import Query
from chargehand.models.demo.table_reader import read_query
from chargehand.models.demo.tools import (
    AMOUNTS,
    Filled,
    ToolCard,
    card_words,
    fill_arguments,
    only_remembers,
    read_words,
    tool_words,
)
from chargehand.models.demo.words import (
    Token,
    has_negative_number,
    join_words,
    stem,
    stem_set,
    stems,
    tokenize,
    word_set,
)
from chargehand.models.request_facts import WorkerCard

Staff: TypeAlias = list[tuple[WorkerCard, list[ToolCard]]]
"""Workers, and the tools of each."""

NEGATIVE = "negative numbers are not read"
_REPORTING = word_set("find show list tell give say report compare name get")
_COMPUTE = word_set("calculate compute work result")
_OPERAND = r"\(?\d[\d,]*(?:\.\d+)?\)?"
_EXPRESSION = re.compile(
    rf"(?<![\w.])(?:\d+(?:\.\d+)?% of {_OPERAND}|{_OPERAND}(?:\s*(?:\*\*|[-+*/])\s*{_OPERAND})+)(?![\w-])"
)
_IN_ARCHIVE = re.compile(r"\balready (?:know|have|found|kept)\b|\bin (?:the|our) archive\b", re.IGNORECASE)
_IN_NAME = 3.0
_IN_HEADLINE = 2.0
_IN_DETAILS = 1.0
_ON_CARD = 0.5
_FITS = 2.0
"""The least that the words of a clause have to say for a tool."""
_CERTAIN = 4.0
_WRITING = stem_set("write draft memo letter summaries")


class Fit(Struct, frozen=True):
    """A tool that can serve a clause. `is_certain` is false where only what it returns will tell."""

    worker: WorkerCard
    tool: ToolCard
    score: float
    reading: Query | str | Filled | None = None
    """What the tool is to be asked, for arithmetic an expression; nothing for a search."""
    is_certain: bool = True


def choose_fit(clause: Clause, staff: Staff) -> Fit:
    """The best tool of all workers for a clause that asks for something; none where two fit as well."""
    if has_negative_number(clause.text):
        raise RefusedError(NEGATIVE, is_known=True)
    fits: list[Fit] = []
    failures: list[RefusedError] = []
    for worker, tools in staff:
        for tool in tools:
            try:
                fits += filter(None, [_fit_tool(clause, worker, tool, has_others=not only_remembers(tools))])
            except RefusedError as failure:
                failures.append(failure)
    if clause.about is not None:
        fits = [fit for fit in fits if fit.tool.kind in {"search", "archive"}] or fits
    certain = [fit for fit in fits if fit.is_certain]
    failure = max(failures, key=lambda failure: (failure.is_known, failure.understood), default=None)
    if failure is not None and (not fits or (failure.is_known and not certain)):
        raise failure
    if not fits:
        raise RefusedError("none of the tools is for this")
    ranks = [(fit.score, card_score(clause, fit.worker)) for fit in certain or fits]
    equal = [fit for fit, rank in zip(certain or fits, ranks, strict=True) if rank == max(ranks)]
    names = dict.fromkeys(fit.tool.name for fit in equal)
    if len(names) > 1 and equal[0].tool.kind not in {"search", "archive"}:
        raise RefusedError(f"{join_words(list(names), 'or')} could be meant; say which", is_known=True)
    return equal[0]


def _fit_tool(clause: Clause, worker: WorkerCard, tool: ToolCard, *, has_others: bool) -> Fit | None:
    is_of_archive = _IN_ARCHIVE.search(clause.text) is not None
    if tool.kind == "archive" and (is_of_archive or not has_others):
        return _fit_search(clause, worker, tool)
    if is_of_archive:
        return None
    match tool.kind:
        case "table":
            return Fit(worker, tool, _CERTAIN, read_query(clause, tool.description))
        case "search":
            return _fit_search(clause, worker, tool)
        case "compute":
            expression = _read_expression(clause)
            return Fit(worker, tool, _CERTAIN, expression) if expression else None
        case "call":
            return _fit_call(clause, worker, tool)
        case _:
            return None


def _fit_search(clause: Clause, worker: WorkerCard, tool: ToolCard) -> Fit | None:
    """A search may answer anything that is not an order; how well it fits is told by the words it is known for."""
    if clause.opening in ORDERS or clause.points_back or not clause.content:
        return None
    score = sum(_word_weight(token, tool, worker) for token in clause.content) / 10
    is_certain = clause.about is not None
    return Fit(worker, tool, score + 3.0 * is_certain, is_certain=is_certain)


def _read_expression(clause: Clause) -> str:
    """The arithmetic that a clause spells out in signs and says nothing beside."""
    match = _EXPRESSION.search(clause.text)
    if match is None or clause.periods or clause.points_back:
        return ""
    beside = [token for token in clause.content if not match.start() <= token.start < match.end()]
    return match[0].replace(",", "") if all(token.text.lower() in _COMPUTE for token in beside) else ""


def _fit_call(clause: Clause, worker: WorkerCard, tool: ToolCard) -> Fit | None:
    """A tool with all its arguments, if the words that they leave are the tool's own."""
    own = read_words(f"{tool.name} {tool.headline}")
    try:
        filled = fill_arguments(tool, clause)
    except RefusedError as refusal:
        overlap = len(own & clause.stems)
        if overlap < _FITS:
            return None
        raise RefusedError(refusal.reason, understood=overlap) from refusal
    open_names = " ".join(parameter.name for parameter in tool.parameters if parameter.name not in filled.calls[0])
    unfilled = set(stems(open_names)) - own
    matched = 0.0
    leftover: list[str] = []
    for at, token in enumerate(clause.tokens):
        if at in filled.used or token.is_free or token.text.lower() in AMOUNTS:
            continue
        weight = 0.0 if token.stem in unfilled else _word_weight(token, tool, worker)
        matched += weight
        if not weight and not (at == 0 and clause.opening in _REPORTING):
            leftover.append(repr(token.text))
    if matched < _FITS:
        return None
    if leftover:
        raise RefusedError(f"{tool.name} takes nothing that says {join_words(leftover)}", understood=int(matched))
    score = matched + len(filled.calls[0])
    return Fit(worker, tool, score / 2 if filled.has_free_text else score, filled)


def _word_weight(token: Token, tool: ToolCard, worker: WorkerCard) -> float:
    """What it says for a tool that it, or its worker, uses a word of the clause."""
    if token.is_negation:
        return _ON_CARD if any(other.is_negation for other in tokenize(tool.headline)) else 0.0
    if token.stem in stems(tool.name):
        return _IN_NAME
    if token.stem in read_words(tool.headline):
        return _IN_HEADLINE
    if token.stem in tool_words(tool):
        return _IN_DETAILS
    return _ON_CARD if token.stem in card_words(worker) else 0.0


def card_score(clause: Clause, worker: WorkerCard) -> float:
    """How many words of a clause are on a worker's card."""
    return float(len(card_words(worker) & clause.stems))


def serves_kind(worker: WorkerCard, tools: list[ToolCard], kind: str) -> bool:
    """Whether a worker draws, converts or writes."""
    if kind == "draw":
        return any(tool.kind == "chart" for tool in tools)
    if kind == "convert":
        return rate_tool(tools) is not None
    is_writer = bool(_WRITING & card_words(worker))
    return is_writer and not any(tool.kind in {"table", "search", "chart"} for tool in tools)


def rate_tool(tools: list[ToolCard]) -> ToolCard | None:
    """A tool that knows what currencies are worth."""
    for tool in tools:
        choices = [choice for parameter in tool.parameters for choice in parameter.choices]
        has_codes = any(len(choice) == 3 and choice.isupper() for choice in choices)
        if tool.kind == "call" and has_codes and stem("rate") in stems(f"{tool.name} {tool.headline}"):
            return tool
    return None
