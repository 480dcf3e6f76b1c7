"""Servers whose data is in PostgreSQL: the real Letta client, tokens and repeated calls, with one server and two."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from letta_client import Letta

from chargehand.cli.main import main
from chargehand.errors import StoreUnavailable, Unknown
from chargehand.journal import postgres_listener, postgres_notices
from chargehand.journal.store import list_runs
from chargehand.server.middleware import postgres_keys
from chargehand.server.middleware.gate import open_keys
from chargehand.server.middleware.keys import create_key, revoke_key
from chargehand.server.middleware.postgres_keys import PostgresKeys
from chargehand.server.settings import ServerSettings
from chargehand.store_url import PostgresUrl, postgres_url
from tests.postgres import PostgresServer
from tests.server.api import GOAL, garden
from tests.server.guarded import guarded
from tests.server.letta_conformance import conform
from tests.server.model_server import Answer, fake_model
from tests.server.running import running, settings_in

OPERATOR = "an-operators-own-token-0123456789"


@pytest.fixture
def store(postgres_store: str) -> PostgresUrl:
    return postgres_url(postgres_store)


@pytest.fixture
def keys(store: PostgresUrl) -> Iterator[PostgresKeys]:
    with closing(PostgresKeys(store, look_every=0.1)) as opened:
        yield opened


def until(condition: object, seconds: float = 20.0) -> None:
    """Wait for what must become true."""
    assert callable(condition)
    for _ in range(int(seconds / 0.02)):
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError("it did not come true")


# --- Letta


def test_the_newest_client_finds_everything_it_knows(tmp_path: Path, store: PostgresUrl) -> None:
    with fake_model(lambda _: "Nothing is new.") as model:
        with running(settings_in(tmp_path, store=store)) as server:
            assert len(conform(server.url, server.token, model.handle)) == 9
            with Letta(base_url=server.url, api_key=server.token) as client:
                agent = client.agents.create(
                    name="bob", model=model.handle, memory_blocks=[{"label": "a", "value": "b"}]
                )
                client.agents.messages.create(agent.id, input="What is new?")
                said = [message.id for message in client.agents.messages.list(agent.id)]
        with (
            running(settings_in(tmp_path, store=store)) as server,
            Letta(base_url=server.url, api_key=server.token) as client,
        ):
            assert [message.id for message in client.agents.messages.list(agent.id)] == said
            assert [block.value for block in client.agents.blocks.list(agent.id)] == ["b"]
            assert [run.agent_id for run in client.runs.list(agent_id=agent.id)] == [agent.id]
    assert [file.name for file in tmp_path.iterdir()] == [], "all of it is in the database"


def test_a_message_is_followed_on_another_server_though_every_notification_is_lost(
    tmp_path: Path, store: PostgresUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_notices, "CHANNEL", "another")
    monkeypatch.setattr(postgres_listener, "QUERY_INTERVAL", 600.0)
    with (
        fake_model(lambda _: Answer("at last", seconds=0.3)) as model,
        running(settings_in(tmp_path / "one", store=store)) as one,
        running(settings_in(tmp_path / "two", store=store, agent_poll=0.1)) as two,
        Letta(base_url=one.url, api_key=one.token) as client,
        Letta(base_url=two.url, api_key=two.token) as other,
    ):
        agent = client.agents.create(name="bob", model=model.handle)
        run = client.agents.messages.create_async(agent.id, input="What is new?")
        followed = [message.message_type for message in other.runs.messages.stream(run.id)]
        assert "assistant_message" in followed
        assert "error_message" not in followed


# --- tokens


def test_a_token_is_kept_as_a_hash_and_can_be_revoked_once_and_again(keys: PostgresKeys, store: PostgresUrl) -> None:
    key, token = create_key("lab", "board", "read", 5.0, expires=9.0)
    keys.add(key)
    with closing(open_keys(store)) as others:
        assert [known for known in others.all() if known.id == key.id] == [key]
        assert revoke_key(others, key.id, 6.0).revoked == 6.0
        assert revoke_key(others, key.id, 7.0).revoked == 6.0
        with pytest.raises(Unknown, match="there is no token 'none'"):
            revoke_key(others, "none", 7.0)
    assert token.encode() not in key.digest


def test_a_token_that_is_made_or_revoked_elsewhere_counts_here_at_once(
    tmp_path: Path, store: PostgresUrl, capsys: pytest.CaptureFixture[str]
) -> None:
    database = ["--store", store.dsn]
    with (
        guarded(ServerSettings(tmp_path, store=store, token=OPERATOR)) as url,
        httpx.Client(base_url=url, timeout=10) as client,
    ):
        assert main(["tokens", "create", "--tenant", "lab", *database]) == 0
        token = capsys.readouterr().out.strip()
        headers = {"Authorization": f"Bearer {token}"}
        until(lambda: client.get("/who", headers=headers).status_code == 200)
        with client.stream("GET", "/stream", headers=headers) as stream:
            lines = stream.iter_lines()
            assert next(lines) == "data: 0"
            assert main(["tokens", "revoke", token.split("_")[1], *database]) == 0
            until(lambda: client.get("/who", headers=headers).status_code == 401)
            assert [line for line in lines if line] == []
        assert client.get("/who", auth=("", OPERATOR)).status_code == 200


def test_a_change_is_noticed_without_any_notification(
    keys: PostgresKeys, store: PostgresUrl, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection that listens is lost, and whoever writes next tells nobody."""
    monkeypatch.setattr(postgres_keys, "_NOTIFY", "SELECT 1")
    before = keys.version()
    postgres.disconnect()
    with closing(PostgresKeys(store)) as other:
        other.add(create_key("lab", "", "run", 5.0)[0])
    until(lambda: keys.version() != before, seconds=postgres_keys.OLDEST)


