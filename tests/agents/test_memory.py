"""Workers that use memory: what they are shown, what others see of it, and what is there in the next run."""

import json
from collections.abc import Awaitable
from pathlib import Path

import pytest
from msgspec import structs

from chargehand.agents.result import Result
from chargehand.agents.roles import Worker
from chargehand.engine import events as ev
from chargehand.engine.budget import Budget
from chargehand.engine.failure import Failure
from chargehand.engine.policy import Policy, Retry
from chargehand.errors import Invalid
from chargehand.memory.archives import Archive
from chargehand.memory.blocks import PERSON, Block, Grant, Rethink
from chargehand.memory.catalog import Memory
from chargehand.memory.conversations import Turn
from chargehand.memory.session import open_catalog
from chargehand.models.messages import Request
from chargehand.models.model import ModelCard
from chargehand.models.request_facts import Answering, Planning, Working
from chargehand.models.testing.scripted import Line
from chargehand.tools.tool import tool
from tests.agents.crowd import call, calls, model, of_kind, plan, team
from tests.envelopes import unwrap

GUIDE = Block("guidelines", "Write in the past tense.", "how we write", trusted=True)
NOTES = Block("notes", "", "what was found", share="append")
NOTING = Worker("ann", tools=["core_memory_append"])
CELLAR = "Count the apples in the cellar."
ATTIC = "Count the pears in the attic."


def said(request: Request) -> tuple[str, str]:
    return request.messages[0].text, request.messages[1].text


def steps(found: Result, name: str) -> list[ev.StepStarted]:
    return [
        one for one in of_kind(found.entries, ev.StepStarted) if isinstance(one, ev.StepStarted) and one.name == name
    ]


def working(requests: list[Request]) -> list[Request]:
    return [one for one in requests if isinstance(one.subject, Working)]


async def test_trusted_blocks_are_instructions_and_all_others_are_data() -> None:
    script = model()
    executor = team(script, Worker("ann"), memory=Memory(blocks=[GUIDE, Block("notes", "Twelve apples.")]))
    assert (await executor.run("Count")).ending == "complete"
    system, user = said(working(script.requests)[0])
    assert "[guidelines: how we write]" in system
    assert "Write in the past tense." in system
    assert "Twelve apples." not in system
    envelope = user[user.index("<data ") : user.index("</data ") + len("</data 0123456789abcdef>")]
    assert unwrap(envelope) == ("block notes", "Twelve apples.")
    assert user.endswith(f".)\n\nTask: {CELLAR}")


async def test_a_worker_without_memory_is_told_what_it_was_always_told_and_makes_no_step_for_it() -> None:
    plain = model()
    beside = model()
    await team(plain, Worker("ann")).run("Count")
    memory = Memory(blocks=[Block("notes", "secret", share="none")], archives=[Archive("old", share="none")])
    found = await team(beside, Worker("ann"), memory=memory).run("Count")
    assert said(working(plain.requests)[0]) == said(working(beside.requests)[0])
    assert working(plain.requests)[0].tools == working(beside.requests)[0].tools
    assert steps(found, "memory") == []


async def test_what_one_worker_writes_is_what_another_sees_in_its_next_step(tmp_path: Path) -> None:
    seen: list[tuple[str, int, str]] = []

    def work(request: Request) -> Line:
        assert isinstance(request.subject, Working)
        turn = sum(one.role == "assistant" for one in request.messages)
        name = request.subject.worker.name
        seen.append((name, turn, request.subject.blocks[0].text))
        if turn < 3:
            return calls(call("core_memory_append", turn + 1, label="notes", content=f"{name} {turn}"))
        return "counted"

    executor = team(
        model(plans=[plan((CELLAR, "ann", ()), (ATTIC, "bob", ()))], work=work),
        NOTING,
        structs.replace(NOTING, name="bob"),
        memory=Memory(tmp_path / "memory.db", [NOTES]),
    )
    assert (await executor.run("Count")).ending == "complete"
    async with executor.remembering() as memory:
        [one] = await memory.catalog.attached(memory.agents["ann"])
        assert isinstance(one.thing, Block)
        history = await memory.catalog.history(one.thing.id)
    assert sorted(one.thing.value.split("\n")) == sorted(f"{who} {n}" for who in ("ann", "bob") for n in range(3))
    assert {(one.origin.name, one.origin.task, one.origin.attempt) for one in history[:-1]} == {
        ("ann", "t1", 1),
        ("bob", "t2", 1),
    }
    for name, turn, text in seen:
        mine = [line for line in text.split("\n") if line.startswith(name)]
        assert mine == [f"{name} {n}" for n in range(turn)], "what it wrote itself it sees in its next step"
    last = {name: text for name, turn, text in seen if turn == 3}
    assert any(other in last[name] for name, other in (("ann", "bob"), ("bob", "ann"))), "and so does the other"


