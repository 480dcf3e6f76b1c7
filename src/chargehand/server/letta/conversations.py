"""Conversations beside an agent's own, which clients since 1.6.5 ask for. There are none here, and it is said so."""

from starlette.requests import Request
from starlette.responses import Response

from chargehand.server.doors import Door
from chargehand.server.house import House
from chargehand.server.problem import Problem

_SAID = (
    "this server has no conversations beside an agent's own: use agents.messages, and for a second conversation "
    "another agent, which may share blocks and archives with the first"
)


def add(door: Door) -> None:
    for path in ("/v1/conversations", "/v1/conversations/{conversation}", "/v1/conversations/{conversation}/{verb}"):
        door.add("GET", path, refused, "read")
        door.add("POST", path, refused)
        door.add("PATCH", path, refused)
        door.add("DELETE", path, refused)


async def refused(_request: Request, _house: House) -> Response:
    raise Problem(404, "not_served", _SAID)
