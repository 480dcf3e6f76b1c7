"""The door for `letta-client`: every route there is, and problems as that client reads them."""

from math import ceil

from starlette.responses import Response

from chargehand.server.letta import (
    agent_lists,
    agent_passages,
    agents,
    archives,
    attachments,
    blocks,
    conversations,
    message_lists,
    messages,
    models,
    passages,
    runs,
    steps,
    tags,
    tool_routes,
    tool_runs,
    transfers,
)
from chargehand.server.problem import Problem
from chargehand.server.routing import Api
from chargehand.server.wire import reply

_ROOMS = (
    transfers,
    agent_lists,
    agents,
    attachments,
    agent_passages,
    messages,
    message_lists,
    runs,
    steps,
    blocks,
    archives,
    passages,
    tags,
    models,
    tool_runs,
    tool_routes,
    conversations,
)
_AGAIN = (429, 502, 503, 504)  # what it makes sense to send again as it was


def told(problem: Problem) -> Response:
    """`{"detail": ...}`. The client sends conflicts again unless it is told not to: what lost once would lose again."""
    headers = {} if problem.status in _AGAIN else {"x-should-retry": "false"}
    if problem.after is not None:
        headers["Retry-After"] = str(ceil(problem.after))
    return reply({"detail": problem.detail, "code": problem.code}, problem.status, headers)


def letta_api() -> Api:
    api = Api("letta", told)
    for room in _ROOMS:
        room.add(api)
    return api
