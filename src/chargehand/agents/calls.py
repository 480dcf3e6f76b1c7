"""The tool calls of one step: checked against the rules, made in parallel, each journaled; what goes wrong is data."""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, cast

import msgspec
from msgspec import Struct

from chargehand.agents.crew import Done, Hand, WorkFailed
from chargehand.agents.equip import GIVE_UP, READ_MORE, Equipped
from chargehand.agents.history import History, read_on
from chargehand.agents.tool_breakers import ToolBreakers
from chargehand.agents.tool_calls import Returned, made
from chargehand.errors import NotJson
from chargehand.models.envelope import wrap
from chargehand.models.exhibits import Exhibit, Passages
from chargehand.models.messages import Message, ToolCall
from chargehand.terms.budget import NOTHING
from chargehand.terms.failure import Failure
from chargehand.terms.value import encode_value
from chargehand.tools.calling import capped
from chargehand.tools.repetition import Repetition
from chargehand.tools.rules import Called, needs_approval, objection
from chargehand.tools.tool import Caller, Tool

_PIECE = 16 * 1024
_MISTAKES = 3
AT_ONCE = 64
"""Calls that are made in one step."""
_TOO_MANY = f"At most {AT_ONCE} calls are made in one step. Ask for the rest in the next one."
_KINDS = frozenset(("table", "figure", "passages", "chart"))
_LARGEST_EXHIBIT, _MOST_EXHIBITS = 64 * 1024, 8
_NOTHING_SEEN: Mapping[str, int] = {}


class Calls:
    """Makes the calls of one attempt and remembers what came of them.

    `tainted`: what the model has seen so far came, in part, from outside. `seen` are versions of blocks, as shown.
    """

    __slots__ = (
        "_allowed", "_answers", "_breakers", "_equipped", "_hand", "_history", "_mistakes", "_repetition", "exhibits",
        "last", "made", "seen", "sources", "tainted",
    )  # fmt: skip

    def __init__(
        self, equipped: Equipped, hand: Hand, history: History, answers: dict[str, str], breakers: ToolBreakers, *,
        tainted: bool = False,
    ) -> None:  # fmt: skip
        self.tainted = tainted
        self.seen: Mapping[str, int] = _NOTHING_SEEN
        self.made: list[Called] = []
        self.exhibits: list[Exhibit] = []
        self.sources: dict[str, None] = {}
        self.last: object = None
        self._equipped = equipped
        self._hand = hand
        self._history = history
        self._answers = answers
        self._breakers = breakers
        self._allowed: dict[str, int] = {}
        self._repetition = Repetition()
        self._mistakes = 0

    async def make(self, calls: tuple[ToolCall, ...], step: int) -> None:
        """Make these calls side by side and show the model what they returned, in the order it asked."""
        plans = self._plans(calls, step)
        if len(plans) == 1:
            await self._one(*plans[0], step)
            return
        done: dict[int, Returned] = {}

        async def perform(number: int, call: ToolCall, tool: Tool) -> None:
            done[number] = await self._step(call, tool)

        trouble: WorkFailed | None = None
        try:
            async with asyncio.TaskGroup() as jobs:
                for number, (call, tool, problem) in enumerate(plans):
                    if tool is not None and not problem:
                        jobs.create_task(perform(number, call, tool))
        except BaseExceptionGroup as group:
            found = [one for one in group.exceptions if isinstance(one, WorkFailed)]
            if not found:
                raise group.exceptions[0] from group
            trouble = found[0]
        if trouble is not None:
            raise trouble
        for number, (call, tool, problem) in enumerate(plans):
            self._show(call, tool, done.get(number) or Returned(error=problem), step)

    async def _one(self, call: ToolCall, tool: Tool | None, problem: str, step: int) -> None:
        returned = await self._step(call, tool) if tool is not None and not problem else Returned(error=problem)
        self._show(call, tool, returned, step)

    def _plans(self, calls: tuple[ToolCall, ...], step: int) -> list[tuple[ToolCall, Tool | None, str]]:
        """What becomes of each call of a step. One that is made counts for those after it."""
        plans: list[tuple[ToolCall, Tool | None, str]] = []
        asked = self.made if len(calls) == 1 else list(self.made)
        for number, call in enumerate(calls, 1):
            tool, problem = self._plan(call, step, asked) if number <= AT_ONCE else (None, _TOO_MANY)
            plans.append((call, tool, problem))
            if tool is not None and not problem and len(calls) > 1:
                asked.append(Called(step, call.name))
        return plans

    def _plan(self, call: ToolCall, step: int, asked: Sequence[Called]) -> tuple[Tool | None, str]:
        """The tool a call means, or why it is not made. Whoever gives up, or has to ask first, does so here."""
        if call.name == GIVE_UP.name:
            reason, final = _reason(call)
            raise WorkFailed(Failure("logic", reason, permanent=final), NOTHING)
        if call.name == READ_MORE.name:
            return None, ""
        rules, tool = self._equipped.worker.rules, self._equipped.tools.get(call.name)
        if tool is None:
            return None, self._mistaken(_unknown(call.name, self._equipped))
        if problem := objection(rules, asked, call.name, step):
            return tool, self._mistaken(problem)
        if tool.approval or needs_approval(rules, call.name):
            return tool, self._refusal(call)
        return tool, ""

    def _refusal(self, call: ToolCall) -> str:
        """Why a person does not allow a call. Leave is for one call: the same a second time is asked for again."""
        said = f"{call.name}({call.arguments})"
        times = self._allowed.get(said, 0) + 1
        wanted = said if times == 1 else f"{said}, for time number {times}"
        if wanted not in self._answers:
            raise WorkFailed(Failure("approval", wanted), NOTHING)
        if refusal := self._answers[wanted]:
            return f"A person did not allow this call: {refusal}"
        self._allowed[said] = times
        return ""

    def _mistaken(self, problem: str) -> str:
        self._mistakes += 1
        if self._mistakes >= _MISTAKES:
            raise WorkFailed(Failure("logic", f"{_MISTAKES} calls could not be made; the last: {problem}"), NOTHING)
        return problem

    async def _step(self, call: ToolCall, tool: Tool) -> Returned:
        def make(key: str) -> Coroutine[Any, Any, Done]:
            caller = self._caller(key) if tool.shape is not None and tool.shape.caller else None
            return made(tool, call, key, caller, self._breakers, self._hand)

        # an effect that was had is had, however its arguments are written the next time
        request = _plainly(call.arguments) if tool.effect == "effect" else call.arguments
        return await self._hand.step(
            tool.name, make, request=request, effect=tool.effect, reserve=tool.holds(call.arguments),
            share=tool.share, shape=Returned,
        )  # fmt: skip

    def _caller(self, key: str) -> Caller:
        """Who calls: results of the same step are not shown yet, so nothing of them is in the arguments."""
        where = self._hand.where
        return Caller(key, self._equipped.worker.name, self.tainted, self.seen, where.run, where.task, where.mark)

    def _show(self, call: ToolCall, tool: Tool | None, returned: Returned, step: int) -> None:
        if call.name == READ_MORE.name:
            text = shown = _piece(call, self._history)
        else:
            text = _text(returned)
            shown, cut = capped(text, tool.cap if tool is not None else _PIECE)
            if cut:
                handle = f"result-{len(self._history.kept) + 1}"
                self._history.keep(handle, text)
                shown += read_on(handle, text, shown)
            if not returned.error:
                self.last = returned.value
                self._collect(returned.value)
                self.made.append(Called(step, call.name, text[:_PIECE]))
        if tool is not None and not tool.trusted:
            self.tainted = True
        hint = "" if tool is None else self._repeated(call, text, tool)
        told = Message("tool", wrap(self._history.nonce, f"tool {call.name}", shown) + hint, call=call.id)
        self._history.add(told, text)

    def _repeated(self, call: ToolCall, text: str, tool: Tool) -> str:
        seen = self._repetition.feed(call.name, call.arguments, text, poll=tool.poll)
        if seen.stuck:
            raise WorkFailed(Failure("logic", f"no progress: {seen.warning}"), NOTHING)
        # in our words: what the tool returned stays in its envelope
        same = f"{call.name} was already called with these arguments and gave the same result."
        return f"\n{same} Use that result, or do something else." if seen.warning else ""

    def _collect(self, value: object) -> None:
        kind = cast("dict[str, object]", value).get("kind") if isinstance(value, dict) else None
        if not isinstance(kind, str) or kind not in _KINDS:
            return
        try:
            found: Exhibit = msgspec.convert(value, Exhibit)
        except msgspec.ValidationError:
            return
        if len(self.exhibits) < _MOST_EXHIBITS and len(msgspec.json.encode(found)) <= _LARGEST_EXHIBIT:
            self.exhibits.append(found)
        self.sources.update(dict.fromkeys(sources(found)))


