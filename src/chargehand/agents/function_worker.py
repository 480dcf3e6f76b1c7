"""A worker whose attempts a function of the user's makes: an agent of another framework, a service, a script."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from msgspec import Struct

from chargehand.agents.inputs import read_inputs
from chargehand.code_errors import error_in, mistake_failure
from chargehand.engine.failure import Failure, Gap
from chargehand.engine.owed import Brief
from chargehand.engine.policy import Instant, Seconds
from chargehand.models.artifacts import Product
from chargehand.runtime.executor import Done, StepContext, WorkFailed


class Assignment(Struct, frozen=True):
    """One attempt at a task, for the function that makes it."""

    goal: str
    """What the run was asked for."""
    task: str
    """The task's id."""
    instruction: str
    """What is to be done."""
    inputs: Mapping[str, object] = {}
    """The results of the tasks it needs, by their ids: `{"text": ...}` for text, else plain data."""
    gaps: tuple[Gap, ...] = ()
    """What it needs and does not get."""
    attempt: int = 1
    """Which attempt of the task: 1, 2, 3 …"""
    failure: str = ""
    """Why the last attempt failed."""
    until: Instant = 0.0
    """When its time is over: the function is cancelled then."""


WorkerFunction: TypeAlias = Callable[[Assignment, StepContext], Awaitable[object]]
"""An async function, or an object with an async `__call__`, that makes an attempt.

It returns text, plain data, or a `Done` that says what was used. What it raises fails the attempt.
"""


async def call_function(function: WorkerFunction, brief: Brief, context: StepContext) -> Done:
    """The attempt of a brief, made by a function. What it does in `context.step` is not done again after a crash."""
    assignment = Assignment(
        goal=brief.goal,
        task=brief.work.task,
        instruction=brief.instruction,
        inputs={source.task: source.value for source in read_inputs(brief, {})},
        gaps=tuple(gap for source in brief.inputs for gap in source.gaps),
        attempt=brief.work.number,
        failure=brief.failure,
        until=brief.until,
    )
    called = f"the function of worker {brief.worker!r}"
    clock = asyncio.get_running_loop().time
    began = clock()
    try:
        result = await function(assignment, context)
    except SystemExit as error:  # it must not end the program
        message = f"{called} called sys.exit({error.code!r}); return a result, or raise an error"
        raise WorkFailed(mistake_failure(error_in(function, "SystemExit", message))) from error
    done = result if isinstance(result, Done) else Done(result)
    _check_time(called, clock() - began, brief, context, done)
    if done.value is None:
        message = f"{called} returned nothing; return text, plain data or a Done"
        raise WorkFailed(mistake_failure(error_in(function, "TypeError", message)), done.used)
    if isinstance(done.value, str):
        if not done.value.strip():
            message = f"{called} returned empty text; return a result, or raise an error"
            raise WorkFailed(Failure("logic", message, code="empty_reply"), done.used)
        return Done(Product(done.value), done.used, tracing=done.tracing)
    return done


def _check_time(called: str, seconds: Seconds, brief: Brief, context: StepContext, done: Done) -> None:
    """Raise WorkFailed for a result that is too late. A function that blocks the event loop cannot be cancelled."""
    agents = context.request.roster.agents
    timeout = next((agent.timeout for agent in agents if agent.name == brief.worker), math.inf)
    if seconds > timeout:
        message = (
            f"{called} returned after {seconds:.1f} s, and its timeout is {timeout:g} s: the event loop was blocked. "
            "Use await for what it waits for, or asyncio.to_thread"
        )
        raise WorkFailed(Failure("timeout", message), done.used)
