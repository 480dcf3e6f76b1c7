"""The guides cannot drift: their files are written, their commands run, and what they show is what comes."""

import inspect
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from msgspec import Struct, structs

from chargehand import Supervisor, Team, Worker
from tests.cli.commands import COMMAND, ROOT, environment
from tests.cli.forked import write_command
from tests.server.running import running, settings_in

GUIDES = ("tutorial", "first-model", "approvals", "when-things-fail", "memory", "archives", "mcp")
_SLOW = {
    "tutorial": "a dozen commands, one after the other",
    "approvals": "twenty commands, one after the other",
    "first-model": "a dozen commands, one after the other",
    "when-things-fail": "waits for a provider that hangs, as the page shows it",
    "mcp": "starts an MCP server in several fresh processes",
}
GUIDES_MARKED = [pytest.param(page, marks=[pytest.mark.slow(_SLOW[page])] if page in _SLOW else []) for page in GUIDES]
_BLOCK = re.compile(r"^<!-- (file|shows): (\S+) -->\n```\w+\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_SERVES = "$ chargehand serve --no-token &"
_FAULTS = "$ chargehand fault-server &"
_OF_A_PROCESS = re.compile(r"\b(kill -9|ulimit)\b")  # what is done to a command must reach it


class Block(Struct, frozen=True):
    """A file that is written (`name`), or commands with the exit code of the last and what they show."""

    kind: str
    name: str
    body: str

    @property
    def commands(self) -> list[str]:
        return [line for line in self.body.splitlines() if line.startswith("$ ")]

    @property
    def shown(self) -> list[str]:
        return [line for line in self.body.splitlines() if line.strip(" …") and not line.startswith("$ ")]


def blocks(page: str) -> list[Block]:
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    return [Block(*found.groups()) for found in _BLOCK.finditer(text)]


@pytest.fixture(scope="module")
def faults() -> Iterator[str]:
    """The address of a provider that misbehaves on demand."""
    words = [*COMMAND, "fault-server", "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.send_signal(signal.SIGKILL)


class Reader:
    """Somebody who follows a guide in a folder of their own."""

    def __init__(self, home: Path, faults: str) -> None:
        self.home = home / "home"
        self.home.mkdir()
        (home / "forked").mkdir()
        write_command(home / "forked" / "chargehand")
        (home / "fresh").mkdir()
        commands = {"fresh/chargehand": COMMAND, "fresh/python": (sys.executable,), "forked/python": (sys.executable,)}
        for name, words in commands.items():
            (home / name).write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
            (home / name).chmod(0o755)
        shutil.copytree(ROOT / "examples", self.home / "examples")
        self.exports: list[str] = []
        self.places = {"http://127.0.0.1:8787": faults}
        kept = {name: value for name, value in environment().items() if not name.endswith(("_API_KEY", "_BASE_URL"))}
        self._environment = {**kept, "HOME": str(self.home)}

    def follow(self, block: Block) -> tuple[int, str]:
        """The exit code of the last command, and what all of them wrote."""
        commands = [line[2:] for line in block.commands if line not in (_SERVES, _FAULTS)]
        script = "\n".join([*self.exports, *commands])
        self.exports += [line for line in commands if line.startswith("export ")]
        script = self._placed(script)
        commands_in = self.home.parent / ("fresh" if _OF_A_PROCESS.search(script) else "forked")
        path = f"{commands_in}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self.home,
            env={**self._environment, "PATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=100,
        )
        return done.returncode, self._plain(done.stdout)

    def write(self, block: Block) -> None:
        path = self.home / block.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self._placed(block.body), encoding="utf-8")

    def _placed(self, text: str) -> str:
        """With the addresses at which somebody listens."""
        for told, real in self.places.items():
            text = text.replace(told, real)
        return text

    def _plain(self, text: str) -> str:
        """As a guide would show it: its own addresses, and the command by its name."""
        for told, real in self.places.items():
            text = text.replace(real, told).replace(real.removeprefix("http://"), told.removeprefix("http://"))
        return text.replace(str(self.home), "…").replace("python -m chargehand", "chargehand")


def flat(text: str) -> str:
    """Without what differs from run to run: times, and how many blanks there are."""
    return re.sub(r"\d+(\.\d+)? m?s\b", "# s", " ".join(text.split()))


def missing(block: Block, came: str) -> list[str]:
    """The lines that are shown and did not come, in this order; `…` stands for what was left out."""
    rest = flat(came)
    gone = list[str]()
    for line in block.shown:
        for part in filter(None, (flat(one) for one in line.split("…"))):
            _, found, after = rest.partition(part)
            if not found:
                gone.append(line)
                continue
            rest = after
    return gone


@pytest.mark.timeout(300)  # a dozen commands, one after the other, perhaps on a busy machine
@pytest.mark.parametrize("page", GUIDES_MARKED)
def test_a_guide_can_be_followed_and_shows_what_comes(tmp_path: Path, faults: str, page: str) -> None:
    reader = Reader(tmp_path, faults)
    with ExitStack() as open_servers:
        for number, block in enumerate(blocks(page), 1):
            if block.kind == "file":
                reader.write(block)
                continue
            if _SERVES in block.commands:
                settings = settings_in(tmp_path / "data", unlocked=True, teams=(reader.home,))
                reader.places["http://127.0.0.1:8283"] = open_servers.enter_context(running(settings)).url
            code, came = reader.follow(block)
            assert code == int(block.name), f"block {number}: exit {code}\n{came}"
            assert missing(block, came) == [], f"block {number}:\n{came}"


@pytest.mark.parametrize("page", GUIDES)
def test_every_transcript_of_a_guide_is_followed(page: str) -> None:
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    assert text.count("\n$ chargehand ") <= sum(len(block.commands) for block in blocks(page))
    assert [block for block in blocks(page) if block.kind == "shows" and not block.commands] == []


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    linked = set(re.findall(r"\]\(([^)#]+\.md)", index))
    assert {page for page in pages - {"README.md"} if not page.startswith("decisions/")} - linked == set()


def told(page: str) -> set[str]:
    """What stands in the first cells of a page's tables, name by name."""
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    return {name for cell in re.findall(r"^\| (`[^|]*) \|", text, re.MULTILINE) for name in re.findall(r"`(\w+)", cell)}


def test_whatever_a_worker_and_a_team_can_be_given_is_told_of() -> None:
    assert {field.name for field in structs.fields(Worker)} - told("workers") == set()
    assert set(inspect.signature(Team).parameters) - told("library") == set()
    assert {field.name for field in structs.fields(Supervisor)} - told("library") == set()
    assert len(inspect.signature(Team).parameters) <= 12
