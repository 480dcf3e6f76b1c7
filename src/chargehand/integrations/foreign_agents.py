"""Agents of other frameworks as workers: turns that are recorded, questions to a person, usage, failures by kind.

An adapter makes turns: the first from an assignment, the next ones from the answers to what the agent asked. Each turn
is one step of the attempt, so what is finished is not done again after a crash.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeAlias

import msgspec
from msgspec import Struct, structs

from chargehand.agents.executor import Assignment
from chargehand.code_errors import failure_of
from chargehand.engine.budget import NOTHING, Amount
from chargehand.engine.events import Effect
from chargehand.engine.facts import UsageUnknown
from chargehand.engine.failure import Failure
from chargehand.errors import Invalid
from chargehand.models.call_errors import Party, call_refused
from chargehand.models.messages import Usage
from chargehand.models.rates import Price
from chargehand.runtime.executor import Done, StepContext, WorkFailed

Prompt: TypeAlias = Callable[[Assignment], str]
APPROVE = "approve"
_MAX_TURNS = 50
_EFFECTS = ("read", "idempotent", "effect")


class AgentQuestion(Struct, frozen=True, omit_defaults=True):
    """What an agent wants to know before it goes on."""

    id: str
    """The framework's name for it."""
    text: str
    options: tuple[str, ...] = ()
    """The answers to choose from; none: any."""


class AgentTurn(Struct, frozen=True, omit_defaults=True):
    """What an agent did until it was done, or had to ask."""

    output: object = None
    questions: tuple[AgentQuestion, ...] = ()
    """None: it is done."""
    state: object = None
    """What the framework needs to go on, as plain data."""
    refused: Failure | None = None
    """Why the agent was not called, so that nothing happened."""


class AgentNotCalled(Exception):
    """What the agent needs could not be prepared, so it was not called."""


@contextmanager
def preparing() -> Generator[None]:
    """What is done before the agent is called: an exception here means that nothing happened."""
    try:
        yield
    except Exception as error:
        raise AgentNotCalled(str(error)) from error


class AgentUsage(Struct):
    """What a turn used so far; also of one that fails."""

    model: str = ""
    input: int = 0
    output: int = 0
    cached: int = 0
    """Of the input: what came from the provider's cache."""
    cache_written: int = 0
    """Of the input: what was written to the provider's cache."""
    reasoning: int = 0
    """Of the output: what was thought."""
    calls: int = 0
    unmetered: int = 0
    """Calls of which the framework does not say how many tokens they took."""
    usd: float | None = None
    """What the framework says it cost; None: it does not know."""

    @property
    def tokens(self) -> Usage:
        """What the calls used together. A part is never more than the whole it is a part of."""
        cached = min(self.cached, self.input)
        return Usage(
            self.input,
            self.output,
            cached=cached,
            cache_written=min(self.cache_written, self.input - cached),
            reasoning=min(self.reasoning, self.output),
        )


class ForeignAgent(ABC):
    """An agent of another framework."""

    framework: str = ""

    @abstractmethod
    async def start(self, assignment: Assignment, usage: AgentUsage) -> AgentTurn:
        """Begin with an assignment."""

    async def go_on(
        self, assignment: Assignment, state: object, answers: Mapping[str, object], usage: AgentUsage
    ) -> AgentTurn:
        """Go on with the answers to the questions of the last turn, by their ids."""
        raise NotImplementedError(f"{self.framework} asks nothing")

    def failure(self, _error: Exception) -> Failure | None:
        """The failure that an exception of the framework means; None: what is usual."""
        return None


