"""Workers of three frameworks: one counts pears, one counts words, one cannot reach its model."""

import asyncio
from typing import Any, NotRequired, TypedDict

from agents import Agent as OpenAIAgent
from agents import RunConfig
from langgraph.graph import END, START, StateGraph  # pyright: ignore[reportMissingTypeStubs] - it has none
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from chargehand import Policy, Retry, Worker
from chargehand.integrations.langgraph import from_langgraph
from chargehand.integrations.openai_agents import from_openai_agents
from chargehand.integrations.pydantic_ai import from_pydantic_ai
from chargehand.models.rates import Price
from tests.integrations.foreign_models import ScriptedOpenAIModel

POLICY = Policy(retry=Retry(attempts=2, base=0.01))
PRICE = Price(input=1.0, output=10.0, cached=0.1)
QUIET = RunConfig(tracing_disabled=True)


class CountState(TypedDict):
    text: str
    words: NotRequired[int]


def outages(count: int) -> ScriptedOpenAIModel:
    """A model that is away for so many calls."""
    return ScriptedOpenAIModel(*[ConnectionError("the model is away") for _ in range(count)])


def mixed_workers(failing: ScriptedOpenAIModel, held: asyncio.Event | None = None) -> list[Worker]:
    """The worker `pears` sets `held`, if there is one, and waits for ever."""

    async def reply(_messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
        if held is not None:
            held.set()
            await asyncio.sleep(3600)
        return ModelResponse([TextPart("7 pears")])

    def count(state: CountState) -> dict[str, int]:
        return {"words": len(state["text"].split())}

    graph: Any = StateGraph(CountState)
    graph.add_node("count", count)
    graph.add_edge(START, "count")
    graph.add_edge("count", END)
    words = from_langgraph(graph.compile(), effect="read", state=lambda assignment: {"text": assignment.instruction})
    away = OpenAIAgent("away", model=failing)
    return [
        Worker("pears", call=from_pydantic_ai(Agent(FunctionModel(reply)), effect="read", price=PRICE)),
        Worker("words", call=words),
        Worker("away", call=from_openai_agents(away, effect="read", run_config=QUIET), fallbacks=["words"]),
    ]
