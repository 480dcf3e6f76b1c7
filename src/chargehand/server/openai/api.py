"""A team as a model, for clients of OpenAI: models, chat completions and responses.

A response is a run, so it is stored anyway. `previous_response_id` goes on from what was said there. With
`store: false` it cannot be continued or retrieved. A client that goes away stops nothing: the run goes on, and its
name was sent in a header.
"""

import functools
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import TypeAlias

from msgspec import Struct, structs
from starlette.requests import Request
from starlette.responses import Response

from chargehand.agents.messages import PERSON, addressed, message_request
from chargehand.agents.result import noted_facts
from chargehand.agents.run_document import read_question
from chargehand.concurrency import BareTaskGroup
from chargehand.engine import events as ev
from chargehand.engine.events import Entry
from chargehand.engine.plan import digest
from chargehand.engine.roster import Match
from chargehand.engine.state import TextKind, Work
from chargehand.errors import RunUnknown
from chargehand.memory.conversations import scope_of
from chargehand.runtime.files import read_files
from chargehand.runtime.runner import checked
from chargehand.server.api.control import answer_question
from chargehand.server.dialogue import parse_answer, progress_text
from chargehand.server.idempotency import Repeats, RunKey, is_answered, is_repeated, key_of, mark_of
from chargehand.server.openai.answer_format import chat_call, read_stops, refused, response_call
from chargehand.server.openai.conversation import ChatTurn, Conversation, read_conversation
from chargehand.server.openai.files import (
    add_file_routes,
    check_attachments,
    keep_attachments,
    read_attachments,
    turns_of_files,
    with_turns,
)
from chargehand.server.openai.parts import ResponseId, RunPart, ended_part, parse_response_id, part_before, read_part
from chargehand.server.openai.request import (
    RUN_HEADER,
    ChatHead,
    ChatSent,
    Json,
    MessageSent,
    ResponseHead,
    ResponseSent,
    TeamAnswer,
    TeamRequest,
    TeamTarget,
    answer_of,
    chat_completion,
    chat_format,
    chat_usage,
    check_chat,
    check_response,
    check_target,
    describe,
    describe_call,
    error_of,
    find_target,
    list_targets,
    read_turns,
    recorded_request,
    render_problem,
    response_format,
    summary_part,
    text_part,
    worker_thoughts,
)
from chargehand.server.routing import CALLER, Api, ApiCaller, asker_of
from chargehand.server.run_control import RecordedRun, read_run, tell_run, wait_for_run
from chargehand.server.streams import Output, event, streamed
from chargehand.server.teams import Teams
from chargehand.server.tenant_runs import StreamSlot
from chargehand.server.tenants import Tenant
from chargehand.server.wire import Fault, Problem, body, part, problem_of, reply
from chargehand.team import Team

_PIECE = 240  # characters of an answer that comes all at once
_ANEW = "\n\n(The text above was broken off. This is the whole answer.)\n\n"


# --- the run of a call


class Call(Struct, frozen=True):
    """A call: its target, its conversation, and what is recorded of it."""

    target: TeamTarget
    conversation: Conversation
    request: TeamRequest
    wanted: ev.AnswerFormat | None = None
    labels: Mapping[str, str] = {}
    """Those of the run."""
    asker: str = ""
    """The id of the key that the call came with; empty: it came without."""

    @property
    def answering_work(self) -> str:
        """The kind of work whose words become the answer as they come; empty where only the whole answer is right."""
        is_text = self.wanted is None or self.wanted.is_text
        return self.target.answering_work if is_text and not self.request.stop else ""

    @property
    def thinking_work(self) -> str:
        """The kind of work whose thoughts are shown: of several workers at once, they would be mixed."""
        return "attempt" if self.target.worker else "answer"


class Thought(Struct, frozen=True):
    """A piece of what a model thinks before it answers."""

    text: str