class AgentWorker:
    """The `call` of a worker whose attempts an agent of another framework makes."""

    def __init__(self, agent: ForeignAgent, effect: Effect, price: Price | None) -> None:
        if effect not in _EFFECTS:
            raise Invalid(f"effect is {effect!r}; say what its tools do to the world: {', '.join(_EFFECTS)}")
        self._agent = agent
        self._effect: Effect = effect
        self._price = price

    async def __call__(self, assignment: Assignment, context: StepContext) -> Done:
        agent = self._agent
        turn = await self._step(assignment, context, 1, lambda usage: agent.start(assignment, usage))
        for number in range(2, _MAX_TURNS + 1):
            if not turn.questions:
                return Done(turn.output, NOTHING)  # its steps say what was used
            answers = {
                question.id: assignment.ask_person(question.text, options=question.options)
                for question in turn.questions
            }
            state = turn.state
            turn = await self._step(
                assignment,
                context,
                number,
                lambda usage, state=state, answers=answers: agent.go_on(assignment, state, answers, usage),
            )
        raise WorkFailed(
            Failure("logic", f"the agent asked a person {_MAX_TURNS} times", code="too_many_steps"), NOTHING
        )

    async def _step(
        self,
        assignment: Assignment,
        context: StepContext,
        number: int,
        act: Callable[[AgentUsage], Awaitable[AgentTurn]],
    ) -> AgentTurn:
        async def call(_key: str) -> Done:
            usage = AgentUsage()
            began = time.monotonic()
            try:
                turn = await act(usage)
            except AgentNotCalled as error:
                return Done(AgentTurn(refused=_refusal(error)), NOTHING, good=False)
            except WorkFailed:
                raise
            except Exception as error:
                raise WorkFailed(self._failure(error), self._used(usage, assignment, context)) from error
            used = self._used(usage, assignment, context)
            if usage.calls:
                context.record_call(usage.model, time.monotonic() - began, structs.asdict(usage.tokens), used)
            return Done(turn, used)

        request = msgspec.json.encode([number, assignment.instruction, assignment.failure]).decode()
        name = f"{self._agent.framework} agent"
        turn = await context.step(name, call, request=request, effect=self._effect, shape=AgentTurn)
        if turn.refused is None:
            return turn
        acted = self._effect == "effect" and number > 1  # a new attempt would begin anew and act a second time
        raise WorkFailed(structs.replace(turn.refused, permanent=turn.refused.permanent or acted), NOTHING)

    def _failure(self, error: Exception) -> Failure:
        agent = self._agent
        return agent.failure(error) or status_failure(agent.framework, error) or failure_of(error)

    def _used(self, usage: AgentUsage, assignment: Assignment, context: StepContext) -> Amount:
        price = self._price
        model = usage.model or "a model"
        tokens = usage.input + usage.output
        unmetered = usage.unmetered if tokens else usage.calls
        if unmetered:
            fact = UsageUnknown(assignment.worker, unmetered, "tokens", usage.model)
            calls = "a call" if unmetered == 1 else f"{unmetered:,} calls"
            context.note(
                f"{assignment.worker}: {calls} of {model} without a count of tokens: they count as 0", fact=fact
            )
        if price is not None:
            micros = round(price.micros(usage.tokens)) + usage.calls * price.call
        elif usage.usd is not None:
            micros = round(usage.usd * 1_000_000)
        else:
            micros = 0
            if usage.calls and context.request.budget.usd is not None:
                fact = UsageUnknown(assignment.worker, usage.calls, "price", usage.model)
                text = f"{assignment.worker}: the price of {model} is not known: its calls count as 0 dollars"
                context.note(text, fact=fact)
        return Amount(tokens=tokens, micros=micros, calls=usage.calls)


def _refusal(error: AgentNotCalled) -> Failure:
    """Why an agent was not called."""
    cause = error.__cause__
    assert isinstance(cause, Exception), "it is raised from what went wrong"
    return cause.failure if isinstance(cause, WorkFailed) else failure_of(cause)


# --- what adapters share


def check_agent(agent: object, kind: type, wanted: str) -> None:
    """Raise Invalid for what is no agent of the framework."""
    if not isinstance(agent, kind):
        raise Invalid(f"this is a {type(agent).__name__}; write {wanted}")


def task_text(assignment: Assignment) -> str:
    """The task in words, for an agent that reads text: what is to be done, what it needs, what failed before."""
    parts = [assignment.instruction]
    for task, value in assignment.inputs.items():
        parts.append(f"Result of {task}:\n{_text_of(value)}")
    parts += [f"Missing: {gap.message}" for gap in assignment.gaps]
    if assignment.failure:
        parts.append(f"The last attempt failed: {assignment.failure}")
    return "\n\n".join(parts)


def _text_of(value: object) -> str:
    if isinstance(value, Mapping) and list(value) == ["text"]:  # pyright: ignore[reportUnknownArgumentType] - any JSON
        return str(value["text"])  # pyright: ignore[reportUnknownArgumentType] - as above
    return msgspec.json.encode(value).decode()


def approval_question(call: str, tool: str, arguments: object, place: str) -> AgentQuestion:
    """Whether an agent may make a call."""
    written = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
    return AgentQuestion(call, f"May {tool}({written}) be called?{place}", (APPROVE, "reject"))


def place_of(number: int, questions: Sequence[object]) -> str:
    """Where a question stands among several, so that two calls with the same arguments are two questions."""
    return f" ({number} of {len(questions)})" if len(questions) > 1 else ""


def status_failure(framework: str, error: BaseException | None) -> Failure | None:
    """The failure of a model's API, by the HTTP status that clients of all providers put into their exceptions."""
    for _ in range(10):
        if error is None:
            return None
        status = getattr(error, "status_code", None)  # of another package, and each has its own class
        if isinstance(status, int):
            # which model refuses is not known, so only this task fails for it
            failure = call_refused(Party(framework, "its model"), status, str(error)).failure
            return structs.replace(failure, refusal=None)
        error = error.__cause__
    return None
