"""The supervisor of a team, as people declare it."""

from collections.abc import Callable, Mapping, Sequence

from msgspec import field, structs

from chargehand.agents.hedging import Hedge
from chargehand.agents.strategies import Strategy, Whole
from chargehand.agents.worker import Factory
from chargehand.engine.declared import Declared, WrittenDuration, seconds_of
from chargehand.engine.plan import Combine, Plan
from chargehand.models.messages import Settings
from chargehand.models.providers import BUILT_IN
from chargehand.models.wrappers import AnyModel, as_model


class SupervisorKeys(Declared, frozen=True, kw_only=True):
    """What a supervisor declares in the same words and types in Python and in a team file."""

    instructions: str = ""
    """What it is told about the team."""
    review: bool = False
    """The planner sees the results and may add tasks."""
    stream_plan: bool = False
    """Tasks start while the plan is still being written."""
    timeout: WrittenDuration | None = None
    """How long one plan, refined task or answer may take; left out, 120 seconds."""
    settings: Settings = Settings()
    """Temperature and the longest reply of its models."""


class Supervisor(SupervisorKeys, frozen=True, kw_only=True):
    """The role that plans, hands out tasks, refines what failed and writes the answer."""

    model: AnyModel = BUILT_IN
    """Its model, and that of every worker without one of its own: a handle such as `openai:gpt-5-mini`, or a model."""
    planner: AnyModel = ""
    """The model that plans and refines; left out, `model`."""
    judge: AnyModel = ""
    """The model that writes the answer and decides between results; left out, `model`."""
    strategy: Strategy = Whole()
    """How requests become tasks: one plan, a route, a loop, a chat, recursive splitting."""
    plan: Plan | None = None
    """A fixed plan for every request; left out, it makes one."""
    combine: Combine | Callable[..., object] | None = None
    """How results become one answer, or a function that makes it; left out, the plan decides."""
    prompts: Mapping[str, str] = field(default_factory=dict[str, str])
    """Texts in the place of the built-in prompts, by name."""
    factory: Factory | None = None
    """Makes workers for tasks that nobody is meant for; left out, none are made."""
    hedge: Hedge | None = None
    """When a worker's model call that takes unusually long is made twice; left out, never."""
    examples: Sequence[str] = ()
    """Requests that suit the team."""

    def __post_init__(self) -> None:
        structs.force_setattr(self, "model", as_model(self.model))
        structs.force_setattr(self, "planner", as_model(self.planner))
        structs.force_setattr(self, "judge", as_model(self.judge))
        if self.timeout is not None:
            structs.force_setattr(self, "timeout", seconds_of("Supervisor: timeout", self.timeout))
