"""One run through approval, retries, a refinement and steps, told by a caller whose store may be away."""

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from msgspec import structs

from chargehand.agents.scripted import Move, Script, ScriptedExecutor
from chargehand.engine.budget import Amount
from chargehand.engine.events import Entry, InputAnswered
from chargehand.engine.fold import replay
from chargehand.engine.owed import Brief
from chargehand.engine.plan import Plan, Task, TaskId
from chargehand.engine.policy import Policy, Retry
from chargehand.engine.state import RunState
from chargehand.errors import StoreUnavailable
from chargehand.journal.protocol import Journal
from chargehand.runtime.executor import Done, StepContext
from chargehand.runtime.runner import Outcome, Runner, outcome
from tests.requests import request
from tests.sim.play import snapshot

Result = TypeVar("Result")
CALL = Amount(calls=1)
TRIES = 8
A = TaskId("a")
B = TaskId("b")
C = TaskId("c")
PLAN = Plan(
    (
        Task(A, "look into the matter", "worker"),
        Task(B, "look into another", "worker"),
        Task(C, "compare both findings", "worker", after=(A, B)),
    )
)
ASKED = request(PLAN, policy=Policy(approve=True, retry=Retry(base=0.001)))
SCRIPT = Script({"a": (Move(fail="network"), Move(used=CALL)), "b": (Move(fail="logic"), Move(used=CALL))})


class Executor(ScriptedExecutor):
    """Makes a call that is recorded, then does as the script says."""

    async def attempt(self, brief: Brief, context: StepContext) -> Done:
        async def call(key: str) -> Done:
            return Done({"looked": brief.work.task, "body": "x" * 1500}, CALL)

        await context.step("look", call, request=brief.work.task, effect="idempotent")
        return await super().attempt(brief, context)


class Story:
    """One run, begun, approved and finished by a caller who tries again when the store is unavailable."""

    def __init__(self, journal: Journal, clock: Callable[[], float] = time.time) -> None:
        self.told: list[Entry] = []
        self.on_told: Callable[[], None] = lambda: None
        self.live: RunState | None = None
        self.refusals: list[str] = []
        self.driver = Runner(journal, Executor(SCRIPT), wall=clock, ticks=clock, listener=self._heard)
        self.asked = structs.replace(ASKED, deadline=clock() + 60)

    def _heard(self, run: str, entries: Sequence[Entry]) -> None:
        self.told += entries
        self.live = self.driver._under_way[run].state
        self.on_told()

    async def tried(self, work: Callable[[], Awaitable[Result]]) -> Result:
        for _ in range(TRIES):
            try:
                return await work()
            except StoreUnavailable as error:
                self.refusals.append(str(error))
        return await work()

    async def play(self) -> Outcome:
        found = await self.tried(lambda: self.driver.start("r", self.asked))
        assert found.question is not None
        answer = InputAnswered(found.question.number, "approve")
        return await self.tried(lambda: self.driver.resume("r", answer))

    def judge(self, found: Outcome, stored: list[Entry]) -> None:
        # a lost its line after the call, which is kept; b did bad work and makes its call again
        assert (found.ending, found.spent) == ("complete", Amount(calls=6))
        assert self.told == stored
        assert self.live is not None
        assert snapshot(self.live) == snapshot(replay(stored))
        assert outcome("r", replay(stored)) == found
