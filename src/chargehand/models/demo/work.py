"""A worker's next step: calls to make, the result in words, or `give_up` with the reason.

Called again after every step with what its calls returned. It keeps nothing in between: each clause is worked out from
the beginning, and a call that was not made yet ends it (`CallsNeededError`).
"""

import re
from collections.abc import Sequence
from typing import cast

import msgspec
from msgspec import Struct, structs

from chargehand.models.artifacts import Figure, Table
from chargehand.models.demo.passages import accept_passages, search_query
from chargehand.models.demo.products import chart_arguments, rate_arguments, read_amount
from chargehand.models.demo.request import MENTIONS_MODEL, OFFERED_DAY, Account, Clause, RefusedError, parse_request
from chargehand.models.demo.results import (
    ResultMaterial,
    ToolOutcome,
    as_number,
    figure_in_words,
    format_value,
    gather,
    in_words,
    open_envelope,
    passage_in_words,
    read_outcomes,
    table_in_words,
)
from chargehand.models.demo.tables import Query
from chargehand.models.demo.tools import Arguments, Calls, ToolCard, choose_fit, only_remembers, rate_tool, read_tool
from chargehand.models.demo.words import stem, stem_set
from chargehand.models.messages import Reply, Request, ToolCall
from chargehand.models.partial_text import LEFT
from chargehand.models.request_facts import Working
from chargehand.text.words import join_words, shorten

INSERT = "archival_memory_insert"
APPEND = "core_memory_append"
_ASK_OTHERS = "send_message_to_agents_matching_tags"
_MOST_STEPS = 12
_FROM_WORKER = ' from "worker'
"""How the envelope of a message from another worker begins."""
_TAGGED = re.compile(r"\btagged (?:as |with )?(?P<tags>[\w-]+(?:(?:,\s*(?:and )?|\s+and\s+)[\w-]+)*)", re.IGNORECASE)
_PLACE = re.compile(r"\b(?:to|in|into|on|onto)\s+(?:the |our |my |your )?(?:block )?(?P<place>[\w-]+)", re.IGNORECASE)
_ARCHIVE = stem_set("archive memory findings")
_KEEPING = stem_set("keep save store remember note add put append write block result tagged what was found") | _ARCHIVE


class CallsNeededError(Exception):
    """Calls that have to be made before there is a result."""

    def __init__(self, calls: Sequence[tuple[str, Arguments]]) -> None:
        super().__init__("calls of tools come first")
        self.calls = calls


class WorkerTask(Struct, frozen=True):
    """One task of one worker, with everything that was said for it so far."""

    subject: Working
    tools: list[ToolCard]
    outcomes: list[ToolOutcome]
    material: ResultMaterial
    steps: int

    def tool(self, name: str) -> ToolCard | None:
        return next((tool for tool in self.tools if tool.name == name), None)

    def tool_of_kind(self, kind: str) -> ToolCard | None:
        return next((tool for tool in self.tools if tool.kind == kind), None)

    def outcomes_of(self, tool: str, calls: Sequence[Arguments]) -> list[ToolOutcome]:
        """What came of these calls; those that were not made yet are asked for."""
        by_arguments = {outcome.call.arguments: outcome for outcome in self.outcomes if outcome.call.name == tool}
        missing = [(tool, arguments) for arguments in calls if _encode(arguments) not in by_arguments]
        if missing:
            raise CallsNeededError(missing)
        return [by_arguments[_encode(arguments)] for arguments in calls]

    def call_all(self, tool: str, calls: Sequence[Arguments]) -> list[ResultMaterial]:
        """What calls returned. One that failed is a refusal."""
        outcomes = self.outcomes_of(tool, calls)
        for outcome in outcomes:
            if outcome.error:
                offers_day = OFFERED_DAY.search(outcome.error) is not None
                raise RefusedError(f"`{tool}` failed: {outcome.error}", may_retry=offers_day, is_own=False)
        return [gather([outcome.value]) for outcome in outcomes]

    def call(self, tool: str, arguments: Arguments) -> ResultMaterial:
        return self.call_all(tool, [arguments])[0]

    def call_for_figure(self, tool: str, arguments: Arguments) -> Figure:
        """The number that a call returned."""
        figures = self.call(tool, arguments).of(Figure)
        if not figures or as_number(figures[0].value) is None:
            raise RefusedError(f"{tool} returned no number")
        return figures[0]


