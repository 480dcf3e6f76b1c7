"""Which team file is meant: named, then the environment, then upwards, then the bundled one."""

from pathlib import Path

import pytest

from chargehand.config.source import TEMPLATES, find_team
from chargehand.errors import Invalid


@pytest.fixture(autouse=True)
def no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CHARGEHAND_TEAM", raising=False)


def test_what_is_named_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("named.yaml", "variable.yaml", "team.yaml"):
        (tmp_path / name).write_text("version: 1")
    found = find_team(None, tmp_path)
    assert (found.file, found.how) == ((tmp_path / "team.yaml").resolve(), "found")
    monkeypatch.setenv("CHARGEHAND_TEAM", str(tmp_path / "variable.yaml"))
    found = find_team(None, tmp_path)
    assert (found.file.name, found.how) == ("variable.yaml", "environment")
    found = find_team(tmp_path / "named.yaml", tmp_path)
    assert (found.file.name, found.how) == ("named.yaml", "named")


@pytest.mark.parametrize("name", ["team.yaml", "team.yml"])
def test_a_folder_stands_for_its_team_file(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("")
    assert find_team(tmp_path).file == tmp_path / name


def test_the_nearest_file_upwards_is_found_but_not_above_the_repository(tmp_path: Path) -> None:
    deep = tmp_path / "repository" / "a" / "b"
    deep.mkdir(parents=True)
    (tmp_path / "team.yaml").write_text("")
    assert find_team(None, deep).file == (tmp_path / "team.yaml").resolve()
    (tmp_path / "repository" / ".git").mkdir()
    assert find_team(None, deep).how == "bundled"
    (tmp_path / "repository" / "team.yml").write_text("")
    assert find_team(None, deep).file.name == "team.yml"


def test_without_any_file_the_bundled_team_is_used(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    found = find_team(None, tmp_path)
    assert found.file == TEMPLATES / "shop" / "team.yaml"
    assert "because there is no team file here or above" in found.words


def test_what_is_not_there_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shop.py").write_text("team = 1")
    for name in ("shop.py", "shop"):
        with pytest.raises(Invalid, match="a team in Python is named shop:team"):
            find_team(tmp_path / name)
    with pytest.raises(Invalid, match=r"there is no team file .*nowhere.yaml; to begin one: chargehand init minimal"):
        find_team(tmp_path / "nowhere.yaml")
    with pytest.raises(Invalid, match=r"holds no team.yaml or team.yml"):
        find_team(tmp_path)
    with pytest.raises(Invalid, match="for the bundled one: chargehand init shop"):
        find_team("shop")
    with pytest.raises(Invalid, match="the team has an empty name"):
        find_team("", tmp_path)
    monkeypatch.setenv("CHARGEHAND_TEAM", str(tmp_path / "gone.yaml"))
    with pytest.raises(Invalid, match=r"gone.yaml \(from CHARGEHAND_TEAM\)"):
        find_team()


def test_two_team_files_in_one_folder_are_one_too_many(tmp_path: Path) -> None:
    for name in ("team.yaml", "team.yml"):
        (tmp_path / name).write_text("")
    with pytest.raises(Invalid, match=r"holds team.yaml and team.yml; keep one"):
        find_team(None, tmp_path)
