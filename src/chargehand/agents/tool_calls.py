"""The tool calls of one step: checked against the rules, made in parallel, each journaled; what goes wrong is data.

Only an effect of which nobody knows whether it happened ends the attempt. A call that returned has succeeded, whatever
it returned: what JSON cannot carry is kept as text, and a large result whole or cut.
"""

from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, cast

import msgspec
from msgspec import Struct, field, structs

from chargehand.agents.history import History, read_on
from chargehand.agents.inputs import without_pictures
from chargehand.agents.setup import GIVE_UP, READ_MORE, ReadyWorker
from chargehand.agents.tool_breakers import ToolBreakers
from chargehand.code_errors import mistake_failure
from chargehand.concurrency import BareTaskGroup
from chargehand.engine.budget import NOTHING, Amount
from chargehand.engine.failure import AskedBecause, CodeError, Failure, PendingCall, Question
from chargehand.engine.owed import Brief
from chargehand.engine.plan import digest
from chargehand.engine.value import DEPTH, encode_or_text, encode_value
from chargehand.errors import NotJson
from chargehand.models.artifacts import Artifact, Passages
from chargehand.models.envelope import wrap
from chargehand.models.messages import Message, ToolCall
from chargehand.runtime.executor import Done, StepContext, WorkFailed
from chargehand.text.names import did_you_mean
from chargehand.tools.calling import capped
from chargehand.tools.repetition import NOT_SEEN, Repetition
from chargehand.tools.rules import Called, may_exit, needs_approval, objection
from chargehand.tools.tool import Caller, Costs, Tool, ToolFailed

_PIECE = 16 * 1024
MESSAGE_TOOLS = "send_message_to_agent"
"""How the names of all tools begin that wait for another worker's words."""
_MISTAKES = 3
AT_ONCE = 64
"""Calls that are made in one step."""
_MADE_ONCE = (
    "This is the same call as another one of this step. It was made once, and this is what it returned. "
    "Where it really must happen again, ask for it in a later step: a person decides then."
)
_TOO_MANY = f"At most {AT_ONCE} calls are made in one step. Ask for the rest in the next one."
_KINDS = frozenset(("table", "figure", "passages", "chart"))
_LARGEST_ARTIFACT = 64 * 1024
_MOST_ARTIFACTS = 8
_SHOWN_AGAIN = 600
"""A result of so many characters is shown a second time; a longer one stands in the history already."""
_ALREADY = "You have this already: {tool} was called with these arguments before and gave the same result."
LARGEST = 1024 * 1024
"""Bytes of a result that a tool which only reads may return; it can be asked for less."""
LARGEST_OF_ACTION = 16 * 1024 * 1024
"""Bytes that are kept of what a tool returned that changed something: it cannot be asked again."""
_AS_TEXT = "The call succeeded. Parts of its result are no plain data, and are kept as text. Do not repeat the call."
_CUT = (
    "The call succeeded. Its result has {size:,} bytes, of which the first {kept:,} are kept. Do not repeat the call."
)


class Returned(Struct, frozen=True, omit_defaults=True):
    """What a call came to. `broken`: the tool failed for a reason of its own. `barred`: so it was not even called.

    `note` says to the model what is to be known besides, for example that the result is not kept as it was.
    `code_error`: it met a mistake in its own code, which ends the attempt.
    """

    value: object = None
    error: str = ""
    broken: bool = False
    barred: bool = False
    note: str = ""
    code_error: CodeError | None = None


class _Planned(Struct, frozen=True):
    """What becomes of one call: it is made, or answered with a `problem`, or with what it returned `earlier`."""

    call: ToolCall
    tool: Tool | None = None
    problem: str = ""
    earlier: Returned | None = None
    same_as: int = -1
    """The number of an identical call of this step, whose result (or problem) is this one's, too."""

    @property
    def is_made(self) -> bool:
        return self.tool is not None and not self.problem and self.earlier is None and self.same_as < 0


class _Wish(Struct, frozen=True):
    """A call that needs leave: the key of a person's answer, what the person reads, and the how manieth time it is."""

    key: str
    text: str
    times: int


