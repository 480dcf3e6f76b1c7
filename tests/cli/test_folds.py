"""A run is folded by the loop that drives it, and once more by whoever shows it."""

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

from chargehand import Supervisor, Team, Worker
from chargehand.cli.main import main
from chargehand.engine.fold import begin
from chargehand.journal import rows
from chargehand.models.testing.scripted import ScriptedModel
from tests.cli.commands import script, task
from tests.cli.test_run import ASKED, garden


@contextmanager
def counting(*functions: Callable[..., object]) -> Generator[dict[str, int]]:
    """How often functions are called, by name, however they were imported."""
    names = {function.__code__: function.__name__ for function in functions}
    calls = dict.fromkeys(names.values(), 0)

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and frame.f_code in names:
            calls[names[frame.f_code]] += 1

    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize("more", [["-q"], ["--json"], []])
def test_a_command_folds_its_run_once_besides_the_loop_and_reads_nothing_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: list[str]
) -> None:
    monkeypatch.chdir(garden(tmp_path))
    with counting(begin, rows.read) as calls:
        assert main(["run", ASKED, "--run", "one", *more]) == 0
    assert calls == {"begin": 2, "read": 0}


def test_a_script_is_folded_once_besides_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with counting(begin) as calls:
        main(["play", str(script(tmp_path, task("a"))), "-q", "--run", "one"])
    assert calls["begin"] == 2


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_a_run_that_is_shown_is_folded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: list[str]) -> None:
    monkeypatch.chdir(tmp_path)
    main(["play", str(script(tmp_path, task("a"))), "-q", "--run", "one"])
    with counting(begin) as calls:
        assert main(["runs", "show", "one", *more]) == 0
    assert calls["begin"] == 1


async def test_a_team_takes_its_result_from_the_loop(tmp_path: Path) -> None:
    team = Team(
        [Worker("ann", "answers")], supervisor=Supervisor(model=ScriptedModel(["hello"])), journal=tmp_path / "runs.db"
    )
    with counting(begin) as calls:
        result = await team.run("Say hello.")
    assert calls["begin"] == 1
    with counting(begin) as calls:
        assert result.trace().ending == result.ending
        assert result.assessment.coverage
    assert calls["begin"] == 1
