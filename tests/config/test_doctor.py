"""What the doctor says of healthy and of sick surroundings."""

import os
from pathlib import Path

import pytest

from chargehand.config import doctor
from chargehand.config.doctor import CheckResult, Surroundings, check_disk, check_keys, check_sqlite, writable
from chargehand.errors import Invalid
from tests.config.files import write


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CHARGEHAND_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("CHARGEHAND_TEAM", raising=False)
    (tmp_path / ".git").mkdir()
    return tmp_path


def around(folder: Path) -> Surroundings:
    return Surroundings(folder / "runs.db", folder / "memory.db", Invalid("no team is named"), folder, ())


def test_all_is_looked_at_and_nothing_is_changed(here: Path) -> None:
    lines = doctor.check_surroundings(here / ".chargehand" / "runs.db")
    assert [line.what for line in lines if line.state == "bad"] == []
    known = {"chargehand", "journal", "memory", "home", "sqlite", "team", "keys", "sandbox", "embeddings", "disk"}
    assert known <= {line.what for line in lines}
    assert [path.name for path in here.iterdir()] == [".git"]


def test_search_by_words_is_looked_for(here: Path) -> None:
    assert [line.state for line in check_sqlite(around(here))] == ["good"]
    (lacking,) = check_sqlite(around(here), "no_such_module")
    assert (lacking.state, bool(lacking.todo)) == ("missing", True)


def test_it_says_where_memory_is_kept(here: Path) -> None:
    def memory() -> str:
        (line,) = [one for one in doctor.check_surroundings(here / "runs.db") if one.what == "memory"]
        return line.message

    assert memory() == f"{here / 'memory.db'} (will be made)"
    write(here, "version: 1\nmemory: {file: kept.db}\nworkers: {ann: Reads.}\n")
    (here / "kept.db").write_text("")
    assert memory() == f"{here / 'kept.db'} (is there)"


def test_a_folder_that_cannot_be_written_is_bad(here: Path) -> None:
    (here / "file").write_text("")
    line = writable("journal", here / "file" / "runs.db")
    assert line.state == "bad"
    assert line.todo
    nowhere = writable("journal", Path("/proc/nowhere/runs.db"))
    assert nowhere.state == "bad"


def test_a_team_that_cannot_be_used_is_bad(here: Path) -> None:
    def team(named: str | None = None) -> CheckResult:
        lines = doctor.check_surroundings(here / "runs.db", named)
        (line,) = [line for line in lines if line.what == "team"]
        return line

    assert team(str(here / "none.yaml")).state == "bad"
    file = write(here, "version: 2\n")
    line = team()
    assert line.state == "bad"
    assert "reads version 1" in line.message
    assert line.todo.startswith("see all of it: chargehand check --team ")
    file.unlink()
    assert team().state == "good"


def test_of_keys_only_names_are_said(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.endswith(("_API_KEY", "_TOKEN")):
            monkeypatch.delenv(name)
    assert [line.state for line in check_keys(around(here))] == ["missing"]
    monkeypatch.setenv("ANTHROPIC_API_KEY", "hush-hush")
    (here / ".env").write_text("GROQ_API_KEY=hush-too\n")
    (line,) = check_keys(around(here))
    assert line.state == "good"
    assert line.message == "set: ANTHROPIC_API_KEY, GROQ_API_KEY"


def test_little_room_is_said(here: Path) -> None:
    for free, state in ((10_000_000, "bad"), (500_000_000, "missing"), (5_000_000_000, "good")):
        assert [line.state for line in check_disk(around(here), free)] == [state]