async def test_a_block_that_is_changed_between_two_steps_is_shown_anew_and_an_unchanged_one_costs_little() -> None:
    script = model(work=lambda request: next(lines))

    @tool
    async def meddle() -> str:
        """Change the notes behind the worker's back."""
        async with executor.remembering() as memory:
            block = next(one for one in await memory.catalog.find(Block) if one.label == "notes")
            await memory.catalog.edit(block.id, Rethink("A person was here."), PERSON)
        return "done"

    lines = iter([calls(call("meddle")), "counted"])
    executor = team(script, Worker("ann", tools=[meddle]), memory=Memory(blocks=[NOTES, GUIDE]))
    found = await executor.run("Count")
    first, second = working(script.requests)
    assert "A person was here." not in said(first)[1]
    assert "A person was here." in said(second)[1]
    assert said(first)[0] == said(second)[0], "the guidelines did not change"
    looks = [
        one.result
        for started, one in zip(
            of_kind(found.entries, ev.StepStarted), of_kind(found.entries, ev.StepFinished), strict=True
        )
        if isinstance(started, ev.StepStarted) and isinstance(one, ev.StepFinished) and started.name == "memory"
    ]
    assert b"guidelines" in bytes(looks[0])
    assert b"guidelines" not in bytes(looks[1])


async def test_an_unchanged_memory_is_a_few_bytes_in_the_journal() -> None:
    lines = [calls(call("add", n, a=n, b=1)) for n in range(1, 4)]

    @tool
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    big = Block("notes", "x" * 10_000)
    found = await team(model(work=[*lines, "3"]), Worker("ann", tools=[add]), memory=Memory(blocks=[big])).run("Count")
    numbers = [one.step for one in steps(found, "memory")]
    done = {one.step: one.result for one in of_kind(found.entries, ev.StepFinished) if isinstance(one, ev.StepFinished)}
    assert [len(bytes(done[n])) < 10 for n in numbers] == [False, True, True, True]


async def test_what_a_worker_did_in_one_run_it_remembers_in_the_next(tmp_path: Path) -> None:
    script = model(work=["There are 12 apples.", "As before: 12."])
    executor = team(script, Worker("ann", remembers=True), memory=Memory(tmp_path / "memory.db"))
    await executor.run("Count", run="first")
    again = team(script, Worker("ann", remembers=True), memory=Memory(tmp_path / "memory.db"))
    await again.run("Count again", run="second")
    first, second = working(script.requests)
    assert isinstance(first.subject, Working)
    assert isinstance(second.subject, Working)
    assert first.subject.earlier == ()
    assert [(one.role, one.text) for one in second.subject.earlier] == [
        ("user", CELLAR),
        ("assistant", "There are 12 apples."),
    ]
    _, user = said(second)
    assert user.index("There are 12 apples.") < user.index("Task: ")
    assert "conversation_search" in {one.name for one in second.tools}
    async with again.remembering() as memory:
        turns = await memory.catalog.turns(memory.agents["ann"])
    assert [(one.run, one.task) for one in turns] == [("first", "t1")] * 2 + [("second", "t1")] * 2


async def test_a_memory_of_this_process_lasts_as_long_as_the_team() -> None:
    script = model()
    executor = team(script, Worker("ann", remembers=True), memory=Memory())
    await executor.run("Count")
    await executor.bounded(timeout=100).run("Count again")
    subject = working(script.requests)[1].subject
    assert isinstance(subject, Working)
    assert len(subject.earlier) == 2


def test_even_over_two_event_loops() -> None:
    script = model()
    executor = team(script, Worker("ann", remembers=True), memory=Memory())
    executor.run_sync("Count")
    executor.run_sync("Count again")
    subject = working(script.requests)[1].subject
    assert isinstance(subject, Working)
    assert len(subject.earlier) == 2