class Calls(Struct, eq=False, kw_only=True):
    """Makes the calls of one attempt and remembers what came of them.

    `tainted`: what the model has seen so far came, in part, from outside. `seen` are versions of blocks, as shown.
    `circle` says what the model asks for again and again although it has it; it is empty as long as it does not.
    `returned` is what tools returned, and what calls with an effect were given: that was done. `heard` is what other
    workers wrote, and why a person did not allow a call.
    """

    ready: ReadyWorker
    context: StepContext
    history: History
    brief: Brief
    breakers: ToolBreakers
    tainted: bool = False
    seen: Mapping[str, int] = field(default_factory=dict[str, int])
    made: list[Called] = field(default_factory=list[Called])
    artifacts: list[Artifact] = field(default_factory=list[Artifact])
    sources: dict[str, None] = field(default_factory=dict[str, None])
    last: object = None
    circle: str = ""
    returned: list[object] = field(default_factory=list[object])
    heard: list[object] = field(default_factory=list[object])
    _repetition: Repetition = field(default_factory=Repetition)
    _mistakes: int = 0
    _allowed: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    """How often a person allowed a call, by tool and arguments."""
    _earlier: dict[tuple[str, str], Returned] = field(default_factory=dict[tuple[str, str], Returned])
    """What stable tools returned, by name and arguments."""
    _acted: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    """How often an effect was had, by tool and arguments."""

    @property
    def _answers(self) -> Mapping[str, str]:
        """What a person answered, by the key of the question."""
        return self.brief.answers or {}

    async def make(self, calls: tuple[ToolCall, ...], step: int) -> bool:
        """Make these calls side by side and show the model what they returned, in the order it asked.

        Returns whether any of it is new to the model.
        """
        plans = self._plans(calls, step)
        to_make = {number: (one.call, one.tool) for number, one in enumerate(plans) if one.is_made and one.tool}
        done: dict[int, Returned] = {}

        async def perform(number: int, call: ToolCall, tool: Tool) -> None:
            done[number] = await self._step(call, tool)

        if len(to_make) == 1:  # most steps make one call, which needs no task of its own
            ((number, (call, tool)),) = to_make.items()
            await perform(number, call, tool)
        else:
            async with BareTaskGroup() as jobs:
                for number, (call, tool) in to_make.items():
                    jobs.create_task(perform(number, call, tool))
        is_new = False
        for number, planned in enumerate(plans):
            source = number if planned.same_as < 0 else planned.same_as
            returned = plans[source].earlier or done.get(source) or Returned(error=plans[source].problem)
            if planned.same_as >= 0 and planned.tool is not None and not planned.tool.stable:
                self._tell_again(planned, returned)
                continue
            is_new = self._show(planned, returned, step) or is_new
        return is_new

    def _plans(self, calls: tuple[ToolCall, ...], step: int) -> list[_Planned]:
        """What becomes of each call of a step. One that is made counts for those after it.

        Of equal calls that change something, or need leave, only the first is looked at, and made if it may be.
        """
        plans: list[_Planned] = []
        asked = self.made if len(calls) == 1 else list(self.made)
        stable: dict[tuple[str, str], int] = {}
        acting: dict[tuple[str, str], int] = {}
        for number, call in enumerate(calls):
            known = self.ready.tools.get(call.name) if len(calls) > 1 else None
            if known is not None and (known.effect != "read" or self._asks_first(known)):
                first = acting.setdefault(_identity(call), number)
                if first != number:
                    plans.append(_Planned(call, known, same_as=first))
                    continue
            try:
                tool, problem = self._plan(call, step, asked) if number < AT_ONCE else (None, _TOO_MANY)
            except WorkFailed as error:
                if error.failure.question is None:
                    raise
                also = self._also_waiting(calls, number, step, asked)
                question = structs.replace(error.failure.question, call=number + 1, also=also)
                raise WorkFailed(structs.replace(error.failure, question=question), error.used) from error
            planned = _Planned(call, tool, problem)
            if tool is not None and not problem and tool.stable:
                same = (call.name, _plainly(call.arguments))
                planned = _Planned(call, tool, earlier=self._earlier.get(same), same_as=stable.get(same, -1))
                stable.setdefault(same, number)
            plans.append(planned)
            if planned.is_made and len(calls) > 1:
                asked.append(Called(step, call.name))
        return plans

    def _plan(self, call: ToolCall, step: int, asked: Sequence[Called]) -> tuple[Tool | None, str]:
        """The tool a call means, or why it is not made. Whoever gives up, or has to ask first, does so here."""
        if call.name == GIVE_UP.name:
            reason, final = _reason(call)
            raise WorkFailed(Failure("logic", reason, permanent=final), NOTHING)
        if call.name == READ_MORE.name:
            return None, ""
        rules = self.ready.worker.rules
        tool = self.ready.tools.get(call.name)
        if tool is None:
            return None, self._mistaken(f"There is no tool {call.name!r}; {did_you_mean(call.name, self.ready.tools)}")
        if problem := objection(rules, asked, call.name, step):
            return tool, self._mistaken(problem)
        because = self._needs_leave(call, tool)
        return tool, "" if because is None else self._refusal(call, tool, because)

    def _asks_first(self, tool: Tool) -> bool:
        """Whether every call of this tool needs leave, by its declaration or by a rule."""
        return tool.approve or needs_approval(self.ready.worker.rules, tool.name)

    def _needs_leave(self, call: ToolCall, tool: Tool) -> AskedBecause | None:
        """Why a person is asked before this call; None: nobody is."""
        if self._asks_first(tool):
            return "declared"
        if tool.effect != "effect":
            return None
        if self._acted and not tool.poll and _identity(call) in self._acted:
            return "repeated"
        if not self.tainted or not self.brief.ask_if_tainted:
            return None
        # what an earlier attempt had already is not had again, so nobody need be asked
        return None if digest(*_identity(call)) in (self.brief.effects or {}) else "tainted"

    def _refusal(self, call: ToolCall, tool: Tool, because: AskedBecause) -> str:
        """Why a call is not made: it cannot be, or a person does not allow it.

        Leave is for one call: the same a second time is asked for again.
        """
        wish = self._wish(call)
        if wish.key not in self._answers:
            if problem := _wrong_arguments(tool, call):
                return problem  # nobody is asked about a call that cannot be made
            worker = self.ready.worker.name
            question = Question(
                what="tool",
                tool=call.name,
                arguments=_arguments(call),
                because=because,
                workers=(worker,),
                key=wish.key,
            )
            raise WorkFailed(Failure("approval", wish.text, question=question), NOTHING)
        if refusal := self._answers[wish.key]:
            problem = f"A person did not allow this call: {refusal}"
            self.heard.append(problem)
            return problem
        self._allowed[_identity(call)] = wish.times
        return ""

    def _wish(self, call: ToolCall) -> _Wish:
        """A call that needs leave. Leave for one time is none for the next."""
        times = max(self._allowed.get(_identity(call), 0), self._acted.get(_identity(call), 0)) + 1
        key = digest(*_identity(call), str(times))
        return _Wish(key, _line(call) if times == 1 else f"{_line(call)}, for time number {times}", times)

    def _also_waiting(
        self, calls: tuple[ToolCall, ...], number: int, step: int, asked: Sequence[Called]
    ) -> tuple[PendingCall, ...]:
        """The calls after one that needs leave which need it, too: a person may decide on all of them at once."""
        made = [*asked, Called(step, calls[number].name)]
        seen = {_identity(calls[number])}
        others: list[PendingCall] = []
        for place, call in enumerate(calls[number + 1 : AT_ONCE], number + 2):
            tool = self.ready.tools.get(call.name)
            is_same = _identity(call) in seen
            if is_same or tool is None or objection(self.ready.worker.rules, made, call.name, step):
                continue
            seen.add(_identity(call))
            because = self._needs_leave(call, tool)
            wish = self._wish(call)
            if because is not None and wish.key not in self._answers and not _wrong_arguments(tool, call):
                others.append(
                    PendingCall(
                        call=place,
                        text=wish.text,
                        tool=call.name,
                        arguments=_arguments(call),
                        because=because,
                        key=wish.key,
                    )
                )
                made.append(Called(step, call.name))
        return tuple(others)

    def _mistaken(self, problem: str) -> str:
        self._mistakes += 1
        if self._mistakes >= _MISTAKES:
            raise WorkFailed(Failure("logic", f"{_MISTAKES} calls could not be made; the last: {problem}"), NOTHING)
        return problem

    async def _step(self, call: ToolCall, tool: Tool) -> Returned:
        def make(key: str) -> Coroutine[Any, Any, Done]:
            caller = self._caller(key) if tool.arguments is not None and tool.arguments.caller else None
            return make_call(tool=tool, call=call, key=key, caller=caller, breakers=self.breakers, context=self.context)

        request = call.arguments
        if tool.effect == "idempotent":  # the same call is the same, however its arguments are written the next time
            request = _plainly(call.arguments)
        elif tool.effect == "effect":
            request = _plainly(call.arguments)
            if times := self._acted.get((call.name, request), 0):
                request = f"{request} (time number {times + 1})"
        return await self.context.step(
            tool.name,
            make,
            request=request,
            effect=tool.effect,
            reserve=tool.holds(call.arguments),
            share=tool.share,
            shape=Returned,
        )

    def _caller(self, key: str) -> Caller:
        """Who calls: results of the same step are not shown yet, so nothing of them is in the arguments."""
        where = self.context.where
        return Caller(
            key=key,
            worker=self.ready.worker.name,
            tainted=self.tainted,
            seen=self.seen,
            run=where.run,
            task=where.task,
            mark=where.mark,
            context=self.context,
        )

    def _show(self, planned: _Planned, returned: Returned, step: int) -> bool:
        """Add a result to the history; whether it is new to the model."""
        call = planned.call
        tool = planned.tool
        if returned.code_error is not None:
            # no model can mend a tool: the attempt ends, and so does the task unless another worker may take it
            raise WorkFailed(mistake_failure(returned.code_error, f"the tool {call.name}"), NOTHING)
        if call.name == READ_MORE.name:
            text = shown = _piece(call, self.history)
        else:
            text = _text(returned)  # without pictures, which are no use to a model
            shown, cut = capped(text, tool.cap if tool is not None else _PIECE)
            if cut:
                handle = f"result-{len(self.history.kept) + 1}"
                self.history.keep(handle, text)
                shown += read_on(handle, text, shown)
            if planned.is_made:
                result = returned.value if isinstance(returned.value, str) else text  # a text without its quotes
                self._note_result(planned, returned, Called(step, call.name, result[:_PIECE]))
        if tool is not None and not tool.trusted:
            self.tainted = True
        seen = NOT_SEEN if tool is None else self._repetition.feed(call.name, call.arguments, text, poll=tool.poll)
        if seen.stuck and (returned.error or may_exit(self.ready.worker.rules, self.made)):
            raise WorkFailed(Failure("logic", f"no progress: {seen.warning}", code="repeated_call"), NOTHING)
        if seen.stuck:
            self.circle = seen.warning
        if not seen.warning:
            wrapped = wrap(self.history.nonce, f"tool {call.name}", shown)
        else:
            wrapped = self._wrap_again(call, shown, failed=bool(returned.error))
        if returned.note:  # in our words, so outside the envelope
            wrapped = f"{wrapped}\n{returned.note}"
        self.history.add(Message("tool", wrapped, call=call.id, is_error=bool(returned.error)), text)
        return not seen.warning

    def _tell_again(self, planned: _Planned, returned: Returned) -> None:
        """Show the result of an acting call to an equal one of the same step, which was not made."""
        tool = planned.tool
        text = _text(returned)
        shown, _ = capped(text, _SHOWN_AGAIN if tool is None else min(tool.cap, _SHOWN_AGAIN))
        wrapped = wrap(self.history.nonce, f"tool {planned.call.name}", shown)
        told = wrapped if returned.error else f"{wrapped}\n{_MADE_ONCE}"
        self.history.add(Message("tool", told, call=planned.call.id), text)

    def _note_result(self, planned: _Planned, returned: Returned, called: Called) -> None:
        tool = planned.tool
        if tool is not None:
            self._witness(planned.call, tool, returned)
        if tool is not None and tool.effect != "read":
            self._earlier.clear()  # what was read before may not hold any more
        if returned.error:
            return
        self.last = returned.value
        self._collect(returned.value)
        self.made.append(called)
        if tool is not None and tool.effect == "effect":
            which = _identity(planned.call)
            self._acted[which] = self._acted.get(which, 0) + 1
        if tool is not None and tool.stable:
            self._earlier[tool.name, _plainly(planned.call.arguments)] = returned

    def _witness(self, call: ToolCall, tool: Tool, returned: Returned) -> None:
        """Keep what the result of the worker may rest on."""
        kept = self.heard if call.name.startswith(MESSAGE_TOOLS) else self.returned
        kept.append(returned.error or self._without_expression(returned.value))
        if tool.effect != "read" and not returned.error:
            kept.append(call.arguments)

    def _without_expression(self, value: object) -> object:
        """A figure without what the worker had computed for it: that is the worker's own words."""
        if not isinstance(value, dict):
            return value
        table = cast("dict[str, object]", value)
        if "expression" not in table:
            return table
        self.heard.append(table["expression"])
        return {key: item for key, item in table.items() if key != "expression"}

    def _wrap_again(self, call: ToolCall, shown: str, *, failed: bool) -> str:
        """What the model is shown when it asks for what it has: the result again if it is short, and what to do."""
        advice = "Do something else." if failed else "Answer now, or do something else."
        words = f"{_ALREADY.format(tool=call.name)} {advice}"
        if len(shown) > _SHOWN_AGAIN:
            return words
        return f"{wrap(self.history.nonce, f'tool {call.name}', shown)}\n{words}"

    def _collect(self, value: object) -> None:
        kind = cast("dict[str, object]", value).get("kind") if isinstance(value, dict) else None
        if not isinstance(kind, str) or kind not in _KINDS:
            return
        try:
            found: Artifact = msgspec.convert(value, Artifact)
        except msgspec.ValidationError:
            return
        if len(self.artifacts) < _MOST_ARTIFACTS and len(msgspec.json.encode(found)) <= _LARGEST_ARTIFACT:
            self.artifacts.append(found)
        self.sources.update(dict.fromkeys(sources(found)))


