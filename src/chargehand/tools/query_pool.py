"""Processes that run SQL queries, kept warm between queries, and killed when a query does not end.

What a query may do is decided in `query_process`, the program they run. A process serves one query at a time.
"""

import atexit
import contextlib
import os
import select
import subprocess
import threading
from pathlib import Path
from time import monotonic
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from chargehand.engine.policy import Seconds
from chargehand.tools.calling import ToolFailed
from chargehand.tools.query_process import READY
from chargehand.tools.sandbox import interpreter

MEMORY = 256 << 20
RUNNING_PROCESSES = 8
IDLE_PROCESSES = 4
START_SECONDS: Seconds = 10.0
GRACE_SECONDS: Seconds = 1.0
REPLY_BYTES = 64 << 20
_PROGRAM = Path(__file__).with_name("query_process.py")
_INHERITED_VARIABLES = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "TMPDIR", "SQLITE_TMPDIR")
_ENCODER = msgspec.json.Encoder()


class Source(Struct, frozen=True, eq=False):
    """The database a query reads: a file by its URI, or an image of one, which the process gets when it starts."""

    file: str = ""
    image: bytes = b""


class Rows(Struct, frozen=True, tag="rows"):
    """What a query found. `more` is the number of rows left out; `tables` are those it read."""

    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]
    tables: tuple[str, ...]
    more: int


class Failure(Struct, frozen=True, tag="failure"):
    """Why a query found nothing; `message` is SQLite's."""

    kind: Literal["time", "memory", "no_query", "sqlite", "crash"]
    message: str = ""


Reply: TypeAlias = Rows | Failure
_DECODER: msgspec.json.Decoder[Reply] = msgspec.json.Decoder(Reply)


class _Request(Struct, frozen=True):
    sql: str
    seconds: Seconds
    file: str


class _Start(Struct, frozen=True):
    memory: int
    image_bytes: int
    patience: Seconds


class ProcessEnded(Exception):
    """The process ended without a reply."""


