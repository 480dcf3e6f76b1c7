"""Crashes at every point of runs that use memory in every way: nothing is written, remembered or paid for twice."""

import re
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from msgspec import Struct, field

from chargehand.agents.messages import MATCHING
from chargehand.agents.result import Result
from chargehand.agents.roles import Factory, Worker
from chargehand.engine import events as ev
from chargehand.engine.plan import Plan, Task, TaskId
from chargehand.engine.policy import Policy, Retry
from chargehand.journal.memory import MemoryJournal
from chargehand.journal.protocol import Lease
from chargehand.memory.archives import Archive
from chargehand.memory.blocks import Block, Grant
from chargehand.memory.catalog import Memory, Profile
from chargehand.memory.conversations import Turn
from chargehand.memory.sqlite_catalog import SqliteCatalog
from chargehand.models.messages import Request
from chargehand.models.request_facts import Making, Working
from chargehand.models.testing.scripted import Line, ScriptedModel
from chargehand.team import Team
from chargehand.tools.tool import tool
from tests.agents.crowd import call, calls, model, of_kind, team
from tests.support.hunts import hunt_size

NOTES = Block("notes", "begun", share="write")
FINDINGS = Archive("findings", embedding="words")
COUNT = Task(TaskId("t1"), "Count.", "ann")
LONG = "\n\n".join(f"Paragraph {number} of a report. " * 20 for number in range(6))
_NONCE = re.compile(r"[0-9a-f]{16}")
POLICY = Policy(retry=Retry(base=0.001, attempts=2))


@tool(effect="idempotent")
def ring(bell: str) -> str:
    """Ring a bell."""
    return f"{bell} rang"


def turn(request: Request) -> int:
    return sum(one.role == "assistant" for one in request.messages)


def name(request: Request) -> str:
    assert isinstance(request.subject, Working)
    return request.subject.worker.name


def asked(request: Request) -> str:
    assert isinstance(request.subject, Working)
    return request.subject.instruction


class Story(Struct):
    """What a crew does, each line of it from nothing but what was asked; and who is in it."""

    work: Callable[[Request], Line]
    workers: Sequence[Worker] = (Worker("ann", remembers=True),)
    tasks: Sequence[Task] = (COUNT,)
    more: dict[str, object] = field(default_factory=dict[str, object])


def side_by_side(request: Request) -> Line:
    """Many edits of one block at once, parts of a long text, and a whole rewrite that loses or wins."""
    return [
        calls(*(call("core_memory_append", n, label="notes", content=f"line {n}") for n in range(5))),
        calls(
            call("memory_insert", 1, label="notes", new_string="top", insert_line=0),
            call("memory_replace", 2, label="notes", old_string="line 3", new_string="third"),
            call("archival_memory_insert", 3, content=LONG, tags=["report"]),
            call("archival_memory_insert", 4, content="short"),
        ),
        calls(call("memory_rethink", 1, label="notes", new_memory="all new")),
        calls(call("core_memory_append", 1, label="notes", content="after"), call("ring", 2, bell="door")),
        "done",
    ][turn(request)]


def put_anew(request: Request) -> Line:
    """The first attempt writes and gives up; the second writes the same, and more."""
    again = asked(request) != "Count."
    lines = [
        calls(call("core_memory_append", 1, label="notes", content="same"), call("ring", 2, bell="door")),
        calls(call("core_memory_append", 1, label="notes", content="more"))
        if again
        else calls(call("give_up", 1, reason="it is too dark")),
        "done",
    ]
    return lines[turn(request)]


def another_steps_in(request: Request) -> Line:
    lines = [
        calls(call("core_memory_append", 1, label="notes", content="same")),
        calls(call("give_up", 1, reason="no"))
        if name(request) == "ann"
        else calls(call("core_memory_append", 1, label="notes", content="from bob")),
        "done",
    ]
    return lines[turn(request)]


def messages(request: Request) -> Line:
    if name(request) == "ann":
        return [
            calls(call("core_memory_append", 1, label="notes", content="ann asks")),
            calls(
                call(MATCHING, 1, message="Count the apples.", match_all=["hand"]),
                call("core_memory_append", 2, label="notes", content="ann waits"),
            ),
            "done",
        ][turn(request)]
    return [calls(call("core_memory_append", 1, label="notes", content=f"{name(request)} counts")), "three"][
        turn(request)
    ]


