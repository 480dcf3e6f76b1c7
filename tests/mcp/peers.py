"""Servers on the other side of a connection: pinned as they are when they behave, then made to misbehave."""

import asyncio
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from msgspec import structs

from chargehand import McpServer, Plan, Reply, Result, ScriptedModel, Supervisor, Task, Team, ToolCall, Worker
from chargehand.tools.mcp_lock import McpLock, PinnedServer, PinnedTool, approve_tools, read_lock, write_lock

HERE = Path(__file__).parent
SDK_SERVER = (sys.executable, str(HERE / "sdk_server.py"))
PICTURE_SERVER = (sys.executable, "-m", "tests.mcp.picture_server")
RAW_SERVER = (sys.executable, "-I", "-S", str(HERE / "raw_server.py"))


LIMITS: dict[str, Any] = {"close_timeout": 0.1}
"""Of servers that may not end by themselves."""


def pin(server: McpServer, pinned: PinnedServer | None = None) -> McpServer:
    """The server with what it offers now, or with something else, as approved."""
    if pinned is None:
        listed, _ = asyncio.run(server.listed())
        pinned = approve_tools(None, listed, lambda _: True)
    file = Path(server.lock)
    lock = read_lock(file) if file.exists() else McpLock()
    write_lock(file, lock.with_server(server.name, pinned))
    return server


def notes(folder: Path, vice: str = "none", *arguments: str, **settings: Any) -> McpServer:
    """The raw server with a vice, of which the definitions of the honest one were approved."""
    lock = folder / "mcp.lock"
    server = McpServer("notes", command=[*RAW_SERVER, vice, *arguments], lock=lock, folder=folder, **LIMITS | settings)
    return pin(server, PinnedServer(structs.replace(server.identity, name="notes"), honest_tools()))


@cache
def honest_tools() -> dict[str, PinnedTool]:
    listed, _ = asyncio.run(McpServer("notes", command=[*RAW_SERVER, "none"]).listed())
    return listed.tools


def shop(folder: Path, **settings: Any) -> McpServer:
    """The server of the SDK, pinned; it has time to start on a busy machine."""
    server = McpServer("shop", lock=folder / "mcp.lock", connect_timeout=100, list_timeout=100, **settings)
    return pin(server, PinnedServer(structs.replace(server.identity, name="warehouse"), shop_tools()))


@cache
def shop_tools() -> dict[str, PinnedTool]:
    listed, _ = asyncio.run(McpServer("shop", command=SDK_SERVER, connect_timeout=100, list_timeout=100).listed())
    return listed.tools


def wish(tool: str, arguments: str, call: str = "1") -> Reply:
    return Reply(calls=(ToolCall(call, tool, arguments),), finish="tools")


SEARCH = wish("notes_search", '{"query": "late"}')
PAY = wish("notes_pay", '{"invoice": "17"}')


def team_of(server: McpServer, *script: Reply | str, **settings: Any) -> Team:
    worker = Worker("clerk", tools=[server], model=ScriptedModel([*script, "done"]))
    plan = Plan((Task("t1", "Look it up.", "clerk"),), "none")
    return Team([worker], supervisor=Supervisor(plan=plan), **settings)


def returned(result: Result) -> str:
    """All that the tools of a run returned, as it was journaled."""
    steps = [step for task in result.trace().tasks for attempt in task.attempts for step in attempt.steps]
    return " ".join(str(step.result) for step in steps if step.kind == "tool")


@contextmanager
def http_server() -> Generator[str]:
    """The server of the SDK over HTTP, in a process of its own; the URL where it is."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen([*SDK_SERVER, str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert monotonic() < deadline, "the server does not answer"
                sleep(0.05)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait()
