"""Queries in a process of their own: their memory and their time hold, and no process is left behind."""

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path

import pytest

from chargehand.models.artifacts import Table
from chargehand.tools.sql import MAX_RUNNING, sql
from chargehand.tools.tool import Tool, ToolFailed
from tests.support.hunts import hunt_size

# one call of a function: SQLite looks at no clock and at no interrupt until it is over
UNINTERRUPTIBLE = "SELECT length(replace(hex(zeroblob(4900000)), '00', printf('%.*c', 2000000000, 'x')))"
LONG_CELL = "hex(zeroblob(4900000 + n))"
SHORT_CELL = "hex(zeroblob(900 + n))"
WIDE = "SELECT printf('%.*c', 9000000, 'x'), printf('%.*c', 9000000, 'y') FROM numbers"


@pytest.fixture
def numbers(tmp_path: Path) -> Path:
    path = tmp_path / "numbers.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE numbers (n INTEGER)")
        database.executemany("INSERT INTO numbers VALUES (?)", [(n,) for n in range(200)])
        database.commit()
    return path


@pytest.fixture(params=["file", "csv"])
def source(request: pytest.FixtureRequest, numbers: Path) -> Path:
    if request.param == "file":
        return numbers
    path = numbers.with_name("numbers.csv")
    path.write_text("n\n" + "".join(f"{n}\n" for n in range(200)), encoding="utf-8")
    return path


async def ask(of: Tool, text: str) -> Table:
    table = await of.call(json.dumps({"sql": text}), "k")
    assert isinstance(table, Table)
    return table


async def refusal(of: Tool, text: str) -> str:
    with pytest.raises(ToolFailed) as caught:
        await of.call(json.dumps({"sql": text}), "k")
    return str(caught.value)


def query_processes(parent: int) -> set[int]:
    """The living query processes of a parent; those of any parent where it is 0."""
    pids: set[int] = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            status = (folder / "stat").read_text().rpartition(") ")[2].split()
            program = b"query_process.py" in (folder / "cmdline").read_bytes()
            if program and status[0] != "Z" and (not parent or int(status[1]) == parent):
                pids.add(int(folder.name))
    return pids


def started_by(pid: int, source: Path) -> bool:
    """Whether a query process was started by the program that asked this source: it has its folder for files."""
    with suppress(OSError):
        return f"TMPDIR={source.parent}\0".encode() in Path(f"/proc/{pid}/environ").read_bytes()
    return False


def gone(pids: set[int]) -> bool:
    for _ in range(500):
        if not pids & query_processes(0):
            return True
        time.sleep(0.01)
    return False


