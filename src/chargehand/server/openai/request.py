"""Requests of OpenAI clients, the goal of a team made from one, and what came of the run as these clients read it.

Fields that are not declared here are ignored; fields that cannot be honoured are refused.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, TypeAlias, cast

import msgspec
from msgspec import Meta, Raw, Struct
from starlette.responses import Response

from chargehand.agents.messages import replies_of
from chargehand.agents.result import answer_or_fallback
from chargehand.agents.run_document import RunDocument, RunQuestion, read_document
from chargehand.engine import events as ev
from chargehand.engine.events import Entry
from chargehand.engine.facts import Assumed
from chargehand.models.messages import Reply, thought_text
from chargehand.runtime.runner import Outcome as RunOutcome
from chargehand.runtime.runner import outcome
from chargehand.runtime.stats import Stats
from chargehand.runtime.trace import Tracer
from chargehand.server.dialogue import document_data, explain_answer, question_data
from chargehand.server.openai.answer_format import (
    FormatSent,
    FunctionSent,
    ToolChoice,
    Tools,
    WantedAnswer,
    chat_call,
    describe_format,
    refused,
    response_call,
    stopped,
)
from chargehand.server.openai.conversation import ChatTurn
from chargehand.server.openai.parts import ResponseId, RunPart
from chargehand.server.run_control import RecordedRun
from chargehand.server.teams import Teams
from chargehand.server.tenants import Tenant
from chargehand.server.wire import Problem
from chargehand.team import Team
from chargehand.text.words import did_you_mean

_MAX_ITEMS = 10_000
_TEXT_PARTS = ("text", "input_text", "output_text")
FILE_PARTS = ("image_url", "file", "input_image", "input_file")
_API = "openai"
TEAM_PREFIX = "team/"

Content: TypeAlias = str | list[dict[str, Any]] | None
ModelName: TypeAlias = Annotated[str, Meta(min_length=1, max_length=300)]


class ToolCallSent(Struct, frozen=True):
    id: str = ""
    function: FunctionSent = FunctionSent()


class MessageSent(Struct, frozen=True):
    """A message, or another item of an input: a call of a tool of the client's, or what it returned."""

    role: str = ""
    content: Content = None
    type: str = "message"
    output: Content = None
    tool_calls: list[ToolCallSent] | None = None
    tool_call_id: str = ""
    call_id: str = ""
    name: str = ""
    arguments: str = ""


class StreamOptions(Struct, frozen=True):
    include_usage: bool = False


_LONGEST_LABEL = 200
_LABEL_NAME = re.compile(r"[^:]{1,63}")
_MAX_LABELS = 31
UserName: TypeAlias = Annotated[str, Meta(max_length=_LONGEST_LABEL)]


class ForUser(Struct, frozen=True, kw_only=True):
    """For whom a request is made, in the words of the client."""

    user: UserName | None = None
    safety_identifier: UserName | None = None
    """The later name of `user`."""
    metadata: dict[str, Any] | None = None

    @property
    def labels(self) -> dict[str, str]:
        """The labels of the run: the user, and the texts of the metadata that fit into a label."""
        labels = {
            name: value
            for name, value in (self.metadata or {}).items()
            if isinstance(value, str) and len(value) <= _LONGEST_LABEL and _LABEL_NAME.fullmatch(name)
        }
        labels = dict(list(labels.items())[:_MAX_LABELS])
        user = self.user or self.safety_identifier
        return {**labels, "user": user} if user else labels


