"""Whether the examples that are advised would help: the same requests, routed again by a team that has them.

Only for teams whose routes cost nothing.
"""

from collections.abc import Mapping, Sequence

from msgspec import structs

from chargehand.agents.hiring import Hiring
from chargehand.agents.ways import Route
from chargehand.agents.worker import Worker
from chargehand.evals.advice import examples
from chargehand.evals.cases import Case
from chargehand.evals.routes import routes
from chargehand.evals.scores import Score
from chargehand.evals.trials import Each
from chargehand.models.find import Lookup
from chargehand.team import Supervisor


async def tried(hiring: Hiring, cases: Sequence[Case], scores: Sequence[Score], lookup: Lookup, each: Each) -> str:
    """What came of adding the examples, in words; empty where there is nothing to add, or trying it would cost."""
    more = examples([one for one in scores if not one.error], hiring.cards())
    if not more or not isinstance(hiring.way, Route) or any(one.micros != 0 for one in scores):
        return ""
    after = await routes(_amended(hiring, more, lookup), cases, each)
    added = {request for requests in more.values() for request in requests}
    others = [(old, new) for old, new in zip(scores, after, strict=True) if old.request not in added]
    right = sum(one.passed for one in scores), sum(one.passed for one in after)
    lost = [new.case for old, new in others if old.passed and not new.passed]
    won = sum(new.passed and not old.passed for old, new in others)
    said = f"tried: with the examples above {right[1]} of {len(after)} requests go right instead of {right[0]}"
    gone = f", and {len(lost)} that went right do not any more: {', '.join(lost[:3])}" if lost else ""
    return f"{said}; {won} more besides the examples themselves{gone}"


def _amended(hiring: Hiring, more: Mapping[str, tuple[str, ...]], lookup: Lookup) -> Supervisor:
    """A team that routes as this one does, with more examples. It can do nothing else."""
    workers = [
        Worker(
            one.name, one.description, tags=one.tags, skills=one.skills,
            examples=(*one.examples, *more.get(one.name, ())),
            tools=[tool for tool in one.tools if not isinstance(tool, str)], team=one.team,
        )
        for one in hiring.workers
    ]  # fmt: skip
    return Supervisor(
        workers, model=hiring.models[0], planner=hiring.models[1], instructions=hiring.instructions,
        way=structs.replace(hiring.way, samples=1) if isinstance(hiring.way, Route) else hiring.way, lookup=lookup,
    )  # fmt: skip
