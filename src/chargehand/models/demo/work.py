"""A worker's next step: calls to make, the result in words, or `give_up` with the reason.

Called again after every step with what its calls returned. It keeps nothing in between.
"""

import re
from typing import cast

import msgspec
from msgspec import Raw, Struct, structs

from chargehand.models.demo.arithmetic import read_arithmetic
from chargehand.models.demo.delegate import delegate
from chargehand.models.demo.fitting import Fit, NoFit, fit_clause, rate_tool
from chargehand.models.demo.memory import (
    APPEND,
    INSERT,
    LOOKING,
    SEARCH,
    Keeping,
    archive_words,
    asked_block,
    find_tool,
    read_keeping,
)
from chargehand.models.demo.passages import NotSaid, accept_passages, asks_for_text, search_query
from chargehand.models.demo.products import Conversion, chart_arguments, fill_shape, read_conversion, write_text
from chargehand.models.demo.request import LONGEST, Clause, parse_request
from chargehand.models.demo.results import (
    Material,
    Outcome,
    as_number,
    chart_in_words,
    column_decimals,
    column_total,
    figure_in_words,
    format_value,
    gather,
    number_columns,
    passage_in_words,
    read_outcomes,
    rows_in_words,
    table_in_words,
)
from chargehand.models.demo.table_query import Lookup, Query, read_names, read_query
from chargehand.models.demo.tools import ToolCard, only_remembers, read_tool
from chargehand.models.demo.words import MENTIONS_MODEL, join_words, shorten, stems
from chargehand.models.left_out import LEFT
from chargehand.models.messages import Message, Reply, Request, ToolCall
from chargehand.models.subject import Working

_MOST_STEPS = 6
_NUMBER = re.compile(r"(?<![\w.,])\d[\d,]*(?:\.\d+)?")
_AMOUNT = re.compile(r"(?<![\d.,])(\d[\d,]{0,15}(?:\.\d{1,6})?) (?:euros|EUR)\b")
_WHAT_IS = re.compile(r"what (?:is|was|are|were) (?P<what>the [^?]{1,120})", re.IGNORECASE)
_MESSAGE = re.compile(r'<data (?P<nonce>\w+) from "worker[^"\n]{0,200}">\n')


class Calls(Struct, frozen=True):
    """Calls that have to be made before there is a result."""

    calls: tuple[tuple[str, dict[str, object]], ...]


class Found(Struct, frozen=True):
    """The result for one clause, in words."""

    text: str


class Refused(Struct, frozen=True):
    """Why there is no result. `may_retry`: the error offers something that a rewritten task could use."""

    reason: str
    may_retry: bool = False


class Desk(Struct, frozen=True):
    """What a worker has before it: its task, its tools, its inputs, and what its calls returned."""

    subject: Working
    tools: list[ToolCard]
    outcomes: list[Outcome]
    given: Material

    def outcome(self, tool: str, arguments: dict[str, object]) -> Outcome | None:
        """What came of a call, if it was made."""
        for outcome in self.outcomes:
            if outcome.call.name == tool and outcome.arguments == arguments:
                return outcome
        return None

    def of_kind(self, kind: str) -> ToolCard | None:
        return next((tool for tool in self.tools if tool.kind == kind), None)


def work(subject: Working, request: Request) -> Reply:
    """The next step of a task."""
    messages = request.messages
    if subject.chat_turns:
        messages = (messages[0], *messages[1 + subject.chat_turns :])
    tools = [read_tool(tool.name, tool.description, tool.parameters) for tool in request.tools]
    outcomes = read_outcomes(messages)
    steps = sum(1 for message in messages if message.role == "assistant" and message.calls)
    is_message = any(message.role == "user" and _MESSAGE.search(message.text) for message in messages)
    subject = structs.replace(subject, instruction=_message_text(subject.instruction))
    desk = Desk(subject, tools, outcomes, gather(given.value for given in subject.inputs))
    if rejected := _rejected(messages):
        return give_up(f"the result was not accepted: {shorten(rejected, 300)}", steps)
    if find_tool("send_message_to_agents_matching_tags", tools) is not None:
        clauses = parse_request(subject.instruction).clauses
        asks = any(clause.kind == "ask" and clause.content for clause in clauses)
        reply = delegate(subject, messages, tools, outcomes, may_ask_all=asks and not is_message)
        if reply is not None:
            return reply
    keeps_unasked = bool(messages) and "Keep your findings in the archive" in messages[0].text
    return _work(desk, request.schema, steps, keeps_unasked=keeps_unasked)


