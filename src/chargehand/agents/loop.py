"""One attempt at one task: model, tools, model, until there is a result. Every reply is journaled before it is used."""

from collections.abc import Coroutine
from functools import partial
from typing import Any

from msgspec import Struct, field, structs

from chargehand.agents.attachments import ShownFiles, check_readable, shown_as_text, shown_inputs, with_bytes
from chargehand.agents.audit.claims import CLAIMING, WorkMaterial, day_of, describe, objection, trace_result
from chargehand.agents.audit.provider_citations import confirm
from chargehand.agents.inputs import (
    DAY,
    WorkerHistory,
    day_text,
    same_nonce,
    show_earlier_calls,
    show_inputs,
)
from chargehand.agents.prompts import Prompts
from chargehand.agents.recall import Recall, Summarizer, block_facts, turn_facts
from chargehand.agents.roles import REPEATS
from chargehand.agents.setup import GIVE_UP, READ_MORE, ReadyWorker, nameable
from chargehand.agents.spending import Reservation, Spending, cut_off
from chargehand.agents.tool_calls import ToolBreakers, ToolCalls
from chargehand.engine.budget import NOTHING
from chargehand.engine.facts import Tracing
from chargehand.engine.failure import Failure, FailureCode, Missing
from chargehand.engine.owed import Brief
from chargehand.engine.policy import Breaking
from chargehand.engine.value import decode_value
from chargehand.errors import Invalid
from chargehand.memory.conversations import Turn
from chargehand.models.artifacts import WorkerOutput
from chargehand.models.messages import Message, Reply, Request, ToolSpec, new_nonce, wrap
from chargehand.models.partial_text import missing_parts
from chargehand.models.reply_limit import longer_limit, reply_limit
from chargehand.models.request_facts import Working
from chargehand.models.token_count import count_tokens, together
from chargehand.runtime.executor import Done, StepContext, WorkFailed
from chargehand.tools.rules import allowed, may_exit, must_exit, only_end

_REPAIRS = 2
_MAX_MISSING = 20
"""How many parts of its task a worker can say it left out."""


class TeamResources(Struct, eq=False, frozen=True):
    """What the attempts of a team share."""

    prompts: Prompts
    spending: Spending
    breakers: ToolBreakers = field(default_factory=lambda: ToolBreakers(Breaking()))


def work(ready: ReadyWorker, resources: TeamResources, brief: Brief, context: StepContext) -> Coroutine[Any, Any, Done]:
    """Do the task of a brief; WorkFailed when it does not work out."""
    attempt = Attempt(ready, resources, brief, context)
    return attempt.run()  # not awaited here: thousands may wait, and each frame counts


