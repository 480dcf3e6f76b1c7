"""An answer in words reaches the question its giver was shown, and says what it means of each call."""

from pathlib import Path

import pytest

from chargehand import Plan, Reply, Request, ScriptedModel, Supervisor, Task, Team, ToolCall, Worker, tool
from chargehand.engine import events as ev
from chargehand.engine.failure import PendingCall, Question
from chargehand.engine.plan import TaskId
from chargehand.engine.value import encode_value
from chargehand.errors import Invalid, Refused
from chargehand.runtime.answers import check_single, make_answer, read_text, read_verdict


def office(journal: Path) -> tuple[Team, list[str]]:
    """A clerk that pays A and then B, each in a reply of its own."""
    paid: list[str] = []

    @tool(effect="effect", approve=True)
    def pay(bill: str) -> str:
        """Pay a bill."""
        paid.append(bill)
        return "paid"

    def clerk(request: Request) -> Reply | str:
        done = sum(message.role == "tool" for message in request.messages)
        if done == len("AB"):
            return "Done."
        return Reply(calls=(ToolCall(str(done), "pay", f'{{"bill": "{"AB"[done]}"}}'),), finish="tools")

    plan = Plan((Task(TaskId("bills"), "Pay the bills.", "clerk"),), "forward")
    worker = Worker("clerk", "Pays bills.", tools=[pay], model=ScriptedModel(clerk))
    return Team([worker], supervisor=Supervisor(plan=plan), journal=journal), paid


def test_a_second_yes_to_the_first_question_does_not_approve_the_next_call(tmp_path: Path) -> None:
    team, paid = office(tmp_path / "runs.db")
    team.run_sync("Pay.", run="may")
    ann, paid_by_ann = office(tmp_path / "runs.db")
    bob, paid_by_bob = office(tmp_path / "runs.db")
    assert ann.resume_sync("may", "approve").ending == "needs_input"
    with pytest.raises(Refused) as refusal:
        bob.resume_sync("may", "approve")
    for words in ("asks question 2 now", 'pay({"bill": "B"})', "resume('may', \"approve\", question=2)"):
        assert words in str(refusal.value)
    assert (paid, paid_by_ann, paid_by_bob) == ([], ["A"], [])


def test_an_answer_that_names_an_old_or_a_later_question_is_refused(tmp_path: Path) -> None:
    team, paid = office(tmp_path / "runs.db")
    team.run_sync("Pay.", run="may")
    with pytest.raises(Refused, match="there is no question 2 yet"):
        team.resume_sync("may", "approve", question=2)
    team.resume_sync("may", "approve", question=1)
    with pytest.raises(Refused, match="question 1 has been answered already"):
        team.resume_sync("may", "approve", question=1)
    assert paid == ["A"]
    other, paid_by_other = office(tmp_path / "runs.db")
    assert other.resume_sync("may", "approve", question=2).ending == "complete"
    assert paid_by_other == ["B"]


def test_a_team_that_returned_a_question_takes_the_answer_without_its_number(tmp_path: Path) -> None:
    team, paid = office(tmp_path / "runs.db")
    team.run_sync("Pay.", run="may")
    team.resume_sync("may", "approve")
    assert team.resume_sync("may", "approve").ending == "complete"
    assert paid == ["A", "B"]


async def test_a_question_that_was_streamed_has_been_shown(tmp_path: Path) -> None:
    team, paid = office(tmp_path / "runs.db")
    async for _ in team.stream("Pay.", run="may"):
        pass
    other, _ = office(tmp_path / "runs.db")
    await other.resume("may", "approve")
    with pytest.raises(Refused, match="asks question 2 now"):
        await team.resume("may", "approve")
    assert paid == []


def test_a_number_without_an_answer_is_refused(tmp_path: Path) -> None:
    team, _ = office(tmp_path / "runs.db")
    with pytest.raises(Invalid, match="question 2 has no answer"):
        team.resume_sync("may", question=2)


@pytest.mark.parametrize(
    ("words", "verdict"),
    [
        ("done: receipt 7", ev.CallVerdict(1, "done", "", "receipt 7")),
        ('Done: {"receipt": 7}', ev.CallVerdict(1, "done", "", {"receipt": 7})),
        ("done: null", ev.CallVerdict(1, "done")),
        ("again", ev.CallVerdict(1, "again")),
        ("fail: the bank is closed", ev.CallVerdict(1, "fail", "the bank is closed")),
    ],
)
def test_words_say_what_became_of_an_effect(words: str, verdict: ev.CallVerdict) -> None:
    assert read_verdict("effect", 1, words) == verdict


