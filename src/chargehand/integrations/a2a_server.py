"""Teams as A2A 1.0 agents: `chargehand serve --plugin chargehand.integrations.a2a_server:api`.

Each team is an agent at `/a2a/TEAM`, spoken to by JSON-RPC, with its card below that. A task is a run: there is no
second store, so a task survives a restart of the server, and one that was begun elsewhere is a task here too.
"""

from collections.abc import AsyncGenerator
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from chargehand.extras import OfExtra
from chargehand.server.extension import (
    PROBLEM_HANDLERS,
    AnswerBody,
    Entry,
    HttpApi,
    Problem,
    RunFilter,
    RunInfo,
    RunSummary,
    TenantClient,
    parse_answer,
    problems_as,
    progress_text,
    tenant_of,
)

with OfExtra("A2A", "a2a"):
    from a2a.helpers.proto_helpers import get_data_parts, get_message_text
    from a2a.server.context import ServerCallContext
    from a2a.server.request_handlers.request_handler import RequestHandler
    from a2a.server.request_handlers.response_helpers import agent_card_to_dict
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

    from chargehand.integrations.a2a_tasks import (
        CONTEXT,
        STATES,
        artifacts_of,
        card_of,
        context_of,
        has_ended,
        progress_of,
        status_of,
        task_of,
    )

_TURN_SECONDS = 3600.0
_PAGE = 50


def _answer(info: RunInfo, message: pb.Message) -> AnswerBody:
    """The answer to the open question that a message gives, in data or in words."""
    question = info.question
    if question is None or info.summary.state != "needs_input":
        raise UnsupportedOperationError(message=f"task {info.summary.run} asks nothing; send a message without a task")
    data = get_data_parts(message.parts)
    return parse_answer(question, data[0] if data else get_message_text(message))


class _Caller:
    """Who calls, and which team."""

    def __init__(self, context: ServerCallContext) -> None:
        self.tenant: TenantClient = context.state["tenant"]
        self.team: str = context.state["team"]

    async def read(self, run: str) -> RunInfo:
        """A run of this team."""
        with problems_as(partial(_a2a_error, run)):
            info = await self.tenant.read(run)
        if info.summary.team != self.team:
            raise TaskNotFoundError(message=f"{self.team} has no task {run!r}")
        return info

    async def read_open(self, run: str, error: type[A2AError], remedy: str = "") -> RunInfo:
        """A run of this team that has not ended."""
        info = await self.read(run)
        if has_ended(info):
            raise error(message=f"task {run} has ended{remedy}")
        return info

    async def send(self, params: pb.SendMessageRequest) -> str:
        """The run that a message begins or answers."""
        message = params.message
        with problems_as(partial(_a2a_error, message.task_id)):
            if message.task_id:
                info = await self.read(message.task_id)
                await self.tenant.answer(message.task_id, _answer(info, message))
                return message.task_id
            goal = get_message_text(message).strip()
            if not goal:
                raise InvalidParamsError(message="the message has no text; say what is to be done")
            labels = {CONTEXT: message.context_id} if message.context_id else {}
            return (
                await self.tenant.begin(
                    self.team, goal, key=message.message_id, labels=labels, thread=message.context_id
                )
            ).run


def _a2a_error(run: str, problem: Problem) -> A2AError:
    if problem.status == 404 and run:
        return TaskNotFoundError(message=problem.detail)
    return InvalidParamsError(message=problem.detail) if problem.status < 500 else InternalError(message=problem.detail)


