"""Sessions of clients with the agents of a tenant: each is a run, and an agent answers one request at a time.

A call that is repeated joins the run it started. After a restart, runs that were open are resumed, and the index gets
what it lacks.
"""

import asyncio
import logging
import time
import uuid
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from functools import partial
from itertools import chain

import msgspec
from msgspec import Struct, structs
from starlette.responses import Response, StreamingResponse

from chargehand.engine import events as ev
from chargehand.engine.budget import Budget
from chargehand.engine.events import Entry
from chargehand.engine.plan import Plan, Task
from chargehand.engine.policy import Limits, Policy, Retry, Seconds
from chargehand.engine.roster import Roster
from chargehand.engine.state import Work
from chargehand.errors import ChargehandError, Refused, RunUnknown, StoreError
from chargehand.memory.catalog import KeptConversation, Profile
from chargehand.runtime.runner import Outcome, Runner
from chargehand.server.idempotency import Repeats
from chargehand.server.letta.executor import AgentQueue, LettaExecutor
from chargehand.server.letta.index import Index, SavedLog
from chargehand.server.letta.message_log import TASK, MessageLog, read_log, read_nested_logs
from chargehand.server.letta.request import AgentRequest, recorded_request
from chargehand.server.letta.settings import settings_of
from chargehand.server.letta.sqlite_index import SqliteIndex
from chargehand.server.letta.wire import ErrorMessage, LettaMessage, RunResponse, StopReason, format_time
from chargehand.server.streams import PING, Output, event, streamed
from chargehand.server.tenant_runs import StreamSlot, retry_when_full, root_of
from chargehand.server.tenants import Tenant
from chargehand.server.wire import Problem, problem_of, reply, unknown
from chargehand.sqlite import StoreUrl, file_of_url

_DONE = b"data: [DONE]\n\n"
_SIGN_OF_LIFE = b" \n"
_PING: Seconds = 15.0


class _TextPiece(Struct, frozen=True):
    """Some text as it comes, and the id of the message that it becomes part of."""

    message: str
    text: str


class View(Struct, frozen=True):
    """What of a session a client wants: messages of these types after number `after`, pieces, pings."""

    types: Sequence[str] | None = None
    tokens: bool = False
    pings: bool = False
    after: int = 0


