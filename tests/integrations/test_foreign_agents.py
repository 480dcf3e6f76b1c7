"""Agents of Pydantic AI, LangGraph and the OpenAI Agents SDK as workers, each with a fake model of its own."""

import asyncio
import logging
from typing import Annotated, Any, TypedDict

import pytest
from agents import Agent as OpenAIAgent
from agents import function_tool
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.messages.ai import UsageMetadata
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph  # pyright: ignore[reportMissingTypeStubs] - it has none
from langgraph.graph.message import add_messages  # pyright: ignore[reportMissingTypeStubs] - as above
from langgraph.types import interrupt
from pydantic import BaseModel
from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from chargehand import (
    Amount,
    Budget,
    MemoryJournal,
    Plan,
    Policy,
    Retry,
    ScriptedModel,
    Supervisor,
    Task,
    Team,
    Worker,
)
from chargehand.agents.executor import Assignment
from chargehand.engine import events as ev
from chargehand.engine.facts import UsageUnknown
from chargehand.engine.plan import TaskId
from chargehand.errors import Invalid
from chargehand.integrations.foreign_agents import status_failure
from chargehand.integrations.langgraph import from_langgraph
from chargehand.integrations.openai_agents import from_openai_agents
from chargehand.integrations.pydantic_ai import from_pydantic_ai
from tests.integrations.foreign_models import ScriptedOpenAIModel, called, said
from tests.integrations.mixed_team import POLICY, PRICE, QUIET, CountState, mixed_workers, outages

ONCE = Policy(retry=Retry(attempts=1))
TWICE = Policy(retry=Retry(attempts=2, base=0.01))


def one_worker(call: Any, *, policy: Policy = ONCE, budget: Budget = Budget(), journal: Any = None) -> Team:  # noqa: B008
    plan = Plan((Task(TaskId("t1"), "Count the apples.", "ann"),), "forward")
    return Team(
        [Worker("ann", call=call)], supervisor=Supervisor(plan=plan), policy=policy, budget=budget, journal=journal
    )


class Count(BaseModel):
    apples: int
    where: str


# --- Pydantic AI


async def test_a_pydantic_ai_agent_returns_data_and_what_it_used_counts() -> None:
    agent = Agent(TestModel(custom_output_args={"apples": 12, "where": "crate"}), output_type=Count)
    team = one_worker(from_pydantic_ai(agent, effect="read", price=PRICE), budget=Budget(usd=1.0))
    result = await team.run("How many apples?")
    assert result.results == {"t1": {"apples": 12, "where": "crate"}}
    assert result.spent.calls == 1
    assert result.spent.tokens > 0
    assert result.spent.micros > 0


