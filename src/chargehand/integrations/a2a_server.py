"""Teams as A2A 1.0 agents: `chargehand serve --plugin chargehand.integrations.a2a_server:api`.

Each team is an agent at `/a2a/TEAM`, spoken to by JSON-RPC, with its card below that. A task is a run: there is no
second store, so a task survives a restart of the server, and one that was begun elsewhere is a task here too.
"""

from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import contextmanager
from functools import partial
from math import ceil
from typing import Any, Literal, cast

import msgspec
from msgspec import Struct
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from chargehand.extras import OfExtra
from chargehand.server.extension import (
    PROBLEM_HANDLERS,
    Entry,
    HttpApi,
    Problem,
    RunFilter,
    RunInfo,
    RunSummary,
    TenantClient,
    problems_as,
    progress_text,
    tenant_of,
)

with OfExtra("A2A", "a2a"):
    from a2a.helpers.proto_helpers import get_data_parts, get_message_text
    from a2a.server.context import ServerCallContext
    from a2a.server.jsonrpc_models import JSONRPCError
    from a2a.server.request_handlers.request_handler import RequestHandler
    from a2a.server.request_handlers.response_helpers import agent_card_to_dict, build_error_response
    from a2a.server.routes.common import ServerCallContextBuilder
    from a2a.server.routes.jsonrpc_dispatcher import JsonRpcDispatcher
    from a2a.types import a2a_pb2 as pb
    from a2a.utils.constants import AGENT_CARD_WELL_KNOWN_PATH
    from a2a.utils.errors import (
        A2AError,
        InternalError,
        InvalidParamsError,
        PushNotificationNotSupportedError,
        TaskNotCancelableError,
        TaskNotFoundError,
        UnsupportedOperationError,
    )
    from google.protobuf.json_format import ParseDict, ParseError

    from chargehand.integrations.a2a_tasks import (
        CONTEXT,
        STATES,
        artifacts_of,
        card_of,
        context_of,
        has_ended,
        metadata_of,
        progress_of,
        state_of,
        status_of,
        task_of,
    )

_TURN_SECONDS = 3600.0
_PAGE = 50
_KEY = "messageId"


