"""The programs of docs/coming-from.md run, and the page shows them as they are. `make peers` runs the others."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.running import running, settings_in

ROOT = Path(__file__).parents[1]
PROGRAMS = ROOT / "examples" / "coming_from"
PAGE = (ROOT / "docs" / "coming-from.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def model_url() -> Iterator[str]:
    """The address of the stand-in model."""
    words = [sys.executable, str(PROGRAMS / "model_server.py"), "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.terminate()


def run(program: str, folder: Path, **variables: str) -> str:
    environment = {**os.environ, "OPENAI_API_KEY": "none", **variables}
    words = [sys.executable, str(PROGRAMS / program)]
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("peer", "answer"),
    [
        ("langgraph", "complete In short: "),
        ("crewai", "complete In short: "),
        ("openai_agents", "complete The tool says: 12 anvils are in stock"),
    ],
)
def test_a_program_that_was_moved_here_runs(model_url: str, tmp_path: Path, peer: str, answer: str) -> None:
    output = run(f"{peer}_after.py", tmp_path, OPENAI_BASE_URL=model_url)
    assert output.startswith(answer)
    assert "12 anvils" in output


def test_a_letta_program_runs_unchanged(tmp_path: Path) -> None:
    with running(settings_in(tmp_path / "data", model="demo")) as server:
        output = run("letta_program.py", tmp_path, LETTA_BASE_URL=server.keyed_url)
    assert output.splitlines() == ["Prices are in dollars.", "['clerk']"]


@pytest.mark.parametrize("program", sorted(path.name for path in PROGRAMS.glob("*.py") if path.stem != "model_server"))
def test_the_page_shows_the_programs_as_they_are(program: str) -> None:
    body = (PROGRAMS / program).read_text(encoding="utf-8").split('"""', 2)[2].strip("\n")
    assert f"```py\n{body}\n```" in PAGE
