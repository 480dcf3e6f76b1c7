"""A model of the user's own: a function, or an object that leaves something out, works or is refused in words."""

from collections.abc import Sequence
from typing import Any, cast

import pytest

from chargehand import Message, Plan, Request, Supervisor, Task, Team, Worker
from chargehand.engine.plan import TaskId
from chargehand.errors import Invalid

PLAN = Plan((Task(TaskId("t1"), "What is 6 * 7?", "ann"),), "forward")


def answer(model: Any, **worker: Any) -> Any:
    return Team([Worker("ann", "Knows.", model=model, **worker)], supervisor=Supervisor(plan=PLAN)).run_sync(
        "What is 6 * 7?"
    )


async def speaks(messages: Sequence[Message]) -> str:
    return f"It is 42, said to {messages[-1].role}."


def speaks_plainly(messages: Sequence[Message]) -> str:
    return f"It is 42, said to {messages[-1].role}."


class WithoutCard:
    async def reply(self, request: Request) -> str:
        return f"It is 42, said to {request.messages[-1].role}."


@pytest.mark.parametrize("model", [speaks, speaks_plainly, WithoutCard()])
def test_a_function_and_an_object_without_a_card_are_models(model: Any) -> None:
    result = answer(model)
    assert (result.ending, result.cost) == ("complete", 0.0)
    assert "It is 42, said to user." in cast("str", result.answer)


def test_a_function_of_messages_reads_of_tools_and_calls_them_in_text() -> None:
    def calls(messages: Sequence[Message]) -> str:
        if "Result of calculator" in messages[-1].text:
            return "It is 42."
        assert "calculator" in messages[0].text
        return '```json\n{"tool": "calculator", "args": {"expression": "6 * 7"}}\n```'

    result = answer(calls, tools=["calculator"])
    (attempt,) = result.trace().tasks[0].attempts
    assert [step.name for step in attempt.steps] == ["model", "calculator", "model"]


def test_what_is_no_reply_fails_the_task_in_words() -> None:
    def says_nothing(messages: Sequence[Message]) -> None:
        del messages

    result = answer(says_nothing)
    assert result.ending == "failed"
    assert "returned nothing; return text or a Reply" in str(result.gaps)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (42, "model is 42; write a handle"),
        (WithoutCard, "WithoutCard is a class; make a model of it"),
        (lambda: "x", "takes nothing"),
    ],
)
def test_what_can_be_no_model_is_refused_at_once(model: Any, said: str) -> None:
    with pytest.raises(Invalid, match=said):
        answer(model)