def every_item(request: Request) -> Line:
    if asked(request) == "List.":
        return [calls(call("core_memory_append", 1, label="notes", content="listed")), '["a", "b", "c"]'][turn(request)]
    assert isinstance(request.subject, Working)
    item = request.subject.inputs[0].value
    return [calls(call("core_memory_append", 1, label="notes", content=f"item {item}")), f"did {item}"][turn(request)]


def made(request: Request) -> Line:
    if name(request) == "factory":
        return [calls(call("ring", 1, bell="made")), "done"][turn(request)]
    return [calls(call("core_memory_append", 1, label="notes", content="one")), "done"][turn(request)]


HANDS = (Worker("bob", tags=["hand"], remembers=True), Worker("cid", tags=["hand"]))
STORIES = {
    "side by side": Story(side_by_side, (Worker("ann", remembers=True, tools=[ring, "memory_rethink"]),)),
    "put anew": Story(put_anew, (Worker("ann", remembers=True, tools=[ring]),)),
    "fallback": Story(
        another_steps_in,
        (Worker("ann", fallbacks=["bob"], remembers=True), Worker("bob", remembers=True)),
        more={"policy": Policy(retry=Retry(base=0.001, attempts=1), refine=False)},
    ),
    "messages": Story(messages, (Worker("ann", tools=[MATCHING], contacts=["tag:hand"], remembers=True), *HANDS)),
    "each item": Story(
        every_item,
        (Worker("ann", output=list[str]), Worker("bob", remembers=True)),
        (Task(TaskId("t1"), "List.", "ann"), Task(TaskId("t2"), "Do.", "bob", for_each=TaskId("t1"))),
    ),
    "made": Story(
        made,
        (Worker("ann", remembers=True),),
        (Task(TaskId("t1"), "Count.", "ann"), Task(TaskId("t2"), "Ring.", "factory")),
        more={"factory": Factory([ring])},
    ),
}


def script(story: Story) -> ScriptedModel:
    return model(work=story.work, refine="Count better.", make='{"persona": "rings", "tools": ["ring"]}')


def executor(story: Story, said: ScriptedModel, place: Path, journal: MemoryJournal) -> Team:
    options: dict[str, object] = {"policy": POLICY, **story.more}
    return team(
        said,
        *story.workers,
        memory=Memory(place, [NOTES], [FINDINGS]),
        journal=journal,
        name="team",
        plan=Plan(tuple(story.tasks), "none"),
        **options,
    )


def copied(source: Path, target: Path) -> Path:
    one = sqlite3.connect(source)
    other = sqlite3.connect(target)
    one.backup(other)
    one.close()
    other.close()
    return target


class Whole:
    """A run to its end: what was written in which order, and the memory as it was whenever something was."""

    def __init__(self, story: Story, folder: Path) -> None:
        self.story = story
        self.folder = folder
        self.place = folder / "memory.db"
        self.order: list[tuple[str, ev.Entry, int]] = []
        self.copies = 0

    async def run(self) -> Result:
        whole = self

        class Ordered(MemoryJournal):
            instant = False

            async def append(self, lease: Lease, entries: Sequence[ev.Entry]) -> None:
                copied(whole.place, whole.folder / f"{whole.copies}.db")
                whole.order.extend((lease.run, one, whole.copies) for one in entries)
                whole.copies += 1
                await super().append(lease, entries)

        said = script(self.story)
        team = executor(self.story, said, self.place, Ordered())
        async with team.remembering() as memory:
            for agent in memory.agents.values():  # enough for a summary to be due
                old = [Turn("user" if n % 2 else "assistant", f"turn {n}") for n in range(80)]
                await memory.catalog.say(agent, old)
        found = await team.run("Count", run="r/1")
        assert found.ending == "complete", found.gaps
        copied(self.place, self.folder / f"{self.copies}.db")
        return found

    async def cut(self, at: int) -> MemoryJournal | None:
        """The journal after so many entries; None if the run was over by then."""
        journal = MemoryJournal()
        leases = dict[str, Lease]()
        for run, entry, _ in self.order[:at]:
            if run not in leases:
                leases[run] = await journal.claim(run, new=True)
            await journal.append(leases[run], [entry])
            if run == "r/1" and isinstance(entry.event, ev.RunEnded):
                return None
        for lease in leases.values():
            await journal.release(lease)
        return journal


def finished(entries: Sequence[ev.Entry], names: Sequence[str] = ("model", "make_worker")) -> int:
    begun = {(e.task, e.attempt, e.step): e.name for one in entries if isinstance(e := one.event, ev.StepStarted)}
    done = [e for one in entries if isinstance(e := one.event, ev.StepFinished)]
    return sum(begun[one.task, one.attempt, one.step] in names for one in done)


