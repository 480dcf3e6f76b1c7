"""A journal that is damaged: the commands say where, show what can be read, and go on with the other runs."""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.commands import JOURNAL, chargehand, script, task


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound")
    file = script(folder, task("a"), task("b", "a"), answers=[{"result": "It is fine."}])
    for run in ("first", "second", "third"):
        assert chargehand(folder, "play", file, "--run", run).returncode == 0
    return folder


@pytest.fixture
def folder(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "copy"))


def damage(folder: Path, run: str, seq: int, setting: str) -> None:
    with closing(sqlite3.connect(folder / JOURNAL)) as journal:
        number = "(SELECT number FROM runs WHERE run = ?)"
        changed = journal.execute(f"UPDATE entries SET {setting} WHERE run = {number} AND seq = ?", (run, seq))
        assert changed.rowcount == 1
        journal.commit()


def last_entry(folder: Path, run: str) -> int:
    listed = json.loads(chargehand(folder, "runs", "--json").stdout)
    return next(one["seq"] for one in listed if one["run"] == run)


@pytest.mark.parametrize("setting", ["at = 'x'", "type = CAST(x'ff' AS TEXT)", "body = zeroblob(9)"])
def test_runs_lists_a_damaged_run_beside_the_others(folder: Path, setting: str) -> None:
    damage(folder, "second", last_entry(folder, "second"), setting)
    listed = chargehand(folder, "runs")
    assert listed.returncode == 0
    lines = {line.split()[0]: line for line in listed.stdout.splitlines()[1:]}
    assert set(lines) == {"first", "second", "third"}
    assert lines["second"].split()[1:3] == ["damaged", "entry"]
    assert lines["first"].split()[1] == "complete"
    facts = {one["run"]: one for one in json.loads(chargehand(folder, "runs", "--json").stdout)}
    assert "of run 'second'" in facts["second"]["damage"]
    assert (facts["first"]["damage"], facts["first"]["state"]) == ("", "complete")


def test_runs_export_writes_a_damaged_run_up_to_the_damage(folder: Path) -> None:
    damage(folder, "second", 8, "at = 'x'")
    exported = chargehand(folder, "runs", "export", "second")
    assert exported.returncode == 1
    trace = json.loads(exported.stdout)
    assert (trace["run"], trace.get("ending", "")) == ("second", "")
    assert trace["tasks"]
    assert "entry 8 of run 'second'" in trace["damage"]
    assert "entry 8 of run 'second'" in exported.stderr
    written = chargehand(folder, "runs", "export", "second", "-o", "trace.json")
    assert (written.returncode, json.loads((folder / "trace.json").read_text())) == (1, trace)
    damage(folder, "third", 1, "at = 'x'")
    nothing = chargehand(folder, "runs", "export", "third")
    assert (nothing.returncode, nothing.stdout) == (1, "")


def test_runs_show_tells_a_damaged_run_up_to_the_damage(folder: Path) -> None:
    damage(folder, "second", 5, "at = 'x'")
    shown = chargehand(folder, "runs", "show", "second")
    assert shown.returncode == 1
    assert "goal:" in shown.stdout
    assert "ending:" not in shown.stdout
    assert "entry 5 of run 'second' is damaged" in shown.stderr
    assert "nothing was lost" not in shown.stderr.lower()
    lines = chargehand(folder, "runs", "show", "second", "--jsonl")
    assert [json.loads(line)["seq"] for line in lines.stdout.splitlines()] == [1, 2, 3, 4]
    assert lines.returncode == 1
    assert chargehand(folder, "runs", "show", "first").returncode == 0


@pytest.mark.parametrize("words", [("resume", "second"), ("runs", "export", "second"), ("watch", "second")])
def test_nothing_goes_on_from_a_damaged_run(folder: Path, words: tuple[str, ...]) -> None:
    damage(folder, "second", 3, "body = CAST(body AS TEXT)")
    ran = chargehand(folder, *words)
    assert ran.returncode == 1
    assert "entry 3 of run 'second' is damaged" in ran.stderr
    assert "chargehand runs show second" in ran.stderr
    assert "from a backup" in ran.stderr


def test_a_run_whose_name_is_damaged_is_not_merely_unknown(folder: Path) -> None:
    with closing(sqlite3.connect(folder / JOURNAL)) as journal:
        journal.execute("UPDATE runs SET run = 'sebond' WHERE run = 'second'")
        journal.commit()
    shown = chargehand(folder, "runs", "show", "second")
    assert shown.returncode == 1
    assert "these are damaged: sebond" in shown.stderr


def test_a_journal_that_lost_its_beginning_is_damaged(folder: Path) -> None:
    journal = folder / JOURNAL
    content = journal.read_bytes()
    journal.write_bytes(bytes(4096) + content[4096:])
    for words in (("runs",), ("runs", "show", "first"), ("resume", "first")):
        ran = chargehand(folder, *words)
        assert ran.returncode == 1
        assert "is damaged" in ran.stderr
        assert "nothing was lost" not in ran.stderr.lower()
