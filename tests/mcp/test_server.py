"""Teams as tools and resources of MCP, with the client of the SDK on the other side, over HTTP and over pipes."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from chargehand import McpServer
from chargehand.integrations.mcp_server import api
from tests.cli.forked import write_command
from tests.mcp.peers import pin, returned, team_of, wish
from tests.server.api import GOAL, key_for, team_in
from tests.server.running import Running, running, settings_in


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mcp-server")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Running]:
    before = logging.getLogger().level
    with running(settings_in(folder / "data", teams=(team_in(folder / "team"),)), apis=[api]) as found:
        yield found
    assert logging.getLogger().level == before


@asynccontextmanager
async def connected(
    server: Running, mode: str = "auto", headers: dict[str, str] | None = None
) -> AsyncGenerator[Client]:
    async with httpx2.AsyncClient(headers=headers or server.headers, timeout=90) as http:
        transport = streamable_http_client(f"{server.url}/mcp", http_client=http)
        async with Client(transport, mode=mode, cache=None) as client:
            yield client


def content(result: Any) -> dict[str, Any]:
    assert not result.is_error, result
    assert json.loads(result.content[0].text) == result.structured_content
    return result.structured_content


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_client_lists_teams_runs_one_and_reads_what_came_of_it(server: Running, mode: str) -> None:
    told: list[str | None] = []

    async def progress(progress: float, total: float | None, message: str | None) -> None:
        told.append(message)

    async with connected(server, mode) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert list(tools) == ["list_teams", "run_team", "get_run", "answer_run", "cancel_run", "search_memory"]
        assert tools["run_team"].input_schema["required"] == ["team", "goal"]
        assert [team["name"] for team in content(await client.call_tool("list_teams"))["teams"]] == ["garden"]
        arguments = {"team": "garden", "goal": GOAL, "wait": 90}
        run = content(await client.call_tool("run_team", arguments, progress_callback=progress))
        assert run["state"] == "complete"
        assert "48.00 euros" in str(run["answer"])
        assert any("started" in str(message) for message in told)
        assert content(await client.call_tool("get_run", {"run": run["run"]}))["answer"] == run["answer"]
        for part, words in (("plan", '"tasks"'), ("answer", "48.00 euros"), ("evidence", '"untraced"')):
            read = await client.read_resource(f"run://{run['run']}/{part}")
            assert words in read.contents[0].model_dump()["text"]
        listed = [str(resource.uri) for resource in (await client.list_resources()).resources]
        assert f"run://{run['run']}/answer" in listed
        assert len((await client.list_resource_templates()).resource_templates) == 3
        assert content(await client.call_tool("search_memory", {"team": "garden", "query": "rain"})) == {"passages": []}


async def test_a_run_that_takes_longer_is_waited_for_answered_and_cancelled(server: Running) -> None:
    async with httpx.AsyncClient(base_url=server.url, headers=server.headers, timeout=90) as http:
        runs = [
            (await http.post("/api/runs", json={"team": "garden", "goal": GOAL, "approve": True})) for _ in range(2)
        ]
    first, second = (run.json()["run"] for run in runs)
    async with connected(server) as client:
        asked = content(await client.call_tool("get_run", {"run": first, "wait": 60}))
        assert asked["state"] == "needs_input"
        answer = {"run": first, "number": asked["question"]["number"], "verdict": "approve", "wait": 60}
        assert content(await client.call_tool("answer_run", answer))["state"] == "complete"
        await client.call_tool("get_run", {"run": second, "wait": 60})
        await client.call_tool("cancel_run", {"run": second, "reason": "not wanted"})
        assert content(await client.call_tool("get_run", {"run": second, "wait": 60}))["state"] == "cancelled"


async def test_what_is_wrong_is_said_in_words(server: Running) -> None:
    async with connected(server) as client:
        for name, arguments, words in (
            ("run_team", {"team": "garden"}, "'goal'"),
            ("run_team", {"team": "gardn", "goal": "x"}, "garden"),
            ("run_team", {"team": "garden", "goal": "x", "wait": 10_000}, "wait"),
            ("get_run", {"run": "none"}, "none"),
            ("answer_run", {"run": "none", "number": 1, "verdict": "maybe"}, "verdict"),
        ):
            result = await client.call_tool(name, arguments)
            assert result.is_error
            assert words in result.content[0].model_dump()["text"], (name, result)
        with pytest.raises(MCPError, match="there is no tool 'nothing'"):
            await client.call_tool("nothing")
        for uri in ("run://none/answer", "run://x", "file:///etc/passwd"):
            with pytest.raises(MCPError):
                await client.read_resource(uri)


async def test_a_key_that_only_reads_begins_nothing_and_another_tenant_sees_nothing(
    server: Running, folder: Path
) -> None:
    reader = key_for(folder, "main", "read")
    other = key_for(folder, "lab")
    async with connected(server) as client:
        run = content(await client.call_tool("run_team", {"team": "garden", "goal": GOAL, "wait": 0}))["run"]
    async with connected(server, headers=reader) as client:
        assert (await client.call_tool("run_team", {"team": "garden", "goal": GOAL})).is_error
        assert content(await client.call_tool("get_run", {"run": run}))["run"] == run
    async with connected(server, headers=other) as client:
        assert (await client.call_tool("get_run", {"run": run})).is_error


def test_calls_without_a_token_from_elsewhere_and_of_the_version_of_2025_06_18(server: Running) -> None:
    body: dict[str, object] = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "old", "version": "1"},
        },
    }
    accept = {"Accept": "application/json, text/event-stream"}
    with httpx.Client(base_url=server.url, timeout=60) as stranger:
        assert stranger.post("/mcp", json=body, headers=accept).status_code == 401
    with httpx.Client(base_url=server.url, timeout=60, headers={**server.headers, **accept}) as old:
        assert old.post("/mcp", json=body, headers={"Host": "evil.example"}).status_code in (403, 421)
        assert '"protocolVersion":"2025-06-18"' in old.post("/mcp", json=body).text
        version = {"MCP-Protocol-Version": "2025-06-18"}
        listed = old.post("/mcp", json={"jsonrpc": "2.0", "id": 2, "method": "tools/list"}, headers=version)
        assert "run_team" in listed.text
        call: dict[str, object] = {"name": "list_teams", "arguments": {}}
        asked: dict[str, object] = {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": call}
        assert "garden" in old.post("/mcp", json=asked, headers=version).text


async def test_a_team_is_served_over_pipes(tmp_path: Path) -> None:
    team = team_in(tmp_path / "team")
    words = ["mcp", "serve", "--team", str(team), "--data", str(tmp_path / "data")]
    write_command(tmp_path / "chargehand")
    command = StdioServerParameters(command=str(tmp_path / "chargehand"), args=words)
    async with Client(command, cache=None) as client:
        run = content(await client.call_tool("run_team", {"team": "garden", "goal": GOAL, "wait": 90}))
        assert run["state"] == "complete"


async def test_a_team_in_python_is_served_over_pipes(tmp_path: Path) -> None:
    (tmp_path / "shop_team.py").write_text(
        "from chargehand import Team, Worker\nteam = Team([Worker('ann', model='demo')])\n"
    )
    words = ["mcp", "serve", "--team", "shop_team:team", "--data", str(tmp_path / "data")]
    write_command(tmp_path / "chargehand")
    command = StdioServerParameters(command=str(tmp_path / "chargehand"), args=words, cwd=tmp_path)
    async with Client(command, cache=None) as client:
        assert "ann" in str(content(await client.call_tool("list_teams", {})))


def test_our_own_client_uses_our_own_server(server: Running, tmp_path: Path) -> None:
    reach: dict[str, Any] = {"url": f"{server.url}/mcp", "private": True, "headers": server.headers}
    remote = pin(McpServer("remote", **reach, connect_timeout=100, lock=tmp_path / "mcp.lock"))
    assert {tool.name: tool.effect for tool in remote.tools()}["remote_run_team"] == "effect"
    asks = wish("remote_run_team", json.dumps({"team": "garden", "goal": GOAL, "wait": 90}))
    result = asyncio.run(team_of(remote, asks).run("Have the garden looked after."))
    assert "48.00 euros" in returned(result)
    assert server.token not in Path(remote.lock).read_text()