def sources(exhibit: Exhibit) -> list[str]:
    """Where an exhibit comes from."""
    found = [one.source for one in exhibit.found] if isinstance(exhibit, Passages) else [exhibit.source]
    return [one for one in found if one]


class _GivenUp(Struct, frozen=True):
    reason: str = ""
    final: bool = False


def _reason(call: ToolCall) -> tuple[str, bool]:
    """Why a worker gave up, and whether it says that nothing would help."""
    try:
        said = msgspec.json.decode(call.arguments, type=_GivenUp)
    except msgspec.DecodeError:
        said = _GivenUp()
    return (said.reason, said.final) if said.reason.strip() else ("the worker gave up without saying why", False)


def _unknown(name: str, equipped: Equipped) -> str:
    near = get_close_matches(name, equipped.tools, 3, 0.4)
    hint = (
        f"did you mean {' or '.join(map(repr, near))}?" if near else f"there are {', '.join(equipped.tools) or 'none'}"
    )
    return f"There is no tool {name!r}; {hint}"


class _Piece(Struct, frozen=True):
    handle: str
    start: int = 0


def _piece(call: ToolCall, history: History) -> str:
    try:
        asked = msgspec.json.decode(call.arguments, type=_Piece)
    except (msgspec.DecodeError, RecursionError) as error:
        return _text(Returned(error=f"read_more wants a handle and a start: {error}"))
    text = history.kept.get(asked.handle)
    if text is None:
        known = ", ".join(history.kept) or "none"
        return _text(Returned(error=f"there is nothing under {asked.handle[:100]!r}; known are {known}"))
    start = max(0, asked.start)
    piece = text[start : start + _PIECE].encode()[:_PIECE].decode(errors="ignore")
    end = start + len(piece)
    rest = f"\n… read on with start={end}" if end < len(text) else "\n(That is the end.)"
    return piece + rest


def _text(returned: Returned) -> str:
    if returned.error:
        return msgspec.json.encode({"error": returned.error}).decode()
    return bytes(encode_value(returned.value)).decode()


def _plainly(arguments: str) -> str:
    """Arguments without regard to white space and the order of keys."""
    try:
        return bytes(encode_value(msgspec.json.decode(arguments or "{}"))).decode()
    except (msgspec.DecodeError, NotJson, RecursionError):
        return arguments
