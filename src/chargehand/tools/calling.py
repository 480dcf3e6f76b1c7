"""How a call of a tool runs and ends: plain functions in threads, failures in words, results cut to size.

Blocking functions run beside the event loop, in a bounded number of threads. Python cannot stop a thread: one whose
time is up is given up. It runs on until its function returns or the process ends, another takes its place, and neither
the caller nor the end of the interpreter waits for it.
"""

import asyncio
import contextlib
import contextvars
import os
import threading
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from time import monotonic
from typing import Any

from chargehand.code_errors import code_error, is_outage, message_of
from chargehand.engine.failure import CodeError
from chargehand.engine.policy import Seconds

_ROOM = 2000
_ASKED_WRONG = (ValueError, LookupError, ArithmeticError)  # what functions raise for arguments they cannot use


class ToolFailed(Exception):
    """Raise it in a tool: the message reaches the model as it is. Say what is wrong and what would be right.

    `broken` says that the tool itself is out of order: no other arguments would help. One that says so again and again
    is left alone for a while. `unknown` says that the tool may have done its work all the same. `code_error` is the
    mistake in the tool's code that was met.
    """

    unknown = False
    code_error: CodeError | None = None

    def __init__(self, message: str = "", *, broken: bool = False) -> None:
        self.broken = broken
        super().__init__(message)


def failed_by(error: BaseException, arguments: Mapping[str, object] | None = None) -> ToolFailed:
    """What came of a call that raised; the exception itself is the cause.

    Three things a function can raise: what the model may put right (ToolFailed, ValueError and whatever is neither of
    the other two), an outage (`is_outage`), and a mistake in its own code (`code_error`), which no model can mend.
    """
    if isinstance(error, ToolFailed):
        return error
    text = message_of(error)
    kind = type(error).__name__
    out = is_outage(error) and not isinstance(error, _ASKED_WRONG)
    failed = ToolFailed(f"{kind}: {text}"[:_ROOM] if text else kind, broken=out)
    failed.code_error = code_error(error, arguments)
    failed.__cause__ = error
    failed.unknown = True
    return failed


def capped(text: str, cap: int) -> tuple[str, bool]:
    """The text in at most `cap` bytes of UTF-8 besides a note on what is missing, and whether anything was cut.

    It is cut after a line where one ends in the second half, else between two characters.
    """
    if len(text) * 4 <= cap:
        return text, False
    body = text.encode(errors="replace")
    if len(body) <= cap:
        return text, False
    part = body[: max(cap, 0)].decode(errors="ignore")
    line = part.rfind("\n") + 1
    if line > len(part) // 2:
        part = part[:line]
    missing = len(body) - len(part.encode())
    gap = "" if not part or part.endswith("\n") else "\n"
    return f"{part}{gap}[cut here: {missing:,} of {len(body):,} bytes are not shown]", True


# --- threads


MAX_THREADS = 64
MAX_LOST = 256


class GivenUp(Exception):
    """The function did not return in time. Its thread is left to itself."""


class _Job:
    __slots__ = ("arguments", "began", "context", "ended", "error", "function", "future", "loop", "lost", "value")

    def __init__(self, function: Callable[..., Any], arguments: dict[str, Any]) -> None:
        self.function = function
        self.arguments = arguments
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[None] = self.loop.create_future()
        self.context = contextvars.copy_context()
        self.began: Seconds = 0.0
        self.ended = False
        self.lost = False
        self.value: Any = None
        self.error: BaseException | None = None

    def settle(self) -> None:
        if not self.future.done():
            self.future.set_result(None)


class Threads:
    """At most `most` jobs at a time; the others wait, and their time does not run yet."""

    def __init__(self, most: int = MAX_THREADS, max_lost: int = MAX_LOST) -> None:
        self._most = most
        self._most_lost = max_lost
        self._reset()
        os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        """No threads, no jobs: so it is at first, and in a forked process, which has none of its parent's threads."""
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        self._lock = threading.Lock()
        self._count = 0  # threads that are not given up
        self._idle = 0  # of these, the ones no job in the queue is meant for
        self._backlog = 0  # jobs in the queue that no thread is meant for yet
        self._lost = 0

    async def call(self, function: Callable[..., Any], arguments: dict[str, Any], seconds: Seconds) -> Any:
        """What the function returns; ToolFailed when it raises, GivenUp when its time is up."""
        job = _Job(function, arguments)
        self._take(job)
        timer = job.loop.call_later(seconds, self._watch, job, seconds)
        try:
            await job.future
        except BaseException:
            self._give_up(job)
            raise
        finally:
            timer.cancel()
        if job.lost:
            raise GivenUp
        if job.error is not None:
            raise failed_by(job.error, arguments)
        return job.value

    def _take(self, job: _Job) -> None:
        with self._lock:
            if self._lost >= self._most_lost:
                raise ToolFailed(f"{self._lost} calls of tools never returned, so no more are made; start over")
            if self._idle:
                self._idle -= 1
            elif self._count < self._most:
                self._spawn()
            else:
                self._backlog += 1
        self._jobs.put(job)

    def _spawn(self) -> None:
        self._count += 1
        threading.Thread(target=self._work, name="chargehand-tool", daemon=True).start()

    def _watch(self, job: _Job, seconds: Seconds) -> None:
        """The time is up, unless the job has spent some of it waiting for a thread."""
        remaining = job.began + seconds - monotonic() if job.began else seconds
        if remaining > 0.001:
            job.loop.call_later(remaining, self._watch, job, seconds)
        elif not job.future.done():
            self._give_up(job)
            job.settle()

    def _give_up(self, job: _Job) -> None:
        with self._lock:
            if job.ended or job.lost:
                return
            job.lost = True
            if not job.began:
                return  # still in the queue: a thread will drop it
            self._count -= 1
            self._lost += 1
            if self._backlog:
                self._backlog -= 1
                self._spawn()

    def _work(self) -> None:
        while self._next():
            pass

    def _next(self) -> bool:
        """Do one job; False when this thread is to end."""
        job = self._jobs.get()
        with self._lock:
            job.began = 0.0 if job.lost else monotonic()
        if job.began:
            try:
                job.value = job.context.run(job.function, **job.arguments)
            except BaseException as error:  # noqa: BLE001 - a foreign function; nothing it raises may end this thread
                job.error = error
        return self._finish(job)

    def _finish(self, job: _Job) -> bool:
        with self._lock:
            job.ended = True
            if job.lost and job.began:
                self._lost -= 1  # its place was given to another
                return False
            if self._backlog:
                self._backlog -= 1
            else:
                self._idle += 1
        with contextlib.suppress(RuntimeError):  # a closed loop: no caller waits any more
            job.loop.call_soon_threadsafe(job.settle)
        return True


THREADS = Threads()
