"""Edits of memory by a task that is done again stand once, in every store."""

import json
import time
from collections.abc import Sequence

import pytest

from chargehand import (
    Archive,
    Block,
    Memory,
    Plan,
    Policy,
    Reply,
    ScriptedModel,
    Supervisor,
    Task,
    Team,
    ToolCall,
    Worker,
)
from chargehand.engine.failure import Failure
from chargehand.engine.policy import Retry
from chargehand.memory.blocks import Origin, Undo
from chargehand.memory.catalog import Catalog
from chargehand.models.messages import Request
from chargehand.models.testing.scripted import Line

LINE = "Ott was paid."
APPEND = ("core_memory_append", {"label": "notes", "content": LINE})
OTHER = ("core_memory_append", {"label": "notes", "content": "Lehm was paid."})
REPLACE = ("memory_replace", {"label": "notes", "old_string": "open", "new_string": "paid"})
KEEP = ("archival_memory_insert", {"content": LINE})


class Clerk:
    """Makes these calls, one in a step; then it fails until it is mended."""

    def __init__(self, *calls: tuple[str, dict[str, str]]) -> None:
        self.calls = calls
        self.is_mended = False

    def __call__(self, request: Request) -> Line:
        done = sum(message.role == "assistant" for message in request.messages)
        if done < len(self.calls):
            name, arguments = self.calls[done]
            return Reply(calls=(ToolCall(str(done), name, json.dumps(arguments)),), finish="tools")
        return "Noted." if self.is_mended else Failure("logic", "not mended yet")


def team(catalog: Catalog, clerk: Clerk) -> Team:
    model = ScriptedModel(clerk)
    worker = Worker("clerk", "notes", blocks={"notes": "write"}, archives={"facts": "write"}, model=model)
    memory = Memory(catalog, blocks=[Block("notes", "open")], archives=[Archive("facts", embedding="words")])
    plan = Plan((Task("t1", "Note the payment down.", "clerk"),), "forward")
    policy = Policy(refine=False, retry=Retry(attempts=1, base=0.001), tainted_effects="allow")
    return Team([worker], memory=memory, supervisor=Supervisor(plan=plan), policy=policy, name="office")


async def value(of: Team) -> str:
    async with of.remembering() as memory:
        (notes,) = await memory.catalog.find(Block, name="notes")
    return notes.value


async def redo(of: Team, source: str, run: str) -> str:
    async with of.driven() as runner:
        return (await runner.fork(source, run, of.request("x", time.time()))).ending


@pytest.mark.parametrize(
    ("calls", "lines"),
    [
        ([APPEND], ["open", LINE]),
        ([APPEND, OTHER], ["open", LINE, "Lehm was paid."]),
        ([APPEND, APPEND], ["open", LINE, LINE]),
        ([APPEND, OTHER, APPEND], ["open", LINE, "Lehm was paid.", LINE]),
        ([REPLACE, APPEND], ["paid", LINE]),
    ],
)
async def test_an_edit_of_a_task_that_is_done_again_stands_once(
    catalog: Catalog, calls: Sequence[tuple[str, dict[str, str]]], lines: list[str]
) -> None:
    clerk = Clerk(*calls)
    async with team(catalog, clerk) as office:
        assert (await office.run("x", run="one")).ending == "failed"
        assert await redo(office, "one", "two") == "failed"
        clerk.is_mended = True
        assert await redo(office, "two", "three") == "complete"
        assert (await value(office)).split("\n") == lines


async def test_a_run_of_its_own_edits_again(catalog: Catalog) -> None:
    clerk = Clerk(APPEND)
    clerk.is_mended = True
    async with team(catalog, clerk) as office:
        for _ in range(2):
            assert (await office.run("x")).ending == "complete"
        assert (await value(office)).count(LINE) == 2


async def test_what_a_redone_task_does_otherwise_is_an_edit_of_its_own(catalog: Catalog) -> None:
    clerk = Clerk(APPEND)
    async with team(catalog, clerk) as office:
        await office.run("x", run="one")
        clerk.calls = (OTHER, APPEND)
        clerk.is_mended = True
        assert await redo(office, "one", "two") == "complete"
        assert (await value(office)).split("\n") == ["open", LINE, "Lehm was paid."]


async def test_the_edits_of_a_team_inside_that_is_done_again_stand_once(catalog: Catalog) -> None:
    clerk = Clerk(APPEND)
    async with team(catalog, clerk) as office:
        plan = Plan((Task("t1", "Have it noted.", "office"),), "forward")
        policy = Policy(refine=False, retry=Retry(attempts=1, base=0.001), tainted_effects="allow")
        outer = Team([office.as_worker()], supervisor=Supervisor(plan=plan), policy=policy)
        async with outer:
            assert (await outer.run("x", run="one")).ending == "failed"
            clerk.is_mended = True
            assert await redo(outer, "one", "two") == "complete"
        assert (await value(office)).count(LINE) == 1


async def test_a_passage_of_a_task_that_is_done_again_is_kept_once(catalog: Catalog) -> None:
    clerk = Clerk(KEEP)
    async with team(catalog, clerk) as office:
        await office.run("x", run="one")
        clerk.is_mended = True
        assert await redo(office, "one", "two") == "complete"
        async with office.remembering() as memory:
            (facts,) = await memory.catalog.find(Archive, name="facts")
            assert await memory.catalog.count(facts.id) == (1, 0)


async def test_an_edit_that_a_person_undid_is_not_made_again(catalog: Catalog) -> None:
    clerk = Clerk(APPEND)
    async with team(catalog, clerk) as office:
        await office.run("x", run="one")
        async with office.remembering() as memory:
            (notes,) = await memory.catalog.find(Block, name="notes")
            await memory.catalog.edit(notes.id, Undo(), Origin("person", "rea"))
        clerk.is_mended = True
        assert await redo(office, "one", "two") == "complete"
        assert await value(office) == "open"