def work(subject: Working, request: Request) -> Reply:
    """The next step of a task."""
    messages = request.messages
    if subject.chat_turns:
        messages = (messages[0], *messages[1 + subject.chat_turns :])
    is_message = any(message.role == "user" and _FROM_WORKER in message.text for message in messages)
    if subject.instruction.startswith("Message from "):
        subject = structs.replace(subject, instruction=open_envelope(subject.instruction).strip())
    data = {skill.name: skill.data for skill in subject.worker.skills}
    job = WorkerTask(
        subject=subject,
        tools=[
            read_tool(tool.name, data.get(tool.name) or tool.description, bytes(tool.parameters))
            for tool in request.tools
        ],
        outcomes=read_outcomes(messages),
        material=gather(result.value for result in subject.inputs),
        steps=sum(1 for message in messages if message.role == "assistant" and message.calls),
    )
    is_rejected = messages[-1].role == "user" and any(message.role == "assistant" for message in messages)
    if is_rejected:
        complaint = shorten(messages[-1].text, 300)
        return _give_up(RefusedError(f"the result was not accepted: {complaint}", may_retry=True), job.steps)
    try:
        inputs = [cast("Arguments", result.value) for result in subject.inputs if isinstance(result.value, dict)]
        if any(value.get("kind") == "turn" for value in inputs):
            return Reply("Nothing was noted: the demo model keeps no notes in the background.")
        text = "" if is_message else _ask_others(job)
        return Reply(text or _serve_task(job, is_shaped=request.schema is not None))
    except CallsNeededError as needed:
        if job.steps >= _MOST_STEPS:
            return _give_up(RefusedError("the task took too many steps", may_retry=True), job.steps)
        return _call_tools(needed.calls, job.steps)
    except RefusedError as refusal:
        return _give_up(refusal, job.steps)


def _encode(arguments: Arguments) -> str:
    return msgspec.json.encode(arguments).decode()


def _call_tools(calls: Sequence[tuple[str, Arguments]], steps: int) -> Reply:
    numbered = [
        ToolCall(id=f"call_{steps + 1}_{number}", name=name, arguments=_encode(arguments))
        for number, (name, arguments) in enumerate(calls, 1)
    ]
    return Reply(calls=tuple(numbered), finish="tools")


def _give_up(refusal: RefusedError, steps: int) -> Reply:
    """The call by which a worker says that it cannot do its task."""
    arguments: Arguments = {"reason": refusal.reason}
    if not refusal.may_retry:
        hint = f". {MENTIONS_MODEL}" if refusal.is_own else "."
        arguments = {"reason": refusal.reason.rstrip(".") + hint, "final": True}
    return _call_tools([("give_up", arguments)], steps)


def _serve_task(job: WorkerTask, *, is_shaped: bool) -> str:
    """The results of all clauses, what was kept of them, and what was left out."""
    if is_shaped:
        raise RefusedError("the demo model fills no output types")
    parsed = parse_request(job.subject.instruction)
    texts: list[str] = []
    refusals: dict[str, RefusedError] = {}
    for clause in parsed.clauses:
        if clause.kind == "keep" and refusals:
            texts += ["Not kept: a part of it is missing."] if texts else []
            continue
        try:
            texts.append(_serve_clause(clause, job, "\n".join([*texts, *parsed.remarks])))
        except RefusedError as refusal:
            refusals[clause.text] = refusal
    if not texts:
        reasons = dict.fromkeys(refusal.reason for refusal in refusals.values())
        raise RefusedError(
            "; ".join(reasons) or "the task does not say what is wanted",
            may_retry=any(refusal.may_retry for refusal in refusals.values()),
            is_own=not refusals or any(refusal.is_own for refusal in refusals.values()),
        )
    missing = [LEFT + text + ("" if text.endswith((".", "?", "!")) else ".") for text in refusals]
    return "\n\n".join(filter(None, ("\n".join([*texts, *parsed.remarks]), "\n".join(missing))))


# --- one clause


def _serve_clause(clause: Clause, job: WorkerTask, before: str) -> str:
    """The result for one clause, in words; `before` is what came of the clauses before it."""
    match clause.kind:
        case "draw":
            return _draw(clause, job)
        case "convert":
            return _convert(clause, job)
        case "keep":
            return _keep(read_keeping(clause), job, before)
        case _:
            return _ask(clause, job)


def _ask(clause: Clause, job: WorkerTask) -> str:
    fit = choose_fit(clause, [(job.subject.worker, job.tools)])
    match fit.reading:
        case Query():
            return _query(fit.tool, fit.reading, job)
        case str():
            return figure_in_words(job.call_for_figure(fit.tool.name, {"expression": fit.reading}), fit.reading)
        case tuple():
            return _make_calls(clause, fit.tool, fit.reading, job)
        case None:
            return _search(clause, fit.tool, job)


def _query(tool: ToolCard, query: Query, job: WorkerTask) -> str:
    tables = job.call(tool.name, {"sql": query.sql}).of(Table)
    if not tables:
        raise RefusedError(f"{tool.name} returned no table")
    rows = tables[0].rows
    if query.is_number and all(cell is None for row in rows for cell in row):
        raise RefusedError(f"no rows are on record: {query.title}")
    if query.wants_one and len(rows) > 1:
        raise RefusedError(f"{query.title} has {len(rows)} values; say whether the total, average or highest is meant")
    return table_in_words(tables[0], query.title) if rows else f"{query.title}: none on record."


def _search(clause: Clause, tool: ToolCard, job: WorkerTask) -> str:
    query = search_query(clause, tool, job.subject.worker)
    outcome = job.outcomes_of(tool.name, [{"query": query}])[0]
    if outcome.error and not outcome.error.startswith("nothing found"):
        raise RefusedError(f"`{tool.name}` failed: {outcome.error}", is_own=False)
    passages = gather([outcome.value]).passages
    accepted = accept_passages(clause, passages, tool, job.subject.worker)
    return "\n".join(passage_in_words(passage) for passage in accepted)


