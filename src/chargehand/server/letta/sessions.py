"""Sessions of clients with the agents of a tenant: each is a run, and an agent answers one request at a time.

A call that is repeated joins the run it started. After a restart, runs that were open are resumed, and the index gets
what it lacks.
"""

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial

from msgspec import structs

from chargehand.engine import events as ev
from chargehand.engine.budget import Budget
from chargehand.engine.plan import Plan, Task
from chargehand.engine.policy import Instant, Limits, Policy, Retry, Seconds
from chargehand.engine.roster import Roster
from chargehand.engine.state import Work
from chargehand.errors import ChargehandError, Refused, RunUnknown, StoreError
from chargehand.memory.catalog import Profile
from chargehand.runtime.runner import Outcome, Runner
from chargehand.server.idempotency import Repeats
from chargehand.server.letta.executor import AgentExecutor
from chargehand.server.letta.index import Index
from chargehand.server.letta.message_log import TASK, ClientReturn, MessageLog, read_log, read_nested_logs
from chargehand.server.letta.request import AgentRequest, recorded_request
from chargehand.server.letta.session import Session
from chargehand.server.letta.wire import RunResponse
from chargehand.server.problem import Problem, unknown
from chargehand.server.run_control import root_of
from chargehand.server.tenant_runs import TenantRuns, retry_when_full
from chargehand.server.tenants import Tenant

# The client hears what failed and may ask again; failing networks are retried by the model's guard. A run in an agent's
# queue is stopped with every restart, and must not be given up for that.
_POLICY = Policy(retry=Retry(attempts=1), limits=Limits(width=50, max_nesting=8, resumes=20), refine=False, answer=0.0)
_DEADLINE: Seconds = 30 * 86_400.0  # for people who are asked; the executor bounds the time that an agent works
_CANCEL_TIMEOUT: Seconds = 5.0
_INDEXED_TIMEOUT: Seconds = 30.0
_LATEST = 2**62
_PAGE = 200
RESET_AT = "messages_since"
"""The setting of an agent that says when its messages were reset."""

logger = logging.getLogger(__name__)
_Carry = Callable[[Runner], Awaitable[Outcome]]


