"""What a package needs to add an HTTP API to the server. Everything listed in `__all__` is promised.

An API is an ASGI application with the paths it serves. Its calls pass the same checks as all others (host, origin,
token, rate, size and form of bodies) before it sees them. In the scope of each call stands a `TenantClient`: the teams,
runs and memory of the tenant whose token it came with, and nothing of any other.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, contextmanager
from json import JSONDecodeError
from typing import Any, TypeAlias, TypeVar, cast

import msgspec
from msgspec import Struct
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chargehand.agents.run_document import RunDocument, RunQuestion
from chargehand.concurrency import BareTaskGroup
from chargehand.engine import events as ev
from chargehand.engine.budget import Budget
from chargehand.engine.events import Entry, MessageKey
from chargehand.engine.plan import Plan, digest
from chargehand.engine.policy import Seconds
from chargehand.errors import ChargehandError, Invalid, Refused
from chargehand.memory.conversations import scope_of
from chargehand.runtime.feed import Reader
from chargehand.server.api.control import answer_question, has_answered, was_taken
from chargehand.server.api.events import listen_to_words
from chargehand.server.api.operations import render_problem
from chargehand.server.api.runs import begin_run, list_runs, run_info
from chargehand.server.api.shapes import (
    AnswerBody,
    NewRunBody,
    RequestBody,
    RunFilter,
    RunInfo,
    RunPage,
    RunSummary,
    SearchBody,
    SearchHit,
    StreamedWords,
    TeamInfo,
)
from chargehand.server.api.teams import list_teams, search_archives, show_team
from chargehand.server.dialogue import (
    ClientQuestions,
    document_data,
    explain_answer,
    parse_answer,
    progress_text,
    question_data,
)
from chargehand.server.idempotency import BegunRun, in_turn, run_key
from chargehand.server.page import is_page
from chargehand.server.routing import CALLER, ApiBase, ApiCaller, Render, allows
from chargehand.server.routing import Scope as AccessScope
from chargehand.server.run_control import tell_run
from chargehand.server.teams import Bounds, NewRun
from chargehand.server.tenant_runs import StreamSlot
from chargehand.server.tenants import Tenant, Tenants
from chargehand.server.wire import Problem, misfit, problem_of
from chargehand.server.wire import body as read_body

__all__ = [
    "PROBLEM_HANDLERS",
    "AnswerBody",
    "ApiCaller",
    "BegunRun",
    "Entry",
    "HttpApi",
    "Problem",
    "RunDocument",
    "RunFilter",
    "RunInfo",
    "RunPage",
    "RunQuestion",
    "RunSummary",
    "SearchHit",
    "StreamedWords",
    "TeamInfo",
    "TenantClient",
    "document_data",
    "explain_answer",
    "problem_of",
    "problems_as",
    "progress_text",
    "question_data",
    "read_body",
    "tenant_of",
]

TENANT = "chargehand.tenant"
"""Where in a scope stands the `TenantClient` of a call."""
_TAKEN = ("/api", "/v1", "/metrics", "/healthz", "/readyz")
_MAX_BEHIND = 1000
"""Entries that are read ahead of a consumer."""
Lifespan: TypeAlias = Callable[[], AbstractAsyncContextManager[object]]


class HttpApi(Struct, frozen=True, kw_only=True):
    """An HTTP API that a package adds to the server."""

    name: str
    """What it is called in messages and metrics."""
    app: ASGIApp
    """Serves its calls. Paths are whole: nothing is cut off before the application sees them."""
    prefixes: tuple[str, ...]
    """The paths that are its own, with all below them: `("/a2a", "/.well-known/agent-card.json")`."""
    open_paths: tuple[str, ...] = ()
    """Those of its paths that need no token. Nothing of any tenant can be read there."""
    lifespan: Lifespan | None = None
    """Opens a context that is entered before the server listens and left when it stops, both in the same task."""
    render: Render = render_problem
    """How what the checks refuse, and what the application raises, is worded; left out, as problem+json."""

    def __post_init__(self) -> None:
        if not self.prefixes:
            raise Invalid(f"API {self.name!r} has no prefixes; name the paths that it serves")
        for prefix in self.prefixes:
            if not prefix.startswith("/") or prefix.endswith("/"):
                raise Invalid(f"API {self.name!r}: {prefix!r} is no prefix; write it like /{self.name}")
            if is_page(prefix) or any(f"{prefix}/".startswith(f"{taken}/") for taken in _TAKEN):
                raise Invalid(f"API {self.name!r}: {prefix} belongs to the server itself; choose another prefix")
        for path in self.open_paths:
            if not any(f"{path}/".startswith(f"{prefix}/") for prefix in self.prefixes):
                raise Invalid(f"API {self.name!r}: the open path {path} is below none of its prefixes")


async def _answer_problem(_request: Request, error: Exception) -> Response:
    """What a Starlette application answers where a handler raises an error of ours."""
    problem = problem_of(error)
    response = render_problem(problem)
    response.headers.update(problem.headers)
    return response


async def _answer_broken_json(request: Request, error: Exception) -> Response:
    return await _answer_problem(request, Problem(422, "not_json", f"the body is not JSON: {error}"))


async def _answer_http_error(request: Request, error: Exception) -> Response:
    status = cast("HTTPException", error).status_code
    words = {404: "there is nothing at this path", 405: "this method is not for this path"}
    code = "no_route" if status in words else "refused"
    return await _answer_problem(request, Problem(status, code, words.get(status, str(error))))


PROBLEM_HANDLERS: Mapping[Any, Any] = {
    HTTPException: _answer_http_error,
    Problem: _answer_problem,
    ChargehandError: _answer_problem,
    JSONDecodeError: _answer_broken_json,
}
"""`Starlette(exception_handlers=PROBLEM_HANDLERS)`: what a `TenantClient` raises becomes a reply with its status.

