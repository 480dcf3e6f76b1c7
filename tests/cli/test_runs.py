"""`chargehand runs`: list, show, export as JSON and as a page, and what is different between two runs."""

import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.cli.commands import JOURNAL, chargehand, quick_example, script, task


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A journal with three runs: the cascade, and twice nearly the same."""
    folder = tmp_path_factory.mktemp("runs")
    assert chargehand(folder, "play", quick_example(folder, "cascade.json"), "--run", "cascade").returncode == 0
    file = script(folder, task("a"), task("b", "a"), answers=[{"result": "It is\nfine."}])
    assert chargehand(folder, "play", file, "--run", "one").returncode == 0
    changed = script(
        folder, task("a"), task("c", "a"), moves={"a": [{"result": 7}]}, answers=[{"result": "It is\nbad."}]
    )
    assert chargehand(folder, "play", changed, "--run", "two").returncode == 0
    return folder


def test_runs_are_listed_with_and_without_saying_so(folder: Path) -> None:
    listed = chargehand(folder, "runs").stdout
    assert [line.split()[0] for line in listed.splitlines()] == ["RUN", "two", "one", "cascade"]
    age = re.compile(r"\d+ (?:s|min)")
    assert age.sub("", chargehand(folder, "runs", "list").stdout) == age.sub("", listed)
    facts = [json.loads(chargehand(folder, "runs", *words, "--json").stdout) for words in ([], ["list"])]
    assert facts[0] == facts[1]
    assert [one["run"] for one in facts[0]] == ["two", "one", "cascade"]


def test_the_journal_may_be_named_before_and_after(folder: Path, tmp_path: Path) -> None:
    journal = folder / JOURNAL
    for words in (["--journal", journal], ["--journal", journal, "list"], ["list", "--journal", journal]):
        assert "cascade" in chargehand(tmp_path, "runs", *words).stdout
    assert "ending: complete" in chargehand(tmp_path, "runs", "--journal", journal, "show", "one").stdout


def test_the_journal_may_be_named_by_its_url(tmp_path: Path) -> None:
    file = script(tmp_path, task("a"))
    assert chargehand(tmp_path, "play", file, "--run", "one", "--journal", "sqlite:///some/runs.db").returncode == 0
    assert (tmp_path / "some" / "runs.db").exists()
    for url in ("sqlite:///some/runs.db", f"sqlite:///{tmp_path}/some/runs.db"):
        assert "one" in chargehand(tmp_path, "runs", "--journal", url).stdout
        assert "ending: complete" in chargehand(tmp_path, "runs", "show", "last", "--journal", url).stdout
    strange = chargehand(tmp_path, "runs", "--journal", "mysql://here/runs")
    assert strange.returncode == 2
    assert "'mysql://here/runs' is not the URL of a store; write sqlite:///PATH" in strange.stderr


def test_every_step_of_a_run_is_exported(folder: Path) -> None:
    told = json.loads(chargehand(folder, "runs", "export", "cascade").stdout)
    assert told["ending"] == "complete"
    assert told["critical_path"] == ["shortlist", "quotes", "landed", "memo"]
    tasks = {one["id"]: one for one in told["tasks"]}
    assert [one["ending"] for one in tasks["freight"]["attempts"]] == ["failed", "succeeded"]
    assert tasks["freight"]["refinements"] == [tasks["freight"]["attempts"][1]["instruction"]]
    assert [one["worker"] for one in tasks["lateness"]["attempts"]] == ["archivist", "clerk"]
    assert tasks["lateness"]["retries"][0]["worker"] == "clerk"
    assert {one["duty"] for one in told["supervision"]} == {"refine", "answer"}
    done = chargehand(folder, "runs", "export", "cascade", "-o", "trace.json")
    assert (done.returncode, done.stdout) == (0, "")
    assert json.loads((folder / "trace.json").read_text()) == told
    assert chargehand(folder, "runs", "export", "cascade", "-o", "no/such/folder").returncode == 2
    assert chargehand(folder, "runs", "export", "none").returncode == 2


def test_a_run_is_shown_as_one_document(folder: Path) -> None:
    shown = json.loads(chargehand(folder, "runs", "show", "one", "--json").stdout)
    assert (shown["run"], shown["ending"], shown["answer"]) == ("one", "complete", "It is\nfine.")
    assert [task["id"] for task in shown["plan"]["tasks"]] == ["a", "b"]


def test_two_commands_at_once_share_a_journal(tmp_path: Path) -> None:
    file = script(tmp_path, task("a"), task("b", "a"), answers=[{"result": "fine"}])

    def play(number: int) -> int:
        return chargehand(tmp_path, "play", file, "--run", f"r{number}").returncode

    with ThreadPoolExecutor(3) as commands:
        assert list(commands.map(play, range(3))) == [0, 0, 0]
    listed = chargehand(tmp_path, "runs").stdout.splitlines()[1:]
    assert sorted(line.split()[0] for line in listed) == ["r0", "r1", "r2"]


def test_old_runs_are_pruned_backed_up_and_restored(tmp_path: Path) -> None:
    file = script(tmp_path, task("a"), answers=[{"result": "fine"}])
    for name in ("first", "second", "third"):
        assert chargehand(tmp_path, "play", file, "--run", name).returncode == 0
    assert chargehand(tmp_path, "runs", "backup", "copy.db").stdout == "copy.db: 3 runs, 0 large results\n"
    refused = chargehand(tmp_path, "runs", "prune")
    assert (refused.returncode, "--older-than 30d" in refused.stderr) == (2, True)
    shown = chargehand(tmp_path, "runs", "prune", "--keep", "1", "--dry-run").stdout.splitlines()
    assert (sorted(shown[:2]), shown[2]) == (["first", "second"], "2 of 3 runs would be deleted")
    assert chargehand(tmp_path, "runs", "prune", "--older-than", "1d").stdout == "deleted 0 of 3 runs\n"
    pruned = json.loads(chargehand(tmp_path, "runs", "prune", "--keep", "1", "--json").stdout)
    assert sorted(pruned["runs"]) == ["first", "second"]
    assert chargehand(tmp_path, "runs", "restore", "copy.db").returncode == 2
    done = chargehand(tmp_path, "runs", "restore", "copy.db", "--journal", "again/runs.db")
    assert done.stdout == "again/runs.db: 3 runs, 0 large results\n"
    assert len(chargehand(tmp_path, "runs", "--journal", "again/runs.db").stdout.splitlines()) == 4


def test_a_run_that_is_only_named_like_one_inside_another_is_not_pruned_with_it(tmp_path: Path) -> None:
    file = script(tmp_path, task("a"), answers=[{"result": "fine"}])
    for name in ("nightly", "nightly/may"):
        assert chargehand(tmp_path, "play", file, "--run", name).returncode == 0
    assert chargehand(tmp_path, "runs", "prune", "--keep", "1").stdout == "deleted 1 of 2 runs\n"
    assert "nightly/may" in chargehand(tmp_path, "runs").stdout
