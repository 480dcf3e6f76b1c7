"""Servers for tests of protocols: one in a process of its own that can be killed, and teams that ask."""

import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import httpx

from chargehand import (
    Assignment,
    Plan,
    Reply,
    ScriptedModel,
    StepContext,
    Supervisor,
    Task,
    Team,
    ToolCall,
    Worker,
    tool,
)
from tests.cli.commands import Speaking
from tests.server.api import Garden
from tests.server.running import TOKEN


class Process:
    """`chargehand serve` with these plugins and a team: the garden's, or one of a module in the folder."""

    def __init__(self, folder: Path, *plugins: str, port: int = 0, team: str = "") -> None:
        options = [word for plugin in plugins for word in ("--plugin", f"chargehand.integrations.{plugin}:api")]
        places = ["--team", team or str(folder / "team"), "--data", str(folder / "data"), "--port", str(port)]
        self._command = Speaking(folder, "serve", *places, *options, CHARGEHAND_TOKEN=TOKEN)
        line = next(line for line in self._command.output if "http://127.0.0.1" in line)
        self.url = "http://" + line.partition("http://")[2].split()[0]
        self.headers = {"Authorization": f"Bearer {TOKEN}"}

    def kill(self) -> None:
        self._command.kill()

    def close(self) -> None:
        self._command.kill()


@contextmanager
def process(folder: Path, *plugins: str, port: int = 0) -> Generator[tuple[Process, Garden]]:
    server = Process(folder, *plugins, port=port)
    try:
        with httpx.Client(base_url=server.url, headers=server.headers, timeout=60) as client:
            yield server, Garden(server, client, folder / "team")  # pyright: ignore[reportArgumentType] - it has what is used
    finally:
        server.close()


# --- teams that ask


@tool(effect="effect", approve=True)
def pay(invoice: int) -> str:
    """Pay an invoice."""
    return f"{invoice} is paid"


async def paint(assignment: Assignment, _context: StepContext) -> str:
    return f"It is {assignment.ask_person('Which colour?', options=['red', 'blue'])}."


def painters() -> Team:
    """Its worker asks a question in words."""
    plan = Plan((Task("t1", "Paint it.", "painter"),), "forward")
    return Team([Worker("painter", "paints", call=paint)], supervisor=Supervisor(plan=plan), name="painters")


def payers() -> Team:
    """Its worker calls a tool that a person must agree to."""
    call = Reply(text="I shall pay.", calls=(ToolCall("c1", "pay", '{"invoice": 17}'),), finish="tools")
    worker = Worker("clerk", "pays", tools=[pay], model=ScriptedModel([call, "paid"]))
    plan = Plan((Task("t1", "Pay it.", "clerk"),), "forward")
    return Team([worker], supervisor=Supervisor(plan=plan), name="payers")


def importable(name: str, **teams: Team) -> tuple[str, ...]:
    """A module of these teams, and the words by which a server is told to load them."""
    module = ModuleType(name)
    sys.modules[name] = module
    for attribute, team in teams.items():
        setattr(module, attribute, team)
    return tuple(f"{name}:{attribute}" for attribute in teams)
