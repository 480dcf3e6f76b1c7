"""What cannot be used is refused in one line that says what and where, with exit 2 and nothing written."""

import json
from pathlib import Path

import pytest

from chargehand.journal.store import read_run
from tests.cli.commands import EXAMPLES, JOURNAL, Done, chargehand, script, task


def refused(done: Done, *words: str, code: int = 2) -> None:
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("chargehand: ")
    assert "Traceback" not in done.stderr
    for one in words:
        assert one in done.stderr, done.stderr


CHAIN = [task("t0"), *(task(f"t{n}", f"t{n - 1}") for n in range(1, 10_000))]


CASES: list[tuple[dict[str, object], list[str]]] = [
    ({"plan": {"tasks": [task("a", "b"), task("b", "a")]}}, ["(b).after", "a circle: b -> a -> b", "[cycle]"]),
    ({"plan": {"tasks": [task("a", "b")]}}, ["tasks[0] (a).after", "'b', which does not exist", "[unknown_task]"]),
    ({"plan": {"tasks": [task("a"), task("a")]}}, ["tasks[1] (a).id", "[duplicate_id]"]),
    ({"plan": {"tasks": [task("a", worker="an")]}}, ["Did you mean 'ann'?", "[unknown_worker]"]),
    ({"plan": {"tasks": []}}, ["[empty_plan]"]),
    ({"plan": {"tasks": CHAIN}}, ["10000 tasks, and 50 are allowed", "[too_many_tasks]", "1 more"]),
    ({"plan": {"tasks": CHAIN}, "policy": {"limits": {"max_tasks": 10_000}}}, ["10000 tasks, and 20", "[too_deep]"]),
    (
        {"plan": {"tasks": [{**task("a"), "workr": "ann"}]}},
        ["no field 'workr'; did you mean 'worker'?", "$.plan.tasks[0]"],
    ),
    ({"plan": None}, ["has no plan"]),
    ({"budget": {"usd": -1}}, ["budget.usd is -1"]),
    ({"budget": {"calls": 1, "floor": {"calls": 2}}}, ["budget.floor.calls keeps 2 of a cap of 1"]),
    ({"seconds": -5}, ["the deadline is 5.0 s in the past"]),
    ({"policy": {"retry": {"attempts": 0}}}, ["$.policy.retry.attempts", "it is 0"]),
    ({"moves": {"a": [{"result": {"big": 10**400}}]}}, ["$.moves.a[0].result.big", "outside 64 bits"]),
    ({"moves": {"a": [{"result": float("nan")}]}}, ["$.moves.a[0].result is nan"]),
    ({"moves": {"a": [{"result": "\ud800"}]}}, ["$.moves.a[0].result", "half a surrogate pair"]),
    ({"moves": {"aa": [{}]}}, ["moves names 'aa'", "did you mean 'a'?"]),
    ({"goal": 7}, ["$.goal: must be str, not int (it is 7)"]),
]


@pytest.mark.parametrize(("given", "words"), CASES)
def test_a_script_that_cannot_be_played_is_refused(tmp_path: Path, given: dict[str, object], words: list[str]) -> None:
    refused(chargehand(tmp_path, "play", script(tmp_path, task("a"), **given)), "script.json", *words)
    assert not (tmp_path / ".chargehand").exists()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"goal": ', ["line 1, column 10", "not JSON"]),
        (b"{\n  'goal': 1}", ["line 2, column 3"]),
        (b"\xff\xfe", ["not text in UTF-8"]),
        (b"[]", ["no JSON object but a list"]),
        (b"[" * 10_000 + b"]" * 10_000, ["nested too deeply"]),
        (b'{"plan": ' + b'{"a":' * 10_000 + b"1" + b"}" * 10_001, ["nested too deeply"]),
        (b'{"seconds": 1e400}', ["$.seconds"]),
        (b"", ["not JSON"]),
    ],
    ids=["cut off", "quotes", "bytes", "list", "deep list", "deep object", "1e400", "empty"],
)
def test_a_file_that_is_no_script_is_refused(tmp_path: Path, body: bytes, words: list[str]) -> None:
    file = tmp_path / "script.json"
    file.write_bytes(body)
    refused(chargehand(tmp_path, "play", file), "script.json", *words)
    assert not (tmp_path / ".chargehand").exists()
    refused(chargehand(tmp_path, "plan", "--from", file), "script.json", *words)


def test_files_and_journals_that_are_not_there_are_refused_and_not_made(tmp_path: Path) -> None:
    refused(chargehand(tmp_path, "play", "no.json"), "no.json cannot be read: No such file or directory")
    refused(chargehand(tmp_path, "play", "."), "cannot be read: Is a directory")
    refused(chargehand(tmp_path, "runs"), "there is no journal .chargehand/runs.db")
    refused(chargehand(tmp_path, "runs", "show", "x"), "there is no journal")
    file = script(tmp_path, task("a"))
    refused(chargehand(tmp_path, "resume", "x", "--script", file), "there is no journal")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["script.json"]


