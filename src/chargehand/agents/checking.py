"""What has to be said below a written answer: contradictions with their rulings, what no result bears out, coverage.

How each is found is the business of the modules named so. Nothing is taken out of an answer.
"""

from collections.abc import Mapping, Sequence

from chargehand.agents.asking import Bill, Writer
from chargehand.agents.claims import claiming, section, told, unsupported
from chargehand.agents.contradictions import find
from chargehand.agents.coverage import coverage
from chargehand.agents.crew import Hand
from chargehand.agents.judging import Settled, contradicted, settle
from chargehand.core.owed import Brief
from chargehand.models.subject import Given
from chargehand.terms.plan import Task, in_order, needs

_NOTED = 5


async def rulings(writer: Writer, bill: Bill, brief: Brief, results: Sequence[Given], hand: Hand) -> Sequence[Settled]:
    """Where the results contradict each other, and what a judge says of it, as far as the budget covers asking one."""
    found = find(results) if len(results) > 1 else ()
    found = find(results, behind(brief.tasks)) if found else ()  # most results contradict nobody
    if not found:
        return ()
    settled = await settle(writer, bill, hand, brief.goal, found, results)
    hand.note(contradicted(settled))
    return settled


def remarks(
    text: str, brief: Brief, results: Sequence[Given], known: Sequence[str], settled: Sequence[Settled], hand: Hand
) -> list[str]:
    """What is to stand below this answer; nothing, where there is nothing to be said. `known` it may rest on too."""
    claims = unsupported(text, results, known, behind(brief.tasks)) if claiming(text) else ()
    for one in claims[:_NOTED]:
        hand.note(f"not found in the results: {told(one)}; it is said in: {one.sentence}")
    found = coverage(text, results, brief.tasks, brief.gaps, claims, settled)
    if found.unused:
        hand.note(f"the answer does not cite {', '.join(found.unused)}")
    if found.missing or claims or settled:
        hand.note(found.line())
    return [
        *([contradicted(settled)] if settled else []),
        *([section(claims)] if claims else []),
        *([found.line()] if found.worth_saying else []),
    ]


def behind(tasks: Sequence[Task]) -> Mapping[str, Sequence[str]]:
    """Everything each task was made from, near and far."""
    found: dict[str, tuple[str, ...]] = {}
    for task in in_order(tasks)[0]:
        near = [name for name, _ in needs(task)]
        found[task.id] = tuple(dict.fromkeys(one for name in near for one in (name, *found.get(name, ()))))
    return found
