"""A plan that is not run: asked for, checked, sent back while it cannot run, and reckoned. No worker is called."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol, TypeVar, cast, runtime_checkable

from msgspec import Struct, structs

from chargehand.agents.cost_forecast import CostForecast, PlanForecast
from chargehand.engine import events as ev
from chargehand.engine.budget import NOTHING, Amount, Budget, Ledger
from chargehand.engine.events import Effect, Failure
from chargehand.engine.facts import RouteChosen
from chargehand.engine.forecast import forecast
from chargehand.engine.lint import lint
from chargehand.engine.owed import Brief
from chargehand.engine.plan import NO_TASK, Finding, Plan, Task
from chargehand.engine.policy import Seconds
from chargehand.engine.state import Work
from chargehand.errors import BudgetExceeded, PlanInvalid
from chargehand.runtime.context import calls_left
from chargehand.runtime.executor import (
    Claim,
    Done,
    Executor,
    NestedRequest,
    NestedRun,
    PromptMessage,
    Proposal,
    Where,
    WorkFailed,
)
from chargehand.runtime.load import WorkerLoad

_Shape = TypeVar("_Shape")


class Draft(Struct, frozen=True):
    """A plan that was not run: what is to be said about it, what it would take, and what making it cost.

    `unserved` are parts of the request that no worker can do; `spent` is None where it is not known.
    """

    plan: Plan
    findings: tuple[Finding, ...]
    forecast: PlanForecast | None
    unserved: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    route: RouteChosen | None = None
    """Who was chosen and how surely, of a team that is led by a route."""
    spent: Amount | None = NOTHING


async def draft(executor: Executor, request: ev.RunRequested) -> Draft:
    """The plan for a request; PlanInvalid with what is wrong, when no plan was found that can run.

    BudgetExceeded, where the budget does not cover asking for it.
    """
    limits = request.policy.limits
    context = _DraftContext(request)
    findings: tuple[Finding, ...] = ()
    spent = NOTHING
    began = time.time()
    for number in range(1, limits.plans + 1):
        brief = Brief(Work("plan", NO_TASK, number), request.goal, request.deadline, findings=findings, began=began)
        context.grown.clear()
        try:
            proposal = await _proposed(executor, brief, context, request.policy.supervision)
        except WorkFailed as error:
            findings = error.findings or (
                Finding(code=error.failure.kind, place="planner", message=error.failure.message),
            )
            used = error.used
            if error.failure.permanent:
                break
        else:
            tasks = (*context.grown, *proposal.tasks)
            linted = lint(tasks, request.roster, limits) if tasks or not proposal.unserved else None
            used = proposal.used
            if linted is None or not linted.errors:
                total = None if used is None else spent + used
                plan = Plan(linted.tasks if linted else (), proposal.combine or "merge", request.goal)
                reckoned = foreseen(executor, plan, request, closed=proposal.closed) if plan.tasks else None
                warnings = linted.warnings if linted else ()
                return Draft(
                    plan=plan,
                    findings=warnings,
                    forecast=reckoned,
                    unserved=proposal.unserved,
                    notes=tuple(context.notes),
                    route=context.route,
                    spent=total,
                )
            findings = linted.errors
        if used is not None:
            spent += used
    if all(finding.code == "budget" for finding in findings):
        raise BudgetExceeded(findings)
    raise PlanInvalid(findings)


def foreseen(executor: Executor, plan: Plan, request: ev.RunRequested, *, closed: bool = True) -> PlanForecast:
    """What a plan will take: time, and dollars where the executor knows its models."""
    known = structs.asdict(forecast(plan, request.roster, request.policy))
    cost = executor.cost_forecast(plan, request, closed=closed) if isinstance(executor, EstimatesCost) else None
    return PlanForecast(**known, usd=cost)


@runtime_checkable
class EstimatesCost(Protocol):
    """An executor that knows what its models cost."""

    def cost_forecast(self, plan: Plan, request: ev.RunRequested, *, closed: bool = True) -> CostForecast | None: ...


async def _proposed(executor: Executor, brief: Brief, context: "_DraftContext", seconds: Seconds) -> Proposal:
    try:
        async with asyncio.timeout(seconds):
            return await executor.plan(brief, context)
    except TimeoutError as error:
        raise WorkFailed(ev.Failure("timeout", f"the planner did not answer within {seconds:g} s")) from error


class _DraftContext:
    """A context that keeps nothing: a plan that is not run needs no journal."""

    def __init__(self, request: ev.RunRequested) -> None:
        self.heard = False
        self.request = request
        self.route_examples = None
        self._ledger = Ledger(request.budget)
        self._answer = request.roster.supervision
        self.where = Where(run="draft", task="", mark="", planned=True)
        self.grown: list[Task] = []
        self.notes: list[str] = []
        self.route: RouteChosen | None = None

    async def step(
        self,
        name: str,  # noqa: ARG002 - the protocol's
        call: Callable[[str], Awaitable[Done]],
        *,
        kind: ev.StepKind = "tool",  # noqa: ARG002
        request: str = "",  # noqa: ARG002
        effect: Effect = "read",  # noqa: ARG002
        reserve: Amount | Claim = NOTHING,  # noqa: ARG002
        share: bool = False,  # noqa: ARG002
        shape: type[_Shape] = object,  # noqa: ARG002
    ) -> _Shape:
        return cast("_Shape", (await call("draft")).value)

    async def start_run(self, key: str, nested: NestedRequest) -> NestedRun:
        raise NotImplementedError

    async def run_share(self, estimate: Amount, own: Budget) -> Amount:
        raise NotImplementedError

    async def count_steps(self, key: str, names: Sequence[str]) -> int:
        raise NotImplementedError

    def worker_loads(self) -> Mapping[str, WorkerLoad]:
        return {}

    def expect_work(self, workers: Sequence[str]) -> None:
        pass

    async def afford(self, price: Amount, most: int) -> int:
        if not self._ledger.capped or price == NOTHING:
            return most
        count = min(most, calls_left(self._room() // 2, price))
        self._ledger.reserve(price * count)
        return count

    async def hold(self, claim: Claim, covered: Amount) -> Amount | None:
        if self._ledger.capped:
            if not claim.fit(self._room() // 2 + covered):
                return None
            self._ledger.reserve(claim.amount.beyond(covered))
        return claim.amount

    def _room(self) -> Amount:
        """What is left beyond what an answer takes."""
        return self._ledger.room(self._answer.max(self._ledger.budget.floor))

    def release(self, amount: Amount) -> None:
        self._ledger.settle(amount, NOTHING)

    async def grow(self, tasks: Sequence[Task]) -> None:
        self.grown.extend(tasks)

    def note(self, text: str, failure: Failure | None = None, fact: ev.NotedFact | None = None) -> None:
        del failure  # a draft has no use for it
        self.notes.append(text)
        if isinstance(fact, RouteChosen):
            self.route = fact

    def prompt(self, model: str, messages: Sequence[PromptMessage], tools: tuple[str, ...] = ()) -> None:
        pass

    def say(self, text: str) -> None:
        pass