class Listener:
    """Hears the words of a run while they are written. It must listen before the run begins, to miss none of them.

    One that never listens, because the run was begun before, hears nothing: half an answer is no beginning of it.
    `answering_work` is the kind of work whose words become the answer, `thinking_work` that whose thoughts are shown.
    """

    def __init__(self, tenant: Tenant, answering_work: str = "", thinking_work: str = "") -> None:
        self._tenant = tenant
        self._leave: Callable[[], None] | None = None
        self.answering_work = answering_work
        self._thinking_work = thinking_work
        self.output = Output[Entry | Thought | tuple[Work, str]]()

    def listen(self, run: str) -> None:
        self._leave = self._tenant.listen_to_words(run, self._on_words)

    def leave(self) -> None:
        if self._leave is not None:
            self._leave()

    def _on_words(self, work: Work, words: str, kind: TextKind) -> None:
        if kind == "answer":
            self.output.add((work, words))
        elif work.kind == self._thinking_work:
            self.output.add(Thought(words))


async def run_call(request: Request, tenant: Tenant, sent: Struct, call: Call, listener: Listener | None = None) -> str:
    """The run of a call: a new one, on disk, whose words are listened to, or the one that the same call began."""
    key = key_of(request, tenant, sent)
    if key is not None:
        begun = await key.begin(tenant, lambda: _begin(tenant, call, listener, key))
        return begun.run
    mark = await mark_of(request)
    repeats = tenant.part(Repeats)
    if is_repeated(request) and (run := await repeats.begun_by(mark)):
        return run
    return await repeats.begin(mark, lambda: _begin(tenant, call, listener, None, mark))


async def _begin(tenant: Tenant, call: Call, listener: Listener | None, key: RunKey | None, mark: str = "") -> str:
    tenant.runs.check()
    target = call.target
    now = time.time()
    served = await tenant.part(Teams).of(target.team.name)
    team = await served.keep_budget()
    heeds_wishes = not target.team.reads_facts
    goal = call.conversation.goal(heeds_wishes=heeds_wishes)
    files = await read_files(tenant.journal.files, call.request.files)
    files = with_turns(files, call.request.file_turns, call.conversation.request.number)
    material = (*call.conversation.material(), *files)
    request = team.request(goal, now, seed=None if key is None else key.seed)
    request = structs.replace(
        request,
        inputs=material,
        outside=bool(material),
        labels=dict(call.labels),
        scope=scope_of(call.labels, asker=call.asker),
    )
    if call.wanted is not None:
        request = structs.replace(request, answer_format=call.wanted)
    if target.worker:
        message = addressed(
            agents=team.members, text=goal, match=Match(), names=(target.worker,), sender=PERSON, timeout=None
        )
        # with the name of its team it goes on after a restart, and can be spoken to, like any other run
        request = structs.replace(message_request(request, message), team=team.name)
    request = structs.replace(request, client=call.request.to_record(mark))
    run = served.new_name() if key is None else key.run
    if listener is not None:
        listener.listen(run)
    try:
        outcome = await served.start(team, checked(request, now), run)
    except BaseException:
        if listener is not None:
            listener.leave()
        raise
    if listener is not None:
        outcome.add_done_callback(lambda _: listener.leave())  # also where the client never fetched its stream
    return run


# --- a run, heard while it goes on


class AnswerWords:
    """Puts the words of an answer together. What was sent cannot be taken back, so only what stays is sent.

    An answer that is begun anew after a failure is not sent as it comes: only what came of it, at the end.
    """

    def __init__(self, answering_work: str) -> None:
        self._kind = answering_work
        self._work: Work | None = None
        self._held_back = ""
        self.sent = ""

    def add(self, work: Work, words: str) -> str:
        """What may be sent of these words: white space waits for what follows it, since the end has none."""
        if work.kind != self._kind or work != (self._work or work):
            return ""
        self._work = work
        text = self._held_back + words
        text = text if self.sent else text.lstrip()
        whole = text.rstrip()
        self._held_back = text[len(whole) :]
        self.sent += whole
        return whole

    def rest(self, text: str) -> Iterator[str]:
        """What is still to be said, in pieces."""
        rest_text = text[len(self.sent) :] if text.startswith(self.sent) else _ANEW + text
        while rest_text:
            cut = len(rest_text) if len(rest_text) <= _PIECE else rest_text.rfind(" ", 0, _PIECE) + 1 or _PIECE
            yield rest_text[:cut]
            rest_text = rest_text[cut:]


async def write_stream(
    tenant: Tenant, begun: RunPart, listener: Listener, writer: "Writer", notice: str
) -> AsyncGenerator[bytes]:
    """All of a part of a run, up to what came of it, as the writer puts it."""
    yield writer.begin(notice)
    async with aclosing(_write_run(tenant, begun, listener, writer)) as parts:
        try:
            async for part in parts:
                yield part
        except Exception as error:  # noqa: BLE001 - the status was sent long ago, so it is said in the stream
            yield writer.fail(problem_of(error))
    yield writer.close()


