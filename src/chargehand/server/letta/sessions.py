"""Sessions of clients with the agents of a tenant: each is a run, and an agent answers one request at a time.

A call that is repeated joins the run it started. After a restart, runs that were open are resumed, and the index gets
what it lacks.
"""

import asyncio
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain

from msgspec import structs

from chargehand.engine import events as ev
from chargehand.engine.budget import Budget
from chargehand.engine.plan import Plan, Task
from chargehand.engine.policy import Limits, Policy, Retry, Seconds
from chargehand.engine.roster import Roster
from chargehand.engine.state import TextKind, Work
from chargehand.errors import ChargehandError, Refused, RunBusy, RunUnknown, StoreError
from chargehand.journal.protocol import RunRow
from chargehand.memory.catalog import KeptConversation, Profile
from chargehand.runtime.commands import send_command
from chargehand.runtime.runner import Outcome, Runner
from chargehand.server.idempotency import Repeats
from chargehand.server.letta.executor import LettaExecutor, lock_of
from chargehand.server.letta.index import Index, SavedLog
from chargehand.server.letta.message_log import TASK, MessageLog, read_logs
from chargehand.server.letta.queue import AgentQueue, LocalQueue
from chargehand.server.letta.request import AgentRequest, read_answer, recorded_request
from chargehand.server.letta.session import Session
from chargehand.server.letta.settings import settings_of
from chargehand.server.letta.sqlite_index import SqliteIndex
from chargehand.server.letta.wire import LettaMessage, MessageCreate
from chargehand.server.tenant_runs import retry_when_full
from chargehand.server.tenants import Tenant
from chargehand.server.wire import Problem, unknown
from chargehand.store_url import PostgresUrl, StoreUrl, parse_store_url


def open_index(url: StoreUrl, clean: Callable[[bytes], bytes]) -> Index:
    """The index at a URL, opened when it is first used; `clean` takes secrets out of what is written."""
    place = parse_store_url(url)
    if isinstance(place, PostgresUrl):
        from chargehand.server.letta.postgres_index import PostgresIndex  # noqa: PLC0415 - the driver is an extra

        return PostgresIndex(place, clean)
    return SqliteIndex(place, clean)


# The client hears what failed and may ask again; failing networks are retried by the model's guard. A run in an agent's
# queue is stopped with every restart, and must not be given up for that.
_POLICY = Policy(retry=Retry(attempts=1), limits=Limits(width=50, max_nesting=8, resumes=20), refine=False, answer=0.0)
_DEADLINE: Seconds = 30 * 86_400.0  # for people who are asked; the executor bounds the time that an agent works
_CANCEL_TIMEOUT: Seconds = 5.0
_INDEXED_TIMEOUT: Seconds = 30.0
_LATEST = 2**62
_PAGE = 200
_TRIES = 3
_WRITING: Seconds = 5.0
_SOON: Seconds = 0.02
"""How often it is asked whether the process that drives a run is alive, while it writes nothing."""

logger = logging.getLogger(__name__)
_Carry = Callable[[Runner], Awaitable[Outcome]]


