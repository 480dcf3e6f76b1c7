"""`chargehand doctor --workers`: a table off the journal, also while another process drives a run."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

from tests.cli.commands import JOURNAL, Done, Underway, chargehand, quick_example, script, task
from tests.cli.test_terminal import EVIL, steering

DEAD = {"fail": "network", "message": "the line went dead"}


def rows(done: Done) -> dict[str, str]:
    return {line.split()[1]: line for line in done.stdout.splitlines()[1:] if line.split()[0] in ("worker", "tool")}


def dead_line(folder: Path) -> None:
    """A run in which ann failed five times in a row."""
    tasks = [task(f"t{n}") for n in range(5)]
    policy = {"retry": {"attempts": 1}, "breaking": {"open": 300.0, "open_ceiling": 300.0}}
    chargehand(folder, "play", script(folder, *tasks, policy=policy, otherwise=DEAD), "--run", "dead")


def test_everybody_who_was_called_has_a_line(tmp_path: Path) -> None:
    assert chargehand(tmp_path, "play", quick_example(tmp_path, "cascade.json")).returncode == 0
    done = chargehand(tmp_path, "doctor", "--workers")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].split() == [
        "what",
        "name",
        "state",
        "calls",
        "failed",
        "median",
        "p95",
        "now",
        "last",
        "failures",
    ]
    told = rows(done)
    assert {"scout", "clerk", "archivist"} <= told.keys()
    assert "1 (33%)" in told["scout"]
    assert told["scout"].rstrip().endswith("1 network")
    assert "from 1 run" in done.stdout


def test_who_is_shut_is_said_in_words_with_the_time_until_it_is_tried(tmp_path: Path) -> None:
    dead_line(tmp_path)
    done = chargehand(tmp_path, "doctor", "--workers", FORCE_COLOR="1")
    assert done.returncode == 1
    (line,) = [line for line in done.stdout.splitlines() if "ann" in line]
    assert "shut, tried again in " in line
    assert "5 (100%)" in line
    assert line.startswith("\x1b[31m")
    told = json.loads(chargehand(tmp_path, "doctor", "--workers", "--json").stdout)
    assert (told["ok"], told["runs"], told["damaged"]) == (False, 1, [])
    (ann,) = told["workers"]
    assert (ann["what"], ann["name"], ann["state"], ann["failures"]) == ("worker", "ann", "open", {"network": 5})
    assert ann["retry_at"] > ann["last"]


def test_it_looks_on_while_another_process_drives(tmp_path: Path) -> None:
    file = script(tmp_path, task("slow"), moves={"slow": [{"seconds": 30, "result": 1}]})
    run = Underway(tmp_path, "play", file, "--run", "long")
    try:
        run.until("started")
        (ann,) = json.loads(chargehand(tmp_path, "doctor", "--workers", "--json").stdout)["workers"]
        assert (ann["name"], ann["in_flight"], ann["state"]) == ("ann", 1, "closed")
    finally:
        run.interrupt()
        run.end()
    (ann,) = json.loads(chargehand(tmp_path, "doctor", "--workers", "--json").stdout)["workers"]
    assert ann["in_flight"] == 0


def test_without_a_journal_it_says_so(tmp_path: Path) -> None:
    done = chargehand(tmp_path, "doctor", "--workers", "--journal", tmp_path / "none.db")
    assert done.returncode == 2
    assert "there is no journal" in done.stderr
    assert not (tmp_path / "none.db").exists()


def test_a_damaged_run_is_named_and_the_others_are_told(tmp_path: Path) -> None:
    for name in ("one", "two"):
        chargehand(tmp_path, "play", script(tmp_path, task("a")), "--run", name)
    with closing(sqlite3.connect(tmp_path / JOURNAL)) as file, file:
        query = "UPDATE entries SET crc = 1 WHERE seq = 3 AND run = (SELECT number FROM runs WHERE run = 'one')"
        file.execute(query)
    done = chargehand(tmp_path, "doctor", "--workers")
    assert "damaged, not read: one" in done.stdout
    assert rows(done)["ann"].split()[3] == "1"


def test_no_name_can_steer_a_terminal(tmp_path: Path) -> None:
    roster = {"agents": [{"name": EVIL}]}
    chargehand(tmp_path, "play", script(tmp_path, task("a", worker=EVIL), roster=roster))
    for words in ([], ["--json"]):
        assert steering(chargehand(tmp_path, "doctor", "--workers", *words).stdout) == []
