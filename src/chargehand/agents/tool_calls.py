"""The tool calls of one step: checked against the rules, made in parallel, each journaled; what goes wrong is data.

Only an effect of which it is unknown whether it happened ends the attempt. A call that returned has succeeded, whatever
it returned: what JSON cannot carry is kept as text, and a large result whole or cut.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from math import ceil
from typing import Any, cast

import msgspec
from msgspec import Struct, field, structs

from chargehand.agents.attachments import FilesOfTools, KeptFile, ShownFiles, keep_files
from chargehand.agents.inputs import WorkerHistory, read_on, without_pictures
from chargehand.agents.setup import GIVE_UP, READ_MORE, ReadyWorker
from chargehand.code_errors import mistake_failure
from chargehand.concurrency import BareTaskGroup
from chargehand.engine.breaker import Breaker, forget_probe, lease, next_change, note, stand
from chargehand.engine.budget import NOTHING, Amount
from chargehand.engine.failure import AskedBecause, CodeError, EarlierCall, Failure, PendingCall, Question
from chargehand.engine.owed import Brief
from chargehand.engine.plan import digest
from chargehand.engine.policy import Breaking, Instant
from chargehand.engine.state import Step, call_digest
from chargehand.engine.value import DEPTH, decode_value, encode_or_text, encode_value
from chargehand.errors import NotJson
from chargehand.models.artifacts import Artifact, Passages
from chargehand.models.call_errors import shorten_words
from chargehand.models.messages import Message, Reply, ToolCall, wrap
from chargehand.models.provider_tools import tool_results
from chargehand.runtime.executor import Claim, Done, EffectUnknown, StepContext, WorkFailed
from chargehand.text.words import did_you_mean
from chargehand.tools.approval import must_ask
from chargehand.tools.calling import capped
from chargehand.tools.rules import NOT_SEEN, Called, Repetition, may_exit, needs_approval, objection, rule_asks
from chargehand.tools.tool import Caller, Costs, Tool, ToolFailed, UnknownOutcome
from chargehand.tools.tool_files import split_files

# --- breakers: a tool out of order is not called for a while


_MAX_RECORDS = 256
_LONGEST_REASON = 200


class _Record(Struct):
    """One tool that has failed. Its function is kept: while it is, no other has its id."""

    function: Callable[..., Any]
    breaker: Breaker
    since: Instant = 0.0
    reason: str = ""


class ToolBreakers:
    """Which tools may be called now. The clock is the loop's, and is only read once a tool has failed."""

    def __init__(self, settings: Breaking) -> None:
        self._settings = settings
        self._records: dict[int, _Record] = {}
        """Tools that failed lately, the latest last."""

    def __bool__(self) -> bool:
        """Whether there is a tool that failed lately; if not, there is nothing to ask."""
        return bool(self._records)

    def _find(self, tool: Tool) -> _Record | None:
        return self._records.get(id(tool.function))

    def objection(self, tool: Tool) -> str:
        """Why a tool is not called now, for a model. Empty: it may be, and where it was shut this is the one probe."""
        record = self._find(tool)
        if record is None:
            return ""
        now = _now()
        where = stand(record.breaker, now)
        if where == "half-open":
            lease(record.breaker, now, self._settings)
        if where in ("closed", "half-open"):
            return ""
        wait = ceil(max(0.0, next_change(record.breaker) - now))
        return (
            f"{tool.name} was not called: it has been out of order for {ceil(now - record.since)} s "
            f"(the last failure: {record.reason}). "
            f"It is tried again in {wait} s. Do without it, or give up and say why."
        )

    def failed(self, tool: Tool, reason: str) -> str:
        """It failed for a reason of its own. What is to be noted: that it is shut, and for how long; else nothing."""
        now = _now()
        record = self._records.pop(id(tool.function), None) or _Record(tool.function, Breaker())
        if len(self._records) >= _MAX_RECORDS:
            del self._records[next(iter(self._records))]
        self._records[id(tool.function)] = record
        record.reason = shorten_words(" ".join(reason.split()), _LONGEST_REASON)
        before = record.breaker.opened
        note(record.breaker, now, self._settings, good=False)
        if record.breaker.opened == before:
            return ""
        record.since = record.since if before else now
        wait = ceil(next_change(record.breaker) - now)
        again = "still " if before else ""
        return f"tool {tool.name} is {again}out of order and not called for {wait} s: {record.reason}"

    def worked(self, tool: Tool) -> str:
        """It returned something. What is to be noted: that it works again, if it was shut; else nothing."""
        record = self._find(tool)
        if record is None:
            return ""
        shut = record.breaker.opened
        note(record.breaker, _now(), self._settings, good=True)
        if all(good for _, good in record.breaker.recent):  # else half of its calls may be failing
            del self._records[id(tool.function)]
        return f"tool {tool.name} works again" if shut else ""

    def probing(self, tool: Tool) -> Instant:
        """Until when a call that nothing was objected to just now is the probe; 0: it is none."""
        record = self._find(tool)
        return 0.0 if record is None else record.breaker.leased

    def unsettled(self, tool: Tool, probing: Instant) -> None:
        """A call that says nothing of the tool: if it was the probe, the next one is."""
        record = self._find(tool)
        if record is not None and probing and record.breaker.leased == probing:
            forget_probe(record.breaker)


