"""What a person sees when models, time or money fail a team: the best there is, what is missing, what to do next."""

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from chargehand.engine.events import RunEnded
from chargehand.journal.store import read_run
from tests.cli.commands import EXAMPLES, JOURNAL, ROOT, Done, Speaking, chargehand, environment
from tests.cli.forked import Forked

ASKED = "How many passengers did each line carry in total in May? What do our notes say about bicycles?"
PASSENGERS = "North 452, South 279"
BICYCLES = "Bicycles travel free of charge"
REMOTE = "openai:gpt-5-mini"
CALLED_AGAIN_SOON = """
from chargehand.engine.policy import Retry
from chargehand.models import resolve

resolve.RETRY = Retry(base=0.01)
"""


class Provider:
    """A fault server in a process of its own, which can die."""

    def __init__(self) -> None:
        self._command = Speaking(ROOT, "fault-server", "--port", "0")
        self.origin = self._command.output.readline().strip()

    def address(self, mode: str) -> dict[str, str]:
        return {"OPENAI_API_KEY": "none", "OPENAI_BASE_URL": f"{self.origin}/fault/{mode}/v1"}

    def die(self) -> None:
        self._command.kill()


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    made = Provider()
    yield made
    made.die()


def ferry(folder: Path, *, model: str = "demo", analyst: str = "", archivist: str = "", more: str = "") -> Path:
    """The example of a plan, with other models for some."""
    for data in ("data", "notes"):
        shutil.copytree(EXAMPLES / "strategies" / "plan" / data, folder / data)
    own = {"analyst": analyst, "archivist": archivist}
    does = {
        "analyst": "Answers questions about ferry lines and passengers from the database.",
        "archivist": "Finds what our notes say.",
    }
    tools = {"analyst": "trips", "archivist": "notes"}
    workers = [
        f"  {name}: {{description: {does[name]}, tools: [{tools[name]}]{f', model: {one}' if one else ''}}}"
        for name, one in own.items()
    ]
    lines = [
        "version: 1",
        "name: ferry",
        more,
        f"defaults: {{model: {model}}}",
        "policy: {retry: {attempts: 2, base: 10ms, ceiling: 50ms}}",
        "workers:",
        *workers,
        "tools:",
        "  trips: {sql: data/}",
        "  notes: {documents: notes/}",
        "",
    ]
    (folder / "team.yaml").write_text("\n".join(lines))
    return folder


def asked(folder: Path, provider: Provider, mode: str, *words: str) -> Done:
    words = ("run", ASKED, "--run", "one", *words)
    return chargehand(folder, *words, first=CALLED_AGAIN_SOON, **provider.address(mode))


# --- nobody can be reached


@pytest.mark.parametrize(
    ("mode", "words", "again"),
    [
        ("503", "Run it again when the model can be reached", "once more:  "),
        ("401", "refused by openai, as said above. Put that right", "once mended:"),
    ],
)
def test_when_no_model_can_be_reached_it_is_said_once_with_what_to_do(
    tmp_path: Path, provider: Provider, mode: str, words: str, again: str
) -> None:
    done = asked(ferry(tmp_path, model=REMOTE), provider, mode)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("There is no answer: ") == 1
    assert words in done.stderr
    assert "ending: failed (no_plan)" in done.stderr
    assert f"{again} python -m chargehand run --reuse one\n" in done.stderr  # and nothing is taken over


def test_to_programs_the_answer_says_what_is_missing(tmp_path: Path, provider: Provider) -> None:
    done = asked(ferry(tmp_path, model=REMOTE), provider, "503", "--json", "-q")
    told = json.loads(done.stdout)
    assert (done.returncode, told["ending"], told["traced"]["tools"]) == (1, "failed", 0)
    assert told["answer"].startswith("There is no answer: ")
    assert [gap["status"] for gap in told["gaps"]] == ["unplanned"]
    assert told["coverage"]["covered"] == []


# --- the planner


@pytest.mark.parametrize("mode", ["ok", "bad-json", "503", "null-content"])
def test_without_a_planner_one_worker_gets_the_whole_request(tmp_path: Path, provider: Provider, mode: str) -> None:
    done = asked(ferry(tmp_path, more=f"supervisor: {{planner: {REMOTE}}}"), provider, mode)
    assert done.returncode == 3, done.stderr
    assert PASSENGERS in done.stdout
    assert done.stdout.lower().count("no plan could be made (") == 1
    assert "analyst was given the whole request, and parts may have been left out" in done.stdout
    assert "ending: partial (gaps)" in done.stderr


@pytest.mark.slow("half of the time of the run passes, and the work needs the rest")
def test_a_planner_that_never_answers_leaves_time_for_the_work(tmp_path: Path, provider: Provider) -> None:
    team = ferry(tmp_path, more=f"supervisor: {{planner: {REMOTE}}}")
    done = asked(team, provider, "hang-before-headers", "--timeout", "2s")
    assert done.returncode == 3, done.stderr
    assert PASSENGERS in done.stdout
    assert "no plan could be made (the time allowed to plan was over)" in done.stdout


# --- the deadline


def test_where_nobody_answers_in_time_the_time_is_what_is_missing(tmp_path: Path, provider: Provider) -> None:
    done = asked(ferry(tmp_path, model=REMOTE), provider, "hang-before-headers", "--timeout", "500ms")
    assert (done.returncode, done.stdout) == (5, "")
    assert "There is no answer: the time ran out. Give it more time and run it again" in done.stderr
    assert "once more:   python -m chargehand run --reuse one --timeout TIME\n" in done.stderr


