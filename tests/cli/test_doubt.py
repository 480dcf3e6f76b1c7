"""A person at a real terminal is asked what became of an effect: which call it was, and what each answer means."""

import json
from pathlib import Path

import pytest

from chargehand.engine.events import InputAnswered
from chargehand.journal.store import read_run
from tests.cli.commands import JOURNAL, chargehand, printed_command
from tests.cli.terminal import Terminal

TEAM = """
version: 1
name: office
policy: {uncertain: ask}
workers:
  buyer: {description: Says what seedlings cost., tools: [seedling_price]}
tools:
  seedling_price: {python: "tools:seedling_price", effect: effect}
"""
TOOLS = '''
import os
import json
from pathlib import Path

DIED = Path(__file__).with_name("died")


def seedling_price(plant: str, seedlings: int) -> str:
    """What so many seedlings of one plant cost, in euros: tomato or basil."""
    if not DIED.exists():
        DIED.touch()
        os.kill(os.getpid(), 9)
    return f"{seedlings} {plant} seedlings cost 48.00 euros."
'''


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder with a run whose process died in the midst of an effect."""
    (tmp_path / "team.yaml").write_text(TEAM)
    (tmp_path / "tools.py").write_text(TOOLS)
    assert chargehand(tmp_path, "run", "What do 40 tomato seedlings cost?", "--run", "one").returncode == -9
    return tmp_path


def answers(folder: Path) -> list[tuple[str, object]]:
    events = [entry.event for entry in read_run(folder / JOURNAL, "one")]
    return [(one.verdict, one.result) for one in events if isinstance(one, InputAnswered)]


def test_the_call_is_named_with_its_key_and_what_it_returned_is_its_result(here: Path) -> None:
    terminal = Terminal(here, "resume", "one")
    terminal.until("What became of it?")
    asked = terminal.shown
    heading, _, rest = asked.partition("\nseedling_price, wanted by buyer\n  its idempotency key: ")
    assert heading.endswith("t1:")
    assert rest.partition("\n")[2].startswith('  {\n    "plant": "tomato",\n    "seedlings": 40\n  }\n')
    for words in ("d (done): it happened.", "a (again): it did not happen.", "f (fail): leave it."):
        assert words in asked
    terminal.type("did not\n")  # the first letter would say the contrary
    terminal.until("say one of: d, a or f")
    terminal.type("d\n")
    terminal.until("What did it return?")
    terminal.type("They cost 47.00 euros.\n")
    assert terminal.end() == 0
    assert answers(here) == [("done", "They cost 47.00 euros.")]
    assert "47.00 euros" in terminal.shown.rpartition("What did it return?")[2].partition("\n")[2]


def test_it_is_decided_later_and_then_done_again(here: Path) -> None:
    later = Terminal(here, "resume", "one")
    later.until("What became of it?")
    later.type("\n")
    assert later.end() == 4
    again = Terminal(here, "resume", "one")
    again.until("What became of it?")
    assert "seedling_price, wanted by buyer\n" in again.shown
    again.type("again\n")
    assert again.end() == 0
    assert answers(here) == [("again", None)]
    assert "48.00 euros" in again.shown


def test_the_call_is_named_with_its_arguments_where_nobody_can_be_asked(here: Path) -> None:
    asked = chargehand(here, "resume", "one", "--no-input", "--json")
    assert asked.returncode == 4
    assert "waiting for confirmation of its effect:\n" in asked.stderr
    lines = [line.strip() for line in asked.stderr.splitlines()]
    at = lines.index("seedling_price, wanted by buyer")
    assert lines[at + 1].startswith("its idempotency key: ")
    assert lines[at + 2 : at + 6] == ["{", '"plant": "tomato",', '"seedlings": 40', "}"]
    question = json.loads(asked.stdout)["question"]["question"]
    assert question["tool"] == "seedling_price"
    assert question["arguments"] == {"plant": "tomato", "seedlings": 40}
    again = chargehand(here, "resume", "one", "--no-input", "-q")
    assert "  seedling_price, wanted by buyer\n" in again.stderr, "also where it was asked before"


@pytest.mark.parametrize(
    ("said", "ending", "told"),
    [
        (["done", "--result", '"They cost 47.00 euros."'], 0, "47.00 euros"),
        (["done: They cost 47.00 euros."], 0, "47.00 euros"),
        (["again"], 0, "48.00 euros"),
        (["fail"], 1, "it is not known whether"),
    ],
)
def test_the_printed_command_answers_with_each_word(here: Path, said: list[str], ending: int, told: str) -> None:
    asked = chargehand(here, "resume", "one", "--no-input", "-q")
    words = printed_command(asked.stderr)
    at = words.index("WHAT")
    done = chargehand(here, *words[:at], *said, *words[at + 1 :])
    assert done.returncode == ending, done.stderr
    assert told in done.stdout + done.stderr


def test_runs_show_prints_the_call_and_the_command_that_answers(here: Path) -> None:
    chargehand(here, "resume", "one", "--no-input", "-q")
    shown = chargehand(here, "runs", "show", "one").stdout
    assert "its idempotency key: " in shown
    words = [word.replace("WHAT", "again") for word in printed_command(shown)]
    done = chargehand(here, *words, "-q")
    assert (done.returncode, "48.00 euros" in done.stdout) == (0, True)


def test_done_without_a_result_and_a_yes_are_refused(here: Path) -> None:
    chargehand(here, "resume", "one", "--no-input", "-q")
    for said in (["--effect", "done"], ["--effect", "done:"]):
        refused = chargehand(here, "resume", "one", *said)
        assert refused.returncode == 2
        assert "what" in refused.stderr
        assert "null" in refused.stderr
    wrong = chargehand(here, "resume", "one", "--approve")
    assert wrong.returncode == 2
    assert "say one of done, again, fail" in wrong.stderr
    assert answers(here) == []


def test_where_it_is_not_asked_about_the_advice_is_to_look_first(tmp_path: Path) -> None:
    (tmp_path / "team.yaml").write_text(TEAM.replace("uncertain: ask", "uncertain: fail"))
    (tmp_path / "tools.py").write_text(TOOLS)
    assert chargehand(tmp_path, "run", "What do 40 tomato seedlings cost?", "--run", "one").returncode == -9
    resumed = chargehand(tmp_path, "resume", "one")
    assert resumed.returncode == 1
    told = resumed.stdout + resumed.stderr
    assert "may have happened: look whether it did before anything is run again" in told
    assert "with another model" not in told


TWO = """
from pathlib import Path