def _message_text(instruction: str) -> str:
    """The words of a message from another worker, which stand in an envelope."""
    match = _MESSAGE.search(instruction) if instruction.startswith("Message from ") else None
    end = instruction.find(f"\n</data {match['nonce']}>", match.end()) if match else -1
    return instruction[match.end() : end].strip() if match and end > 0 else instruction


def _rejected(messages: object) -> str:
    """What was said to the last reply, where that was not accepted as a result."""
    said = cast("tuple[Message, ...]", messages)
    answered = any(message.role == "assistant" for message in said)
    return said[-1].text if answered and said[-1].role == "user" else ""


def _work(desk: Desk, schema: Raw | None, steps: int, *, keeps_unasked: bool) -> Reply:
    parsed = parse_request(desk.subject.instruction)
    if parsed.is_too_long:
        return give_up(f"the task is longer than {LONGEST:,} characters", steps, final=True)
    asked = [clause for clause in parsed.clauses if clause.kind != "keep"]
    keepings = [keeping for clause in parsed.clauses if clause.kind == "keep" and (keeping := read_keeping(clause))]
    if keeps_unasked and not keepings and find_tool(INSERT, desk.tools) is not None:
        keepings = [Keeping()]
    results = [(clause, take_step(clause, desk)) for clause in asked]
    calls = [call for _, result in results if isinstance(result, Calls) for call in result.calls]
    if calls and steps < _MOST_STEPS:
        return _call(calls, steps)
    found = [result.text for _, result in results if isinstance(result, Found)]
    refused = [(clause, result) for clause, result in results if isinstance(result, Refused)]
    if asked and not found:
        return _give_up_all(refused, desk, steps)
    text = "\n".join([*found, *parsed.remarks])
    if schema is not None:
        return _shaped(schema, desk, text, steps)
    kept = _keep(keepings, desk, text, steps)
    if isinstance(kept, Reply):
        return kept
    left = [f"{LEFT}{clause.text if clause.text[-1] in '.?!' else clause.text + '.'}" for clause, _ in refused]
    lines = [line for line in (text, *kept) if line]
    if not lines:
        return give_up("the task does not say what is wanted", steps, final=True)
    return Reply("\n\n".join(part for part in ("\n".join(lines), "\n".join(left)) if part))


def _give_up_all(refused: list[tuple[Clause, Refused]], desk: Desk, steps: int) -> Reply:
    if desk.subject.gaps and not desk.subject.inputs:
        missing = "; ".join(gap.message for gap in desk.subject.gaps if gap.message)
        return give_up(f"an input is missing: {shorten(missing, 300)}", steps, final=True)
    if not refused:
        return give_up("the task took too many steps", steps)
    reasons = list(dict.fromkeys(result.reason for _, result in refused))
    may_retry = any(result.may_retry for _, result in refused)
    return give_up("; ".join(reasons), steps, final=not may_retry)


def _call(calls: list[tuple[str, dict[str, object]]], steps: int) -> Reply:
    made = [
        ToolCall(id=f"call_{steps + 1}_{at}", name=name, arguments=msgspec.json.encode(arguments).decode())
        for at, (name, arguments) in enumerate(calls, 1)
    ]
    return Reply(calls=tuple(made), finish="tools")


def give_up(reason: str, steps: int = 0, *, final: bool = False) -> Reply:
    """The call by which a worker says that it cannot do its task."""
    arguments: dict[str, object] = {"reason": f"{reason}. {MENTIONS_MODEL}" if final else reason}
    if final:
        arguments["final"] = True
    return _call([("give_up", arguments)], steps)


# --- one clause


def take_step(clause: Clause, desk: Desk) -> Calls | Found | Refused:
    """What to do next for one clause."""
    match clause.kind:
        case "draw":
            return _draw(clause, desk)
        case "convert":
            return _convert(clause, desk)
        case "write":
            return _write(clause, desk)
        case _:
            return _ask(clause, desk)


def _ask(clause: Clause, desk: Desk) -> Calls | Found | Refused:
    if not clause.content and not clause.periods:
        return Refused("it does not say what is wanted")
    block = asked_block(clause, desk.subject.blocks) if asks_for_text(clause) else None
    fit = fit_clause(clause, desk.subject.worker, desk.tools)
    if block is not None:
        return _quote_block(block.label, block.text)
    if isinstance(fit, NoFit):
        archive = find_tool(SEARCH, desk.tools) if only_remembers(desk.tools) and _looks_up(clause) else None
        if archive is not None and archive_words(clause):
            return _search_archive(clause, archive, desk)
        return _add_up(desk) or Refused(fit.reason)
    match fit.tool.kind:
        case "table":
            return _query(clause, fit, desk)
        case "search":
            return _search(clause, fit.tool, desk)
        case "memory":
            return _search_archive(clause, fit.tool, desk)
        case "compute":
            return _compute(clause, fit.tool, desk)
        case _:
            return _make_calls(clause, fit, desk)


