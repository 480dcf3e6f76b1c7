"""A view of a run that moves, on a terminal. What it shows is worked out in `board`; it changes nothing."""

import asyncio
import time
from collections.abc import Callable, Sequence

from rich.console import Console as Page
from rich.console import Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from chargehand.cli.board import MOST, Foot, Row, rows, title
from chargehand.cli.console import Console, Tone, clean
from chargehand.cli.tale import Tale
from chargehand.core.state import Work
from chargehand.terms.events import Entry
from chargehand.terms.policy import Instant

_PICTURES = 8  # a second
_STYLES: dict[Tone, str] = {"good": "green", "bad": "red", "warn": "yellow", "dim": "dim", "bold": "bold", "plain": ""}
_AROUND = 6  # lines of a terminal that are no rows
_HEARD = 24  # of the text a model is writing, this much is shown


class LiveView:
    """`clock` tells the time in the entries: that of the wall, unless a run is told again."""

    def __init__(self, console: Console, tale: Tale, run: str, clock: Callable[[], Instant] = time.time) -> None:
        self._console = console
        self._tale = tale
        self._run = run
        self._clock = clock
        self._foot = Foot()
        self._said: dict[str, str] = {}
        colours = "auto" if console.coloured else None
        self._page = Page(file=console.stream, force_terminal=True, color_system=colours, highlight=False, markup=False)
        self._live: Live | None = None

    # --- while it goes on

    def start(self) -> None:
        if self._live is None:
            kept = Live(console=self._page, auto_refresh=False, transient=False)
            self._live = kept
            kept.start()
            self._console.pen = lambda text: self._page.print(Text.from_ansi(text.rstrip("\n")), soft_wrap=True)
            self.draw()

    def stop(self, *, keep: bool = True) -> None:
        """End it; the last picture stays, unless it is to go on after a question."""
        if self._live is not None:
            self.draw()
            self._live.transient = not keep
            self._live.stop()
            self._console.pen = None
            self._live = None

    async def move(self) -> None:
        """A new picture several times a second, until cancelled."""
        while True:
            self.draw()
            await asyncio.sleep(1 / _PICTURES)

    def draw(self) -> None:
        if self._live is not None:
            self._live.update(self._picture(), refresh=True)

    def hear(self, _run: str, work: Work, text: str) -> None:
        """Text that a model is writing."""
        if work.task:
            self._said[work.task] = (self._said.get(work.task, "") + clean(text))[-_HEARD:]

    def forget(self, entries: Sequence[Entry]) -> None:
        """What was being written is written."""
        for entry in entries:
            self._said.pop(getattr(entry.event, "task", ""), None)

    # --- one picture

    def _picture(self) -> RenderableType:
        if not self._tale.begun:
            return Text("")
        state, measures, now = self._tale.state, self._tale.measures, self._clock()
        most = max(3, min(MOST, self._page.height - _AROUND))
        found = rows(state, measures, self._said, most)
        now = state.at if state.ended is not None else now
        foot = Text(self._foot.line(state, measures, now), no_wrap=True, overflow="ellipsis")
        body = Group(self._table(found, now), foot) if found else foot
        return Panel(body, title=Text(title(self._run, state)), padding=(0, 1))

    def _table(self, found: list[Row], now: Instant) -> Table:
        table = Table(box=None, padding=(0, 1, 0, 0), expand=True, show_edge=False, header_style="dim")
        room = max(10, self._page.width // 4)
        took = f"timeline 0..{max(now - self._tale.measures.began, 0.0):.1f} s"
        table.add_column("", no_wrap=True, width=9)
        table.add_column("task", no_wrap=True, overflow="ellipsis", ratio=5)
        table.add_column("worker", no_wrap=True, overflow="ellipsis", max_width=14)
        table.add_column(took, no_wrap=True, overflow="ellipsis", width=room)
        table.add_column("try", no_wrap=True, justify="right")
        table.add_column("tok", no_wrap=True, justify="right")
        table.add_column("$", no_wrap=True, justify="right")
        table.add_column("", no_wrap=True, overflow="ellipsis", ratio=4)
        for row in found:
            bar = self._tale.measures.timeline.bar(row.name, room, now)
            style = _STYLES[row.tone]
            bar, note = (bar, row.note) if bar else (row.note, "")  # what did not begin has room there
            cells = (row.state, row.task, row.worker, bar, row.tries, row.tokens, row.dollars, note)
            table.add_row(*(Text(cell, style=style if at in (0, 7) else "") for at, cell in enumerate(cells)))
        return table
