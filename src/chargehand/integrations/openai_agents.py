"""An agent of the OpenAI Agents SDK as a worker. Needs `pip install 'chargehand[openai-agents]'`."""

from collections.abc import Callable, Mapping
from typing import Any, cast

from chargehand.agents.executor import Assignment
from chargehand.engine.events import Effect
from chargehand.engine.failure import Failure
from chargehand.extras import OfExtra
from chargehand.integrations.foreign_agents import (
    APPROVE,
    AgentTurn,
    AgentUsage,
    AgentWorker,
    ForeignAgent,
    Prompt,
    approval_question,
    check_agent,
    place_of,
    preparing,
    task_text,
)
from chargehand.models.rates import Price

with OfExtra("this", "openai-agents"):
    from agents import Agent, AgentsException, MaxTurnsExceeded, ModelBehaviorError, RunConfig, Runner, RunResult
    from agents.run_state import RunState
    from agents.usage import Usage
    from pydantic_core import to_jsonable_python


def from_openai_agents(
    agent: "Agent[Any]",
    *,
    effect: Effect,
    prompt: Prompt = task_text,
    context: Callable[[Assignment], object] | None = None,
    max_turns: int = 10,
    run_config: "RunConfig | None" = None,
    price: Price | None = None,
) -> AgentWorker:
    """The `call` of a worker: `Worker("ann", call=from_openai_agents(agent, effect="read"))`.

    Args:
        agent: The agent. Calls of tools with `needs_approval` become questions to a person.
        effect: What its tools do to the world: `read`, `idempotent` or `effect`. Only the first two are repeated
            after a crash.
        prompt: What it is told; left out, the task, its inputs and why the last attempt failed.
        context: Makes the context object of its tools.
        max_turns: How often its model may be called.
        run_config: Its settings, such as `tracing_disabled`.
        price: What its model costs: `Price(input=0.25, output=2, cached=0.025)`, in dollars per million tokens.

    """
    check_agent(agent, Agent, "an Agent of the OpenAI Agents SDK")
    return AgentWorker(_OpenAIAgent(agent, prompt, context, max_turns, run_config), effect, price)


class _OpenAIAgent(ForeignAgent):
    framework = "openai-agents"

    def __init__(
        self,
        agent: "Agent[Any]",
        prompt: Prompt,
        context: Callable[[Assignment], object] | None,
        max_turns: int,
        run_config: "RunConfig | None",
    ) -> None:
        self._agent = agent
        self._prompt = prompt
        self._context = context
        self._max_turns = max_turns
        self._run_config = run_config

    async def start(self, assignment: Assignment, usage: AgentUsage) -> AgentTurn:
        with preparing():
            context = None if self._context is None else self._context(assignment)
            prompt = self._prompt(assignment)
        return await self._run(prompt, usage, context=context)

    async def go_on(
        self, assignment: Assignment, state: object, answers: Mapping[str, object], usage: AgentUsage
    ) -> AgentTurn:
        with preparing():
            override: Any = None if self._context is None else self._context(assignment)
            stored = cast("dict[str, Any]", state)
            run_state = await RunState.from_json(self._agent, stored, context_override=override)
        for item in run_state.get_interruptions():
            if answers.get(item.call_id or "") == APPROVE:
                run_state.approve(item)
            else:
                run_state.reject(item, rejection_message="A person rejected this call.")
        before = run_state.to_json()["context"]["usage"]
        usage.input -= int(before["input_tokens"])  # the state counts from the first turn on
        usage.output -= int(before["output_tokens"])
        usage.calls -= int(before["requests"])
        return await self._run(run_state, usage)

    async def _run(self, run_input: Any, usage: AgentUsage, **options: Any) -> AgentTurn:
        usage.model = self._agent.model if isinstance(self._agent.model, str) else ""
        try:
            result = await Runner.run(
                self._agent, run_input, max_turns=self._max_turns, run_config=self._run_config, **options
            )
        except AgentsException as error:
            if error.run_data is not None:
                _add(usage, error.run_data.context_wrapper.usage)
            raise
        _add(usage, result.context_wrapper.usage)
        return _turn(result)

    def failure(self, error: Exception) -> Failure | None:
        if isinstance(error, MaxTurnsExceeded):
            return Failure("logic", str(error), code="too_many_steps")
        if isinstance(error, ModelBehaviorError):
            return Failure("logic", str(error), code="wrong_output")
        return None


def _turn(result: "RunResult") -> AgentTurn:
    items = result.interruptions
    if not items:
        return AgentTurn(to_jsonable_python(result.final_output))
    questions = tuple(
        approval_question(item.call_id or "", item.name or "a tool", item.arguments or "{}", place_of(number, items))
        for number, item in enumerate(items, 1)
    )
    return AgentTurn(questions=questions, state=result.to_state().to_json())


def _add(usage: AgentUsage, spent: "Usage") -> None:
    usage.input += spent.input_tokens
    usage.output += spent.output_tokens
    usage.calls += spent.requests