class TeamRequestHandler(RequestHandler):
    """Answers A2A calls from the journal."""

    async def on_message_send(self, params: pb.SendMessageRequest, context: ServerCallContext) -> pb.Task:
        caller = _Caller(context)
        run = await caller.send(params)
        if not params.configuration.return_immediately:
            await caller.tenant.wait(run, _TURN_SECONDS)
        return task_of(await caller.read(run))

    async def on_message_send_stream(
        self, params: pb.SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[Any]:
        caller = _Caller(context)
        after = (await caller.read(params.message.task_id)).summary.entries if params.message.task_id else 0
        run = await caller.send(params)
        async for event in _follow(caller, run, after):
            yield event

    async def on_subscribe_to_task(
        self, params: pb.SubscribeToTaskRequest, context: ServerCallContext
    ) -> AsyncGenerator[Any]:
        caller = _Caller(context)
        info = await caller.read_open(params.id, UnsupportedOperationError, "; get it instead")
        async for event in _follow(caller, params.id, info.summary.entries):
            yield event

    async def on_get_task(self, params: pb.GetTaskRequest, context: ServerCallContext) -> pb.Task:
        return task_of(await _Caller(context).read(params.id))

    async def on_list_tasks(self, params: pb.ListTasksRequest, context: ServerCallContext) -> pb.ListTasksResponse:
        caller = _Caller(context)
        wanted: dict[str, Any] = {"team": caller.team, "limit": min(params.page_size, _PAGE) or _PAGE}
        if params.context_id:
            wanted["label"] = (f"{CONTEXT}:{params.context_id}",)
        if params.page_token:
            if not params.page_token.isdigit():
                raise InvalidParamsError(message="page_token is not one that was given out")
            wanted["before"] = int(params.page_token)
        with problems_as(partial(_a2a_error, "")):
            page = await caller.tenant.runs(RunFilter(**wanted))
        states = {params.status} if params.status else set(STATES.values())
        tasks = [await self._listed(caller, run, params) for run in page.runs if STATES[run.state] in states]
        next_page = "" if page.next is None else str(page.next)
        return pb.ListTasksResponse(tasks=tasks, next_page_token=next_page, page_size=len(tasks), total_size=len(tasks))

    async def _listed(self, caller: _Caller, run: RunSummary, params: pb.ListTasksRequest) -> pb.Task:
        if params.include_artifacts:
            return task_of(await caller.read(run.run))
        return pb.Task(id=run.run, context_id=context_of(run), status=status_of(run))

    async def on_cancel_task(self, params: pb.CancelTaskRequest, context: ServerCallContext) -> pb.Task:
        caller = _Caller(context)
        await caller.read_open(params.id, TaskNotCancelableError)
        with problems_as(partial(_a2a_error, params.id)):
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


async def _follow(caller: _Caller, run: str, after: int) -> AsyncGenerator[Any]:
    """The task as it stands, what happens to it, and how it stands when it has ended or asks."""
    first = await caller.read(run)
    context = context_of(first.summary)
    yield task_of(first)
    if has_ended(first):
        return
    async with caller.tenant.follow(run, after=after, until_asked=True) as entries:
        async for entry in entries:
            if isinstance(entry, Entry) and (text := progress_text(entry.event)):
                yield progress_of(first.summary, entry, text)
    info = await caller.read(run)
    for artifact in artifacts_of(info):
        yield pb.TaskArtifactUpdateEvent(task_id=run, context_id=context, artifact=artifact, last_chunk=True)
    yield pb.TaskStatusUpdateEvent(task_id=run, context_id=context, status=task_of(info).status)


# --- the card, and the API


class _ContextBuilder(ServerCallContextBuilder):
    def build(self, request: Request) -> ServerCallContext:
        state = {
            "tenant": tenant_of(request.scope),
            "team": request.path_params["team"],
            "headers": dict(request.headers),
        }
        return ServerCallContext(state=state)


async def _card(request: Request) -> Response:
    team = await tenant_of(request.scope).team(request.path_params["team"])
    url = str(request.url).removesuffix(AGENT_CARD_WELL_KNOWN_PATH)
    return JSONResponse(agent_card_to_dict(card_of(team, url)))


def a2a_api() -> HttpApi:
    """The API of all teams."""
    dispatcher = JsonRpcDispatcher(request_handler=TeamRequestHandler(), context_builder=_ContextBuilder())

    async def call(request: Request) -> Response:
        await tenant_of(request.scope).team(request.path_params["team"])  # 404 where there is none
        return await dispatcher.handle_requests(request)

    routes = [
        Route("/a2a/{team}" + AGENT_CARD_WELL_KNOWN_PATH, _card),
        Route("/a2a/{team}", call, methods=["POST"]),
    ]
    app = Starlette(routes=routes, exception_handlers=PROBLEM_HANDLERS)
    return HttpApi(name="a2a", app=app, prefixes=("/a2a",))


api = a2a_api()
