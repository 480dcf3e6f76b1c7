"""What has to be said below an answer: contradictions with their rulings, what no tool returned, what was counted.

How each is found is the business of the modules named so. Nothing is taken out of an answer.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct, structs

from chargehand.agents.asking import Bill, Writer
from chargehand.agents.claims import claiming, size_of, told, too_much, trace_answer
from chargehand.agents.contradictions import find
from chargehand.agents.coverage import (
    count_traced,
    counted_line,
    coverage,
    trace_claims,
    untraced_section,
    worth_counting,
)
from chargehand.agents.crew import Hand
from chargehand.agents.judging import Settled, contradicted, settle
from chargehand.agents.known_values import day_of
from chargehand.agents.off_loop import look_through
from chargehand.core.owed import Brief
from chargehand.models.subject import Given
from chargehand.terms.plan import Task, in_order, needs
from chargehand.terms.tracing import Tracing

_NOTED = 5


class Remarks(Struct, frozen=True):
    """What is to stand below an answer, and what its figures rest on."""

    texts: list[str]
    tracing: Tracing


async def rulings(writer: Writer, bill: Bill, brief: Brief, results: Sequence[Given], hand: Hand) -> Sequence[Settled]:
    """Where the results contradict each other, and what a judge says of it, as far as the budget covers asking one."""
    size = size_of(results)
    found = await look_through(size, find, results) if len(results) > 1 else ()
    if found:  # most results contradict nobody
        found = await look_through(size, find, results, behind(brief.tasks))
    if not found:
        return ()
    settled = await settle(writer=writer, bill=bill, hand=hand, goal=brief.goal, found=found, results=results)
    hand.note(contradicted(settled))
    return settled


async def remarks(
    text: str, brief: Brief, results: Sequence[Given], known: Sequence[str], settled: Sequence[Settled], hand: Hand
) -> Remarks:
    """What is to stand below this answer; nothing, where there is nothing to be said. `known` it may rest on too."""
    tracings = {one.task: one.tracing for one in brief.inputs if one.tracing is not None}
    claims = ()
    unread = False
    if claiming(text):
        words = {task: tracing.untraced for task, tracing in tracings.items()}
        given = (text, results, known, behind(brief.tasks), words, day_of(brief.began))
        size = len(text) + size_of(results) + sum(map(len, known))
        unread = too_much(results)
        claims = await look_through(size, trace_answer, *given)
    tracing = structs.replace(trace_claims(claims, list(tracings.values())), unread=unread)
    invented = {item.text for item in tracing.untraced if not item.origin}
    doubted = [one for one in claims if not one.supported and one.text in invented]
    for one in doubted[:_NOTED]:
        hand.note(f"not traced to a tool: {told(one)}; it is said in: {one.sentence}")
    found = coverage(text, results, brief.tasks, brief.gaps)
    traced = count_traced([tracing])
    if found.unused:
        hand.note(f"the answer does not cite {', '.join(found.unused)}")
    said = [contradicted(settled)] if settled else []
    if doubted:
        said.append(untraced_section(doubted))
    if settled or worth_counting(found, traced):
        line = counted_line(found, traced, settled)
        hand.note(line)
        said.append(line)
    return Remarks(said, tracing)


def handed_on(brief: Brief, results: Sequence[Given]) -> list[str]:
    """What is to stand below results that are handed through as they are."""
    shown = {one.task for one in results}
    tracings = {one.task: one.tracing for one in brief.inputs if one.tracing is not None and one.task in shown}
    untraced = [(task, item) for task, one in tracings.items() for item in one.untraced if not item.origin]
    traced = count_traced(tracings.values())
    found = coverage("", results, brief.tasks, brief.gaps)
    said = [untraced_section((), untraced)] if untraced else []
    if traced.nowhere or (traced.words and traced.tools):
        said.append(counted_line(found, traced))
    return said


def behind(tasks: Sequence[Task]) -> Mapping[str, Sequence[str]]:
    """Everything each task was made from, near and far."""
    found: dict[str, tuple[str, ...]] = {}
    for task in in_order(tasks)[0]:
        near = [name for name, _ in needs(task)]
        found[task.id] = tuple(dict.fromkeys(one for name in near for one in (name, *found.get(name, ()))))
    return found
