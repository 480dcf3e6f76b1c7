"""Workers that are there several times, as a team file says it. What is wrong is said of the place where it stands."""

from chargehand.agents.copies import objection
from chargehand.config.findings import Path
from chargehand.config.parts import Parts
from chargehand.config.shapes import WorkerShape


def instances_of(parts: Parts, path: Path, shape: WorkerShape) -> int | tuple[str, ...]:
    """How many, or the model of each; where one model stands in for all, only how many."""
    written = shape.instances
    if isinstance(written, int):
        return written
    if shape.model:
        parts.say((*path, "instances"), "names models, and so does `model`; keep one of the two")
        return 1
    return len(written) if parts.model and written else written


def check_instances(parts: Parts) -> None:
    """Say what is wrong with instances, once all workers are known."""
    others = ["factory"] if parts.team.factory is not None else []
    for one in parts.workers:
        problem = "" if one.instances == 1 else objection(one, parts.workers, others)
        if problem:
            parts.say(("workers", one.name, "instances"), problem)
