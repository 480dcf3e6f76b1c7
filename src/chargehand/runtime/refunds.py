"""Whether money that is held may come back while a run goes on."""

from chargehand.core.state import RunState


def spending(state: RunState) -> bool:
    """Whether a call is under way that may give money back."""
    steps = (step for work in state.owing if work.task for step in (state.tasks[work.task].steps or {}).values())
    return bool(state.planning.open or state.answering.open) or any(step.result is None for step in steps)
