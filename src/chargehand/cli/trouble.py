"""What stands in the way of a run and can only be put right by a person: refusals of a provider, mistakes in code.

Each is said once, when it is met: a refusal in one line, a mistake with the end of its traceback.
"""

from collections.abc import Sequence

from chargehand.cli.console import Console, clean, clean_lines
from chargehand.models.failed import headline
from chargehand.runtime.run_log import traceback_text
from chargehand.terms import events as ev
from chargehand.terms.failure import CodeError, Refusal

_UNDECIDED = (
    ev.RunRequested,
    ev.ResultsOffered,
    ev.SupervisionStarted,
    ev.AttemptStarted,
    ev.StepStarted,
    ev.PromptSent,
)


class Trouble:
    """What was met so far, in the order it was met."""

    def __init__(self) -> None:
        self._refusals: dict[tuple[str, str], Refusal] = {}
        self._mistakes: dict[tuple[str, str], CodeError] = {}

    def hear(self, entries: Sequence[ev.Entry], console: Console) -> None:
        """Say what is new in these entries."""
        for entry in entries:
            failure = ev.failure_in(entry.event)
            if failure is None:
                continue
            refusal, mistake = failure.refusal, failure.code_error
            if refusal is not None and (refusal.model, refusal.cause) not in self._refusals:
                self._refusals[refusal.model, refusal.cause] = refusal
                console.prose(f"error: {clean(headline(refusal))}", "bad")
            if mistake is not None and (mistake.exception, mistake.place()) not in self._mistakes:
                self._mistakes[mistake.exception, mistake.place()] = mistake
                console.line(clean_lines(traceback_text(mistake)), "bad")

    @property
    def any(self) -> bool:
        return bool(self._refusals or self._mistakes)

    def close(self, console: Console, once_more: str) -> None:
        """The last line of a run that met a mistake in code: where it is, and what to do."""
        if not self._mistakes:
            return
        first = next(iter(self._mistakes.values()))
        more = len(self._mistakes) - 1
        others = f" (and {more} more, see above)" if more else ""
        console.prose(f"error: {clean(first.describe())}{others}. Mend the code, then: {once_more}", "bad")


def decides(entry: ev.Entry) -> bool:
    """Whether a run has come as far as its first outcome: until then nobody knows whether its models answer."""
    return not isinstance(entry.event, _UNDECIDED)
