"""`chargehand run` with a team and no key: real processes, the demo model, tools that really compute."""

import json
import shutil
import time
from pathlib import Path

import msgspec
import pytest

from chargehand.cli.main import main
from chargehand.config.source import TEMPLATES
from chargehand.engine.events import AttemptStarted, Entry, InputAnswered, ResultReused, RunRequested, StepStarted
from chargehand.journal.store import read_run
from tests.cli.commands import JOURNAL, Done, Underway, chargehand, fed

ASKED = "What do 40 tomato seedlings cost?"
BOTH = "What do 40 tomato seedlings cost, and what do our notes say about planting out tomatoes?"
NOTICE = "notice: No language model is used."


def garden(folder: Path, *more: str) -> Path:
    """A small team with a tool of its own, in a folder of its own."""
    shutil.copytree(TEMPLATES / "minimal", folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    for lines in more:
        with (folder / "team.yaml").open("a") as file:
            file.write(lines)
    return folder


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Done]:
    folder = garden(tmp_path_factory.mktemp("garden"))
    return folder, chargehand(folder, "run", BOTH, "--run", "one", "--max-parallel", "1")


def test_a_request_is_planned_carried_out_and_answered(asked: tuple[Path, Done]) -> None:
    _, done = asked
    assert done.returncode == 0, done.stderr
    assert "48.00 euros" in done.stdout
    assert "planting" in done.stdout
    told = done.stderr
    assert told.startswith(NOTICE)
    assert told.index("plan: 2 tasks") < told.index("calls seedling_price") < told.index("ending: complete")
    for words in (
        "gaps: none",
        "of work in it",
        "run: one in .chargehand/runs.db",
        "runs show one",
    ):
        assert words in told, words
    assert "48.00 euros" not in told.partition("answer:")[2]  # data is for the other stream


def test_one_document_says_it_all_to_programs(tmp_path: Path) -> None:
    done = chargehand(garden(tmp_path), "run", ASKED, "--json", "--quiet", "--run", "one")
    assert done.returncode == 0
    assert [line[:8] for line in done.stderr.splitlines()] == ["notice: "]
    told = json.loads(done.stdout)
    assert (told["run"], told["team"], told["ending"], told["reason"]) == ("one", "garden", "complete", "done")
    assert told["notice"].startswith("No language model is used")
    assert "48.00 euros" in told["answer"]
    assert told["plan"]["goal"] == ASKED
    (task,) = told["plan"]["tasks"]
    assert (task["worker"], task["status"], task["attempts"]) == ("buyer", "done", 1)
    assert "48.00 euros" in json.dumps(told["results"][task["id"]])
    assert told["gaps"] == []
    assert told["calls"] > 0
    assert told["usd"] == 0
    assert told["critical_path"] == [task["id"]]
    assert 0 < told["seconds"] < 20


def test_entries_are_all_that_is_written_where_they_are_asked_for(tmp_path: Path) -> None:
    done = chargehand(garden(tmp_path), "run", ASKED, "--jsonl", "--run", "one")
    told = [msgspec.json.decode(line, type=Entry) for line in done.stdout.splitlines()]
    assert told == read_run(tmp_path / JOURNAL, "one")


def test_a_tool_that_prints_does_not_get_into_the_data(tmp_path: Path) -> None:
    tools = garden(tmp_path) / "tools.py"
    noise = '    import os; print("noise"); os.write(1, b"more noise\\n")\n    each ='
    tools.write_text(tools.read_text().replace("    each =", noise))
    done = chargehand(tmp_path, "run", ASKED, "--json")
    assert "48.00 euros" in json.loads(done.stdout)["answer"]
    assert "more noise" in done.stderr


@pytest.mark.parametrize("words", [["-"], []])
def test_a_request_comes_from_standard_input(tmp_path: Path, words: list[str]) -> None:
    done = chargehand(garden(tmp_path), "run", *words, "-q", given=f"\n{ASKED}\n")
    assert done.returncode == 0
    assert "48.00 euros" in done.stdout


def test_words_without_quotes_are_one_request_and_examples_have_numbers(tmp_path: Path) -> None:
    garden(tmp_path)
    assert "48.00 euros" in chargehand(tmp_path, "run", *ASKED.split(), "-q").stdout
    assert "tomatoes" in chargehand(tmp_path, "run", "--example", "-q").stdout.lower()
    said = chargehand(tmp_path, "run")
    assert said.returncode == 2
    assert "no request given" in said.stderr
    assert "--example N with an example of team garden:\n  1: What do our notes say" in said.stderr


def test_the_bounds_of_the_command_line_are_those_of_the_run(tmp_path: Path) -> None:
    words = ["--timeout", "1m30s", "--budget-usd", "0", "--approve", "auto"]  # it is free
    done = chargehand(garden(tmp_path), "run", ASKED, "-q", "--run", "one", *words)
    assert done.returncode == 0
    first = read_run(tmp_path / JOURNAL, "one")[0]
    assert isinstance(first.event, RunRequested)
    assert first.event.budget.micros == 0
    assert first.event.roster.supervision.calls == 1  # from now on every call is reckoned with before it is made
    assert first.event.deadline - first.at == pytest.approx(90, abs=2)
    assert not first.event.policy.approve


