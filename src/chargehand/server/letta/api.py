"""The API of `letta-client`: all its routes, and problems as that client reads them."""

from starlette.responses import Response

from chargehand.server.letta import (
    agent_files,
    agents,
    archives,
    blocks,
    conversations,
    messages,
    models,
    runs,
    tool_routes,
)
from chargehand.server.problem import Problem
from chargehand.server.routing import Api
from chargehand.server.wire import reply

_MODULES = (agent_files, agents, archives, blocks, messages, runs, models, tool_routes, conversations)
_RETRIED = (429, 502, 503, 504)  # what it makes sense to send again as it was


def _render(problem: Problem) -> Response:
    """`{"detail": ...}`. The client repeats conflicts unless it is told not to: what lost once would lose again."""
    headers = {} if problem.status in _RETRIED else {"x-should-retry": "false"}
    return reply({"detail": problem.detail, "code": problem.code}, problem.status, headers)


def letta_api() -> Api:
    api = Api("letta", _render, prefixes=("/v1", "/v1/models/embedding"), claims=models.is_from_letta)
    for module in _MODULES:
        module.routes.add_to(api)
    return api
