"""What is missing on the levels below a run, and how the run ended if that counts: read off its state.

A run inside another has a journal of its own; what it left out travels with its result. How it is handed over is
`handover`'s business.
"""

from collections.abc import Mapping
from typing import cast

import msgspec
from msgspec import Struct, structs

from chargehand.core.state import Progress, RunState, Status
from chargehand.models.exhibits import Exhibit
from chargehand.terms import events as ev
from chargehand.terms.failure import Gap
from chargehand.terms.plan import NO_TASK, TaskId
from chargehand.terms.roster import Agent
from chargehand.terms.value import decode_value

INWARDS = " > "


class InnerGap(Gap, frozen=True, omit_defaults=True, gc=False):
    """A gap of a run inside. `task` is the task outside whose result leaves something out.

    `worker` is the team that has it (inwards, with ` > ` between), `run` and `inner` where it is missing.
    """

    worker: str = ""
    run: str = ""
    inner: TaskId = NO_TASK


class Partly(Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="partly"):
    """A product that leaves something out, as the text says too."""

    text: str
    missing: tuple[str, ...]
    exhibits: tuple[Exhibit, ...] = ()
    sources: tuple[str, ...] = ()
    gaps: tuple[InnerGap, ...] = ()


def partly(value: object) -> Partly | None:
    """A result that says what it leaves out; None for any other."""
    if not isinstance(value, dict) or cast("Mapping[str, object]", value).get("kind") != "partly":
        return None
    try:
        return msgspec.convert(value, Partly)
    except msgspec.ValidationError:
        return None


def is_team(agent: Agent) -> bool:
    """Whether an agent is a team: nobody else works without a model and is known by what is inside."""
    return not agent.model and bool(agent.spec) and not agent.tools


def inner_gaps(state: RunState) -> tuple[InnerGap, ...]:
    """What teams left out of results they did deliver, unless another task was done in the place of theirs."""
    teams = {one.name for one in state.requested.roster.agents if is_team(one)}
    if not teams:
        return ()
    tasks = state.tasks.values()
    replaced = {one.task.replaces for one in tasks if one.status is Status.DONE and one.task.replaces}
    done = (one for one in tasks if one.status is Status.DONE and one.task.id not in replaced)
    return tuple(gap for one in done if one.worker in teams or not one.worker for gap in _left_out(one))


def _left_out(progress: Progress) -> tuple[InnerGap, ...]:
    found = None if progress.result is None else partly(decode_value(progress.result))
    gaps = () if found is None else found.gaps
    return tuple(structs.replace(one, task=progress.task.id) for one in gaps)


def end_of(state: RunState) -> ev.RunEnded | None:
    """How a run ended, all levels counted: with a gap below it is partial, however well its own tasks went."""
    ended = state.ended
    if ended is None or ended.ending not in ("complete", "partial"):
        return ended
    below = inner_gaps(state)
    if not below:
        return ended
    known = {one.reason for one in below}
    reason = ended.reason
    if reason in ("done", "gaps"):  # what ended a run below ends those above for the same reason
        reason = "deadline" if "deadline" in known else "budget" if "budget" in known else "gaps"
    return ev.RunEnded("partial", reason, (*ended.gaps, *below))
