"""`python -m tests.server.sse_load --clients 500`: many who follow runs, are cut off again and again, and come back.

Each must see every entry of its run once and in order. How late an entry comes is counted from the instant it was
decided, so writing it to disk is in the figure. Entries that were there before a client came (back) are not counted.
"""

import argparse
import asyncio
import json
import random
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec import Struct, field

from bench.server_parts import Line, serving
from tests.server.api import team_in

PATIENCE = 120.0


class Seen(Struct):
    """What one client saw, and when it came (back) first and last."""

    run: str
    numbers: list[int] = field(default_factory=list[int])
    lags: list[float] = field(default_factory=list[float])
    cuts: int = 0
    over: bool = False


class Figures(Struct):
    clients: int
    entries: int
    delivered: int
    cuts: int
    p50: float
    p99: float
    worst: float
    wrong: list[str]


async def begun(port: int, token: str, tasks: int) -> str:
    """A run of tasks one after the other."""
    workers = ("buyer", "clerk")
    plan = {
        "combine": "none",
        "tasks": [
            {
                "id": f"t{number}",
                "instruction": f"What do {number + 2} tomato seedlings cost?",
                "worker": workers[number % 2],
                "after": [f"t{number - 1}"] if number else [],
            }
            for number in range(tasks)
        ],
    }
    async with Line(port, token) as line:
        status, body = await line.ask("POST", "/api/runs", {"team": "garden", "goal": "seedlings", "plan": plan})
    assert status == 201, body[:300]
    return json.loads(body)["run"]


async def follow(port: int, token: str, seen: Seen, chance: random.Random, cuts: int) -> None:
    """Follow a run to its end, over connections that are cut at random."""
    while not seen.over:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        last = seen.numbers[-1] if seen.numbers else 0
        writer.write(
            f"GET /api/runs/{seen.run}/events HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n"
            f"Accept: text/event-stream\r\nLast-Event-ID: {last}\r\n\r\n".encode()
        )
        head = await reader.readuntil(b"\r\n\r\n")
        if b" 204 " in head.split(b"\r\n", 1)[0]:
            seen.over = True
        elif b" 200 " in head.split(b"\r\n", 1)[0]:
            left = chance.randint(5, 60) if seen.cuts < cuts else sys.maxsize
            await _events(reader, seen, time.time(), left)
        else:
            raise AssertionError(head[:200])
        seen.cuts += not seen.over
        writer.transport.abort()


async def _events(reader: asyncio.StreamReader, seen: Seen, came: float, left: int) -> None:
    """Read events until the run is over, or `left` of them came."""
    number = 0
    while left and not seen.over:
        line = await reader.readline()
        if not line:
            return
        if line.startswith(b"id: "):
            number = int(line[4:])
        elif line.startswith(b"data: "):
            now = time.time()
            left -= 1
            at = float(line.partition(b'"at":')[2].partition(b",")[0])
            seen.numbers.append(number)
            if at > came:
                seen.lags.append(now - at)
            seen.over = b'"type":"run.ended"' in line


async def load(port: int, token: str, *, clients: int, runs: int, tasks: int, cuts: int, seed: int = 1) -> Figures:
    """So many clients on so many runs."""
    chance = random.Random(seed)
    names: list[str] = []
    followed: list[Seen] = []
    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as jobs:
        for at in range(runs):
            names.append(await begun(port, token, tasks))
            for _ in range(clients // runs + (at < clients % runs)):
                followed.append(Seen(names[-1]))
                jobs.create_task(follow(port, token, followed[-1], random.Random(chance.random()), cuts))
            await asyncio.sleep(0.05)
    return _figures(followed, {name: await _length(port, token, name) for name in names})


async def _length(port: int, token: str, run: str) -> int:
    async with Line(port, token) as line:
        return json.loads((await line.ask("GET", f"/api/runs/{run}"))[1])["summary"]["entries"]


def _figures(followed: list[Seen], lengths: dict[str, int]) -> Figures:
    lags = sorted(lag for one in followed for lag in one.lags)
    wrong = [
        f"a client of {one.run} saw {one.numbers[:400]} of {lengths[one.run]}"
        for one in followed
        if one.numbers != list(range(1, lengths[one.run] + 1))
    ]

    def at(share: float) -> float:
        return lags[min(len(lags) - 1, int(share * len(lags)))] if lags else 0.0

    delivered = sum(len(one.numbers) for one in followed)
    cuts = sum(one.cuts for one in followed)
    return Figures(
        clients=len(followed),
        entries=sum(lengths.values()),
        delivered=delivered,
        cuts=cuts,
        p50=at(0.5),
        p99=at(0.99),
        worst=at(1.0),
        wrong=wrong,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=500)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--tasks", type=int, default=20)
    parser.add_argument("--cuts", type=int, default=5, help="how often each client is cut off")
    parser.add_argument("--wait", type=float, default=0.5, help="seconds a tool takes")
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        team = team_in(Path(folder) / "team", wait=options.wait)
        with serving(Path(folder) / "data", "--team", str(team)) as served:
            wanted = {"clients": options.clients, "runs": options.runs, "tasks": options.tasks, "cuts": options.cuts}
            found = asyncio.run(load(served.port, served.token, **wanted))
    print(
        f"{found.clients} clients, {found.entries} entries, {found.delivered} delivered over {found.cuts} cuts: "
        f"lag p50 {found.p50 * 1000:.0f} ms, p99 {found.p99 * 1000:.0f} ms, worst {found.worst * 1000:.0f} ms; "
        f"{len(found.wrong)} clients lost or doubled something"
    )
    for line in found.wrong[:5]:
        print(line[:500])
    return 1 if found.wrong or found.p99 > 0.25 else 0


if __name__ == "__main__":
    raise SystemExit(main())