@pytest.mark.parametrize("time", ["1ms", "0.0000001"])
def test_a_time_that_is_too_short_to_begin_with_ends_the_run_like_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], time: str
) -> None:
    monkeypatch.chdir(garden(tmp_path))
    assert main(["run", ASKED, "--timeout", time, "--run", "one", "--json", "-q"]) == 5
    told = json.loads(capfd.readouterr().out)
    assert (told["run"], told["ending"], told["reason"]) == ("one", "failed", "deadline")
    assert len(read_run(tmp_path / JOURNAL, "one")) > 1


def test_a_plan_is_approved_later_where_nobody_can_be_asked(tmp_path: Path) -> None:
    done = chargehand(garden(tmp_path), "run", ASKED, "--approve", "ask", "--run", "one", "--json")
    assert done.returncode == 4
    told = json.loads(done.stdout)
    assert (told["ending"], told["question"]["what"], told["answer"]) == ("needs_input", "plan", None)
    assert told["resume"] == "python -m chargehand resume one"
    assert "chargehand resume one --approve" in done.stderr
    done = chargehand(tmp_path, "resume", "one", "--approve", "-q")
    assert done.returncode == 0, done.stderr
    assert "48.00 euros" in done.stdout


def test_a_call_that_needs_approval_waits_for_a_person(tmp_path: Path) -> None:
    file = garden(tmp_path) / "team.yaml"
    price = 'seedling_price: {python: "tools:seedling_price"'
    file.write_text(file.read_text().replace(price, f"{price}, approve: always"))
    done = chargehand(tmp_path, "run", ASKED, "--run", "one")
    assert done.returncode == 4, done.stderr
    assert "waiting for approval of a call:\n" in done.stderr
    assert "ending: not yet: waiting for approval of a call" in done.stderr
    done = chargehand(tmp_path, "resume", "one", "--approve", "-q")
    assert done.returncode == 0, done.stderr
    assert "48.00 euros" in done.stdout
    done = chargehand(tmp_path, "run", ASKED, "--run", "two", "-q")
    done = chargehand(tmp_path, "resume", "two", "--reject", "ask the notes instead", "-q")
    events = [entry.event for entry in read_run(tmp_path / JOURNAL, "two")]
    given = [(one.verdict, one.feedback) for one in events if isinstance(one, InputAnswered)]
    assert given == [("reject", "ask the notes instead")]
    assert done.returncode in (0, 1, 3, 4)


def test_a_plan_from_a_file_is_carried_out_as_it_is(tmp_path: Path) -> None:
    garden(tmp_path)
    made = chargehand(tmp_path, "plan", BOTH, "-o", "plan.json")
    assert made.returncode == 0
    assert made.stderr.startswith(NOTICE)
    assert made.stdout.startswith("plan: 2 tasks")
    assert not (tmp_path / ".chargehand").exists()
    plan = json.loads((tmp_path / "plan.json").read_text())
    (tmp_path / "told.json").write_text(chargehand(tmp_path, "plan", BOTH, "--json").stdout)
    assert chargehand(tmp_path, "run", BOTH, "--plan", "told.json", "-q").returncode == 0
    plan["tasks"] = plan["tasks"][:1]
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    done = chargehand(tmp_path, "run", BOTH, "--plan", "plan.json", "--json", "-q")
    assert done.returncode == 0
    assert len(json.loads(done.stdout)["plan"]["tasks"]) == 1
    plan["tasks"][0]["worker"] = "nobody"
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    bad = chargehand(tmp_path, "run", BOTH, "--plan", "plan.json")
    assert bad.returncode == 2
    assert "plan.json: tasks[0]" in bad.stderr
    assert "[unknown_worker]" in bad.stderr


def test_what_was_done_before_is_taken_over(asked: tuple[Path, Done]) -> None:
    folder, _ = asked
    done = chargehand(folder, "run", "--reuse", "one", "--run", "again", "-q")
    assert done.returncode == 0
    events = [entry.event for entry in read_run(folder / JOURNAL, "again")]
    assert sum(isinstance(one, ResultReused) for one in events) == 2
    assert not any(isinstance(one, AttemptStarted) for one in events)
    assert chargehand(folder, "run", "--reuse", "none", "-q").returncode == 2


def test_charts_and_tables_are_saved(tmp_path: Path) -> None:
    wish = "Compare the revenue per country in May 2026 and draw a chart of it."
    done = chargehand(tmp_path, "run", wish, "--run", "one", "--save", "kept")
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("saved: ")]
    assert line.endswith(" in kept")
    assert {path.suffix for path in (tmp_path / "kept").iterdir()} == {".svg", ".csv"}
    again = json.loads(chargehand(tmp_path, "run", wish, "--run", "two", "--json", "-q").stdout)
    assert {Path(path).parent for path in again["saved"]} == {Path(".chargehand/artifacts/two")}


