"""Groups as clients up to 1.7.0 call them, over plain HTTP: all managers work, which on the old server none did."""

import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from chargehand.memory.catalog import Group
from chargehand.server.house import Houses
from chargehand.server.letta.group_talk import GroupOffice, resume_groups, runs_of
from chargehand.server.settings import Settings
from tests.server.model_server import Answer, FakeModel, Question, Think, fake_model
from tests.server.running import running, settings_in
from tests.server.test_letta_messages import soon

Told = dict[str, Any]


def whoever(asked: Question) -> str:
    """Speaks by the name it was given; as a leader it names whoever has not spoken yet."""
    system = asked.system
    for name in ("ann", "bob", "cid", "boss"):
        if f"You are {name}." in system and "next" not in system:
            heard = [other for other in ("ann", "bob", "cid") if f"{other} says" in asked.user]
            return f"{name} says something, having heard {', '.join(heard) or 'nobody'}."
    return "nobody"


@contextmanager
def house(
    folder: Path, think: Think = whoever, **settings: Any
) -> Generator[tuple[httpx.Client, dict[str, str], FakeModel]]:
    with (
        fake_model(think) as model,
        running(settings_in(folder, **settings)) as one,
        httpx.Client(base_url=one.url, headers=one.headers, timeout=30) as client,
    ):
        agents = {
            name: client.post(
                "/v1/agents/", json={"name": name, "model": model.handle, "system": f"You are {name}."}
            ).json()["id"]
            for name in ("ann", "bob", "cid", "boss")
        }
        yield client, agents, model


def made(client: httpx.Client, agents: dict[str, str], names: str, **manager: object) -> Told:
    sent: Told = {"agent_ids": [agents[name] for name in names.split()], "description": "a group"}
    if manager:
        sent["manager_config"] = manager
    answer = client.post("/v1/groups/", json=sent)
    assert answer.status_code == 200, answer.text
    return answer.json()


def say(client: httpx.Client, group: Told, text: str = "What is new?") -> Told:
    sent = {"messages": [{"role": "user", "content": text}]}
    answer = client.post(f"/v1/groups/{group['id']}/messages", json=sent)
    assert answer.status_code == 200, answer.text
    return answer.json()


def ended(client: httpx.Client, run: str) -> str:
    """How a run stands once it is over, or after twenty seconds."""
    until = time.monotonic() + 20
    while (status := client.get(f"/v1/runs/{run}").json()["status"]) in ("created", "running"):
        assert time.monotonic() < until, "the run did not end"
        time.sleep(0.02)
    return str(status)


def spoken(told: Told) -> list[str]:
    return [one["name"] for one in told["messages"] if one["message_type"] == "assistant_message"]


def test_a_group_is_made_read_changed_listed_and_deleted(tmp_path: Path) -> None:
    with house(tmp_path) as (client, agents, _):
        block = client.post("/v1/blocks/", json={"label": "plan", "value": "x"}).json()
        group = made(client, agents, "ann bob")
        assert (group["manager_type"], group["agent_ids"]) == ("round_robin", [agents["ann"], agents["bob"]])
        path = f"/v1/groups/{group['id']}"
        changed = client.patch(path, json={"description": "new", "shared_block_ids": [block["id"]]}).json()
        assert (changed["description"], changed["shared_block_ids"]) == ("new", [block["id"]])
        assert [one["label"] for one in client.get(f"/v1/agents/{agents['ann']}").json()["blocks"]] == ["plan"]
        led = made(client, agents, "ann", manager_type="supervisor", manager_agent_id=agents["boss"])
        assert [one["id"] for one in client.get("/v1/groups/").json()] == [group["id"], led["id"]]
        assert [one["id"] for one in client.get("/v1/groups/?manager_type=supervisor").json()] == [led["id"]]
        assert [one["id"] for one in client.get(f"/v1/agents/{agents['boss']}/groups").json()] == [led["id"]]
        assert client.delete(path).status_code == 200
        assert client.get(path).status_code == 404
        assert client.get(f"/v1/agents/{agents['ann']}").json()["blocks"] == []


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        ({"agent_ids": [], "description": "x"}, 422),
        ({"agent_ids": ["agent-00000000-0000-4000-8000-000000000000"], "description": "x"}, 404),
        ({"agent_ids": ["ann"], "description": "x", "manager_config": {"manager_type": "swarm"}}, 422),
        ({"agent_ids": ["ann"], "description": "x", "manager_config": {"manager_type": "dynamic"}}, 422),
        ({"agent_ids": ["ann"], "description": "x", "manager_config": {"max_turns": 0}}, 422),
    ],
)
def test_a_group_that_could_not_work_is_refused_in_words(tmp_path: Path, sent: Told, status: int) -> None:
    with house(tmp_path) as (client, agents, _):
        sent = {**sent, "agent_ids": [agents.get(one, one) for one in sent["agent_ids"]]}
        answer = client.post("/v1/groups/", json=sent)
        assert (answer.status_code, bool(answer.json()["detail"])) == (status, True)
        assert client.get("/v1/groups/").json() == []


