"""From results to one answer: merged, selected, voted on, reduced or handed through; by a model or by a function.

An answer that a model wrote is checked against the results; what is found is said below it.
"""

import inspect
import re
from collections.abc import Callable, Sequence

from msgspec import structs

from chargehand.agents.answer_format import AnswerFormatter, formatter_of, shorter
from chargehand.agents.inputs import by_id, gap_text, last_tasks, read_inputs, result_text, today
from chargehand.agents.recall import BlockView, instructions, material, shortened
from chargehand.agents.spending import Reservation, cut_off, too_expensive
from chargehand.agents.supervision import ASKER
from chargehand.agents.writer import Writer, WriterCalls
from chargehand.code_errors import mistake_failure
from chargehand.engine.budget import NOTHING
from chargehand.engine.events import AnswerSection, CallerToolCall
from chargehand.engine.facts import SettledContradiction, Tracing
from chargehand.engine.failure import Failure, Gap
from chargehand.engine.owed import Brief
from chargehand.engine.plan import Task, TaskId
from chargehand.errors import Invalid
from chargehand.models.messages import Message, Reply, Request, new_nonce, wrap
from chargehand.models.request_facts import Answering, Given
from chargehand.runtime.executor import Done, StepContext, WorkFailed
from chargehand.tools.calling import THREADS
from chargehand.tools.tool import ToolFailed

_MAX_SECONDS = 86400.0  # the run's own clock ends it long before
_SHORTER = (64_000, 32_000, 16_000, 8_000, 4_000, 2_000, 1_000)  # bytes of all results, if there is little money
MISSING = "Not answered:"


async def answer(writer: Writer, brief: Brief, context: StepContext) -> Done:
    """The answer of a run. Every gap is named in it."""
    results = read_inputs(brief, by_id(brief.tasks))
    wanted = context.request.answer_format
    formatter = formatter_of(wanted)
    if writer.own is not None:
        value = await _call_function(writer.own, brief, results, formatter)
        open_calls = [gap for gap in brief.gaps if gap.is_about_call]
        return Done(value, NOTHING, sections=tuple(gaps_section(value if isinstance(value, str) else "", open_calls)))
    if brief.combine == "forward" and (forwarded := _forward(brief, results, formatter)) is not None:
        return forwarded
    calls = WriterCalls(structs.replace(writer, settings=shorter(writer.settings, wanted)), context)
    try:
        if brief.combine in ("select", "vote") and results:
            return await _choose(calls, brief, results, formatter)
        return await _write(calls, brief, results, formatter)
    except WorkFailed as error:  # what the calls before it cost is not lost with it
        raise WorkFailed(error.failure, calls.total(), error.findings) from error


def _forward(brief: Brief, results: Sequence[Given], formatter: AnswerFormatter | None) -> Done | None:
    """The last results as they are; None where they do not have the format that is wanted."""
    last = _last_results(results, brief.tasks)
    if formatter is not None:
        is_answer = len(last) == 1 and formatter.fits(last[0].value)
        return Done(last[0].value, NOTHING, sections=tuple(gaps_section("", brief.gaps))) if is_answer else None
    text = "\n\n".join(result_text(result.value) for result in last)
    sections = (*gaps_section(text, brief.gaps), *_report_results(brief, last))
    return Done(text, NOTHING, sections=sections)


async def _call_function(
    function: Callable[..., object], brief: Brief, results: Sequence[Given], formatter: AnswerFormatter | None
) -> object:
    value = await _returned(function, brief, results)
    if formatter is not None:
        try:
            formatter.check(value)
        except Invalid as error:
            raise WorkFailed(Failure("logic", f"the function that answers failed: {error}"), NOTHING) from error
    return value


async def _returned(function: Callable[..., object], brief: Brief, results: Sequence[Given]) -> object:
    values = {result.task: result.value for result in results}
    if inspect.iscoroutinefunction(function):
        return await function(brief.goal, values, brief.gaps)
    try:  # not the loop's own threads, whose end it waits for: a function that never returns must not hold it up
        value = await THREADS.call(lambda: function(brief.goal, values, brief.gaps), {}, _MAX_SECONDS)
    except ToolFailed as error:
        failure = Failure("logic", f"the function that answers failed: {error}")
        if error.code_error is not None:
            failure = mistake_failure(error.code_error, "the function that answers")
        raise WorkFailed(failure, NOTHING) from error
    return await value if inspect.isawaitable(value) else value