class Session:
    """A run that is carried here. `root` is the run it is inside of, or itself."""

    def __init__(self, log: MessageLog, *, root: str = "", streams_tokens: bool = False) -> None:
        self.log = log
        self.root = root or log.run
        self.streams_tokens = streams_tokens
        self.since = 0
        """How many messages there were when its latest client began to wait."""
        loop = asyncio.get_running_loop()
        self.started: asyncio.Future[None] = loop.create_future()
        """Done when the run is on disk."""
        self.done: asyncio.Future[None] = loop.create_future()
        """Done when the run has ended or waits for its client."""
        self._output = Output[LettaMessage | _TextPiece](log.messages)

    @property
    def run(self) -> str:
        return self.log.run

    @property
    def is_over(self) -> bool:
        """Whether nothing more comes, or not before the client answers."""
        return self._output.is_closed

    def check_same(self, request: AgentRequest) -> "Session":
        """Return the session for a request with the same otids; 409 if it has other words, which must not get lost."""
        if self.log.request is not None and self.log.request.messages != request.messages:
            advice = "send it with an otid of its own"
            raise Problem(409, "otid_taken", f"a message with this otid was sent before, with other words; {advice}")
        return self

    # --- what happens

    def record(self, entries: Sequence[Entry]) -> None:
        before = len(self.log.messages)
        for entry in entries:
            self.log.read(entry)
        self._output.add(*self.log.messages[before:])

    def record_text(self, message: str, text: str) -> None:
        self._output.add(_TextPiece(message, text))

    def start(self, error: Exception | None = None) -> None:
        """The run is on disk, or could not be started."""
        _settle(self.started, error)

    def finish(self, error: Exception | None = None) -> None:
        """Nothing more comes, or not before the client answers."""
        if not self.done.done():
            self.start(error)
            _settle(self.done, error)
            self._output.close(error)

    # --- how clients follow it

    async def respond(self, types: Sequence[str] | None, patience: Seconds) -> Response:
        """The whole answer. After `patience` without one, white space keeps the call alive.

        A client that reads nothing for a minute would send its call again.
        """
        if await self._is_done_within(patience):
            self.done.result()
            return reply(self.log.describe_answer(self.since, types))
        return StreamingResponse(self._respond_slowly(types, patience), media_type="application/json")

    async def _respond_slowly(self, types: Sequence[str] | None, patience: Seconds) -> AsyncIterator[bytes]:
        yield _SIGN_OF_LIFE
        while not await self._is_done_within(patience):
            yield _SIGN_OF_LIFE
        answer = self.log.describe_answer(self.since, types)
        if (error := self.done.exception()) is not None:  # the status was sent long ago
            answer.messages = [self._message("assistant_message", content=_describe(error), is_err=True)]
            answer.stop_reason = StopReason("error")
        yield msgspec.json.encode(answer)

    async def _is_done_within(self, patience: Seconds) -> bool:
        return bool((await asyncio.wait((self.done,), timeout=patience))[0])

    def stream(self, view: View, slot: StreamSlot) -> Response:
        """The answer as it comes, event by event. A client that goes away stops nothing."""

        def ping() -> bytes:
            return event(self._message("ping")) if view.pings else PING

        return streamed(self._events(view), ping=ping, every=_PING, slot=slot)

    async def _events(self, view: View) -> AsyncGenerator[bytes]:
        stop = ""
        sent_text: dict[str, str] = {}
        try:
            async with aclosing(self._output.read(self._position_after(view.after))) as items:
                async for item in items:
                    if isinstance(item, _TextPiece):
                        if view.tokens:
                            sent_text[item.message] = sent_text.get(item.message, "") + item.text
                            yield event(self._message("assistant_message", item.message, content=item.text))
                    elif self.log.is_wanted(item, view.types):
                        rest = _without_sent(item, sent_text.pop(item.id, "").strip())
                        if rest is not None:
                            yield event(rest)
        except Exception as error:  # noqa: BLE001 - the client is told
            stop = "error"
            yield event(ErrorMessage(self.run, _describe(error)))
        yield event(StopReason(stop or self.log.stop or "error"))
        yield event(self.log.usage)
        yield _DONE

    def _position_after(self, number: int) -> int:
        """The place in the output after a message."""
        for place, item in enumerate(self._output.items, 1):
            if isinstance(item, LettaMessage) and item.seq_id == number:
                return place
        return number

    def _message(
        self, message_type: str, message_id: str = "", *, content: str | None = None, is_err: bool | None = None
    ) -> LettaMessage:
        """A message that is not in the log. It has no number: a client that comes back gets the whole one."""
        return LettaMessage(
            message_type=message_type,
            id=message_id or f"message-{uuid.uuid4()}",
            date=format_time(time.time()),
            run_id=self.run,
            otid=message_id.partition("-")[2] or None,
            content=content,
            is_err=is_err,
        )


def _describe(error: BaseException) -> str:
    return problem_of(error).detail if isinstance(error, Exception) else "the call was cut off"


def _without_sent(message: LettaMessage, sent: str) -> LettaMessage | None:
    """What of a message its reader has not had in pieces; None if it has had all of it.

    Pieces are sent as those of an answer. If they turn out to be thoughts before a tool call, all of them come again as
    such, under the same id.
    """
    text = (message.content or "").strip()
    if not sent or not text.startswith(sent):
        return message
    rest = text[len(sent) :]
    return msgspec.structs.replace(message, content=rest) if rest else None