def test_in_a_round_everybody_speaks_in_turn_and_hears_the_others(tmp_path: Path) -> None:
    with house(tmp_path) as (client, agents, _):
        told = say(client, made(client, agents, "ann bob", manager_type="round_robin", max_turns=3))
        assert spoken(told) == ["ann", "bob", "ann"]
        words = [one["content"] for one in told["messages"] if one["message_type"] == "assistant_message"]
        assert "having heard nobody" in words[0]
        assert "having heard ann" in words[1]
        assert "bob" in words[2]
        assert told["stop_reason"]["stop_reason"] == "end_turn"
        assert told["usage"]["step_count"] == 3


def test_a_supervisor_hears_all_members_and_answers_last(tmp_path: Path) -> None:
    with house(tmp_path) as (client, agents, _):
        group = made(client, agents, "ann bob cid", manager_type="supervisor", manager_agent_id=agents["boss"])
        told = say(client, group)
        assert sorted(spoken(told)[:3]) == ["ann", "bob", "cid"]
        assert spoken(told)[3] == "boss"
        assert "ann, bob, cid" in told["messages"][-1]["content"]


def test_whom_the_manager_names_speaks_next_until_somebody_says_the_token(tmp_path: Path) -> None:
    def think(asked: Question) -> str:
        if "You are ann." in asked.system:
            return "Here is one thing."
        if "You are cid." in asked.system:
            return "That was all. DONE!"
        wanted = "cid" if "one thing" in asked.user else "ann"
        return f'{{"next": "{ids[wanted]}", "why": "it is {wanted}\'s"}}'

    ids: dict[str, str] = {}
    with house(tmp_path, think) as (client, agents, _):
        ids.update(agents)
        group = made(
            client, agents, "ann bob cid", manager_type="dynamic", manager_agent_id=agents["boss"], max_turns=9
        )
        told = say(client, group)
        assert spoken(told) == ["ann", "cid"]


def test_behind_a_sleeptime_group_members_work_every_so_many_turns(tmp_path: Path) -> None:
    with house(tmp_path) as (client, agents, model):
        group = made(
            client, agents, "ann bob", manager_type="sleeptime", manager_agent_id=agents["boss"],
            sleeptime_agent_frequency=2,
        )  # fmt: skip
        first, second = say(client, group, "one"), say(client, group, "two")
        assert len(first["usage"]["run_ids"]) == 1
        assert len(second["usage"]["run_ids"]) == 3
        assert "boss says" in second["messages"][-1]["content"]
        for run in second["usage"]["run_ids"][1:]:
            assert ended(client, run) == "completed"
        behind = [one for one in model.questions if "You work behind another agent" in one.user]
        assert len(behind) == 2
        assert all("two" in one.user and "boss says" in one.user for one in behind)
        assert client.get(f"/v1/groups/{group['id']}").json()["turns_counter"] == 2