async def state(place: Path) -> tuple[list[str], list[str], dict[str, object]]:
    """All that runs left in a memory, in no order that chance decides."""
    catalog = await SqliteCatalog.open(place, space="team")
    try:
        [notes], [archive] = await catalog.find(Block), await catalog.find(Archive)
        passages = sorted(one.text for one in await catalog.passages(archive.id))
        turns: dict[str, object] = {
            one.name: sorted(
                (t.run, t.task, t.role, _NONCE.sub("N", t.text), t.tainted)
                for t in await catalog.turns(one.id, old=True, limit=999)
            )
            for one in await catalog.find(Profile)
        }
        return sorted(notes.value.split("\n")), passages, turns
    finally:
        await catalog.close()


@pytest.mark.parametrize("which", STORIES)
async def test_a_crash_anywhere_doubles_nothing_and_loses_nothing(which: str, tmp_path: Path) -> None:
    """A crash leaves the journal as it was last written, and the memory as it was when more was about to be."""
    whole = Whole(STORIES[which], tmp_path)
    await whole.run()
    lines, *_ = wanted = await state(whole.place)
    assert len(lines) == len(set(lines)), "an attempt does not repeat what an earlier one wrote"
    total = sum(
        finished([one for run, one, _ in whole.order if run == name]) for name in {r for r, _, _ in whole.order}
    )
    tried = 0
    for at in range(1, len(whole.order), hunt_size(quick=3, thorough=1)):
        if whole.order[at - 1][2] == whole.order[at][2]:
            continue  # what is written together is lost together
        journal = await whole.cut(at)
        if journal is None:
            continue
        place = copied(tmp_path / f"{whole.order[at - 1][2] + 1}.db", tmp_path / f"resumed-{at}.db")
        said = script(whole.story)
        found = await executor(whole.story, said, place, journal).resume("r/1")
        assert found.ending == "complete", (at, found.gaps)
        diverged = [one for one in of_kind(found.entries, ev.Noted) if "diverged" in str(one)]
        assert not diverged, at
        assert await state(place) == wanted, at
        runs = {run for run, _, _ in whole.order[:at]}
        paid = sum(finished([one for r, one, _ in whole.order[:at] if r == run]) for run in runs)
        assert sum(map(_of_a_worker, said.requests)) == total - paid, at
        tried += 1
    assert tried > hunt_size(quick=2, thorough=10)


def _of_a_worker(request: Request) -> bool:
    return isinstance(request.subject, Working | Making)


@pytest.mark.parametrize("had", [True, False], ids=["detached", "attached"])
async def test_a_block_that_is_attached_or_detached_between_a_crash_and_its_end_costs_nothing(
    *, had: bool, tmp_path: Path
) -> None:
    """What an attempt is shown first decides which steps it makes: it goes on as it began."""

    def work(request: Request) -> Line:
        return [calls(call("archival_memory_insert", 1, content="one")), "done"][turn(request)]

    async def attach(team: Team, *, on: bool) -> None:
        async with team.remembering() as memory:
            [block] = await memory.catalog.find(Block) or [await memory.catalog.add(Block("own", "text"))]
            if on:
                await memory.catalog.attach(memory.agents["ann"], block.id, Grant("read"))
            else:
                await memory.catalog.detach(memory.agents["ann"], block.id)

    def executor(said: ScriptedModel, journal: MemoryJournal | None = None) -> Team:
        memory = Memory(tmp_path / "m.db", archives=[FINDINGS])
        return team(
            said,
            Worker("ann", tools=["archival_memory_insert"]),
            memory=memory,
            journal=journal,
            plan=Plan((COUNT,), "none"),
        )

    await attach(executor(model()), on=had)
    entries = (await executor(model(work=work)).run("Count", run="r")).entries
    at = next(n for n in range(1, len(entries)) if finished(entries[:n], ["archival_memory_insert"])) + 1
    journal = MemoryJournal()
    lease = await journal.claim("r", new=True)
    await journal.append(lease, entries[:at])
    await journal.release(lease)
    said = model(work=work)
    await attach(executor(said), on=not had)
    found = await executor(said, journal).resume("r")
    assert found.ending == "complete"
    assert len(said.requests) == 1
    assert not [one for one in of_kind(found.entries, ev.Noted) if "diverged" in str(one)]
