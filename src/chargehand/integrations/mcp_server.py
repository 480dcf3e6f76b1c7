"""Teams for MCP clients: over HTTP at `/mcp` of the server, and over pipes (`chargehand mcp serve`).

`chargehand serve --plugin chargehand.integrations.mcp_server:api`. Each call stands alone: there are no sessions, so a
client may go on after a restart of the server, and a run goes on when its client has gone.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Annotated, Any, Literal, TypeAlias, cast

import msgspec
from msgspec import Meta, Struct, structs
from starlette.types import Receive, Scope, Send

from chargehand import ChargehandError, Tool, ToolFailed, __version__, tool
from chargehand.extras import OfExtra
from chargehand.server.extension import (
    Entry,
    HttpApi,
    Problem,
    RunFilter,
    RunInfo,
    TenantClient,
    document_data,
    problem_of,
    problems_as,
    progress_text,
    question_data,
    tenant_of,
)

with OfExtra("the MCP server", "mcp"):
    import mcp_types as types
    from mcp import MCPError
    from mcp.server import Server, ServerRequestContext
    from mcp.server.stdio import stdio_server
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

_LONGEST_WAIT = 600
_LISTED_RUNS = 50
_INSTRUCTIONS = (
    "Teams of agents. run_team plans a request, carries it out and answers it; where it takes longer than `wait`, "
    "get_run waits on. A run in the state needs_input asks a question: put it to the person, then call answer_run."
)
Report: TypeAlias = Callable[[float, str], Awaitable[None]]
Wait: TypeAlias = Annotated[int, Meta(ge=0, le=_LONGEST_WAIT, description="For how many seconds to wait for its end")]
Verdict: TypeAlias = Literal["approve", "reject", "answer", "done", "again", "fail"]


class ClientCall(Struct, frozen=True):
    """One call of a client: whose it is, and how its progress is told."""

    tenant: TenantClient
    report: Report


# --- the tools: signatures are their schemas, docstrings their descriptions


async def list_teams(call: ClientCall) -> object:
    """The teams there are: their workers and what each does, examples of requests, and limits."""
    return {"teams": await call.tenant.teams()}


async def run_team(
    call: ClientCall,
    team: Annotated[str, Meta(description="The name of a team (list_teams)")],
    goal: Annotated[str, Meta(description="What is to be done, in words")],
    wait: Wait = 60,
    key: Annotated[str, Meta(description="The same call with the same key is the same run")] = "",
) -> object:
    """Have a team carry out a request, and wait for its answer. The run goes on when the time is up: see get_run."""
    begun = await call.tenant.begin(team, goal, key=key, key_name="key")
    return describe_run(await _wait(call, begun.run, wait))


async def get_run(call: ClientCall, run: str, wait: Wait = 0) -> object:
    """How a run stands: its state, tasks, answer, gaps, cost, and the question it asks, if it does."""
    return describe_run(await _wait(call, run, wait))


async def answer_run(
    call: ClientCall,
    run: str,
    number: Annotated[int, Meta(description="The number of the question (get_run)")],
    verdict: Annotated[
        Verdict | None, Meta(description="approve or reject a plan or a call; answer a question; done, again, fail")
    ] = None,
    text: Annotated[
        str, Meta(description="The answer in words, why it is rejected, or what a call that is done returned")
    ] = "",
    verdicts: Annotated[
        Mapping[str, str],
        Meta(description='Of several calls: a verdict on each by number: {"1": "approve", "2": "reject: why"}'),
    ] = {},
    wait: Wait = 60,
) -> object:
    """Answer the question that a run asks, as the person decided, and wait for the end of the run.

    The same answer again changes nothing.
    """
    if verdict is None and not verdicts:
        raise ToolFailed("say `verdict`, or for several calls `verdicts`")
    answer = dict(verdicts) or _answer_fields(verdict, text)
    key = f"{run}#{number}"
    await call.tenant.answer(run, {**answer, "number": number}, key=key, key_name="number of a question")
    return describe_run(await _wait(call, run, wait))


def _answer_fields(verdict: Verdict | None, text: str) -> dict[str, object]:
    if verdict in ("answer", None):
        return {"answer": text}
    return {"answer": f"{verdict}: {text}" if text else verdict}


async def cancel_run(call: ClientCall, run: str, reason: str = "") -> object:
    """Stop a run. What is finished stays."""
    return describe_run(await call.tenant.cancel(run, reason))


async def search_memory(
    call: ClientCall,
    team: str,
    query: str,
    archives: tuple[str, ...] = (),
    limit: Annotated[int, Meta(ge=1, le=50)] = 10,
) -> object:
    """The passages in the archives of a team that fit a question best."""
    return {"passages": await call.tenant.search_memory(team, query, archives=archives, limit=limit)}


_READS = types.ToolAnnotations(read_only_hint=True, open_world_hint=False)
_FUNCTIONS: dict[Callable[..., Awaitable[object]], types.ToolAnnotations | None] = {
    list_teams: _READS,
    run_team: None,
    get_run: _READS,
    answer_run: None,
    cancel_run: types.ToolAnnotations(idempotent_hint=True, destructive_hint=True),
    search_memory: _READS,
}
_TOOLS: dict[str, Tool] = {function.__name__: tool(partial(function, call=None)) for function in _FUNCTIONS}
_BY_NAME = {function.__name__: function for function in _FUNCTIONS}


async def _wait(call: ClientCall, run: str, seconds: int) -> RunInfo:
    """A run once it has ended or asks a question, or as it stands when the time is up. Progress is told."""
    if seconds:
        try:
            async with asyncio.timeout(seconds), call.tenant.follow(run, until_asked=True) as entries:
                async for entry in entries:
                    if isinstance(entry, Entry) and (words := progress_text(entry.event)):
                        await call.report(entry.seq, words)
        except TimeoutError:
            pass
    return await call.tenant.read(run)


def describe_run(info: RunInfo) -> dict[str, object]:
    """What a client is told of a run."""
    document = info.document
    return {
        **document_data(document),
        "answer": document.answer,
        "question": None if document.question is None else question_data(document.question),
        "tasks": [{"task": task.id, "worker": task.worker, "status": task.status} for task in info.tasks],
        "notice": info.notice,
    }


# --- resources


def _evidence(info: RunInfo) -> dict[str, object]:
    names = ("traced", "untraced", "gaps", "tasks", "notes")
    return {name: value for name, value in structs.asdict(info).items() if name in names}


_PARTS: dict[str, tuple[str, Callable[[RunInfo], object]]] = {
    "answer": ("The answer of a run", lambda info: info.answer),
    "plan": ("The plan of a run: its tasks and what each needs", lambda info: info.plan),
    "evidence": ("What an answer rests on: results of tasks, figures and where they come from, gaps", _evidence),
}
"""What there is of a run to be read, by the end of its URI (`run://RUN/answer`): a description, and where it is."""


async def _read_resource(call: ClientCall, uri: str) -> types.ReadResourceResult:
    scheme, _, rest = uri.partition("://")
    run, _, part = rest.partition("/")
    if scheme != "run" or part not in _PARTS:
        raise MCPError(
            types.INVALID_PARAMS, f"there is no resource {uri[:200]!r}; there are run://RUN/{'|'.join(_PARTS)}"
        )
    _, select = _PARTS[part]
    value = select(await call.tenant.read(run))
    if isinstance(value, str):
        content = types.TextResourceContents(uri=uri, text=value, mime_type="text/markdown")
    else:
        body = msgspec.json.encode(value).decode()
        content = types.TextResourceContents(uri=uri, text=body, mime_type="application/json")
    return types.ReadResourceResult(contents=[content])


async def _latest_answers(call: ClientCall) -> list[types.Resource]:
    page = await call.tenant.runs(RunFilter(limit=_LISTED_RUNS))
    return [
        types.Resource(
            uri=f"run://{run.run}/answer", name=run.run, description=run.title or None, mime_type="text/markdown"
        )
        for run in page.runs
        if run.ended is not None and not run.parent
    ]


# --- the server


Context: TypeAlias = ServerRequestContext[Any, Any]
TenantOf: TypeAlias = Callable[[Context], TenantClient]
_Page: TypeAlias = types.PaginatedRequestParams | None


def make_server(tenant_of_call: TenantOf) -> Server[Any]:
    """A server of the protocol, for any transport. The SDK's logging is left as it is."""

    def client_call(context: Context) -> ClientCall:
        async def report(progress: float, message: str) -> None:
            await context.session.report_progress(progress, message=message)

        return ClientCall(tenant_of_call(context), report)

    async def list_tools(_context: Context, _page: _Page) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_describe(name) for name in _TOOLS])

    async def call_tool(context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        return await _call_tool(client_call(context), params.name, params.arguments or {})

    async def list_resources(context: Context, _page: _Page) -> types.ListResourcesResult:
        with problems_as(_protocol_error):
            return types.ListResourcesResult(resources=await _latest_answers(client_call(context)))

    async def list_templates(_context: Context, _page: _Page) -> types.ListResourceTemplatesResult:
        templates = [
            types.ResourceTemplate(uri_template=f"run://{{run}}/{part}", name=part, description=description)
            for part, (description, _) in _PARTS.items()
        ]
        return types.ListResourceTemplatesResult(resource_templates=templates)

    async def read_resource(context: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        with problems_as(_protocol_error):
            return await _read_resource(client_call(context), str(params.uri))

    return Server(
        "chargehand",
        version=__version__,
        instructions=_INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
    )


def _describe(name: str) -> types.Tool:
    declared = _TOOLS[name]
    schema = cast("dict[str, Any]", msgspec.json.decode(declared.spec.parameters))
    annotations = _FUNCTIONS[_BY_NAME[name]]
    return types.Tool(name=name, description=declared.spec.description, input_schema=schema, annotations=annotations)


async def _call_tool(call: ClientCall, name: str, arguments: Mapping[str, Any]) -> types.CallToolResult:
    declared = _TOOLS.get(name)
    if declared is None or declared.arguments is None:
        raise MCPError(types.INVALID_PARAMS, f"there is no tool {name[:100]!r}; there are {', '.join(_TOOLS)}")
    try:
        values = declared.arguments.read(msgspec.json.encode(arguments).decode())
        result = cast("dict[str, Any]", msgspec.to_builtins(await _BY_NAME[name](call, **values)))
    except ToolFailed as error:
        return types.CallToolResult(content=[types.TextContent(text=str(error))], is_error=True)
    except (Problem, ChargehandError) as error:
        problem = problem_of(error)
        told = types.TextContent(text=problem.detail)
        return types.CallToolResult(content=[told], structured_content=_error_data(problem), is_error=True)
    text = msgspec.json.encode(result).decode()
    return types.CallToolResult(content=[types.TextContent(text=text)], structured_content=result)


def _error_data(problem: Problem) -> dict[str, Any]:
    """Return what a program needs of a problem: its stable code, its class, and when to try again, in seconds."""
    return {"code": problem.code, "status": problem.status, "retry_after": problem.after}


def _protocol_error(problem: Problem) -> MCPError:
    code = types.INTERNAL_ERROR if problem.status >= 500 else types.INVALID_PARAMS
    return MCPError(code, problem.detail, _error_data(problem))


# --- over HTTP, and over pipes


def mcp_api() -> HttpApi:
    """The API at `/mcp`: streamable HTTP without sessions, for all versions of the protocol that the SDK speaks."""
    server = make_server(lambda context: tenant_of(cast("Any", context.request).scope))
    managers: list[StreamableHTTPSessionManager] = []

    @asynccontextmanager
    async def lifespan() -> AsyncGenerator[None]:
        manager = StreamableHTTPSessionManager(server, stateless=True)
        async with manager.run():
            managers.append(manager)
            yield
            managers.remove(manager)

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        await managers[-1].handle_request(scope, receive, send)

    return HttpApi(name="mcp", app=serve, prefixes=("/mcp",), lifespan=lifespan)


async def serve_stdio(tenant: TenantClient) -> None:
    """Serve one client over standard input and output, until it closes them."""
    server = make_server(lambda _context: tenant)
    async with stdio_server() as (read_stream, write_stream):
        await server.run(read_stream, write_stream, server.create_initialization_options())


api = mcp_api()
