"""Whether a task is too big for one worker: it is, if the plan for it has several tasks; those are its parts."""

import msgspec

from chargehand.models.offline.drafts import without_returns
from chargehand.models.offline.ledger import Steps
from chargehand.models.offline.matching import Embedder
from chargehand.models.offline.planning import plan
from chargehand.models.subject import Planning, Splitting


def split(subject: Splitting, embedder: Embedder | None = None) -> str:
    """The split as JSON: simple and a worker, or subtasks; and what nobody can do."""
    if without_returns(subject.instruction) != subject.instruction:
        why = "It was put like this by a plan: it is one piece of work."
        return msgspec.json.encode({"simple": True, "why": why}).decode()
    text = plan(Planning(subject.instruction, subject.workers, subject.most), embedder)
    found = msgspec.json.decode(text, type=Steps)
    steps = list(found.tasks.values())
    why = f"The plan for it has {len(steps)} task{'s' if len(steps) != 1 else ''}."
    made: dict[str, object] = {"why": why, "simple": len(steps) < 2, "unserved": found.unserved}
    if len(steps) == 1:
        made["worker"] = steps[0].worker
    elif steps:
        places = {name: number for number, name in enumerate(found.tasks, 1)}
        made["subtasks"] = [
            {"instruction": one.instruction, "worker": one.worker, "after": [places[name] for name in one.after]}
            for one in steps
        ]
    return msgspec.json.encode(made).decode()