So does what `await request.json()` raises for a body that is not JSON, and a path or a method that is not there.
"""


@contextmanager
def problems_as(error_of: Callable[[Problem], Exception]) -> Generator[None]:
    """Make what a `TenantClient` raises errors of another protocol."""
    try:
        yield
    except (Problem, ChargehandError) as error:
        raise error_of(problem_of(error)) from error


def tenant_of(scope: Mapping[str, Any]) -> "TenantClient":
    """The tenant of a call, by its ASGI scope (in Starlette: `request.scope`)."""
    return scope[TENANT]


class TenantClient:
    """The teams, runs and memory of one tenant, within what the token of a call allows.

    Raises `Problem` (with `status`, a stable `code` and a `detail`), and errors of `chargehand.errors`, which
    `problem_of` makes problems of. Whatever was begun, answered or cancelled is on disk when a method returns.
    """

    def __init__(self, tenant: Tenant, caller: ApiCaller, api: str = "") -> None:
        self._tenant = tenant
        self._api = api
        self.caller = caller
        """Whose token the call came with; its scope is `open` where there is none."""

    @property
    def name(self) -> str:
        """The tenant's name."""
        return self._tenant.name

    def _require(self, scope: AccessScope) -> Tenant:
        if not allows(self.caller, scope):
            raise Problem(403, "forbidden", f"this key does not allow {scope!r}; use one that does")
        return self._tenant

    # --- teams

    async def teams(self) -> tuple[TeamInfo, ...]:
        """The teams that take requests, with their workers, tools, examples and limits."""
        return (await list_teams(self._require("read"))).teams

    async def team(self, name: str) -> TeamInfo:
        """One of them; a problem with status 404, and the names that are alike, where there is none."""
        return await show_team(self._require("read"), name)

    # --- runs

    async def begin(
        self,
        team: str,
        goal: str,
        *,
        key: str = "",
        key_name: str = "key",
        labels: Mapping[str, str] | None = None,
        plan: Plan | None = None,
        budget: Budget | None = None,
        seconds: Seconds | None = None,
        approve: bool | None = None,
        thread: str = "",
    ) -> BegunRun:
        """Begin a run. With a `key`, the same call again gives the run that it began the first time (`replayed`).

        `key_name` is what the client calls the key, for errors.
        `budget`, `seconds` and `approve` bound it more than its team is bounded. Labels are for who lists runs;
        `session` and `user` also keep what workers remember apart. Without these two, `thread` does, the id of a
        conversation in the protocol of the caller, and otherwise the key of the caller.
        """
        tenant = self._require("run")
        bounds = Bounds(budget or Budget(), seconds, approve)
        body = _checked(NewRunBody(team=team, goal=goal, plan=plan, labels=dict(labels or {})))
        scope = scope_of(body.labels, asker=self.caller.key, thread=thread and f"{self._api}/{thread}")
        new = NewRun(goal, bounds, plan, labels=body.labels, scope=scope)
        if not key:
            return BegunRun(await begin_run(tenant, team, new, None))
        own_key = run_key(tenant, f"{self._api}:{key}", msgspec.json.encode((body, bounds)), name=key_name)
        return await own_key.begin(tenant, lambda: begin_run(tenant, team, new, own_key))

    async def read(self, run: str) -> RunInfo:
        """A run as it stands: plan, tasks, cost, gaps, answer, and the question it asks."""
        return await run_info(self._require("read"), run)

    async def runs(self, query: RunFilter | None = None) -> RunPage:
        """Runs, the latest first; a page of them."""
        return await list_runs(self._require("read"), _checked(query or RunFilter()))

    async def wait(self, run: str, seconds: Seconds) -> RunInfo:
        """A run once it has ended or waits for a person, or as it stands when so many seconds have passed."""
        tenant = self._require("read")
        try:
            async with asyncio.timeout(seconds), _follow(tenant, run, until_asked=True) as entries:
                async for _ in entries:
                    pass
        except TimeoutError:
            pass
        return await run_info(tenant, run)

    def follow(
        self, run: str, *, after: int = 0, words: bool = False, until_asked: bool = False
    ) -> AbstractAsyncContextManager[AsyncIterator[Entry | StreamedWords]]:
        """The entries of a run, in a context: those after number `after`, then each as it is written, until its end.

        A run that waits for a person (an entry `InputRequested`) goes on when it is answered: `until_asked` ends
        there, too. With `words`, also what models write, as it comes; it is not kept, so who comes later, or reads
        a run of another server, has only entries. The iterator ends early when the server stops.

            async with tenant.follow(run, after=7) as entries:
                async for entry in entries: ...
        """
        return _follow(self._require("read"), run, after, words=words, until_asked=until_asked)

    def show_question(self, info: RunInfo) -> None:
        """Note that the client of this call is shown the open question of a run: its words are good for that one."""
        if info.asks is not None:
            self._tenant.part(ClientQuestions).show(self._client, info.summary.run, info.asks.number)

    @property
    def _client(self) -> str:
        return f"{self._api}:{self.caller.key}"

    async def answer(self, run: str, answer: object, *, key: str = "", key_name: str = "key") -> RunInfo:
        """Answer the question a run asks: approve or reject a plan or a call, or give the answer in words.

        With a `key`, the same call again changes nothing, also after another question came up.

        Args:
            run: The run that asks.
            answer: An `AnswerBody`, or what a client sent: fields with or without a `number`, or words. Without a
                number it is good only for the question that `show_question` noted last.
            key: The id that the client gave to the message; empty: none.
            key_name: What the client calls that id, for errors.
        """
        tenant = self._require("run")
        sent = msgspec.json.encode(answer, order="deterministic")  # fields of a data part of A2A come in any order
        message = MessageKey(digest(self._client, key), digest(sent)) if key else None
        async with in_turn(tenant, message):
            if await has_answered(tenant, run, message, key_name):
                return await run_info(tenant, run)
            try:
                body = answer if isinstance(answer, AnswerBody) else await self._parse(tenant, run, answer)
            except Refused:
                if not await was_taken(tenant, run, message, key_name):
                    raise
                return await run_info(tenant, run)
            by = self.caller.name or self.caller.key
            return await answer_question(tenant, run, _checked(body), by, message=message, key_name=key_name)

    async def _parse(self, tenant: Tenant, run: str, answer: object) -> AnswerBody:
        question = (await run_info(tenant, run)).asks
        if question is None:
            raise Refused(f"run {run!r} asks nothing just now")
        is_shown = tenant.part(ClientQuestions).is_shown(self._client, run, question.number)
        return parse_answer(question, answer, names_question=not is_shown)

    async def cancel(self, run: str, reason: str = "") -> RunInfo:
        """Stop a run; what is finished stays. A run that has ended already is left as it is."""
        tenant = self._require("run")
        by = self.caller.name or self.caller.key
        await tell_run(tenant, run, lambda _: ev.CancelRequested(reason, by=by))
        return await run_info(tenant, run)

    # --- memory

    async def search_memory(
        self, team: str, query: str, *, archives: Sequence[str] = (), limit: int = 10
    ) -> tuple[SearchHit, ...]:
        """The passages in the archives of a team that fit a question best; in all of them, or in those named."""
        body = _checked(SearchBody(query=query, archives=tuple(archives), limit=limit))
        return (await search_archives(self._require("read"), team, body)).hits


