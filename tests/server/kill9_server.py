"""`python -m tests.server.kill9_server`: kill a real server with -9 while it works, start it again, look for damage.

Agents are told to write one line each into a block they share. What was acknowledged must be there in the end, once;
what was not may be there, once.
"""

import argparse
import asyncio
import os
import random
import secrets
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec import Struct, field, json

from bench.server_parts import Line, Served, modelling, serving

AGENTS = 6
PATIENCE = 60.0


class Tally(Struct):
    """What was sent: every text, and the runs of those that were acknowledged."""

    sent: list[str] = field(default_factory=list[str])
    runs: dict[str, str] = field(default_factory=dict[str, str])
    kills: int = 0
    problems: list[str] = field(default_factory=list[str])


async def asked(served: Served, method: str, path: str, body: object = None) -> object:
    async with Line(served.port, served.token) as line:
        status, found = await line.ask(method, path, body)
        if status >= 300:
            raise ConnectionError(f"{path}: {status} {found[:300]!r}")
        return json.decode(found)


async def made(served: Served, handle: str) -> tuple[str, list[str]]:
    """A block, and agents who share it."""
    block = await asked(served, "POST", "/v1/blocks", {"label": "log", "value": "", "limit": 100_000})
    assert isinstance(block, dict)
    which = str(block["id"])  # pyright: ignore[reportUnknownArgumentType] - any JSON
    found: list[str] = []
    for number in range(AGENTS):
        sent = {"name": f"writer {number}", "block_ids": [which], "model": f"{handle}insert-40"}
        agent = await asked(served, "POST", "/v1/agents", sent)
        assert isinstance(agent, dict)
        found.append(str(agent["id"]))  # pyright: ignore[reportUnknownArgumentType] - any JSON
    return which, found


async def one_death(served: Served, agents: Sequence[str], tally: Tally, seconds: float) -> None:
    """Send until it dies."""

    async def sends(agent: str) -> None:
        try:
            async with Line(served.port, served.token) as line:
                while True:
                    text = f"w{len(tally.sent)}x{secrets.token_hex(3)}"
                    tally.sent.append(text)
                    sent = {"messages": [{"role": "user", "content": f"write:{text}"}]}
                    status, body = await line.ask("POST", f"/v1/agents/{agent}/messages/async", sent)
                    if status < 300:
                        tally.runs[text] = json.decode(body)["id"]
                    await asyncio.sleep(0.1)
        except (OSError, EOFError, asyncio.IncompleteReadError):
            return  # it is dead

    async def kills() -> None:
        await asyncio.sleep(seconds)
        os.kill(served.process.pid, signal.SIGKILL)
        tally.kills += 1

    async with asyncio.TaskGroup() as jobs:
        jobs.create_task(kills())
        for agent in agents:
            jobs.create_task(sends(agent))


async def concluded(served: Served, block: str, tally: Tally) -> None:
    """Wait until everything that was acknowledged has ended, and compare."""
    until = time.monotonic() + PATIENCE
    for text, run in tally.runs.items():
        status = "?"
        while status not in ("completed", "failed", "cancelled"):
            found = await asked(served, "GET", f"/v1/runs/{run}")
            assert isinstance(found, dict)
            status = str(found["status"])  # pyright: ignore[reportUnknownArgumentType] - any JSON
            if time.monotonic() > until:
                break
            if status not in ("completed", "failed", "cancelled"):
                await asyncio.sleep(0.1)
        if status != "completed":
            tally.problems.append(f"{run} ({text}) was acknowledged and is {status}")
    found = await asked(served, "GET", f"/v1/blocks/{block}")
    assert isinstance(found, dict)
    lines = str(found["value"]).splitlines()  # pyright: ignore[reportUnknownArgumentType] - any JSON
    for text in tally.sent:
        times = lines.count(text)
        if times > 1 or (text in tally.runs and times != 1):
            tally.problems.append(f"{text} was written {times} times (acknowledged: {text in tally.runs})")


def many(kills: int, seed: int, folder: Path) -> Tally:
    dice = random.Random(seed)
    tally = Tally()
    found = ("", [""])
    with modelling() as handle:
        for number in range(kills):
            with serving(folder) as served:
                if not number:
                    found = asyncio.run(made(served, handle))
                asyncio.run(one_death(served, found[1], tally, dice.uniform(0.02, 1.2)))
        with serving(folder) as served:
            asyncio.run(concluded(served, found[0], tally))
    return tally


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.server.kill9_server", description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with TemporaryDirectory(prefix="chargehand-kill9-server-") as folder:
        tally = many(options.kills, options.seed, Path(folder))
    print(
        f"{tally.kills} kills, {len(tally.sent)} sent, {len(tally.runs)} acknowledged, {len(tally.problems)} problems"
    )
    for problem in tally.problems[:20]:
        print(problem)
    return 1 if tally.problems else 0


if __name__ == "__main__":
    sys.exit(main())