async def _write_run(tenant: Tenant, begun: RunPart, listener: Listener, writer: "Writer") -> AsyncGenerator[bytes]:
    run = begun.recorded.run
    words = AnswerWords(listener.answering_work)
    last = begun.begins
    gap = ""  # what ends a thought before a line of progress
    async with BareTaskGroup() as jobs, aclosing(listener.output.read()) as items:
        entries = jobs.create_task(_pass_on_entries(tenant, run, listener, after=last))
        end = jobs.create_task(_pass_on_end(tenant, run, listener))
        try:
            async for item in items:
                if isinstance(item, ev.Entry):
                    last = item.seq
                    text = progress_text(item.event)
                    part = writer.think(f"{gap}{text}\n") if text else b""
                    gap = "" if text else gap
                elif isinstance(item, Thought):
                    part = writer.think(item.text)
                    gap = "" if item.text.endswith("\n") else "\n"
                else:
                    text = words.add(*item)
                    part = writer.speak(text) if text else b""
                if part:
                    yield part
        except GeneratorExit:
            return  # a group of tasks would make an error of it
        finally:
            entries.cancel()
            end.cancel()
    part = ended_part(await wait_for_run(tenant, run), begun.answered)
    for entry in part.recorded.entries[last:]:
        if text := progress_text(entry.event):
            yield writer.think(f"{text}\n")
    answer = answer_of(part)
    for piece in words.rest(answer.text):
        yield writer.speak(piece)
    yield writer.end(answer)


async def _pass_on_entries(tenant: Tenant, run: str, listener: Listener, *, after: int) -> None:
    try:
        async for entry in tenant.feed.subscribe(run, after):
            listener.output.add(entry)
    except Exception as error:  # noqa: BLE001 - passed to the reader of the stream
        listener.output.close(error)


async def _pass_on_end(tenant: Tenant, run: str, listener: Listener) -> None:
    error = None
    try:
        await wait_for_run(tenant, run)
    except Exception as caught:  # noqa: BLE001 - as above
        error = caught
    listener.output.close(error)


async def in_slot(parts: AsyncGenerator[bytes], slot: StreamSlot) -> AsyncGenerator[bytes]:
    """A stream in its slot. When the server stops it is told why, so it must not be ended before it has said so."""
    try:
        async with aclosing(parts):
            async for part in parts:
                yield part
    finally:
        slot.leave()


# --- chat completions


class ChatWriter:
    """Chunks of a chat completion: progress as reasoning, then the answer."""

    def __init__(self, head: ChatHead) -> None:
        self._head = head
        self._is_answering = False

    def begin(self, notice: str) -> bytes:
        first = self._chunk({"role": "assistant", "content": ""})
        return first + self.think(f"{notice}\n") if notice else first

    def think(self, text: str) -> bytes:
        return b"" if self._is_answering else self._chunk({"reasoning_content": text})

    def speak(self, text: str) -> bytes:
        self._is_answering = True  # from now on it is not interrupted
        return self._chunk({"content": text})

    def end(self, answer: TeamAnswer) -> bytes:
        more: dict[str, object] = {}
        if answer.calls:
            more["tool_calls"] = [{"index": index, **chat_call(call)} for index, call in enumerate(answer.calls)]
        if answer.refusal:
            more["refusal"] = answer.refusal
        last = (self._chunk(more) if more else b"") + self._chunk(
            {}, answer.finish, describe(answer.document, left_out=answer.left_out)
        )
        return last + self._event([], {"usage": chat_usage(answer)}) if self._head.usage else last

    def fail(self, problem: Problem) -> bytes:
        return event({"error": error_of(problem)})

    def close(self) -> bytes:
        return b"data: [DONE]\n\n"

    def _chunk(self, delta: Mapping[str, object], finish: str | None = None, about: Json | None = None) -> bytes:
        choice: Json = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        more: Json = {"usage": None} if self._head.usage else {}
        return self._event([choice], more if about is None else {**more, "chargehand": about})

    def _event(self, choices: list[Json], more: Json) -> bytes:
        return event({**self._head.begin("chat.completion.chunk", choices), **more})


# --- responses