def _whole(value: object) -> object:
    """Return a value with whole numbers as such: in a data part, all numbers are floats."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {name: _whole(item) for name, item in cast("dict[str, object]", value).items()}
    if isinstance(value, list):
        return [_whole(item) for item in cast("list[object]", value)]
    return value


def _content(message: pb.Message) -> object:
    """Return what a message says: its first data part, or its words; words beside a data part are its answer."""
    data = _whole(next(iter(get_data_parts(message.parts)), None))
    text = get_message_text(message).strip()
    if not isinstance(data, dict):
        return text if data is None else data
    return {**({"answer": text} if text and "verdict" not in data else {}), **cast("dict[str, object]", data)}


class _Caller:
    """Who calls, and which team."""

    def __init__(self, context: ServerCallContext) -> None:
        self.tenant: TenantClient = context.state["tenant"]
        self.team: str = context.state["team"]
        self._refuse: Callable[[Problem], None] = context.state["refuse"]

    @contextmanager
    def problems(self, run: str = "") -> Generator[None]:
        """Make problems errors of the protocol; what HTTP has a status for is told by that as well."""
        with problems_as(partial(self._to_error, run)):
            yield

    def _to_error(self, run: str, problem: Problem) -> A2AError:
        self._refuse(problem)
        kind = TaskNotFoundError if problem.status == 404 and run else _kind_of(problem)
        retry = {} if problem.after is None else {"retryAfter": str(ceil(problem.after))}
        return kind(message=problem.detail, data={"code": problem.code, "status": str(problem.status), **retry})

    async def read(self, run: str) -> RunInfo:
        """A run of this team."""
        with self.problems(run):
            info = await self.tenant.read(run)
        if info.summary.team != self.team:
            raise TaskNotFoundError(message=f"{self.team} has no task {run!r}")
        return info

    async def show(self, run: str) -> RunInfo:
        """Return a run whose open question the client is told: words are good for this one from now on."""
        info = await self.read(run)
        self.tenant.show_question(info)
        return info

    async def read_open(self, run: str, error: type[A2AError], remedy: str = "") -> RunInfo:
        """A run of this team that has not ended."""
        info = await self.read(run)
        if has_ended(info):
            raise error(message=f"task {run} has ended{remedy}")
        return info

    async def send(self, params: pb.SendMessageRequest) -> str:
        """The run that a message begins or answers. The same message again begins and answers nothing."""
        message = params.message
        with self.problems(message.task_id):
            if message.task_id:
                await self.read(message.task_id)
                await self.tenant.answer(message.task_id, _content(message), key=message.message_id, key_name=_KEY)
                return message.task_id
            goal = get_message_text(message).strip()
            if not goal:
                raise InvalidParamsError(message="the message has no text; say what is to be done")
            labels = {CONTEXT: message.context_id} if message.context_id else {}
            key = message.message_id
            thread = message.context_id
            begun = await self.tenant.begin(self.team, goal, labels=labels, key=key, key_name=_KEY, thread=thread)
            return begun.run


def _kind_of(problem: Problem) -> type[A2AError]:
    if problem.status >= 500:
        return InternalError
    return InvalidParamsError if problem.status in (400, 404, 422) else UnsupportedOperationError


_HTTP_STATUSES = (403, 429, 503)
"""Told by the status of HTTP, too: clients and proxies know what to do about these."""


class TeamRequestHandler(RequestHandler):
    """Answers A2A calls from the journal."""

    async def on_message_send(self, params: pb.SendMessageRequest, context: ServerCallContext) -> pb.Task:
        caller = _Caller(context)
        run = await caller.send(params)
        if not params.configuration.return_immediately:
            await caller.tenant.wait(run, _TURN_SECONDS)
        return task_of(await caller.show(run))

    async def on_message_send_stream(
        self, params: pb.SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[Any]:
        caller = _Caller(context)
        after = (await caller.read(params.message.task_id)).summary.entries if params.message.task_id else 0
        run = await caller.send(params)
        async for event in _follow(caller, run, after, is_answer=bool(params.message.task_id)):
            yield event

    async def on_subscribe_to_task(
        self, params: pb.SubscribeToTaskRequest, context: ServerCallContext
    ) -> AsyncGenerator[Any]:
        caller = _Caller(context)
        info = await caller.read_open(params.id, UnsupportedOperationError, "; get it instead")
        async for event in _follow(caller, params.id, info.summary.entries):
            yield event

    async def on_get_task(self, params: pb.GetTaskRequest, context: ServerCallContext) -> pb.Task:
        return task_of(await _Caller(context).show(params.id))

    async def on_list_tasks(self, params: pb.ListTasksRequest, context: ServerCallContext) -> pb.ListTasksResponse:
        caller = _Caller(context)
        wanted: dict[str, Any] = {"team": caller.team, "limit": min(params.page_size, _PAGE) or _PAGE}
        if params.context_id:
            wanted["label"] = (f"{CONTEXT}:{params.context_id}",)
        if params.page_token:
            if not params.page_token.isdigit():
                raise InvalidParamsError(message="page_token is not one that was given out")
            wanted["before"] = int(params.page_token)
        with caller.problems():
            page = await caller.tenant.runs(RunFilter(**wanted))
        states = {params.status} if params.status else set(STATES.values())
        tasks = [await self._listed(caller, run, params) for run in page.runs if STATES[run.state] in states]
        next_page = "" if page.next is None else str(page.next)
        return pb.ListTasksResponse(tasks=tasks, next_page_token=next_page, page_size=len(tasks), total_size=len(tasks))

    async def _listed(self, caller: _Caller, run: RunSummary, params: pb.ListTasksRequest) -> pb.Task:
        if params.include_artifacts:
            return task_of(await caller.show(run.run))
        return pb.Task(id=run.run, context_id=context_of(run), status=state_of(run))

    async def on_cancel_task(self, params: pb.CancelTaskRequest, context: ServerCallContext) -> pb.Task:
        caller = _Caller(context)
        await caller.read_open(params.id, TaskNotCancelableError)
        with caller.problems(params.id):
            await caller.tenant.cancel(params.id, "cancelled over A2A")
            await caller.tenant.wait(params.id, 5)
        return task_of(await caller.read(params.id))

    async def on_get_extended_agent_card(
        self, params: pb.GetExtendedAgentCardRequest, context: ServerCallContext
    ) -> pb.AgentCard:
        raise UnsupportedOperationError(message="the card has everything already")

    async def _refuse_push(self, params: Any, context: ServerCallContext) -> Any:
        raise PushNotificationNotSupportedError

    on_create_task_push_notification_config = _refuse_push
    on_get_task_push_notification_config = _refuse_push
    on_list_task_push_notification_configs = _refuse_push
    on_delete_task_push_notification_config = _refuse_push


async def _follow(caller: _Caller, run: str, after: int, *, is_answer: bool = False) -> AsyncGenerator[Any]:
    """The task as it stands, what happens to it, and how it stands when it has ended or asks."""
    first = await caller.show(run)
    context = context_of(first.summary)
    yield task_of(first)
    if has_ended(first):
        return
    if not (is_answer and first.asks is not None):  # the next question came up already
        async with caller.tenant.follow(run, after=after, until_asked=True) as entries:
            async for entry in entries:
                if isinstance(entry, Entry) and (text := progress_text(entry.event)):
                    yield progress_of(first.summary, entry, text)
    info = await caller.show(run)
    for artifact in artifacts_of(info):
        yield pb.TaskArtifactUpdateEvent(task_id=run, context_id=context, artifact=artifact, last_chunk=True)
    yield pb.TaskStatusUpdateEvent(task_id=run, context_id=context, status=status_of(info), metadata=metadata_of(info))


# --- the card, and the API


class _ContextBuilder(ServerCallContextBuilder):
    def build(self, request: Request) -> ServerCallContext:
        def refuse(problem: Problem) -> None:
            request.state.problem = problem

        state = {
            "tenant": tenant_of(request.scope),
            "team": request.path_params["team"],
            "headers": dict(request.headers),
            "refuse": refuse,
        }
        return ServerCallContext(state=state)


async def _card(request: Request) -> Response:
    team = await tenant_of(request.scope).team(request.path_params["team"])
    url = str(request.url).removesuffix(AGENT_CARD_WELL_KNOWN_PATH)
    return JSONResponse(agent_card_to_dict(card_of(team, url)))


class _RpcRequest(Struct):
    """The frame of a JSON-RPC request."""

    jsonrpc: Literal["2.0"]
    method: str
    id: str | int | None = None
    params: Any = msgspec.field(default_factory=dict[str, Any])


def _check_body(raw: bytes) -> tuple[str | int | None, JSONRPCError] | None:
    """Return the id and the error of a request that the SDK would log a traceback for; None: it is in order."""
    try:
        request = msgspec.json.decode(raw, type=_RpcRequest)
    except msgspec.ValidationError as error:
        return None, JSONRPCError(code=-32600, message=f"the body is no JSON-RPC request: {error}")
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        return None, JSONRPCError(code=-32700, message=f"the body is not JSON: {error}")
    params = JsonRpcDispatcher.METHOD_TO_MODEL.get(request.method)
    if params is None:
        return None  # the SDK names the method
    try:
        ParseDict(request.params, params(), ignore_unknown_fields=True)
    except (ParseError, AttributeError, TypeError) as error:
        message = f"the params are not those of {request.method}: {error}"
        return request.id, JSONRPCError(code=-32602, message=message)
    return None


def a2a_api() -> HttpApi:
    """The API of all teams."""
    dispatcher = JsonRpcDispatcher(request_handler=TeamRequestHandler(), context_builder=_ContextBuilder())

    async def call(request: Request) -> Response:
        await tenant_of(request.scope).team(request.path_params["team"])  # 404 where there is none
        if wrong := _check_body(await request.body()):
            return JSONResponse(build_error_response(*wrong))
        request.state.problem = None
        response = await dispatcher.handle_requests(request)
        problem: Problem | None = request.state.problem
        if problem is not None and problem.status in _HTTP_STATUSES:
            response.status_code = problem.status
            response.headers.update(problem.headers)
        return response

    routes = [
        Route("/a2a/{team}" + AGENT_CARD_WELL_KNOWN_PATH, _card),
        Route("/a2a/{team}", call, methods=["POST"]),
    ]
    app = Starlette(routes=routes, exception_handlers=PROBLEM_HANDLERS)
    return HttpApi(name="a2a", app=app, prefixes=("/a2a",))


api = a2a_api()
