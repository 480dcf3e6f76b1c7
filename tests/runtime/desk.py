"""A team with a librarian in the background; as a program, one that goes on where it was and dies when it is told to.

`python -m tests.runtime.desk FOLDER TURNS DIES [hang]`: as many turns as are missing, and dead by kill -9 at the append
of that number (0: never). With `hang` the librarian's model never answers.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from chargehand.agents.roles import Supervisor, Worker
from chargehand.engine import events as ev
from chargehand.engine.plan import Plan, Task, TaskId
from chargehand.engine.policy import Policy
from chargehand.errors import RunUnknown
from chargehand.journal.protocol import Journal, Lease
from chargehand.journal.sqlite import SqliteJournal
from chargehand.memory.blocks import Block
from chargehand.memory.catalog import Memory
from chargehand.models.demo.model import DemoModel
from chargehand.models.messages import Reply, Request
from chargehand.models.model import Model
from chargehand.models.request_facts import Working
from chargehand.models.testing.scripted import ScriptedModel
from chargehand.team import Team
from chargehand.tools.tool import tool
from tests.agents.crowd import call, calls

PLAN = Plan((Task(TaskId("t1"), "What is the price of a room in Ghent?", "ann"),), "forward")
NOTES = Block("notes", description="what we were asked")


@tool
def price(city: str) -> int:
    """The price of a room in a city: Ghent or Malmo."""
    return {"Ghent": 90, "Malmo": 120}[city]


def _note_turns(request: Request) -> Reply | str:
    """A line for each turn that is not noted yet: what was asked, and how the answer begins."""
    assert isinstance(request.subject, Working)
    if request.messages[-1].role == "tool":
        return "Noted what was asked."
    turns = [msgspec.convert(result.value, _Turn) for result in request.subject.inputs]
    lines = dict.fromkeys(f"- {turn.request} -> {turn.answer.splitlines()[0]}" for turn in turns)
    new = [line for line in lines if line not in request.subject.blocks[0].text.splitlines()]
    return calls(call("core_memory_append", label="notes", content="\n".join(new))) if new else "Nothing new."


class _Turn(msgspec.Struct):
    request: str
    answer: str


def librarian(every: int = 3, *, name: str = "librarian", model: Model | None = None) -> Worker:
    model = model or ScriptedModel(_note_turns, card=DemoModel().card)
    return Worker(name, tools=["memory_rethink"], blocks={"notes": "write"}, every=every, model=model)


def desk(
    *background: Worker,
    journal: Journal | Path | None = None,
    memory: Path | None = None,
    name: str = "desk",
    policy: Policy | None = None,
) -> Team:
    ann = Worker("ann", "knows the prices of rooms", tools=[price])
    notes = Memory(memory, [NOTES])
    return Team(
        [ann, *(background or (librarian(),))],
        supervisor=Supervisor(plan=PLAN),
        name=name,
        journal=journal,
        memory=notes,
        policy=policy or Policy(),
    )


async def noted(team: Team) -> list[str]:
    """The lines of the notes."""
    async with team.remembering() as memory:
        [block] = await memory.catalog.find(Block)
        return block.value.splitlines()


def covered(runs: Mapping[str, Sequence[ev.Entry]], worker: str = "librarian") -> dict[str, list[str]]:
    """What each background run of a worker covered, in the order they were begun."""
    found: dict[str, list[str]] = {}
    for run, entries in sorted(runs.items(), key=lambda one: one[1][0].at):
        first = entries[0].event
        if isinstance(first, ev.RunRequested) and first.turns and first.roster.agents[0].name == worker:
            found[run] = [name for name, taken in first.turns if taken]
    return found


async def everything(journal: Journal) -> dict[str, list[ev.Entry]]:
    return {row.run: await journal.read(row.run) for row in await journal.runs()}


class Mortal(SqliteJournal):
    """A journal whose process dies at an append: just before it is written, or just after."""

    dies = 0

    async def append(self, lease: Lease, entries: Sequence[ev.Entry]) -> None:
        self.dies -= 1
        if self.dies == 0 and lease.seq % 2:
            os.kill(os.getpid(), signal.SIGKILL)
        await super().append(lease, entries)
        if self.dies == 0:
            os.kill(os.getpid(), signal.SIGKILL)


async def _never(_request: object) -> str:
    await asyncio.Event().wait()
    return ""


async def main(folder: Path, turns: int, dies: int, *, hangs: bool) -> None:
    journal = await Mortal.open(folder / "runs.db", durability="process")
    assert isinstance(journal, Mortal)
    journal.dies = dies
    model = ScriptedModel(_never, card=DemoModel().card) if hangs else None
    team = desk(librarian(model=model), journal=journal, memory=folder / "memory.db")
    try:
        await team.rest()
        for number in range(1, turns + 1):
            await _turn(team, journal, f"turn-{number}")
            print(f"turn-{number}", flush=True)
            await team.rest()
    finally:
        await journal.close()


async def _turn(team: Team, journal: Journal, run: str) -> None:
    try:
        entries = await journal.read(run)
    except RunUnknown:
        await team.run(f"Question {run}: what is the price of a room in Ghent?", run=run)
        return
    if not isinstance(entries[-1].event, ev.RunEnded):
        await team.resume(run)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), hangs="hang" in sys.argv))
