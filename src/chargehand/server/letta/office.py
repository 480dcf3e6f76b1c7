"""Where agents of a house are talked to: each talk is a run, and one agent has one talk with people at a time.

A call that is repeated joins the run it began. How talks are sent to clients, and written up, is not decided here.
"""

import asyncio
import logging
import time
import uuid
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress

from msgspec import structs

from chargehand.errors import Refused, RunUnknown, StoreError
from chargehand.memory.catalog import Profile
from chargehand.runtime.driver import Driver, Outcome
from chargehand.server.letta.asked import Asked
from chargehand.server.letta.book import Book
from chargehand.server.letta.client_tools import ClientReturn
from chargehand.server.letta.crew import AgentCrew
from chargehand.server.letta.speech import TASK, Speech
from chargehand.server.letta.spoken import speech, speeches_inside
from chargehand.server.letta.talk import Talk
from chargehand.server.problem import Problem, unknown
from chargehand.server.tenant_runs import TenantRuns
from chargehand.server.tenants import Tenant
from chargehand.terms import events as ev
from chargehand.terms.budget import Budget
from chargehand.terms.plan import Plan, Task
from chargehand.terms.policy import Instant, Limits, Policy, Retry, Seconds
from chargehand.terms.roster import Roster
from chargehand.terms.work import Work

# --- one agent works on one message at a time