class Attempt:
    """One attempt of a worker. A result that is not accepted can be sent back to it once it is there."""

    __slots__ = (
        "_asked",
        "_brief",
        "_context",
        "_doubted",
        "_equipped",
        "_history",
        "_kit",
        "_longer",
        "_outside",
        "_recall",
        "_repairs",
        "_repeats",
        "_steps",
        "_subject",
        "_task",
        "_tried",
    )

    def __init__(self, ready: ReadyWorker, resources: TeamResources, brief: Brief, context: StepContext) -> None:
        self._equipped = ready
        self._kit = resources
        self._context = context
        self._brief = brief
        self._doubted: Done | None = None  # a result that was sent back, for when no better one comes
        nonce = new_nonce()
        shown = shown_inputs(brief, ready.models) if brief.inputs else ShownFiles()
        inputs = show_inputs(brief, nonce, by_handle=True, shown=shown.ids if brief.inputs else ())
        task = resources.prompts.text("task", instruction=brief.instruction, inputs=inputs.text).strip()
        earlier = show_earlier_calls(brief.earlier, nonce) if brief.earlier else ""
        text = f"({day_text(brief.began // DAY)})\n\n{task}{earlier}"
        message = Message("user", text, images=shown.images, documents=shown.documents)
        opening = (ready.system(resources.prompts), message)
        self._task = message
        self._history = WorkerHistory(opening, ready.window, nonce, beside=ready.beside)
        for handle, text in inputs.kept.items():
            self._history.keep(handle, text)
        self._asked = brief.instruction
        self._outside = brief.outside
        self._tried: ToolCalls | None = None
        self._subject = Working(brief.message or brief.instruction, ready.card, inputs.inputs, inputs.gaps)
        self._repairs = 0
        self._longer = 0  # tokens a reply is to have room for, since one was cut
        self._steps = 0
        self._repeats = 0
        self._recall: Recall | None = None
        memory = ready.memory
        if memory is not None and memory.is_shown(brief.steps):  # what it is told is not known before it has looked
            known = resources.spending.observations.of(ready.models[0]).rates
            self._recall = Recall(memory, context, ready.window, self._history.rates, known)
        else:
            context.prompt(ready.models[0].card.handle, opening, tuple(ready.tools))

    @property
    def _calls(self) -> ToolCalls:
        """Made when the first call is: thousands of attempts may wait for a model that will need none."""
        if self._tried is None:
            outside = self._outside or bool(self._subject.inputs or self._subject.gaps)
            tools = self._equipped.tools
            outside = outside or any(
                call.tool not in tools or not tools[call.tool].trusted for call in self._brief.earlier
            )
            breakers = self._kit.breakers
            self._tried = ToolCalls(
                ready=self._equipped,
                context=self._context,
                history=self._history,
                brief=self._brief,
                breakers=breakers,
                tainted=outside,
                returned=self._earlier_results(),
            )
        return self._tried

    def _earlier_results(self) -> list[object]:
        """Return what calls of earlier attempts returned: the result of this one may rest on it."""
        happened = [call for call in self._brief.earlier if call.happened]
        return [value for call in happened for value in (call.result, call.arguments)]

    async def run(self) -> Done:
        if self._brief.inputs:
            check_readable(self._brief, self._equipped.models)
            for note in shown_as_text(self._brief, self._equipped.models):
                self._context.note(note)
        try:
            done = await self._result()
        except WorkFailed as error:
            if self._doubted is None or error.failure.kind in ("approval", "uncertain"):
                raise
            self._context.note(f"no better result could be had: {error}")
            done = self._doubted
        if (recall := self._recall) is not None:
            question = Turn("user", self._asked, tainted=self._outside or recall.misled)
            await recall.keep(question, done.value, tainted=self._calls.tainted)
        return done

    async def _result(self) -> Done:
        most = self._equipped.worker.steps
        paused: Reply | None = None
        while self._steps < most:
            number = self._steps + self._repeats + 1
            if self._recall is not None:
                await self._remind(self._recall, number)
            reply = await self._ask()
            self._history.add_reply(reply)
            if reply.provider_calls:
                self._calls.take_provider_results(reply)
            if reply.finish == "paused":  # it goes on when it is asked again
                self._steps += 1
                paused = _join(paused, reply)
                continue
            if reply.calls:
                paused = None
                exit_tool = await self._make_calls(reply, number)
                if exit_tool:
                    return Done(self._calls.last, NOTHING, exit_tool=exit_tool)
                continue
            self._steps += 1
            if paused is not None:
                reply, paused = _join(paused, reply), None
            done = self._finished(reply)
            if done is not None:
                done = await self._traced(done, reply, last=self._steps >= most)
            if done is not None:
                return done
        message = f"there was no result after {most} steps; give it more, or a smaller task"
        raise WorkFailed(Failure("logic", message, code="too_many_steps"), NOTHING)

    async def _make_calls(self, reply: Reply, number: int) -> str:
        """Make the calls of a reply; return the tool that ends the attempt, empty where it goes on."""
        calls = self._calls
        if calls.circle and all(call.name != GIVE_UP.name for call in reply.calls):
            failure = Failure("logic", f"no progress: {calls.circle}", code="repeated_call")
            raise WorkFailed(failure, NOTHING)
        if await calls.make(reply.calls, number) or self._repeats == REPEATS:
            self._steps += 1
        else:
            self._repeats += 1
        return calls.made[-1].tool if must_exit(self._equipped.worker.rules, calls.made) else ""

    @property
    def can_go_on(self) -> bool:
        """Whether it has a step left to mend its result, and a model that would not say the same again."""
        return self._steps < self._equipped.worker.steps and self._uses_words

    @property
    def _uses_words(self) -> bool:
        """Whether its model makes something of what it is told."""
        return not self._equipped.models[0].card.reads_facts

    async def mend(self, problem: str) -> Done:
        """The result once more. The model has before it what it found, and is told why that was not accepted."""
        envelope = wrap(self._history.nonce, "check", problem)
        order = "Your result was not accepted. Mend what is said here, and send the whole result again."
        self._history.add(Message("user", f"{order}\n{envelope}"), f"{order}\n{problem}")
        return await self.run()

    # --- the memory

    async def _remind(self, recall: Recall, step: int) -> None:
        """Show what memory holds now, before the model is asked."""
        ready = self._equipped
        resources = self._kit
        history = self._history
        summarizer = Summarizer(
            prompts=resources.prompts,
            uses_model=self._uses_words,
            spending=resources.spending,
            models=ready.models,
            estimate=ready.worker.estimate,
        )
        system = ready.system(resources.prompts)
        if await recall.look(
            summarizer, count_tokens(system.text) + count_tokens(same_nonce(self._task.text, history.nonce))
        ):
            opening = recall.opening(system, self._task, history.nonce)
            history.reopen(opening, heads=recall.heads, how_to_find=recall.memory.how_to_find)
            blocks = block_facts(recall.blocks.values())
            self._subject = structs.replace(self._subject, blocks=blocks, earlier=turn_facts(recall.turns))
            self._calls.seen = recall.versions
            self._calls.tainted = self._calls.tainted or recall.tainted
        if step == 1:
            self._context.prompt(ready.models[0].card.handle, history.brief, tuple(ready.tools))

    # --- the model

    def _ask(self) -> Coroutine[Any, Any, Reply]:
        """Ask the model, as a step of the attempt."""
        ready = self._equipped
        try:
            if self._history.fit():
                self._context.note("the history was shortened to fit the model's window")
        except Invalid as error:
            raise WorkFailed(Failure("resource", str(error), permanent=True), NOTHING) from error
        schema = ready.shape.raw if ready.shape is not None else None
        if self._recall is not None and self._subject.chat_turns != self._history.chat_turns:
            self._subject = structs.replace(self._subject, chat_turns=self._history.chat_turns)
        request = Request(
            messages=self._history.messages,
            tools=self._tools(),
            schema=schema,
            settings=ready.worker.settings,
            subject=self._subject,
            tool_choice=self._tool_choice(),
            asker=ready.worker.name,
            provider_tools=() if self._tried is not None and self._tried.circle else ready.provider_tools,
        )
        spending = self._kit.spending
        reservation = spending.reserve(
            ready.models,
            request,
            read=self._history.tokens,
            size=together(self._history.size, ready.searched) if spending.capped else None,
            estimate=ready.worker.estimate,
            at_least=self._longer,
        )
        call = partial(self._call, reservation)
        return spending.step(
            self._context, reservation, "model", call, kind="model", request=self._history.chain, shape=Reply
        )

    async def _call(self, reservation: Reservation, _key: str) -> Done:
        context = self._context
        hear = context.say if context.heard else None
        request = reservation.request
        if self._history.has_files:
            reservation.request = structs.replace(request, messages=await with_bytes(request.messages, context))
        reply, used = await self._kit.spending.call(reservation, context, hear=hear)
        return Done(reply, used)

    def _tool_choice(self) -> str:
        """How the model must end in the last step: by an answer, or by the one tool that rules leave for it.

        Any other call would come to nothing: there is no step left in which its result could be used. An answer is
        only forced where it has a schema, and once there are results to answer from.
        """
        ready = self._equipped
        if self._steps < ready.worker.steps - 1:
            return ""
        rules = ready.worker.rules
        if rules and may_exit(rules, self._calls.made):
            return only_end(rules, self._calls.made, tuple(ready.tools))
        has_results = self._tried is not None and bool(self._tried.returned) and not self._tried.circle
        return "none" if ready.shape is not None and has_results else ""

    def _tools(self) -> tuple[ToolSpec, ...]:
        ready = self._equipped
        if self._tried is not None and self._tried.circle:  # it has what it asks for: it can only answer or give up
            return (GIVE_UP,)
        more = (READ_MORE,) if self._history.kept else ()
        if not ready.worker.rules:
            return ready.specs + more
        open_now = set(allowed(ready.worker.rules, self._calls.made, tuple(ready.tools)))
        return tuple(spec for spec in ready.specs if spec.name in open_now or spec.name not in ready.tools) + more

    # --- the end

    def _finished(self, reply: Reply) -> Done | None:
        """The result, if the reply is one; else the model is told what is wrong with it, a bounded number of times."""
        rules = self._equipped.worker.rules
        if rules and (problem := may_exit(rules, self._calls.made)):
            return self._again(problem, problem, "required_call_missing")
        if reply.finish == "refused":
            words = f"the model refused: {reply.text[:200] or 'it did not say why'}"
            raise WorkFailed(Failure("logic", words, permanent=True), NOTHING)
        if reply.finish == "length" and not (self._equipped.takes_cut_replies and reply.text.strip()):
            return self._cut(reply)
        text = reply.text.strip()
        if not text:
            order = "Your reply was empty. Send the result, or call give_up and say why."
            return self._again(order, "it was empty", "empty_reply")
        if self._equipped.shape is not None:
            try:
                return Done(self._equipped.shape.read(reply.text), NOTHING)
            except Invalid as error:
                order = "Send the whole reply again: one JSON value and nothing else"
                return self._again(f"That cannot be used: {error}. {order}.", str(error), "wrong_output")
        product = WorkerOutput(text)
        if (calls := self._tried) is not None:
            product = WorkerOutput(product.text, tuple(calls.artifacts), tuple(calls.sources))
        missing = self._missing_parts(product.text)
        return Done(product, NOTHING, missing=Missing(missing) if missing else None)

    async def _traced(self, done: Done, reply: Reply, *, last: bool) -> Done | None:
        """The result with what its figures rest on; None where the worker is to look at them again, which it is once.

        What is sent back is not lost: it is delivered with its doubts if nothing better comes.
        """
        calls = self._tried
        has_returned = calls is not None and bool(calls.returned)
        citations = confirm(reply.citations, self._cited_texts()) if reply.citations else ()
        if not has_returned and not CLAIMING.search(reply.text):
            return structs.replace(done, tracing=Tracing(citations=citations))
        tracing = await trace_result(done.value, self._material(), day_of(self._brief.began))
        sent_back = self._doubted is not None
        done = structs.replace(done, tracing=structs.replace(tracing, sent_back=sent_back, citations=citations))
        doubt = objection(tracing, called=has_returned)
        if not doubt or sent_back or last or not self._uses_words:
            return done
        self._doubted = done
        self._context.note(
            f"sent back once: {'; '.join(describe(item) for item in tracing.untraced if not item.origin)}"
        )
        self._history.add(Message("user", doubt))
        return None

    def _cited_texts(self) -> list[object]:
        """What a provider may cite: the files that were given, and what tools returned."""
        given = [
            decode_value(source.value) for source in self._brief.inputs if source.file and source.value is not None
        ]
        return [*given, *(self._tried.returned if self._tried is not None else ())]

    def _material(self) -> WorkMaterial:
        """What the result of this attempt may rest on."""
        subject = self._subject
        worker = self._equipped.worker
        brief = self._brief
        calls = self._tried
        facts: list[object] = [brief.instruction, brief.goal, worker.prompt, worker.description]
        for source in subject.inputs:
            facts += [source.value, source.instruction]
        facts += [gap.message for gap in subject.gaps]
        facts += [block.text for block in subject.blocks]
        facts += [turn.text for turn in subject.earlier]
        return WorkMaterial(
            tools=calls.returned if calls is not None else self._earlier_results(),
            given=facts,
            words=calls.heard if calls is not None else [],
            untraced=[
                item for source in brief.inputs if source.tracing is not None for item in source.tracing.untraced
            ],
            has_tools=not worker.may_estimate and any(name not in nameable() for name in self._equipped.tools),
        )

    def _cut(self, reply: Reply) -> None:
        """A reply that is not whole: it is asked for again with more room, once; after that, for a shorter one."""
        settings = self._equipped.worker.settings
        card = self._equipped.models[0].card
        limit = reply_limit(card, settings, self._history.tokens)
        longer = longer_limit(card, settings, limit, self._history.tokens)
        if not self._longer and longer > limit:
            self._longer = longer
            return self._again("Your reply was cut off. Send it again, whole.", cut_off(reply))
        return self._again("Your reply was cut off because it was too long. Send a shorter one.", cut_off(reply))

    def _again(self, order: str, problem: str, code: FailureCode = "") -> None:
        """Say to the model what it should do; after the last time, to people what was wrong."""
        self._repairs += 1
        if self._repairs > _REPAIRS:
            message = f"the model did not send a usable result: {problem}"
            raise WorkFailed(Failure("logic", message, code=code), NOTHING)
        self._history.add(Message("user", order))

    def _missing_parts(self, text: str) -> tuple[str, ...]:
        """What a worker says in its result that it left out.

        What it quotes from a tool is not its own; what another worker wrote to it, it may well say again.
        """
        messages = self._history.messages
        tools = self._equipped.tools
        received = {
            call.id for message in messages for call in message.calls if call.name in tools and tools[call.name].relays
        }
        quoted = [message.text for message in messages if message.role == "tool" and message.call not in received]
        return missing_parts(text, quoted)[:_MAX_MISSING]


def _join(paused: Reply | None, reply: Reply) -> Reply:
    """Return the reply with the text and the citations of the parts of its turn before a pause."""
    if paused is None:
        return reply
    return structs.replace(reply, text=paused.text + reply.text, citations=paused.citations + reply.citations)
