"""`chargehand completion`: what a real bash offers, and that no shell is told of anything that is not there."""

import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from chargehand.cli import shells
from chargehand.cli.main import main, parser
from chargehand.cli.places import Place, places

_ASK = """
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
_chargehand
printf '%s\\n' "${COMPREPLY[@]}"
"""


@cache
def everywhere() -> tuple[Place, ...]:
    return tuple(places(parser()))


def offered(folder: Path, *words: str) -> list[str]:
    """What bash offers for the last word. Its arguments are split as readline splits them."""
    script = f"{shells.bash(everywhere())}\n{_ASK}"
    asked = ["bash", "--norc", "--noprofile", "-c", script, "bash", "chargehand", *words]
    done = subprocess.run(asked, cwd=folder, capture_output=True, text=True, check=False, timeout=20)
    assert (done.returncode, done.stderr) == (0, "")
    return [line for line in done.stdout.splitlines() if line]


def test_the_verbs_are_offered_and_narrowed_down(tmp_path: Path) -> None:
    assert {"run", "memory", "fault-server", "completion"} <= set(offered(tmp_path, ""))
    assert offered(tmp_path, "re") == ["resume", "replay"]
    assert offered(tmp_path, "memory", "pa") == ["patch", "passages"]
    assert offered(tmp_path, "runs", "") == ["list", "show", "export", "diff", "cancel", "prune", "backup", "restore"]


def test_the_options_of_the_verb_at_hand_are_offered(tmp_path: Path) -> None:
    assert offered(tmp_path, "run", "--du") == ["--durability"]
    assert offered(tmp_path, "runs", "export", "--r") == ["--report"]
    assert offered(tmp_path, "runs", "--journal", "list", "show", "--js") == ["--jsonl"]
    assert offered(tmp_path, "--v") == ["--version"]
    assert set(offered(tmp_path, "lessons", "")) >= {"--forget", "--team"}  # it takes no words


def test_an_option_with_choices_offers_them(tmp_path: Path) -> None:
    assert offered(tmp_path, "run", "--approve", "") == ["auto", "ask", "never"]
    assert offered(tmp_path, "run", "--approve", "=", "a") == ["auto", "ask"]
    assert offered(tmp_path, "run", "--durability", "=") == ["machine", "process"]
    assert offered(tmp_path, "completion", "") == ["bash", "zsh", "fish"]
    assert offered(tmp_path, "completion", "bash", "") == ["-h", "--help"]
    assert offered(tmp_path, "run", "--run", "") == []  # a name that nobody can guess


def test_what_stands_in_names_and_words_is_never_carried_out(tmp_path: Path) -> None:
    odd = ["$(touch done)", "`touch done`", "x;touch done", "*"]
    for name in odd:
        (tmp_path / name).touch()
    assert sorted(offered(tmp_path, "run", "--team", "")) == sorted(odd)
    for words in (("run", odd[0], ""), (odd[0], "--"), ("run", f"--{odd[1]}"), ("run", "--journal", odd[2], "--te")):
        offered(tmp_path, *words)
    assert not (tmp_path / "done").exists()


def test_files_and_folders_are_offered_where_they_are_wanted(tmp_path: Path) -> None:
    (tmp_path / "my team").mkdir()
    (tmp_path / "my plan.json").touch()
    assert sorted(offered(tmp_path, "run", "--plan", "my")) == ["my plan.json", "my team"]
    assert offered(tmp_path, "run", "--save", "m") == ["my team"]
    assert sorted(offered(tmp_path, "play", "")) == ["my plan.json", "my team"]
    assert sorted(offered(tmp_path, "eval", "one.yaml", "two.yaml", "my")) == ["my plan.json", "my team"]
    assert offered(tmp_path, "memory", "patch", "notes", "my p") == ["my plan.json"]
    assert offered(tmp_path, "memory", "patch", "") == []


def test_after_two_dashes_no_options_are_offered(tmp_path: Path) -> None:
    (tmp_path / "-v").touch()
    assert offered(tmp_path, "play", "--", "-") == ["-v"]


def test_bash_takes_the_printed_script_as_its_help_says(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["completion", "bash"]) == 0
    assert capsys.readouterr().out == shells.bash(everywhere()) + "\n"
    command = f'chargehand() {{ {shlex.quote(sys.executable)} -m chargehand "$@"; }}\n'
    command += 'eval "$(chargehand completion bash)"; complete -p chargehand'
    asked = ["bash", "--norc", "--noprofile", "-c", command]
    done = subprocess.run(asked, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=20)
    assert done.stdout == "complete -F _chargehand chargehand\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_verb_and_option_is_in_every_script(shell: str) -> None:
    made = {"bash": shells.bash, "zsh": shells.zsh, "fish": shells.fish}[shell](everywhere())
    for place in everywhere():
        assert all(name in made for name in place.verbs)
        for option in place.options:
            short_of_dashes = [name.lstrip("-") if shell == "fish" else name for name in option.names]
            assert all(name in made for name in short_of_dashes)


def test_the_lines_for_fish_are_quoted_as_fish_reads_them() -> None:
    lines = [line for line in shells.fish(everywhere()).splitlines() if line.startswith("complete ")]
    told = next(line for line in lines if " -l version " in line)
    assert told.endswith(r"-d 'show program\'s version number and exit'")
    unescaped = [line.replace("\\\\", "").replace("\\'", "") for line in lines]
    assert [line for line in unescaped if line.count("'") % 2] == []


def test_an_unknown_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["completion", "fsh"])
    assert stopped.value.code == 2
    assert "did you mean 'fish'?" in capsys.readouterr().err