class ResponseWriter:
    """The events of one response: its reasoning (how far the run is), then its message, numbered and in order."""

    def __init__(self, head: ResponseHead) -> None:
        self._head = head
        self._number = 0
        self._reasoning: str | None = None
        self._text: str | None = None
        self._items: list[Json] = []

    def begin(self, notice: str) -> bytes:
        response = self._head.response("in_progress", [])
        begun = self._event("created", response=response) + self._event("in_progress", response=response)
        return begun + self.think(f"{notice}\n") if notice else begun

    def think(self, text: str) -> bytes:
        if self._text is not None:
            return b""  # an answer that has begun is not interrupted
        events = b""
        if self._reasoning is None:
            self._reasoning = ""
            events += self._event("output_item.added", output_index=0, item=self._head.reasoning(None))
            events += self._event("reasoning_summary_part.added", **self._summary, part=summary_part(""))
        self._reasoning += text
        return events + self._event("reasoning_summary_text.delta", **self._summary, delta=text)

    def speak(self, text: str) -> bytes:
        events = b""
        if self._text is None:
            events += self._end_reasoning()
            self._text = ""
            item = self._head.message(None)
            events += self._event("output_item.added", output_index=len(self._items), item=item)
            events += self._event("content_part.added", **self._content, part=text_part(""))
        self._text += text
        return events + self._event("output_text.delta", **self._content, delta=text, logprobs=[])

    def end(self, answer: TeamAnswer) -> bytes:
        events = b""
        if answer.refusal:
            events += self._end_reasoning() + self._whole_item(self._head.message(answer.refusal, refused=True))
        elif answer.content is not None:
            events += self._end_message()
        else:
            events += self._end_reasoning()
        for call in answer.calls:
            events += self._call(call)
        response = self._head.over(answer, self._items)
        return events + self._event(str(response["status"]), response=response)

    def _whole_item(self, item: Json) -> bytes:
        place = len(self._items)
        self._items.append(item)
        added = self._event("output_item.added", output_index=place, item=item)
        return added + self._event("output_item.done", output_index=place, item=item)

    def _call(self, call: ev.CallerToolCall) -> bytes:
        item = response_call(call)
        where: Json = {"item_id": item["id"], "output_index": len(self._items)}
        begun = response_call(call, status="in_progress")
        events = self._event("output_item.added", output_index=len(self._items), item=begun)
        events += self._event("function_call_arguments.delta", **where, delta=call.arguments)
        events += self._event("function_call_arguments.done", **where, name=call.name, arguments=call.arguments)
        events += self._event("output_item.done", output_index=len(self._items), item=item)
        self._items.append(item)
        return events

    def _end_message(self) -> bytes:
        events = self.speak("") if self._text is None else b""
        text = self._text or ""
        item = self._head.message(text)
        events += self._event("output_text.done", **self._content, text=text, logprobs=[])
        events += self._event("content_part.done", **self._content, part=text_part(text))
        events += self._event("output_item.done", output_index=len(self._items), item=item)
        self._items.append(item)
        return events

    def fail(self, problem: Problem) -> bytes:
        if problem.run:
            return self._event("failed", response=self._head.failed(problem))
        error = error_of(problem)
        body = {"type": "error", "sequence_number": self._number, "param": None}
        return event({**body, "code": error["code"], "message": error["message"]}, name="error")

    def close(self) -> bytes:
        return b""

    @property
    def _summary(self) -> Json:
        return {"item_id": f"rs_{self._head.id.name}", "output_index": 0, "summary_index": 0}

    @property
    def _content(self) -> Json:
        return {"item_id": f"msg_{self._head.id.name}", "output_index": len(self._items), "content_index": 0}

    def _end_reasoning(self) -> bytes:
        text = self._reasoning
        if text is None:
            return b""
        item = self._head.reasoning(text)
        events = self._event("reasoning_summary_text.done", **self._summary, text=text)
        events += self._event("reasoning_summary_part.done", **self._summary, part=summary_part(text))
        events += self._event("output_item.done", output_index=0, item=item)
        self._items.append(item)
        return events

    def _event(self, kind: str, **rest: object) -> bytes:
        name = f"response.{kind}"
        body = {"type": name, "sequence_number": self._number, **rest}
        self._number += 1
        return event(body, name=name)


Writer: TypeAlias = ChatWriter | ResponseWriter


# --- routes


