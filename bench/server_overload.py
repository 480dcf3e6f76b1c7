"""Three times as much is asked of a server as it can do: the work that is done must not suffer for what is refused."""

import asyncio
import statistics
import time
from pathlib import Path

from msgspec import json

from bench.server_parts import Line, Served, serving

RUNS = 16
AGENTS = 500
# seconds
_PEAK = 4.0
_PRESS = 6.0
# of the peak; milliseconds
_LEAST = 0.9
_SLOWEST = 20.0
_SENT = {"messages": [{"role": "user", "content": "And?"}]}


def overload(data: Path, handle: str) -> bool:
    """A model of 100 ms, 16 runs at once: the peak first, then calls that come three times as fast."""
    with serving(data, "--open-runs", str(RUNS)) as served:
        agents = asyncio.run(_agents(served, f"{handle}say-100"))
        peak = asyncio.run(_peak(served, agents))
        done, rejects = asyncio.run(_pressed(served, agents, 3 * peak))
        peak = (peak + asyncio.run(_peak(served, agents))) / 2  # before and after: others may use the machine
    cuts = [one * 1000 for one in statistics.quantiles(rejects, n=100)] if len(rejects) > 1 else [0.0] * 99
    met = done >= _LEAST * peak and cuts[94] <= _SLOWEST and len(rejects) > 1
    print(
        f"overload: {done:.0f} good replies/s of {peak:.0f} at the peak ({done / peak:.0%}, >= {_LEAST:.0%}); "
        f"{len(rejects)} refused, p50 {cuts[49]:.1f}, p95 {cuts[94]:.1f} (<= {_SLOWEST:g}), p99 {cuts[98]:.1f} ms  "
        f"{'yes' if met else 'NO'}"
    )
    return met


async def _agents(served: Served, model: str) -> list[str]:
    async with Line(served.port, served.token) as line:
        found = [await line.ask("POST", "/v1/agents", {"name": f"busy {n}", "model": model}) for n in range(AGENTS)]
    return [json.decode(body)["id"] for _, body in found]


async def _peak(served: Served, agents: list[str]) -> float:
    """Good replies a second when as many ask as there are places, and as many wait."""
    until = time.perf_counter() + _PEAK
    good = 0

    async def caller(number: int) -> None:
        nonlocal good
        async with Line(served.port, served.token) as line:
            while time.perf_counter() < until:
                status, _ = await line.ask("POST", f"/v1/agents/{agents[number]}/messages", _SENT)
                good += status == 200

    async with asyncio.TaskGroup() as jobs:
        for number in range(2 * RUNS):
            jobs.create_task(caller(number))
    return good / _PEAK


async def _pressed(served: Served, agents: list[str], rate: float) -> tuple[float, list[float]]:
    """Good replies a second, and how long each refusal took, when calls come at this rate whatever becomes of them."""
    rejects: list[float] = []
    idle: list[Line] = []
    good = 0
    began = time.perf_counter()

    async def call(number: int) -> None:
        nonlocal good
        line = idle.pop() if idle else Line(served.port, served.token)
        start = time.perf_counter()
        status, _ = await line.ask("POST", f"/v1/agents/{agents[number % AGENTS]}/messages", _SENT)
        took = time.perf_counter() - start
        if status == 429:
            rejects.append(took)
        elif status == 200 and time.perf_counter() - began < _PRESS:
            good += 1
        idle.append(line)

    async with asyncio.TaskGroup() as jobs:
        for number in range(int(rate * _PRESS)):
            await asyncio.sleep(max(0.0, began + number / rate - time.perf_counter()))
            jobs.create_task(call(number))
    for line in idle:
        await line.__aexit__()
    return good / _PRESS, rejects
