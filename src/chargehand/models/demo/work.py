"""A worker's next step: calls to make, the result in words, or `give_up` with the reason.

Called again after every step with what its calls returned. It keeps nothing in between: each clause is worked out from
the beginning, and a call that was not made yet ends it (`CallsNeededError`).
"""

import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import cast

from msgspec import structs

from chargehand.models.artifacts import Chart, Figure, Table
from chargehand.models.demo.fitting import choose_fit, rate_tool
from chargehand.models.demo.job import Arguments, CallsNeededError, Job, call_tools, give_up, read_job
from chargehand.models.demo.memory import keep, note_turns, read_keepings
from chargehand.models.demo.passages import accept_passages, search_query
from chargehand.models.demo.products import chart_arguments, read_conversion, write_text
from chargehand.models.demo.request import LONGEST, Clause, RefusedError, parse_request
from chargehand.models.demo.results import (
    chart_in_words,
    figure_in_words,
    gather,
    passage_in_words,
    table_in_words,
)
from chargehand.models.demo.table_query import Query
from chargehand.models.demo.tools import Filled, ToolCard, only_remembers
from chargehand.models.demo.words import shorten
from chargehand.models.messages import Reply, Request
from chargehand.models.partial_text import LEFT
from chargehand.models.request_facts import Working

_MOST_STEPS = 6
_MESSAGE = re.compile(r'<data (?P<nonce>\w+) from "worker[^"\n]{0,200}">\n')
_ASK_OTHERS = "send_message_to_agents_matching_tags"


def work(subject: Working, request: Request) -> Reply:
    """The next step of a task."""
    messages = request.messages
    if subject.chat_turns:
        messages = (messages[0], *messages[1 + subject.chat_turns :])
    is_message = any(message.role == "user" and _MESSAGE.search(message.text) for message in messages)
    subject = structs.replace(subject, instruction=_message_text(subject.instruction))
    job = read_job(subject, request, messages)
    was_answered = any(message.role == "assistant" for message in messages)
    if was_answered and messages[-1].role == "user":
        return give_up(f"the result was not accepted: {shorten(messages[-1].text, 300)}", job.steps, final=False)
    try:
        reply = note_turns(job)
        if reply is None and not is_message:
            reply = _ask_others(job)
        if reply is not None:
            return reply
        return Reply(_serve_task(job, is_shaped=request.schema is not None))
    except CallsNeededError as needed:
        if job.steps >= _MOST_STEPS:
            return give_up("the task took too many steps", job.steps, final=False)
        return call_tools(needed.calls, job.steps)
    except RefusedError as refusal:
        return give_up(refusal.reason, job.steps, final=not refusal.may_retry)


def _message_text(instruction: str) -> str:
    """The words of a message from another worker, which stand in an envelope."""
    match = _MESSAGE.search(instruction) if instruction.startswith("Message from ") else None
    end = instruction.find(f"\n</data {match['nonce']}>", match.end()) if match else -1
    return instruction[match.end() : end].strip() if match and end > 0 else instruction


def _serve_task(job: Job, *, is_shaped: bool) -> str:
    """The results of all clauses, what was kept of them, and what was left out."""
    if is_shaped:
        raise RefusedError("the demo model fills no output types")
    parsed = parse_request(job.subject.instruction)
    if parsed.is_too_long:
        raise RefusedError(f"the task is longer than {LONGEST:,} characters")
    asked = [clause for clause in parsed.clauses if clause.kind != "keep"]
    results = _try_all(partial(serve_clause, clause, job) for clause in asked)
    lines = [result for result in results if isinstance(result, str)]
    refusals = {
        clause.text: result for clause, result in zip(asked, results, strict=True) if isinstance(result, RefusedError)
    }
    if refusals and not lines:
        reasons = dict.fromkeys(refusal.reason for refusal in refusals.values())
        may_retry = any(refusal.may_retry for refusal in refusals.values())
        raise RefusedError("; ".join(reasons), may_retry=may_retry)
    text = "\n".join([*lines, *parsed.remarks])
    kept = _try_all(partial(keep, keeping, job, text) for keeping in read_keepings(job, parsed.clauses))
    lines = [text, *(line if isinstance(line, str) else f"Not kept: {line.reason}" for line in kept)]
    if not any(lines):
        raise RefusedError("the task does not say what is wanted")
    left = [f"{LEFT}{clause}" if clause.endswith((".", "?", "!")) else f"{LEFT}{clause}." for clause in refusals]
    return "\n\n".join(filter(None, ("\n".join(filter(None, lines)), "\n".join(left))))


