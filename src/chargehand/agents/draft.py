"""A plan that is not run: asked for, checked, sent back while it cannot run, and reckoned. No worker is called."""

from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

from msgspec import Struct, structs

from chargehand.agents.checks import Checks, Reviewer, Verifier
from chargehand.agents.loop import TeamResources
from chargehand.agents.nested import Subteam
from chargehand.agents.result import planned
from chargehand.agents.setup import ReadyWorker
from chargehand.agents.writer import Writer
from chargehand.engine import events as ev
from chargehand.engine.budget import NOTHING, Amount, Budget
from chargehand.engine.facts import RouteChosen
from chargehand.engine.forecast import CostForecast, Forecast, forecast, in_line
from chargehand.engine.lint import lint
from chargehand.engine.owed import Brief
from chargehand.engine.plan import Finding, Plan, Task, needs
from chargehand.engine.policy import Policy
from chargehand.engine.roster import Roster
from chargehand.errors import BudgetExceeded, PlanInvalid
from chargehand.journal.memory import MemoryJournal
from chargehand.models.model import Model
from chargehand.runtime.executor import Done, Executor, Proposal, Refined, StepContext
from chargehand.runtime.runner import Runner

# --- cost of a plan


_CHARACTERS = 4  # a token
_REPLY = 500  # tokens of a reply, a result or what a tool returns
_CALLS_WITH_TOOLS = 3
BASIS = (
    f"list prices, one attempt a task, {_CALLS_WITH_TOOLS} calls where there are tools, replies of {_REPLY} tokens; "
    "planning, retries and fallbacks are not counted"
)
"""What the estimate rests on, in words."""


class PlanForecast(Forecast, frozen=True, omit_defaults=True):
    """The forecast of a plan, with dollars where the team knows its models."""

    usd: CostForecast | None = None


class Means(Struct, frozen=True):
    """Who does the work, and with which models."""

    workers: Mapping[str, ReadyWorker]
    writer: Writer
    resources: TeamResources
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
        resources = means.resources
        specs = [f"{spec.name}{spec.description}{bytes(spec.parameters).decode()}" for spec in ready.specs]
        shape = "" if ready.shape is None else bytes(ready.shape.raw).decode()
        prompt = resources.prompts.text("task", instruction=task.instruction, inputs="")
        read = _tokens(ready.system(resources.prompts).text, *specs, shape, prompt) + len(needs(task)) * _REPLY
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

    BudgetExceeded, where the budget does not cover asking for it. A draft is a run that stops to have its plan
    approved, in a journal that is not kept.
    """
    policy = structs.replace(request.policy, approve=True)
    runner = Runner(MemoryJournal(), _PlanningExecutor(executor))
    outcome = await runner.start("draft", structs.replace(request, policy=policy), keep_entries=True)
    state = outcome.state
    events = [entry.event for entry in outcome.entries]
    unserved = tuple(gap.message for gap in outcome.gaps if gap.status == "unserved")
    if state.fallback is not None or not (state.tasks or unserved):
        raise _no_plan(events)
    plan = planned(state)
    noted = [event for event in events if isinstance(event, ev.Noted)]
    return Draft(
        plan=plan,
        findings=lint(plan.tasks, request.roster, request.policy.limits).warnings if plan.tasks else (),
        forecast=foreseen(executor, plan, request, closed=state.closed) if plan.tasks else None,
        unserved=unserved,
        notes=tuple(note.text for note in noted),
        route=next((note.fact for note in noted if isinstance(note.fact, RouteChosen)), None),
        spent=outcome.spent,
    )


class _PlanningExecutor(Executor):
    """Plans as another executor does, without listeners and without counting its load."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    def plan(self, brief: Brief, context: StepContext) -> Coroutine[Any, Any, Proposal]:
        return self._executor.plan(brief, context)

    async def attempt(self, brief: Brief, context: StepContext) -> Done:
        raise NotImplementedError

    async def refine(self, brief: Brief, context: StepContext) -> Refined:
        raise NotImplementedError

    async def answer(self, brief: Brief, context: StepContext) -> Done:
        raise NotImplementedError


def _no_plan(events: Sequence[ev.Event]) -> PlanInvalid:
    """Why there is no plan, by the planner's last try."""
    failed = [event for event in events if isinstance(event, ev.SupervisionFailed)]
    findings: tuple[Finding, ...] = ()
    if failed:
        failure = failed[-1].failure
        findings = failed[-1].findings or (Finding(code=failure.kind, place="planner", message=failure.message),)
    if all(finding.code == "budget" for finding in findings):
        return BudgetExceeded(findings)
    return PlanInvalid(findings)


def foreseen(executor: Executor, plan: Plan, request: ev.RunRequested, *, closed: bool = True) -> PlanForecast:
    """What a plan will take: time, and dollars where the executor knows its models."""
    forecasted = structs.asdict(forecast(plan, request.roster, request.policy))
    return PlanForecast(**forecasted, usd=executor.cost_forecast(plan, request, closed=closed))