def _last_results(results: Sequence[Given], tasks: Sequence[Task]) -> list[Given]:
    """The results that no other result was made from."""
    last = last_tasks([result.task for result in results], tasks)
    return [result for result in results if result.task in last]


def _report_results(brief: Brief, results: Sequence[Given]) -> Sequence[AnswerSection]:
    if not any(source.tracing is not None for source in brief.inputs):
        return ()
    from chargehand.agents.audit.assessment import report_results  # noqa: PLC0415 - imported only by teams that need it

    return report_results(brief, results)


async def _choose(
    calls: WriterCalls, brief: Brief, results: Sequence[Given], formatter: AnswerFormatter | None
) -> Done:
    """The result that is chosen, word for word, and what its figures rest on."""
    from chargehand.agents.judge import Choice, select, vote  # noqa: PLC0415 - as above

    last = results if calls.writer.takes_turns else _last_results(results, brief.tasks)
    choice = Choice(last[0])
    if len(last) > 1:
        if brief.combine == "select":
            choice = await select(calls, brief.goal, last)
        else:
            choice = await vote(calls, brief.goal, last, _stand_ins(brief))
        calls.context.note(choice.why)
    chosen = choice.result
    if formatter is not None:
        answered = await _write(calls, brief, [chosen], formatter)
        return structs.replace(answered, chosen=TaskId(chosen.task), judged=choice.judged)
    text = result_text(chosen.value)
    why = (AnswerSection("chosen", choice.why),) if choice.why else ()
    gaps = gaps_section(f"{text}\n\n{choice.why}", brief.gaps)
    tracing = next(result.tracing for result in brief.inputs if result.task == chosen.task)
    return Done(
        text,
        calls.total(),
        sections=(*why, *gaps, *_unread_section(calls), *_report_results(brief, [chosen])),
        chosen=TaskId(chosen.task),
        judged=choice.judged,
        tracing=tracing or Tracing(),
    )


async def _write(calls: WriterCalls, brief: Brief, results: Sequence[Given], formatter: AnswerFormatter | None) -> Done:
    """What a model writes from the results, and below it what has to be said about that."""
    from chargehand.agents.audit.assessment import report_answer, settle_contradictions  # noqa: PLC0415 - as above

    writer = calls.writer
    if formatter is not None and writer.model.card.reads_facts:
        message = f"{writer.model.card.handle} writes text only: an answer in a format needs a language model"
        raise WorkFailed(Failure("logic", message, permanent=True), NOTHING)
    settled = await settle_contradictions(calls, brief, results)
    blocks = await writer.blocks()
    reserved = await _reserve_answer(calls, brief, results, settled, blocks, formatter)
    calls.context.prompt(writer.model.card.handle, reserved.request.messages)
    value: object
    caller_calls: tuple[CallerToolCall, ...] = ()
    if formatter is None:
        reply = await calls.write(reserved, calls.hear)
        value = written = reply.text.strip()
    else:
        reply = await calls.call(reserved)
        value, caller_calls = _read_formatted(calls, reply, formatter)
        written = "" if caller_calls else reply.text.strip()
    sources = [brief.goal, writer.instructions, *(block.text for block in blocks), *(gap.message for gap in brief.gaps)]
    report = await report_answer(written, brief, results, sources, settled)
    cut = cut_off(reply)
    sections = gaps_section(written, brief.gaps)
    if cut:
        sections.append(AnswerSection("cut", f"This answer is not whole: {cut}."))
    return Done(
        value,
        calls.total(),
        sections=(*sections, *_unread_section(calls), *report.sections),
        tracing=report.tracing,
        cut=cut,
        audit=report.audit,
        calls=caller_calls,
    )


def _unread_section(calls: WriterCalls) -> list[AnswerSection]:
    """What of the results was not read, in words; nothing where all of it was."""
    lost = "; ".join(dict.fromkeys(calls.lost))
    return [AnswerSection("unread", f"Not all of the results were read: {lost}.")] if lost else []


def _stand_ins(brief: Brief) -> dict[str, str]:
    """Return who did the tasks that were meant for other workers, by task."""
    meant = {task.id: task.worker for task in brief.tasks}
    return {
        source.task: source.worker
        for source in brief.inputs
        if source.worker and meant.get(source.task, "") not in ("", source.worker)
    }


def _read_formatted(
    calls: WriterCalls, reply: Reply, formatter: AnswerFormatter
) -> tuple[object, tuple[CallerToolCall, ...]]:
    """The answer in its format; a reply that does not have it fails this try, and the next one is told why."""
    try:
        return formatter.read(reply)
    except Invalid as error:
        message = cut_off(reply) or str(error)
        problem = f"{calls.model.card.handle}: {message}"
        raise calls.send_back("not_an_answer", "answer", f"{message[:1].upper()}{message[1:]}.", problem) from error


