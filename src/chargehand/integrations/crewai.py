"""A CrewAI crew as a worker. Needs `pip install crewai` (800 MB, so it is no extra)."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

from chargehand.agents.executor import Assignment
from chargehand.engine.events import Effect
from chargehand.errors import Invalid
from chargehand.integrations.foreign_agents import (
    AgentTurn,
    AgentUsage,
    AgentWorker,
    ForeignAgent,
    check_agent,
    preparing,
    task_text,
)
from chargehand.models.rates import Price


@runtime_checkable
class AnyCrew(Protocol):
    """What is used of a crew."""

    tasks: list[Any]

    def copy(self) -> Any: ...


def _inputs(assignment: Assignment) -> dict[str, Any]:
    return {**assignment.inputs, "task": task_text(assignment), "goal": assignment.goal}


def from_crewai(
    crew: AnyCrew,
    *,
    effect: Effect,
    inputs: Callable[[Assignment], Mapping[str, Any]] = _inputs,
    price: Price | None = None,
) -> AgentWorker:
    """The `call` of a worker: `Worker("ann", call=from_crewai(crew, effect="read"))`.

    Args:
        crew: The crew. Each attempt works with a copy of it. `human_input` is refused: it would read the terminal.
        effect: What its tools do to the world: `read`, `idempotent` or `effect`. Only the first two are repeated
            after a crash.
        inputs: What fills the `{names}` of its tasks; left out, `task`, `goal` and the inputs of the task by their ids.
        price: What its models cost, in dollars per million tokens.

    """
    check_agent(crew, AnyCrew, "a Crew of CrewAI")
    if any(task.human_input for task in crew.tasks):
        raise Invalid("a task of the crew has human_input, which reads the terminal; leave it out")
    return AgentWorker(_CrewAgent(crew, inputs), effect, price)


class _CrewAgent(ForeignAgent):
    framework = "crewai"

    def __init__(self, crew: AnyCrew, inputs: Callable[[Assignment], Mapping[str, Any]]) -> None:
        self._crew = crew
        self._inputs = inputs

    async def start(self, assignment: Assignment, usage: AgentUsage) -> AgentTurn:
        with preparing():
            crew: Any = self._crew.copy()
            inputs = dict(self._inputs(assignment))
        try:
            result: Any = await crew.akickoff(inputs=inputs)
        finally:
            spent = crew.calculate_usage_metrics()
            usage.input = spent.prompt_tokens
            usage.output = spent.completion_tokens
            usage.calls = spent.successful_requests
        output = result.pydantic or result.json_dict or result.raw
        return AgentTurn(output.model_dump(mode="json") if output is result.pydantic else output)
