"""The front door: workers, a supervisor, and what they run on. `run`, `plan`, `stream`, `resume`, `run_sync`."""

import copy
import os
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from functools import partial
from pathlib import Path

from msgspec import structs

from chargehand.agents.answering import Writer
from chargehand.agents.crew import Crew
from chargehand.agents.equip import equip, listed, nameable, skills, toolset
from chargehand.agents.factory import Factory
from chargehand.agents.granted import Furnished, check, furnished, outfitted
from chargehand.agents.lead import Lead
from chargehand.agents.loop import Kit
from chargehand.agents.mail import Post, allowance
from chargehand.agents.money import Purse, supervision
from chargehand.agents.prompts import Prompts
from chargehand.agents.recall import shared_blocks
from chargehand.agents.staff import Staff, Workshop
from chargehand.agents.worker import Worker
from chargehand.errors import Invalid
from chargehand.memory.declared import Memory
from chargehand.memory.opened import OpenMemory
from chargehand.models.find import Finder, Lookup
from chargehand.models.messages import Settings
from chargehand.models.model import Model
from chargehand.models.subject import WorkerCard
from chargehand.runtime.draft import Draft, draft
from chargehand.runtime.drive import Listener, Whisper
from chargehand.runtime.driver import Driver, Outcome
from chargehand.runtime.follow import follow
from chargehand.runtime.front import checked_goal, without_a_loop
from chargehand.runtime.messaging import Messaging
from chargehand.runtime.remembered import SharedMemory
from chargehand.runtime.result import Result, result_of
from chargehand.runtime.shared import SharedFile
from chargehand.stores.journal import Journal
from chargehand.stores.memory import MemoryJournal
from chargehand.terms import budget as budgets
from chargehand.terms import events as ev
from chargehand.terms import policy as policies
from chargehand.terms import roster as rosters
from chargehand.terms.budget import Budget, Ledger
from chargehand.terms.plan import Combine, Plan
from chargehand.terms.policy import Policy, Seconds
from chargehand.terms.roster import Agent, Roster

_NOTHING_SET, _NO_CAPS, _USUAL = Settings(), Budget(), Policy()


