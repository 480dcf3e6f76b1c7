"""A Pydantic AI agent as a worker. Needs `pip install 'chargehand[pydantic-ai]'`."""

from collections.abc import Callable, Mapping
from typing import Any

from chargehand.agents.executor import Assignment
from chargehand.engine.events import Effect
from chargehand.engine.failure import Failure
from chargehand.extras import OfExtra
from chargehand.integrations.foreign_agents import (
    APPROVE,
    AgentQuestion,
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

with OfExtra("this", "pydantic-ai"):
    from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, ToolDenied
    from pydantic_ai.agent import AbstractAgent
    from pydantic_ai.exceptions import UnexpectedModelBehavior, UsageLimitExceeded
    from pydantic_ai.messages import ModelMessagesTypeAdapter
    from pydantic_ai.run import AgentRunResult
    from pydantic_ai.usage import RunUsage
    from pydantic_core import to_jsonable_python


def from_pydantic_ai(
    agent: "Agent[Any, Any]",
    *,
    effect: Effect,
    prompt: Prompt = task_text,
    deps: Callable[[Assignment], object] | None = None,
    price: Price | None = None,
) -> AgentWorker:
    """The `call` of a worker: `Worker("ann", call=from_pydantic_ai(agent, effect="read"))`.

    Args:
        agent: The agent. With `DeferredToolRequests` among its output types its approvals and deferred calls become
            questions to a person.
        effect: What its tools do to the world: `read`, `idempotent` or `effect`. Only the first two are repeated
            after a crash.
        prompt: What it is told; left out, the task, its inputs and why the last attempt failed.
        deps: Makes its dependencies.
        price: In place of what the price list of Pydantic AI says.

    """
    check_agent(agent, AbstractAgent, "an Agent of Pydantic AI")
    return AgentWorker(_PydanticAgent(agent, prompt, deps), effect, price)


class _PydanticAgent(ForeignAgent):
    framework = "pydantic-ai"

    def __init__(self, agent: "Agent[Any, Any]", prompt: Prompt, deps: Callable[[Assignment], object] | None) -> None:
        self._agent = agent
        self._prompt = prompt
        self._deps = deps

    async def start(self, assignment: Assignment, usage: AgentUsage) -> AgentTurn:
        with preparing():
            prompt = self._prompt(assignment)
        return await self._run(assignment, usage, user_prompt=prompt)

    async def go_on(
        self, assignment: Assignment, state: object, answers: Mapping[str, object], usage: AgentUsage
    ) -> AgentTurn:
        approvals: dict[str, Any] = {}
        calls: dict[str, Any] = {}
        for name, answer in answers.items():
            if name.startswith(_APPROVAL):
                approved = answer == APPROVE
                approvals[name.removeprefix(_APPROVAL)] = approved or ToolDenied("A person rejected this call.")
            else:
                calls[name] = answer
        with preparing():
            history = ModelMessagesTypeAdapter.validate_python(state)
        results = DeferredToolResults(approvals=approvals, calls=calls)
        return await self._run(assignment, usage, message_history=history, deferred_tool_results=results)

    async def _run(self, assignment: Assignment, usage: AgentUsage, **options: Any) -> AgentTurn:
        spent = RunUsage()
        if self._deps is not None:
            with preparing():
                options["deps"] = self._deps(assignment)
        try:
            result = await self._agent.run(usage=spent, **options)
        finally:
            usage.input = spent.input_tokens
            usage.output = spent.output_tokens
            usage.cached = spent.cache_read_tokens
            usage.cache_written = spent.cache_write_tokens
            usage.reasoning = spent.output_reasoning_tokens
            usage.calls = spent.requests
            usage.usd = None if spent.cost is None else float(spent.cost)
        usage.model = result.response.model_name or ""
        return self._turn(result)

    def _turn(self, result: "AgentRunResult[Any]") -> AgentTurn:
        output = result.output
        if not isinstance(output, DeferredToolRequests):
            return AgentTurn(to_jsonable_python(output))
        calls = (*output.approvals, *output.calls)
        questions: list[AgentQuestion] = []
        for number, part in enumerate(output.approvals, 1):
            place = place_of(number, calls)
            identity = f"{_APPROVAL}{part.tool_call_id}"
            questions.append(approval_question(identity, part.tool_name, part.args or {}, place))
        for part in output.calls:
            text = f"What is the result of {part.tool_name}({part.args_as_json_str()})?"
            questions.append(AgentQuestion(part.tool_call_id, text))
        return AgentTurn(questions=tuple(questions), state=to_jsonable_python(result.all_messages()))

    def failure(self, error: Exception) -> Failure | None:
        if isinstance(error, UsageLimitExceeded):
            return Failure("budget", str(error))
        if isinstance(error, UnexpectedModelBehavior):
            return Failure("logic", str(error), code="wrong_output")
        return None


_APPROVAL = "approval:"
"""Before the ids of calls that need approval; the others need a result."""
