"""The states of runs, tasks and attempts as people read them. `web/src/states.tsx` has the same words for the page."""

from typing import NamedTuple

from chargehand.cli.console import Tone
from chargehand.engine.state import RunState


class StateLook(NamedTuple):
    """How a state is shown."""

    sign: str
    word: str
    tone: Tone

    @property
    def label(self) -> str:
        return f"{self.sign} {self.word}"


STATES = {
    # tasks, by their status
    "waiting": StateLook("○", "waiting", "dim"),
    "ready": StateLook("○", "ready", "plain"),
    "running": StateLook("●", "running", "bold"),
    "judged": StateLook("↻", "retrying", "warn"),
    "refining": StateLook("~", "rewriting task", "warn"),
    "backing off": StateLook("↻", "retrying", "warn"),
    "expanded": StateLook("●", "running", "plain"),
    "asking": StateLook("?", "needs you", "warn"),
    "done": StateLook("✔", "done", "good"),
    "failed": StateLook("✘", "failed", "bad"),
    "skipped": StateLook("-", "skipped", "bad"),
    "unfinished": StateLook("-", "unfinished", "bad"),
    "dropped": StateLook("-", "dropped", "dim"),
    "reused": StateLook("»", "reused", "good"),
    # runs
    "complete": StateLook("✔", "complete", "plain"),
    "partial": StateLook("!", "partial", "warn"),
    "cancelled": StateLook("-", "cancelled", "warn"),
    "needs_input": StateLook("?", "needs you", "warn"),
    "paused": StateLook("○", "paused", "warn"),
    "interrupted": StateLook("✘", "interrupted", "warn"),
    "damaged": StateLook("✘", "damaged", "bad"),
    "planning": StateLook("●", "planning", "plain"),
    # attempts and duties of the supervisor, by their ending
    "succeeded": StateLook("✔", "succeeded", "good"),
    "under way": StateLook("●", "running", "bold"),
    "stopped": StateLook("-", "stopped", "dim"),
    "asked": StateLook("?", "asked a person", "warn"),
}


def state_of_run(state: RunState) -> str:
    """The state of a run that is followed: a key of `STATES`."""
    if state.ended is not None:
        return state.ended.ending
    if state.input is not None:
        return "needs_input"
    if state.paused:
        return "paused"
    return "running" if state.tasks else "planning"
