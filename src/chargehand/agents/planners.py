"""Which function plans in which way. What each does is its own module's business."""

from collections.abc import Coroutine
from typing import Any

from chargehand.agents import lead as leading
from chargehand.agents.crew import Hand, Proposal
from chargehand.agents.lead import Lead
from chargehand.agents.ways import Broadcast, Dynamic, Loop, Recursive, RoundRobin, Route, Way, Whole
from chargehand.core.owed import Brief


def plan(way: Way, lead: Lead, brief: Brief, hand: Hand) -> Coroutine[Any, Any, Proposal]:
    """What this way of leading adds to the plan next."""
    if isinstance(way, Whole):
        return leading.plan(lead, brief, hand)
    if isinstance(way, Broadcast):
        from chargehand.agents.talking import broadcast  # noqa: PLC0415 - a team pays only for the way it is led

        return broadcast(way, lead, brief, hand)
    if isinstance(way, RoundRobin):
        from chargehand.agents.talking import round_robin  # noqa: PLC0415 - as above

        return round_robin(way, lead, brief, hand)
    if isinstance(way, Dynamic):
        from chargehand.agents.talking import dynamic  # noqa: PLC0415 - as above

        return dynamic(way, lead, brief, hand)
    if isinstance(way, Loop):
        from chargehand.agents.stepwise import stepwise  # noqa: PLC0415 - as above

        return stepwise(way, lead, brief, hand)
    if isinstance(way, Recursive):
        from chargehand.agents.splitting import split  # noqa: PLC0415 - as above

        return split(way, lead, brief, hand)
    assert isinstance(way, Route), "the last way there is"
    from chargehand.agents.routing import route  # noqa: PLC0415 - as above

    return route(way, lead, brief, hand)
