"""Who is busy does not get more while others are idle: `python examples/exercises/concurrency.py`.

Ten requests at once for two workers who know the same; and eight tasks for a quick and a slow model of one worker.
"""  # noqa: INP001 - a script, no package
# ruff: noqa: T201 - an example shows something

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable

from chargehand import Plan, Request, Route, ScriptedModel, Supervisor, Task, Team, Worker

SPEEDS = {"quick": 0.02, "slow": 0.1}
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
        Worker(name, "counts parcels", skills=["parcels that came in"], model=models[name], concurrency=2)
        for name in models
    ]


async def at_once(teams: list[Team]) -> tuple[Counter[str], float, list[str]]:
    """All requests at the same moment: who got how many, how long it took, and why somebody was chosen."""
    began = time.perf_counter()
    async with asyncio.TaskGroup() as jobs:
        runs = [jobs.create_task(team.run(text)) for team, text in zip(teams, REQUESTS, strict=True)]
    took = time.perf_counter() - began
    traces = [one.result().trace() for one in runs]
    return Counter(one.tasks[0].worker for one in traces), took, [one.notes[0].text for one in traces]


def shared_out(*, in_turn: bool) -> tuple[Counter[str], float]:
    """Eight tasks for a quick and a slow model, dealt out in turn, or each to whoever is idle."""
    models = {name: ScriptedModel(["Done."], handle=name, latency=wait, repeat=True) for name, wait in SPEEDS.items()}
    workers = [Worker("packer", "packs parcels", replicas=list(models.values()), concurrency=2)]
    if in_turn:
        workers = [Worker(name, "packs parcels", model=model, concurrency=1) for name, model in models.items()]
    who = [worker.name for worker in workers]
    tasks = tuple(Task(f"t{at}", f"Pack parcel {at}.", who[at % len(who)]) for at in range(8))
    lead = Supervisor(model=models["quick"], plan=Plan(tasks, "none"))
    trace = Team(workers, supervisor=lead).run_sync("Pack.").trace()
    return Counter({name: len(model.requests) for name, model in models.items()}), trace.seconds


async def main() -> None:
    executor = office()
    lead = Supervisor(strategy=Route(router="words", learn=False))
    await at_once([Team(office(), supervisor=lead) for _ in REQUESTS])  # what is loaded only once shall not count
    got, took, _ = await at_once([Team(executor, supervisor=lead) for _ in REQUESTS])  # none sees the others
    print(f"without a look at the load: {dict(got)}, {took:.2f} s")
    got, took, notes = await at_once([Team(office(), supervisor=lead)] * len(REQUESTS))
    print(f"with it: {dict(sorted(got.items()))}, {took:.2f} s")
    print(f"  {next(one for one in notes if 'less busy' in one)}")


if __name__ == "__main__":
    asyncio.run(main())
    for title, in_turn in (("dealt out in turn", True), ("each to whoever is idle", False)):
        got, took = shared_out(in_turn=in_turn)
        print(f"{title}: {dict(sorted(got.items()))}, {took:.2f} s")
