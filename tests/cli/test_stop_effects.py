"""Ctrl-C lets a call that changes something finish, and says so; a second one ends the process at once."""

import signal
import time
from pathlib import Path

import pytest

from tests.cli.commands import Underway, chargehand

TEAM = """
version: 1
name: office
policy: {uncertain: fail}
workers:
  buyer: {description: Says what seedlings cost., tools: [seedling_price]}
tools:
  seedling_price: {python: "tools:seedling_price", effect: effect}
"""
TOOLS = '''
import asyncio
from pathlib import Path

HERE = Path(__file__).parent


async def seedling_price(plant: str, seedlings: int) -> str:
    """What so many seedlings of one plant cost, in euros: tomato or basil."""
    (HERE / "begun").touch()
    while not (HERE / "may-end").exists():
        await asyncio.sleep(0.01)
    with (HERE / "asked").open("a") as file:
        file.write(plant)
    return f"{seedlings} {plant} seedlings cost 48.00 euros."
'''
_FINISHING = "finishing 1 call that changes something: seedling_price; press Ctrl-C again to stop now"


@pytest.fixture
def run(tmp_path: Path) -> Underway:
    """A command in the midst of a call that changes something."""
    (tmp_path / "team.yaml").write_text(TEAM)
    (tmp_path / "tools.py").write_text(TOOLS)
    run = Underway(tmp_path, "run", "What do 40 tomato seedlings cost?", "--run", "one", "--no-input")
    until = time.monotonic() + 20
    while not (tmp_path / "begun").exists():
        assert time.monotonic() < until, run.heard.read_text()
        time.sleep(0.01)
    return run


def test_the_first_ctrl_c_lets_the_call_finish_and_the_resumed_run_does_not_repeat_it(
    tmp_path: Path, run: Underway
) -> None:
    run.interrupt()
    run.until(_FINISHING)
    (tmp_path / "may-end").touch()
    assert run.end() == 130
    assert "stopped by Ctrl-C; the run is left where it stands, and can go on" in run.heard.read_text()
    done = chargehand(tmp_path, "resume", "one", "--no-input")
    assert done.returncode == 0, done.stderr
    assert "48.00 euros" in done.stdout
    assert (tmp_path / "asked").read_text() == "tomato"


def test_the_second_ctrl_c_ends_the_process_and_the_call_is_in_doubt(tmp_path: Path, run: Underway) -> None:
    run.interrupt()
    run.until(_FINISHING)
    for _ in range(40):  # a second one is another only after a moment: an impatient person sends several
        run.interrupt()
        if run.process.poll() is not None:
            break
        time.sleep(0.05)
    assert run.end() == -signal.SIGINT
    assert not (tmp_path / "asked").exists()
    done = chargehand(tmp_path, "resume", "one", "--no-input")
    assert done.returncode == 1
    assert "it is not known whether" in done.stderr
