"""`chargehand message`: who gets it, what each replies, and the exit code."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from chargehand import Plan, Reply, ScriptedModel, Supervisor, Task, Team, ToolCall, Worker
from chargehand.agents.messages import MATCHING
from chargehand.engine.plan import TaskId
from tests.cli.commands import COMMAND, Underway, chargehand, environment, run_of
from tests.cli.terminal import Terminal
from tests.cli.test_bad_input import refused
from tests.config.files import write

TEAM = """\
version: 1
name: desk
workers:
  ann: {description: Works out figures., tools: [calculator], tags: [worker, figures]}
  bob: {description: Writes letters., tags: [worker, letters]}
  cid: {description: Works out figures., tools: [slow], tags: [slow]}
tools: {slow: {python: "slowly:slow"}}
"""
SLOW = '''
import time

def slow(product: str) -> int:
    """How many of a product are in stock: anvils or tongs."""
    print("noise")
    time.sleep(20)
    return 1
'''


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    write(tmp_path, TEAM)
    (tmp_path / "slowly.py").write_text(SLOW)
    return tmp_path


def test_everybody_who_answers_is_shown_and_the_run_is_kept(here: Path) -> None:
    done = chargehand(here, "message", "What is 12% of 250?", "--match-all", "worker", "--match-some", "figures")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("ann [m1]: ")
    assert "30" in done.stdout
    assert done.stderr.startswith("notice: No language model is used.")
    (run,) = json.loads(chargehand(here, "runs", "--json").stdout)
    assert f"run: {run['run']} in .chargehand/runs.db" in done.stderr


def test_who_answers_a_part_and_says_so_makes_it_partial(here: Path) -> None:
    done = chargehand(here, "message", "What is 12% of 250? How many pears are in the loft?", "--match-all", "figures")
    assert done.returncode == 3, done.stderr
    assert "ann [m1]: " in done.stdout
    assert "Not answered here: How many pears are in the loft" in done.stdout


def test_the_exit_code_says_whether_all_some_or_none_answered(here: Path) -> None:
    some = chargehand(here, "message", "What is 12% of 250?", "--match-all", "worker")
    assert some.returncode == 3, some.stderr
    assert "ann [m1]: " in some.stdout
    assert "m2 failed" in some.stderr
    assert chargehand(here, "message", "What is 12% of 250?", "--worker", "bob").returncode == 1


def test_a_worker_who_takes_too_long_is_one_entry_and_json_is_nothing_else(here: Path) -> None:
    words = ["How many anvils are in stock? What is 3 * 4?", "--worker", "cid", "--worker", "ann", "--timeout", "1s"]
    done = chargehand(here, "message", *words, "--json")
    assert done.returncode == 3, done.stderr
    told = json.loads(done.stdout)
    tasks = {one["worker"]: one["status"] for one in told["plan"]["tasks"]}
    assert tasks == {"ann": "done", "cid": "failed"}
    assert [gap["reason"] for gap in told["gaps"]][:1] == ["timeout"]
    assert told["team"] == "desk"
    assert told["calls"] >= 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["hello", "--match-all", "worker", "--match-some", "none"], "no worker of team desk carries these tags"),
        (["hello", "--match-all", "figure"], "did you mean 'figures'?; the tags there are: figures, letters, slow"),
        (["hello", "--worker", "an"], "there is no worker 'an'; did you mean 'ann'"),
        (["hello", "--worker", "zygmunt"], "there is no worker 'zygmunt'; there are "),
        (["hello", "--worker", "ann", "--match-all", "worker"], "name workers or tags, not both"),
        (["hello", "--timeout", "soon"], "'soon' is no duration"),
        (
            ["  "],
            'the message is empty; say what is to be done, for example: chargehand message "Which ... and why?"',
        ),
        ([], "no message given"),
    ],
)
def test_what_cannot_be_sent_is_refused_and_nothing_is_written(here: Path, words: list[str], said: str) -> None:
    refused(chargehand(here, "message", *words), said)
    assert not (here / ".chargehand" / "runs.db").exists()


def test_the_first_ctrl_c_stops_it_and_says_who_has_not_answered_and_how_to_go_on(here: Path) -> None:
    words = ["How many anvils are in stock? What is 3 * 4?", "--worker", "cid", "--worker", "ann"]
    seen = Terminal(here, "message", *words)
    seen.until("✔ done")
    seen.interrupt()
    assert seen.end() == 130
    go_on = re.search(r"  go on: +python -m chargehand (resume \S+)\n", seen.shown)
    assert go_on is not None, seen.shown
    run = go_on[1].split()[1]
    shown = chargehand(here, "runs", "show", run).stdout
    assert "its process was stopped; the run can go on" in shown
    assert chargehand(here, "runs", "cancel", run).returncode == 0


def test_sigterm_leaves_it_where_it_stands_and_says_how_to_go_on(here: Path) -> None:
    sent = Underway(here, "message", "How many anvils are in stock?", "--worker", "cid")
    sent.until("started")
    sent.process.terminate()
    assert sent.end() == 143
    assert "  go on:       python -m chargehand resume desk-" in sent.heard.read_text()
    assert "interrupted" in chargehand(here, "runs").stdout


def test_the_text_may_come_in_a_pipe_and_closed_streams_break_nothing(here: Path) -> None:
    assert chargehand(here, "message", "-", "--worker", "ann", given="What is 3 * 4?\n").returncode == 0
    closed = subprocess.run(
        ["/bin/sh", "-c", '"$@" <&- >&- 2>&-', "sh", *COMMAND, "message", "What is 3 * 4?", "--worker", "ann"],
        cwd=here,
        env=environment(),
        check=False,
        timeout=30,
    )
    assert closed.returncode == 0


def test_a_worker_who_needs_leave_waits_and_resume_goes_on(here: Path) -> None:
    write(
        here,
        TEAM.replace("tools: [calculator]", "tools: [sum]").replace(
            "tools: {", "tools: {sum: {calculator: {}, approve: always}, "
        ),
    )
    asked = chargehand(here, "message", "What is 3 * 4?", "--worker", "ann")
    assert asked.returncode == 4, asked.stderr
    assert "waiting for approval of a call:" in asked.stderr
    run = run_of(asked)
    assert f"resume {run} --approve" in asked.stderr
    gone_on = chargehand(here, "resume", run, "--approve")
    assert gone_on.returncode == 0, gone_on.stderr
    assert "12" in gone_on.stdout


async def test_what_one_worker_writes_to_others_is_told_in_words(here: Path) -> None:
    call = ToolCall("1", MATCHING, '{"message": "How many boats?", "match_all": ["worker", "north"]}')
    lead = Worker(
        "lead",
        tools=[MATCHING],
        contacts=["*"],
        model=ScriptedModel([Reply(calls=(call,), finish="tools"), "Nineteen."]),
    )
    ann = Worker("ann", tags=["worker", "north"], model=ScriptedModel(["Nineteen boats."]))
    plan = Plan((Task(TaskId("t1"), "Ask how many boats there are.", "lead"),), "forward")
    result = await Team([lead, ann], supervisor=Supervisor(plan=plan), journal=here / "runs.db").run(
        "How many boats?", run="boats"
    )
    assert result.answer == "Nineteen."
    shown = chargehand(here, "runs", "show", "boats", "--journal", "runs.db").stdout
    assert f"calls {MATCHING} " in shown
    assert ": message=How many boats?, match_all=" in shown
