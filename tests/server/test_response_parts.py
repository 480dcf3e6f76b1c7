"""The parts of a run that responses tell: each ends with a question that a person had to answer, or with the run."""

from chargehand import MemoryJournal, Plan, ScriptedModel, Supervisor, Task, Team, Worker, tool
from chargehand.engine.fold import replay
from chargehand.engine.plan import TaskId
from chargehand.models.messages import Reply, Request, ToolCall, Usage
from chargehand.runtime.stats import Stats
from chargehand.server.openai.parts import ResponseId, parse_response_id, read_part
from chargehand.server.openai.request import answer_of, chat_usage
from chargehand.server.run_control import RecordedRun


@tool(effect="effect", approve=True)
async def pay(payee: str) -> str:
    """Pay somebody."""
    return f"receipt {payee}"


def work(request: Request) -> Reply | str:
    paid = sum(message.role == "tool" for message in request.messages)
    if paid == 2:
        return "Paid."
    return Reply(calls=(ToolCall(f"c{paid}", "pay", f'{{"payee": "{paid}"}}'),), finish="tools")


def payers(*, asks_function: bool = False, usage: Usage | None = None) -> Team:
    plan = Plan((Task(TaskId("t1"), "Pay.", "clerk"),), "forward")
    model = ScriptedModel(work, usage=usage)
    return Team(
        [Worker("clerk", tools=[pay], model=model)],
        supervisor=Supervisor(plan=plan, model=model),
        journal=MemoryJournal(),
        on_approval=(lambda _request: True) if asks_function else None,
    )


async def test_each_answer_of_a_person_begins_a_part_that_ends_with_the_next_question() -> None:
    team = payers()
    await team.run("Pay.", run="r")
    await team.resume("r", "approve")
    result = await team.resume("r", "approve")
    recorded = RecordedRun("r", result.entries, replay(result.entries))
    parts = [read_part(recorded, answered) for answered in (0, 1, 2)]
    assert [part is not None and part.is_over for part in parts] == [True, True, True]
    assert [part and part.question and part.question.number for part in parts] == [1, 2, None]
    ends = [len(part.recorded.entries) for part in parts if part is not None]
    begins = [part.begins for part in parts if part is not None]
    assert all(end <= begin for end, begin in zip(ends[:2], begins[1:], strict=True))
    assert read_part(recorded, 3) is None
    whole = read_part(recorded, 0, background=True)
    assert whole is not None
    assert whole.recorded is recorded


async def test_a_question_that_a_function_answers_ends_no_part() -> None:
    result = await payers(asks_function=True).run("Pay.", run="r")
    part = read_part(RecordedRun("r", result.entries, replay(result.entries)), 0)
    assert part is not None
    assert part.question is None
    assert part.recorded.state.ended is not None


async def test_a_part_says_which_of_its_tokens_were_cached_written_to_a_cache_and_thought() -> None:
    used = Usage(100, 20, cached=30, cache_written=40, cache_written_hour=5, reasoning=6)
    team = payers(usage=used)
    for answer in ("", "approve", "approve"):
        result = await (team.resume("r", answer) if answer else team.run("Pay.", run="r"))
    recorded = RecordedRun("r", result.entries, replay(result.entries))
    last = read_part(recorded, 2)
    assert last is not None
    assert chat_usage(answer_of(last)) == {
        "prompt_tokens": 100,
        "prompt_tokens_details": {"cached_tokens": 30, "cache_write_tokens": 45},
        "completion_tokens": 20,
        "completion_tokens_details": {"reasoning_tokens": 6},
        "total_tokens": 120,
    }


async def test_models_are_counted_by_kind_of_token() -> None:
    used = Usage(100, 20, cached=30, cache_written=40, cache_written_hour=5, reasoning=6)
    result = await payers(asks_function=True, usage=used).run("Pay.", run="r")
    stats = Stats()
    stats.record("r", result.entries)
    assert stats.calls["model"]["scripted"].tokens == {
        "input": 300,
        "output": 60,
        "cached": 90,
        "cache_written": 120,
        "cache_written_hour": 15,
        "reasoning": 18,
    }


def test_ids_of_responses_name_the_run_and_the_answered_question() -> None:
    for response in (ResponseId("run-1"), ResponseId("run-1", 12), ResponseId("a~b")):
        assert parse_response_id(response.text) == response
    assert parse_response_id("run-1") is None
