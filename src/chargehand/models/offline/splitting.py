"""Whether a task is too big for one worker: it is, if the plan for it has several tasks; those are its parts.

Where there are more of them than may be, what belongs together is one part, which is split again when it is its turn.
"""

import msgspec

from chargehand.models.offline.clauses import Clause
from chargehand.models.offline.clauses import split as clauses_of
from chargehand.models.offline.drafts import sentence, without_returns
from chargehand.models.offline.ledger import Steps
from chargehand.models.offline.matching import Embedder
from chargehand.models.offline.planning import plan
from chargehand.models.offline.references import pointers
from chargehand.models.subject import Planning, Splitting

_MOST = 50


def split(subject: Splitting, embedder: Embedder | None = None) -> str:
    """The split as JSON: simple and a worker, or subtasks; and what nobody can do."""
    if without_returns(subject.instruction) != subject.instruction:
        why = "It was put like this by a plan: it is one piece of work."
        return msgspec.json.encode({"simple": True, "why": why}).decode()
    found = _planned(subject, subject.instruction, _MOST, embedder)
    groups = _groups(subject) if len(found.tasks) > subject.most > 1 else []
    if len(groups) > 1:
        return _grouped(subject, found, groups, embedder)
    if len(found.tasks) > subject.most:
        found = _planned(subject, subject.instruction, subject.most, embedder)
    steps = list(found.tasks.values())
    made: dict[str, object] = {"why": _why(len(steps)), "simple": len(steps) < 2, "unserved": found.unserved}
    if len(steps) == 1:
        made["worker"] = steps[0].worker
    elif steps:
        places = {name: number for number, name in enumerate(found.tasks, 1)}
        made["subtasks"] = [
            {"instruction": one.instruction, "worker": one.worker, "after": [places[name] for name in one.after]}
            for one in steps
        ]
    return msgspec.json.encode(made).decode()


def _planned(subject: Splitting, text: str, most: int, embedder: Embedder | None) -> Steps:
    return msgspec.json.decode(plan(Planning(text, subject.workers, most), embedder), type=Steps)


def _why(tasks: int) -> str:
    return f"The plan for it has {tasks} task{'s' if tasks != 1 else ''}."


def _groups(subject: Splitting) -> list[str]:
    """As many groups of things asked for as there may be parts; what points back stays with what it points to."""
    chains: list[list[Clause]] = []
    for clause in clauses_of(subject.instruction):
        if chains and pointers(clause.text, frozenset()):
            chains[-1].append(clause)
        else:
            chains.append([clause])
    while len(chains) > subject.most:  # the two neighbours that are smallest together
        at = min(range(len(chains) - 1), key=lambda place: len(chains[place]) + len(chains[place + 1]))
        chains[at : at + 2] = [[*chains[at], *chains[at + 1]]]
    return [" ".join(sentence(f"{one.text} {one.scope}") for one in held) for held in chains]


def _grouped(subject: Splitting, whole: Steps, groups: list[str], embedder: Embedder | None) -> str:
    parts: list[dict[str, object]] = []
    for text in groups:
        found = list(_planned(subject, text, _MOST, embedder).tasks.values())
        if found:
            alone = found[0].instruction if len(found) == 1 else text
            parts.append({"instruction": alone, "worker": found[0].worker, "after": []})
    why = f"{_why(len(whole.tasks))} What belongs together is one part."
    return msgspec.json.encode({"why": why, "simple": False, "unserved": whole.unserved, "subtasks": parts}).decode()
