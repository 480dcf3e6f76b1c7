"""A worker's task in progress: what there is to work with, what its calls returned, and the calls it still needs."""

from collections.abc import Sequence
from typing import TypeAlias

import msgspec
from msgspec import Struct

from chargehand.models.artifacts import Figure
from chargehand.models.demo.request import RefusedError
from chargehand.models.demo.results import Material, Outcome, as_number, gather, read_outcomes
from chargehand.models.demo.tools import ToolCard, read_tool
from chargehand.models.demo.words import MENTIONS_MODEL
from chargehand.models.messages import Message, Reply, Request, ToolCall
from chargehand.models.request_facts import Working

Arguments: TypeAlias = dict[str, object]

_OFFERS = ("nearest", "did you mean", "one of", "closest", "there are", "try ")


def _encode(arguments: Arguments) -> str:
    return msgspec.json.encode(arguments).decode()


class CallsNeededError(Exception):
    """Calls that have to be made before there is a result."""

    def __init__(self, calls: Sequence[tuple[str, Arguments]]) -> None:
        super().__init__("calls of tools come first")
        self.calls = calls


class Job(Struct, frozen=True):
    """One task of one worker. It is made anew from the messages for every step."""

    subject: Working
    prompt: str
    tools: list[ToolCard]
    outcomes: list[Outcome]
    given: Material
    steps: int

    def tool(self, name: str) -> ToolCard | None:
        return next((tool for tool in self.tools if tool.name == name), None)

    def tool_of_kind(self, kind: str) -> ToolCard | None:
        return next((tool for tool in self.tools if tool.kind == kind), None)

    def outcomes_of(self, tool: str, calls: Sequence[Arguments]) -> list[Outcome]:
        """What came of these calls; those that were not made yet are asked for."""
        made = [
            next((held for held in self.outcomes if held.call.name == tool and held.call.arguments == text), None)
            for text in map(_encode, calls)
        ]
        missing = [(tool, arguments) for arguments, outcome in zip(calls, made, strict=True) if outcome is None]
        if missing:
            raise CallsNeededError(missing)
        return [outcome for outcome in made if outcome is not None]

    def call_all(self, tool: str, calls: Sequence[Arguments]) -> list[Material]:
        """What calls returned. One that failed is a refusal."""
        outcomes = self.outcomes_of(tool, calls)
        for outcome in outcomes:
            if outcome.error:
                offers = any(words in outcome.error.lower() for words in _OFFERS)
                raise RefusedError(f"`{tool}` failed: {outcome.error}", may_retry=offers)
        return [gather([outcome.value]) for outcome in outcomes]

    def call(self, tool: str, arguments: Arguments) -> Material:
        return self.call_all(tool, [arguments])[0]

    def call_for_figure(self, tool: str, arguments: Arguments) -> Figure:
        """The number that a call returned."""
        figures = self.call(tool, arguments).of(Figure)
        if not figures or as_number(figures[0].value) is None:
            raise RefusedError(f"{tool} returned no number")
        return figures[0]


def read_job(subject: Working, request: Request, messages: Sequence[Message]) -> Job:
    """The task with everything that was said for it so far."""
    return Job(
        subject=subject,
        prompt=messages[0].text if messages else "",
        tools=[read_tool(tool.name, tool.description, tool.parameters) for tool in request.tools],
        outcomes=read_outcomes(messages),
        given=gather(given.value for given in subject.inputs),
        steps=sum(1 for message in messages if message.role == "assistant" and message.calls),
    )


def call_tools(calls: Sequence[tuple[str, Arguments]], steps: int) -> Reply:
    """The reply that makes calls."""
    made = [
        ToolCall(id=f"call_{steps + 1}_{number}", name=name, arguments=_encode(arguments))
        for number, (name, arguments) in enumerate(calls, 1)
    ]
    return Reply(calls=tuple(made), finish="tools")


def give_up(reason: str, steps: int, *, final: bool) -> Reply:
    """The call by which a worker says that it cannot do its task."""
    arguments: Arguments = (
        {"reason": f"{reason.rstrip('.')}. {MENTIONS_MODEL}", "final": True} if final else {"reason": reason}
    )
    return call_tools([("give_up", arguments)], steps)
