"""One line that says how far long work has come: written over on a terminal, elsewhere a line for every new thing."""

import sys
from asyncio import CancelledError
from collections.abc import Callable, Generator
from contextlib import contextmanager

from chargehand.cli.console import Console, clean


class ProgressLine:
    """`name` is what is worked on. With `still` nothing is said where there is no terminal."""

    def __init__(self, name: str, *, still: bool = False) -> None:
        self._name = name
        self._moving = sys.stderr.isatty()
        self._still = still
        self._last = ""

    def show(self, what: str, done: int, total: int) -> None:
        share = f"{min(done, total) * 100 // total:3d} %" if total else "     "
        said = clean(f"{self._name}: {share}  {what}")
        if self._moving and said != self._last:
            sys.stderr.write(f"\r\x1b[K{said}")
            sys.stderr.flush()
        elif not self._moving and not self._still and what != self._last:
            Console(sys.stderr).line(said, "dim")
        self._last = said if self._moving else what

    def end(self) -> None:
        if self._moving and self._last:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
        self._last = ""


@contextmanager
def told_if_stopped(line: ProgressLine, kept: Callable[[], str]) -> Generator[None]:
    """Take the line away at the end; after a Ctrl-C also say what is kept, and that nothing need be done twice."""
    try:
        yield
    except (CancelledError, KeyboardInterrupt):
        line.end()
        Console(sys.stderr).line(clean(f"stopped: {kept()}; the same command again does the rest"), "warn")
        raise
    finally:
        line.end()