async def _reserve_answer(
    calls: WriterCalls,
    brief: Brief,
    results: Sequence[Given],
    settled: Sequence[SettledContradiction],
    blocks: Sequence[BlockView],
    formatter: AnswerFormatter | None,
) -> Reservation:
    """Hold the money for the answer, from all of the results or, where there is too little, from less of them."""
    from chargehand.agents.judge import describe_contradictions  # noqa: PLC0415 - as above
    from chargehand.agents.writer import cut_evenly, join_pieces, reduce_results, result_pieces  # noqa: PLC0415

    writer = calls.writer
    nonce = new_nonce()
    reduced = await reduce_results(calls, brief.goal, result_pieces(results), nonce)
    # a refused call stands among the gaps of its result and among those of the run
    input_gaps = [gap for source in brief.inputs for gap in source.gaps if gap not in brief.gaps]
    gaps = [gap_text(gap, nonce) for gap in (*input_gaps, *brief.gaps)]
    rulings = [wrap(nonce, "judge", describe_contradictions(settled))] if settled else []
    memory = material(
        [block for block in blocks if block.text],
        (),
        nonce,
        shortened(blocks, writer.model.card.window // 4, writer.rates),
    )

    def request(memory: str, texts: str) -> Request:
        text = memory + "\n\n".join((texts, *gaps, *rulings))
        plain = _request(writer, brief, (*results, *_missing_results(brief)), text, instructions(blocks))
        return plain if formatter is None else formatter.request(plain, brief.findings)

    reserved = await calls.hold(request(memory, join_pieces(reduced, nonce)))
    if reserved is None:
        calls.lose("the budget does not cover an answer from all of the results: all of them are cut")
        for size in _SHORTER:
            reserved = reserved or await calls.hold(request("", join_pieces(cut_evenly(reduced, size), nonce)))
    if reserved is None:
        raise too_expensive("an answer", calls.cap, permanent=True)
    return reserved


def _missing_results(brief: Brief) -> list[Given]:
    """What was asked of the tasks that did not deliver."""
    tasks = by_id(brief.tasks)
    missing = [tasks[gap.task] for gap in brief.gaps if gap.task in tasks]
    return [Given(task=task.id, instruction=task.instruction, worker=task.worker, value=None) for task in missing]


def _request(writer: Writer, brief: Brief, results: Sequence[Given], text: str, more: str) -> Request:
    subject = Answering(brief.goal, tuple(results), brief.gaps, brief.combine)
    manner = "Bring the results together; do not just list them."
    if brief.combine == "reduce":
        manner = "Be brief: only the essentials."
    system = writer.system("answer", {"manner": manner}) + more
    user = f"Request: {brief.goal}\n\n{today(brief)}\n\n{text}".strip()
    messages = (Message("system", system), Message("user", user))
    return Request(messages, settings=writer.settings, subject=subject, asker=ASKER)


def with_gaps(text: str, gaps: Sequence[Gap]) -> str:
    """The text with every gap named: those it does not mention itself are added."""
    return "\n\n".join([text, *(section.text for section in gaps_section(text, gaps))])


def gaps_section(text: str, gaps: Sequence[Gap]) -> list[AnswerSection]:
    """The section with the gaps that a text does not mention itself, those with the same cause as one; or none."""
    tasks_by_message: dict[str, list[str]] = {}
    for gap in gaps:
        if not _is_named(gap, text):
            tasks_by_message.setdefault(gap.message, []).append(gap.task)
    lines: list[str] = []
    for message, tasks in tasks_by_message.items():
        names = ", ".join(filter(None, tasks))
        lines.append(f"- {names}: {message}" if names else f"- {message}")
    return [AnswerSection("gaps", f"{MISSING}\n" + "\n".join(lines))] if lines else []


def _is_named(gap: Gap, text: str) -> bool:
    """Whether a text speaks of a gap; that it speaks of `t12` says nothing of `t1`.

    A text that cites a task says nothing of a call of it that was refused or is in doubt: only the gap's words do.
    """
    if not gap.task or gap.is_about_call:
        return _plain(gap.message) in _plain(text)
    return re.search(rf"(?<!\w){re.escape(gap.task)}(?!\w)", text) is not None


def _plain(text: str) -> str:
    """The words alone: an answer may begin a sentence with a gap."""
    return " ".join(text.split()).casefold().rstrip(". ")
