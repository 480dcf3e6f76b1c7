"""Workers of your own, a journal in SQLite: `python examples/library.py`."""  # noqa: INP001 - a script, no package

import asyncio
import tempfile
import time

from chargehand.agents.crew import Done, Hand
from chargehand.agents.scripted import Script, ScriptedCrew
from chargehand.core.owed import Brief
from chargehand.runtime.driver import Driver
from chargehand.stores.sqlite import SqliteJournal
from chargehand.terms.budget import Budget
from chargehand.terms.events import RunRequested
from chargehand.terms.plan import parse
from chargehand.terms.policy import Policy
from chargehand.terms.roster import Agent, Roster

PLAN = """{"tasks": [
    {"id": "near", "worker": "ann", "instruction": "Count the letters of this sentence."},
    {"id": "far", "worker": "bob", "instruction": "Count the letters of this much longer sentence."},
    {"id": "both", "worker": "ann", "instruction": "Add up both counts.", "after": ["near", "far"]}]}"""


class Counters(ScriptedCrew):
    """Refining and answering are left to the script; the work itself is done here."""

    async def attempt(self, brief: Brief, hand: Hand) -> Done:
        async def count(_key: str) -> Done:
            return Done(sum(int(bytes(one.value)) for one in brief.inputs if one.value) or len(brief.instruction))

        # the result is journaled before it is used: after a crash it is read back, not counted again
        return Done(await hand.step("count", count, request=brief.instruction))


async def main(path: str) -> None:
    journal = await SqliteJournal.open(path)
    try:
        team = Roster((Agent("ann"), Agent("bob")))
        request = RunRequested("Count letters", team, Policy(), Budget(), time.time() + 60, seed=1, plan=parse(PLAN))
        outcome = await Driver(journal, Counters(Script())).start("letters", request)
        print(outcome.ending, outcome.results)  # noqa: T201 - an example shows something
    finally:
        await journal.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(f"{folder}/runs.db"))