_Body = TypeVar("_Body", bound=RequestBody)


def _checked(body: _Body) -> _Body:
    """What is asked for, within the same limits as over HTTP; a problem says what is beyond them."""
    sent = msgspec.to_builtins(body)
    try:
        return msgspec.convert(sent, type(body))
    except msgspec.ValidationError as error:
        raise misfit(error, type(body), sent) from error


@asynccontextmanager
async def _follow(
    tenant: Tenant, run: str, after: int = 0, *, words: bool = False, until_asked: bool = False
) -> AsyncGenerator[AsyncIterator[Entry | StreamedWords]]:
    reader = tenant.feed.subscribe(run, after)
    first = await reader.first()  # RunUnknown is raised before anything is waited for
    slot = tenant.runs.take_stream_slot()
    stream = _RunStream(first)
    try:
        with listen_to_words(tenant, run, stream.add_words if words else None):
            async with BareTaskGroup() as jobs, aclosing(_until_asked(tenant, run, stream)) as until:
                reading = jobs.create_task(stream.read_from(reader))
                stopping = jobs.create_task(stream.end_with(slot))
                yield until if until_asked else stream
                reading.cancel()
                stopping.cancel()
    finally:
        slot.leave()


async def _until_asked(
    tenant: Tenant, run: str, stream: AsyncIterator[Entry | StreamedWords]
) -> AsyncGenerator[Entry | StreamedWords]:
    """A stream up to a question that a person has not answered yet."""
    async for item in stream:
        yield item
        if not isinstance(item, Entry) or not isinstance(item.event, ev.InputRequested):
            continue
        if (runner := tenant.runner_of(run)) is not None:
            await runner.decided(run, item.event.number)
        if (await run_info(tenant, run)).summary.state == "needs_input":
            return