def _now() -> Instant:
    return asyncio.get_running_loop().time()


# --- the calls of a step


_PIECE = 16 * 1024
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
_MAX_ARTIFACTS = 8
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
    """What a call came to."""

    value: object = None
    error: str = ""
    broken: bool = False
    """The tool failed for a reason of its own."""
    barred: bool = False
    """It was not called, because its breaker is open."""
    note: str = ""
    """What the model is told besides, for example that the result is not kept as it was."""
    code_error: CodeError | None = None
    """A mistake in the code of the tool, which ends the attempt."""
    files: tuple[KeptFile, ...] = ()
    """The pictures and PDFs that came with it."""


class _PlannedCall(Struct, frozen=True):
    """What becomes of one call: it is made, or answered with a `problem`, or with what it returned `earlier`."""

    call: ToolCall
    tool: Tool | None = None
    problem: str = ""
    earlier: Returned | None = None
    same_as: int = -1
    """The number of an identical call of this step, whose result (or problem) is this one's, too."""
    pending: PendingCall | None = None
    """A person must allow it first."""

    @property
    def is_made(self) -> bool:
        return self.tool is not None and not self.problem and self.earlier is None and self.same_as < 0


class ToolCalls(Struct, eq=False, kw_only=True):
    """Makes the tool calls of one attempt and remembers what came of them."""

    ready: ReadyWorker
    context: StepContext
    history: WorkerHistory
    brief: Brief
    breakers: ToolBreakers
    tainted: bool = False
    """What the model has seen so far came, in part, from outside."""
    seen: Mapping[str, int] = field(default_factory=dict[str, int])
    """Versions of blocks, as they were last shown."""
    made: list[Called] = field(default_factory=list[Called])
    artifacts: list[Artifact] = field(default_factory=list[Artifact])
    sources: dict[str, None] = field(default_factory=dict[str, None])
    last: object = None
    circle: str = ""
    """What the model asks for again and again although it has it; empty as long as it does not."""
    returned: list[object] = field(default_factory=list[object])
    """What tools returned, and the arguments of calls with an effect: that was done."""
    heard: list[object] = field(default_factory=list[object])
    """What other workers wrote, and why a person did not allow a call."""
    _files: FilesOfTools | None = None
    """Made when the first file is returned."""
    _repetition: Repetition = field(default_factory=Repetition)
    _mistakes: int = 0
    _allowed: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    """How often a person allowed a call, by tool and arguments."""
    _earlier: dict[tuple[str, str], Returned] = field(default_factory=dict[tuple[str, str], Returned])
    """What stable tools returned, by name and arguments."""
    _acted: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    """How often an effect was had, by tool and arguments."""
    _changed: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    """How often a call that may change something returned a result, by tool and arguments."""
    _decided: dict[tuple[str, str], bool] = field(default_factory=dict[tuple[str, str], bool])
    """Whether the calls of this step need approval, as functions decided, by tool and arguments."""
    _tries: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    """How often a call that may change something was made, by tool and arguments: an answer is about one of them."""
    _made_effects: dict[tuple[str, str], EarlierCall] = field(default_factory=dict[tuple[str, str], EarlierCall])
    """Effects of this attempt, by tool and arguments."""
    _matched: set[str] = field(default_factory=set[str])
    """Earlier calls, by `call_digest`, that were answered with their result or that a person allowed to repeat."""
    _allowed_repeats: set[str] = field(default_factory=set[str])
    """Those that a person allowed to repeat in this reply: its other calls may repeat them too, and are asked about."""

    async def make(self, calls: tuple[ToolCall, ...], step: int) -> bool:
        """Make these calls side by side and show the model what they returned, in the order it asked.

        Returns whether any of it is new to the model.
        """
        if self.ready.has_deciding_tools:
            await self._decide_approvals(calls)
        plans = self._plan_all(calls, step)
        results: dict[int, Returned] = {}
        to_make = [(number, plan.call, plan.tool) for number, plan in enumerate(plans) if plan.is_made and plan.tool]
        if len(to_make) == 1:  # most steps make one call, which needs no task of its own
            number, call, tool = to_make[0]
            results[number] = await self._step(call, tool)
        elif to_make:
            results = await self._make_all(to_make)
        is_new = False
        for number, plan in enumerate(plans):
            source = number if plan.same_as < 0 else plan.same_as
            returned = plans[source].earlier or results.get(source) or Returned(error=plans[source].problem)
            if plan.same_as >= 0 and plan.tool is not None and not plan.tool.stable:
                self._show_once_more(plan.call, plan.tool, returned)
                continue
            is_new = self._show(plan, returned, step) or is_new
        return is_new

    def take_provider_results(self, reply: Reply) -> None:
        """Take what tools of the provider returned on the way to a reply: outsiders wrote it."""
        self.tainted = True
        self.returned += tool_results(reply.kept)

    async def _make_all(self, calls: Sequence[tuple[int, ToolCall, Tool]]) -> dict[int, Returned]:
        """Make calls side by side. One that fails for good lets the others finish: they may change something."""
        failed: list[WorkFailed] = []

        async def make(call: ToolCall, tool: Tool) -> Returned:
            try:
                return await self._step(call, tool)
            except WorkFailed as error:
                failed.append(error)
                return Returned()

        async with BareTaskGroup() as group:
            jobs = {number: group.create_task(make(call, tool)) for number, call, tool in calls}
        if failed:
            raise failed[0]
        return {number: job.result() for number, job in jobs.items()}

    def _plan_all(self, calls: tuple[ToolCall, ...], step: int) -> list[_PlannedCall]:
        """What becomes of each call of a step. One that is made counts for those after it.

        Of equal calls that are stable, change something or need approval only the first is made. Where a person must
        allow some of them, the attempt ends with one question about all of these, before any call is made.
        """
        plans: list[_PlannedCall] = []
        called = self.made if len(calls) == 1 else list(self.made)
        first: dict[tuple[str, str], int] = {}
        for number, call in enumerate(calls):
            tool = self.ready.tools.get(call.name) if len(calls) > 1 else None
            if tool is not None and (tool.stable or tool.effect != "read" or self._may_ask(tool)):
                same_as = first.setdefault(_identity(call), number)
                if same_as != number:
                    plans.append(_PlannedCall(call, tool, same_as=same_as))
                    continue
            plan = self._plan(call, number, step, called)
            plans.append(plan)
            if len(calls) > 1 and (plan.is_made or plan.pending):
                called.append(Called(step, call.name))
        self._matched |= self._allowed_repeats
        self._allowed_repeats.clear()
        self._ask_person([plan.pending for plan in plans if plan.pending is not None])
        return plans

    def _plan(self, call: ToolCall, number: int, step: int, called: Sequence[Called]) -> _PlannedCall:
        """What becomes of one call; WorkFailed where the worker gives up."""
        if number >= AT_ONCE:
            return _PlannedCall(call, problem=_TOO_MANY)
        if call.name == GIVE_UP.name:
            reason, final = _reason(call)
            raise WorkFailed(Failure("logic", reason, permanent=final), NOTHING)
        if call.name == READ_MORE.name:
            return _PlannedCall(call)
        tool = self.ready.tools.get(call.name)
        if tool is None:
            problem = f"There is no tool {call.name!r}; {did_you_mean(call.name, self.ready.tools)}"
            return _PlannedCall(call, problem=self._mistaken(problem))
        if problem := objection(self.ready.worker.rules, called, call.name, step):
            return _PlannedCall(call, tool, self._mistaken(problem))
        reason = self._approval_reason(call, tool)
        if reason is not None or self._is_decided(call):
            return self._with_approval(call, tool, reason or "declared", number)
        return _PlannedCall(call, tool, earlier=self._earlier.get(_identity(call)) if tool.stable else None)

    async def _decide_approvals(self, calls: tuple[ToolCall, ...]) -> None:
        """Ask the functions that decide whether calls need approval.

        What they decide is recorded before any call is made, so a resumed attempt asks a person about the same calls.
        """
        if self._decided:
            self._decided.clear()
        for call in calls[:AT_ONCE]:
            tool = self.ready.tools.get(call.name)
            if tool is not None and tool.decides is not None and _identity(call) not in self._decided:
                self._decided[_identity(call)] = await self._decide_approval(call, tool)

    async def _decide_approval(self, call: ToolCall, tool: Tool) -> bool:
        """Return whether a call needs approval. A function that fails asks: no call passes because of a mistake."""

        async def decide(key: str) -> Done:
            try:
                return Done(await tool.decide_approval(call.arguments, self._caller(key)), NOTHING)
            except ToolFailed as error:
                words = shorten_words(_printable(str(error)), _LONGEST_REASON)
                self.context.note(
                    f"whether {call.name} needs approval could not be decided, so a person is asked: {words}"
                )
                return Done(value=True, used=NOTHING, good=False)

        return await self.context.step(
            f"approve {call.name}", decide, kind="approval", request=_normalized(call.arguments), shape=bool
        )

    def _may_ask(self, tool: Tool) -> bool:
        """Whether calls of this tool may need approval, by its declaration or by a rule."""
        return tool.may_need_approval or tool.asks or needs_approval(self.ready.worker.rules, tool.name)

    def _asks_first(self, call: ToolCall, tool: Tool) -> bool:
        """Whether this call needs approval, by the declaration of its tool or by a rule."""
        rules = self.ready.worker.rules
        if tool.approve or tool.asks or (self._decided and self._decided.get(_identity(call), False)):
            return True
        if not tool.conditions and not rules:
            return False
        schema = {} if tool.arguments is None else tool.arguments.schema
        if tool.conditions and must_ask(tool.conditions, call.arguments, schema):
            return True
        return rule_asks(rules, tool.name, call.arguments, schema)

    def _approval_reason(self, call: ToolCall, tool: Tool) -> AskedBecause | None:
        """Why a person is asked before this call; None: no approval is needed."""
        if tool.effect == "effect" and not tool.poll and self._find_earlier(call) is not None:
            return "repeated"
        if self._asks_first(call, tool):
            return "declared"
        if tool.effect != "effect":
            return None
        if not self.tainted or not self.brief.ask_if_tainted:
            return None
        # a call that is answered with the result of an earlier attempt changes nothing
        return None if digest(*_identity(call)) in (self.brief.effects or {}) else "tainted"

    def _find_earlier(self, call: ToolCall) -> EarlierCall | None:
        """Return the call that this one may repeat: an equal one of this attempt, or one before it."""
        same = self._made_effects.get(_identity(call)) if self._made_effects else None
        return same or self._repeats(call)

    def _repeats(self, call: ToolCall) -> EarlierCall | None:
        """Return the earlier call that this one may repeat: an equal one, or one of the same tool in this task.

        An equal call of an earlier attempt is answered with its result, and a call that this attempt has recorded is
        not made again: neither repeats anything.
        """
        brief = self.brief
        if not brief.earlier and not brief.acted:
            return None
        which = digest(*_identity(call))
        if which in (brief.effects or {}) or which in self._recorded:
            self._matched.add(which)
            return None
        others: list[EarlierCall] = []
        for earlier in brief.earlier:
            if earlier.tool != call.name:
                continue
            made = call_digest(earlier.tool, earlier.arguments)
            if made == which and made not in self._matched:
                return earlier
            if made not in self._matched:
                others.append(earlier)
        if others:
            return max(others, key=lambda earlier: _likeness(earlier, call))  # the first of those that are as close
        round_, elsewhere = brief.acted.get(which, (brief.round, None))
        return elsewhere if round_ < brief.round and which not in self._matched else None

    @property
    def _recorded(self) -> set[str]:
        """The requests of the steps that this attempt goes on from."""
        return {step.request for step in (self.brief.steps or {}).values() if step.effect == "effect"}

    def _is_decided(self, call: ToolCall) -> bool:
        """Return whether a person decided on this very call: why it was asked about may not hold any more."""
        return bool(self.brief.answers) and self._approval_key(call)[0] in self.brief.answers

    def _approval_key(self, call: ToolCall) -> tuple[str, int]:
        """Return what the approval of a call is kept under, and for which of the equal calls it is, from 1."""
        which = _identity(call)
        failed = (self.brief.failed_calls or {}).get(digest(*which), 0)
        times = max(self._allowed.get(which, failed), self._tries.get(which, 0)) + 1
        return digest(*which, str(times)), times

    def _with_approval(self, call: ToolCall, tool: Tool, reason: AskedBecause, number: int) -> _PlannedCall:
        """A call that needs approval. Approval is for one call: the same a second time is asked for again."""
        which = _identity(call)
        key, times = self._approval_key(call)
        earlier = self._find_earlier(call) if tool.effect == "effect" else None
        answers = self.brief.answers or {}
        if key in answers:
            if refusal := answers[key]:
                refused = "did not answer" if tool.asks else "did not allow this call"
                problem = f"A person {refused}: {refusal}"
                self.heard.append(problem)
                return _PlannedCall(call, tool, problem)
            self._allowed[which] = times
            if earlier is not None:
                self._allow_repeat(call, earlier)
            if not tool.asks:
                return _PlannedCall(call, tool)
            reply = decode_value((self.brief.replies or {})[key])
            self.heard.append(reply)
            return _PlannedCall(call, tool, earlier=Returned(reply))
        try:
            tool.check(call.arguments)
        except ToolFailed as error:  # a call that cannot be made needs no approval
            return _PlannedCall(call, tool, str(error))
        arguments = msgspec.json.decode(call.arguments or "{}", type=dict[str, object])
        line = str(arguments["question"]) if tool.asks else f"{call.name}({call.arguments})"
        pending = PendingCall(
            call=number + 1,
            text=line if times == 1 else f"{line}, for time number {times}",
            tool=call.name,
            arguments=arguments,
            because=reason,
            key=key,
            earlier=earlier,
        )
        return _PlannedCall(call, tool, pending=pending)

    def _allow_repeat(self, call: ToolCall, earlier: EarlierCall) -> None:
        """Note that a person allowed a call that may repeat an earlier one: that one is not asked about again."""
        self._allowed_repeats.add(call_digest(earlier.tool, earlier.arguments))
        which = _identity(call)
        is_equal = call_digest(earlier.tool, earlier.arguments) == digest(*which)
        if is_equal and earlier.happened and earlier.task == self.brief.work.task:
            self._acted[which] = max(self._acted.get(which, 0), 1)  # the key of the first call is used up

    def _ask_person(self, pending: Sequence[PendingCall]) -> None:
        """End the attempt with a question about the first of these calls; the others are asked about with it.

        A question in words comes first, and alone.
        """
        if not pending:
            return
        for call in pending:
            if self.ready.tools[call.tool].asks:
                raise WorkFailed(Failure("approval", call.text, question=self._question_in_words(call)), NOTHING)
        first = pending[0]
        question = Question(
            what="tool",
            tool=first.tool,
            arguments=first.arguments,
            because=first.because,
            workers=(self.ready.worker.name,),
            key=first.key,
            call=first.call,
            also=tuple(pending[1:]),
            earlier=first.earlier,
        )
        raise WorkFailed(Failure("approval", first.text, question=question), NOTHING)

    def _question_in_words(self, call: PendingCall) -> Question:
        options = cast("list[str] | None", call.arguments.get("options"))
        return Question(
            what="question",
            tool=call.tool,
            workers=(self.ready.worker.name,),
            key=call.key,
            call=call.call,
            options=tuple(options or ()),
            free_text=call.arguments.get("free_text") is True,
            schema=call.arguments.get("schema"),
        )

    def _mistaken(self, problem: str) -> str:
        self._mistakes += 1
        if self._mistakes >= _MISTAKES:
            raise WorkFailed(Failure("logic", f"{_MISTAKES} calls could not be made; the last: {problem}"), NOTHING)
        return problem

    def _step(self, call: ToolCall, tool: Tool) -> Coroutine[Any, Any, Returned]:
        """Make a call as a step of the attempt."""

        def make(key: str) -> Coroutine[Any, Any, Done]:
            caller = None
            if tool.arguments is not None and tool.arguments.caller:
                caller = self._caller(key, self._changed.get(_identity(call), 0) + 1)
            return make_call(tool=tool, call=call, key=key, caller=caller, breakers=self.breakers, context=self.context)

        request = call.arguments
        arguments = ""
        if tool.effect != "read":  # the same call is the same, however its arguments are written the next time
            canonical = _canonical(call.arguments)
            request = call.arguments if canonical is None else canonical
            arguments = canonical if canonical is not None and canonical[:1] == "{" else ""
        if tool.effect == "effect" and (times := self._acted.get((call.name, request), 0)):
            request = f"{request} (time number {times + 1})"
        amount = tool.holds(call.arguments)
        reserve = Claim(amount, resumable=tool.relays) if tool.share and amount != NOTHING else amount
        return self.context.step(
            tool.name,
            make,
            request=request,
            effect=tool.effect,
            reserve=reserve,
            shape=Returned,
            tool_call=call.id,
            arguments=arguments,
            look=tool.happened is not None,
        )

    def _caller(self, key: str, times: int = 1) -> Caller:
        """Who calls: results of the same step are not shown yet, so nothing of them is in the arguments."""
        where = self.context.where
        return Caller(
            key=key,
            worker=self.ready.worker.name,
            tainted=self.tainted,
            seen=self.seen,
            run=where.run,
            task=where.task,
            attempt=where.attempt,
            mark=where.mark,
            times=times,
            context=self.context,
        )

    def _show(self, plan: _PlannedCall, returned: Returned, step: int) -> bool:
        """Add a result to the history; whether it is new to the model."""
        call = plan.call
        tool = plan.tool
        files = ShownFiles()
        if returned.code_error is not None:
            # no model can mend a tool: the attempt ends, and so does the task unless another worker may take it
            raise WorkFailed(mistake_failure(returned.code_error, f"the tool {call.name}"), NOTHING)
        if call.name == READ_MORE.name:
            text = excerpt = _piece(call, self.history)
        else:
            files, text = self._text_and_files(returned, tool)
            excerpt, is_cut = capped(text, tool.cap if tool is not None else _PIECE)
            if is_cut:
                handle = f"result-{len(self.history.kept) + 1}"
                self.history.keep(handle, text)
                excerpt += read_on(handle, text, excerpt)
            if plan.is_made and tool is not None:
                result = returned.value if isinstance(returned.value, str) else text  # a text without its quotes
                self._record(call, tool, returned, Called(step, call.name, result[:_PIECE]))
        if tool is not None and not tool.trusted:
            self.tainted = True
        repeat = NOT_SEEN if tool is None else self._repetition.feed(call.name, call.arguments, text, poll=tool.poll)
        if repeat.stuck and (returned.error or may_exit(self.ready.worker.rules, self.made)):
            raise WorkFailed(Failure("logic", f"no progress: {repeat.warning}", code="repeated_call"), NOTHING)
        if repeat.stuck:
            self.circle = repeat.warning
        if not repeat.warning:
            wrapped = self._wrap(call, tool, excerpt, failed=bool(returned.error))
        else:
            wrapped = self._wrap_again(call, excerpt, failed=bool(returned.error))
            files = ShownFiles()  # it has them already
        if returned.note:  # in our words, so outside the envelope
            wrapped = f"{wrapped}\n{returned.note}"
        message = Message(
            role="tool",
            text=wrapped,
            call=call.id,
            is_error=bool(returned.error),
            images=files.images,
            documents=files.documents,
        )
        self.history.add(message, text)
        return not repeat.warning

    def _text_and_files(self, returned: Returned, tool: Tool | None) -> tuple[ShownFiles, str]:
        """What stands beside a result, and the result in words: without drawing instructions, which are no use."""
        text = _text(returned, tool)
        if not returned.files:
            return ShownFiles(), text
        if self._files is None:
            self._files = FilesOfTools(self.ready.models)
        files, listed = self._files.show(returned.files)
        return files, listed if returned.value is None else f"{listed}\n{text}"

    def _wrap(self, call: ToolCall, tool: Tool | None, excerpt: str, *, failed: bool) -> str:
        """A result as a model is shown it: as data, unless who made the team wrote it for the worker to follow."""
        if tool is not None and tool.instructs and not failed:
            return excerpt
        return wrap(self.history.nonce, f"tool {call.name}", excerpt)

    def _show_once_more(self, call: ToolCall, tool: Tool, returned: Returned) -> None:
        """Show the result of an acting call to an equal one of the same step, which was not made."""
        text = _text(returned)
        excerpt, _ = capped(text, min(tool.cap, _SHOWN_AGAIN))
        wrapped = wrap(self.history.nonce, f"tool {call.name}", excerpt)
        if not returned.error:
            wrapped = f"{wrapped}\n{_MADE_ONCE}"
        self.history.add(Message("tool", wrapped, call=call.id, is_error=bool(returned.error)), text)

    def _record(self, call: ToolCall, tool: Tool, returned: Returned, called: Called) -> None:
        """Keep what a call came to, and what the result of the worker may rest on."""
        evidence = self.heard if tool.relays else self.returned
        evidence.append(returned.error or self._without_expression(returned.value))
        evidence += [kept.text for kept in returned.files if kept.text]
        if tool.effect != "read":
            self._earlier.clear()  # what was read before may not hold any more
            tried = _identity(call)
            self._tries[tried] = self._tries.get(tried, 0) + 1
        if returned.error:
            return
        if tool.effect != "read":
            evidence.append(call.arguments)
            which = _identity(call)
            self._changed[which] = self._changed.get(which, 0) + 1
        self.last = returned.value
        self._collect(returned.value)
        self.made.append(called)
        if tool.effect == "effect":
            which = _identity(call)
            self._acted[which] = self._acted.get(which, 0) + 1
            if not tool.poll:
                self._made_effects[which] = self._as_earlier(call, returned)
        if tool.stable:
            self._earlier[_identity(call)] = returned

    def _as_earlier(self, call: ToolCall, returned: Returned) -> EarlierCall:
        """Return a call of this attempt as one that an equal call would repeat."""
        arguments = msgspec.json.decode(call.arguments or "{}", type=dict[str, object])
        return EarlierCall(call.name, arguments, returned.value, task=self.brief.work.task)

    def _without_expression(self, value: object) -> object:
        """A figure without what the worker had computed for it: that is the worker's own words."""
        if not isinstance(value, dict):
            return value
        table = cast("dict[str, object]", value)
        if "expression" not in table:
            return table
        self.heard.append(table["expression"])
        return {key: item for key, item in table.items() if key != "expression"}

    def _wrap_again(self, call: ToolCall, excerpt: str, *, failed: bool) -> str:
        """What the model is shown when it asks for what it has: the result again if it is short, and what to do."""
        advice = "Do something else." if failed else "Answer now, or do something else."
        words = f"{_ALREADY.format(tool=call.name)} {advice}"
        if len(excerpt) > _SHOWN_AGAIN:
            return words
        return f"{wrap(self.history.nonce, f'tool {call.name}', excerpt)}\n{words}"

    def _collect(self, value: object) -> None:
        kind = cast("dict[str, object]", value).get("kind") if isinstance(value, dict) else None
        if not isinstance(kind, str) or kind not in _KINDS:
            return
        try:
            artifact: Artifact = msgspec.convert(value, Artifact)
        except msgspec.ValidationError:
            return
        if len(self.artifacts) < _MAX_ARTIFACTS and len(msgspec.json.encode(artifact)) <= _LARGEST_ARTIFACT:
            self.artifacts.append(artifact)
        self.sources.update(dict.fromkeys(sources(artifact)))


