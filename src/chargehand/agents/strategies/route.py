"""The strategy `route`: one task for the worker that fits best, or for the best two. Routers say who fits."""

from collections.abc import Mapping, Sequence

from chargehand.agents.planner import Lead
from chargehand.agents.routing.choose import LEAST, decide
from chargehand.agents.routing.decision import ConfirmedExamples, Decision, out_of_order, seen, shifted
from chargehand.agents.strategies import Route
from chargehand.agents.worker import Worker
from chargehand.engine.budget import NOTHING, Amount
from chargehand.engine.facts import RouteChosen
from chargehand.engine.failure import Failure
from chargehand.engine.owed import Brief
from chargehand.engine.plan import Combine, Task, TaskId
from chargehand.errors import Invalid
from chargehand.models.model import Model
from chargehand.models.request_facts import WorkerCard
from chargehand.runtime.executor import Proposal, StepContext, WorkFailed
from chargehand.runtime.load import WorkerLoad

_SHOWN = 5  # scores that are noted
_NAMED = 12  # workers that a refusal tells of
_LONGEST = 160
_CALL = (1000, 1000)  # tokens in and out of a call, where nobody said what a task takes


async def route(
    strategy: Route, lead: Lead, brief: Brief, context: StepContext, load: Mapping[str, WorkerLoad] | None = None
) -> Proposal:
    """Who does it; nobody is chosen in silence. Asked again, only those who have not had it come into question."""
    if brief.tasks and not brief.replan:
        return Proposal((), lead.combine or "forward", used=NOTHING)
    try:
        check(strategy, lead.names)
    except Invalid as error:
        raise WorkFailed(Failure("logic", str(error), permanent=True), NOTHING) from error
    had = {task.worker for task in brief.tasks}
    cards = [card for card in lead.cards if card.name != strategy.generalist and card.name not in had]
    store = context.route_examples if strategy.learn else None
    examples = None if store is None else ConfirmedExamples(store)
    if examples is not None:
        cards = await examples.extend(cards)
    found, used = await decide(
        strategy=strategy, lead=lead, brief=brief, context=context, cards=cards, examples=examples
    )
    view = load or context.worker_loads()
    found = found if found.router == "rules" else shifted(found, view)
    names, reason = _chosen(strategy, found, had, view)
    context.expect_work(names)
    chosen = RouteChosen(names, found.router, found.confidence, found.scores[:_SHOWN])
    context.note(_told(names, reason, found, view), fact=chosen)
    if not names and brief.tasks:
        some: Combine = "select" if strategy.samples > 1 else "forward"
        return Proposal((), lead.combine or some, used=used)  # what failed is a gap already
    if not names:
        return Proposal((), lead.combine or "forward", used=used, unserved=(_unserved(reason, lead.cards),))
    if strategy.samples > 1:
        names = names[:1] * (1 if brief.tasks else await _affordable_samples(strategy.samples, names[0], lead, context))
    return _proposed(names[: max(1, lead.max_tasks)], lead, brief, used, sampled=strategy.samples > 1)


def check(strategy: Route, names: Sequence[str]) -> None:
    """Raise Invalid where a way names a worker who is not there, or settings that exclude each other."""
    if strategy.generalist and strategy.generalist not in names:
        raise Invalid(f"the generalist {strategy.generalist!r} is not on the team; there are {', '.join(names)}")
    if strange := next((name for name in strategy.rules.values() if name not in names), None):
        raise Invalid(f"a rule of the route names {strange!r}, who is not on the team; there are {', '.join(names)}")
    if strategy.samples > 1 and strategy.secondary:
        raise Invalid("the route has samples and a secondary worker; one request goes to several workers or is sampled")


