"""`chargehand init`: templates that work as they are, and nothing written over."""

import re
from pathlib import Path

import pytest

from tests.cli.commands import chargehand

TEMPLATES = ("minimal", "shop", "support", "code-review")


def test_the_templates_are_listed(tmp_path: Path) -> None:
    done = chargehand(tmp_path, "init", "--list")
    assert done.returncode == 0
    assert [line.split()[0] for line in done.stdout.splitlines()] == list(TEMPLATES)
    assert all(len(line.split()) > 5 for line in done.stdout.splitlines())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_is_a_team_without_any_finding(tmp_path: Path, name: str) -> None:
    done = chargehand(tmp_path, "init", name, "mine")
    assert (done.returncode, done.stderr) == (0, "")
    assert "  cd mine\n  chargehand check\n  chargehand run '" in done.stdout
    assert not [path for path in (tmp_path / "mine").rglob("*") if "__pycache__" in path.name]
    checked = chargehand(tmp_path / "mine", "check", "--strict", CHARGEHAND_TEAM="", CHARGEHAND_MODEL="")
    assert (checked.returncode, checked.stdout) == (0, "")
    assert "all is well" in checked.stderr
    assert "models: offline" in checked.stderr


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("minimal", ["3 litres a plant", "watering.md"]),
        ("support", ["1042", "two pictures", "damaged-parcels.md"]),
        ("code-review", ["24", "20 lines are the aim"]),
    ],
)
def test_a_template_runs_with_no_key(tmp_path: Path, name: str, words: list[str]) -> None:
    done = chargehand(tmp_path, "init", name, ".")
    assert "cd " not in done.stdout
    request = re.findall(r"chargehand run '(.*)'", done.stdout)[0]
    ran = chargehand(tmp_path, "run", request, CHARGEHAND_TEAM="", CHARGEHAND_MODEL="")
    assert ran.returncode == 0, ran.stderr
    assert [word for word in words if word not in ran.stdout] == []


def test_the_folder_is_named_after_the_template(tmp_path: Path) -> None:
    assert chargehand(tmp_path, "init").returncode == 0
    assert (tmp_path / "minimal" / "team.yaml").is_file()


def test_what_is_there_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "tools.py").write_text("# mine")
    done = chargehand(tmp_path, "init", "minimal", "mine")
    assert done.returncode == 2
    assert done.stderr == "chargehand: mine holds tools.py already; choose another folder, or --force to write over\n"
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["tools.py"]
    forced = chargehand(tmp_path, "init", "minimal", "mine", "--force")
    assert forced.returncode == 0
    assert "seedling_price" in (tmp_path / "mine" / "tools.py").read_text()


def test_another_team_file_is_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "team.toml").write_text("")
    done = chargehand(tmp_path, "init", "minimal", ".")
    assert done.returncode == 2
    assert "holds team.toml already" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["minmal"], "there is no template 'minmal'; did you mean 'minimal'?"),
        (["../../etc"], "there is no template '../../etc'; there are minimal, shop, support, code-review"),
        (["minimal", "file.txt"], "file.txt is a file; name a folder"),
        (["minimal", "file.txt/below"], "cannot be written"),
    ],
)
def test_what_cannot_be_begun_is_said_in_one_line(tmp_path: Path, words: list[str], said: str) -> None:
    (tmp_path / "file.txt").write_text("mine")
    done = chargehand(tmp_path, "init", *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["file.txt"]