def sources(artifact: Artifact) -> list[str]:
    """Where an artifact comes from."""
    parts = artifact.found if isinstance(artifact, Passages) else [artifact]
    return [part.source for part in parts if part.source]


class _GivenUp(Struct, frozen=True):
    reason: str = ""
    final: bool = False


def _reason(call: ToolCall) -> tuple[str, bool]:
    """Why a worker gave up, and whether it says that nothing would help."""
    try:
        given_up = msgspec.json.decode(call.arguments, type=_GivenUp)
    except msgspec.DecodeError:
        given_up = _GivenUp()
    return (
        (given_up.reason, given_up.final)
        if given_up.reason.strip()
        else ("the worker gave up without saying why", False)
    )


class _PieceRequest(Struct, frozen=True):
    handle: str
    start: int = 0


def _piece(call: ToolCall, history: WorkerHistory) -> str:
    try:
        piece = msgspec.json.decode(call.arguments, type=_PieceRequest)
    except (msgspec.DecodeError, RecursionError) as error:
        return _text(Returned(error=f"read_more wants a handle and a start: {error}"))
    text = history.kept.get(piece.handle)
    if text is None:
        handles = ", ".join(history.kept) or "none"
        return _text(Returned(error=f"there is nothing under {piece.handle[:100]!r}; known are {handles}"))
    start = max(0, piece.start)
    excerpt = text[start : start + _PIECE].encode()[:_PIECE].decode(errors="ignore")
    end = start + len(excerpt)
    rest = f"\n… read on with start={end}" if end < len(text) else "\n(That is the end.)"
    return excerpt + rest