def test_what_a_group_said_is_listed_streamed_and_forgotten(tmp_path: Path) -> None:
    with house(tmp_path) as (client, agents, _):
        group = made(client, agents, "ann bob")
        say(client, group)
        path = f"/v1/groups/{group['id']}"
        listed = client.get(f"{path}/messages?order=asc").json()
        assert [one["name"] for one in listed] == ["ann", "bob"]
        assert client.get(f"{path}/messages?order=asc&after={listed[-1]['id']}").json() == []
        sent = {"messages": [{"role": "user", "content": "And now?"}]}
        lines = client.post(f"{path}/messages/stream", json=sent).text.split("\n\n")
        assert sum("assistant_message" in line for line in lines) == 2
        assert lines[-2] == "data: [DONE]"
        assert client.patch(f"{path}/reset-messages").status_code == 200
        assert client.get(f"{path}/messages").json() == []


def test_who_fails_in_a_group_is_a_gap_and_the_others_are_heard(tmp_path: Path) -> None:
    def think(asked: Question) -> str:
        return "" if "You are bob." in asked.system else whoever(asked)

    with house(tmp_path, think) as (client, agents, _):
        group = made(client, agents, "ann bob cid", manager_type="supervisor", manager_agent_id=agents["boss"])
        told = say(client, group)
        assert "having heard ann, cid" in told["messages"][-1]["content"]


def slowly(_asked: Question) -> Answer:
    return Answer("Slow.", seconds=0.4)


def test_a_slow_group_shows_signs_of_life_and_is_not_set_to_work_twice(tmp_path: Path) -> None:
    with house(tmp_path, slowly, pulse=0.1) as (client, agents, model):
        group = made(client, agents, "ann bob")
        path, sent = f"/v1/groups/{group['id']}/messages", {"messages": [{"role": "user", "content": "Hurry."}]}
        with ThreadPoolExecutor(2) as pool:
            first = pool.submit(client.post, path, json=sent)
            soon(lambda: model.questions)  # the first is under way
            again = client.post(path, json=sent, headers={"x-stainless-retry-count": "1"})
        assert first.result().text.startswith(" \n")
        assert first.result().json() == again.json()
        assert len(model.questions) == 2


def cut_off(settings: Settings, model: FakeModel) -> str:
    """A group whose server was stopped while the second of two spoke."""
    with running(settings) as one, httpx.Client(base_url=one.url, headers=one.headers, timeout=30) as client:
        agents = [
            client.post("/v1/agents/", json={"name": name, "model": model.handle, "system": f"You are {name}."}).json()
            for name in ("ann", "bob")
        ]
        sent = {"agent_ids": [one["id"] for one in agents], "description": "two"}
        group = client.post("/v1/groups/", json=sent).json()["id"]
        said = {"messages": [{"role": "user", "content": "What is new?"}]}
        with pytest.raises(httpx.ReadTimeout):  # whoever asked goes away, and the talk goes on
            client.post(f"/v1/groups/{group}/messages/stream", json=said, timeout=1.0)
        soon(lambda: len(model.questions) == 2)
    return str(group)


async def test_a_talk_that_a_stop_cut_off_is_gone_on_with(tmp_path: Path) -> None:
    slow = True

    def think(asked: Question) -> Answer:
        return Answer(whoever(asked), seconds=10.0 if slow and "You are bob." in asked.system else 0.0)

    settings = settings_in(tmp_path, grace=0.1)
    with fake_model(think) as model:
        which = cut_off(settings, model)
        slow = False
        async with Houses(settings, dict[str, str]().get) as houses:
            house = await houses.of("main")
            assert await resume_groups(house) == 1
            group = await house.memory.catalog.get(Group, which)
            assert group is not None
            [run] = runs_of(group)
            await house.floor.outcome(run)
            told = await house.part(GroupOffice).told(run)
        assert [one.name for one in told.messages] == ["ann", "bob"]
        assert sum("You are ann." in one.system for one in model.questions) == 1  # what was done is not done again
