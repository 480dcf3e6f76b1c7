"""What else has to be done when some of a plan has failed: the same by another worker, or put in other words.

Nothing is asked a second time of the worker who failed at it in the same words.
"""

import re

from chargehand.models.offline.drafts import Proposed, without_returns
from chargehand.models.offline.matching import Bench
from chargehand.models.offline.refining import better
from chargehand.models.subject import Planned, Planning


def replan(subject: Planning, bench: Bench) -> str:
    """Only the tasks to add, with ids that follow those there are."""
    proposed = Proposed(" ".join(subject.goal.split())[:500])
    held = {task.id: task for task in subject.tasks}
    lost = {str(gap.task): gap for gap in subject.gaps if str(gap.task) in held}
    instead: dict[str, str] = {}
    first = 1 + max([int(name[1:]) for name in held if re.fullmatch(r"t\d{1,6}", name)] + [len(held)])
    for task in subject.tasks:
        gap = lost.get(task.id)
        if gap is None or len(held) + len(proposed.drafts) >= subject.most_tasks:
            continue
        after = [instead.get(name, name) for name in task.after if name in instead or name not in lost]
        if gap.status == "skipped" or any(name in instead for name in task.after):
            if any(name in instead for name in task.after):
                instead[task.id] = _add(proposed, first, task.instruction, task.worker, after, task.id)
            continue
        if found := _another_way(task, gap.message, subject, bench):
            instead[task.id] = _add(proposed, first, *found, after, task.id)
    return proposed.json()


def _add(proposed: Proposed, first: int, instruction: str, worker: str, after: list[str], replaces: str) -> str:
    draft = proposed.add(without_returns(instruction).rstrip("."), worker, "", after)
    draft.id, draft.replaces = f"t{first + len(proposed.drafts) - 1}", replaces
    return draft.id


def _another_way(task: Planned, message: str, subject: Planning, bench: Bench) -> tuple[str, str] | None:
    plain = without_returns(task.instruction)
    tried = {other.worker for other in subject.tasks if without_returns(other.instruction) == plain}
    ranked = [score for score in bench.rank(plain, tried) if score.serves]
    if ranked:
        return plain, ranked[0].profile.name
    if all(card.name != task.worker for card in subject.workers):
        return None
    found = better(plain, message)
    known = any(other.instruction.startswith(without_returns(found.text).rstrip(".")) for other in subject.tasks)
    return (found.text, task.worker) if found.offers and not known else None
