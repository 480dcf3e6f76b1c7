"""A worker asks a person in words: the run waits, outlives its process, and goes on with the answer."""

from pathlib import Path

import pytest

from chargehand.agents.roles import Supervisor, Worker
from chargehand.engine.events import InputAnswered, ModelCalled
from chargehand.engine.plan import Plan, Task, TaskId
from chargehand.errors import Invalid, Refused
from chargehand.models.messages import Reply, Request, ToolCall, Usage
from chargehand.models.testing.scripted import ScriptedModel
from chargehand.runtime.approving import PersonQuestion
from chargehand.team import Team

_ASK = ToolCall("1", "ask_person", '{"question": "Which colour?", "options": ["red", "blue"]}')
_PLAN = Plan((Task(TaskId("paint"), "Paint the shed.", "painter"),), "forward")


def _paint(request: Request) -> Reply:
    """Ask for the colour, then say what was told."""
    last = request.messages[-1]
    return Reply(f"I was told: {last.text}") if last.role == "tool" else Reply(calls=(_ASK,), finish="tools")


def _team(journal: Path | None = None) -> Team:
    model = ScriptedModel(_paint)
    painter = Worker("painter", "paints", tools=["ask_person"], model=model)
    return Team([painter], supervisor=Supervisor(model=model, plan=_PLAN), journal=journal)


def test_the_question_is_told_in_fields_and_another_process_goes_on_with_the_answer(tmp_path: Path) -> None:
    waiting = _team(tmp_path / "runs.db").run_sync("Paint the shed.", run="one")
    question = waiting.question
    assert question is not None
    assert (question.what, question.text, question.task) == ("question", "Which colour?", "paint")
    assert question.question is not None
    assert (question.question.options, question.question.workers) == (("red", "blue"), ("painter",))
    with pytest.raises(Refused, match="one of 'red', 'blue'"):
        _team(tmp_path / "runs.db").resume_sync("one", "green")
    result = _team(tmp_path / "runs.db").resume_sync("one", "blue")
    assert (result.ending, "blue" in str(result.answer)) == ("complete", True)


async def test_a_callback_answers_and_may_leave_a_question_open() -> None:
    asked: list[PersonQuestion] = []

    async def answer(question: PersonQuestion) -> str:
        asked.append(question)
        return "red"

    result = await _team().run("Paint the shed.", on_question=answer)
    assert (result.ending, "red" in str(result.answer)) == ("complete", True)
    assert [(question.text, question.options, question.worker) for question in asked] == [
        ("Which colour?", ("red", "blue"), "painter")
    ]
    left_open = await _team().run("Paint the shed.", on_question=lambda _: None)
    assert left_open.ending == "needs_input"


def test_a_program_without_an_event_loop_answers_too() -> None:
    result = _team().run_sync("Paint the shed.", on_question=lambda question: question.options[0])
    assert "red" in str(result.answer)


async def test_an_answer_that_does_not_fit_is_raised_at_once_and_the_question_stays_open(tmp_path: Path) -> None:
    team = _team(tmp_path / "runs.db")
    with pytest.raises(Invalid, match="was refused: the answer must be one of 'red', 'blue'"):
        await team.run("Paint the shed.", run="one", on_question=lambda _: "green")
    result = await team.resume("one", "blue")
    assert (result.ending, "blue" in str(result.answer)) == ("complete", True)


async def test_a_question_that_a_person_does_not_answer_is_told_to_the_worker() -> None:
    team = _team()
    await team.run("Paint the shed.", run="one")
    result = await team.resume("one", InputAnswered(1, "reject", "ask the neighbour"))
    assert "did not answer: ask the neighbour" in str(result.answer)


async def test_with_free_text_another_answer_than_the_options_will_do() -> None:
    ask = ToolCall("1", "ask_person", '{"question": "Which?", "options": ["red", "blue"], "free_text": true}')

    def paint(request: Request) -> Reply:
        last = request.messages[-1]
        return Reply(f"I was told: {last.text}") if last.role == "tool" else Reply(calls=(ask,), finish="tools")

    model = ScriptedModel(paint)
    painter = Worker("painter", "paints", tools=["ask_person"], model=model)
    asked: list[PersonQuestion] = []

    def answer(question: PersonQuestion) -> str:
        asked.append(question)
        return "green"

    team = Team([painter], supervisor=Supervisor(model=model, plan=_PLAN))
    result = await team.run("Paint the shed.", on_question=answer)
    assert (result.ending, "green" in str(result.answer), asked[0].free_text) == ("complete", True, True)


async def test_a_planner_that_may_ask_gets_the_answer_and_plans_with_it() -> None:
    def plan(request: Request) -> str:
        told = request.messages[-1].text
        if "The person answered: blue" not in told:
            return '{"question": "Which colour?", "options": ["red", "blue"], "tasks": []}'
        return '{"tasks": [{"id": "t1", "instruction": "Paint it blue.", "worker": "painter"}], "combine": "forward"}'

    painter = Worker("painter", "paints", model=ScriptedModel(["Painted."]))
    team = Team([painter], supervisor=Supervisor(model=ScriptedModel(plan), ask_person=True))
    waiting = await team.run("Paint the shed.", run="one")
    assert waiting.question is not None
    assert (waiting.question.what, waiting.question.task) == ("question", "")
    assert waiting.question.question is not None
    assert waiting.question.question.free_text
    result = await team.resume("one", "blue")
    assert (result.ending, result.answer) == ("complete", "Painted.")
    assert [duty.ending for duty in result.trace().supervision] == ["asked", "succeeded", "succeeded"]
    assert [task.instruction for task in result.trace().tasks] == ["Paint it blue."]


async def test_the_calls_of_the_supervisor_are_told_with_tokens_in_and_out() -> None:
    plan = '{"tasks": [{"id": "t1", "instruction": "Paint the shed.", "worker": "painter"}], "combine": "merge"}'
    lead = ScriptedModel([plan, "It is painted."], usage=Usage(90, 10, 40, 20, 5, 3))
    painter = Worker("painter", "paints", model=ScriptedModel(["Painted."]))
    result = await Team([painter], supervisor=Supervisor(model=lead)).run("Paint the shed.")
    calls = [(duty.duty, call.input, call.output) for duty in result.trace().supervision for call in duty.calls]
    assert calls == [("plan", 90, 10), ("answer", 90, 10)]
    told = [entry.event for entry in result.entries if isinstance(entry.event, ModelCalled)]
    parts = [(call.cached, call.cache_written, call.cache_written_hour, call.reasoning) for call in told]
    assert parts == [(40, 20, 5, 3)] * 2


async def test_a_team_inside_asks_through_the_one_around_it() -> None:
    inner = _team()
    plan = Plan((Task(TaskId("shed"), "Have the shed painted.", "crew"),), "forward")
    model = ScriptedModel(["never asked"], repeat=True)
    outer = Team([inner.as_worker("crew", "paints sheds")], supervisor=Supervisor(model=model, plan=plan))
    result = await outer.run("Paint the shed.", on_question=lambda question: question.options[1])
    assert (result.ending, "blue" in str(result.answer)) == ("complete", True)
