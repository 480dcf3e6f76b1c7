"""Lists while what is in them is deleted, and odd values."""

from collections.abc import Iterator

import httpx
import pytest
from letta_client import Letta, PermissionDeniedError
from letta_client.types.agents import ToolExecutionResult

from chargehand.server.letta.wire import format_time
from tests.server.running import Running, running, settings_in


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(settings_in(tmp_path_factory.mktemp("lists"), custom_tools=True)) as one:
        yield one


@pytest.fixture
def client(server: Running) -> Iterator[Letta]:
    with Letta(base_url=server.url, api_key=server.token, max_retries=0) as one:
        yield one


@pytest.fixture
def http(server: Running) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, headers=server.headers, timeout=30) as one:
        yield one


def test_whoever_deletes_what_a_list_brings_gets_to_its_end(client: Letta) -> None:
    made = [client.blocks.create(label=f"b{number}", value="x", tags=["gone"]) for number in range(11)]
    deleted: list[str] = []
    for block in client.blocks.list(limit=3, tags=["gone"]):
        client.blocks.delete(block.id)
        deleted.append(block.id)
    assert deleted == [one.id for one in made]
    agents = [client.agents.create(name=f"a{number}", tags=["gone"]) for number in range(7)]
    deleted = []
    for agent in client.agents.list(limit=2, tags=["gone"]):
        if agent.id != agents[3].id:
            client.agents.delete(agent.id)
            deleted.append(agent.id)
    assert deleted == [one.id for one in reversed(agents) if one.id != agents[3].id]


def test_an_id_that_no_list_ever_told_is_not_gone_on_after(http: httpx.Client) -> None:
    assert http.get("/v1/agents", params={"after": "agent-of-nobody"}).status_code == 404


def test_how_much_is_under_way_is_told_to_nobody_without_a_token(server: Running, http: httpx.Client) -> None:
    assert httpx.get(f"{server.url}/readyz").json() == {"status": "ready"}
    assert httpx.get(f"{server.url}/readyz", headers={"Authorization": "Bearer no"}).json() == {"status": "ready"}
    assert http.get("/readyz").json()["runs"] == 0


def test_values_that_cannot_be_kept_are_refused_in_words_and_leave_nothing(http: httpx.Client) -> None:
    before = len(http.get("/v1/agents", params={"limit": 1000}).json())
    for body in ({"name": "a\nb"}, {"name": "x" * 501}, {"metadata": {"n": 2**64 - 1}}):
        assert http.post("/v1/agents", json=body).status_code == 422, body
    archive = http.post("/v1/archives", json={"name": "times"}).json()["id"]
    for when in ("0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"):
        sent = {"text": when, "created_at": when}
        assert http.post(f"/v1/archives/{archive}/passages", json=sent).status_code == 422
    deep = b'{"agents": [{"metadata": {"a": ' + b"[" * 90 + b"]" * 90 + b"}}]}"
    assert http.post("/v1/agents/import", files={"file": ("a.af", deep)}).status_code == 422
    twice = b'{"agents": [{}], "blocks": [{"id": "b", "label": "x"}, {"id": "b", "label": "y"}]}'
    assert http.post("/v1/agents/import", files={"file": ("a.af", twice)}).status_code == 422
    assert len(http.get("/v1/agents", params={"limit": 1000}).json()) == before
    retried = {b"x-stainless-retry-count": b"\xb2"}
    assert http.post("/v1/agents/agent-x/messages", json={}, headers=retried).status_code == 404


def test_times_beyond_what_can_be_written_are_told_as_the_last_that_can() -> None:
    assert format_time(-1e18).startswith("0001-01-01")
    assert format_time(1e18).startswith("9999-12-31")


def test_a_schema_that_is_none_is_refused(http: httpx.Client) -> None:
    source = 'def odd(a: int) -> int:\n    """Odd."""\n    return a\n'
    for parameters in ("x", [1]):
        sent = {"source_code": source, "json_schema": {"parameters": parameters}}
        assert http.post("/v1/tools", json=sent).status_code in (403, 422)


def test_what_a_tool_returns_and_json_cannot_hold_is_told_as_text(client: Letta) -> None:
    agent = client.agents.create().id

    def ran(source: str) -> ToolExecutionResult:
        client.agents.tools.attach(client.tools.upsert(source_code=source).id, agent_id=agent)
        return client.agents.tools.run("f", agent_id=agent)

    try:
        not_a_number = ran("def f():\n    return float('nan')\n")
    except PermissionDeniedError as refused:
        pytest.skip(str(refused))
    assert not_a_number.func_return == "NaN"
    late = ran("import atexit\natexit.register(print, 'bye')\ndef f():\n    return 7\n")
    assert (late.status, late.func_return, late.stdout) == ("success", 7, ["bye\n"])
