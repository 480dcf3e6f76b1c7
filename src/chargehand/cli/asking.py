"""Ask the person at the terminal what a run asks: may this plan, may this call, what became of that effect."""

import asyncio
import os
import sys
from argparse import Namespace
from collections.abc import Callable

from chargehand.cli.carry import Leave
from chargehand.cli.console import Console, clean
from chargehand.errors import Refused
from chargehand.runtime.driver import Driver
from chargehand.terms import events as ev

_QUESTIONS = {
    "plan": "May this plan run?",
    "tool": "May this call be made?",
    "effect": "Nobody knows whether this happened. What became of it?",
}
_ANSWERS: dict[str, dict[str, str]] = {
    "plan": {"y": "approve", "n": "reject"},
    "tool": {"y": "approve", "n": "reject"},
    "effect": {"a": "again", "f": "fail"},
}
_HINTS = {"plan": "y yes, n no", "tool": "y yes, n no", "effect": "a do it again, f count it as failed"}


def may_ask(options: Namespace, console: Console) -> bool:
    """Whether somebody is there to answer."""
    return console.terminal and sys.stdin.isatty() and not vars(options).get("no_input", False)


class Asker:
    """`quiet` is done before a question and `go_on` after it, so that nothing moves while somebody types."""

    def __init__(self, console: Console, run: str, quiet: Callable[[], None], go_on: Callable[[], None]) -> None:
        self._console = console
        self._run = run
        self._quiet = quiet
        self._go_on = go_on
        self._open: asyncio.Queue[ev.InputRequested] = asyncio.Queue()

    def hear(self, entry: ev.Entry) -> None:
        if isinstance(entry.event, ev.InputRequested):
            self.put(entry.event)

    def put(self, asked: ev.InputRequested) -> None:
        self._open.put_nowait(asked)

    async def answer(self, driver: Driver, leave: Leave) -> None:
        """Answer every question as it comes; an empty reply leaves the run where it stands."""
        while True:
            asked = await self._open.get()
            self._quiet()
            found = await self._ask(asked)
            if found is None:
                leave()
                return
            self._go_on()
            try:
                await driver.ask(self._run, found)
            except Refused as error:
                self._console.line(clean(str(error)), "warn")

    async def _ask(self, asked: ev.InputRequested) -> ev.InputAnswered | None:
        about = f" {clean(asked.task)}:" if asked.task else ""
        if asked.text:
            self._console.line(f"{about.strip()} {clean(asked.text)}".strip(), "bold")
        known = _ANSWERS[asked.what]
        while True:
            said = await self._read(f"{_QUESTIONS[asked.what]}  [{_HINTS[asked.what]}, Enter: decide later] ")
            if not said:
                return None
            verdict = known.get(said[:1].lower())
            if verdict == "reject":
                why = await self._read("Why not? ")
                return ev.InputAnswered(asked.number, "reject", why or "")
            if verdict == "approve" or verdict == "again" or verdict == "fail":
                return ev.InputAnswered(asked.number, verdict)
            self._console.line(f"say one of: {_HINTS[asked.what]}", "warn")

    async def _read(self, prompt: str) -> str | None:
        """One line from the terminal; None when it ends. Unlike a thread that reads, this can be given up."""
        self._console.write(self._console.paint(prompt, "bold"))
        loop, source = asyncio.get_running_loop(), sys.stdin.fileno()
        heard: asyncio.Future[bytes] = loop.create_future()

        def take() -> None:
            if not heard.done():
                heard.set_result(os.read(source, 65536))

        loop.add_reader(source, take)
        try:
            found = await heard
        finally:
            loop.remove_reader(source)
        return found.decode(errors="replace").strip() if found else None