def _settle(future: "asyncio.Future[None]", error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
        return
    future.set_exception(error)
    future.exception()  # it counts as seen, if no caller waits for it


# --- the sessions of a tenant


# The client hears what failed and may ask again; failing networks are retried by the model's guard. A run in an agent's
# queue is stopped with every restart, and must not be given up for that.
_POLICY = Policy(retry=Retry(attempts=1), limits=Limits(width=50, max_nesting=8, resumes=20), refine=False, answer=0.0)
_DEADLINE: Seconds = 30 * 86_400.0  # for people who are asked; the executor bounds the time that an agent works
_CANCEL_TIMEOUT: Seconds = 5.0
_INDEXED_TIMEOUT: Seconds = 30.0
_LATEST = 2**62
_PAGE = 200

logger = logging.getLogger(__name__)
_Carry = Callable[[Runner], Awaitable[Outcome]]


def open_index(url: StoreUrl, clean: Callable[[bytes], bytes]) -> Index:
    """The index at a URL; `clean` takes secrets out of what is written."""
    return SqliteIndex(file_of_url(url), clean)


class Sessions:
    """The sessions of one tenant: `tenant.part(Sessions)`."""

    def __init__(self, tenant: Tenant) -> None:
        self._tenant = tenant
        self.index = open_index(tenant.stores.index, tenant.redactor.clean)
        tenant.stack.push_async_callback(self.index.close)
        self._queue = AgentQueue(tenant.runs, tenant.settings.limits.waiting)
        self.executor = LettaExecutor(tenant, self._queue, self._on_entries)
        self._runner = tenant.open_runner(self.executor, tenant.on_entries)
        self._token_runner = tenant.open_runner(self.executor, tenant.on_entries, self._on_text)
        self._is_indexed = asyncio.Event()
        self.running: dict[str, Session] = {}
        """The runs that are carried here."""
        self._nested: dict[str, list[Session]] = {}
        """What agents do that were written to in these runs, by the journal of the message."""

    # --- starting and stopping

    async def start(
        self, profile: Profile, request: AgentRequest, *, repeated: bool = False, streams_tokens: bool = False
    ) -> Session:
        """Start a session, or join the one that this very call started; back when it is on disk."""
        run = request.run
        repeats = self._tenant.part(Repeats)
        if repeated:
            run = await repeats.begun_by(request.digest) or run
        earlier = await self.join(run) if repeated or request.otids else None
        earlier = earlier or self.running.get(run)
        if earlier is not None:
            return (await _started(earlier)).check_same(request)
        self._tenant.runs.check()
        session = self.running[run] = Session(MessageLog(run, request), streams_tokens=streams_tokens)
        async with self._starting(session):
            await repeats.begin(request.digest, lambda: self._begin(session, profile, request))
        return session

    async def _begin(self, session: Session, profile: Profile, request: AgentRequest) -> str:
        self._queue.check(request.lane)
        waiting = await self.waiting_run(request.lane)
        if waiting:  # a question is void once something else is said
            await self.cancel([waiting], "something else was said before it was answered")
        requested = self._tenant.redact(self._run_request(profile, request))
        await self._carry(session, lambda runner: runner.start(session.run, requested))
        return session.run

    def _run_request(self, profile: Profile, request: AgentRequest) -> ev.RunRequested:
        agent = structs.replace(self.executor.agent(profile), timeout=_DEADLINE)
        return ev.RunRequested(
            goal=request.text,
            roster=Roster((agent,)),
            policy=_POLICY,
            budget=Budget(),
            deadline=time.time() + _DEADLINE,
            seed=uuid.uuid4().int & 0xFFFFFFFF,
            plan=Plan((Task(TASK, request.text, profile.id),), "none"),
            client=request.to_record(),
        )

    async def join(self, run: str) -> Session | None:
        """The session of a run that was started before: under way, or as it stands, or resumed if a crash left it open.

        None if there is no such run.
        """
        if run in self.running:
            return await _started(self.running[run])
        log = await self._read(run)
        if log is None:
            return None
        if not log.over and not log.is_waiting:
            return await self.resume(run)
        session = Session(log)
        session.finish()
        return session

    async def resume(self, run: str, *reports: ev.Event) -> Session:
        """Go on with a run that waits for its client, or that a crash left open."""
        if run in self.running and not self.running[run].is_over:
            session = await _started(self.running[run])
            for report in reports:
                await self._runner_of(session).ask(run, self._tenant.redact(report))
            return session
        if self._tenant.runs.is_running(run):  # it is being released just now
            with suppress(Exception):
                await self._tenant.runs.outcome(run)
        await self._wait_until_indexed()
        log = await self._read(run)
        if log is None:
            raise unknown("run", run)
        if log.over:
            raise Refused(f"run {run} has ended")
        if run in self.running and not self.running[run].is_over:  # another caller was faster
            return await self.resume(run, *reports)
        session = self.running[run] = Session(log)
        session.since = len(log.messages)
        async with self._starting(session):
            await self._carry(session, lambda runner: runner.resume(run, *map(self._tenant.redact, reports)))
        return session

    async def cancel(self, runs: Iterable[str], reason: str = "") -> None:
        """Stop these, with all that was started inside them; back when they have stopped."""
        stopped: list[Session] = []
        for run in runs:
            try:
                stopped.append(await self.resume(run, ev.CancelRequested(reason)))
            except Refused as error:  # it ended meanwhile, which is what was wanted
                logger.info("run %s was not cancelled: %s", run, error)
        if stopped:
            await asyncio.wait([session.done for session in stopped], timeout=_CANCEL_TIMEOUT)

    async def open_runs(self, lane: str, agent: str = "") -> list[str]:
        """The runs of a lane that have not ended, also one that waits; with `agent`, those of all its lanes."""
        logs = [session.log for session in self.running.values() if not session.log.over]
        runs = [log.run for log in logs if log.lane == lane or log.agent == agent]
        waiting = await self.waiting_run(lane)
        return [*runs, waiting] if waiting else runs

    async def forget(self, agent: str) -> None:
        """An agent was deleted: nothing of it is listed any more."""
        for session in [*self.running.values()]:
            if session.log.agent == agent:
                del self.running[session.run]
        await self.index.forget_agent(agent)

    # --- what runs have come to

    async def waiting_run(self, lane: str) -> str:
        """The run of a conversation or an agent that waits for its client; empty if none does."""
        await self._wait_until_indexed()
        logs = [session.log for session in self.running.values() if session.log.lane == lane]
        if any(log.is_waiting for log in logs):
            return next(log.run for log in logs if log.is_waiting)
        run = await self.index.waiting_run(lane)
        return "" if run in self.running else run  # it goes on already

    async def waiting_log(self, lane: str) -> MessageLog | None:
        run = await self.waiting_run(lane)
        log = await self._read(run) if run else None
        return log if log is not None and log.is_waiting else None

    async def pending_approvals(self, agents: Sequence[str]) -> dict[str, LettaMessage | None]:
        """What these agents ask their clients about calls that wait, by agent."""
        waiting = await self.index.waiting_agents()
        logs = [await self.waiting_log(agent) for agent in waiting if agent in agents]
        return {log.agent: log.approval_request for log in logs if log is not None}

    async def last_runs(self, agents: Sequence[str]) -> dict[str, RunResponse]:
        """The latest run of each agent that has ended; those that have just ended need not be indexed yet."""
        logs = [session.log for session in self._sessions() if session.log.over and session.log.agent in agents]
        return {**await self.index.last_runs(agents), **{log.agent: log.describe_run() for log in logs}}

    def find(self, run: str) -> Session | None:
        """The session of a run that goes on here, also of one inside another."""
        return self.running.get(run) or next((session for session in self._sessions() if session.run == run), None)

    async def log_of(self, run: str) -> MessageLog | None:
        """What a run has come to, under way or not; None if there is none."""
        session = self.find(run)
        return session.log if session is not None else await self._read(run)

    async def flush(self, agent: str = "") -> Index:
        """The index with what is not in it yet, so that a list that is read next is whole.

        After a restart that includes what was started before: a run whose id a client has is never unknown.
        """
        await self._wait_until_indexed()
        logs = [session.log for session in self._sessions() if session.log.began]
        await self._save([log for log in logs if agent in ("", log.agent)])
        return self.index

    def _sessions(self) -> Iterable[Session]:
        return [*self.running.values(), *chain.from_iterable(self._nested.values())]

    async def _save(self, logs: Sequence[MessageLog]) -> None:
        """Index these, but not what was deleted or forgotten since they began."""
        profiles: dict[str, Profile | None] = {}
        saved: list[SavedLog] = []
        for log in logs:
            if log.agent not in profiles:
                profiles[log.agent] = await self._tenant.memory.catalog.get(Profile, log.agent)
            profile = profiles[log.agent]
            if profile is None:
                saved.append(SavedLog(log, is_deleted=True))
            else:
                saved.append(SavedLog(log, has_messages=await self._is_remembered(profile, log)))
        if saved:
            await self.index.save(saved)

    async def _is_remembered(self, profile: Profile, log: MessageLog) -> bool:
        if log.conversation:
            return await self._tenant.memory.catalog.get(KeptConversation, log.conversation) is not None
        return log.began >= settings_of(profile).messages_since

    async def _read(self, run: str) -> MessageLog | None:
        try:
            return read_log(run, await self._tenant.journal.read(run))
        except RunUnknown:
            return None

    # --- how a run is carried

    async def _wait_until_indexed(self) -> None:
        """Until the index has what a crash left open, it cannot be known whether a call started a run before."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_INDEXED_TIMEOUT):
                await self._is_indexed.wait()

    @asynccontextmanager
    async def _starting(self, session: Session) -> AsyncGenerator[None]:
        """Callers who join hear what the first one hears. A run that is carried goes on without its caller."""
        try:
            yield
        except BaseException as error:
            session.start(_as_problem(error))
            if not self._tenant.runs.is_running(session.run):
                self._close(session, error)
            raise
        session.start()

    async def _carry(self, session: Session, carry: _Carry) -> None:
        self._queue.join(session.log.lane, session.run)
        await self._tenant.runs.begin(session.run, lambda: self._carry_to_end(session, carry))

    async def _carry_to_end(self, session: Session, carry: _Carry) -> Outcome:
        try:
            outcome = await carry(self._runner_of(session))
            self._queue.leave(session.log.lane, session.run)
            logs = [session.log, *(nested.log for nested in self._inside(session))]
            with_index = await self._try_to_save(logs)
        except BaseException as error:
            self._close(session, error)
            raise
        self._close(session, is_kept=not with_index)
        return outcome

    async def _try_to_save(self, logs: Sequence[MessageLog]) -> bool:
        try:
            await self._save(logs)
        except StoreError as error:  # it stays in `running`, so lists have it, and the journal has it anyway
            logger.warning("run %s is not indexed: %s", logs[0].run, error)
            return False
        return True

    def _inside(self, session: Session) -> list[Session]:
        return [nested for nested in chain.from_iterable(self._nested.values()) if nested.root == session.run]

    def _close(self, session: Session, error: BaseException | None = None, *, is_kept: bool = False) -> None:
        """Nothing more comes of a run here, or not before its client answers."""
        if not is_kept:
            self.running.pop(session.run, None)
        self._queue.leave(session.log.lane, session.run)
        for nested in self._inside(session):
            self._nested.pop(nested.log.name, None)
            nested.finish(_as_problem(error))
        session.finish(_as_problem(error))

    def _runner_of(self, session: Session) -> Runner:
        return self._token_runner if session.streams_tokens else self._runner

    # --- what the runners report

    def _on_entries(self, run: str, entries: Sequence[ev.Entry]) -> None:
        """Hear what is written in a run, or in one inside it."""
        first = entries[0].event if entries else None
        if isinstance(first, ev.RunRequested) and first.parent is not None:
            logs = read_nested_logs(run, entries[:1])
            self._nested[run] = [Session(log, root=first.parent.root) for log in logs]
            entries = entries[1:]
        session = self.running.get(run)
        sessions = self._nested.get(run, ()) if session is None else (session,)
        for each in sessions:
            each.record(entries)
            if each.log.over:  # it is on disk: clients need not wait until it is indexed
                self._queue.leave(each.log.lane, run)
                each.finish()

    def _on_text(self, run: str, work: Work, text: str) -> None:
        self._tenant.on_words(run, work, text)
        session = self.running.get(run)
        state = self._token_runner.under_way.get(run)
        if session is None or state is None or work.kind != "attempt":
            return
        steps = state.tasks[work.task].steps or {}
        step = max((number for number, step in steps.items() if step.result is None), default=0)
        session.record_text(session.log.reply_id(work.number, step), text)

    # --- after a restart

    async def resume_all(self) -> int:
        """Resume every open run of this API, the oldest first; how many there were.

        What waits for its client is left as it is. Back when all of them are carried.
        """
        try:
            runs = await self._index_unfinished()
        finally:
            self._is_indexed.set()
        for run in runs:
            if self._tenant.runs.closing:
                break  # they are resumed at the next start
            try:
                await retry_when_full(partial(self.resume, run))
            except (ChargehandError, Problem) as error:  # the others must be resumed all the same
                logger.warning("run %s was not resumed: %s", run, error)
        return len(runs)

    async def _index_unfinished(self) -> list[str]:
        """Index what is missing; the runs that have to be resumed. Nested runs are resumed by their parents."""
        ended = await self.index.ended()
        runs: list[str] = []
        nested = defaultdict[str, list[str]](list)
        before = _LATEST
        while page := await self._tenant.journal.latest(before=before, limit=_PAGE):
            before = page[-1].number
            for row in page:
                if row.request is None or row.run in ended:
                    continue
                root = root_of(row.run, row.request)
                if root != row.run:
                    nested[root].append(row.run)
                elif recorded_request(row.request) is not None:
                    runs.append(row.run)
        unfinished: list[str] = []
        for run in reversed(runs):  # the oldest first
            try:
                if run not in self.running and await self._index_run(run, nested[run]):
                    unfinished.append(run)
            except ChargehandError as error:
                logger.warning("run %s was not indexed: %s", run, error)
        return unfinished

    async def _index_run(self, run: str, nested: Sequence[str]) -> bool:
        """Index a run and those inside it; whether it has to be resumed."""
        log = await self._read(run)
        if log is None:
            return False
        goes_on = not log.over and not log.is_waiting
        logs = [log]
        for name in nested:
            inside = read_nested_logs(name, await self._tenant.journal.read(name))
            logs += inside
            if goes_on and not all(each.over for each in inside):
                self._nested[name] = [Session(each, root=run) for each in inside]
        await self._save(logs)
        return goes_on


async def _started(session: Session) -> Session:
    await asyncio.shield(session.started)
    return session


def _as_problem(error: BaseException | None) -> Exception | None:
    if error is None or isinstance(error, Exception):
        return error
    return Problem(503, "cut", "the server stopped before it was done; ask again to go on", after=2.0)
