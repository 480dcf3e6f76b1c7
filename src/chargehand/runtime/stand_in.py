"""A plan when nobody can make one, by the rules of the offline model: each part to the worker whose card fits it.

No model is asked. When it is wanted, and what is said about it, is decided in `makeshift`.
"""

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from chargehand.models.subject import Planning, WorkerCard
from chargehand.terms.plan import Edge, Task, TaskId


class Shares(Struct, frozen=True):
    """Tasks for several workers, and what nobody was found for, in words."""

    tasks: tuple[Task, ...]
    unserved: tuple[str, ...]
    workers: tuple[str, ...]


def shares(goal: str, cards: Sequence[WorkerCard], most: int) -> Shares | None:
    """A request with parts for at least two of these workers, as tasks; None for any other.

    Takes some tenths of a second where the request is long: call it in a thread.
    """
    from chargehand.models.offline.ledger import Steps  # noqa: PLC0415 - most planners never fail
    from chargehand.models.offline.planning import plan  # noqa: PLC0415 - as above

    try:
        found = msgspec.json.decode(plan(Planning(goal, tuple(cards), most)), type=Steps)
    except Exception:  # noqa: BLE001 - rules over anybody's words: who cannot be helped by them is as well off as before
        return None
    tasks = [
        Task(
            TaskId(name),
            step.instruction,
            step.worker,
            after=tuple(Edge(TaskId(one), "optional" if one in step.optional else "required") for one in step.after),
        )
        for name, step in found.tasks.items()
    ]
    workers = tuple(dict.fromkeys(task.worker for task in tasks))
    return Shares(tuple(tasks), found.unserved, workers) if len(workers) > 1 else None