def sources(artifact: Artifact) -> list[str]:
    """Where an artifact comes from."""
    found = [one.source for one in artifact.found] if isinstance(artifact, Passages) else [artifact.source]
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
    value = returned.value
    if isinstance(value, dict):
        value = without_pictures(cast("dict[str, object]", value))
    return bytes(encode_value(value)).decode()


def _wrong_arguments(tool: Tool, call: ToolCall) -> str:
    """Why a call cannot be made with its arguments; nothing where it can."""
    try:
        tool.check(call.arguments)
    except ToolFailed as error:
        return str(error)
    return ""


def _line(call: ToolCall) -> str:
    """A call in one line."""
    return f"{call.name}({call.arguments})"


def _arguments(call: ToolCall) -> dict[str, object]:
    return msgspec.json.decode(call.arguments or "{}", type=dict[str, object])


def _identity(call: ToolCall) -> tuple[str, str]:
    """What makes two calls the same."""
    return call.name, _plainly(call.arguments)


def _plainly(arguments: str) -> str:
    """Arguments without regard to white space and the order of keys."""
    try:
        return bytes(encode_value(msgspec.json.decode(arguments or "{}"))).decode()
    except (msgspec.DecodeError, NotJson, RecursionError):
        return arguments


# --- one call of a tool; whether the rules allow it was decided before


