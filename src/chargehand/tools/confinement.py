"""Runs Python behind `walls`, takes what it says, and ends it in time. What a model is told is `sandbox`'s business.

Without a report that the walls stand, nothing counts as run.
"""

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from chargehand.tools.inside import READY
from chargehand.tools.walls import WORKSPACE, Cell, Limits, Unavailable, cell

GRACE = 2.0
LOOK_SECONDS = 0.1
KERNEL_BYTES = 32 << 20
INODE_BYTES = 1024
"""About what the kernel keeps for a file in memory besides its content, which counts as disk."""


class Outcome(Struct, frozen=True):
    """`stopped` says why we ended it; empty when it ended by itself."""

    stdout: bytes
    stderr: bytes
    exit: int
    seconds: float
    stopped: str = ""


class Running:
    """A process behind walls, what it has said so far, and how to end all of it."""

    def __init__(self, process: asyncio.subprocess.Process, made: Cell, most: int) -> None:
        self.process = process
        self.made = made
        self.out = Capture(most)
        self.err = Capture(most)
        self.took_too_much = False
        self.unwatched = ""
        self._child = 0
        self._ended = False

    async def serve(self, stdin: bytes) -> None:
        """Feed it, listen to it, and wait for it."""
        assert self.process.stdin is not None
        async with asyncio.TaskGroup() as group:
            watch = group.create_task(self.watch())
            group.create_task(feed(self.process.stdin, stdin))
            await self.listen()
            watch.cancel()

    async def watch(self) -> None:
        """End a program that makes the kernel keep much for it: no limit of a process counts that."""
        while not self._ended:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                self.took_too_much = self.child() > 0 and kernel_bytes(self.child()) > KERNEL_BYTES
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has ended just then, or not begun
            except OSError as error:
                self.unwatched = str(error)
            if self.took_too_much or self.unwatched:
                self.end()

    def child(self) -> int:
        """The number of process 1 in there, as it is called out here; 0 as long as it is not known."""
        if not self._child and (match := re.search(rb'"child-pid": *(\d+)', heard(self.made.info))):
            self._child = int(match[1])
        return self._child

    async def listen(self) -> None:
        """Until it is over and all is said; a process that says too much is ended."""
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        async with asyncio.TaskGroup() as group:
            group.create_task(self.out.take(self.process.stdout, self.end))
            group.create_task(self.err.take(self.process.stderr, self.end))
            group.create_task(self.process.wait())

    def end(self) -> None:
        """Kill process 1 in there, and the kernel kills the rest; bubblewrap outside notices, and leaves no zombie."""
        if self._ended or self.process.returncode is not None:
            return
        self._ended = True
        if not self.child() or not kill_child(self.process.pid, self.child()):
            self._kill()

    async def bury(self) -> None:
        """End it if it has not ended, and wait until nothing of it is left."""
        self.end()
        try:
            async with asyncio.timeout(GRACE):
                await self.listen()
        except TimeoutError:
            self._kill()
            await self.process.wait()

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()  # what is in there dies with it


def kernel_bytes(pid: int) -> int:
    """What the kernel keeps for a process in there: page tables, and files without their content."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    if os.path.samestat(os.stat(f"/proc/{pid}/root/"), os.stat("/")):  # noqa: PTH116 - a link that must be followed
        return 0  # the walls are not there yet
    tables = re.search(r"^VmPTE:\s*(\d+) kB", status, re.MULTILINE)
    files = os.statvfs(f"/proc/{pid}/root{WORKSPACE}")
    return (int(tables[1]) << 10 if tables else 0) + (files.f_files - files.f_ffree) * INODE_BYTES


def kill_child(parent: int, child: int) -> bool:
    """Whether it was killed. The number alone could by now be somebody else's: a child of this parent it must be."""
    try:
        held = os.pidfd_open(child)
    except OSError:
        return False
    try:
        status = Path(f"/proc/{child}/status").read_text(encoding="utf-8")
        if f"\nPPid:\t{parent}\n" not in status:
            return False
        signal.pidfd_send_signal(held, signal.SIGKILL)
    except OSError:
        return False
    finally:
        os.close(held)
    return True


def heard(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 4096)
    except BlockingIOError:
        return b""


class Capture:
    """Takes what a stream says, up to a point; past it, it calls for an end and throws the rest away."""

    def __init__(self, most: int) -> None:
        self.taken = bytearray()
        self.most = most
        self.full = False

    async def take(self, stream: asyncio.StreamReader, end: Callable[[], None]) -> None:
        while piece := await stream.read(65536):
            self.full = self.full or len(self.taken) + len(piece) > self.most
            self.taken += piece[: self.most - len(self.taken)]
            if self.full:
                end()


async def feed(stream: asyncio.StreamWriter, text: bytes) -> None:
    with contextlib.suppress(ConnectionError):  # it need not read what it is given
        stream.write(text)
        await stream.drain()
    stream.close()
    with contextlib.suppress(ConnectionError):
        await stream.wait_closed()


async def confined(code: str, stdin: str = "", limits: Limits | None = None) -> Outcome:
    """Run this Python behind walls. Raises Unavailable, and has run nothing, when one of them cannot be built."""
    limits = limits or Limits()
    with cell(code, limits) as made:
        began = time.monotonic()
        running = Running(await started(made), made, limits.output)
        stopped = ""
        try:
            async with asyncio.timeout(limits.seconds):
                await running.serve(stdin.encode(errors="replace"))
        except TimeoutError:
            stopped = f"it was still running after {limits.seconds:g} s"
        finally:
            await running.bury()
        out = running.out
        err = running.err
        confirm(made.report, bytes(err.taken))
        if running.unwatched:
            raise Unavailable(f"its memory cannot be watched here: {running.unwatched}")
        if running.took_too_much:
            stopped = f"it made the kernel keep more than {KERNEL_BYTES >> 20} MiB (files, page tables)"
        if out.full or err.full:
            stopped = f"it wrote more than {limits.output // 1024} KiB"
        seconds = round(time.monotonic() - began, 3)
        return Outcome(
            stdout=bytes(out.taken),
            stderr=bytes(err.taken),
            exit=running.process.returncode or 0,
            seconds=seconds,
            stopped=stopped,
        )


async def started(made: Cell) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    try:
        return await asyncio.create_subprocess_exec(
            *made.command, stdin=pipe, stdout=pipe, stderr=pipe, env={}, pass_fds=made.inherited, cwd="/"
        )
    except OSError as error:
        raise Unavailable(f"bubblewrap cannot be started: {error}") from error


def confirm(report: int, complaint: bytes) -> None:
    """Refuse to believe a run whose walls were not reported to stand."""
    said = heard(report)
    if said != READY:
        why = (said or complaint.strip() or b"no reason was given").decode(errors="replace")[:300]
        raise Unavailable(f"the sandbox could not be set up: {why}")


def standing() -> None:
    """Build the walls once around nothing; Unavailable when they do not stand."""
    with cell("", Limits()) as made:
        try:
            ran = subprocess.run(  # noqa: S603 - our own command
                made.command, capture_output=True, env={}, pass_fds=made.inherited, timeout=10, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Unavailable(f"bubblewrap cannot be started: {error}") from error
        confirm(made.report, ran.stderr)