class QueryProcess:
    """One process. Used by one thread at a time; `kill` may be called by any."""

    def __init__(self, source: Source, memory: int) -> None:
        self._source = source
        variables = {name: os.environ[name] for name in _INHERITED_VARIABLES if name in os.environ}
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own program
                [str(interpreter()), "-I", "-S", "-B", str(_PROGRAM)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                # one arena: the C library sets address space aside for each, which the limit on memory would count
                env={**variables, "MALLOC_ARENA_MAX": "1"},
                cwd="/",
                start_new_session=True,  # Ctrl-C is for the parent
            )
        except OSError as error:
            raise ToolFailed(
                f"no process for the query could be started: {error}. Do without it.", broken=True
            ) from error
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin = self._process.stdin.fileno()
        self._stdout = self._process.stdout.fileno()
        os.set_blocking(self._stdin, False)
        start = _Start(memory, len(source.image), 2 * GRACE_SECONDS)
        try:
            reply = self._exchange(_ENCODER.encode(start) + b"\n" + source.image, START_SECONDS)
        except (ProcessEnded, TimeoutError) as error:
            self.close()
            status = self._process.returncode
            raise ToolFailed(
                f"the process for the query did not start (exit status {status}). Do without it.", broken=True
            ) from error
        assert reply == READY

    def ask(self, request: _Request) -> Reply:
        """The reply; TimeoutError when there is none in time, ProcessEnded when there will be none."""
        reply = self._exchange(_ENCODER.encode(request) + b"\n", request.seconds + GRACE_SECONDS)
        try:
            return _DECODER.decode(reply)
        except msgspec.DecodeError as error:
            raise ProcessEnded from error

    def serves(self, source: Source) -> bool:
        """Whether it can take a query of this source: one without an image reads any file."""
        return source is self._source or not (source.image or self._source.image)

    def ended(self) -> bool:
        return self._process.poll() is not None

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        """End it and leave nothing behind."""
        self._process.kill()
        self._process.wait()
        self.forget()

    def forget(self) -> None:
        """Close our ends of its pipes; it ends by itself when no other process holds them."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        self._process.returncode = self._process.returncode or 0  # nobody waits for it any more

    def _exchange(self, request: bytes, seconds: Seconds) -> bytes:
        """Write all of the request and read one line."""
        until = monotonic() + seconds
        unwritten = memoryview(request)
        reply = bytearray()
        poll = select.poll()
        poll.register(self._stdin, select.POLLOUT)
        poll.register(self._stdout, select.POLLIN)
        while not reply.endswith(b"\n"):
            left = until - monotonic()
            events = dict(poll.poll(1000 * left)) if left > 0 else {}
            if not events:
                raise TimeoutError
            if self._stdin in events:
                unwritten = unwritten[self._write(unwritten) :]
                if not unwritten:
                    poll.unregister(self._stdin)
            if self._stdout in events:
                piece = os.read(self._stdout, 1 << 16)
                reply += piece
                if not piece or len(reply) > REPLY_BYTES:
                    raise ProcessEnded
        return bytes(reply)

    def _write(self, content: memoryview) -> int:
        try:
            return os.write(self._stdin, content)
        except BlockingIOError:
            return 0
        except BrokenPipeError as error:
            raise ProcessEnded from error


class QueryPool:
    """At most so many queries at a time. Idle processes are used again, and end by themselves after a while."""

    def __init__(self, running: int = RUNNING_PROCESSES, idle: int = IDLE_PROCESSES, memory: int = MEMORY) -> None:
        self._running = running
        self._most_idle = idle
        self._memory = memory
        self._slots = threading.BoundedSemaphore(running)
        self._lock = threading.Lock()
        self._idle: list[QueryProcess] = []
        atexit.register(self.close)
        os.register_at_fork(after_in_child=self._forget)

    def take_slot(self, seconds: Seconds) -> None:
        """Wait until another query may run; ToolFailed when that takes longer than these seconds."""
        if not self._slots.acquire(timeout=seconds):
            raise ToolFailed(f"{self._running} queries are running already; ask again later")

    def release_slot(self) -> None:
        self._slots.release()

    def take_idle(self, source: Source) -> QueryProcess | None:
        """A process that has served a query of this source, if there is one. Those that have ended are buried."""
        taken: QueryProcess | None = None
        with self._lock:
            for process in list(self._idle):
                if process.ended():
                    self._idle.remove(process)
                    process.forget()
                elif taken is None and process.serves(source):
                    self._idle.remove(process)
                    taken = process
        return taken

    def start(self, source: Source) -> QueryProcess:
        return QueryProcess(source, self._memory)

    def give_back(self, process: QueryProcess) -> None:
        with self._lock:
            self._idle.append(process)
            surplus = self._idle.pop(0) if len(self._idle) > self._most_idle else None
        if surplus is not None:
            surplus.close()

    def close(self) -> None:
        """End the idle processes. The pool can be used again."""
        with self._lock:
            idle = self._idle
            self._idle = []
        for process in idle:
            process.close()

    def _forget(self) -> None:
        """In a process that was forked: the processes and the locks are its parent's."""
        for process in self._idle:
            process.forget()
        self._slots = threading.BoundedSemaphore(self._running)
        self._lock = threading.Lock()
        self._idle = []


POOL = QueryPool()


class Query:
    """One query on its way through the pool. `run` blocks; `cancel` ends it from another thread."""

    def __init__(self, source: Source, sql: str, seconds: Seconds, pool: QueryPool = POOL) -> None:
        self._source = source
        self._request = _Request(sql, seconds, source.file)
        self._pool = pool
        self._lock = threading.Lock()
        self._process: QueryProcess | None = None
        self._cancelled = False

    def run(self) -> Reply:
        self._pool.take_slot(self._request.seconds)
        try:
            idle = self._pool.take_idle(self._source)
            if idle is not None:
                # it may have ended by itself just then; asking twice does no harm, because a query only reads
                with contextlib.suppress(ProcessEnded):
                    return self._ask(idle)
            if self._cancelled:
                return Failure("crash")
            return self._ask(self._pool.start(self._source))
        except ProcessEnded:
            return Failure("crash")
        finally:
            self._pool.release_slot()

    def cancel(self) -> None:
        """Kill the process if the query is running; nothing if it has ended."""
        with self._lock:
            self._cancelled = True
            if self._process is not None:
                self._process.kill()

    def _ask(self, process: QueryProcess) -> Reply:
        with self._lock:
            self._process = process
            if self._cancelled:
                process.kill()
        try:
            reply = process.ask(self._request)
        except TimeoutError:
            reply = None
        except ProcessEnded:
            self._let_go()
            process.close()
            raise
        self._let_go()
        if reply is None:
            process.close()
            return Failure("time")
        self._pool.give_back(process)
        return reply

    def _let_go(self) -> None:
        with self._lock:
            self._process = None
