"""The front door: workers, a supervisor, and what they run on. `run`, `plan`, `stream`, `resume`, `run_sync`."""

import copy
import inspect
import logging
import os
import secrets
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager, nullcontext
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self, TypeAlias

from msgspec import structs

from chargehand.agents import background
from chargehand.agents.background import rest_team
from chargehand.agents.checks import Check, declare_checks
from chargehand.agents.draft import Draft, draft
from chargehand.agents.memory_session import SharedMemory
from chargehand.agents.messages import (
    PERSON,
    Replies,
    addressed,
    matching,
    message_key,
    message_request,
    no_reader,
    replies_of,
    tags,
)
from chargehand.agents.nested import RunnableTeam, TeamExecutor, refuse_circles
from chargehand.agents.prompts import Prompts
from chargehand.agents.result import Result, read_result
from chargehand.agents.roles import Supervisor, Worker
from chargehand.agents.routing.feedback import Judgement, record_feedback
from chargehand.agents.setup import check_memory, only_reads, with_built_in_tools, with_memory_tools
from chargehand.agents.shape import JsonShape
from chargehand.agents.spending import CallCap, PriceUnknown, call_cap, cost_unknown, supervision
from chargehand.agents.team_spec import TeamSpec, lent
from chargehand.agents.tool_calls import ToolBreakers
from chargehand.engine import budget as budgets
from chargehand.engine import events as ev
from chargehand.engine import policy as policies
from chargehand.engine import roster as rosters
from chargehand.engine.budget import NOTHING, Amount, Budget
from chargehand.engine.declared import Write, WrittenDuration, check_declared, seconds_of
from chargehand.engine.fold import replay
from chargehand.engine.plan import Plan
from chargehand.engine.policy import Policy, Seconds
from chargehand.engine.roster import Match
from chargehand.errors import Invalid
from chargehand.extras import OfExtra
from chargehand.journal.files import MemoryFiles
from chargehand.journal.memory import MemoryJournal
from chargehand.journal.protocol import Journal, RouteExample, Source
from chargehand.journal.store import opened_journal
from chargehand.memory.catalog import Memory
from chargehand.memory.conversations import scope_of
from chargehand.memory.session import OpenMemory
from chargehand.models.providers import BUILT_IN
from chargehand.models.rates import Price
from chargehand.models.resolve import Finder, Lookup
from chargehand.models.wrappers import Hedging
from chargehand.runtime.answers import Answer, ShownQuestions, read_answer
from chargehand.runtime.approving import (
    Callbacks,
    OnApproval,
    OnQuestion,
    check_on_approval,
    check_on_question,
)
from chargehand.runtime.cache import earlier_results
from chargehand.runtime.executor import Listener
from chargehand.runtime.files import NewFile, keep_files, load_paths, with_material
from chargehand.runtime.listeners import GuardedListener
from chargehand.runtime.nested import start_or_resume
from chargehand.runtime.run_loop import TextListener
from chargehand.runtime.runner import OpenStreams, Outcome, Runner, checked_goal, follow, stop_in_order, without_a_loop
from chargehand.runtime.shared import SharedExecutor, SharedJournal
from chargehand.runtime.trace import Tracer
from chargehand.store_url import PostgresUrl, StoreUrl

if TYPE_CHECKING:
    from chargehand.agents.schedules import Schedule
    from chargehand.agents.webhooks import Webhook

logger = logging.getLogger(__name__)

_MAX_ENDED_RUNS = 1000
"""How many ended runs a team without a journal keeps, to look at them and to offer their results again."""
_NO_CAPS = Budget()
_USUAL = Policy()
_SUPERVISOR = Supervisor()
_WORKERS = "a list of workers: [Worker(name, description)]; a team is made one by team.as_worker()"
_LABELS = 'texts by name: {"user": "ann"}'
_FILES = 'paths of files: ["report.csv", Path("photo.png")]'
_CHECKS = 'checks by name: {"short": Rule(max_words=50)}'
Goal: TypeAlias = Annotated[str, Write("what is to be done, in words")]
FilePaths: TypeAlias = Annotated[Sequence[Path | str], Write(_FILES)]
RunName: TypeAlias = Annotated[str, Write("the name of a run: result.run")]
QuestionNumber: TypeAlias = Annotated[int, Write("the number of a question: result.question.number")]


