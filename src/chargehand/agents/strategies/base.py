"""What all strategies have in common: each proposes tasks for the same growing plan."""

from collections.abc import Coroutine, Sequence
from itertools import count
from typing import Annotated, Any, ClassVar, TypeAlias

from msgspec import Meta

from chargehand.agents import planner
from chargehand.agents.supervision import Lead
from chargehand.engine.budget import NOTHING, Amount
from chargehand.engine.declared import Declared
from chargehand.engine.owed import Brief
from chargehand.engine.plan import Task
from chargehand.runtime.executor import Proposal, StepContext

Turns: TypeAlias = Annotated[int, Meta(ge=0, le=1000)]
Few: TypeAlias = Annotated[int, Meta(ge=0, le=10)]


class StrategyBase(Declared, frozen=True):
    """A way to lead a team. The scheduler never knows which it is."""

    takes_turns: ClassVar[bool] = False
    """Whether each task is a turn that reads those before it."""

    def propose(self, lead: Lead, brief: Brief, context: StepContext) -> Coroutine[Any, Any, Proposal]:
        """The next tasks of the plan, or none; WorkFailed with findings for the next try."""
        raise NotImplementedError


def close_plan(lead: Lead, used: Amount | None = NOTHING) -> Proposal:
    """No more tasks."""
    return Proposal((), lead.combine or "merge", used=used)


def end_if_rejected(lead: Lead, brief: Brief) -> Proposal | None:
    """Return the end of a plan that a person rejected, for a strategy that would propose the same again; else None."""
    reason = next((finding.message for finding in brief.findings if finding.code == "rejected_by_person"), "")
    if not reason:
        return None
    text = f"The plan was rejected, and this strategy proposes no other: {reason}"
    return Proposal((), lead.combine or "merge", used=NOTHING, unserved=(text,))


def free_id(tasks: Sequence[Task]) -> str:
    """An id for the next task that none has."""
    taken = {task.id for task in tasks}
    return next(name for number in count(len(taken) + 1) if (name := f"t{number}") not in taken)


# --- the strategy `plan`: one plan for the whole request


class Whole(StrategyBase, frozen=True, tag="plan"):
    """One plan for the whole request; more only when the planner reviews or replans."""

    def propose(self, lead: Lead, brief: Brief, context: StepContext) -> Coroutine[Any, Any, Proposal]:
        return planner.plan(lead, brief, context)