def _try_all(steps: Iterable[Callable[[], str]]) -> list[str | RefusedError]:
    """The result of each step, or why it has none; the calls that any of them needs come first."""
    calls: list[tuple[str, Arguments]] = []
    results: list[str | RefusedError] = []
    for step in steps:
        try:
            results.append(step())
        except CallsNeededError as needed:
            calls += needed.calls
        except RefusedError as refusal:
            results.append(refusal)
    if calls:
        raise CallsNeededError(calls)
    return results


# --- one clause


def serve_clause(clause: Clause, job: Job) -> str:
    """The result for one clause, in words."""
    match clause.kind:
        case "draw":
            return _draw(clause, job)
        case "convert":
            return _convert(clause, job)
        case "write":
            return write_text(clause, job.subject)
        case _:
            return _ask(clause, job)


def _ask(clause: Clause, job: Job) -> str:
    fit = choose_fit(clause, [(job.subject.worker, job.tools)])
    match fit.reading:
        case Query():
            return _query(fit.tool, fit.reading, job)
        case str():
            return figure_in_words(job.call_for_figure(fit.tool.name, {"expression": fit.reading}), fit.reading)
        case Filled():
            return _make_calls(clause, fit.tool, fit.reading, job)
        case None:
            return _search(clause, fit.tool, job)


def _query(tool: ToolCard, query: Query, job: Job) -> str:
    tables = job.call(tool.name, {"sql": query.sql}).of(Table)
    if not tables:
        raise RefusedError(f"{tool.name} returned no table")
    table = tables[0]
    if query.shape == "number" and all(cell is None for row in table.rows for cell in row):
        raise RefusedError(f"no rows are on record: {query.title}")
    if not table.rows:
        return f"{query.title}: none on record."
    return table_in_words(table, query.title)


def _search(clause: Clause, tool: ToolCard, job: Job) -> str:
    query = search_query(clause, tool, job.subject.worker)
    outcome = job.outcomes_of(tool.name, [{"query": query}])[0]
    if outcome.error and not outcome.error.startswith("nothing found"):
        raise RefusedError(f"`{tool.name}` failed: {outcome.error}")
    passages = gather([outcome.value]).passages
    accepted = accept_passages(clause, passages, tool, job.subject.worker)
    return "\n".join(passage_in_words(passage) for passage in accepted)


def _make_calls(clause: Clause, tool: ToolCard, filled: Filled, job: Job) -> str:
    results = job.call_all(tool.name, filled.calls)
    lines: list[str] = []
    for arguments, material in zip(filled.calls, results, strict=True):
        title = tool.name.replace("_", " ").capitalize()
        if arguments:
            title += f" ({', '.join(str(argument) for argument in arguments.values())})"
        texts = [table_in_words(table, title, clause.stems) for table in material.of(Table)]
        texts += [figure_in_words(figure, title) for figure in material.of(Figure)]
        texts += [passage_in_words(passage) for passage in material.passages]
        texts += [chart_in_words(chart) for chart in material.of(Chart)]
        texts += [text.strip() for text in material.texts]
        lines += texts or [f"{title}: nothing was returned."]
    return "\n".join(lines)


def _draw(clause: Clause, job: Job) -> str:
    tool = job.tool_of_kind("chart")
    if tool is None:
        raise RefusedError("there is no tool here that draws")
    charts = job.call(tool.name, chart_arguments(clause, job.given)).of(Chart)
    if not charts:
        raise RefusedError("no chart was returned")
    return chart_in_words(charts[0])


def _convert(clause: Clause, job: Job) -> str:
    tool = rate_tool(job.tools)
    calculator = job.tool_of_kind("compute")
    if tool is None or calculator is None:
        raise RefusedError("nothing here converts it")
    conversion = read_conversion(clause, tool, job.given)
    rate = job.call_for_figure(tool.name, conversion.arguments)
    result = job.call_for_figure(calculator.name, {"expression": f"round({conversion.amount} * {rate.value}, 2)"})
    return conversion.in_words(result.value, rate)


# --- asking other workers


def _ask_others(job: Job) -> Reply | None:
    """The next step of a worker that has no tools of its own but may ask others: it asks all. None for any other."""
    if job.tool(_ASK_OTHERS) is None or not only_remembers(job.tools):
        return None
    outcome = job.outcomes_of(_ASK_OTHERS, [{"message": job.subject.instruction}])[0]
    if outcome.error or not isinstance(outcome.value, dict):
        raise RefusedError(f"nobody could be asked: {outcome.error}")
    replies = cast("dict[str, list[dict[str, object]]]", outcome.value).get("replies", [])
    answered = [
        f"{reply.get('worker') or reply.get('agent_name')}: {shorten(str(reply['reply']), 1_500)}"
        for reply in replies
        if reply.get("reply")
    ]
    if not answered:
        raise RefusedError(f"none of the {len(replies)} that were asked had an answer")
    return Reply("\n".join([f"{len(answered)} of {len(replies)} replied.", *answered]))
