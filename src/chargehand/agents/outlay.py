"""What carrying out a plan will cost in dollars, before anybody is called: a least and a most for each of its tasks.

The least is one call of its model for each task and one for the answer, the most all that steps, attempts and the
budget allow. What the planning costs is known once it is done, and not counted here.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct, structs

from chargehand.agents.acceptance import Checks, Reviewer, Verifier
from chargehand.agents.asking import Writer
from chargehand.agents.call_prices import (
    DENSE,
    RESULT,
    USUAL,
    Turns,
    at_least,
    at_most,
    reach,
    tokens,
    total,
    usually,
)  # fmt: skip
from chargehand.agents.calls import AT_ONCE
from chargehand.agents.contradictions import MOST as CONTRADICTIONS
from chargehand.agents.equip import Equipped
from chargehand.agents.inputs import LONGEST_DAY, SHORTEST_DAY
from chargehand.agents.lead import LONGEST_TASK, Lead, listing
from chargehand.agents.loop import Kit
from chargehand.agents.outlook import Outlay, Share
from chargehand.agents.recall import SUMMARY_SETTINGS
from chargehand.agents.subteam import Subteam
from chargehand.models.messages import Settings
from chargehand.models.model import Model
from chargehand.terms.budget import Budget
from chargehand.terms.forecast import in_line
from chargehand.terms.plan import NO_TASK, Plan, Task, needs
from chargehand.terms.policy import Policy
from chargehand.terms.roster import Agent, Roster
from chargehand.tools.tool import CAP

_ENVELOPE = 200  # tokens around what others found, with what was asked of them
_REMARK = 1_000  # tokens of what is wrong with a reply, for whoever sent it
_SEEN = 24  # results of tools that are shown to those who look at what came of them
_FAILED = 2_000  # tokens of what went wrong, for whoever puts a task better
_PERSONA = 700  # tokens of a worker that is made for its task
_WHOLE = 16  # so many times as long are results that are reduced
_ROUNDS, _PIECES = 4, 64  # of reducing results that do not fit into the window


class Means(Struct, frozen=True):
    """Who does the work and with which models. `made` is a worker such as the factory makes, by its name."""

    workers: Mapping[str, Equipped]
    lead: Lead
    writer: Writer
    kit: Kit
    made: Equipped | None
    teams: Mapping[str, Subteam]
    checks: Checks
    verifiers: Mapping[str, Model]


class _Cost(Struct, frozen=True):
    least: int | None
    about: int | None
    most: int | None


def outlay(means: Means, plan: Plan, roster: Roster, policy: Policy, budget: Budget, *, closed: bool = True) -> Outlay:
    """The dollars of a plan; one that is not `closed` is only the first part of it."""
    lines = [in_line(task.worker or task.match, roster) for task in plan.tasks]
    costs = [_task(means, task, line, policy) for task, line in zip(plan.tasks, lines, strict=True)]
    answer, names = _answer(means, plan, policy), list(dict.fromkeys(one.name for line in lines for one in line))
    least, about, most = (total(parts) for parts in zip(*map(structs.astuple, (*costs, answer)), strict=True))
    grows = _grows(means, names, policy, closed=closed)
    if least is None or about is None or most is None:
        least = about = most = None
    else:
        most = _capped(None if grows else most, budget)
        about = max(least, about if most is None else min(about, most))
    shares = [_shown(means, *one) for one in zip(plan.tasks, lines, costs, strict=True)]
    judge = means.writer.model.card.handle
    return Outlay(
        _usd(least), _usd(about), _usd(most), tuple(shares),
        Share(NO_TASK, "", judge, _usd(answer.least), _usd(answer.about), _usd(answer.most)),
        _unknown(means, names, plan.tasks) if least is None else (), grows, _rests_on(policy), _usd(budget.micros),
    )  # fmt: skip


def _capped(most: int | None, budget: Budget) -> int | None:
    if budget.micros is None:
        return most
    return budget.micros if most is None else min(most, budget.micros)


def _usd(micros: int | None) -> float | None:
    return None if micros is None else micros / 1_000_000


def _shown(means: Means, task: Task, line: list[Agent], cost: _Cost) -> Share:
    first = line[0].name if line else task.worker
    equipped = _equipped(means, first)
    model = equipped.models[0].card.handle if equipped is not None and equipped.models else ""
    return Share(task.id, first, model, _usd(cost.least), _usd(cost.about), _usd(cost.most))


def _equipped(means: Means, name: str) -> Equipped | None:
    made = means.made
    return made if made is not None and made.worker.name == name else means.workers.get(name)


def _unknown(means: Means, names: list[str], tasks: Sequence[Task]) -> tuple[str, ...]:
    """The models nobody knows the price of, unless their worker is estimated."""
    found = [means.lead.model, means.writer.model, *means.verifiers.values()]
    checks = [means.checks.by_name.get(one) for task in tasks for name in names for one in means.checks.of(task, name)]
    reviewers = [one.worker for one in checks if isinstance(one, Reviewer)]
    found += [
        model
        for name in (*names, *reviewers)
        if (one := _equipped(means, name)) is not None and not one.worker.estimate.micros
        for model in one.models
    ]
    return tuple(dict.fromkeys(model.card.handle for model in found if model.card.price(1, 1) is None))


def _grows(means: Means, names: list[str], policy: Policy, *, closed: bool) -> str:
    if not closed:
        return "the plan grows as results come in"
    if policy.limits.replans:
        return "what fails may be planned anew"
    if inner := [name for name in names if name in means.teams and not means.teams[name].free]:
        return f"{inner[0]} is a team that plans for itself"
    writing = [name for name in names if (one := means.workers.get(name)) is not None and one.worker.contacts]
    return f"{writing[0]} may write to others, who work for it then" if writing else ""


def _rests_on(policy: Policy) -> str:
    tries = policy.retry.attempts
    return (
        f"list prices and prompts; usually replies of {USUAL} tokens; at least one call a task, at most {tries} "
        f"attempts with all steps, replies as long as their max_tokens and {DENSE} bytes a token; "
        "replies that are billed, and then lost on the way, are not foreseen"
    )


# --- a task


def _task(means: Means, task: Task, line: list[Agent], policy: Policy) -> _Cost:
    found = [_attempt(means, task, agent.name, policy) for agent in line]
    least = [one.least for one in found]
    most = _tried(means, task, line, [one.most for one in found], policy)
    if None in least or most is None:
        return _Cost(None, None, None)
    known, about = min((one for one in least if one is not None), default=0), found[0].about if found else 0
    if task.for_each:  # over a list that may be empty
        return _Cost(0, about, policy.limits.items * most)
    return _Cost(known, about, most)


def _tried(means: Means, task: Task, line: list[Agent], costs: list[int | None], policy: Policy) -> int | None:
    """All attempts of all who may do it. Who of them is the first depends on who is idle, and in order."""
    retry, first, later = policy.retry, list[int](), list[int]()
    for agent, cost in zip(line, costs, strict=True):
        better = _refined(means, task, agent.name) if policy.refine else 0
        if cost is None or better is None:
            return None
        first.append(retry.attempts * cost + (retry.attempts - 1) * better)
        later.append(retry.fallback_attempts * cost + (retry.fallback_attempts - 1) * better)
    return sum(later) + max((one - two for one, two in zip(first, later, strict=True)), default=0)


def _attempt(means: Means, task: Task, name: str, policy: Policy) -> _Cost:
    given, asked, kit = len(needs(task)), _put(task, policy), means.kit
    reviews = _reviews(means, task, name, (_SEEN + given + 1) * RESULT + asked)
    equipped = _equipped(means, name)
    if equipped is None:  # a team; if it costs anything, there is no telling how much
        return _Cost(0, 0, total(reviews))
    worker, models, estimate = equipped.worker, equipped.models, equipped.worker.estimate.micros
    limits = [kit.purse.limits(model, worker.settings) for model in models]
    out = max(longer if worker.steps > 1 else limit for limit, longer in limits)
    specs = "".join(f"{one.name}{one.description}{bytes(one.parameters).decode()}" for one in equipped.specs)
    shape = "" if equipped.shape is None else bytes(equipped.shape.raw).decode()
    told, put = kit.system(equipped).text, kit.prompts.text("task", instruction=task.instruction, inputs="")
    least = at_least(models, len(told) + (0 if worker.rules else len(specs)), len(put) + len(SHORTEST_DAY))
    read = len(told) + len(specs) + len(shape) + len(put)
    about = usually(models, read, given, out, tools=bool(equipped.tools))
    if least is None and estimate:
        least, about = 0, estimate
    first = tokens(told, put, LONGEST_DAY) + asked + given * (RESULT + _ENVELOPE)
    if equipped.desk is not None:  # what it remembers takes what room there is
        first = max(first, reach(equipped.window))
    reads = CAP if given or equipped.tools else 0  # what was too long to show is read on in pieces
    largest = max((reads, *(one.cap for one in equipped.tools.values())))
    turns = Turns(first, tokens(specs, shape), out, worker.most_replies, _REMARK + AT_ONCE * -(-largest // DENSE))
    most = turns.at_most(models, estimate)
    more = [most] if kit.hedging is not None else []
    if equipped.desk is not None and equipped.desk.remembers:
        more.append(at_most(models, reach(equipped.window), SUMMARY_SETTINGS.max_tokens or 0, estimate))
    if equipped is means.made:
        more.append(at_most(models, first + _PERSONA * (1 + worker.most_replies), out, estimate))
    return _Cost(least, about, total([most, *more, *reviews, *reviews]))  # what is sent back is looked at again


def _put(task: Task, policy: Policy) -> int:
    """Tokens by which what is asked may grow when it is put better."""
    better = policy.refine and max(policy.retry.attempts, policy.retry.fallback_attempts) > 1
    return max(0, -(-LONGEST_TASK // DENSE) - tokens(task.instruction)) if better else 0


def _reviews(means: Means, task: Task, name: str, material: int) -> list[int | None]:
    """What those who look at a result cost at most."""
    found: list[int | None] = []
    for one in means.checks.of(task, name):
        check, models, by = means.checks.by_name.get(one), _reviewing(means, one), None
        told = check.prompt if isinstance(check, Verifier) else ""
        if isinstance(check, Reviewer) and check.worker in means.workers:
            by = means.workers[check.worker].worker
            told = by.description + by.prompt
        read = material + tokens(task.instruction, told, LONGEST_DAY) + _FAILED
        settings = by.settings if by else Settings()
        out = max((means.kit.purse.limits(model, settings)[0] for model in models), default=0)
        found.append(at_most(models, read, out, by.estimate.micros if by else 0))
    return found


def _reviewing(means: Means, name: str) -> tuple[Model, ...]:
    """The models that are asked by one check."""
    check = means.checks.by_name.get(name)
    if isinstance(check, Verifier):
        return (means.verifiers.get(name, means.writer.model),)
    if isinstance(check, Reviewer) and check.worker in means.workers:
        return means.workers[check.worker].models
    return ()


def _refined(means: Means, task: Task, name: str) -> int | None:
    """What it costs once to have the task put better."""
    lead = means.lead
    cards = [one for one in lead.cards if one.name == name]
    asked = max(tokens(task.instruction), LONGEST_TASK)
    told = tokens(lead.prompts.text("refine", worker=listing(cards)), LONGEST_DAY) + asked
    return _asked(means, lead.model, told + _FAILED, lead.settings)


def _asked(means: Means, model: Model, read: int, settings: Settings) -> int | None:
    """A call of the supervisor, and another one where its reply is cut."""
    limit, longer = means.kit.purse.limits(model, settings)
    prices = [at_most([model], read, limit)]
    if longer > limit:
        prices.append(at_most([model], read, longer))
    return total(prices)


# --- the answer


def _answer(means: Means, plan: Plan, policy: Policy) -> _Cost:
    writer, combine = means.writer, plan.combine
    if combine in ("none", "forward") or writer.own is not None or not plan.tasks:
        return _Cost(0, 0, 0)
    model, goal = writer.model, plan.goal
    out = means.kit.purse.limits(model, writer.settings)[1]
    each = [policy.limits.items if task.for_each else 1 for task in plan.tasks]
    count, asked = sum(each), sum(n * tokens(task.instruction) for n, task in zip(each, plan.tasks, strict=True))
    judged = writer.prompts.text("judge", instructions=writer.instructions, manner="", form="")
    ruling = _asked(means, model, tokens(judged, goal) + _FAILED + asked + count * RESULT, writer.settings)
    told = writer.prompts.text("answer", instructions=writer.instructions, manner="")
    results = asked + count * (RESULT * (_WHOLE if combine == "reduce" else 1) + _ENVELOPE)
    shared = model.card.window // 2 if writer.shared is not None else 0
    read = tokens(told, goal, LONGEST_DAY) + _FAILED + results + shared
    parts = [_asked(means, model, read, writer.settings)]
    if results > model.card.window // 2:
        parts.append(_times(_asked(means, model, results, writer.settings), _ROUNDS * _PIECES))
    if combine in ("select", "vote"):  # those that agree need no judge; what nobody delivered is put into words
        least, about = 0, usually([model], len(judged) + len(goal), len(plan.tasks), out, tools=False)
        parts.append(ruling)
    else:
        least = at_least([model], len(told), len(goal))
        about = usually([model], len(told) + len(goal), len(plan.tasks), out, tools=False)
        parts.append(_times(ruling, CONTRADICTIONS if count > 1 else 0))
    return _Cost(least, 0 if least == 0 and count == 1 else about, _times(total(parts), policy.limits.answers))


def _times(price: int | None, times: int) -> int | None:
    return None if price is None else price * times
