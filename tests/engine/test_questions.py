"""Questions to a person: which calls they ask about."""

from chargehand.engine.events import InputRequested
from chargehand.engine.failure import PendingCall, Question
from chargehand.engine.plan import TaskId

T1 = TaskId("t1")
T2 = TaskId("t2")


def test_a_question_lists_the_calls_that_it_asks_about_with_their_task() -> None:
    other = PendingCall(call=3, text="pay(B)", tool="pay", arguments={"id": "B"}, key="k3")
    question = Question(tool="pay", arguments={"id": "A"}, key="k1", call=2, also=(other,))
    first, second = InputRequested(4, "tool", T1, text="pay(A)", question=question).calls
    assert first == PendingCall(call=2, text="pay(A)", tool="pay", arguments={"id": "A"}, key="k1", task=T1)
    assert (second.call, second.arguments, second.task) == (3, {"id": "B"}, T1)


def test_calls_in_doubt_of_several_tasks_each_name_their_own() -> None:
    other = PendingCall(call=2, text="pay(B)", tool="pay", task=T2, attempt=3, step=5)
    question = Question(what="effect", tool="pay", attempt=1, step=4, also=(other,))
    calls = InputRequested(1, "effect", T1, text="pay(A)", question=question).calls
    assert [(call.call, call.task, call.attempt, call.step) for call in calls] == [(1, T1, 1, 4), (2, T2, 3, 5)]


def test_the_calls_of_a_nested_run_name_the_tasks_of_that_run() -> None:
    question = Question(tool="pay", run="outer/t1/1/1/abc", task=T2, number=7)
    [call] = InputRequested(1, "tool", T1, text="pay(A)", question=question).calls
    assert call.task == T2


def test_a_question_of_an_old_journal_asks_about_its_text() -> None:
    assert InputRequested(1, "effect", T1, text="in doubt").calls == (PendingCall(1, "in doubt", "", task=T1),)


def test_a_plan_and_a_question_in_words_ask_about_no_call() -> None:
    assert InputRequested(1, "plan").calls == ()
    assert InputRequested(1, "question", T1, text="Which?", question=Question("question", "ask_person")).calls == ()
