"""Answers of clients that converse: the same words as everywhere, or fields."""

import pytest

from chargehand.agents.run_document import RunQuestion
from chargehand.engine.failure import PendingCall
from chargehand.engine.plan import TaskId
from chargehand.server.api.shapes import AnswerBody
from chargehand.server.dialogue import parse_answer
from chargehand.server.wire import Problem

CALL = PendingCall(1, "mail({})", "mail", {})
DOUBT = RunQuestion(
    number=3,
    what="effect",
    task=TaskId("t1"),
    text="mail({})",
    question=None,
    calls=(CALL,),
    plan=(),
    verdicts=("done", "again", "fail"),
    message="",
)


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        ("done: receipt 7", AnswerBody(3, "done", result="receipt 7")),
        ("Done: null", AnswerBody(3, "done", result=None)),
        ("again", AnswerBody(3, "again")),
        ({"1": "fail: too late"}, AnswerBody(3, "fail", feedback="too late", also=())),
        ({"verdict": "done", "result": None}, AnswerBody(3, "done", result=None)),
    ],
)
def test_words_and_fields_are_read_as_verdicts(sent: object, answer: AnswerBody) -> None:
    assert parse_answer(DOUBT, sent) == answer


@pytest.mark.parametrize("sent", ["done", "done it", "approve", {"1": "done"}, {"1": 7}, {"2": "again"}])
def test_what_is_no_verdict_on_an_effect_is_refused(sent: object) -> None:
    with pytest.raises(Problem, match="this is no answer"):
        parse_answer(DOUBT, sent)