async def test_an_agent_is_told_the_task_and_its_inputs_without_envelopes() -> None:
    told: list[str] = []

    def reply(messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
        told.append(str(messages[0].parts[0].content))  # type: ignore[union-attr]
        return ModelResponse([TextPart("There are 12.")])

    agent = Agent(FunctionModel(reply))
    plan = Plan(
        (Task(TaskId("t1"), "Count.", "bob"), Task(TaskId("t2"), "Report it.", "ann", after=(TaskId("t1"),))), "forward"
    )
    bob = Worker("bob", model=ScriptedModel(["12 apples"]))
    team = Team([bob, Worker("ann", call=from_pydantic_ai(agent, effect="read"))], supervisor=Supervisor(plan=plan))
    assert (await team.run("How many?")).answer == "There are 12."
    assert told == ["Report it.\n\nResult of t1:\n12 apples"]


@pytest.mark.parametrize(("answer", "paid"), [("approve", ["7"]), ("reject", [])])
async def test_a_call_that_pydantic_ai_defers_is_asked_about(answer: str, paid: list[str]) -> None:
    done: list[str] = []
    requests = 0

    def reply(messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
        nonlocal requests
        requests += 1
        if len(messages) == 1:
            return ModelResponse([ToolCallPart("pay", {"invoice": "7"}, "c1")])
        return ModelResponse([TextPart(f"then: {messages[-1].parts[-1].content}")])  # type: ignore[union-attr]

    agent = Agent(FunctionModel(reply), output_type=[str, DeferredToolRequests])

    @agent.tool_plain(requires_approval=True)
    def pay(invoice: str) -> str:
        done.append(invoice)
        return "paid"

    team = one_worker(from_pydantic_ai(agent, effect="effect"))
    waiting = await team.run("Pay it.", run="r1")
    assert waiting.ending == "needs_input"
    assert waiting.question is not None
    assert waiting.question.text == 'May pay({"invoice":"7"}) be called?'
    assert done == []
    result = await team.resume("r1", answer)
    assert (result.ending, done, requests) == ("complete", paid, 2)


@pytest.mark.parametrize(
    ("status", "body", "kind", "attempts"),
    [
        (429, "slow down", "resource", 2),
        (503, "restarting", "network", 2),
        (429, "insufficient_quota", "resource", 1),
        (401, "invalid api key", "resource", 1),
        (404, "no such model", "logic", 1),
        (400, "temperature: unexpected value", "logic", 1),
    ],
)
async def test_an_error_of_a_models_api_is_a_failure_of_its_kind(
    status: int, body: str, kind: str, attempts: int
) -> None:
    calls = 0

    def reply(_messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
        nonlocal calls
        calls += 1
        raise ModelHTTPError(status, "fake", body)

    team = one_worker(from_pydantic_ai(Agent(FunctionModel(reply)), effect="read"), policy=TWICE)
    (gap,) = (await team.run("Count")).gaps
    assert gap.reason == kind
    assert gap.message.startswith(f"pydantic-ai: its model answered {status}: ")
    assert calls == attempts


async def test_what_ended_an_agent_that_acts_is_named_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "chargehand.runtime")

    def reply(_messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
        raise ModelHTTPError(401, "fake", "invalid api key")

    result = await one_worker(from_pydantic_ai(Agent(FunctionModel(reply)), effect="effect"), policy=TWICE).run("Pay.")
    assert result.ending == "needs_input", "a person is asked: the agent may have acted"
    (gap,) = result.gaps
    assert (gap.reason, gap.tool) == ("uncertain", "pydantic-ai agent")
    assert gap.message.startswith("it is not known whether pydantic-ai agent() happened; the attempt ended with ")
    assert "ended with pydantic-ai: its model answered 401: " in gap.message
    (failure,) = [entry.event.failure for entry in result.entries if isinstance(entry.event, ev.AttemptFailed)]
    assert failure.cause.startswith("pydantic-ai: its model answered 401: ")
    assert [record.levelname for record in caplog.records if failure.cause in record.getMessage()] == ["WARNING"]


async def test_an_agent_that_could_not_be_called_leaves_no_effect_in_doubt() -> None:
    def prompt(assignment: Assignment) -> str:
        raise ValueError(f"no prompt for {assignment.instruction}")

    agent = Agent(TestModel())
    (gap,) = (await one_worker(from_pydantic_ai(agent, effect="effect", prompt=prompt)).run("Pay.")).gaps
    assert (gap.reason, gap.message) == ("logic", "ValueError: no prompt for Count the apples.")


async def test_a_cancelled_attempt_cancels_the_agent() -> None:
    cancelled = asyncio.Event()

    async def hang(_messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        raise AssertionError

    call = from_pydantic_ai(Agent(FunctionModel(hang)), effect="read")
    plan = Plan((Task(TaskId("t1"), "Count.", "ann"),), "forward")
    team = Team([Worker("ann", call=call, timeout=0.2)], supervisor=Supervisor(plan=plan), policy=ONCE)
    (gap,) = (await team.run("Count")).gaps
    assert gap.reason == "timeout"
    assert cancelled.is_set()


def test_what_an_agent_does_to_the_world_must_be_said() -> None:
    with pytest.raises(Invalid, match="say what its tools do to the world: read, idempotent, effect"):
        from_pydantic_ai(Agent(TestModel()), effect="write")  # pyright: ignore[reportArgumentType] - that is the point


def test_what_is_no_agent_of_the_framework_is_refused_before_a_run() -> None:
    graph: Any = StateGraph(CountState)
    with pytest.raises(Invalid, match=r"this is a StateGraph; write a compiled graph: graph.compile\(\)"):
        from_langgraph(graph, effect="read")
    other: Any = "an agent"
    with pytest.raises(Invalid, match="this is a str; write an Agent of Pydantic AI"):
        from_pydantic_ai(other, effect="read")
    with pytest.raises(Invalid, match="this is a str; write an Agent of the OpenAI Agents SDK"):
        from_openai_agents(other, effect="read")


def test_the_status_of_an_api_is_found_behind_other_exceptions() -> None:
    outer = RuntimeError("wrapped")
    outer.__cause__ = ModelHTTPError(503, "fake")
    failure = status_failure("pydantic-ai", outer)
    assert failure is not None
    assert failure.kind == "network"
    assert status_failure("pydantic-ai", ValueError("plain")) is None


# --- LangGraph


async def test_a_graph_is_given_a_state_and_its_result_is_read_off_it() -> None:
    def count(state: CountState) -> dict[str, int]:
        return {"words": len(state["text"].split())}

    graph: Any = StateGraph(CountState)
    graph.add_node("count", count)
    graph.add_edge(START, "count")
    graph.add_edge("count", END)
    call = from_langgraph(
        graph.compile(),
        effect="read",
        state=lambda assignment: {"text": assignment.instruction},
        result=lambda values: {"words": values["words"]},
    )
    result = await one_worker(call).run("How many words?")
    assert result.results == {"t1": {"words": 3}}
    assert result.spent == Amount()


class Talk(TypedDict):
    messages: Annotated[list[Any], add_messages]


def calling_graph(*usages: UsageMetadata | None) -> Any:
    """A graph with a call of a model for each, whose replies do not name their model."""
    model = GenericFakeChatModel(messages=iter([AIMessage("12", usage_metadata=usage) for usage in usages]))

    async def count(state: Talk) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"]) for _ in usages]}

    graph: Any = StateGraph(Talk)
    graph.add_node("count", count)
    graph.add_edge(START, "count")
    graph.add_edge("count", END)
    return graph.compile()


async def test_tokens_of_a_graph_count_also_where_its_models_have_no_name() -> None:
    usage = UsageMetadata(input_tokens=100, output_tokens=10, total_tokens=110)
    call = from_langgraph(calling_graph(usage, usage), effect="read", price=PRICE)
    result = await one_worker(call).run("How many?")
    assert result.spent == Amount(tokens=220, micros=400, calls=2)
    assert result.notice == ""


async def test_what_is_not_known_of_usage_and_price_is_in_the_notice() -> None:
    usage = UsageMetadata(input_tokens=100, output_tokens=10, total_tokens=110)
    call = from_langgraph(calling_graph(usage, None), effect="read")
    result = await one_worker(call, budget=Budget(usd=1.0)).run("How many?")
    assert result.spent == Amount(tokens=110, calls=2)
    facts = [entry.event.fact for entry in result.entries if isinstance(entry.event, ev.Noted)]
    assert UsageUnknown("ann", 1, "tokens") in facts
    assert UsageUnknown("ann", 2, "price") in facts
    assert "Ann: a call of a model without a count of tokens" in result.notice
    assert "Ann: the price of a model is not known" in result.notice


def asking_graph(checkpointer: Any, question: object = "Which colour?") -> Any:
    def ask(state: Talk) -> dict[str, Any]:
        colour = interrupt(question)
        return {"messages": [("assistant", f"{len(state['messages'])} said, painted {colour}")]}

    graph: Any = StateGraph(Talk)
    graph.add_node("ask", ask)
    graph.add_edge(START, "ask")
    graph.add_edge("ask", END)
    return graph.compile(checkpointer=checkpointer)


async def test_an_interrupt_of_a_graph_is_a_question_to_a_person() -> None:
    team = one_worker(from_langgraph(asking_graph(InMemorySaver()), effect="idempotent"))
    waiting = await team.run("Paint it.", run="r1")
    assert waiting.question is not None
    assert waiting.question.text == "Which colour?"
    result = await team.resume("r1", "blue")
    assert result.answer == "1 said, painted blue"


@pytest.mark.parametrize(
    ("value", "text", "options"),
    [
        ({"question": "Which?", "options": ["red", "blue"]}, "Which?", ("red", "blue")),
        ({"question": "Which?", "wall": 3}, 'Which?\n{"wall":3}', ()),
        ({"question": "Which?", "options": [1, 2]}, 'Which?\n{"options":[1,2]}', ()),
        ({"tool": "pay", "ok": True}, '{"tool":"pay","ok":true}', ()),
    ],
)
async def test_the_question_and_the_options_of_an_interrupt_are_shown(
    value: object, text: str, options: tuple[str, ...]
) -> None:
    team = one_worker(from_langgraph(asking_graph(InMemorySaver(), value), effect="idempotent"))
    waiting = await team.run("Paint it.", run="r1")
    assert waiting.question is not None
    assert waiting.question.text == text
    assert waiting.question.question is not None
    assert waiting.question.question.options == options
    assert (await team.resume("r1", "blue")).answer == "1 said, painted blue"


async def test_an_agent_that_is_not_wrapped_is_refused_with_what_wraps_it() -> None:
    wrong: list[tuple[Any, str]] = [
        (Agent(TestModel()), r"pydantic_ai\.from_pydantic_ai"),
        (asking_graph(None), r"langgraph\.from_langgraph"),
        (OpenAIAgent("counter"), r"openai_agents\.from_openai_agents"),
    ]
    for agent, wrapper in wrong:
        with pytest.raises(Invalid, match=rf"wrap it: call=chargehand\.integrations\.{wrapper}\(\.\.\., effect="):
            Worker("ann", call=agent)


async def test_a_graph_that_asks_and_cannot_go_on_fails_with_what_to_do() -> None:
    (gap,) = (await one_worker(from_langgraph(asking_graph(None), effect="read")).run("Paint it.")).gaps
    assert "compile it with one" in gap.message
    journal = MemoryJournal()
    first = one_worker(from_langgraph(asking_graph(InMemorySaver()), effect="effect"), journal=journal)
    await first.run("Paint it.", run="r1")
    second = one_worker(from_langgraph(asking_graph(InMemorySaver()), effect="effect"), journal=journal)
    (gap,) = (await second.resume("r1", "blue")).gaps
    assert gap.reason == "logic"  # the graph was not called, so no effect is in doubt
    assert "a checkpointer that outlives the process" in gap.message


# --- OpenAI Agents


async def test_an_openai_agent_answers_and_what_it_used_counts() -> None:
    model = ScriptedOpenAIModel(said("There are 12."))
    agent = OpenAIAgent("counter", model=model)
    call = from_openai_agents(agent, effect="read", run_config=QUIET, price=PRICE)
    result = await one_worker(call, budget=Budget(usd=1.0)).run("How many?")
    assert result.answer == "There are 12."
    assert result.spent == Amount(tokens=110, micros=200, calls=1)


@pytest.mark.parametrize(("answer", "paid"), [("approve", ["7"]), ("reject", [])])
async def test_an_approval_of_openai_agents_is_asked_for_and_counted_once(answer: str, paid: list[str]) -> None:
    done: list[str] = []

    @function_tool(needs_approval=True)
    def pay(invoice: str) -> str:
        """Pay an invoice."""
        done.append(invoice)
        return "paid"

    model = ScriptedOpenAIModel(called("pay", '{"invoice": "7"}'), said("Done."))
    agent = OpenAIAgent("payer", model=model, tools=[pay])
    team = one_worker(from_openai_agents(agent, effect="effect", run_config=QUIET))
    waiting = await team.run("Pay it.", run="r1")
    assert waiting.question is not None
    assert waiting.question.text == 'May pay({"invoice": "7"}) be called?'
    result = await team.resume("r1", answer)
    assert (result.ending, result.answer, done) == ("complete", "Done.", paid)
    assert result.spent == Amount(tokens=220, calls=2)


# --- all of them in one team


def mixed_team(journal: MemoryJournal, failing: ScriptedOpenAIModel, held: asyncio.Event | None = None) -> Team:
    """Three agents of three frameworks, of which one cannot reach its model."""
    plan = Plan(
        (
            Task(TaskId("t1"), "Count these words.", "words"),
            Task(TaskId("t2"), "Count the plums.", "away"),
            Task(TaskId("t3"), "Count the pears.", "pears", after=(TaskId("t1"), TaskId("t2"))),
        ),
        "none",
    )
    workers = mixed_workers(failing, held)
    return Team(workers, supervisor=Supervisor(plan=plan), policy=POLICY, budget=Budget(usd=1.0), journal=journal)


async def test_agents_of_three_frameworks_in_one_team_where_one_fails_and_the_process_dies() -> None:
    journal = MemoryJournal()
    held = asyncio.Event()
    failing = outages(9)
    first = mixed_team(journal, failing, held)
    async with asyncio.TaskGroup() as group:
        job = group.create_task(first.run("Count.", run="r1"))
        await asyncio.wait_for(held.wait(), 60)
        job.cancel()
    asked = len(failing.asked)
    result = await mixed_team(journal, outages(0)).resume("r1")
    assert result.ending == "complete"
    assert asked == 2  # its attempts, and then the fallback did it
    assert result.results["t1"] == {"text": "Count these words.", "words": 3}
    assert result.results["t2"] == {"text": "Count the plums.", "words": 3}
    assert result.results["t3"] == {"text": "7 pears"}
    assert result.spent.calls == 1
    assert result.spent.micros > 0
    kinds = [entry.event.failure.kind for entry in result.entries if isinstance(entry.event, ev.AttemptFailed)]
    assert kinds == ["network", "network"]
