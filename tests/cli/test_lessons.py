"""`chargehand feedback` and `chargehand lessons`: what people type, what they are told, and the exit codes."""

import json
from pathlib import Path

import pytest

from tests.cli.commands import Done, chargehand, run_of
from tests.config.files import write

TEAM = """\
version: 1
name: shop
supervisor: {way: {route: {router: words, generalist: desk%s}}}
workers:
  billing: {description: Answers questions about invoices., skills: [invoices, refunds, payment methods]}
  repairs: {description: Helps when something is broken., skills: [error messages, devices that do not start]}
  desk: {description: Answers everything else.}
"""
TORN = "the card payment shows error messages"
LIKE = "this card payment shows an error message"


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    write(tmp_path, TEAM % "")
    return tmp_path


def routed(folder: Path, request: str) -> tuple[str, str]:
    """The run of a request, and the note of its route."""
    done = chargehand(folder, "run", request)
    run = run_of(done)
    shown = chargehand(folder, "runs", "show", run, "--jsonl").stdout
    notes = [json.loads(line) for line in shown.splitlines() if "route to " in line]
    return run, json.dumps(notes[0])


def refused(done: Done, words: str) -> None:
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_feedback_is_kept_and_a_like_request_goes_elsewhere(here: Path) -> None:
    run, note = routed(here, TORN)
    assert "route to repairs" in note
    done = chargehand(here, "feedback", run, "bad", "--worker", "billing")
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, f"kept of run {run}: repairs 0, billing 1")
    _, note = routed(here, LIKE)
    assert "route to billing" in note
    assert "so billing instead of repairs" in note
    shown = chargehand(here, "lessons").stdout
    assert "team shop: " in shown
    assert f"{TORN}: repairs → billing" in shown
    assert "turn it off:  way: {route: {learn: false}}" in shown


def test_both_speak_json(here: Path) -> None:
    run, _ = routed(here, TORN)
    told = json.loads(chargehand(here, "feedback", run, "0.25", "--json").stdout)
    assert told == {"run": run, "lessons": [{"worker": "repairs", "score": 0.25, "request": TORN}]}
    report = json.loads(chargehand(here, "lessons", "--json").stdout)
    assert (report["team"], report["learns"], report["looked_at"]) == ("shop", True, 1)
    assert [one["lessons"]["feedback"] for one in report["workers"]] == [1]
    assert json.loads(chargehand(here, "lessons", "--forget", "--json").stdout) == {"forgotten": report["kept"]}
    assert json.loads(chargehand(here, "lessons", "--json").stdout)["kept"] == 0


def test_without_lessons_it_says_how_to_give_some_and_off_is_said(here: Path) -> None:
    run, _ = routed(here, TORN)
    chargehand(here, "lessons", "--forget")
    assert "say how a run went: chargehand feedback RUN good|bad" in chargehand(here, "lessons").stdout
    write(here, TEAM % ", learn: false")
    chargehand(here, "feedback", run, "bad", "--worker", "billing")
    assert "it is off (learn: false)" in chargehand(here, "lessons").stdout
    assert "route to repairs" in routed(here, LIKE)[1]


def test_lessons_that_change_nothing_announce_nothing(here: Path) -> None:
    routed(here, TORN)
    shown = chargehand(here, "lessons").stdout
    assert "none of 1 request looked at, by words, would go elsewhere than without lessons\n" in shown
    assert "forget it: " in shown
    chargehand(here, "lessons", "--forget")
    assert "forget it: " not in chargehand(here, "lessons").stdout


def test_bad_input_is_refused_in_one_line(here: Path) -> None:
    refused(chargehand(here, "feedback", "nope", "good"), "there is no journal")
    run, _ = routed(here, TORN)
    refused(chargehand(here, "feedback", "nope", "good"), "there is no run 'nope'")
    refused(chargehand(here, "feedback", run, "great"), "'great' is no score; say good, bad or a number from 0 to 1")
    refused(chargehand(here, "feedback", run, "1.5"), "is no score")
    refused(chargehand(here, "feedback", run, "nan"), "is no score")
    refused(chargehand(here, "feedback", run, "bad", "--worker", "biling"), "did you mean 'billing'?")
    write(here, "version: 1\nname: shop\nworkers: {ann: {description: Writes letters.}}\n")
    refused(chargehand(here, "lessons"), "is not led by a route")
    planned = run_of(chargehand(here, "run", "Write a letter to the mayor"))
    refused(chargehand(here, "feedback", planned, "good"), "was not led by a route")
    write(here, TEAM % ", learn: maybe")
    refused(chargehand(here, "lessons"), "learn")


@pytest.mark.parametrize("verb", ["feedback", "lessons"])
def test_help_has_examples(here: Path, verb: str) -> None:
    shown = chargehand(here, verb, "--help").stdout
    assert f"examples:\n  chargehand {verb}" in shown
    assert "exit codes:" in shown
