"""Where somebody looks on from: a view that moves on a terminal, else one line an event."""

import sys
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from chargehand.cli.console import Console
from chargehand.cli.tale import Tale
from chargehand.core.state import Work
from chargehand.models.waits import Wait
from chargehand.terms.events import Entry
from chargehand.terms.policy import Instant

if TYPE_CHECKING:
    from chargehand.cli.live import LiveView


class Seats:
    """`options` may hold json, jsonl, quiet and verbose. `data` is where the answer or the entries go."""

    def __init__(
        self, options: Namespace, run: str, data: Console | None = None, clock: Callable[[], Instant] = time.time
    ) -> None:
        given = vars(options)
        quiet, self.jsonl = bool(given.get("quiet")), bool(given.get("jsonl"))
        self.console = Console(sys.stderr, quiet=quiet)
        self.data = data or Console(sys.stdout)
        mixed = self.jsonl and self.data.terminal  # entries would be written into the picture
        moves = self.console.terminal and self.console.draws and not quiet and not mixed
        to = self.console if given.get("json") else self.data
        told = bool(given.get("verbose"))
        self.tale = Tale(self.console, to, jsonl=self.jsonl, lines=not moves or told, models=told)
        self._run = run
        self._view = self._make_view(clock) if moves else None
        self._hushed = False
        self.waits: Sequence[Wait] = ()

    def catch_up(self, entries: Sequence[Entry]) -> None:
        if entries:
            self.tale.catch_up(entries)

    def hear(self, entries: Sequence[Entry]) -> None:
        if entries:
            self.tale.hear(self._run, entries)
        if self._view is not None:
            self._view.forget(entries)
            if not self._hushed:
                self._view.start()

    def whisper(self, run: str, work: Work, text: str) -> None:
        """Text as a model writes it."""
        if self._view is not None:
            self._view.hear(run, work, text)

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
            self.tale.close()
            return
        self.tale.show_gaps()
        self.tale.show_answer()
        self.tale.show_summary()

    def _make_view(self, clock: Callable[[], Instant]) -> "LiveView":
        from chargehand.cli.live import LiveView  # noqa: PLC0415 - it brings Rich, which only a terminal needs

        return LiveView(self.console, self.tale, self._run, clock, lambda: self.waits)