def _make_calls(clause: Clause, tool: ToolCard, calls: Calls, job: WorkerTask) -> str:
    lines: list[str] = []
    for arguments, material in zip(calls, job.call_all(tool.name, calls), strict=True):
        title = tool.name.replace("_", " ").capitalize()
        if arguments:
            title += f" ({', '.join(str(argument) for argument in arguments.values())})"
        if clause.question == "how many" and material.of(Table):
            raise RefusedError(f"{tool.name} returned a table, not how many there are")
        texts = in_words(material, title, clause.stems)
        lines += texts or [f"{title}: nothing was returned."]
    return "\n".join(lines)


def _draw(clause: Clause, job: WorkerTask) -> str:
    tool = job.tool_of_kind("chart")
    if tool is None:
        raise RefusedError("there is no tool here that draws")
    return "\n".join(in_words(job.call(tool.name, chart_arguments(clause, job.material)), "Chart"))


def _convert(clause: Clause, job: WorkerTask) -> str:
    tool = rate_tool(job.tools)
    calculator = job.tool_of_kind("compute")
    if tool is None or calculator is None:
        raise RefusedError("nothing here converts it")
    currency, arguments = rate_arguments(clause, tool)
    amount = read_amount(job.material)
    rate = job.call_for_figure(tool.name, arguments)
    result = job.call_for_figure(calculator.name, {"expression": f"round({amount} * {rate.value}, 2)"})
    converted = f"{format_value(as_number(result.value), 2)} {currency}"
    label = rate.label or f"{currency} per EUR"
    return f"Converted amount: {converted} ({format_value(amount, 2)} EUR at {rate.value} {label})."


# --- memory


class Keeping(Struct, frozen=True):
    """Where results are to be kept: in an archive with tags, or on a block."""

    block: str = ""
    tags: tuple[str, ...] = ()

    @property
    def tool(self) -> str:
        return APPEND if self.block else INSERT

    @property
    def place(self) -> str:
        if self.block:
            return f"the block {self.block}"
        return "the archive" + (f", tagged {join_words(list(self.tags))}" if self.tags else "")


def read_keeping(clause: Clause) -> Keeping:
    """Where a clause of the kind `keep` wants results kept; RefusedError where that is not clear."""
    tagged = _TAGGED.search(clause.text)
    tags = tuple(re.findall(r"[\w-]+", re.sub(r"\band\b", " ", tagged["tags"]))) if tagged else ()
    places = _PLACE.findall(clause.text[: tagged.start()] if tagged else clause.text)
    if not clause.points_back or not (places or tags):
        raise RefusedError("what is to be kept, or where, is not clear")
    account = Account(clause)
    account.use_words(_KEEPING | stem_set(" ".join((*places[-1:], *tags))))
    account.settle("what is kept is a whole result, whatever is said of")
    if places and stem(places[-1]) not in _ARCHIVE:
        return Keeping(block=places[-1].lower(), tags=tags)
    return Keeping(tags=tags)


def _keep(keeping: Keeping, job: WorkerTask, text: str) -> str:
    """Keep a result, and say so."""
    content = text or "\n".join(job.material.texts)
    if job.tool(keeping.tool) is None or not content:
        return f"Not kept: this worker has nothing that it may add to {keeping.place}."
    arguments: Arguments = {"content": content}
    if keeping.block:
        arguments = {"label": keeping.block, "content": " ".join(content.split())}
    elif keeping.tags:
        arguments["tags"] = list(keeping.tags)
    error = job.outcomes_of(keeping.tool, [arguments])[0].error
    if error:
        return f"Not kept: {error}"
    return f"Added to {keeping.place}." if keeping.block else f"Kept in {keeping.place}."


# --- asking other workers


class _WorkerReply(Struct):
    """What one of the workers that were asked replied."""

    worker: str = ""
    agent_name: str = ""
    reply: str | None = None


class _WorkerReplies(Struct):
    replies: list[_WorkerReply] = []


def _ask_others(job: WorkerTask) -> str:
    """What others replied to a worker that has no tools of its own but may ask them; nothing for any other worker."""
    if job.tool(_ASK_OTHERS) is None or not only_remembers(job.tools):
        return ""
    outcome = job.outcomes_of(_ASK_OTHERS, [{"message": job.subject.instruction}])[0]
    if outcome.error:
        raise RefusedError(f"no other worker could be asked: {outcome.error}", is_own=False)
    replies = msgspec.convert(outcome.value, _WorkerReplies).replies
    answered = [reply for reply in replies if reply.reply]
    if not answered:
        raise RefusedError(f"none of the {len(replies)} that were asked had an answer")
    lines = [f"{reply.worker or reply.agent_name}: {shorten(reply.reply or '', 1_500)}" for reply in answered]
    return "\n".join([f"{len(answered)} of {len(replies)} replied.", *lines])