def test_keys_that_cannot_be_read_are_good_for_nothing_and_that_is_logged_once(
    keys: PostgresKeys, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    keys.add(create_key("lab", "", "run", 5.0)[0])
    assert keys.version() > 0
    monkeypatch.setattr(postgres_keys, "_ALL", "SELECT * FROM nothing_there")
    monkeypatch.setattr(postgres_keys, "OLDEST", 0.3)
    monkeypatch.setattr(postgres_keys, "_TRY_EVERY", 0.02)
    until(lambda: _is_refused(keys))
    monkeypatch.undo()
    until(lambda: not _is_refused(keys))
    assert sum("cannot be read, trying again" in message for message in caplog.messages) == 1


def _is_refused(keys: PostgresKeys) -> bool:
    try:
        keys.version()
    except StoreUnavailable:
        return True
    return False


# --- repeated calls


def test_two_servers_that_get_the_same_call_at_once_begin_one_run(tmp_path: Path, store: PostgresUrl) -> None:
    with garden(tmp_path / "one", store=store) as one, garden(tmp_path / "two", store=store) as other:
        body = {"team": "garden", "goal": GOAL}

        def call(client: httpx.Client, key: str) -> httpx.Response:
            return client.post("/api/runs", json=body, headers={"Idempotency-Key": key})

        with ThreadPoolExecutor(4) as pool:
            for number in range(5):
                key = f"order-{number}"
                calls = [pool.submit(call, each.client, key) for each in (one, other, one, other)]
                replies = [each.result() for each in calls]
                assert [reply.status_code for reply in replies] == [201] * 4, [reply.text for reply in replies]
                assert len({reply.json()["run"] for reply in replies}) == 1
                assert sum("idempotency-replayed" not in reply.headers for reply in replies) == 1
        changed = other.client.post(
            "/api/runs", json={**body, "goal": "Another?"}, headers={"Idempotency-Key": "order-0"}
        )
        assert (changed.status_code, changed.json()["code"]) == (422, "other_body")
        runs = {row.run for row in list_runs(store) if "/" not in row.run}
        assert len(runs) == 5
        for run in runs:
            one.wait(run)


def test_two_servers_that_change_one_agent_at_once_lose_no_change(tmp_path: Path, store: PostgresUrl) -> None:
    with (
        running(settings_in(tmp_path / "one", store=store)) as one,
        running(settings_in(tmp_path / "two", store=store)) as two,
        Letta(base_url=one.url, api_key=one.token) as client,
        Letta(base_url=two.url, api_key=two.token) as other,
    ):
        agent = client.agents.create(name="bob", model="demo", include_base_tools=False)
        tools = list(client.tools.list())
        assert len(tools) >= 6
        with ThreadPoolExecutor(6) as pool:
            calls = [
                pool.submit((client, other)[at % 2].agents.tools.attach, str(tool.id), agent_id=agent.id)
                for at, tool in enumerate(tools)
            ]
            for call in calls:
                call.result()
        assert {tool.name for tool in client.agents.tools.list(agent.id)} == {tool.name for tool in tools}