class AgentQueue:
    """A queue for each lane. The run at its head stays there until it leaves.

    A run behind another has no place among the tenant's runs, where other agents may need it. So there may be
    `max_waiting` of them, and half as many in one lane.
    """

    def __init__(self, runs: TenantRuns, max_waiting: int) -> None:
        self._runs = runs
        self._max_waiting = max_waiting
        self._lanes: dict[str, dict[str, asyncio.Event]] = {}

    def check(self, lane: str) -> None:
        """Raise 429 if the queue is too long for one more."""
        length = len(self._lanes.get(lane, ()))
        waiting = sum(len(queue) - 1 for queue in self._lanes.values()) if length else 0
        if length and (length > self._max_waiting // 2 or waiting >= self._max_waiting):
            reason = f"{length} messages to {lane} are under way already; nothing was begun: try again soon"
            raise Problem(429, "busy", reason, after=1.0)

    def join(self, lane: str, run: str) -> None:
        queue = self._lanes.setdefault(lane, {})
        is_first = not queue
        turn = queue.setdefault(run, asyncio.Event())
        if is_first:
            turn.set()

    async def wait_turn(self, lane: str, run: str) -> None:
        """Wait to be at the head. A run that never joined does not wait: messages between agents are not queued."""
        turn = self._lanes.get(lane, {}).get(run)
        if turn is not None and not turn.is_set():
            await self._runs.aside(run, turn.wait())

    def leave(self, lane: str, run: str) -> None:
        queue = self._lanes.get(lane, {})
        if queue.pop(run, None) is None:
            return
        if queue:
            next(iter(queue.values())).set()
        else:
            del self._lanes[lane]


class Sessions:
    """The sessions of one tenant: `tenant.part(Sessions)`."""

    def __init__(self, tenant: Tenant) -> None:
        self._tenant = tenant
        self.index = tenant.part(Index)
        self.executor = AgentExecutor(tenant, self)
        self._queue = AgentQueue(tenant.runs, tenant.settings.limits.waiting)
        self._runner = tenant.open_runner(self.executor, self._on_entries)
        self._token_runner = tenant.open_runner(self.executor, self._on_entries, self._on_text)
        self._loading = asyncio.Lock()
        self._is_loaded = False
        self._is_indexed = asyncio.Event()
        self.running: dict[str, Session] = {}
        self.waiting: dict[str, str] = {}
        """The runs that wait for their client, by lane: the conversation, or the agent."""
        self.last_runs: dict[str, RunResponse] = {}
        """The latest run of each agent that has ended."""
        self.resets: dict[str, Instant] = {}
        """When messages of lanes were forgotten: those of runs that were under way then do not come back."""

    async def load(self) -> None:
        """Know what the index has from before the tenant was opened."""
        async with self._loading:
            if not self._is_loaded:
                self.waiting = {**await self.index.waiting(), **self.waiting}
                self.last_runs = {**await self.index.last_runs(), **self.last_runs}
                self._is_loaded = True

    # --- starting and stopping

    async def start(
        self, profile: Profile, request: AgentRequest, *, repeated: bool = False, streams_tokens: bool = False
    ) -> Session:
        """Start a session, or join the one that this very call started; back when it is on disk."""
        if not self._is_loaded:
            await self.load()
        run = request.run
        repeats = self._tenant.part(Repeats)
        if repeated:
            run = await repeats.begun_by(request.digest) or run
        if run in self.running:
            return (await _started(self.running[run])).check_same(request)
        self._tenant.runs.check()
        session = self.running[run] = Session(MessageLog(run, profile.id), request, streams_tokens=streams_tokens)
        async with self._starting(session):
            log = await self._read(run) if repeated or request.otids else None
            if log is not None:
                return (await self._join(session, log)).check_same(request)
            await repeats.begin(request.digest, lambda: self._begin(session, profile, request))
        return session

    async def _begin(self, session: Session, profile: Profile, request: AgentRequest) -> str:
        self._queue.check(request.lane)
        if request.lane in self.waiting:  # a question is void once something else is said
            withdrawn = self.waiting.pop(request.lane)
            await self.cancel([withdrawn], "something else was said before it was answered")
        requested = self._tenant.redact(self._run_request(profile, request))
        await self._carry(session, lambda runner: runner.start(session.run, requested))
        return session.run

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
        await self.load()
        runs = [
            run
            for run, session in self.running.items()
            if not session.log.over and (session.lane == lane or session.agent == agent)
        ]
        if lane in self.waiting:
            runs.append(self.waiting[lane])
        return list(dict.fromkeys(runs))

    async def forget(self, agent: str) -> None:
        """An agent was deleted: nothing goes on in its name, and nothing of it is listed any more."""
        await self.cancel(await self.open_runs(agent, agent), "the agent was deleted")
        for run in [run for run, session in self.running.items() if session.agent == agent]:
            del self.running[run]  # what is not in here is not indexed
        self.resets.pop(agent, None)
        self.last_runs.pop(agent, None)
        await self.index.forget_agent(agent)

    # --- what runs have come to

    async def log_of(self, run: str) -> MessageLog | None:
        """What a run has come to, under way or not; None if there is none."""
        session = self.running.get(run)
        return session.log if session is not None else await self._read(run)

    async def flush(self, agent: str = "") -> Index:
        """The index with what is not in it yet, so that a list that is read next is whole.

        After a restart that includes what was started before: a run whose id a client has is never unknown.
        """
        await self._wait_until_indexed()
        logs = [session.log for session in self.running.values() if session.log.began and agent in ("", session.agent)]
        for runner in (self._runner, self._token_runner):
            for run, state in runner.under_way.items():
                parent = state.requested.parent
                if parent is not None and parent.root in self.running:
                    logs += await self.nested_logs(run)
        if logs:
            await self.index.save(logs, self.resets)
        return self.index

    async def nested_logs(self, run: str) -> list[MessageLog]:
        """What agents said in a run inside another; nothing if it is not on disk yet."""
        try:
            return read_nested_logs(run, await self._tenant.journal.read(run))
        except RunUnknown:
            return []

    async def save_nested(self, run: str) -> None:
        """Index what agents said to each other, before the agent that asked them goes on."""
        try:
            logs = await self.nested_logs(run)
            self.last_runs |= {log.agent: log.describe_run() for log in logs}
            await self.index.save(logs)
        except StoreError as error:
            logger.warning("run %s is not indexed: %s", run, error)

    async def _save(self, log: MessageLog) -> None:
        if log.is_waiting:
            self.waiting[log.lane] = log.run
        elif self.waiting.get(log.lane) == log.run:
            del self.waiting[log.lane]
        await self.index.save([log], self.resets)

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
            if not self._tenant.runs.is_running(session.run):
                self.running.pop(session.run, None)
                self._queue.leave(session.lane, session.run)
            session.start(error if isinstance(error, Exception) else _cut())
            raise
        session.start()

    async def _join(self, session: Session, log: MessageLog) -> Session:
        """Continue with what a run has come to; it is resumed if it is not carried."""
        session.replace_log(log)
        if log.over or log.is_waiting:
            self.running.pop(session.run, None)
            session.finish()
        else:
            await self._carry(session, lambda runner: runner.resume(session.run))
        return session

    async def _carry(self, session: Session, carry: _Carry) -> None:
        self._queue.join(session.lane, session.run)
        await self._tenant.runs.begin(session.run, lambda: self._carry_to_end(session, carry))

    async def _carry_to_end(self, session: Session, carry: _Carry) -> Outcome:
        try:
            outcome = await carry(self._runner_of(session))
            session.close()
            self._queue.leave(session.lane, session.run)
            try:
                if self.running.get(session.run) is session:
                    await self._save(session.log)
            except StoreError as error:  # it stays in `running`, so lists have it, and the journal has it anyway
                logger.warning("run %s is not indexed: %s", session.run, error)
            else:
                self.running.pop(session.run, None)
        except BaseException as error:
            self.running.pop(session.run, None)
            self._queue.leave(session.lane, session.run)
            session.finish(error if isinstance(error, Exception) else _cut())
            raise
        session.finish()
        return outcome

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

    def _runner_of(self, session: Session) -> Runner:
        return self._token_runner if session.streams_tokens else self._runner

    # --- what the executor asks for

    async def wait_turn(self, agent: str, run: str) -> AgentRequest | None:
        """Wait until a run is the next of its lane; what its client asked for, None if it is inside another."""
        session = self.running.get(run)
        await self._queue.wait_turn(agent if session is None else session.lane, run)
        return None if session is None else session.request

    async def client_return(self, run: str, tool: str, arguments: str) -> ClientReturn | None:
        """What the client of a run sent for a call that it made itself."""
        session = self.running.get(run)
        returned = None if session is None else session.log.client_returns.get((tool, arguments))
        if returned is None:  # it is on disk before it is heard
            log = await self._read(run)
            returned = None if log is None else log.client_returns.get((tool, arguments))
        return returned

    # --- what the runners report

    def _on_entries(self, run: str, entries: Sequence[ev.Entry]) -> None:
        session = self.running.get(run)
        if session is not None:
            session.record(entries)
            if session.log.over:  # it is on disk: clients need not wait until it is indexed
                self.last_runs[session.agent] = session.log.describe_run()
                self._queue.leave(session.lane, run)
                session.finish()
        self._tenant.on_entries(run, entries)

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
        await self.load()
        ended = await self.index.ended()
        runs: list[str] = []
        nested: dict[str, list[str]] = {}
        before = _LATEST
        while page := await self._tenant.journal.latest(before=before, limit=_PAGE):
            before = page[-1].number
            for row in page:
                if row.request is None or row.run in ended:
                    continue
                root = root_of(row.run, row.request)
                if root != row.run:
                    nested.setdefault(root, []).append(row.run)
                elif recorded_request(row.request) is not None:
                    runs.append(row.run)
        unfinished: list[str] = []
        for run in reversed(runs):  # the oldest first
            if run in self.running:
                continue
            try:
                if await self._index_run(run, nested.get(run, ())):
                    unfinished.append(run)
            except ChargehandError as error:
                logger.warning("run %s was not indexed: %s", run, error)
        return unfinished

    async def _index_run(self, run: str, nested: Sequence[str]) -> bool:
        """Index a run and those inside it; whether it has to be resumed."""
        log = await self._read(run)
        if log is None or log.request is None:
            return False  # of another API
        logs = [log]
        for name in nested:
            logs += await self.nested_logs(name)
        for agent in {log.agent for log in logs}:  # what was forgotten must not come back with a new index
            profile = await self._tenant.memory.catalog.get(Profile, agent)
            reset = None if profile is None else profile.settings.get(RESET_AT)
            if isinstance(reset, float):
                self.resets.setdefault(agent, reset)
        self.last_runs |= {log.agent: log.describe_run() for log in logs if log.over}
        await self.index.save(logs[1:], self.resets)
        await self._save(log)
        return not log.over and not log.is_waiting


async def _started(session: Session) -> Session:
    await asyncio.shield(session.started)
    return session


def _cut() -> Problem:
    return Problem(503, "cut", "the server stopped before it was done; ask again to go on", after=2.0)
