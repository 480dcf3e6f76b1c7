"""A team as a model, for clients of OpenAI: models, chat completions and responses.

A response is a run, so it is stored anyway. `previous_response_id` goes on from what was said there. With
`store: false` it cannot be continued or retrieved.
"""

import functools
from collections.abc import Callable

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from chargehand.engine import events as ev
from chargehand.errors import RunUnknown
from chargehand.server.openai.reply import (
    RESPONSE_PREFIX,
    RUN_HEADER,
    ChatHead,
    Json,
    ResponseHead,
    answer_of,
    chat_completion,
    render_problem,
)
from chargehand.server.openai.request import (
    ChatSent,
    MessageSent,
    ResponseSent,
    Target,
    TeamRequest,
    Turn,
    check_chat,
    check_response,
    find_target,
    list_targets,
    read_conversation,
    read_turns,
    recorded_request,
)
from chargehand.server.openai.stream import (
    Call,
    ChatWriter,
    Listener,
    ResponseWriter,
    Writer,
    in_slot,
    run_call,
    wait_for_run,
    write_stream,
)
from chargehand.server.problem import Fault, Problem
from chargehand.server.routing import Api
from chargehand.server.run_control import RecordedRun, read_run, tell_run
from chargehand.server.streams import streamed
from chargehand.server.teams import Teams
from chargehand.server.tenants import Tenant
from chargehand.server.wire import body, part, reply


def openai_api() -> Api:
    """Stands behind Letta's API, which takes its own calls for `/v1/models`."""
    names = ("chat", "responses", "completions", "embeddings", "models")
    api = Api("openai", render_problem, prefixes=tuple(f"/v1/{name}" for name in names))
    api.add("GET", "/v1/models", list_models, "read")
    api.add("GET", "/v1/models/{model:path}", show_model, "read")
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


def _model(target: Target) -> Json:
    team = target.team.name
    label = f"{target.worker} of {team}" if target.worker else team
    # a team is not made at an instant: it is as its file says whenever it is asked
    return {"id": target.id, "name": label, "created": 0, "object": "model", "owned_by": "chargehand"}


async def _stream(
    request: Request, tenant: Tenant, sent: Struct, call: Call, make_writer: Callable[[RecordedRun], Writer]
) -> Response:
    slot = tenant.runs.take_stream_slot()
    listener = Listener(tenant, call.target.answering_work)
    run = await run_call(request, tenant, sent, call, listener)
    writer = make_writer(await read_run(tenant, run))
    parts = write_stream(tenant, run, listener, writer, call.target.team.notice)
    return streamed(in_slot(parts, slot), every=tenant.settings.pulse, headers={RUN_HEADER: run})


# --- chat completions


async def create_chat(request: Request, tenant: Tenant) -> Response:
    sent = await body(request, ChatSent)
    check_chat(sent)
    target = find_target(tenant, sent.model)
    conversation = read_conversation(read_turns(sent.messages, "messages"), "messages")
    call = Call(target, conversation, TeamRequest(target.id, target.worker))
    if sent.stream:
        return await _stream(request, tenant, sent, call, lambda recorded: ChatWriter(_chat_head(recorded, sent)))
    run = await run_call(request, tenant, sent, call)
    recorded = await wait_for_run(tenant, run)
    completion = chat_completion(_chat_head(recorded, sent), answer_of(recorded), target.team.notice)
    return reply(completion, headers={RUN_HEADER: run})


def _chat_head(recorded: RecordedRun, sent: ChatSent) -> ChatHead:
    wants_usage = bool(sent.stream_options and sent.stream_options.include_usage)
    return ChatHead(run=recorded.run, created=int(recorded.entries[0].at), model=sent.model, usage=wants_usage)


# --- responses


async def create_response(request: Request, tenant: Tenant) -> Response:
    sent = await body(request, ResponseSent)
    check_response(sent)
    target = find_target(tenant, sent.model)
    call = await _response_call(tenant, sent, target)
    if sent.stream:
        head_of = functools.partial(_response_head, tenant, call.request)
        return await _stream(request, tenant, sent, call, lambda recorded: ResponseWriter(head_of(recorded)))
    run = await run_call(request, tenant, sent, call)
    if sent.background:
        return _response(tenant, call.request, await read_run(tenant, run))
    recorded = await wait_for_run(tenant, run)
    answer_of(recorded)  # one that came to nothing is an error here
    return _response(tenant, call.request, recorded)


async def retrieve_response(request: Request, tenant: Tenant) -> Response:
    recorded, stored = await _stored(tenant, part(request, "response"), "response_id")
    return _response(tenant, stored, recorded)


async def cancel_response(request: Request, tenant: Tenant) -> Response:
    """One that is over stays what it is."""
    recorded, stored = await _stored(tenant, part(request, "response"), "response_id")
    if recorded.state.ended is None:
        await tell_run(tenant, recorded.run, lambda _: ev.CancelRequested("a client cancelled the response"))
        recorded = await wait_for_run(tenant, recorded.run)
    return _response(tenant, stored, recorded)


def _response(tenant: Tenant, stored: TeamRequest, recorded: RecordedRun) -> Response:
    head = _response_head(tenant, stored, recorded)
    return reply(head.as_it_stands(recorded), headers={RUN_HEADER: recorded.run})


def _response_head(tenant: Tenant, stored: TeamRequest, recorded: RecordedRun) -> ResponseHead:
    team = tenant.part(Teams).teams.get(recorded.requested.team)
    notice = "" if team is None else team.notice
    return ResponseHead(run=recorded.run, created=recorded.entries[0].at, request=stored, notice=notice)


async def _response_call(tenant: Tenant, sent: ResponseSent, target: Target) -> Call:
    items = [MessageSent("user", sent.input)] if isinstance(sent.input, str) else sent.input
    wishes = [Turn("system", sent.instructions)] if sent.instructions else []
    earlier = await _earlier_turns(tenant, sent.previous_response_id) if sent.previous_response_id else []
    conversation = read_conversation([*wishes, *earlier, *read_turns(items, "input")], "input")
    is_stored = sent.store is not False
    request = TeamRequest(
        model=target.id,
        worker=target.worker,
        stored=is_stored,
        turns=conversation.turns if is_stored else (),
        previous=sent.previous_response_id or "",
        instructions=sent.instructions or "",
        background=bool(sent.background),
        metadata=sent.metadata,
    )
    return Call(target, conversation, request)


async def _earlier_turns(tenant: Tenant, response: str) -> list[Turn]:
    """What was said up to the end of an earlier response."""
    recorded, stored = await _stored(tenant, response, "previous_response_id")
    if recorded.state.ended is None:
        raise Problem(409, "response_not_over", f"response {response[:100]!r} is not over yet; wait for it")
    try:
        answer = answer_of(recorded).text
    except Problem:
        answer = ""
    return [*stored.turns, *([Turn("assistant", answer)] if answer else [])]


async def _stored(tenant: Tenant, response: str, param: str) -> tuple[RecordedRun, TeamRequest]:
    detail = f"there is no response {response[:100]!r}"
    missing = Problem(404, "response_not_found", detail, faults=[Fault(param, detail)])
    if not response.startswith(RESPONSE_PREFIX):
        raise missing
    try:
        recorded = await read_run(tenant, response.removeprefix(RESPONSE_PREFIX))
    except RunUnknown as error:
        raise missing from error
    stored = recorded_request(recorded.requested)
    if stored is None or not stored.stored:
        raise missing
    return recorded, stored