def openai_api() -> Api:
    """Stands behind Letta's API, which takes its own calls for `/v1/models`."""
    names = ("chat", "responses", "completions", "embeddings", "files", "models")
    api = Api("openai", render_problem, prefixes=tuple(f"/v1/{name}" for name in names))
    api.add("GET", "/v1/models", list_models, "read")
    api.add("GET", "/v1/models/{model:path}", show_model, "read")
    add_file_routes(api)
    api.add("POST", "/v1/chat/completions", create_chat, "run")
    api.add("POST", "/v1/responses", create_response, "run")
    api.add("GET", "/v1/responses/{response}", retrieve_response, "read")
    api.add("POST", "/v1/responses/{response}/cancel", cancel_response, "run")
    return api


# --- models


async def list_models(_request: Request, tenant: Tenant) -> Response:
    return reply({"object": "list", "data": [_model(target) for target in list_targets(tenant)]})


async def show_model(request: Request, tenant: Tenant) -> Response:
    wanted = find_target(tenant, part(request, "model"))
    same = (target for target in list_targets(tenant) if (target.team, target.worker) == (wanted.team, wanted.worker))
    return reply(_model(next(same)))


def _model(target: TeamTarget) -> Json:
    team = target.team.name
    label = f"{target.worker} of {team}" if target.worker else team
    # a team is not made at an instant: it is as its file says whenever it is asked
    return {"id": target.id, "name": label, "created": 0, "object": "model", "owned_by": "chargehand"}


async def _stream(
    request: Request, tenant: Tenant, sent: Struct, call: Call, make_writer: Callable[[RunPart], Writer]
) -> Response:
    slot = tenant.runs.take_stream_slot()
    listener = Listener(tenant, call.answering_work, call.thinking_work)
    run = await run_call(request, tenant, sent, call, listener)
    begun = RunPart(await read_run(tenant, run))
    return _streamed(tenant, begun, listener, make_writer(begun), call.target.team.notice, slot)


def _streamed(
    tenant: Tenant, begun: RunPart, listener: Listener, writer: Writer, notice: str, slot: StreamSlot
) -> Response:
    parts = write_stream(tenant, begun, listener, writer, notice)
    headers = {RUN_HEADER: begun.recorded.run}
    return streamed(in_slot(parts, slot), every=tenant.settings.pulse, headers=headers)


# --- chat completions


async def create_chat(request: Request, tenant: Tenant) -> Response:
    sent = await body(request, ChatSent)
    check_chat(sent)
    target = find_target(tenant, sent.model)
    conversation = read_conversation(read_turns(sent.messages, "messages"), "messages")
    wanted = chat_format(sent)
    check_target(target, wanted)
    attachments = read_attachments(sent.messages, "messages")
    check_attachments(target, attachments)
    stop = read_stops(sent.stop)
    ids = await keep_attachments(tenant, attachments)
    recorded_request = TeamRequest(
        target.id,
        target.worker,
        stop=stop,
        files=tuple(dict.fromkeys(ids)),
        file_turns=turns_of_files(ids, conversation.file_turns, {}),
        left_out=conversation.left_out,
    )
    call = Call(target, conversation, recorded_request, wanted, labels=sent.labels, asker=asker_of(request))
    if sent.stream:
        return await _stream(request, tenant, sent, call, lambda begun: ChatWriter(_chat_head(begun.recorded, sent)))
    run = await run_call(request, tenant, sent, call)
    recorded = await wait_for_run(tenant, run)
    notice = _notice_of(target.team, recorded)
    thoughts = worker_thoughts(recorded.entries) if target.worker else ""
    completion = chat_completion(_chat_head(recorded, sent), answer_of(RunPart(recorded)), notice, thoughts)
    return reply(completion, headers={RUN_HEADER: run})


def _chat_head(recorded: RecordedRun, sent: ChatSent) -> ChatHead:
    wants_usage = bool(sent.stream_options and sent.stream_options.include_usage)
    return ChatHead(run=recorded.run, created=int(recorded.entries[0].at), model=sent.model, usage=wants_usage)


# --- responses


