"""A plan that is not run: asked for, checked, sent back while it cannot run, and reckoned. No worker is called."""

from collections.abc import Coroutine, Sequence
from typing import Any

from msgspec import Struct, structs

from chargehand.agents.checks import Reviewer, Verifier
from chargehand.agents.executor import AgentExecutor
from chargehand.agents.result import planned
from chargehand.agents.setup import ReadyWorker, make_ready
from chargehand.agents.writer import Writer
from chargehand.engine import events as ev
from chargehand.engine.budget import NOTHING, Amount
from chargehand.engine.facts import RouteChosen
from chargehand.engine.forecast import CostForecast, Forecast, forecast, in_line
from chargehand.engine.lint import lint
from chargehand.engine.owed import Brief
from chargehand.engine.plan import Finding, Plan, Task, needs
from chargehand.engine.policy import Policy
from chargehand.errors import BudgetExceeded, PlanInvalid
from chargehand.journal.memory import MemoryJournal
from chargehand.models.messages import Usage
from chargehand.models.model import Model
from chargehand.models.token_count import count_tokens
from chargehand.runtime.executor import Done, Executor, Proposal, Refined, StepContext
from chargehand.runtime.runner import Runner

# --- cost of a plan


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


def forecast_cost(
    executor: AgentExecutor, plan: Plan, request: ev.RunRequested, *, closed: bool = True
) -> CostForecast:
    """The dollars of a plan; one that is not `closed` is only the first part of it."""
    roster = request.roster
    lines = [in_line(task.worker or task.match, roster) for task in plan.tasks]
    calls = _answer_calls(executor.writer, plan)
    for task, line in zip(plan.tasks, lines, strict=True):
        calls += _task_calls(executor, task, line[0].name if line else task.worker)
    costs = [(call.model.card.handle, call.micros) for call in calls]
    unknown = dict.fromkeys(handle for handle, micros in costs if micros is None)
    names = list(dict.fromkeys(agent.name for line in lines for agent in line))
    cap = request.budget.micros
    return CostForecast(
        about=None if unknown else sum(micros or 0 for _, micros in costs) / 1_000_000,
        unknown=tuple(unknown),
        grows=_grows(executor, names, request.policy, closed=closed),
        budget=None if cap is None else cap / 1_000_000,
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
        price = self.model.card.price(Usage(self.read, _REPLY))
        return self.estimate or None if price is None else price


def _task_calls(executor: AgentExecutor, task: Task, name: str) -> list[_Call]:
    """One attempt of a worker, and of each check that asks a model, one call. What a team costs is not foreseen."""
    ready = _ready_worker(executor, name)
    calls = [] if ready is None else _attempt_calls(executor, ready, task)
    read = _tokens(task.instruction) + (1 + len(needs(task))) * _REPLY
    for check_name in executor.checks.of(task, name):
        check = executor.checks.by_name.get(check_name)
        if isinstance(check, Verifier):
            calls.append(_Call(executor.verifiers.get(check_name, executor.writer.model), read))
        elif isinstance(check, Reviewer) and check.worker in executor.workers:
            reviewer = executor.workers[check.worker]
            calls.append(_Call(reviewer.models[0], read, reviewer.worker.estimate.micros))
    return calls


def _ready_worker(executor: AgentExecutor, name: str) -> ReadyWorker | None:
    """The worker of this name; in place of the factory, one with all of its tools."""
    maker = executor.worker_maker
    if maker is None or maker.factory.name != name:
        return executor.workers.get(name)
    return make_ready(maker.factory.stand_in, [maker.model])


def _attempt_calls(executor: AgentExecutor, ready: ReadyWorker, task: Task) -> list[_Call]:
    prompts = executor.resources.prompts
    specs = [f"{spec.name}{spec.description}{bytes(spec.parameters).decode()}" for spec in ready.specs]
    shape = "" if ready.shape is None else bytes(ready.shape.raw).decode()
    prompt = prompts.text("task", instruction=task.instruction, inputs="")
    read = _tokens(ready.system(prompts).text, *specs, shape, prompt) + len(needs(task)) * _REPLY
    model = ready.models[0]
    estimate = ready.worker.estimate.micros
    is_estimated = not model.card.is_priced and estimate > 0
    count = _CALLS_WITH_TOOLS if ready.tools and not is_estimated else 1
    # each call also reads what those before it wrote and were returned
    return [_Call(model, read + number * 2 * _REPLY, estimate) for number in range(count)]


def _answer_calls(writer: Writer, plan: Plan) -> list[_Call]:
    count = len(plan.tasks)
    chooses = plan.combine in ("select", "vote")  # of one result there is nothing to choose
    if plan.combine in ("none", "forward") or writer.own is not None or count == 0 or (chooses and count == 1):
        return []
    system = writer.prompts.text("judge" if chooses else "answer", instructions=writer.instructions)
    return [_Call(writer.model, _tokens(system, plan.goal) + count * _REPLY)]


def _tokens(*texts: str) -> int:
    return sum(map(count_tokens, texts))


def _grows(executor: AgentExecutor, names: Sequence[str], policy: Policy, *, closed: bool) -> str:
    if not closed:
        return "the plan grows as results come in"
    if policy.limits.replans:
        return "what fails may be planned anew"
    for name in names:
        if name in executor.teams and not executor.teams[name].free:
            return f"{name} is a team that plans for itself"
        if name in executor.workers and executor.workers[name].worker.contacts:
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
    """What a plan will take: time, and dollars where it is known which models are called."""
    usd = forecast_cost(executor, plan, request, closed=closed) if isinstance(executor, AgentExecutor) else None
    forecasted = structs.asdict(forecast(plan, request.roster, request.policy))
    return PlanForecast(**forecasted, usd=usd)