@pytest.mark.parametrize("words", [True, "approve", "done it", "reject: no", ""])
def test_what_does_not_say_whether_an_effect_happened_is_refused(words: bool | str) -> None:
    with pytest.raises(Invalid, match='say "done: RESULT"'):
        read_verdict("effect", 1, words)


@pytest.mark.parametrize("words", ["done", "done:", "done:  "])
def test_done_without_a_result_is_refused_with_how_to_say_it(words: str) -> None:
    with pytest.raises(Invalid, match='as in "done: receipt 7", or "done: null" if it returned nothing'):
        read_verdict("effect", 1, words)


@pytest.mark.parametrize("words", ["done: paid", "again", "fail"])
def test_what_says_what_became_of_an_effect_approves_no_call(words: str) -> None:
    with pytest.raises(Invalid, match='say "approve", "reject" or "reject: why"'):
        read_verdict("tool", 1, words)


def _question_about(*bills: str) -> ev.InputRequested:
    first, *others = (
        PendingCall(at, f"pay {bill}", "pay", {"bill": bill}, key=f"k{at}") for at, bill in enumerate(bills, 1)
    )
    question = Question("effect", first.tool, first.arguments, call=1, also=tuple(others), key=first.key)
    return ev.InputRequested(3, "effect", TaskId("bills"), first.text, question)


def test_verdicts_on_several_effects_become_one_answer() -> None:
    pending = _question_about("A", "B")
    verdicts = [read_verdict("effect", 2, "again"), read_verdict("effect", 1, "done: receipt")]
    answer = make_answer(pending, verdicts)
    assert (answer.number, answer.verdict, answer.also) == (3, "done", (ev.CallVerdict(2, "again"),))
    with pytest.raises(Refused, match=r'asks about 2 calls \(1: pay\({"bill":"A"}\); 2: pay B\). Say'):
        check_single("may", pending, advice="Say more.")


@pytest.mark.parametrize(("text", "value"), [("7", 7), ("a lot", "a lot")])
def test_a_text_is_read_as_json_where_only_that_fits_the_schema(text: str, value: object) -> None:
    question = Question("question", schema={"type": "integer"})
    assert read_text(ev.InputRequested(1, "question", TaskId(""), "How many?", question), text) == value
    worded = Question("question", schema={"type": "string"})
    assert read_text(ev.InputRequested(1, "question", TaskId(""), "How many?", worded), text) == text


def asker() -> Team:
    def painter(request: Request) -> Reply | str:
        last = request.messages[-1]
        if last.role == "tool":
            return f"I was told: {last.text}"
        arguments = '{"question": "How many?", "schema": {"type": "integer"}}'
        return Reply(calls=(ToolCall("1", "ask_person", arguments),), finish="tools")

    plan = Plan((Task(TaskId("paint"), "Paint the shed.", "painter"),), "forward")
    worker = Worker("painter", "Paints.", tools=["ask_person"], model=ScriptedModel(painter))
    return Team([worker], supervisor=Supervisor(plan=plan))


def test_an_answer_that_does_not_fit_the_schema_is_refused_and_the_question_stays_open() -> None:
    team = asker()
    team.run_sync("Paint.", run="may")
    with pytest.raises(Refused, match=r"does not fit the schema .* must be integer, not a text. Question 1 stays open"):
        team.resume_sync("may", "a lot")
    with pytest.raises(Refused, match="must be integer"):
        team.resume_sync("may", ev.InputAnswered(1, "answer", result=encode_value("a lot")))
    done = team.resume_sync("may", "7")
    answers = [entry.event.result for entry in done.entries if isinstance(entry.event, ev.InputAnswered)]
    assert (done.ending, answers) == ("complete", [7])


def test_an_answer_of_a_callback_that_does_not_fit_the_schema_is_refused() -> None:
    with pytest.raises(Invalid, match="must be integer"):
        asker().run_sync("Paint.", run="may", on_question=lambda _: "a lot")
