"""Answers at the command line reach the question that was shown, and every waiting call is shown and answered."""

from pathlib import Path

import pytest

from tests.cli.commands import chargehand, printed_command
from tests.cli.terminal import Terminal

TEAM = '''
from pathlib import Path

from chargehand import Plan, Reply, ScriptedModel, Supervisor, Task, Team, ToolCall, Worker, tool

HERE = Path(__file__).parent


@tool(effect="effect", approve=True)
def pay(bill: str) -> str:
    """Pay a bill."""
    with (HERE / "paid").open("a") as file:
        file.write(bill)
    return "paid"


def one_by_one(request):
    (HERE / "thinks").touch()
    while (HERE / "wait").exists():
        pass
    done = sum(message.role == "tool" for message in request.messages)
    if done == 2:
        return "Done."
    return Reply(calls=(ToolCall(str(done), "pay", '{"bill": "%s"}' % "AB"[done]),), finish="tools")


def together(request):
    if request.messages[-1].role == "tool":
        return "Done."
    calls = tuple(ToolCall(bill, "pay", '{"bill": "%s"}' % bill) for bill in "AB")
    return Reply(calls=calls, finish="tools")


def asks(request):
    if request.messages[-1].role == "tool":
        return "Noted."
    question = '{"question": "How many?", "schema": {"type": "integer"}}'
    return Reply(calls=(ToolCall("1", "ask_person", question),), finish="tools")


def office(think, tools):
    plan = Plan((Task("t1", "Do what is due now.", "clerk"),), "forward")
    worker = Worker("clerk", "works", tools=tools, model=ScriptedModel(think))
    return Team([worker], supervisor=Supervisor(plan=plan))


single = office(one_by_one, [pay])
several = office(together, [pay])
asker = office(asks, ["ask_person"])
'''


