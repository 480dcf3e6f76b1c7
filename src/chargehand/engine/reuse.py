"""Build-system semantics: the same work on the same inputs need not be paid for twice.

A task's key is a hash of who may do it, what is asked and what goes in; its own name is not part of it.
"""

from msgspec import Raw

from chargehand.engine.events import Offer
from chargehand.engine.plan import TaskId, digest
from chargehand.engine.state import Progress, RunState, Status, candidates
from chargehand.engine.view import inputs


def key_of(state: RunState, progress: Progress) -> str:
    """The key of a task whose inputs are settled."""
    task = progress.task
    agents = (state.agents[name] for name in candidates(state, task.worker or task.match) if name in state.agents)
    specs = sorted(f"{agent.name}={agent.spec}" for agent in agents)  # in whatever order they stand
    parts = [digest(*specs), task.instruction, *task.accept]
    for one in inputs(state, progress):
        parts.append(digest(bytes(one.value)) if one.value is not None else "gap")
        parts.append(str(len(one.gaps)))
    return digest(*parts)


def is_traced(progress: Progress) -> bool:
    """Whether a result says nothing that its worker's tools did not return; whoever asks next may get it right."""
    tracing = progress.tracing
    return tracing is None or all(one.origin for one in tracing.untraced)


def offers(state: RunState) -> tuple[Offer, ...]:
    """What a fork of this run may use again: every finished result whose figures were all traced, under its key."""
    delivered = (one for one in state.tasks.values() if one.status is Status.DONE and one.result is not None)
    done = (one for one in delivered if is_traced(one))
    return tuple(offer_of(state, one, one.task.id) for one in done)


def offer_of(state: RunState, progress: Progress, task: TaskId) -> Offer:
    """A finished result as an offer; `task` is its name for whoever uses it again."""
    return Offer(
        key=key_of(state, progress),
        task=task,
        result=progress.result or Raw(b"null"),
        items=progress.items,
        tracing=progress.tracing,
        missing=progress.missing,
    )