def python(code: str, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run a program of a user's, without a guard around its main part."""
    command = [sys.executable, "-W", "error", *(["-i", "-q"] if stdin else ["-c", code]), *arguments]
    environment = {**os.environ, "TMPDIR": str(Path(arguments[0]).parent)} if arguments else None
    return subprocess.run(
        command, input=stdin or None, capture_output=True, text=True, timeout=60, check=False, env=environment
    )


async def test_wide_rows_are_cut_while_they_are_read(source: Path) -> None:
    table = await ask(sql(source, seconds=30), WIDE)
    assert len(table.rows) == 200
    assert table.rows[0] == ("x" * 2000 + "...", "y" * 2000 + "...")


def test_a_query_takes_little_memory_here_and_there(numbers: Path) -> None:
    code = """
import asyncio, json, re, resource, sys
from pathlib import Path
from chargehand.tools.sql import sql
asyncio.run(sql(sys.argv[1], seconds=30).call(json.dumps({"sql": sys.argv[2]}), "k"))
own = re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())  # ru_maxrss counts who forked us, too
print(int(own[1]) >> 10, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10)
"""
    ran = python(code, str(numbers), WIDE)
    assert ran.stderr == ""
    here, there = map(int, ran.stdout.split())
    assert here < 128
    assert there < 128


@pytest.mark.parametrize(
    "text",
    [
        f"SELECT {', '.join([LONG_CELL] * 100)} FROM numbers",
        "SELECT count(*) FROM (SELECT DISTINCT a.n, b.n, c.n, hex(zeroblob(500)) FROM numbers a, numbers b, numbers c)",
    ],
)
async def test_a_query_that_needs_too_much_memory_is_refused_and_the_next_one_answered(source: Path, text: str) -> None:
    asked = sql(source, seconds=30)
    words = await refusal(asked, text)
    assert "memory" in words or "disk" in words
    assert (await ask(asked, "SELECT count(*) FROM numbers")).rows == ((200,),)


async def test_a_wide_result_is_bounded_as_a_whole(numbers: Path) -> None:
    text = f"SELECT {', '.join([SHORT_CELL] * 700)} FROM numbers"
    table = await ask(sql(numbers, seconds=30), text)
    assert len(table.rows) == 1
    assert table.more == 199


async def test_a_query_that_cannot_be_interrupted_is_ended_with_its_process(source: Path) -> None:
    asked = sql(source, seconds=0.2)
    began = time.monotonic()
    assert "did not finish within 0.2 s" in await refusal(asked, UNINTERRUPTIBLE)
    assert time.monotonic() - began < 15
    assert not query_processes(os.getpid())
    assert (await ask(asked, "SELECT count(*) FROM numbers")).rows == ((200,),)


async def test_a_cancelled_query_is_ended_at_once(numbers: Path) -> None:
    asked = sql(numbers, seconds=60)
    async with asyncio.TaskGroup() as group:
        job = group.create_task(ask(asked, UNINTERRUPTIBLE))
        running: set[int] = set()
        for _ in range(500):
            running = query_processes(os.getpid())
            if running:
                break
            await asyncio.sleep(0.01)
        assert running
        await asyncio.sleep(0.2)
        job.cancel()
    assert await asyncio.to_thread(gone, running)


def test_a_query_ends_with_the_process_that_asked(numbers: Path) -> None:
    code = """
import asyncio, json, sys
from chargehand.tools.sql import sql
async def main():
    asked = sql(sys.argv[1], seconds=60)
    await asked.call(json.dumps({"sql": "SELECT 1"}), "k")
    print("started", flush=True)
    await asked.call(json.dumps({"sql": sys.argv[2]}), "k")
asyncio.run(main())
"""
    parent = subprocess.Popen([sys.executable, "-c", code, numbers, UNINTERRUPTIBLE], stdout=subprocess.PIPE)
    with parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        time.sleep(0.3)
        running = query_processes(parent.pid)
        assert len(running) == 1
        parent.send_signal(signal.SIGKILL)
    assert gone(running)


async def test_a_query_whose_process_dies_is_refused_and_the_next_one_answered(source: Path) -> None:
    asked = sql(source, seconds=60)
    async with asyncio.TaskGroup() as group:
        job = group.create_task(refusal(asked, UNINTERRUPTIBLE))
        for _ in range(500):
            await asyncio.sleep(0.01)
            if running := query_processes(os.getpid()):
                os.kill(running.pop(), signal.SIGTERM)
                break
    assert "ended before it had an answer" in job.result()
    assert (await ask(asked, "SELECT count(*) FROM numbers")).rows == ((200,),)


async def test_many_queries_at_once_are_answered_each_with_its_own_rows(source: Path) -> None:
    asked = sql(source, seconds=20)
    queries = hunt_size(quick=2 * MAX_RUNNING, thorough=40)
    async with asyncio.TaskGroup() as group:
        jobs = [group.create_task(ask(asked, f"SELECT {n}, count(*) FROM numbers")) for n in range(queries)]
        while not all(job.done() for job in jobs):
            assert len(query_processes(os.getpid())) <= MAX_RUNNING
            await asyncio.sleep(0.05)
    assert [job.result().rows for job in jobs] == [((n, 200),) for n in range(queries)]
    assert not query_processes(os.getpid())


ASK = """
import asyncio, json, sys
from chargehand.tools.sql import sql
asked = sql(sys.argv[1])
table = asyncio.run(asked.call(json.dumps({"sql": "SELECT count(*) FROM numbers"}), "k"))
print(table.rows)
"""


def test_it_works_without_a_main_guard_and_leaves_nothing(source: Path) -> None:
    ran = python(ASK, str(source))
    assert (ran.stdout, ran.stderr) == ("((200,),)\n", "")
    assert gone({pid for pid in query_processes(0) if started_by(pid, source)})


def test_it_works_at_the_prompt(source: Path) -> None:
    ran = python("", stdin=ASK.replace("sys.argv[1]", repr(str(source))))
    assert "((200,),)" in ran.stdout


def test_a_forked_process_has_processes_of_its_own(source: Path) -> None:
    forked = """
import os
if (child := os.fork()):
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
for n in range(5):
    table = asyncio.run(asked.call(json.dumps({"sql": f"SELECT {n} + {os.getpid()}"}), "k"))
    assert table.rows == ((n + os.getpid(),),), table
if child:
    sys.exit(status)
"""
    ran = python(ASK + forked, str(source))
    assert (ran.returncode, ran.stderr) == (0, "")


def test_a_query_runs_in_every_thread_and_loop(source: Path) -> None:
    threads = """
import threading
rows = []
def work(n):
    rows.append(asyncio.run(asked.call(json.dumps({"sql": f"SELECT {n}"}), "k")).rows)
workers = [threading.Thread(target=work, args=(n,)) for n in range(20)]
for worker in workers: worker.start()
for worker in workers: worker.join()
assert sorted(rows) == [((n,),) for n in range(20)], rows
"""
    ran = python(ASK + threads, str(source))
    assert (ran.returncode, ran.stderr) == (0, "")
