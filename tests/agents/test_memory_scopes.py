"""What workers remember is kept apart by the scope of a run: its labels `session` and `user`."""

import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from chargehand import Archive, Memory, Plan, Policy, Reply, ScriptedModel, Supervisor, Task, Team, ToolCall, Worker
from chargehand.engine.policy import Retry
from chargehand.memory.conversations import Turn, scope_of
from chargehand.models.messages import Request
from chargehand.models.testing.scripted import Line

IBAN = "My IBAN is DE02 1203."


def noted(_: Request) -> Line:
    return "Noted."


def desk(model: ScriptedModel, memory: Memory, task: str = "Do what is asked.") -> Team:
    plan = Plan((Task("t1", task, "agent"),), "forward")
    worker = Worker("agent", "answers customers", model=model, remembers=True)
    quick = Policy(retry=Retry(attempts=1, base=0.001), refine=False)
    return Team([worker], supervisor=Supervisor(plan=plan), memory=memory, name="desk", policy=quick)


def told(model: ScriptedModel) -> str:
    return "\n".join(message.text for message in model.requests[-1].messages)


@pytest.mark.parametrize(
    ("asked", "is_shown"),
    [
        ({"user": "ann"}, True),
        ({"user": "bob"}, False),
        ({"user": "ann", "session": "s1"}, False),
        ({"session": "ann"}, False),
        ({}, False),
        ({"user": ""}, False),
        ({"team": "ann"}, False),
        ({"user": "ann", "team": "blue"}, True),
    ],
)
async def test_a_worker_is_shown_the_turns_of_its_scope_only(asked: Mapping[str, str], *, is_shown: bool) -> None:
    model = ScriptedModel(noted)
    memory = Memory()
    team = desk(model, memory, IBAN)
    async with team:
        await team.run("Refund me.", labels={"user": "ann"})
        await team.run("What do you know?", labels=asked)
    # its own task has the text as well
    assert told(model).count(IBAN) == (2 if is_shown else 1)


async def test_what_a_worker_files_for_two_users_is_two_passages() -> None:
    def file(request: Request) -> Line:
        if request.messages[-1].role == "tool":
            return "Noted."
        return Reply(
            calls=(ToolCall("1", "archival_memory_insert", '{"content": "Allergic to nuts."}'),), finish="tools"
        )

    plan = Plan((Task("t1", "Note it.", "agent"),), "forward")
    worker = Worker("agent", "notes", model=ScriptedModel(file), archives={"facts": "append"})
    memory = Memory(archives=[Archive("facts", embedding="words")])
    team = Team([worker], supervisor=Supervisor(plan=plan), memory=memory, name="desk")
    async with team, team.remembering() as opened:
        for number, user in enumerate(("ann", "bob", "ann")):
            await team.run("Note it.", run=f"r{number}", labels={"user": user})
        [facts] = await opened.catalog.find(Archive, name="facts")
        passages = await opened.catalog.passages(facts.id)
    assert [passage.origin.run for passage in passages] == ["r0", "r1"]
    assert passages[0].origin.scope == scope_of({"user": "ann"})


async def test_runs_without_such_a_label_share_one_conversation() -> None:
    model = ScriptedModel(noted)
    async with desk(model, Memory(), IBAN) as team:
        await team.run("Refund me.")
        await team.run("What do you know?", labels={"team": "blue"})
    assert told(model).count(IBAN) == 2


def test_a_scope_is_made_of_the_labels_then_of_the_thread_then_of_the_key() -> None:
    scopes = [
        scope_of({"user": "1"}, asker="k"),
        scope_of({"session": "1"}, asker="k"),
        scope_of({"session": "1", "user": "1"}),
        scope_of({"session": "1", "user": "2"}),
        scope_of({}, asker="k", thread="1"),
        scope_of({}, asker="l", thread="1"),
        scope_of({}, thread="1"),
        scope_of({}, asker="k"),
        scope_of({"user": ""}, asker="l"),
        scope_of({}),
    ]
    assert [scope.partition("-")[0] for scope in scopes] == [
        *("user", "session", "session", "session"),
        *("thread", "thread", "thread", "key", "key", ""),
    ]
    assert len(set(scopes)) == len(scopes)
    assert scopes[0] == scope_of({"user": "1", "other": "x"}, asker="another", thread="y")


async def test_a_search_finds_the_turns_of_the_scope_only() -> None:
    def search(request: Request) -> Line:
        if request.messages[-1].role == "tool":
            return "Found: " + request.messages[-1].text
        return Reply(calls=(ToolCall("1", "conversation_search", '{"query": "IBAN"}'),), finish="tools")

    found: dict[str, str] = {}
    memory = Memory()
    model = ScriptedModel(search)
    async with desk(model, memory, IBAN) as team:
        for user in ("ann", "bob", "ann"):
            result = await team.run("Look.", labels={"user": user})
            found[user] = str(result.answer)
    assert "nothing found" in found["bob"]
    assert "DE02" in found["ann"]


async def test_a_fork_keeps_the_scope_of_its_run() -> None:
    async with desk(ScriptedModel(noted), Memory(), IBAN) as team:
        await team.run("Refund me.", run="first", labels={"user": "ann"})
        async with team.driven() as runner:
            outcome = await runner.fork("first", "second", team.request("And now?", time.time()))
    assert outcome.state.requested.scope == scope_of({"user": "ann"})


async def test_a_team_inside_a_team_is_in_the_scope_of_the_run_around_it(tmp_path: Path) -> None:
    model = ScriptedModel(noted)
    inner = desk(model, Memory(tmp_path / "memory.db"), IBAN)
    outer = Team(
        [inner.as_worker("desk", "answers customers")],
        supervisor=Supervisor(plan=Plan((Task("t1", "Ask the desk.", "desk"),), "forward")),
    )
    async with outer, inner:
        for user, count in (("ann", 1), ("bob", 1), ("ann", 2)):
            await outer.run("Refund me.", labels={"user": user})
            assert told(model).count(IBAN) == count


async def test_a_summary_stands_for_the_turns_of_its_scope(tmp_path: Path) -> None:
    model = ScriptedModel(noted)
    team = desk(model, Memory(tmp_path / "memory.db"))
    async with team:
        await team.run("x", labels={"user": "ann"})
        async with team.remembering() as memory:
            agent = memory.agents["agent"]
            ann = memory.conversation_of(agent, scope_of({"user": "ann"}))
            for number in range(40):
                question = Turn("user", f"question {number}")
                await memory.catalog.say(ann, [question, Turn("assistant", "Noted.")], key=f"more {number}")
        await team.run("x", labels={"user": "ann"})
        await team.run("x", labels={"user": "bob"})
        async with team.remembering() as memory:
            bob = memory.conversation_of(agent, scope_of({"user": "bob"}))
            assert [turn.role for turn in await memory.catalog.turns(ann)][:1] == ["summary"]
            assert [turn.role for turn in await memory.catalog.turns(bob)] == ["user", "assistant"]
            assert await memory.catalog.turns(agent) == []