def _looks_up(clause: Clause) -> bool:
    """Whether a clause asks for something that may have been kept."""
    return bool(clause.question) or clause.tokens[0].text.lower() in LOOKING


def _quote_block(label: str, text: str) -> Found | Refused:
    if not text.strip():
        return Refused(f"the block {label} is empty")
    return Found(f"{text.strip()} (block {label})")


def _failed(tool: str, error: str) -> Refused:
    offers = any(
        word in error.lower() for word in ("nearest", "did you mean", "one of", "closest", "there are", "try ")
    )
    return Refused(f"{tool} failed: {error}", may_retry=offers)


def _query(clause: Clause, fit: Fit, desk: Desk) -> Calls | Found | Refused:
    query = fit.query
    if isinstance(query, Lookup):
        arguments: dict[str, object] = {"sql": query.sql}
        outcome = desk.outcome(fit.tool.name, arguments)
        if outcome is None:
            return Calls(((fit.tool.name, arguments),))
        if outcome.error:
            return _failed(fit.tool.name, outcome.error)
        tables = gather([outcome.value]).tables
        rows = [list(row) for table in tables for row in table.rows]
        names = read_names(fit.tool.description, query.phrases, rows)
        if not isinstance(names, dict):
            return Refused(names.reason)
        query = read_query(clause, fit.tool.description, names)
    if not isinstance(query, Query):
        return Refused(getattr(query, "reason", "the question cannot be read"))
    arguments = {"sql": query.sql}
    outcome = desk.outcome(fit.tool.name, arguments)
    if outcome is None:
        return Calls(((fit.tool.name, arguments),))
    if outcome.error:
        return _failed(fit.tool.name, outcome.error)
    return _query_result(query, outcome)


def _query_result(query: Query, outcome: Outcome) -> Found | Refused:
    tables = gather([outcome.value]).tables
    if not tables:
        return Refused("the database returned no table")
    table = tables[0]
    if query.shape == "number" and all(cell is None for row in table.rows for cell in row):
        return Refused(f"no rows are on record: {query.title}")
    if query.shape == "rows" and not table.rows:
        return Found(f"{query.title}: none on record.")
    if not table.rows:
        return Found(f"{query.title}: none.")
    if query.shape == "rows" and len(table.columns) > 2 and len(table.rows) > 1:
        return Found(rows_in_words(table, query.title))
    text = table_in_words(table, query.title)
    numbers = number_columns(table)
    adds_up = "SUM(" in query.sql or "COUNT(*)" in query.sql
    if (
        query.shape == "groups"
        and len(numbers) == 1
        and len(table.rows) > 1
        and adds_up
        and "RANK()" not in query.sql
        and "CASE" not in query.sql
    ):
        decimals = column_decimals(table, numbers[0])
        text += f" Together: {format_value(column_total(table, numbers[0]), decimals)}."
    return Found(text)


def _search(clause: Clause, tool: ToolCard, desk: Desk) -> Calls | Found | Refused:
    arguments: dict[str, object] = {"query": search_query(clause, tool, desk.subject.worker)}
    outcome = desk.outcome(tool.name, arguments)
    if outcome is None:
        return Calls(((tool.name, arguments),))
    if outcome.error and not outcome.error.startswith("nothing found"):
        return Refused(f"{tool.name} failed: {outcome.error}")
    passages = tuple(gather([outcome.value]).passages)
    accepted = accept_passages(clause, passages, tool, desk.subject.worker)
    if isinstance(accepted, NotSaid):
        return Refused(accepted.reason)
    return Found("\n".join(passage_in_words(passage) for passage in accepted.passages))


def _search_archive(clause: Clause, tool: ToolCard, desk: Desk) -> Calls | Found | Refused:
    arguments: dict[str, object] = {"query": archive_words(clause)}
    outcome = desk.outcome(tool.name, arguments)
    if outcome is None:
        return Calls(((tool.name, arguments),))
    if outcome.error:
        return Refused(f"{tool.name} failed: {outcome.error}")
    words = {token.stem for token in clause.content}
    passages = gather([outcome.value]).passages
    wanted = archive_words(clause)
    asked = parse_request(f"What does the archive say about {wanted}").clauses[0]
    accepted = accept_passages(asked, tuple(passages), tool, desk.subject.worker, "the archives")
    if isinstance(accepted, NotSaid) or not words:
        return Refused(f"nothing in the archive speaks of {wanted}")
    return Found("\n".join(passage_in_words(passage) for passage in accepted.passages))


