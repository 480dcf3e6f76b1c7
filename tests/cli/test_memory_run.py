"""Runs of a team with a memory, from the command line: what they write is there afterwards, and is told in words."""

import json
import os
from pathlib import Path

from tests.cli.commands import Underway, chargehand
from tests.cli.memories import MEMORY, TEAM, desk, done, told

CALLED = "calls core_memory_append (idempotent): label=notes, content=Delivery is on Friday."
NOTE = "Append to notes: Delivery is on Friday."
_RECORDING = Path(__file__).parent / "recordings" / "memory.jsonl"
_RECORDED_WITH = os.environ.get("RECORD_WITH", "")
MODEL = f"recording:{_RECORDING}#{_RECORDED_WITH}" if _RECORDED_WITH else f"recorded:{_RECORDING}"


def plan(folder: Path, *instructions: str) -> Path:
    """A plan in which ann does one thing after the other."""
    tasks = [
        {"id": f"t{at}", "instruction": said, "worker": "ann", "after": [f"t{at - 1}"] if at else []}
        for at, said in enumerate(instructions)
    ]
    file = folder / "plan.json"
    file.write_text(json.dumps({"tasks": tasks, "combine": "none"}))
    return file


def test_what_a_worker_writes_is_there_afterwards_with_who_wrote_it(tmp_path: Path) -> None:
    here = desk(tmp_path)
    run = chargehand(here, "run", "note it", "--model", MODEL, "--plan", plan(here, NOTE), "--run", "one")
    assert run.returncode == 0, run.stderr
    assert done(here, "get", "notes") == "Delivery is on Friday.\n"
    latest = told(here, "history", "notes")[0]
    assert {key: latest["origin"][key] for key in ("by", "name", "run", "task")} == {
        "by": "worker",
        "name": "ann",
        "run": "one",
        "task": "t0",
    }
    assert "worker ann in one, t0" in done(here, "history", "notes")


def test_steps_of_memory_are_told_in_words_and_only_where_all_is_told(tmp_path: Path) -> None:
    here = desk(tmp_path)
    usual = chargehand(here, "run", "note it", "--model", MODEL, "--plan", plan(here, NOTE), "--run", "one")
    assert CALLED in usual.stderr
    assert "reads its memory" not in usual.stderr
    assert "keeps the task" not in usual.stderr
    wordy = chargehand(here, "runs", "show", "one").stdout
    for words in (
        "reads its memory",
        CALLED,
        "keeps the task in its memory",
        "returned true",
    ):
        assert words in wordy
    trace = json.loads(chargehand(here, "runs", "export", "one").stdout)
    steps = trace["tasks"][0]["attempts"][0]["steps"]
    assert {"memory", "core_memory_append"} <= {step["name"] for step in steps}
    assert '"label": "notes"' in json.dumps(steps)


def test_a_run_may_keep_its_memory_elsewhere_and_says_so_in_its_advice(tmp_path: Path) -> None:
    here = desk(tmp_path)
    words = [
        "run",
        "note it",
        "--model",
        MODEL,
        "--plan",
        plan(here, NOTE, NOTE.replace("Friday", "Monday")),
        "--run",
        "one",
    ]
    run = chargehand(here, *words, "--memory", "other.db", "--approve", "ask")
    assert run.returncode == 4
    assert "--memory other.db --approve" in run.stderr
    assert chargehand(here, "resume", "one", "--model", MODEL, "--memory", "other.db", "--approve").returncode == 0
    assert done(here, "get", "notes", "--memory", "other.db") == "Delivery is on Friday.\nDelivery is on Monday.\n"
    assert not (here / MEMORY).exists()


def test_memory_is_used_while_a_run_uses_it(tmp_path: Path) -> None:
    text = TEAM.replace("remembers: true", "remembers: true, tools: [wait]") + 'tools: {wait: "waiting:wait"}\n'
    here = desk(tmp_path, text)
    (here / "waiting.py").write_text(
        "import time\nfrom pathlib import Path\n\n\ndef wait() -> str:\n"
        '    """Wait for the delivery."""\n'
        '    while not Path("go").exists():\n        time.sleep(0.01)\n    return "it came"\n'
    )
    run = Underway(
        here, "run", "wait", "--model", MODEL, "--plan", plan(here, "Wait for the delivery.", NOTE), "--run", "one"
    )
    run.until("calls wait")
    done(here, "set", "notes", "from a person")
    assert done(here, "get", "notes") == "from a person\n"
    (here / "go").touch()
    assert run.end() == 0
    assert done(here, "get", "notes") == "from a person\nDelivery is on Friday.\n"


def test_a_team_without_memory_makes_no_file(tmp_path: Path) -> None:
    here = desk(tmp_path, "version: 1\nname: bare\nworkers: {ann: {description: Works out., tools: [calculator]}}\n")
    assert chargehand(here, "run", "What is 12% of 250?").returncode == 0
    assert not (here / MEMORY).exists()


def test_doctor_says_where_memory_is_kept(tmp_path: Path) -> None:
    here = desk(tmp_path, TEAM.replace("memory:\n", "memory:\n  file: kept.db\n"))
    said = chargehand(here, "doctor").stdout
    assert "kept.db (will be made)" in said


def test_what_a_worker_writes_is_in_the_database_of_the_store(tmp_path: Path, postgres_tenant: str) -> None:
    here = desk(tmp_path)
    store = ("--store", postgres_tenant)
    words = ("run", "note it", "--model", MODEL, "--plan", plan(here, NOTE), "--run", "one", *store)
    run = chargehand(here, *words)
    assert run.returncode == 0, run.stderr
    assert done(here, "get", "notes", *store) == "Delivery is on Friday.\n"
    latest = told(here, "history", "notes", *store)[0]
    assert (latest["origin"]["by"], latest["origin"]["run"]) == ("worker", "one")
    assert "1 new" in done(here, "add", "findings", "The ferry leaves at noon.", *store)
    assert "The ferry leaves at noon." in done(here, "search", "findings", "when do ferries leave", *store)
    listed = done(here, *store)
    assert listed.startswith("memory of team desk in postgresql:///")
    assert "s3cret-word" not in listed + run.stdout + run.stderr
    assert {file.name for file in here.iterdir()} == {".git", "team.yaml", "plan.json"}, "nothing is in a file"
