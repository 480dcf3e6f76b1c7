"""What is where: the plain page at `/`, health and readiness. A page to look at runs with comes here later."""

from math import ceil
from typing import cast

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from chargehand.server.doors import VISITOR, Door, Visitor
from chargehand.server.floor import closing
from chargehand.server.house import House
from chargehand.server.problem import Problem
from chargehand.server.recovery import Recovery
from chargehand.server.wire import reply

_INDEX = """chargehand is running.

/api            our own API: teams, runs, memory (docs: /api/openapi.json)
/v1/agents ...  the API of letta-client
/v1/chat/completions, /v1/responses, /v1/models
                a team as a model, for OpenAI clients
/metrics        figures for Prometheus
/healthz        whether the process lives; /readyz whether it takes work
"""


def plain(problem: Problem) -> Response:
    headers = {} if problem.after is None else {"Retry-After": str(ceil(problem.after))}
    return PlainTextResponse(f"{problem.detail}\n", problem.status, headers)


async def _index(_request: Request, _house: House) -> Response:
    return PlainTextResponse(_INDEX)


async def _health(_request: Request, _house: House) -> Response:
    return reply({"status": "ok"})


async def _ready(request: Request, house: House) -> Response:
    """How much is under way is told to who has a token; `left` are open runs that nobody here can go on with."""
    if house.floor.closing:
        raise closing()
    if house.journal.trouble:
        raise Problem(503, "store_unavailable", "the store cannot be written just now; runs wait for it", after=2.0)
    if not cast("Visitor", request.scope[VISITOR]).scopes:
        return reply({"status": "ready"})
    floor = house.floor
    recovery = house.part(Recovery)
    told = {"status": "ready", "runs": floor.carried, "waiting": floor.waiting}
    return reply({**told, "resumed": recovery.resumed, "left": len(recovery.left)})


def index_door() -> Door:
    door = Door("index", plain)
    door.add("GET", "/", _index, "open")
    door.add("GET", "/healthz", _health, "open")
    door.add("GET", "/readyz", _ready, "open")
    return door