def _chosen(
    strategy: Route, found: Decision, had: set[str], load: Mapping[str, WorkerLoad]
) -> tuple[tuple[str, ...], str]:
    """Who gets it, and why these: a fallback says that it is one. What a rule says holds whatever the load."""
    spare = strategy.generalist if strategy.generalist not in had else ""
    if spare and found.router != "rules" and not load.get(spare, WorkerLoad()).shut and out_of_order(found, load):
        return (spare,), f"the generalist gets it: {found.worker} is out of order, and nobody else fits: {found.why}"
    least = LEAST[found.router] if strategy.threshold is None else strategy.threshold
    sure = found.router == "rules" or found.confidence >= least
    pair = (found.worker, found.second) if strategy.secondary else (found.worker,)
    names = tuple(name for name in pair if name is not None)
    if found.worker is not None and (sure or len(names) > 1):
        return names, found.why
    if found.worker is None:
        reason = found.why
    else:
        rival = f" or {found.second}" if found.second else ""
        reason = (
            f"not clear enough whether {found.worker}{rival} (confidence {found.confidence:.2f}, needed {least:.2f}): "
        )
        reason += found.why
    if spare:
        return (spare,), f"the generalist gets it: {reason}"
    return (), reason


def _told(names: Sequence[str], reason: str, found: Decision, load: Mapping[str, WorkerLoad]) -> str:
    scores = ", ".join(f"{name} {score:.2f}" for name, score in found.scores[:_SHOWN]) or "none"
    who = " and ".join(names) or "nobody"
    busy = seen([name for name in dict.fromkeys((*names, *dict(found.scores[:_SHOWN]))) if name in load], load)
    told = f"scores: {scores}{f'; load: {busy}' if busy else ''}"
    return f"route to {who}, confidence {found.confidence:.2f}, by {found.router}: {reason} ({told})"


def _unserved(reason: str, cards: Sequence[WorkerCard]) -> str:
    able = "; ".join(f"{card.name}: {_does(card)}" for card in cards[:_NAMED])
    more = f"; and {len(cards) - _NAMED} more" if len(cards) > _NAMED else ""
    return f"Nobody on the team was found for this request: {reason}. The team can do this: {able}{more}."


def _does(card: WorkerCard) -> str:
    said = card.description or ", ".join(card.phrases) or ", ".join(card.tags) or "says nothing of what it does"
    return " ".join(said.split())[:_LONGEST].rstrip(". ")


def _proposed(names: Sequence[str], lead: Lead, brief: Brief, used: Amount | None, *, sampled: bool) -> Proposal:
    taken = {task.id for task in brief.tasks}
    free = (one for number in range(1, len(taken) + len(names) + 1) if (one := TaskId(f"t{number}")) not in taken)
    gaps = [gap.task for gap in brief.gaps if gap.task in taken]
    tasks: list[Task] = []
    for at, name in enumerate(names):
        replaces = TaskId(gaps[at]) if at < len(gaps) else TaskId("")
        asked = brief.goal
        if sampled and len(names) > 1:  # a mark tells samples apart, so that none passes for another one done twice
            asked = f"{brief.goal}\n\nAnswer on your own: this is sample S{at + 1}."
        tasks.append(Task(next(free), asked, name, replaces=replaces))
    together = len(names) > 1 or any(task.id not in gaps for task in brief.tasks)
    several: Combine = "select" if sampled else "merge"
    return Proposal(tuple(tasks), lead.combine or (several if together else "forward"), used=used)


# --- samples: one request put to one worker several times, side by side


def sample_cost(worker: Worker, models: Sequence[Model]) -> Amount:
    """What one sample is taken to cost at least: what its worker is estimated at, and a call of its model."""
    price = max((model.card.price(*_CALL) or 0 for model in models), default=0)
    return worker.estimate.max(Amount(tokens=sum(_CALL), micros=price, calls=1))


async def _affordable_samples(samples: int, worker: str, lead: Lead, context: StepContext) -> int:
    """How many samples of this worker's there is money and room for; one in any case."""
    wanted = min(samples, max(1, lead.max_tasks))
    cost = NOTHING if lead.sample is None else lead.sample(worker)
    count = 1 + await context.afford(cost, wanted - 1) if wanted > 1 else 1
    if count < samples:
        context.note(f"{count} of {samples} samples: what is left does not cover more")
    return count
