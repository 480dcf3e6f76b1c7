"""Who is busy does not get more while others are idle: `python examples/exercises/capacity.py`.

Ten requests at once for two workers who know the same; and eight tasks for a quick and a slow instance of one worker.
"""  # noqa: INP001 - a script, no package
# ruff: noqa: T201 - an example shows something

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable

from chargehand import Plan, Request, Route, ScriptedModel, Supervisor, Task, Worker

REQUESTS = [f"How many parcels came in on day {day}?" for day in range(1, 11)]


def desk(places: asyncio.Semaphore) -> Callable[[Request], Awaitable[str]]:
    """A model that answers two at a time, each in 0.1 s; the others wait in line."""

    async def answer(_request: Request) -> str:
        async with places:
            await asyncio.sleep(0.1)
        return "Forty."

    return answer


def office() -> list[Worker]:
    models = {name: ScriptedModel(desk(asyncio.Semaphore(2)), handle=name) for name in ("north", "south")}
    return [
        Worker(name, "counts parcels", skills=["parcels that came in"], model=models[name], capacity=2)
        for name in models
    ]


async def at_once(teams: list[Supervisor]) -> tuple[Counter[str], float, list[str]]:
    """All requests at the same moment: who got how many, how long it took, and why somebody was chosen."""
    began = time.perf_counter()
    async with asyncio.TaskGroup() as jobs:
        runs = [jobs.create_task(team.run(text)) for team, text in zip(teams, REQUESTS, strict=True)]
    took = time.perf_counter() - began
    traces = [one.result().trace() for one in runs]
    return Counter(one.tasks[0].worker for one in traces), took, [one.notes[0] for one in traces]


def shared_out(*, named: bool) -> tuple[Counter[str], float]:
    """Eight tasks for two instances, dealt out in turn by name, or each to whoever is idle."""
    quick, slow = (ScriptedModel(["Done."], latency=wait, repeat=True) for wait in (0.02, 0.1))
    worker = Worker("packer", "packs parcels", instances=[quick, slow], capacity=1)
    tasks = (Task(f"t{at}", f"Pack parcel {at}.", f"packer-{at % 2 + 1}" if named else "packer") for at in range(8))
    trace = Supervisor([worker], model=quick, plan=Plan(tuple(tasks), "none")).run_sync("Pack.").trace()
    return Counter(one.worker for one in trace.tasks), trace.seconds


async def main() -> None:
    crew = office()
    way = Route(router="words", learn=False)
    await at_once([Supervisor(office(), way=way) for _ in REQUESTS])  # what is loaded only once shall not count
    got, took, _ = await at_once([Supervisor(crew, way=way) for _ in REQUESTS])  # ten teams: none sees the others
    print(f"without a look at the load: {dict(got)}, {took:.2f} s")
    got, took, notes = await at_once([Supervisor(office(), way=way)] * len(REQUESTS))
    print(f"with it: {dict(sorted(got.items()))}, {took:.2f} s")
    print(f"  {next(one for one in notes if 'less busy' in one)}")


if __name__ == "__main__":
    asyncio.run(main())
    for title, named in (("dealt out in turn", True), ("each to whoever is idle", False)):
        got, took = shared_out(named=named)
        print(f"{title}: {dict(sorted(got.items()))}, {took:.2f} s")