from chargehand import Plan, Reply, ScriptedModel, Supervisor, Task, Team, ToolCall, Worker, tool

HERE = Path(__file__).parent


@tool(effect="effect")
def pay(bill: str) -> str:
    \"\"\"Pay a bill.\"\"\"
    import os, signal
    (HERE / f"begun-{bill}").touch()
    if (HERE / "die").exists() and (HERE / "begun-A").exists() and (HERE / "begun-B").exists():
        os.kill(os.getpid(), signal.SIGKILL)
    while (HERE / "die").exists():
        pass
    with (HERE / "paid").open("a") as file:
        file.write(bill)
    return f"receipt {bill}"


def think(request):
    if request.messages[-1].role == "tool":
        return "I have " + ", ".join(message.text for message in request.messages if message.role == "tool")
    calls = tuple(ToolCall(bill, "pay", '{"bill": "%s"}' % bill) for bill in "AB")
    return Reply(calls=calls, finish="tools")


plan = Plan((Task("t1", "Pay both bills.", "clerk"),), "forward")
worker = Worker("clerk", "pays", tools=[pay], model=ScriptedModel(think, repeat=True))
team = Team([worker], supervisor=Supervisor(plan=plan))
"""


def two_in_doubt(folder: Path) -> list[str]:
    """Return the words of the printed command of a run that died in the midst of two payments of one reply."""
    (folder / "office.py").write_text(TWO)
    (folder / "die").touch()
    command = ("run", "Pay both bills.", "--run", "one", "--team", "office:team", "--no-input", "-q")
    assert chargehand(folder, *command, PYTHONPATH=str(folder)).returncode == -9
    (folder / "die").unlink()
    asked = chargehand(folder, "resume", "one", "--team", "office:team", "--no-input", PYTHONPATH=str(folder))
    assert asked.returncode == 4, asked.stderr
    assert "waiting for confirmation of 2 effects:\n" in asked.stderr
    assert [line.strip() for line in asked.stderr.splitlines() if line.strip().startswith("call ")] == [
        "call 1: pay, wanted by clerk",
        "call 2: pay, wanted by clerk",
    ]
    assert '"bill": "A"' in asked.stderr
    assert '"bill": "B"' in asked.stderr
    return printed_command(asked.stderr)


def test_each_of_two_effects_in_doubt_is_answered_by_the_printed_command(tmp_path: Path) -> None:
    words = two_in_doubt(tmp_path)
    refused = chargehand(tmp_path, "resume", "one", "--team", "office:team", "--effect", "again")
    assert refused.returncode == 2
    assert "asks about 2 calls" in refused.stderr
    said = [word.replace("1=WHAT", "1=done: receipt A").replace("2=WHAT", "2=again") for word in words]
    done = chargehand(tmp_path, *said, "-q", PYTHONPATH=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "receipt A" in done.stdout
    assert "receipt B" in done.stdout
    assert (tmp_path / "paid").read_text() == "B"


def test_each_of_two_effects_in_doubt_is_asked_about_at_the_terminal(tmp_path: Path) -> None:
    two_in_doubt(tmp_path)
    terminal = Terminal(tmp_path, "resume", "one", "--team", "office:team", PYTHONPATH=str(tmp_path))
    terminal.until("What became of call 1 (pay)?")
    terminal.type("a\n")
    terminal.until("What became of call 2 (pay)?")
    terminal.type("d\n")
    terminal.until("What did it return?")
    terminal.type("receipt B\n")
    assert terminal.end() == 0
    assert (tmp_path / "paid").read_text() == "A"


BOTH_ASK = """
import os
import signal

