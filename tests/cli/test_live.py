"""The live view: on a real terminal, at any moment of any run, and never in the way of a question or of Ctrl-C."""

import io
import re
from pathlib import Path

import msgspec
import pytest

from chargehand.cli.console import Console
from chargehand.cli.live_view import MAX_ROWS, LiveView, view_footer, view_rows, view_title
from chargehand.cli.transcript import Transcript
from chargehand.engine.events import AttemptStarted, Entry, InputAnswered, InputRequested, RetryScheduled, RunReleased
from chargehand.engine.state import Work
from chargehand.journal.store import read_run
from tests.cli.commands import JOURNAL, chargehand, quick_example, script, task
from tests.cli.terminal import Terminal

HISTORIES = sorted((Path(__file__).parents[1] / "histories").glob("*.jsonl"))


class Screen(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("history", HISTORIES, ids=lambda path: path.stem)
def test_every_moment_of_a_run_can_be_drawn(history: Path) -> None:
    entries = [msgspec.json.decode(line, type=Entry) for line in history.read_bytes().splitlines()]
    console = Console(io.StringIO(), quiet=True)
    screen = Screen()
    now = 0.0
    view = LiveView(Console(screen), "a run", lambda: now)
    transcript = Transcript(console, console, lines=False, live=view)
    for entry in entries:
        now = entry.at
        transcript.show("a run", [entry])
        view.draw()
        found = view_rows(transcript.tracer, transcript.state.at)
        assert all(one.task.id in {row.name for row in found} for one in transcript.state.tasks.values())
        assert view_title("a run", transcript.state).startswith("run a run · ")
        assert "done" in view_footer(transcript.tracer, now)
    view.stop(keep=True)
    assert f"run a run · {transcript.state.ended.ending if transcript.state.ended else ''}" in screen.getvalue()


def test_of_many_tasks_those_under_way_are_shown_and_the_rest_is_counted(tmp_path: Path) -> None:
    tasks = [task(f"t{n}") for n in range(40)]
    file = script(tmp_path, *tasks, moves={"t39": [{"fail": "logic", "permanent": True}]})
    assert chargehand(tmp_path, "play", file, "--run", "many").returncode == 3
    entries = read_run(tmp_path / JOURNAL, "many")
    console = Console(io.StringIO(), quiet=True)
    transcript = Transcript(console, console)
    transcript.show("many", entries[:60])
    shown = view_rows(transcript.tracer, transcript.state.at)
    assert len(shown) <= MAX_ROWS + 2
    transcript.show("many", entries[60:])
    assert [row.task for row in view_rows(transcript.tracer, transcript.state.at)] == ["(answer)"]
    assert "39/40 done" in view_footer(transcript.tracer, transcript.state.at)


def told_until(entries: list[Entry], event: type[object]) -> Transcript:
    """A run as it stands after the first event of this kind."""
    console = Console(io.StringIO(), quiet=True)
    transcript = Transcript(console, console)
    at = next(number for number, entry in enumerate(entries, 1) if isinstance(entry.event, event))
    transcript.show("a run", entries[:at])
    return transcript


def test_a_task_says_when_it_is_tried_again(tmp_path: Path) -> None:
    moves = {"a": [{"fail": "resource", "message": "429 slow down", "retry_after": 0.2}, {"result": 1}]}
    roster = {"agents": [{"name": "ann", "concurrency": 1, "estimate": {"calls": 1}}]}
    file = script(tmp_path, task("a"), task("b"), moves=moves, roster=roster, seed=1)
    assert chargehand(tmp_path, "play", file, "--run", "held").returncode == 0
    entries = read_run(tmp_path / JOURNAL, "held")
    retry = told_until(entries, RetryScheduled)
    (note,) = [row.note for row in view_rows(retry.tracer, retry.state.at) if row.name == "a"]
    assert re.fullmatch(r"↻ again in \d+ s: resource: 429 slow down", note)


def test_what_a_model_is_writing_is_shown_and_steers_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    entries = [msgspec.json.decode(line, type=Entry) for line in HISTORIES[0].read_bytes().splitlines()]
    console = Console(io.StringIO(), quiet=True)
    screen = Screen()
    view = LiveView(Console(screen), "a run", lambda: entries[0].at)
    transcript = Transcript(console, console, lines=False, live=view)
    at = next(n for n, entry in enumerate(entries) if isinstance(entry.event, AttemptStarted))
    started = entries[at].event
    assert isinstance(started, AttemptStarted)
    transcript.show("a run", entries[: at + 1])
    view.add_text(Work("attempt", started.task, 1), "so \x1b[2J")
    view.add_text(Work("attempt", started.task, 1), "far")
    view.draw()
    view.stop(keep=True)
    assert "\x1b[2J" not in screen.getvalue()
    assert "so \ufffd[2Jfar" in screen.getvalue()


def test_what_a_model_thinks_gives_way_to_what_it_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    entries = [msgspec.json.decode(line, type=Entry) for line in HISTORIES[0].read_bytes().splitlines()]
    console = Console(io.StringIO(), quiet=True)
    screen = Screen()
    view = LiveView(Console(screen), "a run", lambda: entries[0].at)
    transcript = Transcript(console, console, lines=False, live=view)
    at = next(n for n, entry in enumerate(entries) if isinstance(entry.event, AttemptStarted))
    started = entries[at].event
    assert isinstance(started, AttemptStarted)
    transcript.show("a run", entries[: at + 1])
    work = Work("attempt", started.task, 1)
    view.add_text(work, "They want ", "thought")
    view.add_text(work, "boxes.", "thought")
    view.draw()
    assert f"{started.task} thinks: They want boxes." in screen.getvalue()
    view.add_text(work, "Seventeen.")
    view.draw()
    view.stop(keep=True)
    assert f"{started.task}: Seventeen." in screen.getvalue()


def test_a_run_moves_on_a_terminal_and_its_last_picture_stays(tmp_path: Path) -> None:
    terminal = Terminal(
        tmp_path, "play", quick_example(tmp_path, "cascade.json", 0.15), "--run", "cascade", columns=150
    )
    assert terminal.end() == 0
    shown = terminal.shown
    assert shown.index("plan: 7 tasks") < shown.index("run cascade · running") < shown.index("run cascade · complete")
    assert "● running" in shown
    assert "↻ retrying" in shown
    assert "waits for quotes, freight, rates" in shown
    last = shown[shown.rindex("╭") : shown.rindex("╯")]
    assert re.search(r"✔ done +lateness .* clerk +2 .*↻ resource", last), last
    assert re.search(r"\d+\.\d s · 7/7 done · \$0\.03697, [\d,]+ tokens, \d+ calls · budget \$0\.25", last)
    assert b"\x1b[32m" in terminal.drawn
    assert "started" not in shown  # one line an event is for pages, not for screens
    assert "Order the 4,000 sets from Sun and Hale [memo]." in shown[shown.rindex("╯") :]


def test_a_plain_terminal_gets_lines_and_one_without_colour_gets_none(tmp_path: Path) -> None:
    file = script(tmp_path, task("a"))
    dumb = Terminal(tmp_path, "play", file, TERM="dumb")
    assert dumb.end() == 0
    assert "a       ann         started" in dumb.shown
    assert "╭" not in dumb.shown
    plain = Terminal(tmp_path, "play", file, "--no-color", "-v")
    assert plain.end() == 0
    assert re.search(rb"\x1b\[[0-9;]*m", plain.drawn) is None
    assert "a       ann         started" in plain.shown  # -v: both
    assert "✔ done" in plain.shown


def approval(folder: Path) -> Path:
    return script(folder, task("a"), plans=[{"tasks": [task("c")]}], policy={"approve": True})


def test_a_person_at_the_terminal_approves(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, "play", approval(tmp_path), "--run", "asked")
    terminal.until("May this plan run?")
    terminal.type("what?\n")
    terminal.until("say one of: y yes, n no")
    terminal.type("y\n")
    assert terminal.end() == 0
    events = [entry.event for entry in read_run(tmp_path / JOURNAL, "asked")]
    assert [one.verdict for one in events if isinstance(one, InputAnswered)] == ["approve"]


def test_a_person_at_the_terminal_decides_later_and_then_rejects(tmp_path: Path) -> None:
    file = approval(tmp_path)
    later = Terminal(tmp_path, "play", file, "--run", "asked")
    later.until("May this plan run?")
    later.type("\n")
    assert later.end() == 4
    assert "chargehand resume asked --script" in later.shown
    now = Terminal(tmp_path, "resume", "asked", "--script", file)
    now.until("May this plan run?")
    now.type("no\n")
    now.until("Why not?")
    now.type("leave a out\n")
    now.until("May this plan run?  [y yes, n no, Enter: decide later] ", times=2)
    assert "c  ann" in now.shown, "the new plan"
    now.type("y\n")
    assert now.end() == 0
    events = [entry.event for entry in read_run(tmp_path / JOURNAL, "asked")]
    given = [(one.verdict, one.feedback) for one in events if isinstance(one, InputAnswered)]
    assert given == [("reject", "leave a out"), ("approve", "")]


def test_nobody_is_asked_who_does_not_want_to_be(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, "play", approval(tmp_path), "--no-input")
    assert terminal.end() == 4
    assert "May this plan run?" not in terminal.shown


@pytest.mark.parametrize("asked", [True, False])
def test_ctrl_c_leaves_a_run_to_be_resumed_also_in_the_middle_of_a_question(tmp_path: Path, asked: bool) -> None:
    slow = script(tmp_path, task("a"), policy={"approve": asked}, otherwise={"seconds": 30})
    terminal = Terminal(tmp_path, "play", slow, "--run", "long")
    terminal.until("May this plan run?" if asked else "● running")
    terminal.interrupt()
    assert terminal.end() == 130
    assert "stopping; Ctrl-C once more" in terminal.shown
    assert "chargehand resume long --script" in terminal.shown.splitlines()[-1]
    last = read_run(tmp_path / JOURNAL, "long")[-1].event
    assert isinstance(last, InputRequested if asked else RunReleased)