def _compute(clause: Clause, tool: ToolCard, desk: Desk) -> Calls | Found | Refused:
    arithmetic = read_arithmetic(clause)
    if arithmetic is None:
        return Refused("what is to be worked out is not clear")
    expression = arithmetic.expression
    label = ""
    if arithmetic.needs_input:
        numbers = _input_numbers(desk.given)
        if not numbers or (arithmetic.share and len(numbers) > 1):
            return Refused("the number to work with is not clear")
        if arithmetic.share:
            expression = f"{arithmetic.share}% of {numbers[0]}"
            label = f"{arithmetic.share} percent of {format_value(as_number(numbers[0]))}"
        else:
            expression = f"{arithmetic.operation}({', '.join(numbers)})"
            label = "total" if arithmetic.operation == "sum" else "average"
    arguments: dict[str, object] = {"expression": expression}
    outcome = desk.outcome(tool.name, arguments)
    if outcome is None:
        return Calls(((tool.name, arguments),))
    if outcome.error:
        return Refused(f"{tool.name} failed: {outcome.error}")
    figures = gather([outcome.value]).figures
    if not figures:
        return Refused("the calculator returned no number")
    return Found(figure_in_words(figures[0], label or expression))


def _input_numbers(given: Material) -> list[str]:
    """The numbers of what was given: those of a table's one column of numbers, else figures."""
    for table in given.tables:
        columns = number_columns(table)
        if len(columns) == 1:
            return [str(row[columns[0]]) for row in table.rows if row[columns[0]] is not None]
    figures = [figure.value for figure in given.figures if as_number(figure.value) is not None]
    if figures:
        return figures
    return [number.replace(",", "") for text in given.texts for number in _NUMBER.findall(text.rpartition(": ")[2])]


def _add_up(desk: Desk) -> Calls | Found | None:
    """The sum of the amounts that others named, by a worker that adds up."""
    tool = desk.of_kind("compute")
    adds = {"add", "sum", "total"} & set(stems(desk.subject.worker.description))
    amounts = [_AMOUNT.findall(text) for text in desk.given.texts]
    if tool is None or not adds or len(amounts) < 2 or any(len(found) != 1 for found in amounts):
        return None
    arguments: dict[str, object] = {"expression": " + ".join(found[0].replace(",", "") for found in amounts)}
    outcome = desk.outcome(tool.name, arguments)
    if outcome is None:
        return Calls(((tool.name, arguments),))
    figures = gather([outcome.value]).figures
    return Found(f"Total: {format_value(as_number(figures[0].value))} euros.") if figures else None


def _make_calls(clause: Clause, fit: Fit, desk: Desk) -> Calls | Found | Refused:
    if fit.filled is None:
        return Refused("its arguments are not said")
    made = [(arguments, desk.outcome(fit.tool.name, arguments)) for arguments in fit.filled.calls]
    missing = [arguments for arguments, outcome in made if outcome is None]
    if missing:
        return Calls(tuple((fit.tool.name, arguments) for arguments in missing))
    texts: list[str] = []
    for arguments, outcome in made:
        if outcome is None:
            continue
        if outcome.error:
            return _failed(fit.tool.name, outcome.error)
        texts.append(_value_in_words(clause, fit.tool, arguments, outcome.value))
    return Found("\n".join(texts))


def _value_in_words(clause: Clause, tool: ToolCard, arguments: dict[str, object], value: object) -> str:
    material = gather([value])
    named = ", ".join(str(argument) for argument in arguments.values())
    title = f"{tool.name.replace('_', ' ').capitalize()}" + (f" ({named})" if named else "")
    words = frozenset(token.stem for token in clause.content)
    lines = [table_in_words(table, title, words) for table in material.tables]
    label = _counted_words(clause, tool) if clause.question == "how many" else title
    if asked := _WHAT_IS.match(clause.text):
        label = asked["what"].rstrip("?. ")
    lines += [figure_in_words(figure, label) for figure in material.figures]
    lines += [passage_in_words(passage) for passage in material.passages]
    lines += [chart_in_words(chart) for chart in material.charts]
    lines += [text.strip() for text in material.texts]
    return "\n".join(lines) or f"{title}: nothing was returned."


