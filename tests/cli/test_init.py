"""`chargehand init`: templates that work as they are, and nothing written over."""

import re
from pathlib import Path

import pytest

from tests.cli.commands import chargehand

TEMPLATES = ("minimal", "shop", "support", "code-review")
NO_MODEL = {
    "CHARGEHAND_TEAM": "",
    "CHARGEHAND_MODEL": "",
    "OPENAI_API_KEY": "",
    "ANTHROPIC_API_KEY": "",
    "OPENROUTER_API_KEY": "",
}
"""Whoever runs the tests may have some."""


def test_the_templates_are_listed(tmp_path: Path) -> None:
    done = chargehand(tmp_path, "init", "--list")
    assert done.returncode == 0
    assert [line.split()[0] for line in done.stdout.splitlines()[1:]] == list(TEMPLATES)
    assert all(len(line.split()) > 5 for line in done.stdout.splitlines()[1:])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_is_a_team_without_any_finding(tmp_path: Path, name: str) -> None:
    done = chargehand(tmp_path, "init", name, "mine", **NO_MODEL)
    assert (done.returncode, done.stderr) == (0, "")
    assert "model: demo, because no key is set\n" in done.stdout
    assert "  cd mine\n  chargehand check\n  chargehand run '" in done.stdout
    assert not [path for path in (tmp_path / "mine").rglob("*") if "__pycache__" in path.name]
    checked = chargehand(tmp_path / "mine", "check", "--strict", CHARGEHAND_TEAM="", CHARGEHAND_MODEL="")
    assert (checked.returncode, checked.stdout) == (0, "")
    assert "all is well" in checked.stderr
    assert "models: demo" in checked.stderr


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("minimal", ["3 litres a plant", "watering.md"]),
        ("support", ["1042", "two pictures", "damaged-parcels.md"]),
        ("code-review", ["24", "20 lines are the aim"]),
    ],
)
def test_a_template_runs_with_no_key(tmp_path: Path, name: str, words: list[str]) -> None:
    done = chargehand(tmp_path, "init", name, ".", **NO_MODEL)
    assert "cd " not in done.stdout
    request = re.findall(r"chargehand run '(.*)'", done.stdout)[0]
    ran = chargehand(tmp_path, "run", request, CHARGEHAND_TEAM="", CHARGEHAND_MODEL="")
    assert ran.returncode == 0, ran.stderr
    assert [word for word in words if word not in ran.stdout] == []


def test_the_folder_is_named_after_the_template(tmp_path: Path) -> None:
    made = chargehand(tmp_path, "init")
    assert made.returncode == 0
    assert made.stdout.startswith("minimal/team.yaml: the team 'garden'\n")


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
    (tmp_path / "team.yml").write_text("")
    done = chargehand(tmp_path, "init", "minimal", ".")
    assert done.returncode == 2
    assert "holds team.yml already" in done.stderr


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


def test_a_key_in_the_environment_chooses_the_model_and_is_written_nowhere(tmp_path: Path) -> None:
    given = {**NO_MODEL, "ANTHROPIC_API_KEY": "sk-ant-secret"}
    done = chargehand(tmp_path, "init", "minimal", "mine", **given)
    assert "model: anthropic:claude-haiku-4-5, because ANTHROPIC_API_KEY is set\n" in done.stdout
    checked = chargehand(tmp_path / "mine", "check", **given)
    assert "models: anthropic:claude-haiku-4-5" in checked.stderr
    written = b"".join(path.read_bytes() for path in (tmp_path / "mine").rglob("*") if path.is_file())
    assert b"sk-ant-secret" not in written + done.stdout.encode()
    named = chargehand(tmp_path, "init", "minimal", "other", "--model", "demo", **given)
    assert "model: demo, because --model names it\n" in named.stdout


def test_git_ignores_runs_and_keys_and_what_it_ignored_before(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("*.log\n.env")
    assert chargehand(tmp_path, "init", "minimal", ".", **NO_MODEL).returncode == 0
    assert (tmp_path / ".gitignore").read_text() == "*.log\n.env\n.chargehand/\n__pycache__/\n"
