"""What happens in runs, for `logging`: retries, breakers, refusals, mistakes in code, resumed runs.

It says what the journal says, to whoever listens to `logging.getLogger("chargehand")`; it decides nothing.
"""

import logging

from chargehand.core.state import RunState
from chargehand.models.failed import headline
from chargehand.terms import events as ev
from chargehand.terms.failure import CodeError

logger = logging.getLogger(__name__)

LOGGED = frozenset((ev.AttemptFailed, ev.SupervisionFailed, ev.Noted, ev.RetryScheduled, ev.TaskFailed, ev.RunResumed))
"""The events that are worth a line."""


class RunLog:
    """The lines of one run. What is true of many tasks, a mistake in code or a refusal, is said once."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._said: set[tuple[str, ...]] = set()

    def hear(self, state: RunState, event: ev.Event) -> None:
        """Log an event that was just written; `state` is as it is after it."""
        match event:
            case ev.RunResumed():
                logger.info("run %s: resumed after entry %d", self._run, state.seq - 1)
            case ev.RetryScheduled():
                self._retry(state, event)
            case ev.TaskFailed():
                logger.info("run %s: task %s failed (%s)", self._run, event.task, event.failure.kind)
            case _:
                failure = ev.failure_in(event)
                if failure is not None:
                    self._failure(failure)

    def breaker(self, text: str, *, opened: bool) -> None:
        """A breaker changed."""
        logger.log(logging.WARNING if opened else logging.INFO, "run %s: %s", self._run, text)

    def _retry(self, state: RunState, event: ev.RetryScheduled) -> None:
        failure = state.tasks[event.task].failure
        kind = "" if failure is None else f" after {failure.kind}: {failure.message[:200]}"
        if event.worker:
            logger.info("run %s: task %s goes to %s%s", self._run, event.task, event.worker, kind)
        else:
            wait = max(0.0, event.after - state.at)
            logger.info("run %s: task %s is tried again in %.1f s%s", self._run, event.task, wait, kind)

    def _failure(self, failure: ev.Failure) -> None:
        mistake = failure.code_error
        refusal = failure.refusal
        if mistake is not None and self._first(mistake.exception, mistake.place()):
            logger.error("run %s: a mistake in code: %s\n%s", self._run, mistake.describe(), traceback_text(mistake))
        if refusal is not None and self._first(refusal.model, refusal.cause):
            logger.warning("run %s: %s", self._run, headline(refusal))

    def _first(self, *key: str) -> bool:
        if key in self._said:
            return False
        self._said.add(key)
        return True


def traceback_text(mistake: CodeError) -> str:
    """The end of a traceback, as Python prints it."""
    lines = ["Traceback (most recent call last, its end):"]
    for frame in mistake.frames:
        lines.append(f'  File "{frame.file}", line {frame.line}, in {frame.function}')
        if frame.source:
            lines.append(f"    {frame.source}")
    lines.append(f"{mistake.exception}: {mistake.message}" if mistake.message else mistake.exception)
    return "\n".join(lines)
