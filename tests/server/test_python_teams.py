"""Teams in Python, served: by their name, as objects, by `Team.serve`; with listeners and APIs found by name."""

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from chargehand import Archive, Assignment, Memory, Plan, StepContext, Supervisor, Task, Team, Worker
from chargehand.cli.serve import find_plugins
from chargehand.config.load import load_team
from chargehand.engine.events import Entry
from chargehand.errors import Invalid
from tests.cli.commands import chargehand
from tests.server.api import key_for
from tests.server.running import Running, running, settings_in
from tests.support.server_process import ForkedCommand

MINE = """
from chargehand import Plan, Supervisor, Task, Team, Worker
from chargehand.server.extension import HttpApi
import words

async def say(assignment, context):
    return words.HELLO

team = Team(
    [Worker("ann", "says hello", call=say)],
    name="greeters",
    supervisor=Supervisor(plan=Plan((Task("t1", "Say hello.", "ann"),), "forward")),
)

def make():
    return team

def broken():
    raise KeyError("colour")

number = 7

def make_api():
    return HttpApi(name="board", app=None, prefixes=("/board",))

api = make_api()

def listen(run, entries):
    pass
"""
SERVING = """
from greeting import team
team.serve(port=0, no_token=True, data="data")
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a team in Python that this process has not imported yet."""
    for name in ("greeting", "words"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.chdir(write_team(tmp_path))
    return tmp_path


def write_team(folder: Path) -> Path:
    (folder / "greeting.py").write_text(MINE)
    (folder / "words.py").write_text('HELLO = "hello"\n')
    return folder


async def say(assignment: Assignment, _context: StepContext) -> str:
    return f"hello from {assignment.worker}"


def greeters(**more: Any) -> Team:
    plan = Plan((Task("t1", "Say hello.", "ann"),), "forward")
    return Team([Worker("ann", "says hello", call=say)], name="greeters", supervisor=Supervisor(plan=plan), **more)


def answer(server: Running, headers: dict[str, str] | None = None) -> str:
    with httpx.Client(base_url=server.url, headers=headers or server.headers, timeout=60) as client:
        body = {"model": "team/greeters", "messages": [{"role": "user", "content": "Say hello."}]}
        found = client.post("/v1/chat/completions", json=body)
        assert found.status_code == 200, found.text
        return found.json()["choices"][0]["message"]["content"]


def test_a_team_object_is_served_and_listeners_hear_its_runs(tmp_path: Path) -> None:
    heard: list[str] = []

    def listen(_run: str, entries: Sequence[Entry]) -> None:
        heard.extend(type(entry.event).__name__ for entry in entries)

    with running(settings_in(tmp_path, teams=(greeters(),)), listeners=[listen]) as server:
        assert answer(server) == "hello from ann"
    assert (heard[0], heard[-1]) == ("RunRequested", "RunEnded")


def test_a_listener_of_the_server_that_raises_is_dropped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    calls: list[str] = []

    def listen(run: str, _entries: Sequence[Entry]) -> None:
        calls.append(run)
        raise ValueError("no")

    with (
        running(settings_in(tmp_path, teams=(greeters(),)), listeners=[listen]) as server,
        caplog.at_level(30, "chargehand.runtime"),
    ):
        assert answer(server) == answer(server) == "hello from ann"
    assert len(calls) == 1
    assert "is not called any more" in caplog.text


def test_tenants_share_nothing_of_the_memory_of_a_team_object(tmp_path: Path) -> None:
    memory = Memory(tmp_path / "own.db", archives=[Archive("findings")])
    settings = settings_in(tmp_path / "data", teams=(greeters(memory=memory),))
    with running(settings) as server:
        other = key_for(tmp_path, "lab")
        for headers in (server.headers, other):
            found = httpx.get(f"{server.url}/api/teams/greeters/archives", headers=headers)
            assert [one["name"] for one in found.json()["archives"]] == ["findings"]
    assert (tmp_path / "data" / "main" / "memory.db").exists()
    assert (tmp_path / "data" / "lab" / "memory.db").exists()
    assert not (tmp_path / "own.db").exists()


def test_two_teams_of_one_name_are_refused(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.yaml").write_text("version: 1\nname: greeters\nworkers: {ann: {description: greets}}\n")
    done = chargehand(tmp_path, "serve", "--no-token", "--port", "0", "--team", "one.yaml", "--team", "two.yaml")
    assert done.returncode == 2
    assert "another team is called 'greeters', too" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_team_is_run_planned_and_checked_by_its_name(tmp_path: Path) -> None:
    write_team(tmp_path)
    name = "greeting:make"
    ran = chargehand(tmp_path, "run", "--team", name, "Say hello.")
    assert ran.returncode == 0, ran.stderr
    assert "hello" in ran.stdout
    checked = chargehand(tmp_path, "check", "--team", name)
    assert checked.returncode == 0, checked.stderr
    assert "team greeters: 1 worker" in checked.stderr
    assert chargehand(tmp_path, "plan", "--team", name, "Say hello.").returncode == 0


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("greting:team", "there is no module 'greting', neither beside the working directory nor installed"),
        ("greeting:tema", "'greeting' has no 'tema'; did you mean 'team'"),
        ("greeting:number", "'greeting:number' is a int, not a Team or a function that returns one"),
        ("greeting:broken", "'greeting:broken' made no team: KeyError: 'colour'"),
    ],
)
def test_a_name_that_is_no_team_is_refused_with_what_is_wrong(tmp_path: Path, name: str, words: str) -> None:
    write_team(tmp_path)
    ran = chargehand(tmp_path, "run", "--team", name, "Say hello.")
    assert ran.returncode == 2
    assert words in ran.stderr