@pytest.mark.slow("the time of the run passes, and the work needs some of it")
def test_near_the_deadline_what_is_done_is_answered(tmp_path: Path, provider: Provider) -> None:
    team = ferry(tmp_path, analyst=REMOTE)
    done = asked(team, provider, "hang-before-headers", "--timeout", "1500ms")
    assert done.returncode == 5, done.stderr
    assert BICYCLES in done.stdout
    assert (
        "How many passengers did each line carry in total in May: the time ran out before it was finished. [t1]"
        in done.stdout
    )
    assert "; 1 of 2 parts covered; not covered: t1\n" in done.stderr
    assert "--reuse one --timeout TIME\n" in done.stderr


# --- the budget


def test_when_the_budget_is_gone_the_results_are_shown_as_they_are(tmp_path: Path, provider: Provider) -> None:
    done = asked(ferry(tmp_path, more="budget: {calls: 5}"), provider, "ok")
    assert done.returncode == 5, done.stderr
    assert PASSENGERS in done.stdout
    assert BICYCLES in done.stdout
    assert "no answer was written from them: the budget is spent. Allow it more and run it again" in done.stdout
    assert "--budget-usd" not in done.stderr  # calls are what it lacked
    assert "--reuse one --max-calls N\n" in done.stderr


@pytest.mark.parametrize(("flag", "most", "cap"), [("--max-calls", "5", "calls"), ("--max-tokens", "4000", "tokens")])
def test_calls_and_tokens_are_capped_for_one_run_and_the_list_says_so(
    tmp_path: Path, provider: Provider, flag: str, most: str, cap: str
) -> None:
    done = asked(ferry(tmp_path), provider, "ok", flag, most)
    assert done.returncode == 5, done.stderr
    ended = read_run(tmp_path / JOURNAL, "one")[-1].event
    assert isinstance(ended, RunEnded)
    assert ended.cap is not None
    assert (ended.cap.cap, ended.cap.limit) == (cap, int(most))
    listed = json.loads(chargehand(tmp_path, "runs", "--json").stdout)
    assert (listed[0]["reason"], listed[0]["why"]) == ("budget", ended.cap.describe())
    assert f"the cap of {int(most):,} {cap}" in chargehand(tmp_path, "runs", COLUMNS="200").stdout


def test_with_nearly_no_budget_the_run_says_what_it_could_not_pay_for(tmp_path: Path, provider: Provider) -> None:
    done = asked(ferry(tmp_path, more="budget: {calls: 1}"), provider, "ok")
    assert (done.returncode, done.stdout) == (5, "")
    assert "failed (budget: the budget does not cover step 1 of 't1')" in done.stderr
    assert "There is no answer: the budget is spent." in done.stderr


# --- a provider that dies


def test_a_dead_worker_is_a_gap_and_the_rest_is_answered(tmp_path: Path, provider: Provider) -> None:
    done = asked(ferry(tmp_path, analyst=REMOTE), provider, "503")
    assert done.returncode == 3, done.stderr
    assert BICYCLES in done.stdout
    assert "answered 503: restarting" in done.stdout
    again = chargehand(tmp_path, "run", "--reuse", "one", "--model", "demo", "--run", "two")
    assert again.returncode == 0, again.stderr
    assert PASSENGERS in again.stdout
    assert "t2" in again.stderr
    assert "taken over from" in again.stderr


def test_without_a_model_for_the_answer_the_results_are_shown(tmp_path: Path, provider: Provider) -> None:
    done = asked(ferry(tmp_path, more=f"supervisor: {{judge: {REMOTE}}}"), provider, "503")
    assert done.returncode == 3, done.stderr
    assert PASSENGERS in done.stdout
    assert "These are the results as they came; no answer was written from them: " in done.stdout


def test_a_provider_that_dies_half_way_costs_only_what_came_after(tmp_path: Path) -> None:
    provider = Provider()
    team = ferry(tmp_path, analyst=REMOTE, archivist=REMOTE)
    tasks = [
        {"id": "first", "worker": "analyst", "instruction": "Count the passengers of May."},
        {"id": "then", "worker": "archivist", "instruction": "Say what the notes say about them.", "after": ["first"]},
    ]
    (team / "plan.json").write_text(json.dumps({"goal": ASKED, "tasks": tasks}))
    output = tmp_path / "output.txt"
    heard, said = os.pipe()
    with Path(os.devnull).open("rb") as nothing, output.open("wb") as file:
        words = ("run", "--plan", "plan.json", "--run", "one")
        variables = environment(**provider.address("late"))
        streams = nothing.fileno(), file.fileno(), said
        run = Forked(words, folder=team, environment=variables, streams=streams, first=CALLED_AGAIN_SOON)
    os.close(said)
    with os.fdopen(heard) as progress:
        shown = ""
        while not re.search(r" then +archivist +started", shown):
            line = progress.readline()
            assert line, shown
            shown += line
        provider.die()
        shown += progress.read()
    assert run.wait(timeout=30) == 3, shown
    out = output.read_text()
    assert shown.startswith("notice: Part of this is not the work of a language model")
    assert re.search(r"Count the passengers of May\..*\[first\]", out, re.DOTALL)  # the first echoes its task
    assert re.search(r"Say what the notes say about them[^\n]*: .* can be reached, then try again\. \[then\]", out)
    assert "chargehand run --reuse one" in shown