def _text(returned: Returned, tool: Tool | None = None) -> str:
    if returned.error:
        return msgspec.json.encode({"error": returned.error}).decode()
    value = returned.value
    if tool is not None and tool.instructs and isinstance(value, str):
        return value
    if isinstance(value, dict):
        value = without_pictures(cast("dict[str, object]", value))
    return bytes(encode_value(value)).decode()


def _identity(call: ToolCall) -> tuple[str, str]:
    """What makes two calls the same."""
    return call.name, _normalized(call.arguments)


def _likeness(earlier: EarlierCall, call: ToolCall) -> tuple[int, bool]:
    """Return how much a call resembles an earlier one of the same tool: equal arguments, then that it is in doubt."""
    try:
        arguments = msgspec.json.decode(call.arguments or "{}", type=dict[str, object])
    except (msgspec.DecodeError, RecursionError):
        arguments = {}
    equal = [name for name, value in arguments.items() if earlier.arguments.get(name) == value]
    return len(equal), not earlier.happened


def _normalized(arguments: str) -> str:
    """Return arguments without regard to white space and the order of keys; as they are where they are no JSON."""
    canonical = _canonical(arguments)
    return arguments if canonical is None else canonical


def _canonical(arguments: str) -> str | None:
    """Return arguments as canonical JSON; None where they are no JSON."""
    try:
        return bytes(encode_value(msgspec.json.decode(arguments or "{}"))).decode()
    except (msgspec.DecodeError, NotJson, RecursionError):
        return None


