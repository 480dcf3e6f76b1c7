"""A plan that is not run: asked for, checked, sent back while it cannot run, and reckoned. No worker is called."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol, TypeVar, cast, runtime_checkable

from msgspec import Struct, structs

from chargehand.agents.checks import Checks, Reviewer, Verifier
from chargehand.agents.loop import Kit
from chargehand.agents.nested import Subteam
from chargehand.agents.setup import ReadyWorker
from chargehand.agents.writer import Writer
from chargehand.engine import events as ev
from chargehand.engine.budget import NOTHING, Amount, Budget, Ledger
from chargehand.engine.events import Effect, Failure
from chargehand.engine.facts import RouteChosen
from chargehand.engine.forecast import Forecast, forecast, in_line
from chargehand.engine.lint import lint
from chargehand.engine.owed import Brief
from chargehand.engine.plan import NO_TASK, Finding, Plan, Task, needs
from chargehand.engine.policy import Policy, Seconds
from chargehand.engine.roster import Roster
from chargehand.engine.state import Work
from chargehand.errors import BudgetExceeded, PlanInvalid
from chargehand.models.model import Model
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

# --- cost of a plan


_CHARACTERS = 4  # a token
_REPLY = 500  # tokens of a reply, a result or what a tool returns
_CALLS_WITH_TOOLS = 3
BASIS = (
    f"list prices, one attempt a task, {_CALLS_WITH_TOOLS} calls where there are tools, replies of {_REPLY} tokens; "
    "planning, retries and fallbacks are not counted"
)
"""What the estimate rests on, in words."""


class CostForecast(Struct, frozen=True):
    """Dollars for a whole plan."""

    about: float | None
    """The estimate; None where the price of a model is not known."""
    unknown: tuple[str, ...] = ()
    """The models whose price is not known."""
    grows: str = ""
    """Why there may be more to it than the estimate counts, in words."""
    budget: float | None = None
    """The cap of the run."""

    @property
    def above_budget(self) -> bool:
        return self.about is not None and self.budget is not None and self.about > self.budget


class PlanForecast(Forecast, frozen=True, omit_defaults=True):
    """The forecast of a plan, with dollars where the team knows its models."""

    usd: CostForecast | None = None


class Means(Struct, frozen=True):
    """Who does the work, and with which models."""

    workers: Mapping[str, ReadyWorker]
    writer: Writer
    kit: Kit
    teams: Mapping[str, Subteam]
    checks: Checks
    verifiers: Mapping[str, Model]


def forecast_cost(
    means: Means, plan: Plan, roster: Roster, policy: Policy, budget: Budget, *, closed: bool = True
) -> CostForecast:
    """The dollars of a plan; one that is not `closed` is only the first part of it."""
    lines = [in_line(task.worker or task.match, roster) for task in plan.tasks]
    calls = _answer_calls(means, plan)
    for task, line in zip(plan.tasks, lines, strict=True):
        calls += _task_calls(means, task, line[0].name if line else task.worker)
    unknown = dict.fromkeys(call.model.card.handle for call in calls if call.micros is None)
    names = list(dict.fromkeys(agent.name for line in lines for agent in line))
    return CostForecast(
        about=None if unknown else sum(call.micros or 0 for call in calls) / 1_000_000,
        unknown=tuple(unknown),
        grows=_grows(means, names, policy, closed=closed),
        budget=None if budget.micros is None else budget.micros / 1_000_000,
    )


class _Call(Struct, frozen=True):
    """An expected call of a model."""

    model: Model
    read: int
    """Tokens."""
    estimate: int = 0
    """What it is taken to cost, in micros, where the price of the model is not known."""

    @property
    def micros(self) -> float | None:
        price = self.model.card.price(self.read, _REPLY)
        return self.estimate or None if price is None else price


def _task_calls(means: Means, task: Task, name: str) -> list[_Call]:
    """One attempt of a worker, and of each check that asks a model, one call. What a team costs is not foreseen."""
    calls: list[_Call] = []
    ready = means.workers.get(name)
    if ready is not None:
        kit = means.kit
        specs = [f"{spec.name}{spec.description}{bytes(spec.parameters).decode()}" for spec in ready.specs]
        shape = "" if ready.shape is None else bytes(ready.shape.raw).decode()
        prompt = kit.prompts.text("task", instruction=task.instruction, inputs="")
        read = _tokens(ready.system(kit.prompts).text, *specs, shape, prompt) + len(needs(task)) * _REPLY
        model = ready.models[0]
        estimate = ready.worker.estimate.micros
        is_estimated = model.card.price(1, 1) is None and estimate > 0
        count = _CALLS_WITH_TOOLS if ready.tools and not is_estimated else 1
        # each call also reads what those before it wrote and were returned
        calls += [_Call(model, read + number * 2 * _REPLY, estimate) for number in range(count)]
    for check_name in means.checks.of(task, name):
        check = means.checks.by_name.get(check_name)
        read = _tokens(task.instruction) + (1 + len(needs(task))) * _REPLY
        if isinstance(check, Verifier):
            calls.append(_Call(means.verifiers.get(check_name, means.writer.model), read))
        elif isinstance(check, Reviewer) and check.worker in means.workers:
            reviewer = means.workers[check.worker]
            calls.append(_Call(reviewer.models[0], read, reviewer.worker.estimate.micros))
    return calls


def _answer_calls(means: Means, plan: Plan) -> list[_Call]:
    writer = means.writer
    count = len(plan.tasks)
    chooses = plan.combine in ("select", "vote")  # of one result there is nothing to choose
    if plan.combine in ("none", "forward") or writer.own is not None or count == 0 or (chooses and count == 1):
        return []
    system = writer.prompts.text("judge" if chooses else "answer", instructions=writer.instructions)
    return [_Call(writer.model, _tokens(system, plan.goal) + count * _REPLY)]


def _tokens(*texts: str) -> int:
    return sum(map(len, texts)) // _CHARACTERS


def _grows(means: Means, names: Sequence[str], policy: Policy, *, closed: bool) -> str:
    if not closed:
        return "the plan grows as results come in"
    if policy.limits.replans:
        return "what fails may be planned anew"
    for name in names:
        if name in means.teams and not means.teams[name].free:
            return f"{name} is a team that plans for itself"
    for name in names:
        if name in means.workers and means.workers[name].worker.contacts:
            return f"{name} may write to others, who work for it then"
    return ""


# --- drafts


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
    forecasted = structs.asdict(forecast(plan, request.roster, request.policy))
    cost = executor.cost_forecast(plan, request, closed=closed) if isinstance(executor, EstimatesCost) else None
    return PlanForecast(**forecasted, usd=cost)


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

    def record_call(self, model: str, seconds: Seconds, tokens: tuple[int, int], used: Amount | None) -> None:
        pass

    def say(self, text: str) -> None:
        pass