from chargehand import Plan, Reply, ScriptedModel, Supervisor, Task, Team, ToolCall, Worker, tool


@tool(effect="effect", approve=True)
def pay(bill: str) -> str:
    \"\"\"Pay a bill.\"\"\"
    os.kill(os.getpid(), signal.SIGKILL)


def think(request):
    bill = "A" if "bill A" in request.messages[1].text else "B"
    return Reply(calls=(ToolCall("c", "pay", '{"bill": "%s"}' % bill),), finish="tools")


plan = Plan((Task("t1", "Pay bill A.", "clerk"), Task("t2", "Pay bill B.", "clerk")), "forward")
worker = Worker("clerk", "pays", tools=[pay], model=ScriptedModel(think, repeat=True))
team = Team([worker], supervisor=Supervisor(plan=plan))
"""
NEXT = 'also in doubt, asked about next: pay({"bill":"A"}) of task t1, its idempotency key: '


@pytest.fixture
def both(tmp_path: Path) -> Path:
    """A folder with a run that died in a payment while another payment waits for approval."""
    (tmp_path / "office.py").write_text(BOTH_ASK)
    team = ("--team", "office:team", "--no-input", "-q")
    first = chargehand(tmp_path, "run", "Pay both bills.", "--run", "one", *team, PYTHONPATH=str(tmp_path))
    assert first.returncode == 4, first.stderr
    died = chargehand(tmp_path, "resume", "one", "--approve", "1", *team, PYTHONPATH=str(tmp_path))
    assert died.returncode == -9, died.stderr
    return tmp_path


def test_a_call_in_doubt_behind_another_question_is_shown_with_it(both: Path) -> None:
    before = chargehand(both, "runs", "show", "one").stdout
    assert NEXT in before
    resume = ("resume", "one", "--team", "office:team", "--no-input")
    asked = chargehand(both, *resume, PYTHONPATH=str(both))
    assert asked.returncode == 4
    assert NEXT in asked.stdout + asked.stderr
    assert '"bill": "B"' in asked.stdout + asked.stderr
    assert NEXT in chargehand(both, *resume, "-q", PYTHONPATH=str(both)).stderr
    assert NEXT in chargehand(both, "runs", "show", "one").stdout
    document = json.loads(chargehand(both, "runs", "show", "one", "--json").stdout)
    assert [(call["task"], call["arguments"]) for call in document["in_doubt"]] == [("t1", {"bill": "A"})]


def test_a_call_in_doubt_behind_another_question_is_shown_at_the_terminal(both: Path) -> None:
    terminal = Terminal(both, "resume", "one", "--team", "office:team", PYTHONPATH=str(both))
    terminal.until("also in doubt, asked about next: pay(")
    terminal.until("May this call be made?")
    terminal.type("\n")
    assert terminal.end() == 4


@pytest.mark.parametrize("resumed", [False, True])
def test_a_cancel_says_which_call_is_in_doubt(both: Path, *, resumed: bool) -> None:
    if resumed:
        chargehand(both, "resume", "one", "--team", "office:team", "--no-input", PYTHONPATH=str(both))
    cancelled = chargehand(both, "runs", "cancel", "one")
    assert cancelled.returncode == 0, cancelled.stderr
    assert cancelled.stdout == 'cancelled: one; not known whether pay({"bill":"A"}) happened\n'