class Supervisor(Messaging):
    """A team: its workers, who plans and answers, and within which bounds.

    `model` serves whoever names none of their own; `planner` plans and refines, `judge` writes the answer. `seconds` is
    the time a run has. `combine` fixes how results become an answer, or is a function that makes it. With
    `stream_plan` tasks start while the plan is still being written; with `review` the planner sees the results and may
    add tasks. `journal` is where runs are kept: a file, a journal, or (left out) memory. `lookup` finds keys by name;
    left out, the environment is asked. `memory` is what the team shares and keeps between runs.
    """

    def __init__(
        self,
        workers: Sequence[Worker],
        *,
        model: str | Model = "offline",
        name: str = "team",
        instructions: str = "",
        planner: str | Model = "",
        judge: str | Model = "",
        settings: Settings = _NOTHING_SET,
        seconds: Seconds = 300.0,
        budget: Budget = _NO_CAPS,
        policy: Policy = _USUAL,
        combine: Combine | Callable[..., object] | None = None,
        plan: Plan | None = None,
        stream_plan: bool = False,
        review: bool = False,
        factory: Factory | None = None,
        prompts: Mapping[str, str] | None = None,
        journal: Journal | Path | str | None = None,
        examples: Sequence[str] = (),
        lookup: Lookup | None = None,
        memory: Memory | None = None,
    ) -> None:
        if not workers and factory is None:
            raise Invalid("a team needs at least one worker, or a factory that makes them")
        self.name = name
        self.examples = tuple(examples)
        self.policy = policy
        self.budget = budget
        self.seconds = seconds
        check(memory, workers)
        self._workers = tuple(outfitted(one, memory) for one in workers)
        self._models = (model, planner or model, judge or model)
        self._instructions = instructions
        self._settings = settings
        self._own = combine if callable(combine) else None
        self._combine: Combine | None = None if callable(combine) else combine
        self._fixed = plan
        self._streams = stream_plan
        self._reviews = review
        self._factory = factory
        self._prompts = Prompts(prompts)
        self._journal = SharedFile(journal) if isinstance(journal, str | Path) else journal
        self._lookup = lookup or os.environ.get
        self._memory: MemoryJournal | None = None
        self._shared = None if memory is None else SharedMemory(memory, name, self._workers, self._lookup)
        self.roster = self._listed()
        self.members = self.roster.agents[: len(self._workers)]
        budgets.check(budget)
        policies.check(policy)
        rosters.check(self.roster)
        for worker in self._workers:
            equip(worker, ())

    def _listed(self) -> Roster:
        agents = [listed(one, _handle(one.model or self._models[0])) for one in self._workers]
        made = self._factory
        if made is not None:
            tools = tuple(toolset(f"factory {made.name!r}", made.tools))
            model = _handle(made.model or self._models[0])
            agents.append(Agent(made.name, made.does, (), tools, model, capacity=made.capacity))
        return Roster(tuple(agents), supervision(self.budget, self._models[1:]))

    def _cards(self) -> tuple[WorkerCard, ...]:
        cards = [equip(one, ()).card for one in self._workers]
        if self._factory is not None:
            tools = toolset(f"factory {self._factory.name!r}", self._factory.tools)
            cards.append(WorkerCard(self._factory.name, self._factory.does, (), skills(tools)))
        return tuple(cards)

    def request(self, goal: str, now: float, *, plan: Plan | None = None, seed: int | None = None) -> ev.RunRequested:
        """The request a driver starts with; Invalid for a goal nobody could pursue."""
        wanted = checked_goal(goal)
        chance, given = secrets.randbits(32) if seed is None else seed, plan or self._fixed
        if given is not None and self._combine is not None:
            given = structs.replace(given, combine=self._combine)
        return ev.RunRequested(wanted, self.roster, self.policy, self.budget, now + self.seconds, chance, given)

    def bounded(
        self, *, budget: Budget | None = None, seconds: Seconds | None = None, policy: Policy | None = None
    ) -> "Supervisor":
        """The same team within other bounds."""
        team = copy.copy(self)
        team.budget = self.budget if budget is None else budget
        team.seconds = self.seconds if seconds is None else seconds
        team.policy = self.policy if policy is None else policy
        budgets.check(team.budget)
        policies.check(team.policy)
        team.roster = structs.replace(self.roster, supervision=supervision(team.budget, self._models[1:]))
        return team

    # --- who does the work

    @asynccontextmanager
    async def crew(self) -> AsyncGenerator[Crew]:
        """Whoever does the work; models are connected inside the context."""
        async with AsyncExitStack() as stack:
            finder = Finder(self._lookup)
            stack.push_async_callback(finder.close)
            memory = None if self._shared is None else await stack.enter_async_context(self._shared.opened())
            staff = self._staff(finder, memory, [await furnished(memory, one) for one in self._workers])
            await finder.prepare()  # prices must be known before the first call is paid for
            if self.budget.micros is not None:
                staff.check_prices(self.budget.floor)
            yield staff

    def _staff(self, finder: Finder, memory: OpenMemory | None, crowd: Sequence[Furnished]) -> Staff:
        usual, planner, judge = (_found(finder, one) for one in self._models)
        kit = Kit(self._prompts, Purse(capped=Ledger(self.budget).capped))
        models = {
            one.name: [_found(finder, model) for model in (one.model or usual, *one.fallback_models)]
            for one in self._workers
        }
        capped = Ledger(self.budget).capped
        post = Post(self.members, {one.name: allowance(one, models[one.name]) for one in self._workers if capped})
        named = {**nameable(), **post.tools()}
        workers = {
            one.worker.name: equip(one.worker, models[one.worker.name], {**named, **one.named}, one.desk)
            for one in crowd
        }
        shared = None if memory is None else partial(shared_blocks, memory)
        lead = Lead(
            planner, self._prompts, self._cards(), self._instructions, self._settings, self.policy.limits.tasks,
            stream=self._streams, review=self._reviews, combine=self._combine, reserve=self.roster.supervision,
            shared=shared,
        )  # fmt: skip
        writer = Writer(
            judge, self._prompts, self._instructions, self._settings, self._own, self.roster.supervision, shared
        )
        made = self._factory
        workshop = None if made is None else Workshop(made, _found(finder, made.model) if made.model else usual)
        return Staff(workers, lead, writer, kit, workshop, post)

    @asynccontextmanager
    async def remembering(self) -> AsyncGenerator[OpenMemory]:
        """The team's memory, for programs that look into it or add to it."""
        if self._shared is None:
            raise Invalid(f"{self.name} has no memory; give it one: memory=Memory(...)")
        async with self._shared.opened() as memory:
            yield memory

    @property
    def notice(self) -> str:
        """What people must know about the models behind this team."""
        finder = Finder(self._lookup)
        wanted = [
            *self._models,
            *(model for one in self._workers for model in (one.model, *one.fallback_models) if model),
        ]
        wanted += [self._factory.model] if self._factory is not None and self._factory.model else []
        notices = [_found(finder, one).card.notice for one in wanted]
        return " ".join(dict.fromkeys(one for one in notices if one))

    # --- runs

    async def plan(self, goal: str) -> Draft:
        """The plan for a goal, checked and reckoned, and nothing done about it."""
        async with self.crew() as crew:
            return await draft(crew, self.request(goal, time.time()))

    async def run(
        self, goal: str, *, run: str = "", listener: Listener | None = None, whisper: Whisper | None = None
    ) -> Result:
        """Pursue a goal to its end."""
        request = self.request(goal, time.time())
        name = run or f"{self.name}-{secrets.token_hex(4)}"
        async with self._driver(listener, whisper) as (driver, journal):
            return await self._result(await driver.start(name, request), journal)

    def run_sync(self, goal: str, *, run: str = "") -> Result:
        """The same for code without an event loop."""
        return without_a_loop("run", lambda: self.run(goal, run=run))

    def resume_sync(self, run: str, *answers: ev.Event) -> Result:
        """`resume` for code without an event loop."""
        return without_a_loop("resume", lambda: self.resume(run, *answers))

    async def resume(self, run: str, *answers: ev.Event, listener: Listener | None = None) -> Result:
        """Go on with a run that a crash, a pause or a question left unfinished."""
        async with self._driver(listener, None) as (driver, journal):
            return await self._result(await driver.resume(run, *answers), journal)

    async def stream(self, goal: str, *, run: str = "") -> AsyncIterator[ev.Entry]:
        """Pursue a goal and yield what is written, as it is written, until the run has ended or waits for a person.

        Leaving the loop stops the run; it can be resumed.
        """
        request, name = self.request(goal, time.time()), run or f"{self.name}-{secrets.token_hex(4)}"
        async with (
            self._open() as journal,
            self.crew() as crew,
            aclosing(follow(journal, crew, name, request)) as entries,
        ):
            async for entry in entries:
                yield entry

    @asynccontextmanager
    async def driven(self) -> AsyncGenerator[Driver]:
        """A driver for runs that nobody listens to."""
        async with self._driver(None, None) as (driver, _):
            yield driver

    @asynccontextmanager
    async def _driver(
        self, listener: Listener | None, whisper: Whisper | None
    ) -> AsyncGenerator[tuple[Driver, Journal]]:
        async with self._open() as journal, self.crew() as crew:
            yield Driver(journal, crew, listener=listener, whisper=whisper), journal

    @asynccontextmanager
    async def _open(self) -> AsyncGenerator[Journal]:
        if isinstance(self._journal, SharedFile):
            async with self._journal.opened() as journal:
                yield journal
        elif self._journal is not None:
            yield self._journal
        else:
            self._memory = self._memory or MemoryJournal()
            yield self._memory

    async def _result(self, found: Outcome, journal: Journal) -> Result:
        return result_of(found, await journal.read(found.run), self.notice)


def _handle(model: str | Model) -> str:
    return model if isinstance(model, str) else model.card.handle


def _found(finder: Finder, model: str | Model) -> Model:
    return finder.find(model) if isinstance(model, str) else model
