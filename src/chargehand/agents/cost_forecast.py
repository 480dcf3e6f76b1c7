"""The estimated cost of a plan in dollars, from list prices and prompts, before any model is called.

A task counts as one attempt of the first worker that may do it, and its checks; the answer as one call. What planning
costs is known once it is done, and not counted. The estimate may be off by a few times; the budget is what holds.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from chargehand.agents.checks.spec import Checks, Reviewer, Verifier
from chargehand.agents.equip import Equipped
from chargehand.agents.loop import Kit
from chargehand.agents.subteam import Subteam
from chargehand.agents.writer import Writer
from chargehand.models.model import Model
from chargehand.terms.budget import Budget
from chargehand.terms.forecast import Forecast, in_line
from chargehand.terms.plan import NO_TASK, Plan, Task, TaskId, needs
from chargehand.terms.policy import Policy
from chargehand.terms.roster import Agent, Roster

_CHARACTERS = 4  # a token
_REPLY = 500  # tokens of a reply, a result or what a tool returns
_CALLS_WITH_TOOLS = 3
BASIS = (
    f"list prices, one attempt a task, {_CALLS_WITH_TOOLS} calls where there are tools, replies of {_REPLY} tokens; "
    "planning, retries and fallbacks are not counted"
)
"""What the estimate rests on, in words."""


class TaskCost(Struct, frozen=True):
    """Dollars for one task, or (without one) for the answer."""

    task: TaskId
    worker: str
    model: str
    about: float | None
    """None where the price of a model is not known."""


class CostForecast(Struct, frozen=True):
    """Dollars for a whole plan."""

    about: float | None
    """The estimate; None where the price of a model is not known."""
    tasks: tuple[TaskCost, ...]
    answer: TaskCost
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

    workers: Mapping[str, Equipped]
    writer: Writer
    kit: Kit
    made: Equipped | None
    """A worker such as the factory makes, by the name of the factory."""
    teams: Mapping[str, Subteam]
    checks: Checks
    verifiers: Mapping[str, Model]

    def equipped(self, name: str) -> Equipped | None:
        return self.made if self.made is not None and self.made.worker.name == name else self.workers.get(name)


def forecast_cost(
    means: Means, plan: Plan, roster: Roster, policy: Policy, budget: Budget, *, closed: bool = True
) -> CostForecast:
    """The dollars of a plan; one that is not `closed` is only the first part of it."""
    lines = [in_line(task.worker or task.match, roster) for task in plan.tasks]
    names = list(dict.fromkeys(agent.name for line in lines for agent in line))
    tasks = tuple(_task(means, task, line) for task, line in zip(plan.tasks, lines, strict=True))
    model = means.writer.model.card.handle
    answer = TaskCost(task=NO_TASK, worker="", model=model, about=_answer(means, plan))
    unknown = _unpriced(means, names, plan.tasks)
    about = None if unknown else _total(part.about for part in (*tasks, answer))
    return CostForecast(
        about=about,
        tasks=tasks,
        answer=answer,
        unknown=unknown if about is None else (),
        grows=_grows(means, names, policy, closed=closed),
        budget=None if budget.micros is None else budget.micros / 1_000_000,
    )


def _task(means: Means, task: Task, line: Sequence[Agent]) -> TaskCost:
    name = line[0].name if line else task.worker
    equipped = means.equipped(name)
    if equipped is None:  # a team: how much it costs is not foreseen
        return TaskCost(task=task.id, worker=name, model="", about=_total(_reviews(means, task, name)))
    kit = means.kit
    specs = "".join(f"{spec.name}{spec.description}{bytes(spec.parameters).decode()}" for spec in equipped.specs)
    shape = "" if equipped.shape is None else bytes(equipped.shape.raw).decode()
    asked = kit.prompts.text("task", instruction=task.instruction, inputs="")
    attempt = _calls(
        equipped.models[0],
        (kit.system(equipped).text, specs, shape, asked),
        results=len(needs(task)),
        count=_CALLS_WITH_TOOLS if equipped.tools else 1,
        estimate=equipped.worker.estimate.micros,
    )
    about = _total((attempt, *_reviews(means, task, name)))
    return TaskCost(task=task.id, worker=name, model=equipped.models[0].card.handle, about=about)


def _reviews(means: Means, task: Task, name: str) -> list[float | None]:
    """What those cost who look at the result of a task: one call each."""
    costs: list[float | None] = []
    for check_name in means.checks.of(task, name):
        models, estimate = _reviewing(means, check_name)
        if models:
            costs.append(_calls(models[0], (task.instruction,), results=1 + len(needs(task)), estimate=estimate))
    return costs


def _reviewing(means: Means, check_name: str) -> tuple[Sequence[Model], int]:
    """The models that a check asks, and what a call is estimated at."""
    check = means.checks.by_name.get(check_name)
    if isinstance(check, Verifier):
        return (means.verifiers.get(check_name, means.writer.model),), 0
    if isinstance(check, Reviewer) and check.worker in means.workers:
        reviewer = means.workers[check.worker]
        return reviewer.models, reviewer.worker.estimate.micros
    return (), 0


def _answer(means: Means, plan: Plan) -> float | None:
    writer = means.writer
    count = len(plan.tasks)
    chooses = plan.combine in ("select", "vote")  # of one result there is nothing to choose
    if plan.combine in ("none", "forward") or writer.own is not None or count == 0 or (chooses and count == 1):
        return 0.0
    slots = {"manner": "", "form": ""} if chooses else {"manner": ""}
    told = writer.prompts.text("judge" if chooses else "answer", instructions=writer.instructions, **slots)
    return _calls(writer.model, (told, plan.goal), results=count)


def _calls(model: Model, texts: Iterable[str], *, results: int = 0, count: int = 1, estimate: int = 0) -> float | None:
    """Dollars of calls that read some texts and results, each also what those before it wrote and were returned."""
    read = sum(map(len, texts)) // _CHARACTERS + results * _REPLY
    prices = [model.card.price(read + number * 2 * _REPLY, _REPLY) for number in range(count)]
    micros = _total(prices)
    if micros is None:
        return estimate / 1_000_000 if estimate else None
    return micros / 1_000_000


def _total(parts: Iterable[float | None]) -> float | None:
    """The sum; None where one of them is not known."""
    total = 0.0
    for part in parts:
        if part is None:
            return None
        total += part
    return total


def _unpriced(means: Means, names: Sequence[str], tasks: Sequence[Task]) -> tuple[str, ...]:
    """The models whose price is not known, unless their worker is estimated."""
    models = [means.writer.model, *means.verifiers.values()]
    for name in names:
        equipped = means.equipped(name)
        if equipped is not None and not equipped.worker.estimate.micros:
            models += equipped.models
    for check_name in {check for task in tasks for name in names for check in means.checks.of(task, name)}:
        reviewing, estimate = _reviewing(means, check_name)
        models += () if estimate else reviewing
    return tuple(dict.fromkeys(model.card.handle for model in models if model.card.price(1, 1) is None))


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