# --- after a crash: whether a call happened


async def look_up_call(ready: ReadyWorker | None, step: Step) -> Done | None:
    """Ask the tool of an open effect whether the call happened.

    Returns:
        The result, or None: it did not happen.

    Raises:
        EffectUnknown: the tool cannot tell, or is not there any more.
        WorkFailed: the look-up itself failed.
    """
    tool = None if ready is None else ready.tools.get(step.name)
    if tool is None or tool.happened is None:
        raise EffectUnknown
    try:
        value = await tool.look_up(step.decoded_arguments, step.key)
    except ToolFailed as error:
        raise WorkFailed(Failure("network", f"{tool.name}: {_printable(str(error))}"), NOTHING) from error
    if isinstance(value, UnknownOutcome):
        raise EffectUnknown
    return None if value is None else Done(_returned(tool, value), NOTHING)


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
    value, files = split_files(value)
    returned = _returned(tool, value)
    if not files:
        return Done(returned, used)
    kept, problems = await keep_files(files, context)
    note = " ".join(filter(None, (returned.note, problems)))
    returned = structs.replace(returned, files=kept, note=note)
    return Done(returned, used, files=tuple(each.file.id for each in kept))


def _returned(tool: Tool, value: object) -> Returned:
    """What is recorded of a call that succeeded."""
    body, whole = encode_or_text(value, depth=DEPTH - 1)  # one level is that of `Returned`
    size = len(body)
    if size > LARGEST and tool.effect == "read":
        return Returned(error=f"{tool.name} returned {size} bytes; ask for at most {LARGEST}")
    if size > LARGEST_OF_ACTION:
        beginning = bytes(body)[:LARGEST].decode(errors="ignore")
        return Returned(beginning, note=_CUT.format(size=size, kept=len(beginning.encode())))
    return Returned(body, note="" if whole else _AS_TEXT)


def _failed(tool: Tool, error: ToolFailed) -> Done:
    if error.unknown and tool.effect == "effect":  # the step stays open: it must not be repeated silently
        failure = Failure("uncertain", f"{tool.name}: {_printable(str(error))}", code_error=error.code_error)
        raise WorkFailed(failure, NOTHING) from error
    # one that may have done its work is taken to have cost what was reserved for it
    returned = Returned(error=_printable(str(error)), broken=error.broken, code_error=error.code_error)
    return Done(returned, None if error.unknown else NOTHING, good=False)


def _printable(text: str) -> str:
    """The text without halves of surrogate pairs, which cannot be recorded."""
    return text if text.isascii() else text.encode(errors="replace").decode()
