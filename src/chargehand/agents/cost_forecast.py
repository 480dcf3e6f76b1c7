"""The estimated cost of a plan in dollars, from list prices and prompts, before any model is called.

A task counts as one attempt of the first worker that may do it, and its checks; the answer as one call. What planning
costs is known once it is done, and not counted. The estimate may be off by a few times; the budget is what holds.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from chargehand.agents.checks.spec import Checks, Reviewer, Verifier
from chargehand.agents.loop import Kit
from chargehand.agents.nested import Subteam
from chargehand.agents.setup import ReadyWorker
from chargehand.agents.writer import Writer
from chargehand.engine.budget import Budget
from chargehand.engine.forecast import Forecast, in_line
from chargehand.engine.plan import Plan, Task, needs
from chargehand.engine.policy import Policy
from chargehand.engine.roster import Roster
from chargehand.models.model import Model

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
        asked = kit.prompts.text("task", instruction=task.instruction, inputs="")
        read = _tokens(ready.system(kit.prompts).text, *specs, shape, asked) + len(needs(task)) * _REPLY
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
