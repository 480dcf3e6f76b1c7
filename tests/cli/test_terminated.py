"""SIGTERM is treated as well as Ctrl-C: what there is by then is kept, and whoever looks is told how to go on."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import NoReturn

import pytest

from chargehand.cli.exit_codes import TERMINATED, Terminated
from chargehand.cli.main import main
from chargehand.cli.signals import StopSignals
from tests.cli.commands import Underway, chargehand, script, task


@pytest.fixture(params=[signal.default_int_handler, signal.SIG_IGN], ids=["heard", "ignored"])
def ctrl_c(request: pytest.FixtureRequest) -> Generator[None]:
    """What is done about SIGINT: in the background jobs of a script it is ignored."""
    before = signal.signal(signal.SIGINT, request.param)
    yield
    signal.signal(signal.SIGINT, before)


class Work:
    """Work that ends only if it is stopped, and says that it has put things in order."""

    tidy = False

    async def do(self) -> None:
        asyncio.get_running_loop().call_later(0.02, os.kill, os.getpid(), signal.SIGTERM)
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            self.tidy = True


@pytest.mark.usefixtures("ctrl_c")
def test_what_runs_is_cancelled_in_order_and_what_follows_is_not_disturbed() -> None:
    work = Work()
    with StopSignals(ticks=lambda: 0.0) as signals:
        with pytest.raises(Terminated):
            signals.run(work.do())
        signal.raise_signal(signal.SIGTERM)  # `timeout` sends it to the process, and to its group
    assert work.tidy


def test_before_anything_runs_it_is_raised_and_once_it_has_run_nothing_more_is_begun() -> None:
    with StopSignals(), pytest.raises(Terminated):
        signal.raise_signal(signal.SIGTERM)
    work = Work()
    with StopSignals() as signals:
        assert signals.run(asyncio.sleep(0, "done")) == "done"
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(Terminated):
            signals.run(work.do())
    assert not work.tidy


def test_what_cancels_itself_was_not_ended_by_a_signal() -> None:
    async def leaves() -> None:
        raise asyncio.CancelledError

    with StopSignals() as signals, pytest.raises(asyncio.CancelledError):
        signals.run(leaves())


def test_afterwards_it_means_what_it_did_before() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with StopSignals():
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before


_STUBBORN = """
import asyncio, time
from chargehand.cli.signals import StopSignals

times = iter([0.0, 0.5, 2.0])

def ticks():
    found = next(times)
    print("SIGTERM", found, flush=True)
    return found

async def main():
    print("begun", flush=True)
    try:
        await asyncio.sleep(60)
    finally:
        print("stopping", flush=True)
        time.sleep(60)

with StopSignals(ticks=ticks) as signals:
    signals.run(main())
"""


def test_one_that_comes_much_later_ends_what_does_not_stop() -> None:
    with subprocess.Popen([sys.executable, "-c", _STUBBORN], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for said in ("begun", "SIGTERM 0.0", "stopping", "SIGTERM 0.5", "SIGTERM 2.0"):
            assert process.stdout.readline().strip() == said
            if said in ("begun", "stopping", "SIGTERM 0.5"):
                process.terminate()
        assert process.wait(20) == -signal.SIGTERM


def test_a_run_is_left_where_it_stands_and_goes_on_with_the_command_that_is_told(tmp_path: Path) -> None:
    file = script(tmp_path, task("a"), task("b", "a"), moves={"b": [{"seconds": 30}]})
    playing = Underway(tmp_path, "play", file, "--run", "long")
    playing.until("b       ann         started")
    playing.process.terminate()
    assert playing.end() == TERMINATED
    told = playing.heard.read_text()
    assert "stopped by SIGTERM; the run is left where it stands, and can go on" in told
    assert f"  go on:       python -m chargehand resume long --script {file}" in told.splitlines()[-1]
    script(tmp_path, task("a"), task("b", "a"))
    again = chargehand(tmp_path, "resume", "long", "--script", file)
    assert again.returncode == 0, again.stderr
    assert "a       ann         started" not in again.stderr
    assert "ending: complete" in again.stderr


def test_ctrl_c_while_a_command_is_read_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def parser(_verb: str) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr("chargehand.cli.main.parser", parser)
    assert main(["runs"]) == 130
