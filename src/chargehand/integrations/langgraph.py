"""A LangGraph graph as a worker. Needs `pip install 'chargehand[langgraph]'`."""

from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any, Protocol, cast, runtime_checkable

from msgspec import json

from chargehand.agents.executor import Assignment
from chargehand.engine.events import Effect
from chargehand.engine.failure import Failure
from chargehand.extras import OfExtra
from chargehand.integrations.foreign_agents import (
    AgentQuestion,
    AgentTurn,
    AgentUsage,
    AgentWorker,
    ForeignAgent,
    check_agent,
    preparing,
    task_text,
)
from chargehand.models.rates import Price
from chargehand.runtime.executor import WorkFailed

with OfExtra("this", "langgraph"):
    from langchain_core.callbacks import BaseCallbackHandler
    from langchain_core.messages import AIMessage, BaseMessage
    from langchain_core.outputs import LLMResult
    from langgraph.errors import GraphRecursionError
    from langgraph.types import Command
    from pydantic_core import to_jsonable_python


@runtime_checkable
class CompiledGraph(Protocol):
    """What is used of a compiled graph."""

    checkpointer: Any

    async def ainvoke(self, input: Any, config: Any) -> dict[str, Any]: ...  # noqa: A002 - its own name

    async def aget_state(self, config: Any) -> Any: ...


def _messages(assignment: Assignment) -> dict[str, object]:
    return {"messages": [("user", task_text(assignment))]}


def _last_message(values: Mapping[str, Any]) -> object:
    messages = values.get("messages")
    return messages[-1].text if messages and isinstance(messages[-1], BaseMessage) else dict(values)


def from_langgraph(
    graph: CompiledGraph,
    *,
    effect: Effect,
    state: Callable[[Assignment], object] = _messages,
    result: Callable[[Mapping[str, Any]], object] = _last_message,
    price: Price | None = None,
) -> AgentWorker:
    """The `call` of a worker: `Worker("ann", call=from_langgraph(graph, effect="read"))`.

    Args:
        graph: A compiled graph. With a checkpointer, its interrupts become questions to a person, and a run that a
            crash cut off goes on at its last checkpoint.
        effect: What its nodes do to the world: `read`, `idempotent` or `effect`. Only the first two are repeated
            after a crash.
        state: Makes its first state; left out, `{"messages": [("user", TASK)]}`.
        result: Reads the result off its last state; left out, the last message, or all of the state.
        price: What its models cost, in dollars per million tokens.

    """
    check_agent(graph, CompiledGraph, "a compiled graph: graph.compile()")
    return AgentWorker(_Graph(graph, state, result), effect, price)


class _Graph(ForeignAgent):
    framework = "langgraph"

    def __init__(
        self,
        graph: CompiledGraph,
        state: Callable[[Assignment], object],
        result: Callable[[Mapping[str, Any]], object],
    ) -> None:
        self._graph = graph
        self._state = state
        self._result = result

    async def start(self, assignment: Assignment, usage: AgentUsage) -> AgentTurn:
        with preparing():
            graph_input = None if await self._is_begun(assignment) else self._state(assignment)
        return await self._run(assignment, graph_input, usage)

    async def go_on(
        self,
        assignment: Assignment,
        state: object,  # noqa: ARG002 - its checkpointer has it
        answers: Mapping[str, object],
        usage: AgentUsage,
    ) -> AgentTurn:
        with preparing():
            if not await self._is_begun(assignment):
                message = (
                    "the checkpoint of the graph is gone; compile it with a checkpointer that outlives the process"
                )
                raise WorkFailed(Failure("logic", message))
        return await self._run(assignment, Command(resume=dict(answers)), usage)

    async def _is_begun(self, assignment: Assignment) -> bool:
        """Whether a checkpoint of this attempt has something left to do."""
        if self._graph.checkpointer is None:
            return False
        snapshot = await self._graph.aget_state(_thread(assignment))
        return bool(snapshot.next)

    async def _run(self, assignment: Assignment, graph_input: object, usage: AgentUsage) -> AgentTurn:
        config: Any = {**_thread(assignment), "callbacks": [_UsageCounter(usage)]}
        values = await self._graph.ainvoke(graph_input, config)
        interrupts = values.pop("__interrupt__", ())
        if not interrupts:
            return AgentTurn(to_jsonable_python(self._result(values)))
        if self._graph.checkpointer is None:
            message = "the graph has an interrupt and no checkpointer; compile it with one, so that it can go on"
            raise WorkFailed(Failure("logic", message, permanent=True))
        return AgentTurn(questions=tuple(_question(interrupt) for interrupt in interrupts))

    def failure(self, error: Exception) -> Failure | None:
        return Failure("logic", str(error), code="too_many_steps") if isinstance(error, GraphRecursionError) else None


class _UsageCounter(BaseCallbackHandler):
    """Counts the calls of models and their tokens, also of models that do not say their name."""

    def __init__(self, usage: AgentUsage) -> None:
        self._usage = usage
        self._lock = Lock()  # calls are reported from threads

    def on_llm_end(self, response: LLMResult, **_options: Any) -> None:
        message = getattr(response.generations[0][0], "message", None) if any(response.generations) else None
        tokens = message.usage_metadata if isinstance(message, AIMessage) else None
        with self._lock:
            self._usage.calls += 1
            if tokens is None:
                self._usage.unmetered += 1
            else:
                self._usage.input += tokens["input_tokens"]
                self._usage.output += tokens["output_tokens"]
                read = tokens.get("input_token_details", {})
                self._usage.cached += read.get("cache_read", 0)
                self._usage.cache_written += read.get("cache_creation", 0)
                self._usage.reasoning += tokens.get("output_token_details", {}).get("reasoning", 0)
            if isinstance(message, AIMessage) and not self._usage.model:
                self._usage.model = str(message.response_metadata.get("model_name", ""))


def _thread(assignment: Assignment) -> Any:
    return {"configurable": {"thread_id": assignment.key}}


def _question(interrupt: Any) -> AgentQuestion:
    """What an interrupt asks: text, a `question` with `options` in a dict, or any other value as JSON."""
    value: object = to_jsonable_python(interrupt.value, fallback=str)
    if isinstance(value, str):
        return AgentQuestion(interrupt.id, value)
    fields = cast("dict[str, object]", value) if isinstance(value, dict) else {}
    question = fields.get("question")
    if not isinstance(question, str):
        return AgentQuestion(interrupt.id, json.encode(value).decode())
    options = fields.get("options")
    texts = cast("list[object]", options) if isinstance(options, list) else []
    has_options = bool(texts) and all(isinstance(text, str) for text in texts)
    shown = ("question", "options") if has_options else ("question",)
    more = {name: field for name, field in fields.items() if name not in shown}
    text = f"{question}\n{json.encode(more).decode()}" if more else question
    return AgentQuestion(interrupt.id, text, tuple(cast("list[str]", texts)) if has_options else ())