class Sessions:
    """The sessions of one tenant: `tenant.part(Sessions)`."""

    def __init__(self, tenant: Tenant) -> None:
        self._tenant = tenant
        self.index = open_index(tenant.stores.index, tenant.redactor.clean)
        tenant.stack.push_async_callback(self.index.close)
        self._is_shared = tenant.journal.commands is not None
        """Other servers may use the same store."""
        self._queue = self._open_queue()
        self.executor = LettaExecutor(tenant, self._queue, self._on_entries)
        self._runner = tenant.open_runner(self.executor, tenant.on_entries)
        self._token_runner = tenant.open_runner(self.executor, tenant.on_entries, self._on_text)
        self._is_indexed = asyncio.Event()
        self._live: dict[str, list[Session]] = {}
        """The runs that are carried here, by journal. A message between agents is one journal, with a run for each."""

    def _open_queue(self) -> AgentQueue:
        tenant = self._tenant
        place = parse_store_url(tenant.stores.journal)
        max_waiting = tenant.settings.limits.waiting
        if not isinstance(place, PostgresUrl):
            return LocalQueue(tenant.runs, max_waiting)
        from chargehand.server.letta.postgres_queue import PostgresQueue  # noqa: PLC0415 - the driver is an extra

        return PostgresQueue(
            place,
            tenant.runs,
            tenant.journal.notices,
            max_waiting=max_waiting,
            take_over=self._take_over,
            look_every=tenant.settings.agent_poll,
        )

    # --- starting and stopping

    async def start(
        self, profile: Profile, request: AgentRequest, *, repeated: bool = False, streams_tokens: bool = False
    ) -> Session:
        """Start a session, or join the one that this very call started; back when it is on disk."""
        run = request.run
        repeats = self._tenant.part(Repeats)
        if repeated:
            run = await repeats.begun_by(request.digest) or run
        async with lock_of(self._tenant, run):  # who sends the same otids meanwhile waits, and joins
            earlier = await self.join(run) if repeated or request.otids else None
            if earlier is not None:
                return _check_same(earlier, request)
            self._tenant.runs.check()
            session = Session(MessageLog(run, request), streams_tokens=streams_tokens, is_shared=self._is_shared)
            try:
                await repeats.begin(request.digest, lambda: self._begin(session, profile, request))
            except Refused as error:
                elsewhere = await self._joined_elsewhere(run, error) if request.otids else None
                if elsewhere is None:
                    raise
                return _check_same(elsewhere, request)
        return session

    async def _joined_elsewhere(self, run: str, error: Refused) -> Session | None:
        """The session of a run that another server has begun just now for the same call; None if none has."""
        if not self._is_shared:
            return None
        until = time.monotonic() + (_WRITING if isinstance(error, RunBusy) else 0.0)
        while True:
            session = await self.join(run)
            if session is not None or time.monotonic() >= until:
                return session
            await asyncio.sleep(_SOON)  # that server has claimed the run and is about to write the request

    async def _begin(self, session: Session, profile: Profile, request: AgentRequest) -> str:
        await self._queue.check(request.lane)
        waiting = await self.waiting_log(request.lane)
        if waiting is not None:  # a question is void once something else is said
            await self.cancel([waiting.run], "something else was said before it was answered")
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
        session = self.find(run)
        log = None if session is not None else await self.log_of(run)
        if log is None:
            return session
        if log.name == run and not log.over and not log.is_waiting:
            return await self.resume(run)
        session = Session(log)
        session.finish()
        return session

    async def resume(self, run: str, *reports: ev.Event) -> Session:
        """Go on with a run that waits for its client, or that a crash left open; back when the reports are on disk.

        A run that another process drives is told the reports, and followed.
        """
        await self._wait_until_indexed()
        async with lock_of(self._tenant, f"resume {run}"):
            session = next(iter(self._live.get(run, ())), None)
            if session is not None:
                await session.begun.wait()  # it may wait for a slot
            if session is not None and not session.done.done() and not session.log.is_waiting:
                for report in reports:
                    await self._runner_of(session).ask(run, self._tenant.redact(report))
                return session
            with suppress(Exception):
                await self._tenant.runs.outcome(run)  # it may be about to stop
            for _ in range(_TRIES):
                if await self._is_elsewhere(run):
                    return await self._resume_elsewhere(run, reports)
                try:
                    return await self._resume_here(run, reports)
                except RunBusy:
                    if not self._is_shared:
                        raise
            raise RunBusy(f"run {run} begins or stops just now; try again")

    async def _resume_here(self, run: str, reports: Sequence[ev.Event] = ()) -> Session:
        log = await self._open_log(run)
        for name in await self._tenant.journal.inside(run):
            nested = read_logs(name, await self._tenant.journal.read(name))
            if not all(each.over for each in nested):
                self._live[name] = [Session(each, root=run) for each in nested]
        session = Session(log, is_shared=self._is_shared)
        events = [self._tenant.redact(report) for report in reports]
        await self._carry(session, lambda runner: runner.resume(run, *events))
        return session

    async def _open_log(self, run: str) -> MessageLog:
        log = await self.log_of(run)
        if log is None or log.name != run:
            raise unknown("run", run)
        if log.over:
            raise Refused(f"run {run} has ended")
        return log

    async def _take_over(self, run: str) -> None:
        """Go on with a run that others wait for and whose server has died."""
        log = await self.log_of(run)
        if log is None or log.over or log.is_waiting:  # that server had only to give up its place
            await self._queue.withdraw("" if log is None else log.lane, run)
        else:
            await self.resume(run)

    # --- runs that another process drives

    async def _is_elsewhere(self, run: str) -> bool:
        if not self._is_shared or self._tenant.runs.is_running(run):
            return False
        try:
            return (await self._tenant.journal.row(run)).held
        except RunUnknown:
            return False

    async def _resume_elsewhere(self, run: str, reports: Sequence[ev.Event]) -> Session:
        await self._open_log(run)
        for report in reports:
            resume = partial(self._resume_here, run)
            await send_command(self._tenant.journal, run, self._tenant.redact(report), resume)
        return self.find(run) or self._follow(await self._read_again(run))

    async def _read_again(self, run: str) -> MessageLog:
        log = await self.log_of(run)
        if log is None:
            raise unknown("run", run)
        return log

    def _follow(self, log: MessageLog) -> Session:
        """A session of a run that another process drives: its entries are read from the journal as they come."""
        session = Session(log, is_shared=True)
        session.begun.set()
        self._tenant.start_background(self._pass_on(session))
        return session

    async def _pass_on(self, session: Session) -> None:
        log = session.log
        entries = self._tenant.feed.subscribe(log.name, log.seq)
        try:
            while not (log.over or log.is_waiting):
                try:
                    async with asyncio.timeout(self._tenant.settings.agent_poll):
                        entry = await anext(entries)
                    session.record([entry])
                except TimeoutError:
                    entries.look_again()  # a notice may be lost
                    if not self._tenant.runs.is_running(log.name) and not await self._is_elsewhere(log.name):
                        with suppress(Refused):  # it has ended meanwhile
                            await self.resume(log.name)  # its server died: the client who waits for it goes on here
            await self._try_to_save([log])
        except BaseException as error:
            session.finish(_as_problem(error))
            raise
        session.finish()

    async def cancel(self, runs: Iterable[str], reason: str = "", by: str = "") -> None:
        """Stop these, with all that was started inside them; back when they have stopped. `by` is who wants it."""
        stopped: list[Session] = []
        for run in runs:
            try:
                stopped.append(await self.resume(run, ev.CancelRequested(reason, by=by)))
            except Refused as error:  # it ended meanwhile, which is what was wanted
                logger.info("run %s was not cancelled: %s", run, error)
        if stopped:
            await asyncio.wait([session.done for session in stopped], timeout=_CANCEL_TIMEOUT)

    async def open_runs(self, lane: str, agent: str = "") -> list[str]:
        """The runs of a lane that have not ended, also one that waits; with `agent`, those of all its lanes."""
        logs = [session.log for session in self._sessions() if session.root == session.run and not session.log.over]
        runs = [log.run for log in logs if log.lane == lane or log.agent == agent]
        if self._is_shared:
            for row in await self._open_rows():
                request = None if row.request is None else recorded_request(row.request)
                if request is not None and (request.lane == lane or request.agent == agent):
                    runs.append(row.run)
        waiting = await self.waiting_run(lane)
        return list(dict.fromkeys([*runs, waiting] if waiting else runs))

    async def _open_rows(self) -> list[RunRow]:
        """The runs of this API that have not ended, of all servers."""
        rows = await self._tenant.journal.open_runs()
        return [row for row in rows if row.request is not None and recorded_request(row.request) is not None]

    # --- what runs have come to

    def _sessions(self) -> list[Session]:
        return list(chain.from_iterable(self._live.values()))

    def find(self, run: str) -> Session | None:
        """The session of a run that goes on here, also of one inside another."""
        return next((session for session in self._sessions() if session.run == run), None)

    async def log_of(self, run: str) -> MessageLog | None:
        """What a run has come to, under way or not; None if there is none."""
        session = self.find(run)
        if session is not None and not self._is_shared:
            return session.log
        name = await self._name_of(run) if session is None else session.log.name
        try:
            logs = await self._read(name)  # with other servers even of a run that goes on here: they may know more
        except RunUnknown:
            return None
        return next((log for log in logs if log.run == run), None)

    async def _name_of(self, run: str) -> str:
        """The name of the journal that a run is in."""
        indexed = await self.index.run(run)
        return run if indexed is None else indexed.name

    async def _read(self, name: str) -> list[MessageLog]:
        """What agents said in a journal; nothing if it is the run of a team."""
        logs = read_logs(name, await self._tenant.journal.read(name))
        return [log for log in logs if log.agent]

    async def waiting_run(self, lane: str) -> str:
        """The run of a conversation or an agent that waits for its client; empty if none does."""
        await self._wait_until_indexed()
        for session in self._sessions():
            is_in_lane = session.root == session.run and session.log.lane == lane
            if is_in_lane and session.log.is_waiting:
                return session.run
        run = await self.index.waiting_run(lane)
        return "" if self.find(run) is not None else run  # it goes on already

    async def waiting_log(self, lane: str) -> MessageLog | None:
        run = await self.waiting_run(lane)
        log = await self.log_of(run) if run else None
        return log if log is not None and log.is_waiting else None

    async def answered_by(self, lane: str, sent: Sequence[MessageCreate]) -> str:
        """The latest run of a lane, if these very verdicts were its client's last answer; empty if not.

        Another server may have taken them: the client sends them again when that one did not reply.
        """
        latest = await self.index.latest_run(lane)
        if latest is None:
            return ""
        entries = await self._tenant.journal.read(latest)
        answers = [(place, entry.event) for place, entry in enumerate(entries) if type(entry.event) is ev.InputAnswered]
        if not answers:
            return ""
        place, answered = answers[-1]
        approval = read_logs(latest, entries[:place])[0].approval
        if approval is None:
            return ""
        with suppress(Problem):  # they answer something else
            if self._tenant.redact(read_answer(approval, sent)) == structs.replace(answered, command=""):
                return latest
        return ""

    async def pending_approvals(self, agents: Sequence[str]) -> dict[str, LettaMessage | None]:
        """What these agents ask their clients about calls that wait, by agent."""
        waiting = await self.index.waiting_agents()
        logs = [await self.waiting_log(agent) for agent in waiting if agent in agents]
        return {log.agent: log.approval_request for log in logs if log is not None}

    async def flush(self, agent: str = "") -> Index:
        """The index with what is not in it yet, so that a list that is read next is whole.

        After a restart that includes what was started before: a run whose id a client has is never unknown.
        """
        await self._wait_until_indexed()
        logs = [session.log for session in self._sessions() if session.log.began]
        if self._is_shared:
            logs += await self._logs_elsewhere()
        await self._save([log for log in logs if agent in ("", log.agent)])
        return self.index

    async def _logs_elsewhere(self) -> list[MessageLog]:
        """What the runs that other servers drive have come to."""
        logs: list[MessageLog] = []
        for row in await self._open_rows():
            if not row.held or row.run in self._live:
                continue
            with suppress(ChargehandError):  # it was deleted, or is damaged: the list has what can be read
                for name in (row.run, *await self._tenant.journal.inside(row.run)):
                    logs += await self._read(name)
        return logs

    async def _save(self, logs: Sequence[MessageLog]) -> None:
        """Index these, but not what was deleted or forgotten since they began."""
        saved: list[SavedLog] = []
        for log in logs:
            profile = await self._tenant.memory.catalog.get(Profile, log.agent)
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

    # --- how a run is carried

    async def _wait_until_indexed(self) -> None:
        """Until the index has what a crash left open, it cannot be known whether a call started a run before."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_INDEXED_TIMEOUT):
                await self._is_indexed.wait()

    async def _carry(self, session: Session, carry: _Carry) -> None:
        """Carry a run to its end, or until it waits for its client; back when its first new entry is on disk."""
        run = session.run
        lane = session.log.lane

        async def carry_to_end() -> Outcome:
            try:
                await self._queue.join(lane, run)
                outcome = await carry(self._runner_of(session))
                await self._try_to_withdraw(lane, run)
                await self._try_to_save([each.log for each in self._sessions() if each.root == run])
            except BaseException as error:
                self._close(session, error)
                if not session.log.began:
                    await self._try_to_withdraw(lane, run)
                raise
            self._close(session)
            return outcome

        self._live[run] = [session]
        try:
            await self._tenant.runs.begin(run, carry_to_end)
        except BaseException as error:
            if not self._tenant.runs.is_running(run):  # one that is carried goes on without its caller
                self._close(session, error)
            raise
        finally:
            session.begun.set()

    async def _try_to_withdraw(self, lane: str, run: str) -> None:
        try:
            await self._queue.withdraw(lane, run)
        except StoreError as error:  # a run that has ended holds nothing up; one that waits is looked at by the next
            logger.warning("run %s keeps its place in the queue: %s", run, error)

    async def _try_to_save(self, logs: Sequence[MessageLog]) -> None:
        try:
            await self._save(logs)
        except StoreError as error:  # the journal has it; the index gets it after the next start
            logger.warning("run %s is not indexed: %s", logs[0].run, error)

    def _close(self, session: Session, error: BaseException | None = None) -> None:
        """Nothing more comes of a run here, or not before its client answers."""
        problem = _as_problem(error)
        self._queue.leave(session.log.lane, session.run)
        for each in self._sessions():
            if each.root == session.run:
                self._live.pop(each.log.name, None)
                each.finish(problem)
        session.finish(problem)

    def _runner_of(self, session: Session) -> Runner:
        return self._token_runner if session.streams_tokens else self._runner

    # --- what the runners report

    def _on_entries(self, name: str, entries: Sequence[ev.Entry]) -> None:
        """Hear what is written in a run, or in one inside it."""
        first = entries[0].event if entries else None
        if isinstance(first, ev.RunRequested) and first.parent is not None:
            logs = read_logs(name, entries)
            self._live[name] = [Session(log, root=first.parent.root) for log in logs]
            return
        for session in self._live.get(name, ()):
            session.record(entries)
            if session.log.over:
                self._queue.leave(session.log.lane, name)

    def _on_text(self, run: str, work: Work, text: str, kind: TextKind) -> None:
        self._tenant.on_words(run, work, text, kind)
        state = self._token_runner.under_way.get(run)
        if state is None or work.kind != "attempt" or kind != "answer":
            return
        steps = state.tasks[work.task].steps or {}
        step = max((number for number, step in steps.items() if step.result is None), default=0)
        for session in self._live.get(run, ()):
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
        await self._resume_each(runs)
        return len(runs)

    async def resume_left(self) -> int:
        """Resume the open runs that no process drives, the oldest first; how many there were.

        For servers of one store that do so from time to time: what another one left when it died goes on here.
        """
        abandoned: list[str] = []
        for row in sorted(await self._open_rows(), key=lambda row: row.number):
            if row.held or row.run in self._live:
                continue
            log = await self.log_of(row.run)
            if log is not None and log.name == row.run and not log.over and not log.is_waiting:
                abandoned.append(row.run)
        await self._resume_each(abandoned)
        return len(abandoned)

    async def _resume_each(self, runs: Sequence[str]) -> None:
        for run in runs:
            if self._tenant.runs.closing:
                return  # they are resumed at the next start
            try:
                await retry_when_full(partial(self.resume, run))
            except (ChargehandError, Problem) as error:  # the others must be resumed all the same
                logger.warning("run %s was not resumed: %s", run, error)

    async def _index_unfinished(self) -> list[str]:
        """Index what is missing; the runs that have to be resumed, the oldest first."""
        ended = await self.index.ended()
        unfinished: list[str] = []
        before = _LATEST
        while page := await self._tenant.journal.latest(before=before, limit=_PAGE):
            before = page[-1].number
            for row in page:
                if row.run in ended or row.request is None or recorded_request(row.request) is None:
                    continue
                if await self._index_run(row.run) and not row.held:
                    unfinished.append(row.run)
        return unfinished[::-1]

    async def _index_run(self, run: str) -> bool:
        """Index a run and those inside it; whether it has to be resumed."""
        try:
            logs = await self._read(run)
            for name in await self._tenant.journal.inside(run):
                logs += await self._read(name)
        except ChargehandError as error:
            logger.warning("run %s was not indexed: %s", run, error)
            return False
        await self._save(logs)
        return self.find(run) is None and not logs[0].over and not logs[0].is_waiting


def _check_same(session: Session, request: AgentRequest) -> Session:
    """Return the session for a request with the same otids; 409 if it has other words, which must not get lost."""
    recorded = session.log.request
    if recorded is not None and recorded.messages != request.messages:
        advice = "send it with an otid of its own"
        raise Problem(409, "otid_taken", f"a message with this otid was sent before, with other words; {advice}")
    return session


def _as_problem(error: BaseException | None) -> Exception | None:
    if error is None or isinstance(error, Exception):
        return error
    return Problem(503, "cut", "the server stopped before it was done; ask again to go on", after=2.0)
