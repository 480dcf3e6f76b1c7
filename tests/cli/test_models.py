"""`chargehand models` and `chargehand fault-server`."""

import json
import re
import signal
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from chargehand.models.local import CATALOG
from tests.cli.commands import COMMAND, chargehand, environment


def installed(home: Path, name: str) -> Path:
    """A model that looks complete: its files have the right size and take no room."""
    folder = home / "models" / name
    folder.mkdir(parents=True)
    for file in CATALOG[name].files:
        with (folder / file.name).open("wb") as made:
            made.truncate(file.size)
    return folder


def test_every_model_is_listed(tmp_path: Path) -> None:
    installed(tmp_path, "minilm")
    done = chargehand(tmp_path, "models", "list", CHARGEHAND_HOME=str(tmp_path))
    assert done.returncode == 0
    rows = {line.split()[0]: line for line in done.stdout.splitlines()}
    assert set(CATALOG) <= set(rows)
    assert "  here  " in rows["minilm"]
    assert "  here  " not in rows["smollm2-135m"]


def test_a_model_that_is_here_is_not_fetched_again(tmp_path: Path) -> None:
    folder = installed(tmp_path, "minilm")
    done = chargehand(tmp_path, "models", "pull", "minilm", CHARGEHAND_HOME=str(tmp_path))
    assert (done.returncode, done.stdout.strip()) == (0, str(folder))


def test_a_model_can_be_removed(tmp_path: Path) -> None:
    folder = installed(tmp_path, "minilm")
    done = chargehand(tmp_path, "models", "rm", "minilm", CHARGEHAND_HOME=str(tmp_path))
    assert (done.returncode, folder.exists()) == (0, False)
    assert "is removed" in done.stderr
    assert "was not here" in chargehand(tmp_path, "models", "rm", "minilm", CHARGEHAND_HOME=str(tmp_path)).stderr


def test_a_pull_that_fails_says_so_and_ends_with_one(tmp_path: Path) -> None:
    index = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "0", "PIP_NO_INDEX": "1"}
    done = chargehand(tmp_path, "models", "pull", "minilm", CHARGEHAND_HOME=str(tmp_path), **index)
    assert done.returncode == 1
    assert "cannot be fetched" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["models", "pull"], "models pull needs a name"),
        (["models", "pull", "../../x"], "there is no model '../../x' to fetch; there are: smollm2-135m"),
        (["models", "rm", "nobody"], "there is no model 'nobody'"),
        (["models", "burn", "x"], "invalid choice: 'burn'"),
        (["fault-server", "--port", "99999"], "99999 is no port"),
        (["fault-server", "--port", "0", "--mode", "zzz"], "there is no fault mode 'zzz'"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(tmp_path: Path, words: list[str], said: str) -> None:
    done = chargehand(tmp_path, *words, CHARGEHAND_HOME=str(tmp_path))
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_fault_server_serves_until_it_is_interrupted(tmp_path: Path) -> None:
    words = [*COMMAND, "fault-server", "--port", "0"]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, cwd=tmp_path, env=environment(), stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        origin = process.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+", origin)
        with urllib.request.urlopen(f"{origin}/", timeout=5) as answered:
            assert len(json.load(answered)["modes"]) >= 25
        request = urllib.request.Request(f"{origin}/fault/429/v1/chat/completions", b"{}")
        with pytest.raises(urllib.error.HTTPError, match="429") as caught:
            urllib.request.urlopen(request, timeout=5)
        caught.value.close()
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=10)
    assert process.returncode == 130
    assert f"{origin}/fault/MODE/v1" in said
    assert "Traceback" not in said
