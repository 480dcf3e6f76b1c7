"""A process that makes calls under limits that it shares with others, and what starts it and reads what it prints.

Prints a line `begin end` for each call, by the clock of the machine, and `ready` before the first.
"""

import asyncio
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager

from chargehand.models.limits import Pace
from chargehand.models.postgres_limits import PostgresLimits
from chargehand.models.shared_limits import SharedLimiter
from chargehand.store_url import postgres_url


async def main(url: str, concurrency: int, calls: int, seconds: float) -> None:
    limiter = SharedLimiter("the key", Pace(concurrency=concurrency), PostgresLimits(postgres_url(url)))
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)

    async def call() -> None:
        ticket = await limiter.enter()
        begun = time.monotonic()
        await asyncio.sleep(seconds)
        print(f"{begun:.6f} {time.monotonic():.6f}", flush=True)
        limiter.leave(ticket)

    async with asyncio.TaskGroup() as jobs:
        for _ in range(calls):
            jobs.create_task(call())


@contextmanager
def process(url: str, *, concurrency: int, calls: int, seconds: float) -> Generator["subprocess.Popen[str]"]:
    """A process that is ready; it begins when it is sent a line."""
    command = [sys.executable, "-m", "tests.models.limited_process", url, str(concurrency), str(calls), str(seconds)]
    started = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert started.stdout is not None
        assert started.stdout.readline() == "ready\n"
        yield started
    finally:
        started.kill()
        started.communicate()


def begin(*started: "subprocess.Popen[str]") -> None:
    for one in started:
        assert one.stdin is not None
        one.stdin.write("\n")
        one.stdin.flush()


def spans(started: "subprocess.Popen[str]") -> list[tuple[float, float]]:
    output, _ = started.communicate(timeout=60)
    assert started.returncode == 0
    return [(float(begun), float(ended)) for begun, ended in (line.split() for line in output.splitlines())]


def peak(calls: Sequence[tuple[float, float]]) -> int:
    """How many of the calls were under way at once."""
    marks = sorted([(begun, 1) for begun, _ in calls] + [(ended, -1) for _, ended in calls])
    most = 0
    now = 0
    for _, step in marks:
        now += step
        most = max(most, now)
    return most


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])))
