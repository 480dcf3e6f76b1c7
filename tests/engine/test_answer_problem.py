"""An answer in words that does not fit its question is refused with what does not fit."""

import pytest

from chargehand.engine.admit import answer_problem
from chargehand.engine.failure import Question

INTEGER: dict[str, object] = {"type": "integer", "minimum": 1}


@pytest.mark.parametrize(
    ("question", "value", "problem"),
    [
        (Question("question", options=("red", "blue")), "green", "the answer must be one of 'red', 'blue'"),
        (Question("question", options=("red", "blue"), free_text=True), "green", ""),
        (Question("question", schema=INTEGER), 7, ""),
        (Question("question", schema=INTEGER), "7", "$ must be integer, not a text"),
        (Question("question", schema=INTEGER), 0, "$ is 0; it must be at least 1"),
        (Question("question", schema={"type": 5}), "anything", ""),
        (Question("question", schema={"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}), "anything", ""),
        (Question("question"), "anything", ""),
    ],
)
def test_an_answer_is_checked_against_options_and_schema(question: Question, value: object, problem: str) -> None:
    found = answer_problem(question, value)
    assert problem in found if problem else not found
