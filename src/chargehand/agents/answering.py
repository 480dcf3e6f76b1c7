"""From results to one answer: merged, selected, reduced or handed through; by a model or by a function."""

import inspect
import re
import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import cast

from msgspec import Struct

from chargehand.agents.crew import Done, Hand, WorkFailed
from chargehand.agents.exhibit_text import shown
from chargehand.agents.history import tokens
from chargehand.agents.inputs import Told, by_id, gap_text, told
from chargehand.agents.lead import ask
from chargehand.agents.memory_text import Seen, instructions, material, shortened
from chargehand.agents.money import spent
from chargehand.agents.prompts import Prompts
from chargehand.core.owed import Brief
from chargehand.models.messages import Message, Request, Settings
from chargehand.models.model import Model
from chargehand.models.subject import Answering, Given
from chargehand.terms.budget import NOTHING, Amount
from chargehand.terms.failure import Failure, Gap
from chargehand.terms.plan import Task, needs
from chargehand.tools.threads import THREADS
from chargehand.tools.tool import ToolFailed

_SHARE = 0.5  # of the window that results may take before they are reduced first
_ROUNDS = 4
_LONGEST = 86400.0  # seconds; the run's own clock ends it long before
_MANNER = {
    "select": "Several workers tried the same. Choose the best result, say why, and give it as the answer.",
    "vote": "Several workers tried the same. Give the result that most of them agree on, and say how many did.",
    "reduce": "Be brief: only the essentials.",
}


class Writer(Struct, frozen=True):
    """Who answers, with what.

    `own` is a function that answers instead: it is given the goal, results and gaps. `shared` reads the blocks that the
    whole team sees.
    """

    model: Model
    prompts: Prompts
    instructions: str
    settings: Settings
    own: Callable[..., object] | None = None
    reserve: Amount = NOTHING
    shared: Callable[[], Awaitable[Sequence[Seen]]] | None = None


async def answer(writer: Writer, brief: Brief, hand: Hand) -> Done:
    """The answer of a run. Every gap is named in it, whoever wrote it."""
    nonce = secrets.token_hex(8)
    given = told(brief, nonce, by_id(brief.tasks))
    if writer.own is not None:
        return Done(await _own(writer.own, brief, given), NOTHING)
    if brief.combine == "forward":
        return Done(with_gaps(_forwarded(given.inputs, brief.tasks), brief.gaps), NOTHING)
    used: list[Amount | None] = []
    text = await _reduced(writer, brief, given, hand, used)
    text = "\n\n".join((text, *(gap_text(gap, nonce) for gap in brief.gaps)))
    blocks = () if writer.shared is None else await writer.shared()
    text = material(blocks, (), nonce, shortened(blocks, writer.model.card.window // 4)) + text
    request = _request(writer, brief, (*given.inputs, *_missing(brief)), text, instructions(blocks))
    hand.prompt(writer.model.card.handle, request.messages)
    reply = await ask(writer.model, request, hand.say if hand.heard else None)
    used.append(spent(reply, writer.reserve))
    return Done(with_gaps(reply.text.strip(), brief.gaps), _sum(used))


async def _own(function: Callable[..., object], brief: Brief, given: Told) -> object:
    results = {one.task: one.value for one in given.inputs}
    if inspect.iscoroutinefunction(function):
        return await function(brief.goal, results, brief.gaps)
    try:  # not the loop's own threads, whose end it waits for: a function that never returns must not hold it up
        found = await THREADS.call(lambda: function(brief.goal, results, brief.gaps), {}, _LONGEST)
    except ToolFailed as error:
        raise WorkFailed(Failure("logic", f"the function that answers failed: {error}"), NOTHING) from error
    return await found if inspect.isawaitable(found) else found


def _forwarded(results: Sequence[Given], tasks: Sequence[Task]) -> str:
    """The results nobody else works from, as they are."""
    done = {one.task for one in results}
    read = {name for task in tasks if task.id in done for name, _ in needs(task)}
    last = [one for one in results if one.task not in read] or list(results)
    return "\n\n".join(shown(one) for one in last)


def _missing(brief: Brief) -> list[Given]:
    """What was asked of the tasks that did not deliver."""
    tasks = by_id(brief.tasks)
    found = [tasks[gap.task] for gap in brief.gaps if gap.task in tasks]
    return [Given(task.id, task.instruction, task.worker, None) for task in found]


def _request(writer: Writer, brief: Brief, results: Sequence[Given], text: str, more: str) -> Request:
    subject = Answering(brief.goal, tuple(results), brief.gaps, brief.combine)
    manner = _MANNER.get(brief.combine, "Bring the results together; do not just list them.")
    system = writer.prompts.text("answer", instructions=writer.instructions, manner=manner) + more
    user = f"Request: {brief.goal}\n\n{text}".strip()
    return Request((Message("system", system), Message("user", user)), settings=writer.settings, subject=subject)


async def _reduced(writer: Writer, brief: Brief, given: Told, hand: Hand, used: list[Amount | None]) -> str:
    """The results as text that fits: piece by piece shortened, and again, while it does not."""
    text, room = given.text, int(writer.model.card.window * _SHARE)
    for _ in range(_ROUNDS):
        if tokens(text) <= room:
            break
        hand.note(f"the results take {tokens(text)} tokens, {room} fit: they are reduced first")
        size = room * 3
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        short: list[str] = []
        for piece in pieces:
            messages = (
                Message("system", writer.prompts.text("reduce")),
                Message("user", f"Request: {brief.goal}\n\n{piece}"),
            )
            reply = await ask(writer.model, Request(messages, settings=writer.settings))
            used.append(spent(reply, writer.reserve))
            short.append(reply.text.strip())
        text = "\n\n".join(short)
    return text


def _sum(used: Sequence[Amount | None]) -> Amount | None:
    if any(one is None for one in used):
        return None
    known = cast("Sequence[Amount]", used)
    return Amount(sum(one.tokens for one in known), sum(one.micros for one in known), sum(one.calls for one in known))


def with_gaps(text: str, gaps: Sequence[Gap]) -> str:
    """The text with every gap named: those it does not mention itself are added."""
    hidden = [gap for gap in gaps if not _named(gap, text)]
    if not hidden:
        return text
    lines = [f"- {gap.task + ': ' if gap.task else ''}{gap.message}" for gap in hidden]
    return "\n\n".join([text, "Not answered:\n" + "\n".join(lines)])


def _named(gap: Gap, text: str) -> bool:
    """Whether a text speaks of a gap; that it speaks of `t12` says nothing of `t1`."""
    if not gap.task:
        return gap.message in text
    return re.search(rf"(?<!\w){re.escape(gap.task)}(?!\w)", text) is not None
