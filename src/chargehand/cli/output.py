"""Where a run is shown: a live view on a terminal, else one line an event; and errors that a person must fix."""

import sys
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from chargehand.cli.console import Console, clean, clean_lines
from chargehand.cli.transcript import Transcript
from chargehand.core.state import Work
from chargehand.models.failed import headline
from chargehand.models.waits import Wait
from chargehand.runtime.run_log import traceback_text
from chargehand.terms import events as ev
from chargehand.terms.events import Entry
from chargehand.terms.failure import CodeError, Refusal
from chargehand.terms.policy import Instant

if TYPE_CHECKING:
    from chargehand.cli.live_view import LiveView


class Output:
    """`options` may hold json, jsonl, quiet and verbose. `data` is where the answer or the entries go."""

    def __init__(
        self, options: Namespace, run: str, data: Console | None = None, clock: Callable[[], Instant] = time.time
    ) -> None:
        given = vars(options)
        quiet = bool(given.get("quiet"))
        self.jsonl = bool(given.get("jsonl"))
        self.console = Console(sys.stderr, quiet=quiet)
        self.data = data or Console(sys.stdout)
        mixed = self.jsonl and self.data.terminal  # entries would be written into the picture
        moves = self.console.terminal and self.console.draws and not quiet and not mixed
        to = self.console if given.get("json") else self.data
        told = bool(given.get("verbose"))
        self.transcript = Transcript(self.console, to, jsonl=self.jsonl, lines=not moves or told, models=told)
        self._run = run
        self._view = self._make_view(clock) if moves else None
        self._hushed = False
        self.waits: Sequence[Wait] = ()

    def catch_up(self, entries: Sequence[Entry]) -> None:
        if entries:
            self.transcript.catch_up(self._run, entries)

    def hear(self, entries: Sequence[Entry]) -> None:
        if entries:
            self.transcript.hear(self._run, entries)
        if self._view is not None:
            self._view.forget(entries)
            if not self._hushed:
                self._view.start()

    def whisper(self, work: Work, text: str) -> None:
        """Text as a model writes it."""
        if self._view is not None:
            self._view.hear(work, text)

    async def move(self, *_: object) -> None:
        """Keep the picture moving until cancelled."""
        if self._view is not None:
            await self._view.move()

    def draw(self) -> None:
        if self._view is not None:
            self._view.draw()

    def start(self) -> None:
        """Let the picture move again."""
        self._hushed = False
        if self._view is not None:
            self._view.start()

    def stop(self, *, keep: bool = False) -> None:
        """Take the picture away, unless it is to stay, and show none while entries come in."""
        self._hushed = True
        if self._view is not None:
            self._view.stop(keep=keep)

    @property
    def moves(self) -> bool:
        """Whether there is a picture that moves."""
        return self._view is not None

    def close(self) -> None:
        """The end of it. A picture that stays shows the timeline already, and the answer comes last below it."""
        self.stop(keep=True)
        if not self.moves:
            self.transcript.close()
            return
        self.transcript.show_gaps()
        self.transcript.show_answer()
        self.transcript.show_summary()

    def _make_view(self, clock: Callable[[], Instant]) -> "LiveView":
        from chargehand.cli.live_view import LiveView  # noqa: PLC0415 - it brings Rich, which only a terminal needs

        return LiveView(
            console=self.console, transcript=self.transcript, run=self._run, clock=clock, waits=lambda: self.waits
        )


_UNDECIDED = (
    ev.RunRequested,
    ev.ResultsOffered,
    ev.SupervisionStarted,
    ev.AttemptStarted,
    ev.StepStarted,
    ev.PromptSent,
)


class ProblemReport:
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
            refusal = failure.refusal
            mistake = failure.code_error
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


def is_first_outcome(entry: ev.Entry) -> bool:
    """Whether a run has come as far as its first outcome: until then nobody knows whether its models answer."""
    return not isinstance(entry.event, _UNDECIDED)