async def test_old_turns_get_behind_a_summary_that_is_paid_for_and_reserved() -> None:
    script = model(card=ModelCard("scripted", micros_in=0.0, micros_out=0.0))
    executor = team(script, Worker("ann", remembers=True), memory=Memory(), budget=Budget(calls=20))
    async with executor.remembering() as memory:
        agent = memory.agents["ann"]
        await memory.catalog.say(agent, [Turn("user" if n % 2 else "assistant", f"turn {n}") for n in range(100)])
        found = await executor.run("Count", run="r")
        assert found.ending == "complete"
        turns = await memory.catalog.turns(agent, limit=100)
    assert (turns[0].role, turns[0].text) == ("summary", "short")
    asked = [one for one in script.requests if one.subject is None]
    assert len(asked) == 1
    assert "turn 5" in asked[0].messages[1].text
    subject = working(script.requests)[0].subject
    assert isinstance(subject, Working)
    assert (subject.earlier[0].role, subject.earlier[0].text) == ("summary", "short")
    assert subject.earlier[-1].text == "turn 99"
    [step] = steps(found, "summary")
    assert step.reserve is not None
    assert found.spent.calls == len(script.requests), "the summary is on the bill"


async def test_a_summary_that_the_model_cannot_write_is_made_by_rule() -> None:
    script = model()
    original = script._script
    assert callable(original)

    def play(request: Request) -> Line | Awaitable[Line]:
        return Failure("network", "down") if request.subject is None else original(request)

    script._script = play
    executor = team(script, Worker("ann", remembers=True), memory=Memory())
    async with executor.remembering() as memory:
        agent = memory.agents["ann"]
        await memory.catalog.say(agent, [Turn("user" if n % 2 else "assistant", f"turn {n}") for n in range(100)])
        assert (await executor.run("Count")).ending == "complete"
        turns = await memory.catalog.turns(agent, limit=100)
    assert turns[0].role == "summary"
    assert "turn 3" in turns[0].text


async def test_planner_and_writer_see_what_the_team_shares_and_nothing_else() -> None:
    script = model(plans=[plan((CELLAR, "ann", ()))])
    own = Block("diary", "ann's own words", share="none")
    executor = team(script, Worker("ann", blocks={"diary": "write"}), memory=Memory(blocks=[GUIDE, NOTES, own]))
    async with executor.remembering() as memory:
        block = next(one for one in await memory.catalog.find(Block) if one.label == "notes")
        await memory.catalog.edit(block.id, Rethink("Twelve apples."), PERSON)
        await executor.run("Count")
    for kind in (Planning, Answering):
        system, user = said(next(one for one in script.requests if isinstance(one.subject, kind)))
        assert "Write in the past tense." in system
        assert "Twelve apples." in user
        assert "Twelve apples." not in system
        assert "ann's own words" not in system + user
    worker = said(working(script.requests)[0])
    assert "ann's own words" in worker[1]


async def test_the_names_of_blocks_and_archives_are_enums_of_the_tools() -> None:
    memory = Memory(
        blocks=[NOTES, GUIDE, Block("plan", share="write")],
        archives=[Archive("old", embedding="words"), Archive("closed", embedding="words", share="read")],
    )
    script = model()
    await team(script, Worker("ann", remembers=True), memory=memory).run("Count")
    schemas = {one.name: json.loads(bytes(one.parameters))["properties"] for one in working(script.requests)[0].tools}
    assert schemas["core_memory_append"]["label"]["enum"] == ["notes", "plan"]
    assert schemas["memory_replace"]["label"]["enum"] == ["plan"]
    assert schemas["archival_memory_search"]["archive"]["enum"] == ["old", "closed"]
    assert schemas["archival_memory_insert"]["archive"]["enum"] == ["old"]


