"""The instances of a worker as they are declared: how many, with which models, under which names.

What becomes of tasks that are for any of them is said in `instances`.
"""

from collections.abc import Sequence
from typing import cast

from chargehand.agents.instances import Instances, tag_of
from chargehand.agents.worker import Worker
from chargehand.errors import Invalid
from chargehand.models.model import Model
from chargehand.models.own import as_model

MOST = 64


def copies(worker: Worker) -> tuple[tuple[str, str | Model], ...]:
    """The instances of a worker by name, and the model of each (empty: the team's). Who is there once is itself."""
    given = worker.instances
    models = (as_model(worker.model),) * given if isinstance(given, int) else tuple(map(as_model, given))
    if len(models) == 1:
        return ((worker.name, models[0]),)
    return tuple((f"{worker.name}-{number}", model) for number, model in enumerate(models, 1))


def check(workers: Sequence[Worker], others: Sequence[str] = ()) -> None:
    """Raise Invalid for instances that cannot be, and for names that would mean two."""
    for worker in workers:
        problem = "" if worker.instances == 1 and worker.instances is not True else objection(worker, workers, others)
        if problem:
            raise Invalid(f"worker {worker.name!r} {problem}")


def objection(worker: Worker, workers: Sequence[Worker], others: Sequence[str] = ()) -> str:
    """What is wrong with the instances of a worker, and what to do about it; nothing: they are fine."""
    given = worker.instances
    written = cast("object", given)
    if isinstance(written, str | bytes | bool) or not isinstance(written, int | Sequence):
        return f"has the instances {written!r}; give a number, or a list of models"
    count = given if isinstance(given, int) else len(given)
    if not 1 <= count <= MOST:
        return f"has {count} instances; give it 1 to {MOST}"
    if not isinstance(given, int) and (worker.model or worker.team is not None):
        what = "is a team, which has models of its own" if worker.team is not None else "has a model"
        return f"{what}, and names one for each instance; say only how many instances there are, or leave `model` out"
    return _several(worker, workers, others) if count > 1 else ""


def _several(worker: Worker, workers: Sequence[Worker], others: Sequence[str]) -> str:
    if worker.every is not None:
        return "works in the background, where one of it is enough; leave `instances` out"
    taken = {*(one.name for one in workers), *others}
    tag = tag_of(worker.name)
    if double := next((name for name, _ in copies(worker) if name in taken), ""):
        return f"would have an instance called {double!r}, as another worker is; rename one of them"
    carrier = next((one.name for one in workers if tag in one.tags), "")
    return f"has instances, and only they may carry the tag {tag!r}, which {carrier!r} has; drop it" if carrier else ""


def instances(workers: Sequence[Worker], others: Sequence[str] = ()) -> Instances:
    """Who of these is there several times."""
    kinds = {one.name: names for one in workers if len(names := tuple(name for name, _ in copies(one))) > 1}
    return Instances(kinds, (*(one.name for one in workers if one.name not in kinds), *others))
