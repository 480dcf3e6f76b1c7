"""Workers of your own, a journal in SQLite: `python examples/library.py`."""  # noqa: INP001 - a script, no package

import asyncio
import tempfile
import time

from chargehand.agents.scripted import Script, ScriptedExecutor
from chargehand.engine.budget import Budget
from chargehand.engine.events import RunRequested
from chargehand.engine.owed import Brief
from chargehand.engine.plan import parse
from chargehand.engine.policy import Policy
from chargehand.engine.roster import Agent, Roster
from chargehand.journal.store import open_journal
from chargehand.runtime.executor import Done, StepContext
from chargehand.runtime.runner import Runner

PLAN = """{"tasks": [
    {"id": "near", "worker": "ann", "instruction": "Count the letters of this sentence."},
    {"id": "far", "worker": "bob", "instruction": "Count the letters of this much longer sentence."},
    {"id": "both", "worker": "ann", "instruction": "Add up both counts.", "after": ["near", "far"]}]}"""


class Counters(ScriptedExecutor):
    """Refining and answering are left to the script; the work itself is done here."""

    async def attempt(self, brief: Brief, context: StepContext) -> Done:
        async def count(_key: str) -> Done:
            return Done(sum(int(bytes(one.value)) for one in brief.inputs if one.value) or len(brief.instruction))

        # the result is journaled before it is used: after a crash it is read back, not counted again
        return Done(await context.step("count", count, request=brief.instruction))


async def main(path: str) -> None:
    journal = await open_journal(path)
    try:
        team = Roster((Agent("ann"), Agent("bob")))
        request = RunRequested("Count letters", team, Policy(), Budget(), time.time() + 60, seed=1, plan=parse(PLAN))
        outcome = await Runner(journal, Counters(Script())).start("letters", request)
        print(outcome.ending, outcome.results)  # noqa: T201 - an example shows something
    finally:
        await journal.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(f"{folder}/runs.db"))
