"""From results to one answer: merged, selected, voted on, reduced or handed through; by a model or by a function.

What a model wrote is held against the results: what they do not bear out, and where they contradict each other, is
said below it. How that is found is not known here.
"""

import inspect
import re
from collections.abc import Callable, Sequence

from msgspec import structs

from chargehand.agents.asking import Bill, Writer, held_call
from chargehand.agents.crew import Done, Hand, WorkFailed
from chargehand.agents.exhibit_text import shown
from chargehand.agents.inputs import Told, by_id, gap_text, today, told
from chargehand.agents.memory_text import instructions, material, shortened
from chargehand.agents.money import Held, cut_off, too_dear
from chargehand.core.owed import Brief
from chargehand.models.code_errors import mistake_failure
from chargehand.models.envelope import new_nonce, wrap
from chargehand.models.messages import Message, Request
from chargehand.models.subject import Answering, Given
from chargehand.terms.budget import NOTHING
from chargehand.terms.failure import Failure, Gap
from chargehand.terms.plan import Task, TaskId, needs
from chargehand.terms.tracing import Tracing
from chargehand.tools.threads import THREADS
from chargehand.tools.tool import CAP, ToolFailed

_LONGEST = 86400.0  # seconds; the run's own clock ends it long before
_WHOLE = 16 * CAP  # bytes of each result where all of them are to be reduced
MISSING = "Not answered:"
CUT = "Not all of the results were read: "
NOT_WHOLE = "This answer is not whole: "
_MANNER = {"reduce": "Be brief: only the essentials."}


async def answer(writer: Writer, brief: Brief, hand: Hand) -> Done:
    """The answer of a run. Every gap is named in it, whoever wrote it."""
    nonce = new_nonce()
    given = told(brief, nonce, by_id(brief.tasks), _WHOLE if brief.combine == "reduce" else CAP)
    if writer.own is not None:
        return Done(await _own(writer.own, brief, given), NOTHING)
    if brief.combine == "forward":
        return Done(_forwarded(brief, given), NOTHING)
    bill = Bill()
    tracing: Tracing | None = None
    cut = ""
    try:
        if brief.combine in ("select", "vote") and given.inputs:
            text, tracing = await _chosen(writer, bill, brief, given, hand)
        else:
            text, tracing, cut = await _written(
                writer=writer, bill=bill, brief=brief, given=given, hand=hand, nonce=nonce
            )
    except WorkFailed as error:  # what the calls before it cost is not lost with it
        raise WorkFailed(error.failure, bill.total(), error.findings) from error
    return Done(text, bill.total(), tracing=tracing, cut=cut)


def _forwarded(brief: Brief, given: Told) -> str:
    from chargehand.agents.checking import handed_on  # noqa: PLC0415 - a team pays only for the way it answers

    last = _last(given.inputs, brief.tasks)
    text = "\n\n".join(shown(one) for one in last)
    doubts = handed_on(brief, last) if any(one.tracing is not None for one in brief.inputs) else []
    return "\n\n".join((with_gaps(text, brief.gaps), *doubts))


async def _own(function: Callable[..., object], brief: Brief, given: Told) -> object:
    results = {one.task: one.value for one in given.inputs}
    if inspect.iscoroutinefunction(function):
        return await function(brief.goal, results, brief.gaps)
    try:  # not the loop's own threads, whose end it waits for: a function that never returns must not hold it up
        found = await THREADS.call(lambda: function(brief.goal, results, brief.gaps), {}, _LONGEST)
    except ToolFailed as error:
        failure = Failure("logic", f"the function that answers failed: {error}")
        if error.code_error is not None:
            failure = mistake_failure(error.code_error, "the function that answers")
        raise WorkFailed(failure, NOTHING) from error
    return await found if inspect.isawaitable(found) else found


def _last(results: Sequence[Given], tasks: Sequence[Task]) -> list[Given]:
    """The results nobody else works from."""
    done = {one.task for one in results}
    read = {name for task in tasks if task.id in done for name, _ in needs(task)}
    return [one for one in results if one.task not in read] or list(results)


async def _chosen(writer: Writer, bill: Bill, brief: Brief, given: Told, hand: Hand) -> tuple[str, Tracing | None]:
    """The result that is chosen, and what its figures rest on: what the others say, nobody gets to read."""
    from chargehand.agents.checking import handed_on  # noqa: PLC0415 - a team pays only for the way it answers
    from chargehand.agents.choosing import select, vote  # noqa: PLC0415 - a team pays only for the way it answers

    choose = select if brief.combine == "select" else vote
    last = _last(given.inputs, brief.tasks)
    text = await choose(writer, bill, hand, brief.goal, last)
    chosen = [one for one in last if text.startswith(shown(one))][:1]
    tracings = {one.task: one.tracing for one in brief.inputs}
    tracing = tracings[TaskId(chosen[0].task)] if chosen else None
    return "\n\n".join((with_gaps(text, brief.gaps), *handed_on(brief, chosen))), tracing or Tracing()