def test_a_model_cannot_be_put_in_the_place_of_those_in_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(write_team(tmp_path))
    with pytest.raises(Invalid, match="written in Python, where its models are named"):
        load_team("greeting:team", model="demo")


def first_url(process: ForkedCommand) -> str:
    for line in process.stdout:
        if "http://" in line:
            return "http://" + line.partition("http://")[2].split()[0]
    raise AssertionError("it did not say where it listens")


@pytest.mark.parametrize("how", ["serve --team", "team.serve()"])
def test_a_team_in_python_is_served_until_it_is_told_to_stop(tmp_path: Path, how: str) -> None:
    write_team(tmp_path)
    words = ("serve", "--team", "greeting:team", "--port", "0", "--no-token", "--data", "data")
    code = None if how.startswith("serve") else SERVING
    process = ForkedCommand(*words, folder=tmp_path, environment=os.environ, code=code)
    try:
        url = first_url(process)
        body = {"model": "team/greeters", "messages": [{"role": "user", "content": "Say hello."}]}
        response = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60)
        assert response.json()["choices"][0]["message"]["content"] == "hello"
        process.terminate()
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.communicate(30)


def test_serve_takes_no_other_objects_for_apis() -> None:
    with pytest.raises(Invalid, match=r"there is a int in apis; write HttpApi\(...\)"):
        greeters().serve(port=0, apis=[7])


async def test_serve_is_refused_inside_an_event_loop() -> None:
    with pytest.raises(Invalid, match="not inside async code"):
        greeters().serve(port=0)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("mcpp", "no installed package offers 'mcpp' to the server"),
        ("greeting:number", "--plugin greeting:number is no HttpApi, nor a function that returns one, and this cannot"),
        ("greeting:make", "--plugin greeting:make returns a Team, not an HttpApi"),
        ("greeting:broken", "--plugin greeting:broken made no HttpApi: KeyError: 'colour'"),
    ],
)
@pytest.mark.usefixtures("here")
def test_what_is_no_api_or_listener_is_refused(name: str, words: str) -> None:
    with pytest.raises(Invalid) as raised:
        find_plugins([name])
    assert words in str(raised.value)


@pytest.mark.usefixtures("here")
def test_apis_and_listeners_are_found_by_name_and_told_apart() -> None:
    apis, listeners = find_plugins(["greeting:api", "greeting:make_api", "greeting:listen"])
    assert [api.name for api in apis] == ["board", "board"]
    assert len(listeners) == 1


# --- serve --reload


class Reloads:
    """What the server says about teams that were loaded anew."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def wait(self, words: str) -> str:
        """The next line with these words."""
        for _ in range(1500):
            for line in self.lines:
                if words in line:
                    self.lines.clear()
                    return line
            signal.sigtimedwait([], 0.02)
        raise AssertionError(f"{words!r} was not said, but {self.lines}")


def test_an_edit_of_a_python_team_is_served_to_the_next_run(here: Path) -> None:
    said = Reloads()
    settings = settings_in(here / ".data", teams=("greeting:team",), reload_every=0.02)
    with running(settings, on_reload=said.lines.append) as server:
        assert answer(server) == "hello"
        (here / "words.py").write_text('HELLO = "good day"\n')
        assert "words.py changed" in said.wait("reloaded team greeters")
        assert answer(server) == "good day"
        (here / "words.py").write_text("HELLO = = 1\n")
        assert "SyntaxError" in said.wait("not reloaded, the earlier team goes on")
        assert answer(server) == "good day"
        (here / "words.py").write_text('HELLO = "well again"\n')
        said.wait("reloaded team greeters")
        assert answer(server) == "well again"


FILE = """
version: 1
name: greeters
workers:
  ann: {description: says hello, call: "tools:say"}
"""
TOOLS = """
import asyncio
from pathlib import Path

async def say(assignment, context):
    while Path(__file__).with_name("held").exists():
        await asyncio.sleep(0.02)
    return "hello"
"""


def test_runs_under_way_keep_their_team_and_a_broken_file_keeps_the_old_one_serving(tmp_path: Path) -> None:
    folder = tmp_path / "team"
    folder.mkdir()
    (folder / "team.yaml").write_text(FILE)
    (folder / "tools.py").write_text(TOOLS)
    (folder / "held").touch()
    said = Reloads()
    settings = settings_in(tmp_path / "data", teams=(folder,), reload_every=0.02)
    plan = {"tasks": [{"id": "t1", "instruction": "Say hello.", "worker": "ann"}], "combine": "forward"}
    body = {"team": "greeters", "goal": "Say hello.", "plan": plan}
    with (
        running(settings, on_reload=said.lines.append) as server,
        httpx.Client(base_url=server.url, headers=server.headers) as client,
    ):
        first = client.post("/api/runs", json=body).json()["run"]
        (folder / "tools.py").write_text(TOOLS.replace('"hello"', '"good day"'))
        said.wait("reloaded team greeters")
        second = client.post("/api/runs", json=body).json()["run"]
        (folder / "mcp.lock").write_text("{}")
        said.wait("reloaded team greeters: mcp.lock changed")
        (folder / "team.yaml").write_text(FILE.replace("workers:", "wrokers:"))
        assert "wrokers" in said.wait("not reloaded")
        (folder / "held").unlink()
        answers: list[object] = []
        for run in (first, second):
            for _ in range(1500):
                shown = client.get(f"/api/runs/{run}").json()
                if shown["summary"]["state"] == "complete":
                    answers.append(shown["answer"])
                    break
                signal.sigtimedwait([], 0.02)
        assert answers == ["hello", "good day"]
        assert [team["name"] for team in client.get("/api/teams").json()["teams"]] == ["greeters"]
