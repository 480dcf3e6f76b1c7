"""An executor that still has a plan when nobody can make one: the whole request, to the worker who fits it best.

It stands around another executor and steps in only where a run without any task would otherwise fail.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from chargehand.agents.cost_forecast import CostForecast
from chargehand.agents.routing.decision import Board
from chargehand.agents.strategies import Broadcast, Route
from chargehand.agents.team_spec import TeamSpec
from chargehand.engine.budget import Amount, Budget
from chargehand.engine.events import RunRequested
from chargehand.engine.failure import Failure
from chargehand.engine.lint import lint
from chargehand.engine.owed import Brief
from chargehand.engine.plan import Plan, Task, TaskId
from chargehand.engine.policy import Limits
from chargehand.engine.roster import Roster, TeamMembers
from chargehand.models.own import model_handle
from chargehand.runtime.clock import Clock
from chargehand.runtime.executor import Done, Executor, Posted, Proposal, Refined, Relay, StepContext, WorkFailed
from chargehand.runtime.stand_in import Shares, fitting_worker, shares

# of the planner's time: seconds, but at most this share, that are kept for who steps in
_KEPT = 10.0
_SHARE = 0.2
_ON_THE_WAY = ("network", "timeout", "resource")
_AT_ONCE = 500
"""Characters of a request for which a stand-in is looked for without letting others run."""
_Found = TypeVar("_Found")


class Makeshift:
    """`within` are the limits of a run. Which try it is stands in the brief: nothing is remembered here."""

    def __init__(
        self,
        executor: Executor,
        hiring: TeamSpec,
        members: TeamMembers,
        roster: Roster,
        within: Limits,
        *,
        clock: Clock = time.time,
    ) -> None:
        self.members = members
        self._executor = executor
        self._hiring = hiring
        self._roster = roster
        self._limits = within
        self._clock = clock

    def bind(self, carrier: Any) -> None:
        if isinstance(self._executor, Posted):
            self._executor.bind(carrier)

    @property
    def leads(self) -> bool:
        return bool(getattr(self._executor, "leads", False))  # only some executors have teams among them

    def entrust(self, foreman: Any) -> None:
        getattr(self._executor, "entrust")(foreman)  # noqa: B009 - as above: not every executor has it

    @property
    def routes(self) -> bool:
        return bool(getattr(self._executor, "routes", False))

    @property
    def learns(self) -> bool:
        return bool(getattr(self._executor, "learns", False))

    @property
    def board(self) -> Board:
        return self._hiring.board

    def watched(self, watch: Any) -> None:
        getattr(self._executor, "watched")(watch)  # noqa: B009 - as above

    def supervision(self, budget: Budget) -> Amount:
        return getattr(self._executor, "supervision")(budget)  # noqa: B009 - as above

    def cost_forecast(self, plan: Plan, request: RunRequested, *, closed: bool = True) -> CostForecast | None:
        estimate = getattr(self._executor, "cost_forecast", None)
        return None if estimate is None else estimate(plan, request, closed=closed)

    @property
    def free(self) -> bool:
        return bool(getattr(self._executor, "free", False))

    def attempt(self, brief: Brief, context: StepContext) -> Coroutine[Any, Any, Done]:
        return self._executor.attempt(brief, context)

    def refine(self, brief: Brief, context: StepContext) -> Coroutine[Any, Any, Refined]:
        return self._executor.refine(brief, context)

    def answer(self, brief: Brief, context: StepContext) -> Coroutine[Any, Any, Done]:
        return self._executor.answer(brief, context)

    async def plan(self, brief: Brief, context: StepContext) -> Proposal:
        # what there is must do; a mere draft must say what is wrong; and tags nobody has mean nobody
        if brief.tasks or not context.where.mark or isinstance(self._hiring.way, Broadcast):
            return await self._executor.plan(brief, context)
        last = brief.work.number >= self._limits.plans
        watched = _Watched(context)
        try:
            found = await self._in_time(brief, watched)
        except WorkFailed as error:
            failure = error.failure
            too_long = 0 < brief.work_until - self._clock() <= failure.retry_after  # it cannot be asked again in time
            if watched.grown or not (last or isinstance(error, _Late) or failure.permanent or too_long):
                raise
            found = await self._instead(brief, context, error.failure, error.used)
            if error.failure.permanent and error.failure.kind == "budget" and not found.tasks:
                raise  # the run itself ends for want of money, and says so
            return found
        if last and not watched.grown and found.tasks:
            errors = lint(found.tasks, self._roster, self._limits).errors
            if errors:
                failure = Failure("logic", f"the plan cannot run: {errors[0].message}")
                return await self._instead(brief, context, failure, found.used)
        return found

    async def _in_time(self, brief: Brief, context: StepContext) -> Proposal:
        """The planner's own plan, asked for no longer than leaves some time to whoever steps in."""
        left = brief.until - self._clock()
        loop = asyncio.get_running_loop()
        if left <= 0:
            return await self._executor.plan(brief, context)
        failure = Failure("timeout", "the planner did not answer in time")

        def look_for_stand_in() -> None:
            if len(brief.goal) <= _AT_ONCE:
                end_planning(has_stand_in=self._has_stand_in(brief.goal, failure))
                return
            looking = loop.run_in_executor(None, self._has_stand_in, brief.goal, failure)
            looking.add_done_callback(lambda looked: end_planning(has_stand_in=looked.result()))

        def end_planning(*, has_stand_in: bool) -> None:
            if has_stand_in and not answered:
                limit.reschedule(loop.time())  # else what is missing is time, and the run itself says so

        timer = loop.call_later(left - min(_KEPT, _SHARE * left), look_for_stand_in)
        limit = asyncio.timeout(None)
        answered = False
        try:
            async with limit:
                return await self._executor.plan(brief, context)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise _Late(failure) from error
        finally:
            answered = True
            timer.cancel()

    def _has_stand_in(self, goal: str, failure: Failure) -> bool:
        return self._shared(goal, failure) is not None or bool(self._fitting(goal, failure))

    async def _instead(self, brief: Brief, context: StepContext, failure: Failure, used: Amount | None) -> Proposal:
        spare = self._hiring.way.generalist if isinstance(self._hiring.way, Route) else ""
        if spare and failure.kind == "logic" and not failure.permanent:  # who was named is nobody: it is not clear who
            context.note(f"route to {spare}: the generalist gets it: {failure.message}")
            tasks = (Task(TaskId("t1"), brief.goal, spare),)
            return Proposal(tasks, self._hiring.combine or "forward", used=used)
        found = await _without_blocking(self._shared, brief.goal, failure)
        if found is not None:
            return self._among(found, context, failure, used)
        who = await _without_blocking(self._fitting, brief.goal, failure)
        alone = len(self._hiring.cards()) == 1
        who = who or (spare if spare and self._reachable(spare, failure) else "")
        if not who:
            said = f"no plan could be made ({failure.message}), and the request can be handed to nobody as it is"
            context.note(said, failure)
            return Proposal((), used=used, unserved=(_lost(failure),))
        context.note(f"no plan could be made ({failure.message}): the whole request goes to {who}", failure)
        said = (
            f"nobody could plan this ({failure.message}): {who} was given all of it, and parts may have been left out"
        )
        tasks = (Task(TaskId("t1"), brief.goal, who),)
        return Proposal(tasks, self._hiring.combine or "forward", used=used, unserved=() if alone else (said,))

    def _among(self, found: Shares, context: StepContext, failure: Failure, used: Amount | None) -> Proposal:
        who = " and ".join(found.workers)
        words = f"no plan could be made ({failure.message}): by the words of their cards its parts go to {who}"
        context.note(words, failure)
        said = f"nobody could plan this ({failure.message}): {who} were given what their cards speak of; "
        said += "parts may have been left out"
        return Proposal(found.tasks, self._hiring.combine or "merge", used=used, unserved=(said, *found.unserved))

    def _shared(self, goal: str, failure: Failure) -> Shares | None:
        """The parts of a request that several could do; None where that is not so."""
        cards = [card for card in self._hiring.cards() if self._reachable(card.name, failure)]
        found = shares(goal, cards, self._limits.tasks) if len(cards) > 1 else None
        if found is None:
            return None
        return None if lint(found.tasks, self._roster, self._limits).errors else found

    def _fitting(self, goal: str, failure: Failure) -> str:
        """Who is given the whole request: the only one there is, or the one whose card fits it. Empty: nobody."""
        cards = self._hiring.cards()
        reachable = [card for card in cards if self._reachable(card.name, failure)]
        if len(cards) == 1:
            return reachable[0].name if reachable else ""
        return fitting_worker(goal, reachable)

    def _reachable(self, name: str, failure: Failure) -> bool:
        """Not somebody who needs the very model that just could not be reached."""
        if failure.kind not in _ON_THE_WAY and failure.refusal is None:
            return True
        usual, planner, _ = self._hiring.models
        worker = next((one for one in self._hiring.workers if one.name == name), None)
        if worker is not None and worker.team is not None:
            return True  # it has models of its own
        made = self._hiring.factory.model if self._hiring.factory is not None else ""
        models = [made] if worker is None else [*(worker.replicas or (worker.model,)), *worker.fallback_models]
        return any(model_handle(one or usual) != model_handle(planner) for one in models)


class _Late(WorkFailed):
    """The planner's time is over, and so may be the run's."""


async def _without_blocking(look: Callable[[str, Failure], _Found], goal: str, failure: Failure) -> _Found:
    """What is found for a goal: a long one takes some tenths of a second, and is looked at in a thread."""
    if len(goal) <= _AT_ONCE:
        return look(goal, failure)
    return await asyncio.to_thread(look, goal, failure)


def _lost(failure: Failure) -> str:
    said = f"nothing was done, because nobody could plan it: {failure.message}"
    if failure.permanent:
        return f"{said}. Put that right and ask again, or name another model for the planner"
    if failure.kind in _ON_THE_WAY:
        return f"{said}. Ask again when the model can be reached, or name another one for the planner"
    return f"{said}. Put the request in other words, name another model for the planner, or give a plan yourself"


class _Watched(Relay):
    """A hand that remembers whether the plan grew in it."""

    grown = False

    async def grow(self, tasks: Sequence[Task]) -> None:
        await super().grow(tasks)
        self.grown = True