class Line:
    """A line before each agent. One who is at its head stays there until it leaves.

    Who stands behind somebody else has no place on the `floor`, where other agents may need it; so there may be `most`
    of them, and half as many before one agent.
    """

    def __init__(self, tenant_runs: TenantRuns, most: int) -> None:
        self._runs = tenant_runs
        self._most = most
        self._lines: dict[str, deque[str]] = {}
        self._bells: dict[str, asyncio.Event] = {}

    def check(self, agent: str) -> None:
        """429 where the line is too long for one more."""
        length = len(self._lines.get(agent, ()))
        behind = sum(len(line) - 1 for line in self._lines.values()) if length else 0
        if length and (length > self._most // 2 or behind >= self._most):
            said = f"{length} messages to {agent} are under way already; nothing was begun: try again soon"
            raise Problem(429, "busy", said, after=1.0)

    def join(self, agent: str, run: str) -> None:
        self._lines.setdefault(agent, deque()).append(run)

    async def turn(self, agent: str, run: str) -> None:
        """Wait to be at the head. Who never joined does not wait: messages between agents must not stand in line."""
        if self._waits(agent, run):
            await self._runs.aside(run, self._head(agent, run))

    def leave(self, agent: str, run: str) -> None:
        self._bells.pop(run, None)
        line = self._lines.get(agent)
        if line is None or run not in line:
            return
        line.remove(run)
        if not line:
            del self._lines[agent]
        elif (bell := self._bells.get(line[0])) is not None:
            bell.set()

    def _waits(self, agent: str, run: str) -> bool:
        line = self._lines.get(agent)
        return line is not None and line[0] != run and run in line

    async def _head(self, agent: str, run: str) -> None:
        while self._waits(agent, run):
            bell = self._bells.setdefault(run, asyncio.Event())
            await bell.wait()
            bell.clear()


# whoever asked hears what failed and may ask again; networks that fail are tried again by whoever calls the model
# who waits in line behind somebody else is stopped with every restart, and must not be given up for that
_POLICY = Policy(retry=Retry(attempts=1), limits=Limits(width=50, nesting=8, resumes=20), refine=False, answer=0.0)
_PATIENCE: Seconds = 30 * 86_400.0  # for people who are asked; the time an agent works is bounded by its timeout
AGAIN: Seconds = 15 * 60.0
"""How long a call that is made again is known to be the same."""
RESET = "messages_since"
"""What an agent's settings say of when its messages were forgotten."""
_SOON: Seconds = 5.0
_CATCH_UP: Seconds = 30.0

logger = logging.getLogger(__name__)
_Carry = Callable[[Driver], Awaitable[Outcome]]


class Office:
    """Talks with the agents of one house. `house.part(Office)` is it."""

    def __init__(self, tenant: Tenant) -> None:
        self._tenant = tenant
        self.book = tenant.part(Book)
        self.crew = AgentCrew(tenant)
        self.line = Line(tenant.runs, tenant.settings.limits.waiting)
        self.driver = Driver(tenant.journal, self.crew, listener=self._heard)
        self._aloud = Driver(tenant.journal, self.crew, listener=self._heard, whisper=self._whispered)
        tenant.drivers += (self.driver, self._aloud)
        self._gate = asyncio.Lock()
        self._ready = False
        self.caught_up = asyncio.Event()
        """Set once the book knows of every run that was there when the house was opened."""
        self.talks: dict[str, Talk] = {}
        self.waiting: dict[str, str] = {}
        """The runs that wait for a person's leave, by conversation; those of an agent's own by the agent."""
        self.resets: dict[str, Instant] = {}
        """When messages of agents were forgotten: those of talks that were under way then do not come back."""
        self.crew.asked = self._asked
        self.crew.turn = self._turn
        self.crew.client_return = self._client_return
        self.crew.post.carried = self._inside

    # --- talks

    async def ready(self) -> None:
        """Know who waits for a person since before the house was opened."""
        async with self._gate:
            if not self._ready:
                self.waiting = {**await self.book.waiting(), **self.waiting}
                self._ready = True

    async def say(self, profile: Profile, asked: Asked, *, repeated: bool = False, aloud: bool = False) -> Talk:
        """Begin a talk, or join the one that this very call began; back when it is on disk."""
        if not self._ready:
            await self.ready()
        if repeated:
            await self._catch_up()
        run = (await self._known(asked) if repeated else "") or asked.run
        if run in self.talks:
            return (await _begun(self.talks[run])).joined_by(asked)
        self._tenant.runs.check()
        talk = self.talks[run] = Talk(Speech(run, profile.id), asked, aloud=aloud)
        async with self._beginning(talk):
            found = await self._read(run) if repeated or asked.marked else None
            if found is not None:
                return (await self._joined(talk, found)).joined_by(asked)
            self.line.check(asked.lane)
            if asked.lane in self.waiting:
                await self._withdraw(asked.lane)
            request = self._request(profile, asked)
            await self._begin(talk, lambda driver: driver.start(run, request, also=[asked.note()]))
        return talk

    async def go_on(self, run: str, *reports: ev.Event) -> Talk:
        """Go on with a talk that waits: for a person, or for somebody to take it up again after a crash."""
        if run in self.talks and not self.talks[run].over:
            talk = await _begun(self.talks[run])
            for report in reports:
                await self._driver(talk).ask(run, report)
            return talk
        if self._tenant.runs.carries(run):  # it is being let go just now
            with suppress(Exception):
                await self._tenant.runs.outcome(run)
        found = await self._read(run)
        if found is None:
            raise unknown("run", run)
        if found.over:
            raise Refused(f"run {run} has ended")
        if run in self.talks and not self.talks[run].over:  # somebody was faster
            return await self.go_on(run, *reports)
        talk = self.talks[run] = Talk(found)
        talk.since = len(found.messages)
        async with self._beginning(talk):
            await self._begin(talk, lambda driver: driver.resume(run, *reports))
        return talk

    async def cancel(self, runs: Iterable[str], reason: str = "") -> None:
        """Stop these, with all that was begun inside them; back when they have stopped."""
        stopped: list[Talk] = []
        for run in runs:
            try:
                stopped.append(await self.go_on(run, ev.CancelRequested(reason)))
            except Refused as error:  # it ended meanwhile, which is what was wanted
                logger.info("run %s was not cancelled: %s", run, error)
        if stopped:
            await asyncio.wait([one.done for one in stopped], timeout=_SOON)

    async def under_way(self, lane: str) -> list[str]:
        """The runs of a conversation (or of an agent's own) that have not ended, also those that wait for a person."""
        await self.ready()
        runs = {run: None for run, talk in self.talks.items() if talk.lane == lane and not talk.speech.over}
        return list({**runs, self.waiting[lane]: None} if lane in self.waiting else runs)

    async def all_under_way(self, agent: str) -> list[str]:
        """The same of all conversations of an agent."""
        runs = {run: None for run, talk in self.talks.items() if talk.agent == agent and not talk.speech.over}
        return list({**dict.fromkeys(await self.under_way(agent)), **runs})

    async def forget(self, agent: str) -> None:
        """An agent is gone: nothing goes on in its name, and nothing of it is listed any more."""
        await self.cancel(await self.all_under_way(agent), "the agent was deleted")
        for run in [run for run, talk in self.talks.items() if talk.agent == agent]:
            del self.talks[run]  # what is not in here is not written up
        self.resets.pop(agent, None)
        await self.book.forget(agent, runs=True)

    async def standing(self, run: str) -> Speech | None:
        """What a run has come to, under way or not; None if there is none."""
        talk = self.talks.get(run)
        return talk.speech if talk is not None else await self._read(run)

    async def settle(self, agent: str = "") -> None:
        """Write into the book what is not in it yet, so that a list that is read next is whole.

        After a restart that includes what was begun before: a run that was promised to somebody is never unknown.
        """
        await self._catch_up()
        fresh = [one.speech for one in self.talks.values() if one.speech.began and agent in ("", one.agent)]
        for run in self._nested():
            fresh += await self._read_inside(run)
        if fresh:
            await self.book.keep(fresh, self.resets)

    async def kept(self, found: Speech) -> None:
        """Write up what a talk has come to for now."""
        if found.question is not None:
            self.waiting[found.lane] = found.run
        elif self.waiting.get(found.lane) == found.run:
            del self.waiting[found.lane]
        await self.book.keep([found], self.resets)

    # --- inside

    async def _catch_up(self) -> None:
        """Until the book knows what a crash left open, nobody can say whether a call began something before."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_CATCH_UP):
                await self.caught_up.wait()

    async def _known(self, asked: Asked) -> str:
        """The run that a repeated call began."""
        for run, talk in self.talks.items():
            if talk.asked is not None and talk.asked.mark == asked.mark:
                return run
        return await self.book.asked(asked.agent, asked.mark, time.time() - AGAIN)

    @asynccontextmanager
    async def _beginning(self, talk: Talk) -> AsyncGenerator[None]:
        """Whoever joins hears what whoever began hears. What is carried already goes on without its caller."""
        try:
            yield
        except BaseException as error:
            if not self._tenant.runs.carries(talk.run):
                self.talks.pop(talk.run, None)
                self.line.leave(talk.lane, talk.run)
            talk.started(error if isinstance(error, Exception) else _cut())
            raise
        talk.started()

    async def _joined(self, talk: Talk, found: Speech) -> Talk:
        """Take up what a run has come to; it is gone on with if nobody does."""
        talk.speech = found
        talk.asked = found.asked
        if found.over or found.question is not None:
            self.talks.pop(talk.run, None)
            talk.finish()
        else:
            await self._begin(talk, lambda driver: driver.resume(talk.run))
        return talk

    async def _begin(self, talk: Talk, carry: _Carry) -> None:
        self.line.join(talk.lane, talk.run)
        await self._tenant.runs.begin(talk.run, lambda: self._carried(talk, carry))

    async def _carried(self, talk: Talk, carry: _Carry) -> Outcome:
        try:
            outcome = await carry(self._driver(talk))
            talk.close()
            self.line.leave(talk.lane, talk.run)
            try:
                if self.talks.get(talk.run) is talk:
                    await self.kept(talk.speech)
            except StoreError as error:  # it stays here, so that lists have it, and the journal has it anyway
                logger.warning("run %s is not in the book: %s", talk.run, error)
            else:
                self.talks.pop(talk.run, None)
        except BaseException as error:
            self.talks.pop(talk.run, None)
            self.line.leave(talk.lane, talk.run)
            talk.finish(error if isinstance(error, Exception) else _cut())
            raise
        talk.finish()
        return outcome

    def _request(self, profile: Profile, asked: Asked) -> ev.RunRequested:
        plan = Plan((Task(TASK, asked.text, profile.id),), "none")
        seed = uuid.uuid4().int & 0xFFFFFFFF
        agent = structs.replace(self.crew.agent(profile), timeout=_PATIENCE)  # the crew ends what takes too long
        roster = Roster((agent,))
        return ev.RunRequested(
            goal=asked.text,
            roster=roster,
            policy=_POLICY,
            budget=Budget(),
            deadline=time.time() + _PATIENCE,
            seed=seed,
            plan=plan,
        )

    async def _turn(self, agent: str, run: str) -> None:
        """Wait until a run is the next of its conversation."""
        talk = self.talks.get(run)
        await self.line.turn(agent if talk is None else talk.lane, run)

    async def _client_return(self, run: str, tool: str, arguments: str) -> ClientReturn | None:
        talk = self.talks.get(run)
        returned = None if talk is None else talk.speech.client_returns.get((tool, arguments))
        if returned is None and (standing := await self._read(run)) is not None:  # it is on disk before it is heard
            returned = standing.client_returns.get((tool, arguments))
        return returned

    async def _withdraw(self, lane: str) -> None:
        """Nobody answers a question any more once something else is said: the agent must not be stuck over it."""
        await self.cancel([self.waiting.pop(lane)], "something else was said before it was answered")

    async def _read(self, run: str) -> Speech | None:
        try:
            return speech(run, await self._tenant.journal.read(run))
        except RunUnknown:
            return None

    def _driver(self, talk: Talk) -> Driver:
        return self._aloud if talk.aloud else self.driver

    def _asked(self, run: str) -> Asked | None:
        talk = self.talks.get(run)
        return None if talk is None else talk.asked

    # --- listening

    def _heard(self, run: str, entries: Sequence[ev.Entry]) -> None:
        if (talk := self.talks.get(run)) is not None:
            talk.hear(entries)
            if talk.speech.over:  # it is on disk: nobody need wait until all of it is written up as well
                self.line.leave(talk.lane, run)
                talk.finish()
        self._tenant.heard(run, entries)

    def _whispered(self, run: str, work: Work, words: str) -> None:
        self._tenant.whispered(run, work, words)
        talk = self.talks.get(run)
        state = self._aloud.under_way.get(run)
        if talk is None or state is None or work.kind != "attempt":
            return
        steps = state.tasks[work.task].steps or {}
        step = max((number for number, one in steps.items() if one.result is None), default=0)
        talk.whisper(talk.speech.words_of(work.number, step), words)

    def _nested(self) -> list[str]:
        """The runs under way in which agents of ours work for each other."""
        return [
            run
            for driver in (self.driver, self._aloud)
            for run in driver.under_way
            if "/" in run and run.partition("/")[0] in self.talks
        ]

    async def _read_inside(self, run: str) -> list[Speech]:
        try:
            return speeches_inside(run, await self._tenant.journal.read(run))
        except RunUnknown:  # it is not on disk yet
            return []

    async def _inside(self, run: str) -> None:
        """Write up what agents said to each other, before whoever asked them goes on."""
        try:
            await self.book.keep(speeches_inside(run, await self._tenant.journal.read(run)))
        except StoreError as error:
            logger.warning("run %s is not in the book: %s", run, error)


async def _begun(talk: Talk) -> Talk:
    await asyncio.shield(talk.begun)
    return talk


def _cut() -> Problem:
    return Problem(503, "cut", "the server stopped before it was done; ask again to go on", after=2.0)
