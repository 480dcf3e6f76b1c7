"""A real terminal for a command: what it draws, and what somebody types into it."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from pathlib import Path

from tests.cli.commands import environment
from tests.cli.forked import Forked

_STEERING = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07")


class Terminal:
    """One command on a terminal of its own."""

    def __init__(self, folder: Path, *words: str | Path, columns: int = 110, rows: int = 40, **more: str) -> None:
        self._screen, keyboard = pty.openpty()
        fcntl.ioctl(keyboard, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.drawn = b""
        self.process = Forked(
            words,
            folder=folder,
            environment=environment(**{"TERM": "xterm", **more}),
            streams=(keyboard, keyboard, keyboard),
        )
        os.close(keyboard)

    def until(self, words: str, times: int = 1) -> None:
        """Read on until this was drawn, so many times."""
        limit = time.monotonic() + 20
        while self.shown.count(words) < times:
            assert time.monotonic() < limit, self.shown
            assert self._read() or self.shown.count(words) >= times, self.shown

    def type(self, words: str) -> None:
        os.write(self._screen, words.encode())

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def end(self) -> int:
        """Read the rest; the exit code."""
        while self._read():
            pass
        os.close(self._screen)
        return self.process.wait(timeout=20)

    @property
    def shown(self) -> str:
        """What was drawn, without what steers the terminal."""
        return _STEERING.sub(b"", self.drawn).decode(errors="replace").replace("\r", "")

    def _read(self) -> bool:
        ready, _, _ = select.select([self._screen], [], [], 20)
        if not ready:
            return False
        try:
            more = os.read(self._screen, 65536)
        except OSError:  # the other end is closed
            return False
        self.drawn += more
        return bool(more)