class Office:
    """A folder with teams in Python, and the bills that they paid."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "office.py").write_text(TEAM)

    def call(self, team: str, *words: str) -> tuple[int, str]:
        """Run a command without a terminal; its exit code and what it printed."""
        words = (*words, "--team", f"office:{team}", "--no-input")
        done = chargehand(self.folder, *words, PYTHONPATH=str(self.folder))
        return done.returncode, done.stdout + done.stderr

    def printed(self, *words: str) -> tuple[int, str]:
        """Run a command as it was printed."""
        done = chargehand(self.folder, *words, PYTHONPATH=str(self.folder))
        return done.returncode, done.stdout + done.stderr

    def terminal(self, team: str, *words: str) -> Terminal:
        return Terminal(self.folder, *words, "--team", f"office:{team}", PYTHONPATH=str(self.folder))

    @property
    def paid(self) -> str:
        file = self.folder / "paid"
        return file.read_text() if file.exists() else ""


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path)


def test_a_second_approve_does_not_approve_the_next_call(office: Office) -> None:
    assert office.call("single", "run", "Pay.", "--run", "r")[0] == 4
    assert office.call("single", "resume", "r", "--approve")[0] == 4
    code, told = office.call("single", "resume", "r", "--approve")
    assert code == 2
    assert 'asks question 2 now: pay({"bill": "B"})' in told
    assert "resume r --team office:single --approve 2" in told
    assert office.paid == "A"


def test_an_old_number_is_refused_and_the_printed_command_answers_the_open_question(office: Office) -> None:
    _, told = office.call("single", "run", "Pay.", "--run", "r")
    first = printed_command(told)
    assert first[-2:] == ["--approve", "1"]
    code, told = office.printed(*first, "--no-input")
    assert code == 4
    refused, reason = office.printed(*first, "--no-input")
    assert (refused, "question 1 has been answered already" in reason) == (2, True)
    assert office.printed(*printed_command(told))[0] == 0
    assert office.paid == "AB"


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (["--approve", "1", "--question", "2"], "name one question"),
        (["--question", "1"], "has no answer"),
        (["--call", "1"], "write it like 1=approve"),
        (["--call", "1=approve", "--call", "1=approve"], "given twice"),
        (["--call", "1=yes"], 'say "approve", "reject"'),
        (["--call", "1=approve: only 50"], 'a yes takes no condition; say "reject: why"'),
        (["--call", "3=approve"], "does not ask about call 3; it asks about 1"),
        (["--answer", "yes"], "does not answer this question"),
        (["--effect", "again"], "does not answer this question"),
    ],
)
def test_an_answer_that_does_not_fit_changes_nothing(office: Office, answer: list[str], problem: str) -> None:
    office.call("single", "run", "Pay.", "--run", "r")
    code, told = office.call("single", "resume", "r", *answer)
    assert (code, problem in told) == (2, True), told
    assert office.paid == ""


def test_all_calls_that_wait_are_shown_and_answered_by_the_printed_command(office: Office) -> None:
    code, told = office.call("several", "run", "Pay.", "--run", "r")
    assert code == 4
    shown = chargehand(office.folder, "runs", "show", "r").stdout
    for text in (told, shown):
        assert "waiting for approval of 2 calls:" in text
        for part in ("call 1: pay, wanted by clerk", '"bill": "A"', "call 2: pay, wanted by clerk", '"bill": "B"'):
            assert part in text
    refused, reason = office.call("several", "resume", "r", "--approve")
    assert (refused, "asks about 2 calls" in reason, "--call 1=approve --call 2=approve" in reason) == (2, True, True)
    words = [word.replace("1=approve", "1=reject: too dear") for word in printed_command(told)]
    code, told = office.printed(*words, "--no-input")
    assert (code, "too dear" in told) == (3, True)
    assert office.paid == "B"


def test_each_call_is_asked_about_at_the_terminal_and_the_rest_may_wait(office: Office) -> None:
    terminal = office.terminal("several", "run", "Pay.", "--run", "r")
    terminal.until("May call 1 (pay) be made?")
    assert '"bill": "B"' in terminal.shown, "all calls are shown before the first is decided"
    terminal.type("y\n")
    terminal.until("May call 2 (pay) be made?")
    terminal.type("\n")  # decide later: it is asked about next
    terminal.until("May this call be made?")
    terminal.type("\n")
    assert terminal.end() == 4
    assert office.paid == ""
    assert "resume r --team office:several --approve 2" in terminal.shown


def test_what_is_typed_before_the_question_is_on_the_screen_does_not_answer_it(office: Office) -> None:
    (office.folder / "wait").touch()
    terminal = office.terminal("single", "run", "Pay.", "--run", "r")
    terminal.until("t1 ")  # the live view
    terminal.type("y\n")
    (office.folder / "wait").unlink()
    terminal.until("May this call be made?")
    terminal.type("n\n")
    terminal.until("Why not?")
    terminal.type("too early\n")
    terminal.until("May this call be made?", times=2)
    terminal.type("\n")
    assert terminal.end() == 4
    assert office.paid == ""
    assert "too early" in terminal.shown


def test_nothing_is_drawn_over_a_prompt(office: Office) -> None:
    terminal = office.terminal("single", "run", "Pay.", "--run", "r", "-v")
    terminal.until("May this call be made?")
    drawn = terminal.drawn
    terminal.type("\n")
    assert terminal.end() == 4
    assert drawn.rstrip().endswith(b"Enter: decide later] \x1b[0m"), "the prompt is the last that is drawn"


def test_the_prompt_is_seen_with_quiet_too(office: Office) -> None:
    terminal = office.terminal("single", "run", "Pay.", "--run", "r", "-q")
    terminal.until("May this call be made?")
    assert '"bill": "A"' in terminal.shown
    terminal.type("\n")
    assert terminal.end() == 4


def test_the_schema_of_an_answer_is_shown_and_an_answer_that_does_not_fit_is_refused(office: Office) -> None:
    code, told = office.call("asker", "run", "Ask.", "--run", "r")
    assert code == 4
    assert "the answer must fit this JSON Schema:" in told
    assert '"type": "integer"' in told
    words = printed_command(told)
    refused, reason = office.printed(*[word.replace("TEXT", "a lot") for word in words], "--no-input")
    assert (refused, "must be integer, not a text. Question 1 stays open" in reason) == (2, True)
    assert office.printed(*[word.replace("TEXT", "7") for word in words], "--no-input")[0] == 0


def test_an_answer_at_the_terminal_that_does_not_fit_is_asked_for_again(office: Office) -> None:
    terminal = office.terminal("asker", "run", "Ask.", "--run", "r")
    terminal.until("Your answer?")
    terminal.type("a lot\n")
    terminal.until("must be integer, not a text")
    terminal.type("7\n")
    assert terminal.end() == 0