async def _written(
    writer: Writer, bill: Bill, brief: Brief, given: Told, hand: Hand, nonce: str
) -> tuple[str, Tracing, str]:
    """What a model writes from the results, and below it what has to be said about that; and why it is not whole."""
    from chargehand.agents.checking import remarks, rulings  # noqa: PLC0415 - as above
    from chargehand.agents.judging import contradicted  # noqa: PLC0415 - as above
    from chargehand.agents.reducing import reduced  # noqa: PLC0415 - as above

    settled = await rulings(writer, bill, brief, given.inputs, hand)
    lost: list[str] = []
    text = await reduced(writer=writer, bill=bill, hand=hand, goal=brief.goal, text=given.text, lost=lost)
    ruled = [wrap(nonce, "judge", contradicted(settled))] if settled else []
    text = "\n\n".join((text, *(gap_text(gap, nonce) for gap in brief.gaps), *ruled))
    blocks = () if writer.shared is None else await writer.shared()
    told_blocks = [one for one in blocks if one.text]
    text = material(told_blocks, (), nonce, shortened(blocks, writer.model.card.window // 4)) + text
    request = _request(writer, brief, (*given.inputs, *_missing(brief)), text, instructions(blocks))
    held = await held_call(writer, request, hand) or await _shorter(writer, hand, request, lost)
    hand.prompt(writer.model.card.handle, held.request.messages)
    reply = await bill.ask(writer, held, hand, hand.say if hand.heard else None)
    written = reply.text.strip()
    cut = cut_off(reply) if reply.finish == "length" else ""
    not_whole = [f"{NOT_WHOLE}{cut}."] if cut else []
    known = [brief.goal, writer.instructions, *(one.text for one in blocks), *(gap.message for gap in brief.gaps)]
    said = await remarks(text=written, brief=brief, results=given.inputs, known=known, settled=settled, hand=hand)
    part = [f"{CUT}{'; '.join(lost)}."] if lost else []
    return "\n\n".join((with_gaps(written, brief.gaps), *not_whole, *part, *said.texts)), said.tracing, cut


async def _shorter(writer: Writer, hand: Hand, request: Request, lost: list[str]) -> Held:
    """The request with as much of the results as what is held for one call covers."""
    from chargehand.agents.reducing import by_result, evenly  # noqa: PLC0415 - money is seldom that short

    system, user = request.messages
    before, start, text = user.text.partition("<data ")
    lost.append("the budget does not cover an answer from all of the results: all of them are cut")
    hand.note(lost[-1])
    for size in (8_000, 4_000, 2_000, 1_000):  # bytes
        cut = Message("user", before + evenly(by_result(start + text), size))
        shorter = structs.replace(request, messages=(system, cut))
        if (held := await held_call(writer, shorter, hand)) is not None:
            return held
    raise too_dear("an answer", alone=True)


def _missing(brief: Brief) -> list[Given]:
    """What was asked of the tasks that did not deliver."""
    tasks = by_id(brief.tasks)
    found = [tasks[gap.task] for gap in brief.gaps if gap.task in tasks]
    return [Given(task=task.id, instruction=task.instruction, worker=task.worker, value=None) for task in found]


def _request(writer: Writer, brief: Brief, results: Sequence[Given], text: str, more: str) -> Request:
    subject = Answering(brief.goal, tuple(results), brief.gaps, brief.combine)
    manner = _MANNER.get(brief.combine, "Bring the results together; do not just list them.")
    system = writer.prompts.text("answer", instructions=writer.instructions, manner=manner) + more
    user = f"Request: {brief.goal}\n\n{today(brief)}\n\n{text}".strip()
    return Request((Message("system", system), Message("user", user)), settings=writer.settings, subject=subject)


def with_gaps(text: str, gaps: Sequence[Gap]) -> str:
    """The text with every gap named: those it does not mention itself are added."""
    hidden = [gap for gap in gaps if not _named(gap, text)]
    if not hidden:
        return text
    lines = [f"- {gap.task + ': ' if gap.task else ''}{gap.message}" for gap in hidden]
    return "\n\n".join([text, f"{MISSING}\n" + "\n".join(lines)])


def _named(gap: Gap, text: str) -> bool:
    """Whether a text speaks of a gap; that it speaks of `t12` says nothing of `t1`."""
    if not gap.task:
        return _plain(gap.message) in _plain(text)
    return re.search(rf"(?<!\w){re.escape(gap.task)}(?!\w)", text) is not None


def _plain(text: str) -> str:
    """The words alone: whoever names a gap may begin a sentence with it."""
    return " ".join(text.split()).casefold().rstrip(". ")
