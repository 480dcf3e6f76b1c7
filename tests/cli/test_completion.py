"""`chargehand completion`: what a real bash offers, and that every shell is told of every verb and option."""

import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import shtab

from chargehand.cli.main import main
from tests.reference.parsers import every_parser

_ASK = """
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
_shtab_chargehand
printf '%s\\n' "${COMPREPLY[@]}"
"""


@cache
def printed(shell: str) -> str:
    """The script as the command prints it."""
    command = [sys.executable, "-m", "chargehand", "completion", shell]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout


def offered(folder: Path, *words: str) -> list[str]:
    """What bash offers for the last word."""
    script = f"{printed('bash')}\n{_ASK}"
    command = ["bash", "--norc", "--noprofile", "-c", script, "bash", "chargehand", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=20)
    assert done.returncode == 0
    return [line for line in done.stdout.splitlines() if line]


def test_verbs_options_and_choices_are_offered(tmp_path: Path) -> None:
    assert {"run", "memory", "fault-server", "completion"} <= set(offered(tmp_path, ""))
    assert offered(tmp_path, "re") == ["resume", "replay"]
    assert offered(tmp_path, "runs", "") == [
        "list",
        "show",
        "export",
        "cancel",
        "prune",
        "webhooks",
        "backup",
        "restore",
    ]
    assert offered(tmp_path, "run", "--du") == ["--durability"]
    assert offered(tmp_path, "runs", "prune", "--dr") == ["--dry-run"]
    assert offered(tmp_path, "run", "--approve", "") == ["auto", "ask"]
    assert offered(tmp_path, "completion", "") == ["bash", "zsh", "fish"]


def test_files_and_folders_are_offered_where_they_are_wanted(tmp_path: Path) -> None:
    (tmp_path / "my team").mkdir()
    (tmp_path / "my plan.json").touch()
    assert sorted(offered(tmp_path, "run", "--plan", "my")) == ["my plan.json", "my team"]
    assert offered(tmp_path, "run", "--save", "m") == ["my team"]
    assert sorted(offered(tmp_path, "play", "")) == ["my plan.json", "my team"]


def test_what_stands_in_names_and_words_is_never_carried_out(tmp_path: Path) -> None:
    odd = ["$(touch done)", "`touch done`", "x;touch done", "*"]
    for name in odd:
        (tmp_path / name).touch()
    assert sorted(offered(tmp_path, "run", "--team", "")) == sorted(odd)
    for words in (("run", odd[0], ""), (odd[0], "--"), ("run", f"--{odd[1]}"), ("run", "--journal", odd[2], "--te")):
        offered(tmp_path, *words)
    assert not (tmp_path / "done").exists()


def test_bash_takes_the_printed_script_as_its_help_says(tmp_path: Path) -> None:
    command = f'chargehand() {{ {shlex.quote(sys.executable)} -m chargehand "$@"; }}\n'
    command += 'eval "$(chargehand completion bash)"; complete -p chargehand'
    asked = ["bash", "--norc", "--noprofile", "-c", command]
    done = subprocess.run(asked, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=20)
    assert done.stdout == "complete -o bashdefault -F _shtab_chargehand chargehand\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_verb_and_option_is_in_every_script(shell: str) -> None:
    assert shell in shtab.SUPPORTED_SHELLS
    script = printed(shell)
    for path, parser in every_parser():
        assert all(name in script for name in path.split())
        for action in parser._actions:
            names = [name.lstrip("-") if shell == "fish" else name for name in action.option_strings]
            assert all(name in script for name in names)


def test_an_unknown_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["completion", "fsh"])
    assert stopped.value.code == 2
    assert "did you mean 'fish'?" in capsys.readouterr().err
