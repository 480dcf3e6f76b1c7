"""An answer in words is held to the schema of its question, unless that is no schema: a model wrote it."""

import pytest

from chargehand.engine import events as ev
from chargehand.engine.failure import Question
from chargehand.server.api.control import _check_shape
from chargehand.server.api.shapes import AnswerBody
from chargehand.server.wire import Problem


def check(schema: dict[str, object], result: object) -> None:
    asked = ev.InputRequested(1, "question", question=Question("question", schema=schema))
    _check_shape(asked, AnswerBody(number=1, verdict="answer", result=result))


def test_an_answer_that_does_not_fit_is_refused_with_each_fault() -> None:
    check({"type": "string", "pattern": "^[A-Z]+$"}, "AB")
    with pytest.raises(Problem) as refused:
        check({"type": "string", "pattern": "^[A-Z]+$", "maxLength": 1}, "ab")
    assert "$ is 'ab'; it must match the pattern ^[A-Z]+$" in str(refused.value.detail)
    assert len(refused.value.faults) == 2


@pytest.mark.parametrize("schema", [{"type": 5}, {"$ref": "http://127.0.0.1:1/x"}, {"$ref": "#"}])
def test_an_answer_to_a_question_without_a_usable_schema_is_taken(schema: dict[str, object]) -> None:
    check(schema, "anything")