def test_what_nobody_can_do_is_said(tmp_path: Path) -> None:
    done = chargehand(garden(tmp_path), "run", "Book a flight to Mars", "-q")
    assert done.returncode == 1
    assert done.stdout == ""
    assert "Mars" in done.stderr
    assert "ending: failed" in done.stderr
    plan = chargehand(tmp_path, "plan", "Book a flight to Mars")
    assert plan.returncode == 1
    assert "no worker can: " in plan.stdout


def test_ctrl_c_stops_at_once_and_what_was_paid_for_is_not_done_again(tmp_path: Path) -> None:
    tools = garden(tmp_path) / "tools.py"
    tools.write_text(tools.read_text().replace("    each =", "    import time; time.sleep(60)\n    each ="))
    running = Underway(tmp_path, "run", ASKED, "--run", "long")
    running.until("calls seedling_price")
    before = time.monotonic()
    running.interrupt()
    assert running.end() == 130
    assert time.monotonic() - before < 10, "it waited for a tool that sleeps for a minute"
    assert running.heard.read_text().splitlines()[-1] == "  go on:       python -m chargehand resume long"
    calls_before = model_calls(tmp_path, "long")
    tools.write_text(tools.read_text().replace("import time; time.sleep(60)", "pass"))
    resumed = chargehand(tmp_path, "resume", "long")
    assert resumed.returncode == 0, resumed.stderr
    fresh = chargehand(tmp_path, "run", ASKED, "--run", "fresh")
    assert resumed.stdout == fresh.stdout
    assert 0 < calls_before < model_calls(tmp_path, "long") == model_calls(tmp_path, "fresh")


def model_calls(folder: Path, run: str) -> int:
    """How often workers called a model."""
    events = [entry.event for entry in read_run(folder / JOURNAL, run)]
    return sum(isinstance(event, StepStarted) and event.name == "model" for event in events)


def refused(done: Done, *words: str) -> None:
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    for one in words:
        assert one in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"\x89PNG\r\n\x1a\n\x00\xff", "standard input is not text in UTF-8 (byte 0 is 0x89)"),
        (b"what\x00ever", "standard input is not plain text: character 5 is '\\x00'"),
        (b"x" * (1024 * 1024 + 1), "standard input holds more than 1,048,576 bytes"),
    ],
    ids=["picture", "nul", "large"],
)
def test_what_is_no_request_is_refused_at_once(tmp_path: Path, body: bytes, said: str) -> None:
    (tmp_path / "input").write_bytes(body)
    refused(fed(garden(tmp_path), tmp_path / "input", "run"), said)
    assert not (tmp_path / ".chargehand").exists()


@pytest.mark.parametrize("body", [b" \n\t ", b""], ids=["blank", "empty"])
def test_no_request_is_answered_with_the_examples_of_the_team(tmp_path: Path, body: bytes) -> None:
    (tmp_path / "input").write_bytes(body)
    done = fed(garden(tmp_path), tmp_path / "input", "run")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("chargehand: no request given")
    assert not (tmp_path / ".chargehand").exists()


def test_bad_words_teams_models_and_runs_are_refused(tmp_path: Path) -> None:
    garden(tmp_path)
    refused(chargehand(tmp_path, "run", ""), "the request is empty")
    refused(chargehand(tmp_path, "run", "  "), "the request is empty")
    refused(chargehand(tmp_path, "run", "-", given=""), "the request is empty")
    refused(chargehand(tmp_path, "run", "\udcff\udcfe"), "is not text in UTF-8")
    refused(chargehand(tmp_path, "run", ASKED, "--team", "none.yaml"), "none.yaml")
    refused(chargehand(tmp_path, "run", ASKED, "--model", "openai:gpt-5-mini", OPENAI_API_KEY=""), "OPENAI_API_KEY")
    refused(chargehand(tmp_path, "run", ASKED, "--model", "opnai:x"), "did you mean")
    refused(chargehand(tmp_path, "run", ASKED, "--run", "\udcff"), "is not text in UTF-8")
    (tmp_path / "team.yaml").write_bytes(b"\xff\xfe")
    refused(chargehand(tmp_path, "run", ASKED), "team.yaml")
    (tmp_path / "team.yaml").write_text("version: 1\nworkers: [\n")
    refused(chargehand(tmp_path, "run", ASKED), "team.yaml")
    assert not (tmp_path / ".chargehand").exists()


def test_a_run_goes_on_only_with_those_it_counts_on(asked: tuple[Path, Done], tmp_path: Path) -> None:
    folder, _ = asked
    done = chargehand(folder, "run", ASKED, "--approve", "ask", "--run", "open", "-q")
    assert done.returncode == 4
    wrong = chargehand(folder, "resume", "open", "--approve", "--team", TEMPLATES / "support")
    refused(wrong, "run 'open' counts on reader, buyer", "--team")
    ended = chargehand(folder, "resume", "one")
    refused(ended, "run 'one' has ended (complete)", "chargehand run --reuse one")