@pytest.mark.timeout(300)  # many commands, one after the other, perhaps on a busy machine
def test_runs_that_do_not_fit_are_refused_and_nothing_is_written(tmp_path: Path) -> None:
    file = script(tmp_path, task("a"))
    assert chargehand(tmp_path, "play", file, "--run", "one").returncode == 0
    before = read_run(tmp_path / JOURNAL, "one")
    refused(chargehand(tmp_path, "play", file, "--run", "one"), "run 'one' exists already")
    refused(chargehand(tmp_path, "resume", "two", "--script", file), "there is no run 'two' in this journal")
    refused(
        chargehand(tmp_path, "runs", "show", "two"),
        "there is no run 'two' in this journal; those there are: chargehand runs\n",
    )
    refused(chargehand(tmp_path, "play", file, "--reuse", "two"), "there is no run 'two' in this journal")
    for words in (
        ["runs", "show", "\udcff"],
        ["play", file, "--run", "\udcff"],
        ["resume", "\udcff", "--script", file],
    ):
        refused(chargehand(tmp_path, *words), "'\\udcff' is not text in UTF-8")
    ended = chargehand(tmp_path, "resume", "one", "--script", file)
    refused(ended, "run 'one' has ended (complete)", "chargehand play FILE --reuse one")
    assert read_run(tmp_path / JOURNAL, "one") == before
    listed = json.loads(chargehand(tmp_path, "runs", "--json").stdout)
    assert [(one["run"], one["seq"]) for one in listed] == [("one", len(before))]


def test_a_journal_that_is_none_is_left_alone(tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("these are my notes, and no journal; " * 100)
    play = chargehand(tmp_path, "play", EXAMPLES / "gaps.json", "--journal", notes)
    refused(play, "is not a journal, nor any SQLite database", code=1)
    refused(chargehand(tmp_path, "runs", "--journal", notes), "is not a journal", code=1)
    refused(chargehand(tmp_path, "runs", "show", "x", "--journal", notes), "is not a journal", code=1)
    assert notes.read_text().startswith("these are my notes")
    refused(
        chargehand(tmp_path, "play", EXAMPLES / "gaps.json", "--journal", notes / "runs.db"), "cannot be made", code=1
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["ply", "x.json"], "there is no verb 'ply'; did you mean 'play'?"),
        (["\x1b[2J"], "there is no verb '\\x1b[2J'; the verbs are run, plan, init, check, doctor, "),
        (["frobnicate"], "there is no verb 'frobnicate'; the verbs are run, plan, "),
        (
            ["run", "--exampel"],
            "there is no option --exampel; did you mean '--example'? see  chargehand run --help",
        ),
        (["runs", "show", "x", "--zzz"], "there is no option --zzz; see  chargehand runs show --help"),
        (["runs", "show", "x", "--jsonli"], "there is no option --jsonli; did you mean '--jsonl'?"),
        (["run", "something", "--mod", "demo"], "there is no option --mod"),
        (["run", "something", "--model", "dmeo"], "argument --model: 'dmeo' is no model; write provider:name or demo"),
        (["runs", "--team", "."], "there is no option --team; see  chargehand runs --help"),
        (
            ["check", "team.yaml"],
            "unrecognized arguments: team.yaml; to name a team file: chargehand check --team team.yaml",
        ),
        (["doctor", "my/team.yaml"], "to name a team file: chargehand doctor --team my/team.yaml; see"),
        (["explain", "workers"], "there is no verb 'explain'; "),
        (["play"], "the following arguments are required: FILE; see  chargehand play --help"),
        (["play", "x", "--durability", "none"], "invalid choice: 'none'"),
        (["resume"], "the following arguments are required: RUN"),
        (["resume", "x"], "there is no journal .chargehand/runs.db"),
        (["resume", "x", "--script", "y", "--approve", "--reject", "z"], "not allowed with argument --approve"),
        (["runs", "shw", "x"], "invalid choice: 'shw'"),
        (["plan", "something", "--from", "x.json"], "give a request or --from FILE, not both"),
        (["run", "something", "--timeout", "soon"], "'soon' is no duration; write it like 90s, 5m or 1h"),
        (["run", "something", "--timeout", "0s"], "'0s' is no duration"),
        (["run", "something", "--budget-usd", "-1"], "'-1' is no amount of dollars"),
        (["run", "something", "--budget-usd", "nan"], "'nan' is no amount of dollars"),
        (["run", "something", "--example"], "give a request or --example, not both"),
        (["run", "--example", "99"], "has no example 99; it has "),
    ],
)
def test_words_that_make_no_command_are_refused(tmp_path: Path, words: list[str], said: str) -> None:
    refused(chargehand(tmp_path, *words), said)
