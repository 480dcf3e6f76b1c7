"""Workers with many tools: their models search for those they need, and go on after a stop or a fallback."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec import structs

from chargehand.agents.roles import Worker
from chargehand.agents.setup import make_ready
from chargehand.agents.spending import Spending
from chargehand.engine import events as ev
from chargehand.engine.budget import Budget
from chargehand.engine.failure import Failure
from chargehand.engine.policy import Policy, Retry
from chargehand.journal.memory import MemoryJournal
from chargehand.models.anthropic import AnthropicMessages
from chargehand.models.messages import Message, Reply, Request, Settings
from chargehand.models.model import Hear, Model, ModelFailed
from chargehand.models.openai import OpenAIChat
from chargehand.models.openai_responses import OpenAIResponses
from chargehand.models.testing.fault_server import FaultServer
from chargehand.models.testing.tool_search_rules import TOOL_SEARCH
from chargehand.models.token_count import TOOLS, TokenRates
from chargehand.models.wire import HttpModel
from chargehand.team import Team
from chargehand.tools.rules import Conditional, ExitLoop, MaxCount, RequiredBeforeExit, RunFirst
from chargehand.tools.tool import Tool, tool
from tests.agents.crowd import model as play
from tests.agents.crowd import plan
from tests.agents.options import make_team
from tests.agents.test_thoughts import cut, replies

TASK = "Find out what it is. [[tool:look_3]]"
PROTOCOLS = ["anthropic", "responses"]


def look(number: int, says: str) -> Tool:
    def made() -> str:
        """Look at it in a way of its own, and say what there is to be seen of it."""
        return says

    made.__name__ = f"look_{number}"
    return tool(made)


TOOLS_OF_ANN = [
    look(number, {3: "It has feathers. [[tool:look_17]]"}.get(number, "It is an ostrich.")) for number in range(25)
]


def make(protocol: str, server: FaultServer) -> HttpModel:
    made = {"anthropic": AnthropicMessages, "responses": OpenAIResponses, "chat": OpenAIChat}[protocol]
    return made(f"{protocol}:m", server.url(TOOL_SEARCH), "m", tool_search=True)


@asynccontextmanager
async def serving() -> AsyncGenerator[tuple[FaultServer, Callable[[str], HttpModel]]]:
    models: list[HttpModel] = []

    async with FaultServer() as server:

        def made(protocol: str) -> HttpModel:
            models.append(make(protocol, server))
            return models[-1]

        yield server, made
        for model in models:
            await model.close()


def searching_team(models: Sequence[Model], journal: MemoryJournal | None = None) -> Team:
    ann = Worker("ann", "looks", model=models[0], fallback_models=list(models[1:]), tools=TOOLS_OF_ANN)
    script = play(plans=[plan((TASK, "ann", []), combine="forward")])
    return make_team([ann], model=script, journal=journal, policy=Policy(retry=Retry(base=0.001)))


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_worker_searches_for_the_tools_it_calls(protocol: str) -> None:
    journal = MemoryJournal()
    async with serving() as (_, made):
        result = await searching_team([made(protocol)], journal).run("Look", run="r")
    assert (result.ending, "ostrich" in str(result.answer)) == ("complete", True)
    found = replies((await journal.read("r"))[:])
    assert [[call.name for call in reply.calls] for reply in found] == [["look_3"], ["look_17"], []]
    assert [reply.tool_searches for reply in found] == [1, 1, 0]


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_run_that_is_resumed_after_any_entry_searches_for_nothing_twice(protocol: str) -> None:
    async with serving() as (server, made):
        journal = MemoryJournal()
        await searching_team([made(protocol)], journal).run("Look", run="r")
        entries = (await journal.read("r"))[:]
        begins = next(at for at, one in enumerate(entries, 1) if isinstance(one.event, ev.StepStarted))
        for at in range(begins, len(entries)):
            server.requests.clear()
            left = await cut(entries, at)
            assert (await searching_team([made(protocol)], left).resume("r")).ending == "complete"
            assert server.requests[TOOL_SEARCH] == 3 - len(replies(entries[:at])), f"cut after {at}"
            searches = [reply.tool_searches for reply in replies((await left.read("r"))[:])]
            assert searches == [1, 1, 0], f"cut after {at}"


class Faltering:
    """A model that answers so many times, then fails once."""

    def __init__(self, model: Model, fails_at: int) -> None:
        self.card = model.card
        self._model = model
        self._left = fails_at

    async def reply(self, request: Request, hear: Hear | None = None) -> Reply:
        self._left -= 1
        if self._left == -1:
            raise ModelFailed(Failure("network", "it is gone"), billed=False)
        return await self._model.reply(request, hear)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("other", ["chat", *PROTOCOLS])
async def test_a_fallback_model_goes_on_and_hands_back(protocol: str, other: str) -> None:
    journal = MemoryJournal()
    async with serving() as (_, made):
        models = [Faltering(made(protocol), 1), made(other)]
        result = await searching_team(models, journal).run("Look", run="r")
    assert result.ending == "complete"
    found = replies((await journal.read("r"))[:])
    assert [[call.name for call in reply.calls] for reply in found] == [["look_3"], ["look_17"], []]
    assert [reply.tool_searches for reply in found] == [1, other != "chat", 0]


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_reservation_covers_searches_and_what_they_find(protocol: str) -> None:
    """A search reads the request anew, so it counts most where the messages are long."""
    async with serving() as (_, made):
        model = made(protocol)
        specs = make_ready(Worker("ann", "looks", tools=TOOLS_OF_ANN), [model]).specs
        asked = Message("user", "It may be a bird. " * 2_000 + "[[tool:look_3]] [[tool:look_17]]")
        request = Request((asked,), specs, settings=Settings(max_tokens=100))
        spending = Spending(Budget(tokens=1_000_000))
        reservation = spending.reserve([model], request)
        most, usual = reservation.most_read(model), reservation.read(model)
        reply = await model.reply(request)
        assert (reply.tool_searches, reply.usage is not None) == (2, True)
        assert reply.usage is not None
        assert usual < reply.usage.input <= most
        plain = made("chat")
        assert spending.reserve([plain], request).most_read(plain) < reply.usage.input
        once = structs.replace(reply.usage, input=reply.usage.input // 3)
        for _ in range(4):
            reservation.learn(model, once)
        assert reservation.read(model) == pytest.approx(once.input, rel=0.15)


async def test_what_is_searched_for_takes_no_room_in_the_window() -> None:
    async with serving() as (_, made):
        plain, one, two = made("chat"), made("anthropic"), made("responses")
        ann = Worker("ann", "looks", tools=TOOLS_OF_ANN)
        rates = TokenRates()
        whole, searching, mixed = (make_ready(ann, models) for models in ([plain], [one, two], [one, plain]))
        assert rates.estimate(searching.beside) < rates.estimate(whole.beside) / 5
        assert mixed.beside == whole.beside
        assert searching.searched[TOOLS] + searching.beside[TOOLS] == pytest.approx(whole.beside[TOOLS])


async def test_tools_that_rules_demand_are_never_searched_for() -> None:
    rules = [
        RunFirst("look_0"),
        ExitLoop("look_1"),
        RequiredBeforeExit("look_2"),
        Conditional("look_3", {"yes": "look_4"}, otherwise="look_5"),
        MaxCount("look_6", 1),
    ]
    async with serving() as (_, made):
        model = made("anthropic")
        ready = make_ready(Worker("ann", "looks", tools=TOOLS_OF_ANN, rules=rules), [model])
        names = {"look_0", "look_1", "look_2", "look_4", "look_5", "give_up"}
        assert {spec.name for spec in ready.specs if spec.at_once} == names
        body: Any = model._write(Request((), ready.specs), 1_000, None)
        kept = [each["name"] for each in body["tools"] if "defer_loading" not in each]
        assert set(kept) == {*names, "tool_search_tool_bm25"}