class _RunStream(AsyncIterator[Entry | StreamedWords]):
    """What a run brings, in the order in which it came; entries are read no further than so many ahead."""

    def __init__(self, first: Sequence[Entry]) -> None:
        self._items: asyncio.Queue[Entry | StreamedWords | None] = asyncio.Queue()
        self._room = asyncio.Semaphore(_MAX_BEHIND)
        self._is_over = False
        self._unread = list(reversed(first))

    def add_words(self, words: StreamedWords) -> None:
        self._items.put_nowait(words)

    async def read_from(self, reader: Reader) -> None:
        async for entry in reader:
            await self._room.acquire()
            self._items.put_nowait(entry)
        self._items.put_nowait(None)

    async def end_with(self, slot: StreamSlot) -> None:
        await slot.over()
        self._items.put_nowait(None)

    async def __anext__(self) -> Entry | StreamedWords:
        if self._unread:
            return self._unread.pop()
        item = None if self._is_over else await self._items.get()
        if item is None:
            self._is_over = True
            raise StopAsyncIteration
        if isinstance(item, Entry):
            self._room.release()
        return item


class MountedApi(ApiBase):
    """An API from outside, among those of the server."""

    def __init__(self, api: HttpApi) -> None:
        super().__init__(api.name, api.render, prefixes=api.prefixes)
        self._api = api

    def is_open(self, path: str) -> bool:
        return path in self._api.open_paths

    async def serve(self, scope: Scope, receive: Receive, send: Send, tenants: Tenants) -> None:
        caller: ApiCaller = scope[CALLER]
        has_begun = False
        has_ended = False

        async def watch(message: Message) -> None:
            nonlocal has_begun, has_ended
            has_begun = True
            has_ended = message["type"] == "http.response.body" and not message.get("more_body", False)
            await send(message)

        try:
            tenant = await tenants.of(caller.tenant)
            scope[TENANT] = TenantClient(tenant, caller, self.name)
            await self._api.app(scope, receive, watch)
        except Exception as error:
            response = self.problem_response(scope, error)  # which also logs what only the operator can mend
            if not has_begun:
                await response(scope, receive, send)
            elif not has_ended:  # a status was sent: all that can be said is that the rest does not come
                raise
