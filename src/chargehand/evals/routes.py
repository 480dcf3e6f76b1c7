"""Where requests go: a team is asked for each, and nothing is carried out. What the scores say is not known here."""

import re
import time
from collections.abc import Sequence

from chargehand.agents.instances import meant
from chargehand.agents.ways import Route
from chargehand.errors import ChargehandError
from chargehand.evals.cases import Case
from chargehand.evals.scores import Score
from chargehand.evals.trials import Each, expected, untried
from chargehand.runtime.draft import Draft, draft
from chargehand.team import Supervisor

OUT = "out of scope"
"""What stands for nobody in tables."""
_SURE = re.compile(r"\bconfidence (\d\.\d+)")


async def routes(team: Supervisor, cases: Sequence[Case], each: Each) -> tuple[Score, ...]:
    """A score for each case of the kind `routing`, with one crew: a route leaves nothing behind.

    A team with another way than `route` is asked for its plan: whoever has a task in it counts.
    """
    team = await team.keep_budget()
    async with team.crew() as crew:

        async def one(case: Case) -> list[Score]:
            began = time.perf_counter()
            try:
                expected(team, case.labels)
                found = await draft(crew, team.request(case.request, time.time(), seed=0))
            except ChargehandError as error:
                return [untried(case, error)]
            return [_score(team, case, found, time.perf_counter() - began)]

        return tuple(await each(cases, one))


def _score(team: Supervisor, case: Case, found: Draft, seconds: float) -> Score:
    names = [meant(task) for task in found.plan.tasks]
    wanted, way = set(case.labels), team.hiring.way
    if isinstance(way, Route) and way.secondary and len(wanted) < 2:
        names = names[:1]  # the second is asked besides; whom it is for is the first
    chosen: set[str] = set(names)
    if not wanted and isinstance(way, Route) and chosen == {way.generalist}:
        chosen = set()  # whatever is for nobody is the generalist's
    got, ought = _label(team, chosen), _label(team, wanted)
    sure = [float(hit[1]) for note in found.notes if (hit := _SURE.search(note))]
    why = () if chosen == wanted else (f"it went to {got}, and is for {ought}",)
    spent = None if found.spent is None else found.spent.micros
    return Score(
        case.name, "routing", chosen == wanted, why, values={"confidence": sure[0]} if sure else {}, seconds=seconds,
        micros=spent, request=case.request, got=got, wanted=ought, notes=found.notes,
    )  # fmt: skip


def _label(team: Supervisor, names: set[str]) -> str:
    order = [one.name for one in team.members]
    known = [name for name in order if name in names]
    return " + ".join([*known, *sorted(names.difference(known))]) or OUT