def _counted_words(clause: Clause, tool: ToolCard) -> str:
    """What a bare number counts: "How many ropes are in stock?" is "ropes in stock at the harbour"."""
    words = clause.text.rstrip("?. ").split()
    start = next((at for at, word in enumerate(words) if word.lower() == "many"), -1) + 1
    label = " ".join(word for word in words[start:] if word.lower() not in {"are", "is", "there", "were", "was"})
    headline = tool.headline.partition(":")[0].rstrip(". ")
    for link in (" at ", " on ", " in "):
        place = headline.rpartition(link)[2]
        if place != headline and len(place.split()) <= 4 and place.split()[-1].lower() not in label.lower():
            return f"{label}{link}{place}"
    return label


def _draw(clause: Clause, desk: Desk) -> Calls | Found | Refused:
    tool = desk.of_kind("chart")
    if tool is None:
        return Refused("there is no tool here that draws")
    arguments = chart_arguments(clause, desk.given, desk.subject.inputs)
    if isinstance(arguments, str):
        return Refused(arguments)
    outcome = desk.outcome(tool.name, arguments)
    if outcome is None:
        return Calls(((tool.name, arguments),))
    if outcome.error:
        return _failed(tool.name, outcome.error)
    charts = gather([outcome.value]).charts
    return Found(chart_in_words(charts[0])) if charts else Refused("no chart was returned")


def _convert(clause: Clause, desk: Desk) -> Calls | Found | Refused:
    tool = rate_tool(desk.tools)
    calculator = desk.of_kind("compute")
    if tool is None or calculator is None:
        return Refused("nothing here converts it")
    conversion = read_conversion(clause, tool, desk.given)
    if not isinstance(conversion, Conversion):
        return Refused(conversion)
    outcome = desk.outcome(tool.name, conversion.arguments)
    if outcome is None:
        return Calls(((tool.name, conversion.arguments),))
    if outcome.error:
        return _failed(tool.name, outcome.error)
    figures = gather([outcome.value]).figures
    if not figures or as_number(figures[0].value) is None:
        return Refused("no rate was returned")
    rate = figures[0]
    arguments: dict[str, object] = {"expression": f"round({conversion.amount} * {rate.value}, 2)"}
    computed = desk.outcome(calculator.name, arguments)
    if computed is None:
        return Calls(((calculator.name, arguments),))
    results = gather([computed.value]).figures
    if computed.error or not results:
        return Refused(f"{calculator.name} failed: {computed.error}")
    return Found(conversion.in_words(results[0].value, rate))


def _write(clause: Clause, desk: Desk) -> Found | Refused:
    text = write_text(clause, desk.subject)
    return Refused(text.reason) if not isinstance(text, str) else Found(text)


# --- memory and shape


def _keep(keepings: list[Keeping], desk: Desk, text: str, steps: int) -> list[str] | Reply:
    """The calls that keep a result, or what came of them in words."""
    told: list[str] = []
    calls: list[tuple[str, dict[str, object]]] = []
    for keeping in keepings:
        what = keeping.text or text or "\n".join(desk.given.texts)
        if find_tool(keeping.tool, desk.tools) is None:
            told.append(f"Not kept: this worker may not add to {keeping.block or 'an archive'}.")
            continue
        if not what:
            told.append("Not kept: there is nothing to keep.")
            continue
        arguments: dict[str, object] = {"content": what}
        if keeping.block:
            arguments = {"label": keeping.block, "content": " ".join(what.split())}
        elif keeping.tags:
            arguments["tags"] = list(keeping.tags)
        outcome = desk.outcome(keeping.tool, arguments)
        if outcome is None:
            calls.append((keeping.tool, arguments))
        elif outcome.error:
            told.append(f"Not kept: {outcome.error}")
        else:
            told.append(_kept(keeping, outcome))
    return _call(calls, steps) if calls else told


def _kept(keeping: Keeping, outcome: Outcome) -> str:
    if keeping.tool == APPEND:
        return f"Added to the block {keeping.block}."
    archive = str(outcome.value).strip('".').rpartition(" in ")[2]
    archive = archive if archive.replace("_", "").isalnum() else ""
    tags = f", tagged {join_words(list(keeping.tags))}" if keeping.tags else ""
    return f"Kept in the archive{f' {archive}' if archive else ''}{tags}."


def _shaped(schema: Raw, desk: Desk, text: str, steps: int) -> Reply:
    found = gather(outcome.value for outcome in desk.outcomes if not outcome.error)
    shaped = fill_shape(schema, found if not found.is_empty else desk.given, text)
    if shaped.missing:
        return give_up(
            f"what was found does not say {join_words(list(shaped.missing))}: {shorten(text, 200)}", steps, final=True
        )
    return Reply(shaped.json)