async def make_call(
    tool: Tool, call: ToolCall, key: str, caller: Caller | None, breakers: ToolBreakers, context: StepContext
) -> Done:
    """Make a call, unless the tool is out of order."""
    probing = 0.0
    if breakers:
        if problem := breakers.objection(tool):
            return Done(Returned(error=problem, barred=True), NOTHING, good=False)
        probing = breakers.probing(tool)
    used: Amount | None = NOTHING
    try:
        value = await tool.call(call.arguments, key, caller)
        if breakers and (text := breakers.worked(tool)):
            context.note(text)
        if isinstance(value, Costs):
            used = value.used
            value = value.value
    except ToolFailed as error:
        if error.broken:
            if text := breakers.failed(tool, _printable(str(error))):
                context.note(text)
        else:
            breakers.unsettled(tool, probing)
        return _failed(tool, error)
    except BaseException:  # cancelled: nothing is known of the tool
        breakers.unsettled(tool, probing)
        raise
    return Done(_returned(tool, value), used)


def _returned(tool: Tool, value: object) -> Returned:
    """What is recorded of a call that succeeded."""
    body, whole = encode_or_text(value, depth=DEPTH - 1)  # one level is that of `Returned`
    size = len(body)
    if size > LARGEST and tool.effect == "read":
        return Returned(error=f"{tool.name} returned {size} bytes; ask for at most {LARGEST}")
    if size > LARGEST_OF_ACTION:
        kept = bytes(body)[:LARGEST].decode(errors="ignore")
        return Returned(kept, note=_CUT.format(size=size, kept=len(kept.encode())))
    return Returned(body, note="" if whole else _AS_TEXT)


def _failed(tool: Tool, error: ToolFailed) -> Done:
    if error.unknown and tool.effect == "effect":  # the step stays open: nobody may repeat it in silence
        failure = Failure("uncertain", f"{tool.name}: {_printable(str(error))}", code_error=error.code_error)
        raise WorkFailed(failure, NOTHING) from error
    # one that may have done its work is taken to have cost what was reserved for it
    returned = Returned(error=_printable(str(error)), broken=error.broken, code_error=error.code_error)
    return Done(returned, None if error.unknown else NOTHING, good=False)


def _printable(text: str) -> str:
    """The text without halves of surrogate pairs, which cannot be recorded."""
    return text if text.isascii() else text.encode(errors="replace").decode()