class Team:
    """Workers, their supervisor, and what their runs are bounded by and kept in."""

    examples: tuple[str, ...] = ()
    """Requests that suit the team; those of its team file."""
    schedules: "tuple[Schedule, ...]" = ()
    """Requests that a server makes at certain times; those of its team file."""
    webhooks: "tuple[Webhook, ...]" = ()
    """Addresses that a server tells of its runs; those of its team file."""
    call_cap: CallCap | None = None
    unpriced: tuple[str, ...] = ()
    """Models whose cost its runs say is not known, beside what `call_cap` says; the command line looks them up."""
    _price: Price | None = None
    _memory: MemoryJournal | None = None

    @check_declared("Team", elsewhere=("supervisor=Supervisor", Supervisor.__struct_fields__))
    def __init__(
        self,
        workers: Annotated[Sequence[Worker], Write(_WORKERS)],
        *,
        supervisor: Supervisor = _SUPERVISOR,
        name: str = "team",
        budget: Budget = _NO_CAPS,
        policy: Policy = _USUAL,
        timeout: WrittenDuration = 300.0,
        memory: Memory | None = None,
        journal: Annotated[Journal | StoreUrl, Write('a journal, or its URL or file: "runs.db"')] | None = None,
        checks: Annotated[Mapping[str, Check], Write(_CHECKS)] | None = None,
        cache: WrittenDuration | None = None,
        lookup: Lookup | None = None,
        on_approval: OnApproval | None = None,
    ) -> None:
        """Declare a team; Invalid for what cannot work, TypeError for a keyword that does not exist.

        Args:
            workers: Who does the tasks.
            supervisor: The role that plans and answers; its `model` serves every worker without one of its own.
            name: What the team is called in journals and in other teams.
            budget: The most one run may use.
            policy: Retries, limits, breakers and approvals.
            timeout: The time of one run, from the request to the answer, in seconds or as text such as `"5m"`.
            memory: What the team shares and keeps between runs.
            journal: Where runs are kept: a file, a journal, or (left out) memory.
            checks: What results must pass, by name; workers and tasks name them in `accept`.
            cache: For how long another run of the journal may use a result again, if nothing changed; left out, never.
            lookup: Finds API keys by name; left out, the environment.
            on_approval: Asked before a plan or a call that needs approval, in place of ending with `needs_input`.

        """
        self.name = name
        self.policy = _with_timeout(policy, supervisor.timeout)
        budgets.check(budget)
        self.budget = budget
        self.timeout = seconds_of("timeout", timeout)
        front, behind = _outfitted(workers, memory)
        if supervisor.factory is not None:
            supervisor = structs.replace(supervisor, factory=with_built_in_tools(supervisor.factory))
        hedge = supervisor.hedge
        self.spec = TeamSpec(
            workers=front,
            supervisor=supervisor,
            prompts=Prompts(supervisor.prompts),
            background=behind,
            checks=declare_checks(checks or {}, front),
            tool_breakers=ToolBreakers(policy.breaking),
            hedging=None if hedge is None else Hedging(after=hedge.after, share=hedge.share),
        )
        self._enrol(supervisor.plan)
        self._keep_in(journal, memory, lookup)
        self.cache = None if cache is None else seconds_of("cache", cache)
        if on_approval is not None:
            check_on_approval(on_approval)
        self._on_approval = on_approval
        self.output = None if supervisor.output is None else JsonShape(supervisor.output)

    @property
    def supervisor(self) -> Supervisor:
        return self.spec.supervisor

    _KEYWORDS = ("Team", tuple(inspect.signature(__init__).parameters))

    def _enrol(self, plan: Plan | None) -> None:
        """Make the roster; Invalid for workers, a plan or a policy that cannot work."""
        self.spec.checks.vet(() if plan is None else plan.tasks)
        refuse_circles(self.name, self, self.teams)
        self.roster = self.spec.roster(self.budget)
        self.members = tuple(map(self.spec.agent, self.spec.workers))
        self.background_agents = self.spec.background_agents
        policies.check(self.policy)
        rosters.check(self.roster)

    def _keep_in(self, journal: Journal | StoreUrl | None, memory: Memory | None, lookup: Lookup | None) -> None:
        """Where runs and memory are kept, and where keys are looked up."""
        self._journal = SharedJournal(journal) if isinstance(journal, str | Path | PostgresUrl) else journal
        self._lookup = lookup or os.environ.get
        self._asks = lookup is not None
        self._streams = OpenStreams()
        self._shown = ShownQuestions()
        self._listeners: list[Listener] = []
        self._held_open: list[AsyncExitStack] = []
        self._executor = SharedExecutor(self._open_executor)
        self._shared = None if memory is None else SharedMemory(memory, self.name, self.spec.everybody, self._lookup)
        self._notice: str | None = None

    def request(self, goal: str, now: float, *, plan: Plan | None = None, seed: int | None = None) -> ev.RunRequested:
        """The request a runner starts with; Invalid for a goal that is empty, too long or no text."""
        wanted = checked_goal(goal)
        chance = secrets.randbits(32) if seed is None else seed
        fixed_plan = plan or self.supervisor.plan
        if fixed_plan is not None and self.spec.combine is not None:
            fixed_plan = structs.replace(fixed_plan, combine=self.spec.combine)
        self.spec.checks.vet(() if fixed_plan is None else fixed_plan.tasks)
        deadline = now + self.timeout
        return ev.RunRequested(
            goal=wanted,
            roster=self.roster,
            policy=self.policy,
            budget=self.budget,
            deadline=deadline,
            seed=chance,
            plan=fixed_plan,
            team=self.name,
            combine=self.spec.combine,
            answer_format=None if self.output is None else ev.AnswerFormat(self.output.raw),
            queue=self.queue,
        )

    def bounded(
        self, *, budget: Budget | None = None, timeout: Seconds | None = None, policy: Policy | None = None
    ) -> Self:
        """The same team within other bounds."""
        team = copy.copy(self)
        team.budget = self.budget if budget is None else budget
        team.timeout = self.timeout if timeout is None else timeout
        team.policy = self.policy if policy is None else policy
        budgets.check(team.budget)
        policies.check(team.policy)
        cost = supervision(team.budget, self.spec.models[1:], self.supervisor.settings)
        team.roster = structs.replace(self.roster, supervision=cost)
        return team

    async def keep_budget(self, finder: Finder | None = None) -> Self:
        """The same team with a budget that can be kept: calls are capped instead of dollars where a price is unknown.

        Every new run is begun by such a team; its `call_cap` says what was replaced, and by what.
        """
        if self.budget.usd is None:
            return self
        async with self._finder(finder) as own_finder:
            cap = call_cap(self.budget, await self.spec.unpriced_models(own_finder, self.budget.floor))
        if cap is None:
            return self
        team = self.bounded(budget=structs.replace(self.budget, usd=None, calls=cap.calls))
        team.call_cap = cap
        return team

    async def unpriced_models(self, finder: Finder | None = None) -> tuple[str, ...]:
        """The handles of the models that a cap in dollars could not be kept with: their price is unknown."""
        async with self._finder(finder) as own_finder:
            return await self.spec.unpriced_models(own_finder, self.budget.floor)

    def budget_notes(self) -> tuple[ev.Noted, ...]:
        """What is written with the request of a new run where a price is unknown; capped calls are logged as well."""
        if self.call_cap is None:
            return tuple(map(cost_unknown, self.unpriced))
        logger.warning("team %s: %s", self.name, self.call_cap.warning)
        return (ev.Noted(self.call_cap.warning),)

    def check_recorded(self, budget: Budget) -> None:
        """Raise PriceUnknown for a run that began with a cap in dollars, which this team could not keep any more."""
        if self.call_cap is not None and budget.usd is not None:
            raise PriceUnknown(self.call_cap.models)

    def priced(self, price: Price) -> Self:
        """The same team, whose models cost this where no table has their price."""
        team = copy.copy(self)
        team._price = price  # noqa: SLF001 - of its own kind
        return team

    def remembering_in(self, *, usual: StoreUrl | None = None, always: StoreUrl | None = None) -> Self:
        """The same team with its memory at a URL: `always`, or where its declaration names no store (`usual`)."""
        if self._shared is None:
            return self
        declared = self._shared.declared
        store = always or declared.store or usual
        team = copy.copy(self)
        at_store = structs.replace(declared, store=store)
        team._shared = SharedMemory(at_store, self.name, self.spec.everybody, self._lookup)  # noqa: SLF001 - of its own kind
        return team

    def __copy__(self) -> Self:
        """The same team, which opens an executor of its own."""
        team = object.__new__(type(self))
        vars(team).update(vars(self))
        team._executor = SharedExecutor(team._open_executor)
        return team

    async def offered(self, journal: Journal, request: ev.RunRequested) -> Sequence[ev.Event]:
        """What is written along with the request of a new run: what earlier runs have for it, and a `call_cap`."""
        notes = self.budget_notes()
        if self.cache is None:
            return notes
        lookers = frozenset(worker.name for worker in self.spec.workers if only_reads(worker))
        earlier = await earlier_results(journal, request, self.cache, time.time(), lookers)
        return (*notes, *earlier)

    @check_declared("as_worker")
    def as_worker(
        self,
        name: str = "",
        description: str = "",
        tags: Sequence[str] = (),
        estimate: Amount = NOTHING,
        timeout: WrittenDuration | None = None,
    ) -> Worker:
        """A worker for another team, whose tasks this team does.

        Each of its tasks is a run of its own in the other's journal, within the other's time and money. `estimate` is
        what a task may use where the other team is capped; left out, it gets a fair share of what is left.
        """
        return lent(team=self, name=name, description=description, tags=tags, estimate=estimate, timeout=timeout)

    @property
    def staff(self) -> rosters.TeamMembers:
        """Who does the work, background workers included."""
        return rosters.TeamMembers(self.name, (*self.roster.agents, *(agent for agent, _ in self.background_agents)))

    @property
    def queue(self) -> str:
        """The queue whose processes drive its runs; empty: the one named as the team."""
        return self.supervisor.queue

    @property
    def queues(self) -> frozenset[str]:
        """The queues of which an engine hands out its runs, those of its workers, and those of teams inside it."""
        inside = [queue for team in self.teams for queue in team.queues]
        workers = [worker.queue for worker in self.spec.workers]
        return frozenset((self.queue or self.name, *workers, *inside)) - {""}

    @property
    def teams(self) -> tuple[RunnableTeam, ...]:
        """The teams among its workers."""
        return self.spec.teams

    # --- who does the work

    def executor(self, finder: Finder | None = None) -> AbstractAsyncContextManager[TeamExecutor]:
        """The executor of its runs; models are connected inside the context.

        With a `finder`, models are found and their limits kept together with all that use it. Without, all runs that
        are inside at the same time share one executor.
        """
        return self._executor.opened() if finder is None else self._open_executor(finder)

    async def __aenter__(self) -> Self:
        """Keep the journal, the models and their connections open between runs, until the context is left."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.open_journal())
            await stack.enter_async_context(self.executor())
            self._held_open.append(stack.pop_all())
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self._held_open.pop().aclose()

    @asynccontextmanager
    async def _open_executor(self, finder: Finder | None = None) -> AsyncGenerator[TeamExecutor]:
        async with AsyncExitStack() as stack:
            finder = await stack.enter_async_context(self._finder(finder))
            if self.budget.usd is not None:
                unpriced = await self.spec.unpriced_models(finder, self.budget.floor)
                if unpriced:
                    raise PriceUnknown(unpriced)
            memory = None if self._shared is None else await stack.enter_async_context(self._shared.opened())
            teams = await stack.enter_async_context(self.spec.at_work(self.budget, finder))
            embedding = self.spec.route_embedding(self._lookup)
            if embedding is not None:
                stack.push_async_callback(embedding.close)
            spec = await stack.enter_async_context(self.spec.connected())
            executor = await spec.executor(
                finder=finder,
                roster=self.roster,
                budget=self.budget,
                policy=self.policy,
                memory=memory,
                teams=teams,
                embedding=embedding,
                members=self.staff,
                listeners=self._listeners,
            )
            await finder.prepare()  # prices must be known before the first call is paid for
            yield executor

    @asynccontextmanager
    async def _finder(self, finder: Finder | None) -> AsyncGenerator[Finder]:
        """Where the models of this team are found: at a finder that is shared with others, if there is one."""
        if finder is not None and not self._asks and self._price is None:
            yield finder
            return
        if finder is None:
            own = Finder(self._lookup, price=self._price, store=self.journal_url)
        else:
            own = finder.asking(self._lookup, self._price)
        try:
            yield own
        finally:
            await own.close()

    @asynccontextmanager
    async def remembering(self) -> AsyncGenerator[OpenMemory]:
        """The team's memory, for programs that look into it or add to it."""
        if self._shared is None:
            raise Invalid(f"{self.name} has no memory; give it one: memory=Memory(...)")
        async with self._shared.opened() as memory:
            yield memory

    @property
    def remembers(self) -> bool:
        """Whether it has a memory, which `remembering` opens."""
        return self._shared is not None

    @property
    def notice(self) -> str:
        """What people must know about the models behind this team."""
        if self._notice is None:
            plans = self.supervisor.plan is None or self.policy.limits.replans > 0
            self._notice = self.spec.notice(Finder(self._lookup), plans=plans)
        return self._notice

    # --- runs

    @property
    def reads_facts(self) -> bool:
        """Whether the model of every worker is the demo model, which reads only the request."""
        return all(worker.model == BUILT_IN for worker in self.members)

    def check_takes_files(self) -> None:
        """Raise Invalid where no worker would read the files of a run."""
        if self.reads_facts:
            raise Invalid("the demo model takes no files; give the team a language model, or leave the files out")

    async def load_files(self, paths: Sequence[Path | str]) -> tuple[NewFile, ...]:
        """Files of this machine for a run of this team; Invalid, with the path, for one that it cannot be given."""
        if not paths:
            return ()
        self.check_takes_files()
        return await load_paths(paths)

    @check_declared("plan", elsewhere=_KEYWORDS)
    async def plan(self, goal: Goal, *, files: FilePaths = ()) -> Draft:
        """The plan for a goal, checked and reckoned, and nothing done about it. The `files` are not kept."""
        material = await keep_files(MemoryFiles(), await self.load_files(files))
        team = await self.keep_budget()
        async with team.executor() as executor:
            drafted = await draft(executor, with_material(team.request(goal, time.time()), material))
        if self.call_cap is not None:  # the caller knows it already
            return drafted
        notes = tuple(note.text for note in team.budget_notes())
        return structs.replace(drafted, notes=(*notes, *drafted.notes))

    @check_declared("run", elsewhere=_KEYWORDS)
    async def run(
        self,
        goal: Goal,
        *,
        run: str = "",
        files: FilePaths = (),
        labels: Annotated[Mapping[str, str], Write(_LABELS)] | None = None,
        listener: Listener | None = None,
        on_text: TextListener | None = None,
        on_question: OnQuestion | None = None,
    ) -> Result:
        """Pursue a goal to its end. `on_question` answers what workers ask a person (the tool `ask_person`).

        Tasks that wait for no other are given the `files`: texts as data, pictures and PDFs where models take them.
        `labels` are what you file the run under; `session` and `user` also keep what workers remember apart, and
        `traceparent` makes it a part of a trace of yours.
        """
        new_files = await self.load_files(files)
        team = await self.keep_budget()
        request = team.request(goal, time.time())
        request = structs.replace(request, labels=dict(labels or {}), scope=scope_of(labels or {}))
        name = run or f"{self.name}-{secrets.token_hex(4)}"
        callbacks = self._callbacks(on_question)
        hear = None if listener is None else GuardedListener(listener)
        async with self.open_journal() as journal, team.executor() as executor:
            runner = Runner(journal, executor, listener=hear, on_text=on_text, callbacks=callbacks)
            request = with_material(request, await keep_files(journal.files, new_files))
            also = await team.offered(journal, request)
            outcome = await stop_in_order(runner, runner.start(name, request, also=also, keep_entries=True))
            return await self._result(team, outcome, journal)

    def add_listener(self, listener: Listener) -> None:
        """Call this with the run's name and each batch of entries once they are written, in every run from now on.

        That includes runs inside its runs (of teams that work for it, of messages between its workers), and its own
        runs inside those of another team. It is called on the event loop and must not block. One that raises is
        dropped, with a warning in the log, and hurts no run. Several may be added.
        """
        self._listeners.append(GuardedListener(listener))

    @check_declared("run_sync", elsewhere=_KEYWORDS)
    def run_sync(
        self,
        goal: Goal,
        *,
        run: str = "",
        files: FilePaths = (),
        labels: Annotated[Mapping[str, str], Write(_LABELS)] | None = None,
        on_question: OnQuestion | None = None,
    ) -> Result:
        """The same for code without an event loop."""
        return without_a_loop(
            "run", lambda: self.run(goal, run=run, files=files, labels=labels, on_question=on_question)
        )

    @check_declared("resume_sync", elsewhere=_KEYWORDS)
    def resume_sync(
        self, run: RunName, *answers: Answer, reason: str = "", question: QuestionNumber | None = None
    ) -> Result:
        """`resume` for code without an event loop."""
        return without_a_loop("resume", lambda: self.resume(run, *answers, reason=reason, question=question))

    @check_declared("resume", elsewhere=_KEYWORDS)
    async def resume(
        self,
        run: RunName,
        *answers: Answer,
        reason: str = "",
        question: QuestionNumber | None = None,
        listener: Listener | None = None,
        on_question: OnQuestion | None = None,
    ) -> Result:
        """Resume a run that a crash, a pause, a question or leaving its stream left unfinished.

        `"approve"` or `"reject"`, or True or False, answers the open question, with a `reason`; `"done: RESULT"`,
        `"again"` or `"fail"` says what became of an effect; where several calls wait, a mapping answers each by its
        number. A question in words is answered by text. Other answers are events, such as `InputAnswered`.

        `question` is the number of the question that is answered (`result.question.number`). Without it, the answer is
        for the question that this object returned last for the run. It is refused if the run asks another one.
        """
        in_words = any(isinstance(answer, bool | str | Mapping) for answer in answers)
        if reason and not in_words:
            raise Invalid(f'the reason {reason!r} belongs to no answer; write resume({run!r}, "reject", reason=...)')
        if question is not None and not in_words:
            raise Invalid(f'question {question} has no answer; write resume({run!r}, "approve", question={question})')
        await self._streams.close_left(run)
        team = await self.keep_budget()
        callbacks = self._callbacks(on_question)
        hear = None if listener is None else GuardedListener(listener)
        async with self.open_journal() as journal, team.executor() as executor:
            state = replay(await journal.read(run)) if in_words or team.call_cap is not None else None
            if state is not None:
                team.check_recorded(state.requested.budget)
            shown = self._shown.last(run)
            events = tuple(
                read_answer(run, state, answer, reason, question=question, shown=shown) for answer in answers
            )
            runner = Runner(journal, executor, listener=hear, callbacks=callbacks)
            outcome = await stop_in_order(runner, runner.resume(run, *events, unpause=True))
            return await self._result(team, outcome, journal)

    @check_declared("stream", elsewhere=_KEYWORDS)
    def stream(self, goal: Goal, *, run: str = "", files: FilePaths = ()) -> AsyncGenerator[ev.Entry]:
        """Pursue a goal and yield what is written, as it is written, until the run has ended or waits for a person.

        Leaving the loop stops the run; it can be resumed.
        """
        name = run or f"{self.name}-{secrets.token_hex(4)}"
        entries = self._stream(goal, name, files)
        self._streams.remember(name, entries)
        return entries

    async def _stream(self, goal: str, run: str, files: Sequence[Path | str]) -> AsyncGenerator[ev.Entry]:
        new_files = await self.load_files(files)
        team = await self.keep_budget()
        request = team.request(goal, time.time())
        with self._streams.reading(run):
            async with self.open_journal() as journal, team.executor() as executor:
                request = with_material(request, await keep_files(journal.files, new_files))
                following = follow(
                    journal=journal,
                    executor=executor,
                    run=run,
                    request=request,
                    also=await team.offered(journal, request),
                    callbacks=self._callbacks(),
                )
                async with aclosing(following) as entries:
                    async for entry in entries:
                        if isinstance(entry.event, ev.InputRequested):
                            self._shown.note(run, entry.event)
                        yield entry

    @asynccontextmanager
    async def driven(self, team: Self | None = None) -> AsyncGenerator[Runner]:
        """A runner for runs that only the team's listeners hear. `team` is this one with a budget that can be kept."""
        team = team or await self.keep_budget()
        async with self.open_journal() as journal, team.executor() as executor:
            yield Runner(journal, executor, callbacks=self._callbacks())

    @property
    def on_approval(self) -> OnApproval | None:
        """Return the function that is asked before a plan or a call that needs approval; None: a person is."""
        return self._on_approval

    def _callbacks(self, on_question: OnQuestion | None = None) -> Callbacks | None:
        if on_question is not None:
            check_on_question(on_question)
        is_asked = self._on_approval is not None or on_question is not None
        return Callbacks(self._on_approval, on_question) if is_asked else None

    def open_journal(self) -> AbstractAsyncContextManager[Journal]:
        """The journal of this team, open inside the context."""
        if isinstance(self._journal, SharedJournal):
            return self._journal.opened()
        if self._journal is not None:
            return nullcontext(self._journal)
        self._memory = self._memory or MemoryJournal(max_ended_runs=_MAX_ENDED_RUNS)
        return nullcontext(self._memory)

    async def _result(self, team: Self, outcome: Outcome, journal: Journal) -> Result:
        self._shown.note(outcome.run, outcome.question)
        warning = "" if team.call_cap is None else f"{team.call_cap.warning[:1].upper()}{team.call_cap.warning[1:]}."
        about_models = self.notice
        if self.supervisor.plan is not None and any(task.refined for task in outcome.state.tasks.values()):
            about_models = self.spec.notice(Finder(self._lookup), plans=True)  # the planner's model put a task better
        notice = " ".join(part for part in (warning, about_models) if part)
        result = read_result(outcome, outcome.entries or await journal.read(outcome.run), notice)
        if self.output is None or outcome.answer is None:
            return result
        return structs.replace(result, output=self.output.typed(outcome.answer))

    @property
    def journal_url(self) -> StoreUrl | None:
        """Where its journal is, if this team opens it."""
        return self._journal.url if isinstance(self._journal, SharedJournal) else None

    # --- over HTTP

    @check_declared("serve", elsewhere=_KEYWORDS)
    def serve(
        self,
        *,
        port: int = 8283,
        host: str = "127.0.0.1",
        data: Path | str = ".chargehand/server",
        token: str = "",
        no_token: bool = False,
        apis: Sequence[Any] = (),
        listeners: Sequence[Listener] = (),
    ) -> None:
        """Serve this team over HTTP, with the page, until SIGTERM or Ctrl-C, as `chargehand serve` does.

        `data` is the folder of its runs and memory. Without a `token` one is made and shown once; `no_token` asks for
        none, which only this machine may be allowed. `apis` are `HttpApi`s, of `chargehand.server.extension`.
        """
        with OfExtra("serve()", "server"):
            serving = import_module("chargehand.server.serving")  # not imported above: the server is built on teams
        serving.serve_teams(
            [self],
            host=host,
            port=port,
            data=Path(data),
            token=token,
            unlocked=no_token,
            apis=apis,
            listeners=listeners,
        )

    # --- messages to its workers

    def tags(self) -> dict[str, tuple[str, ...]]:
        """Every tag, and the workers who carry it."""
        return tags(self.members)

    def matching(
        self, match_all: Sequence[str] = (), match_some: Sequence[str] = (), *, sender: str = ""
    ) -> tuple[str, ...]:
        """The workers with all of the one tags and any of the others, in the team's order; never the sender."""
        agents = matching(self.members, Match(tuple(match_all), tuple(match_some)), sender)
        return tuple(agent.name for agent in agents)

    async def message(
        self,
        text: str,
        *,
        match_all: Sequence[str] = (),
        match_some: Sequence[str] = (),
        workers: Sequence[str] = (),
        sender: str = PERSON,
        timeout: Seconds | None = None,  # noqa: ASYNC109 - the time of each worker, not of this call
        run: str = "",
    ) -> Replies:
        """Ask every worker with these tags, or of these names, at once, and wait for their replies.

        Without tags and names everybody is asked. Each is asked once, and has `timeout` seconds or its own time,
        whichever is less; what fails is one entry among the replies. The same message under the same `run` goes on
        where it was, or is read back.
        """
        match = Match(tuple(match_all), tuple(match_some))
        bounded = await self.keep_budget()
        request = bounded.request(text, time.time())
        message = addressed(self.members, request.goal, match=match, names=workers, sender=sender, timeout=timeout)
        if not message.to:
            return Replies(note=no_reader(self.members, match))
        name = run or f"{self.name}-{secrets.token_hex(4)}"
        wanted = message_request(request, message)
        async with self.driven(bounded) as runner:
            await start_or_resume(runner, name, wanted, message_key, also=bounded.budget_notes())
            return replies_of(Tracer.replay(name, await runner.journal.read(name)))

    # --- background workers: those with `every`, who look back on the runs of their team

    async def rest(self) -> tuple[Result, ...]:
        """Run every background worker that is due, and wait until they are done.

        Most often nothing is due, and nothing comes back. What was left by an earlier process is resumed.
        """
        return await rest_team(self)

    def rest_sync(self) -> tuple[Result, ...]:
        """The same for code without an event loop."""
        return without_a_loop("rest", self.rest)

    # --- feedback on runs that were led by a route

    @asynccontextmanager
    async def _examples(self, url: StoreUrl | None = None) -> AsyncGenerator[Journal]:
        """Its journal, or another one, to read and record examples; Refused if it is not there."""
        url = url or self.journal_url
        async with self.open_journal() if url is None else opened_journal(url, create=False) as journal:
            yield journal

    async def feedback(self, run: str, good: float, *, worker: str = "", source: Source = "feedback") -> Judgement:
        """Say how a run went: True, False, or from 0 to 1; `worker` is who should have done it.

        A confirmed request becomes an example of its worker, a refuted one is no example of it any more. It takes the
        place of what the same source said before, and works while another process drives runs of the same file.
        """
        async with self._examples() as journal:
            return await record_feedback(journal, run, good, worker, source)

    def feedback_sync(self, run: str, good: float, *, worker: str = "") -> Judgement:
        """The same for code without an event loop."""
        return without_a_loop("feedback", lambda: self.feedback(run, good, worker=worker))

    async def route_examples(self, journal: StoreUrl | None = None) -> tuple[RouteExample, ...]:
        """The confirmed examples of this team. `journal`: another one than its own."""
        async with self._examples(journal) as opened:
            return await opened.route_examples(self.name).list()

    async def clear_route_examples(self, journal: StoreUrl | None = None, *, run: str = "") -> int:
        """Remove confirmed examples of this team and return how many there were.

        Args:
            journal: Another journal than its own.
            run: The run whose request they are; empty: all examples.
        """
        async with self._examples(journal) as opened:
            return await opened.route_examples(self.name).clear(run)


def _with_timeout(policy: Policy, timeout: WrittenDuration | None) -> Policy:
    if timeout is None:
        return policy
    return structs.replace(policy, supervision=seconds_of("timeout", timeout))


def _outfitted(workers: Sequence[Worker], memory: Memory | None) -> tuple[tuple[Worker, ...], tuple[Worker, ...]]:
    """The workers with their tools and memory: those that get tasks, and those that work in the background."""
    check_memory(memory, workers)
    members = [with_built_in_tools(worker) for worker in workers]
    members = [member if member.is_delegated else with_memory_tools(member, memory) for member in members]
    front = tuple(worker for worker in members if worker.every is None)
    behind = tuple(worker for worker in members if worker.every is not None)
    background.check(memory, front, behind)
    return front, behind
