"""The pages on the server cannot drift: what they call is called at a real one, and their numbers are the code's."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from chargehand.server.idempotency import REPEATED_FOR
from chargehand.server.openai.conversation import MAX_EARLIER, MAX_TURN
from chargehand.server.settings import ServerLimits
from tests.server.running import Running, running, settings_in

ROOT = Path(__file__).parents[1]
TOLD = {
    name: (ROOT / name).read_text(encoding="utf-8")
    for name in (
        "README.md",
        "docs/server.md",
        "docs/openai-clients.md",
        "docs/letta-clients.md",
        "docs/http-api.md",
    )
}
_BLOCK = re.compile(r"^```(py|sh)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
BLOCKS = [(name, *found.groups()) for name, text in TOLD.items() for found in _BLOCK.finditer(text)]
_SERVES = re.compile(r"^chargehand serve .*&\n", re.MULTILINE)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    """With the bundled team, asking for a token."""
    with running(settings_in(tmp_path / "data")) as one:
        yield one


def _environment(server: Running) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.endswith(("_API_KEY", "_BASE_URL"))}
    return {
        **kept,
        "SERVER": server.url,
        "TOKEN": server.token,
        "LETTA_BASE_URL": server.keyed_url,
        "OPENAI_BASE_URL": f"{server.url}/v1",
        "OPENAI_API_KEY": server.token,
    }


def _shell(body: str, server: Running, folder: Path) -> str:
    """What commands print. One that serves is left out: there is a server."""
    script = "set -e\n" + _SERVES.sub("", body).replace("http://127.0.0.1:8283", server.url)
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env=_environment(server),
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("page", "body"),
    [(page, body) for page, kind, body in BLOCKS if kind == "py"],
    ids=[page for page, kind, _ in BLOCKS if kind == "py"],
)
def test_the_python_on_a_page_runs_against_a_server(server: Running, tmp_path: Path, page: str, body: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", body],
        cwd=tmp_path,
        env=_environment(server),
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    assert done.returncode == 0, f"{page}: {done.stderr}"


def test_the_commands_of_the_server_page_are_answered(server: Running, tmp_path: Path) -> None:
    (body,) = [body for page, kind, body in BLOCKS if (page, kind) == ("docs/server.md", "sh")]
    shown = _shell(body, server, tmp_path)
    assert shown.startswith('{"status":"ok"}{"status":"ready"')
    assert '"name":"shop"' in shown


def test_the_commands_of_the_readme_say_what_it_shows(tmp_path: Path) -> None:
    page = TOLD["README.md"].partition("## As a server")[2].partition("\n## ")[0]
    (body,) = [body for name, kind, body in BLOCKS if (name, kind) == ("README.md", "sh")]
    shown = re.findall(r"^```json\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)[0].splitlines()
    with running(settings_in(tmp_path / "data", unlocked=True)) as server:
        said = _shell(body, server, tmp_path)
    assert said.startswith('{"status":"ready"')
    words = re.findall(r'"content":"([^…]*) …', shown[1])[0]
    assert words in said


def test_the_progress_that_is_shown_is_what_comes(server: Running) -> None:
    page = TOLD["docs/openai-clients.md"]
    goal = re.findall(r'question = "(How many tents.*?)"', page)[0]
    body = {"model": "shop", "messages": [{"role": "user", "content": goal}], "stream": True}
    said = httpx.post(f"{server.url}/v1/chat/completions", json=body, headers=server.headers, timeout=30).text
    for line in re.findall(r"^```text\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)[0].splitlines():
        assert line.removesuffix(" …") in said, line


def test_every_limit_is_documented_as_it_is() -> None:
    page = TOLD["docs/server.md"]
    limits = ServerLimits()
    for words in (
        f"| runs at once (`--open-runs`) | {limits.runs} |",
        f"| runs in line | {limits.waiting} |",
        f"| time in line | {limits.patience:g} s |",
        f"| open streams | {limits.streams:,} |",
        f"| calls a minute with one token | {limits.calls:,} |",
        f"| calls a minute from one address without a good token | {limits.strangers} |",
        f"| {limits.body // 2**20} MiB; {limits.upload // 2**20} MiB |",
        f"| {limits.depth}; {limits.keys:,} |",
        f"| headers together | {limits.header // 1024} KiB |",
    ):
        assert words in page, words


def test_the_numbers_of_a_conversation_are_those_of_the_code() -> None:
    page = " ".join(TOLD["docs/openai-clients.md"].split())
    assert f"the latest {MAX_EARLIER:,} characters of them, at most {MAX_TURN:,} of one" in page
    assert f"within {REPEATED_FOR / 60:g} minutes" in page
