"""Answers of a declared type, and answers that are calls of the caller's tools."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest
from msgspec import Raw, Struct, structs
from pydantic import BaseModel

from chargehand import (
    MemoryJournal,
    Plan,
    Reply,
    Request,
    Runner,
    ScriptedModel,
    Supervisor,
    Task,
    Team,
    ToolCall,
    Worker,
)
from chargehand.engine import events as ev
from chargehand.engine.plan import Combine, TaskId
from chargehand.engine.policy import Policy, Retry
from chargehand.engine.value import decode_value
from chargehand.runtime.runner import Outcome


class Count(BaseModel):
    fruit: str
    number: int


@dataclass
class CountData:
    fruit: str
    number: int


class CountStruct(Struct):
    fruit: str
    number: int


SCHEMA: dict[str, object] = {
    "type": "object",
    "properties": {"fruit": {"type": "string"}, "number": {"type": "integer"}},
    "required": ["fruit", "number"],
}
APPLES = '{"fruit": "apple", "number": 12}'
WEATHER = ev.CallerTool(
    "get_weather",
    Raw(b'{"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}'),
    "Tells the weather of a city.",
)


def planned(combine: Combine = "merge", *tasks: Task) -> Plan:
    return Plan(tasks or (Task(TaskId("t1"), "Count the apples.", "ann"),), combine)


def answering(*replies: Reply | str) -> ScriptedModel:
    """A model that counts twelve apples and answers with these, one after the other."""
    answers = list(replies)

    def think(request: Request) -> Reply | str:
        return answers.pop(0) if "Your team has finished" in request.messages[0].text else "12 apples"

    return ScriptedModel(think)


def team_of(model: ScriptedModel, plan: Plan | None = None, **more: type | dict[str, object]) -> Team:
    supervisor = Supervisor(model=model, plan=plan or planned(), output=more.get("output"))
    return Team([Worker("ann", "counts"), Worker("bob", "counts")], supervisor=supervisor)


@pytest.mark.parametrize("wanted", [Count, CountData, CountStruct])
async def test_an_answer_has_the_type_that_the_team_declares(wanted: type) -> None:
    result = await team_of(answering(APPLES), output=wanted).run("How many apples?")
    assert result.ending == "complete"
    assert result.output == wanted(fruit="apple", number=12)
    assert result.answer == {"fruit": "apple", "number": 12}


async def test_a_json_schema_gives_plain_data() -> None:
    result = await team_of(answering(APPLES), output=SCHEMA).run("How many apples?")
    assert result.output == {"fruit": "apple", "number": 12}


async def test_a_reply_that_does_not_fit_is_sent_back_with_what_is_wrong() -> None:
    model = answering("Twelve apples.", '{"fruit": "apple"}', APPLES)
    result = await team_of(model, output=Count).run("How many apples?")
    assert result.output == Count(fruit="apple", number=12)
    last = model.requests[-1].messages[0].text
    assert "Mend this" in last
    assert "number" in last.partition("Mend this")[2]


async def test_an_answer_that_never_fits_is_a_gap_and_no_output() -> None:
    result = await team_of(answering(*["Twelve apples."] * 9), output=Count).run("How many apples?")
    assert result.ending == "partial"
    assert result.output is None
    assert [gap.status for gap in result.gaps] == ["unwritten"]


async def test_a_worker_whose_result_fits_is_handed_through_without_a_call() -> None:
    model = ScriptedModel([APPLES])
    supervisor = Supervisor(model=model, plan=planned("forward"), output=Count)
    team = Team([Worker("ann", "counts", output=Count)], supervisor=supervisor)
    result = await team.run("How many apples?")
    assert result.output == Count(fruit="apple", number=12)
    assert len(model.requests) == 1


async def test_text_that_would_be_handed_through_is_written_in_the_format() -> None:
    model = answering(APPLES)
    result = await team_of(model, planned("forward"), output=Count).run("How many apples?")
    assert result.output == Count(fruit="apple", number=12)


async def test_a_function_that_answers_must_keep_to_the_type() -> None:
    def combine(goal: str, results: Mapping[str, object], gaps: Sequence[object]) -> object:
        return {"fruit": goal}

    supervisor = Supervisor(model=answering(), plan=planned(), combine=combine, output=Count)
    team = Team([Worker("ann", "counts")], supervisor=supervisor, policy=Policy(retry=Retry(base=0.001)))
    result = await team.run("How many apples?")
    assert result.output is None
    assert "schema of the answer" in str(result.answer)


async def test_the_demo_model_says_that_it_writes_text_only() -> None:
    worker = Worker("ann", "counts", model=ScriptedModel(["12 apples"]))
    team = Team([worker], supervisor=Supervisor(model="demo", plan=planned(), output=Count))
    result = await team.run("How many apples?")
    assert result.output is None
    assert "needs a language model" in str(result.answer)


# --- the caller's tools


async def asked(model: ScriptedModel, wanted: ev.AnswerFormat, plan: Plan | None = None) -> Outcome:
    supervisor = Supervisor(model=model, plan=plan)
    team = Team([Worker("ann", "counts")], supervisor=supervisor)
    async with team.executor() as executor:
        request = structs.replace(team.request("Apples, and the weather?", time.time()), answer_format=wanted)
        return await Runner(MemoryJournal(), executor).start("r", request)


def call(**arguments: object) -> Reply:
    return Reply(calls=(ToolCall("c1", "get_weather", json.dumps(arguments)),), finish="tools")


async def test_an_answer_may_be_a_call_of_the_callers_tool() -> None:
    outcome = await asked(answering(call(city="Rome")), ev.AnswerFormat(tools=(WEATHER,)), planned())
    assert outcome.ending == "complete"
    written = outcome.state.answer_written
    assert written is not None
    assert written.calls == (ev.CallerToolCall("c1", "get_weather", '{"city":"Rome"}'),)


async def test_a_call_with_wrong_arguments_goes_back_to_the_model() -> None:
    model = answering(call(town="Rome"), call(city="Rome"))
    outcome = await asked(model, ev.AnswerFormat(tools=(WEATHER,)), planned())
    assert outcome.state.answer_written is not None
    assert outcome.state.answer_written.calls[0].arguments == '{"city":"Rome"}'
    assert "city" in model.requests[-1].messages[0].text.partition("Mend this")[2]


async def test_a_required_call_is_insisted_on() -> None:
    wanted = ev.AnswerFormat(tools=(WEATHER,), tool_choice="required")
    outcome = await asked(answering("Sunny, I guess.", call(city="Rome")), wanted, planned())
    assert outcome.state.answer_written is not None
    assert len(outcome.state.answer_written.calls) == 1


async def test_nothing_need_be_done_before_the_callers_tool_is_called() -> None:
    def think(request: Request) -> Reply | str:
        system = request.messages[0].text
        if "Break the request into tasks" in system:
            assert "get_weather: Tells the weather" in request.messages[1].text
            return json.dumps({"tasks": [], "combine": "merge", "assumptions": [], "unserved": []})
        return call(city="Rome")

    outcome = await asked(ScriptedModel(think), ev.AnswerFormat(tools=(WEATHER,)))
    assert (outcome.ending, outcome.statuses) == ("complete", {})
    assert outcome.state.answer_written is not None
    assert outcome.state.answer_written.calls[0].name == "get_weather"


async def test_without_tasks_and_without_an_answer_the_run_has_failed() -> None:
    def think(request: Request) -> Reply | str:
        if "Break the request into tasks" in request.messages[0].text:
            return json.dumps({"tasks": [], "combine": "merge", "assumptions": [], "unserved": []})
        return "no"

    wanted = ev.AnswerFormat(tools=(WEATHER,), tool_choice="get_weather")
    outcome = await asked(ScriptedModel(think), wanted)
    assert (outcome.ending, outcome.reason) == ("failed", "no_plan")


async def test_the_longest_answer_is_the_callers() -> None:
    model = answering("Twelve.")
    outcome = await asked(model, ev.AnswerFormat(max_tokens=50), planned())
    assert outcome.answer is not None
    assert model.requests[-1].settings.max_tokens == 50
    assert decode_value(outcome.state.answer or Raw(b"null")) == outcome.answer
