"""Workers whose provider runs tools: a paused turn goes on, what was found is from outside, and each search is paid."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import msgspec
import pytest
from msgspec import Struct, structs

from chargehand.agents.result import Result
from chargehand.agents.roles import Worker
from chargehand.engine import events as ev
from chargehand.engine.budget import Budget
from chargehand.engine.facts import Citation
from chargehand.engine.policy import Policy, Retry
from chargehand.errors import Invalid
from chargehand.journal.memory import MemoryJournal
from chargehand.models.anthropic import AnthropicMessages
from chargehand.models.messages import Reply
from chargehand.models.model import Model
from chargehand.models.openai import OpenAIChat
from chargehand.models.prices import PricedModel, flat
from chargehand.models.testing.fault_server import FaultServer
from chargehand.models.testing.server_tool_rules import FOUND, SERVER_TOOLS
from chargehand.team import Team
from chargehand.tools.rules import RequiresApproval
from chargehand.tools.tool import tool
from tests.agents.crowd import FREE, call, plan, team
from tests.agents.crowd import model as play
from tests.agents.options import make_team
from tests.agents.test_thoughts import cut, replies

TASK = "Find out how heavy an ostrich is."


@asynccontextmanager
async def serving(price: float = 1.0) -> AsyncGenerator[tuple[FaultServer, Model]]:
    async with FaultServer() as server:
        model = AnthropicMessages("anthropic:m", server.url(SERVER_TOOLS).removesuffix("/v1"), "m")
        yield server, PricedModel(model, flat(price, price))
        await model.close()


def searching_team(
    model: Model, journal: MemoryJournal | None = None, *, steps: int = 9, budget: Budget | None = None
) -> Team:
    ann = Worker("ann", "searches", model=model, tools=["provider:web_search"], steps=steps)
    script = play(plans=[plan((TASK, "ann", []), combine="forward")])
    options = {} if budget is None else {"budget": budget}
    policy = Policy(retry=Retry(base=0.001))
    return make_team([ann], model=script, journal=journal, policy=policy, name="searchers", **options)


def used(entries: Sequence[ev.Entry]) -> list[Reply]:
    return [reply for reply in replies(entries) if reply.provider_calls]


async def test_a_paused_turn_goes_on_and_what_was_found_counts_as_returned_by_a_tool() -> None:
    journal = MemoryJournal()
    async with serving() as (server, model):
        result = await searching_team(model, journal).run("How heavy?", run="r")
        assert server.requests == {SERVER_TOOLS: 2}
    assert result.ending == "complete"
    assert FOUND in str(result.answer)
    entries = (await journal.read("r"))[:]
    first, second = used(entries)
    assert (first.finish, second.finish) == ("paused", "stop")
    (tracing,) = [e.tracing for one in entries if isinstance(e := one.event, ev.AttemptSucceeded)]
    assert tracing is not None
    assert tracing.untraced == ()  # 104 kg was found, not made up


PAUSED_CARD = structs.replace(FREE, provider_tools=("web_search",))
CITED = tuple(Citation(source=name) for name in ("first.html", "second.html"))


async def result_of(*parts: Reply, steps: int = 9, output: type | None = None) -> tuple[Result, Sequence[ev.Entry]]:
    """Run a worker whose model says these parts, and return the result and the entries of its run."""
    journal = MemoryJournal()
    script = play(work=parts, card=PAUSED_CARD)
    ann = Worker("ann", tools=["provider:web_search"], steps=steps, output=output)
    result = await team(script, ann, journal=journal).run("Count", run="r")
    return result, (await journal.read("r"))[:]


def paused(text: str, *citations: Citation) -> Reply:
    return Reply(text, (), "paused", provider_calls=1, citations=citations)


async def test_the_result_of_a_paused_turn_is_the_text_of_all_its_parts() -> None:
    parts = paused("The ostrich ", CITED[0]), paused("is a bird "), Reply("that runs.", citations=CITED[1:])
    result, entries = await result_of(*parts)
    assert result.answer == "The ostrich is a bird that runs."
    assert [reply.text for reply in replies(entries)][-3:] == ["The ostrich ", "is a bird ", "that runs."]
    (tracing,) = [e.tracing for one in entries if isinstance(e := one.event, ev.AttemptSucceeded)]
    assert tracing is not None
    assert [citation.source for citation in tracing.citations] == ["first.html", "second.html"]


async def test_a_turn_that_says_all_before_its_pause_has_a_result() -> None:
    result, _ = await result_of(paused("An ostrich runs."), Reply(""), steps=2)
    assert result.answer == "An ostrich runs."


async def test_the_value_of_a_paused_turn_is_read_from_all_its_parts() -> None:
    class Bird(Struct):
        name: str
        runs: bool

    result, entries = await result_of(paused('{"name": "ostrich", '), Reply('"runs": true}'), steps=2, output=Bird)
    (done,) = [e for one in entries if isinstance(e := one.event, ev.AttemptSucceeded)]
    assert result.ending == "complete"
    assert msgspec.json.decode(done.result, type=Bird) == Bird("ostrich", runs=True)


async def test_what_was_said_before_a_call_of_a_tool_is_no_part_of_the_result() -> None:
    @tool(effect="read")
    def weigh(bird: str) -> str:
        """Weigh a bird."""
        return f"{bird} is heavy"

    journal = MemoryJournal()
    asked = Reply("I weigh it.", (call("weigh", bird="ostrich"),), "tools")
    script = play(work=[paused("I look. "), asked, "It is heavy."], card=PAUSED_CARD)
    ann = Worker("ann", tools=[weigh, "provider:web_search"])
    result = await team(script, ann, journal=journal).run("Count")
    assert result.answer == "It is heavy."


async def test_searches_are_paid_for_and_reserved() -> None:
    journal = MemoryJournal()
    async with serving() as (_, model):
        result = await searching_team(model, journal, budget=Budget(usd=1.0)).run("How heavy?", run="r")
    assert result.ending == "complete"
    # two calls of 1,000 tokens in and 50 out, and a search in each
    spent = sum(
        e.used.micros for one in await journal.read("r") if isinstance(e := one.event, ev.StepFinished) and e.used
    )
    assert spent == 2 * (1_050 + 10_000)
    async with serving(price=0.001) as (server, model):  # its tokens cost next to nothing, five searches 0.05
        poor = await searching_team(model, budget=Budget(usd=0.04)).run("How heavy?")
        assert server.requests[SERVER_TOOLS] == 0
    assert poor.ending != "complete"


async def test_a_run_that_is_resumed_after_any_entry_sends_the_blocks_back() -> None:
    async with serving() as (server, model):
        journal = MemoryJournal()
        await searching_team(model, journal).run("How heavy?", run="r")
        entries = (await journal.read("r"))[:]
        begins = next(at for at, one in enumerate(entries, 1) if isinstance(one.event, ev.StepStarted))
        for at in range(begins, len(entries)):
            server.requests.clear()
            team = searching_team(model, await cut(entries, at))
            assert (await team.resume("r")).ending == "complete"
            assert server.requests[SERVER_TOOLS] == 2 - len(replies(entries[:at])), f"cut after {at}"


async def test_a_pause_is_a_step() -> None:
    async with serving() as (server, model):
        result = await searching_team(model, steps=1).run("How heavy?")
        assert server.requests[SERVER_TOOLS] >= 1
    assert result.ending != "complete"
    assert "no result after 1 steps" in msgspec.json.encode(result.gaps).decode()


@pytest.mark.parametrize("provider_calls", [0, 1])
async def test_an_effect_after_a_search_is_asked_about(provider_calls: int) -> None:
    sent: list[str] = []

    @tool(effect="effect")
    def send(to: str) -> str:
        """Send a mail."""
        sent.append(to)
        return "sent"

    card = structs.replace(FREE, provider_tools=("web_search",))
    first = Reply(calls=(call("send", to="bob"),), finish="tools", provider_calls=provider_calls)
    script = play(work=[first, "It is sent."], card=card)
    ann = Worker("ann", tools=[send, "provider:web_search"])
    await team(script, ann).run("Count")
    assert sent == ([] if provider_calls else ["bob"])
    worked = next(asked for asked in script.requests if asked.provider_tools)
    assert worked.provider_tools == ("web_search",)
    assert "web_search" not in [spec.name for spec in worked.tools]


# --- who may have them


def test_a_model_without_the_tool_is_refused_when_the_team_is_made() -> None:
    ann = Worker("ann", "searches", model="openai:gpt-4o", tools=["provider:web_search"])
    said = r"worker 'ann' uses provider:web_search, .* openai:gpt-4o has none; models of anthropic, google"
    with pytest.raises(Invalid, match=said):
        Team([ann])
    fallback = Worker("ann", "x", model="anthropic:m", fallback_models=["mistral:m"], tools=["provider:web_search"])
    with pytest.raises(Invalid, match="mistral:m has none"):
        Team([fallback])
    with pytest.raises(Invalid, match="groq:m has only provider:web_search"):
        Team([Worker("ann", "x", model="groq:m", tools=["provider:web_fetch"])])
    with pytest.raises(Invalid, match=r"no provider has a tool 'provider:web_serch'; .*provider:web_search"):
        Team([Worker("ann", "x", tools=["provider:web_serch"])])
    with pytest.raises(Invalid, match="o:m has none"):
        Team([Worker("ann", "x", model=OpenAIChat("o:m", "http://h", "m"), tools=["provider:web_search"])])


def test_a_rule_for_such_a_tool_is_refused() -> None:
    ann = Worker("ann", "x", model="anthropic:m", tools=["provider:web_search"], rules=[RequiresApproval("web_search")])
    with pytest.raises(Invalid, match="web_search"):
        Team([ann])