async def create_response(request: Request, tenant: Tenant) -> Response:
    sent = await body(request, ResponseSent)
    check_response(sent)
    target = find_target(tenant, sent.model)
    if sent.previous_response_id:
        earlier = await _stored(tenant, sent.previous_response_id, "previous_response_id")
        if earlier.is_asking(sent.previous_response_id):
            return await _answer_response(request, tenant, sent, earlier)
    call = structs.replace(await _response_call(tenant, sent, target), asker=asker_of(request))
    if sent.stream:
        head_of = functools.partial(_response_head, tenant, call.request)
        return await _stream(request, tenant, sent, call, lambda begun: ResponseWriter(head_of(begun)))
    run = await run_call(request, tenant, sent, call)
    if sent.background:
        return _response(tenant, call.request, RunPart(await read_run(tenant, run)))
    return await _finished_response(tenant, call.request, ResponseId(run))


async def _finished_response(tenant: Tenant, request: TeamRequest, response: ResponseId) -> Response:
    """The response for a part of a run, when that has ended; a problem for one that came to nothing."""
    part = ended_part(await wait_for_run(tenant, response.run), response.answered)
    if part.is_over:
        answer_of(part)  # one that came to nothing is an error here
    return _response(tenant, request, part)


async def _answer_response(request: Request, tenant: Tenant, sent: ResponseSent, earlier: "StoredResponse") -> Response:
    """Answer the question with which a response ends; the next response tells what comes of it.

    The same call again is answered by the same response, and never answers another question.
    """
    items = [MessageSent("user", sent.input)] if isinstance(sent.input, str) else sent.input
    words = read_conversation(read_turns(items, "input"), "input").request.text
    if not words:
        raise refused("input", "the question is answered in words; send a user message with some text", "invalid_value")
    previous = sent.previous_response_id or ""
    message = ev.MessageKey(answer_key(previous), digest(words))
    run = earlier.part.recorded.run
    number = earlier.answered_by(message.key)
    if not number:
        question = read_question(earlier.part.recorded.state)
        assert question is not None, "the response asks it"
        number = question.number
        caller: ApiCaller = request.scope[CALLER]
        answer = structs.replace(parse_answer(question, words), number=number)
        by = caller.name or caller.key
        await answer_question(tenant, run, answer, by, message=message, key_name="previous_response_id")
    else:
        is_answered((await read_run(tenant, run)).entries, message, "previous_response_id")
    response = ResponseId(run, number)
    stored = structs.replace(earlier.request, previous=previous)
    if sent.stream:
        slot = tenant.runs.take_stream_slot()
        begun = _begun_part(await read_run(tenant, run), number)
        head = _response_head(tenant, stored, begun)
        return _streamed(tenant, begun, Listener(tenant), ResponseWriter(head), head.notice, slot)
    if sent.background or stored.background:
        return _response(tenant, stored, (await _stored(tenant, response.text, "response_id")).part)
    return await _finished_response(tenant, stored, response)


def _begun_part(recorded: RecordedRun, answered: int) -> RunPart:
    part = read_part(recorded, answered, background=True)
    assert part is not None, "the question was answered"
    return part


async def retrieve_response(request: Request, tenant: Tenant) -> Response:
    stored = await _stored(tenant, part(request, "response"), "response_id")
    return _response(tenant, stored.request, stored.part)


async def cancel_response(request: Request, tenant: Tenant) -> Response:
    """One that is over stays what it is; a run that waits for a person is cancelled all the same."""
    response = part(request, "response")
    stored = await _stored(tenant, response, "response_id")
    run = stored.part.recorded.run
    if (await read_run(tenant, run)).state.ended is None:
        caller: ApiCaller = request.scope[CALLER]
        cancel = ev.CancelRequested("a client cancelled the response", by=caller.name or caller.key)
        await tell_run(tenant, run, lambda _: cancel)
        await wait_for_run(tenant, run)
        stored = await _stored(tenant, response, "response_id")
    return _response(tenant, stored.request, stored.part)


def _response(tenant: Tenant, stored: TeamRequest, shown: RunPart) -> Response:
    head = _response_head(tenant, stored, shown)
    return reply(head.as_it_stands(shown), headers={RUN_HEADER: shown.recorded.run})


def _notice_of(team: Team | None, recorded: RecordedRun) -> str:
    return " ".join(filter(None, ("" if team is None else team.notice, *noted_facts(recorded.entries))))