@pytest.mark.parametrize(
    ("worker", "names"),
    [
        (Worker("ann"), []),
        (Worker("ann", archives=["old"]), ["archival_memory_insert", "archival_memory_search"]),
        (Worker("ann", tools=["core_memory_append"]), ["core_memory_append"]),
        (Worker("ann", blocks={"notes": "read"}, archives=()), []),
        (
            Worker("ann", blocks={"notes": "write"}, archives={"old": "read"}),
            ["core_memory_append", "memory_insert", "memory_replace", "archival_memory_search"],
        ),
        (Worker("ann", blocks={"notes": "none"}, archives=[], remembers=True), ["conversation_search"]),
        (
            Worker(
                "ann",
                blocks={"notes": "none", "guidelines": Grant("append", tainted=True)},
                archives=["old"],
                tools=["memory_rethink"],
            ),
            ["memory_rethink", "core_memory_append", "archival_memory_insert", "archival_memory_search"],
        ),
    ],
)
async def test_a_worker_has_the_tools_for_what_it_may_do(worker: Worker, names: list[str]) -> None:
    memory = Memory(blocks=[NOTES, GUIDE], archives=[Archive("old", embedding="words")])
    script = model()
    executor = team(script, worker, memory=memory)
    await executor.run("Count")
    given = [one.name for one in working(script.requests)[0].tools]
    assert given == [*names, "give_up"]
    assert list(executor.roster.agents[0].tools) == names


@pytest.mark.parametrize(
    ("worker", "memory", "message"),
    [
        (Worker("ann", blocks={"note": "read"}), Memory(blocks=[NOTES]), "block 'note'.* did you mean 'notes'"),
        (Worker("ann", archives=["ald"]), Memory(archives=[Archive("old")]), "archive 'ald'.* did you mean 'old'"),
        (Worker("ann", tools=["memory_rethunk"]), Memory(), "names the tool 'memory_rethunk'.* 'memory_rethink'"),
        (Worker("ann", tools=["memory_rethink"]), None, "has the tool 'memory_rethink', but its team has no memory"),
        (Worker("ann", remembers=True), None, "worker 'ann' remembers, but its team has no memory"),
        (Worker("ann"), Memory(blocks=[NOTES, NOTES]), "two blocks called 'notes'"),
    ],
)
def test_what_cannot_be_meant_is_said_before_anything_is_opened(
    worker: Worker, memory: Memory | None, message: str, tmp_path: Path
) -> None:
    with pytest.raises(Invalid, match=message):
        team(model(), worker, memory=memory)


async def test_nothing_is_opened_before_it_is_needed(tmp_path: Path) -> None:
    place = tmp_path / "memory.db"
    executor = team(model(), Worker("ann"), memory=Memory(place, [NOTES]))
    assert not place.exists()
    await executor.run("Count")
    assert place.exists()
    with pytest.raises(Invalid, match="has no memory"):
        async with team(model(), Worker("ann")).remembering():
            pass


async def test_a_memory_that_cannot_be_read_fails_the_task_in_words_and_not_the_run() -> None:
    catalog = await open_catalog()

    @tool
    async def shut() -> str:
        """Close the memory."""
        await catalog.close()
        return "shut"

    script = model(plans=[plan((CELLAR, "ann", ()), (ATTIC, "bob", ()))], work=[calls(call("shut")), "done"])
    executor = team(
        script,
        Worker("ann", tools=[shut], blocks={"notes": "read"}),
        Worker("bob", blocks={"notes": "none"}),
        memory=Memory(catalog, [NOTES]),
        policy=Policy(retry=Retry(attempts=1, base=0.001), refine=False),
    )
    found = await executor.run("Count")
    assert found.ending in ("failed", "partial")
    assert any("memory cannot be read" in one.message for one in found.gaps)


async def test_a_result_is_not_lost_because_it_cannot_be_remembered() -> None:
    catalog = await open_catalog()

    def work(request: Request) -> Line:
        catalog._store.database._closed = True  # pyright: ignore[reportAttributeAccessIssue,reportUnknownMemberType] - the memory goes away
        return "There are 12 apples."

    plan_of_one = plan((CELLAR, "ann", ()), combine="forward")
    executor = team(model(plans=[plan_of_one], work=work), Worker("ann", remembers=True), memory=Memory(catalog))
    found = await executor.run("Count")
    assert found.ending == "complete"
    assert "12 apples" in str(found.answer)
    notes = [one.text for one in of_kind(found.entries, ev.Noted) if isinstance(one, ev.Noted)]
    assert any("what was done is not remembered" in one for one in notes)