class ChatSent(ForUser, frozen=True):
    model: ModelName
    messages: Annotated[list[MessageSent], Meta(min_length=1, max_length=_MAX_ITEMS)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = None
    tools: Tools = None
    functions: Tools = None
    tool_choice: ToolChoice = None
    parallel_tool_calls: bool | None = None
    response_format: FormatSent | None = None
    stop: str | list[str] | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    modalities: list[str] | None = None
    logprobs: bool | None = None


class TextSent(Struct, frozen=True):
    format: FormatSent | None = None


class ResponseSent(ForUser, frozen=True):
    model: ModelName
    input: str | Annotated[list[MessageSent], Meta(max_length=_MAX_ITEMS)]
    instructions: str | None = None
    stream: bool | None = None
    store: bool | None = None
    background: bool | None = None
    previous_response_id: Annotated[str, Meta(max_length=400)] | None = None
    conversation: str | dict[str, Any] | None = None
    tools: Tools = None
    tool_choice: ToolChoice = None
    parallel_tool_calls: bool | None = None
    max_output_tokens: int | None = None
    text: TextSent | None = None


# --- what is refused


def check_chat(sent: ChatSent) -> None:
    if sent.n not in (None, 1):
        raise refused("n", f"n is {sent.n}, but a team gives one answer; leave n out, and call again for another")
    if sent.functions and sent.tool_choice != "none":
        raise refused("functions", "functions are sent as tools: {type: function, function: ...}")
    if sent.modalities and sent.modalities != ["text"]:
        raise refused("modalities", "a team answers in text only; leave modalities out")
    if sent.logprobs:
        raise refused("logprobs", "a team has no log probabilities; leave logprobs out")


def check_response(sent: ResponseSent) -> None:
    if sent.conversation is not None:
        raise refused("conversation", "there are no conversation objects here; use previous_response_id")
    if sent.background and sent.stream:
        raise refused("stream", "a response in the background is not streamed; retrieve it by its id")
    if sent.background and sent.store is False:
        raise refused("store", "a response in the background must be stored, or it could not be retrieved")


def chat_format(sent: ChatSent) -> ev.AnswerFormat | None:
    """What the client takes as an answer; None: plain text."""
    newer = sent.max_completion_tokens is not None
    wanted = WantedAnswer(
        tools=sent.tools,
        tool_choice=sent.tool_choice,
        form=sent.response_format,
        form_param="response_format",
        max_tokens=sent.max_completion_tokens if newer else sent.max_tokens,
        max_tokens_param="max_completion_tokens" if newer else "max_tokens",
        parallel_calls=sent.parallel_tool_calls,
    )
    return wanted.read()


def response_format(sent: ResponseSent) -> ev.AnswerFormat | None:
    """What the client takes as an answer; None: plain text."""
    wanted = WantedAnswer(
        tools=sent.tools,
        tool_choice=sent.tool_choice,
        form=None if sent.text is None else sent.text.format,
        form_param="text.format",
        max_tokens=sent.max_output_tokens,
        max_tokens_param="max_output_tokens",
        parallel_calls=sent.parallel_tool_calls,
    )
    return wanted.read()


def check_target(target: "TeamTarget", wanted: ev.AnswerFormat | None) -> None:
    """A problem where this team or worker cannot answer in the format that is wanted."""
    if wanted is None or wanted.is_text:
        return
    param = "tools" if wanted.tools else "response_format"
    if target.worker:
        raise refused(param, f"one worker answers in text; call its team instead: {TEAM_PREFIX}{target.team.name}")
    if target.team.reads_facts:
        detail = "the demo model answers in text only; give the team a language model, or leave the format out"
        raise refused(param, detail)


# --- who is called


class TeamTarget(Struct, frozen=True):
    """A team that was called by the name of a model; with `worker`, only that one of it."""

    id: str
    team: Team
    worker: str = ""

    @property
    def answering_work(self) -> str:
        """The kind of work whose words become the answer as they come.

        What a worker says before it calls a tool is no answer, so one who has tools is heard at the end.
        """
        if not self.worker:
            return "answer"
        has_tools = any(worker.tools for worker in self.team.members if worker.name == self.worker)
        return "" if has_tools else "attempt"


def find_target(tenant: Tenant, name: str) -> TeamTarget:
    """The team or worker of a model name; 404 if there is none. A team's name wins over a worker's."""
    teams = tenant.part(Teams).teams
    plain = name.removeprefix(TEAM_PREFIX)
    if plain in teams:
        return TeamTarget(name, teams[plain])
    team, _, worker = plain.rpartition(":")
    if team in teams and any(member.name == worker for member in teams[team].members):
        return TeamTarget(name, teams[team], worker)
    hint = did_you_mean(f"{TEAM_PREFIX}{plain}", [target.id for target in list_targets(tenant)])
    raise Problem(404, "model_not_found", f"there is no model {name[:100]!r}; {hint}")


def list_targets(tenant: Tenant) -> list[TeamTarget]:
    """Every team and worker, teams first."""
    teams = tenant.part(Teams).teams.values()
    names = [(team, "") for team in teams] + [(team, worker.name) for team in teams for worker in team.members]
    return [
        TeamTarget(f"{TEAM_PREFIX}{team.name}{':' if worker else ''}{worker}", team, worker) for team, worker in names
    ]


# --- what was said


def read_turns(
    messages: Sequence[MessageSent], param: str, earlier_calls: Sequence[ev.CallerToolCall] = ()
) -> list[ChatTurn]:
    """What was said, what was called and what that returned. Files are only counted here.

    `earlier_calls` were made before these messages; their results may be among them.
    """
    turns: list[ChatTurn] = []
    calls = {call.id: _call_text(call.name, call.arguments) for call in earlier_calls}
    for number, message in enumerate(messages):
        place = f"{param}[{number}]"
        if message.type == "function_call_output":
            turns.append(_returned(calls, message.call_id, _text(message.output, f"{place}.output")))
        elif message.type == "function_call":
            calls[message.call_id] = _call_text(message.name, message.arguments)
            turns.append(ChatTurn("assistant", describe_call(message.name, message.arguments)))
        elif message.type == "item_reference":
            detail = "an item that is only referred to cannot be read here; send it, or use previous_response_id"
            raise refused(place, detail)
        elif message.type == "message":
            if not message.role:
                raise refused(place, "a message needs a role")
            text = _text(message.content, f"{place}.content")
            files = _count_files(message.content)
            if message.role in ("tool", "function"):
                turns.append(_returned(calls, message.tool_call_id or message.name, text, files))
                continue
            turns.append(ChatTurn(message.role, text, files=files, name=message.name))
            for call in message.tool_calls or ():
                calls[call.id] = _call_text(call.function.name, call.function.arguments)
                turns.append(ChatTurn("assistant", describe_call(call.function.name, call.function.arguments)))
    return turns


def describe_call(name: str, arguments: str) -> str:
    """A call of the client's tool as something that was said."""
    return f"(called {_call_text(name, arguments)})"


def _call_text(name: str, arguments: str) -> str:
    return f"{name} with {arguments}"


def _returned(calls: Mapping[str, str], call: str, text: str, files: int = 0) -> ChatTurn:
    """A result names its call with the arguments: of several calls of one tool, results may come in any order."""
    return ChatTurn("tool", f"{calls.get(call, call)} returned: {text}" if call else text, files)


def _count_files(content: Content) -> int:
    return sum(part.get("type") in FILE_PARTS for part in content) if isinstance(content, list) else 0


def _text(content: Content, param: str) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    texts: list[str] = []
    for number, part in enumerate(content):
        kind = str(part.get("type", "text"))
        if kind == "refusal" or kind in FILE_PARTS:
            continue
        if kind not in _TEXT_PARTS:
            detail = f"this part is of type {kind[:40]!r}; a team takes text, files and pictures"
            raise refused(f"{param}[{number}]", detail)
        text = part.get("text", "")
        if not isinstance(text, str):
            raise refused(f"{param}[{number}].text", "the text of a part is a string")
        texts.append(text)
    return "\n".join(texts)


# --- what is recorded of a call


class TeamRequest(Struct, frozen=True, omit_defaults=True):
    """What a client asked of a team, recorded with the request of its run.

    `turns` are what a next request may go on from; none where it was not to be stored.
    """

    model: str
    worker: str = ""
    stored: bool = False
    turns: tuple[ChatTurn, ...] = ()
    previous: str = ""
    instructions: str = ""
    background: bool = False
    metadata: dict[str, Any] | None = None
    stop: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    """Ids of the files in it, which a next request goes on from, too."""
    file_turns: dict[str, tuple[int, ...]] = {}
    """By the id of a file, the numbers of the turns it was sent in."""
    left_out: int = 0
    """How many of the earliest turns of its conversation the team was not given."""

    def to_record(self, digest: str) -> ev.ClientRequest:
        return ev.ClientRequest(_API, Raw(msgspec.json.encode(self)), digest)


def recorded_request(requested: ev.RunRequested) -> TeamRequest | None:
    """What the client asked of a team; None for a run that was begun another way."""
    if requested.client is None or requested.client.api != _API:
        return None
    return msgspec.json.decode(requested.client.body, type=TeamRequest)


# --- replies


RUN_HEADER = "X-Run-Id"
_CUT_SHORT = ("budget", "deadline", "overspent")
_VERDICTS = {
    "plan": '"approve", or "reject" with "feedback"',
    "tool": '"approve" or "reject"',
    "effect": '"done" with a "result", "again" or "fail"',
    "question": '"answer" with the answer as "result", or "reject"',
}
_ERROR_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_BODY_CODES = frozenset(("invalid", "not_json", "plan_invalid", "other_body"))

Json = dict[str, object]


# --- errors


class RunProblem(Problem):
    """A run that came to nothing, with its document."""

    def __init__(self, document: RunDocument, status: int, code: str, detail: str) -> None:
        super().__init__(status, code, detail)
        self.run = document.run
        self.document = document


def error_of(problem: Problem) -> Json:
    """What stands under `error`, in replies and in streams."""
    kind = _ERROR_TYPES.get(problem.status) or ("invalid_request_error" if problem.status < 500 else "server_error")
    place = problem.faults[0].place.removeprefix("$").removeprefix(".") if problem.faults else ""
    error: Json = {"message": problem.detail, "type": kind, "param": place or None, "code": problem.code}
    return {**error, "chargehand": describe(problem.document)} if isinstance(problem, RunProblem) else error


def describe(document: RunDocument, notice: str = "", left_out: int = 0) -> Json:
    """Return what stands under `chargehand`: how the run stands, and what it asks; its answer has a field already.

    `left_out` is how many of the earliest turns the team was not given.
    """
    fields = document_data(document)
    about: Json = {**fields, "ending": fields.pop("state")}
    if document.question is not None:
        about["question"] = question_data(document.question)
    if left_out:
        about["left_out_turns"] = left_out
    return {**about, "notice": notice} if notice else about


def render_problem(problem: Problem) -> Response:
    """What is wrong with a body is 400 here, as these clients know it; what middleware refuses keeps its status.

    Where a run came to nothing the same call would come to the same, so the client is told not to make it again.
    """
    headers = {RUN_HEADER: problem.run, "x-should-retry": "false"} if problem.run else {}
    status = 400 if problem.code in _BODY_CODES else problem.status
    return Response(msgspec.json.encode({"error": error_of(problem)}), status, headers, "application/json")


# --- what came of a run, in words


class TeamAnswer(Struct, frozen=True):
    """What there is to say, or the calls that the client is to make, or why there is no answer in its format."""

    document: RunDocument
    """How the run stands."""
    text: str
    """The answer, or what a person is asked."""
    tokens: int
    """What the ledger says was used."""
    output_tokens: int
    """What workers' models wrote; the rest counts as read."""
    reasoning_tokens: int = 0
    """Of what they wrote: what they thought."""
    cached_tokens: int = 0
    """Of what they read: what came from providers' caches."""
    cache_write_tokens: int = 0
    """Of what they read: what was written to providers' caches."""
    cut: str = ""
    """Why the answer is not whole: `max_output_tokens`, or the reason of the run; empty: it is whole."""
    calls: tuple[ev.CallerToolCall, ...] = ()
    """Calls that the client is to make."""
    refusal: str = ""
    """Why there is no answer in the wanted format."""
    left_out: int = 0
    """How many of the earliest turns of the conversation the team was not given."""

    @property
    def content(self) -> str | None:
        """The text; None where there is something else instead."""
        return None if self.refusal or (self.calls and not self.text) else self.text

    @property
    def finish(self) -> str:
        """Return how a chat ends: `length` where time, money or the longest answer cut it short, or `tool_calls`."""
        return "tool_calls" if self.calls else "length" if self.cut else "stop"

    @property
    def incomplete(self) -> str:
        """Return why a response is not complete: it waits for a person, or was cut short; empty: it is complete."""
        return "needs_input" if self.document.state == "needs_input" else self.cut


def answer_of(part: RunPart) -> TeamAnswer:
    """What came of a run that has stopped; raises a problem for one that came to nothing."""
    recorded = part.recorded
    run = recorded.run
    state = recorded.state
    document = read_document(run, state)
    wanted = recorded.requested.answer_format
    is_waiting = state.ended is None
    text = _waiting_text(part, document) if is_waiting else _ended_text(recorded, document)
    refusal = text if is_waiting and wanted is not None and not wanted.is_text else ""
    request = recorded_request(recorded.requested)
    tokens = state.ledger.spent.tokens - part.before.tokens
    used = _count_tokens(run, recorded.entries)
    used.subtract(_count_tokens(run, recorded.entries[: part.begins]))
    output = min(used["output"], tokens)
    is_cut_short = document.state == "partial" and document.reason in _CUT_SHORT
    return TeamAnswer(
        document=document,
        text="" if refusal else stopped(text, () if request is None else request.stop),
        tokens=tokens,
        output_tokens=output,
        reasoning_tokens=min(used["reasoning"], output),
        cached_tokens=used["cached"],
        cache_write_tokens=used["cache_written"] + used["cache_written_hour"],
        cut="max_output_tokens" if state.answer_cut else document.reason if is_cut_short else "",
        calls=() if state.answer_written is None else state.answer_written.calls,
        refusal=refusal,
        left_out=0 if request is None else request.left_out,
    )


def _count_tokens(run: str, entries: Sequence[ev.Entry]) -> Counter[str]:
    """Return the tokens of workers' models by kind."""
    stats = Stats()
    stats.record(run, entries)
    counts: Counter[str] = Counter()
    for model in stats.calls["model"].values():
        counts.update(model.tokens)
    return counts


def _ended_text(recorded: RecordedRun, document: RunDocument) -> str:
    run = recorded.run
    if document.state == "cancelled":
        raise RunProblem(document, 409, "run_cancelled", f"run {run!r} was {document.why}; ask again to begin another")
    request = recorded_request(recorded.requested)
    is_for_worker = request is not None and request.worker
    text, is_good = _worker_text(recorded) if is_for_worker else _team_text(recorded)
    if not is_good:
        why = f", {document.reason}: {document.why}" if document.why else ""
        raise RunProblem(document, 500, "run_failed", f"{text}\n(run {run}{why}; what it did: GET /api/runs/{run})")
    return text


def _team_text(recorded: RecordedRun) -> tuple[str, bool]:
    """The answer of a team, and whether it is one."""
    finished = outcome(recorded.run, recorded.state)
    wanted = recorded.requested.answer_format
    if wanted is not None and not wanted.is_text:
        return _formatted_text(recorded, finished, wanted)
    answer = _words(answer_or_fallback(finished))
    notes = [entry.event for entry in recorded.entries if isinstance(entry.event, ev.Noted)]
    unserved = finished.reason == "no_plan" and finished.gaps and all(gap.status == "unserved" for gap in finished.gaps)
    if unserved:  # who says hello must be told what there is to ask
        assumed = [note.fact.text for note in notes if isinstance(note.fact, Assumed)]
        return "\n\n".join((answer, *assumed)), False
    is_good = finished.ending in ("complete", "partial")
    return answer or ("There is nothing to say." if is_good else "There is no answer."), is_good


def _formatted_text(recorded: RecordedRun, finished: RunOutcome, wanted: ev.AnswerFormat) -> tuple[str, bool]:
    """The JSON of an answer, or the text beside its calls. Without one it is no good: prose would be taken for it."""
    written = recorded.state.answer_written
    if written is None:
        return _words(answer_or_fallback(finished)) or "There is no answer.", False
    if written.calls or wanted.schema == ev.NULL:
        return _words(msgspec.json.decode(written.answer if written.calls else written.whole())), True
    return bytes(written.answer).decode(), True


def _worker_text(recorded: RecordedRun) -> tuple[str, bool]:
    reply = replies_of(Tracer.replay(recorded.run, recorded.entries)).replies[0]
    if reply.status != "answered":
        return f"{reply.worker} {reply.status}: {reply.failure}", False
    return reply.text or _words(reply.value), True


def _words(value: object) -> str:
    """An answer that a function made may be anything; what a worker delivers has its words under `text`."""
    if isinstance(value, dict) and isinstance(text := cast("Json", value).get("text"), str):
        return text
    return value if isinstance(value, str) else msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def _waiting_text(part: RunPart, document: RunDocument) -> str:
    """What is asked, and how it is answered. A run that was paused asks nothing."""
    run = document.run
    question = document.question
    if question is None:
        return f"This run is paused. POST /api/runs/{run}/resume goes on with it; GET /api/runs/{run} shows it."
    example = json.dumps(_example_answer(question))
    return (
        f"{question.message}\n\nThe run is {run}. To answer: POST /api/runs/{run}/answer with {example}; "
        f"the verdict is {_VERDICTS[question.what]}. What comes of it then: GET /api/runs/{run}."
        f"{_in_words(part, question)}"
    )


def _example_answer(question: RunQuestion) -> Json:
    """Return a body that answers a question, with a verdict on each call."""
    verdict = question.verdicts[0]
    body: Json = {"number": question.number, "verdict": verdict}
    if verdict in ("answer", "done"):
        body["result"] = "..."
    others = [{**body, "call": call.call} for call in question.calls[1:]]
    for other in others:
        del other["number"]
    return {**body, "also": others} if others else body


def _in_words(part: RunPart, question: RunQuestion) -> str:
    """Return how a response is answered by the next one; empty for a chat, which has no id to go on from."""
    request = recorded_request(part.recorded.requested)
    if request is None or not request.stored:
        return ""
    words = explain_answer(question).removeprefix("Reply ") or "the answer."
    return f" Or create a response with previous_response_id {part.response.text!r} and as its input: {words}"


# --- chat completions


class ChatHead(Struct, frozen=True):
    """What a completion and each of its chunks begin with. `usage`: whether it is wanted at the end of a stream."""

    run: str
    created: int
    model: str
    usage: bool

    def begin(self, kind: str, choices: Sequence[Json]) -> Json:
        begun = {"id": f"chatcmpl-{self.run}", "object": kind, "created": self.created, "model": self.model}
        return {**begun, "choices": choices}


def chat_completion(head: ChatHead, answer: TeamAnswer, notice: str, thoughts: str = "") -> Json:
    message: Json = {"role": "assistant", "content": answer.content, "refusal": answer.refusal or None}
    if answer.calls:
        message["tool_calls"] = [chat_call(call) for call in answer.calls]
    if notice or thoughts:
        message["reasoning_content"] = "\n".join(filter(None, (notice, thoughts)))
    choice: Json = {"index": 0, "message": message, "finish_reason": answer.finish, "logprobs": None}
    completion = head.begin("chat.completion", [choice])
    return {**completion, "usage": chat_usage(answer), "chargehand": describe(answer.document, notice, answer.left_out)}


def worker_thoughts(entries: Sequence[Entry]) -> str:
    """What the model of a worker thought in a run of its own, as far as it can be read."""
    model_steps: set[tuple[str, int, int]] = set()
    thoughts: list[str] = []
    for entry in entries:
        event = entry.event
        if isinstance(event, ev.StepStarted) and event.kind == "model":
            model_steps.add((event.task, event.attempt, event.step))
        elif isinstance(event, ev.StepFinished) and (event.task, event.attempt, event.step) in model_steps:
            with suppress(msgspec.MsgspecError):  # a step of foreign code may be of any shape
                thoughts.append(thought_text(msgspec.json.decode(event.result, type=Reply).kept))
    return "\n".join(filter(None, thoughts))


def chat_usage(answer: TeamAnswer) -> Json:
    read = answer.tokens - answer.output_tokens
    return {
        "prompt_tokens": read,
        "prompt_tokens_details": {
            "cached_tokens": answer.cached_tokens,
            "cache_write_tokens": answer.cache_write_tokens,
        },
        "completion_tokens": answer.output_tokens,
        "completion_tokens_details": {"reasoning_tokens": answer.reasoning_tokens},
        "total_tokens": answer.tokens,
    }


# --- responses


class ResponseHead(Struct, frozen=True):
    """What a response has from its beginning."""

    id: ResponseId
    created: float
    request: TeamRequest
    notice: str
    wanted: ev.AnswerFormat | None = None

    def response(self, status: str, output: Sequence[Json], **more: object) -> Json:
        request = self.request
        return {
            "id": self.id.text,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "model": request.model,
            "output": output,
            "background": request.background,
            "error": None,
            "incomplete_details": None,
            "instructions": request.instructions or None,
            "metadata": request.metadata or {},
            "previous_response_id": request.previous or None,
            "store": request.stored,
            **describe_format(self.wanted),
            "usage": None,
            **more,
        }

    def over(self, answer: TeamAnswer, output: Sequence[Json]) -> Json:
        """Return a response that is over: completed, or incomplete where it waits for a person or was cut short."""
        usage = {
            "input_tokens": answer.tokens - answer.output_tokens,
            "input_tokens_details": {
                "cached_tokens": answer.cached_tokens,
                "cache_write_tokens": answer.cache_write_tokens,
            },
            "output_tokens": answer.output_tokens,
            "output_tokens_details": {"reasoning_tokens": answer.reasoning_tokens},
            "total_tokens": answer.tokens,
        }
        status = "incomplete" if answer.incomplete else "completed"
        details = {"reason": answer.incomplete} if answer.incomplete else None
        about = describe(answer.document, self.notice, answer.left_out)
        return self.response(status, output, usage=usage, incomplete_details=details, chargehand=about)

    def failed(self, problem: Problem) -> Json:
        about: Json = {"chargehand": describe(problem.document, self.notice)} if isinstance(problem, RunProblem) else {}
        if problem.code == "run_cancelled":
            return self.response("cancelled", [], **about)
        return self.response("failed", [], error={"code": "server_error", "message": problem.detail}, **about)

    def as_it_stands(self, part: RunPart) -> Json:
        """The response for a part of a run, whatever has become of it so far."""
        if not part.is_over:
            document = read_document(part.recorded.run, part.recorded.state, is_driven=part.recorded.is_driven)
            return self.response("in_progress", [], chargehand=describe(document, self.notice))
        try:
            answer = answer_of(part)
        except Problem as problem:
            return self.failed(problem)
        return self.over(answer, self.items(answer))

    def items(self, answer: TeamAnswer) -> list[Json]:
        """The answer as items: a message, unless there are only calls, and the calls."""
        calls = [response_call(call) for call in answer.calls]
        if answer.refusal:
            return [self.message(answer.refusal, refused=True)]
        return calls if answer.content is None else [self.message(answer.text), *calls]

    def message(self, text: str | None, *, refused: bool = False) -> Json:
        """The answer as an item; with no text, one that is being written."""
        part = {"type": "refusal", "refusal": text} if refused else text_part(text or "")
        parts = [] if text is None else [part]
        status = "in_progress" if text is None else "completed"
        return {"id": f"msg_{self.id.name}", "type": "message", "role": "assistant", "status": status, "content": parts}

    def reasoning(self, text: str | None) -> Json:
        summary = [] if text is None else [summary_part(text)]
        return {"id": f"rs_{self.id.name}", "type": "reasoning", "summary": summary}


def text_part(text: str) -> Json:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def summary_part(text: str) -> Json:
    return {"type": "summary_text", "text": text}