def _response_head(tenant: Tenant, stored: TeamRequest, shown: RunPart) -> ResponseHead:
    recorded = shown.recorded
    team = tenant.part(Teams).teams.get(recorded.requested.team)
    return ResponseHead(
        id=shown.response,
        created=recorded.entries[shown.begins].at,
        request=stored,
        notice=_notice_of(team, recorded),
        wanted=recorded.requested.answer_format,
    )


async def _response_call(tenant: Tenant, sent: ResponseSent, target: TeamTarget) -> Call:
    items = [MessageSent("user", sent.input)] if isinstance(sent.input, str) else sent.input
    earlier = await _earlier(tenant, sent.previous_response_id) if sent.previous_response_id else _Earlier()
    turns = read_turns(items, "input", earlier.calls)
    conversation = read_conversation(turns, "input", earlier.turns, sent.instructions or "")
    is_stored = sent.store is not False
    wanted = response_format(sent)
    check_target(target, wanted)
    attachments = read_attachments(items, "input")
    check_attachments(target, attachments)
    ids = await keep_attachments(tenant, attachments)
    request = TeamRequest(
        model=target.id,
        worker=target.worker,
        stored=is_stored,
        turns=conversation.turns if is_stored else (),
        previous=sent.previous_response_id or "",
        instructions=sent.instructions or "",
        background=bool(sent.background),
        metadata=sent.metadata,
        files=tuple(dict.fromkeys((*earlier.files, *ids))),
        file_turns=turns_of_files(ids, conversation.file_turns, earlier.file_turns),
        left_out=conversation.left_out,
    )
    return Call(target, conversation, request, wanted, labels=sent.labels)


class _Earlier(Struct, frozen=True):
    """What a conversation goes on from."""

    turns: tuple[ChatTurn, ...] = ()
    files: tuple[str, ...] = ()
    calls: tuple[ev.CallerToolCall, ...] = ()
    """Calls of the client's tools that its last answer made."""
    file_turns: dict[str, tuple[int, ...]] = {}
    """By the id of a file, the numbers of the turns it was sent in."""


async def _earlier(tenant: Tenant, response: str) -> _Earlier:
    """What was said up to the end of an earlier response."""
    stored = await _stored(tenant, response, "previous_response_id")
    request = stored.request
    if not stored.part.is_over:
        raise Problem(409, "response_not_over", f"response {response[:100]!r} is not over yet; wait for it")
    try:
        answer = answer_of(stored.part)
    except Problem:
        return _Earlier(request.turns, request.files, file_turns=request.file_turns)
    texts = [answer.text, *(describe_call(call.name, call.arguments) for call in answer.calls)]
    said = [ChatTurn("assistant", text) for text in texts if text]
    return _Earlier((*request.turns, *said), request.files, tuple(answer.calls), request.file_turns)


def answer_key(response: str) -> str:
    """Return the key of the message that answers the question of a response."""
    return digest("responses", response)


class StoredResponse(Struct, frozen=True):
    """A response that can be retrieved: what it tells of its run, and what was asked for."""

    part: RunPart
    request: TeamRequest
    entries: Sequence[Entry]
    """All entries of the run, also those after the part."""

    def is_asking(self, response: str) -> bool:
        """Return whether its run waits for a person, or a call that went on from it has answered."""
        return read_question(self.part.recorded.state) is not None or bool(self.answered_by(answer_key(response)))

    def answered_by(self, key: str) -> int:
        """Return the number of the question that the message with this key has answered; 0: none."""
        for entry in self.entries:
            answer = entry.event
            if isinstance(answer, ev.InputAnswered) and answer.message is not None and answer.message.key == key:
                return answer.number
        return 0


async def _stored(tenant: Tenant, response: str, param: str) -> StoredResponse:
    detail = f"there is no response {response[:100]!r}"
    missing = Problem(404, "response_not_found", detail, faults=[Fault(param, detail)])
    named = parse_response_id(response)
    if named is None:
        raise missing
    try:
        recorded = await read_run(tenant, named.run)
    except RunUnknown as error:
        raise missing from error
    recorded = structs.replace(recorded, is_driven=tenant.runs.is_running(named.run))
    request = recorded_request(recorded.requested)
    if request is None or not request.stored:
        raise missing
    told = read_part(recorded, named.answered, background=request.background)
    if told is None:
        raise missing
    if named.answered:
        previous = ResponseId(named.run, part_before(recorded, named.answered)).text
        request = structs.replace(request, previous=previous)
    return StoredResponse(told, request, recorded.entries)
