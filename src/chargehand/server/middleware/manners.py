"""In whose words a refusal is put: every path belongs to a door, also one that leads nowhere."""

from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus
from math import ceil
from typing import TypeAlias

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from chargehand.server.problem import Problem
from chargehand.server.routing import Api, Render, methods_at

SLASH = "chargehand.slash"
"""Where in a scope stands that the path had a slash at its end."""
Manner: TypeAlias = Callable[[str, bool], Render]
"""Who renders, for a path without the slash at its end, and whether there was one."""
_OPENAI = ("/v1/chat", "/v1/responses", "/v1/completions", "/v1/embeddings", "/v1/models/")
_LETTA = ("/v1/models/embedding",)


def api_name(path: str, slash: bool) -> str:  # noqa: FBT001 - it says whether there was one
    """The name of the door a path belongs to. Two families live under /v1, and both have `/v1/models`."""
    if path == "/api" or path.startswith("/api/"):
        return "api"
    if (path.startswith(_OPENAI) and path not in _LETTA) or (path == "/v1/models" and not slash):
        return "openai"
    return "letta" if path == "/v1" or path.startswith("/v1/") else "index"


def manner(apis: Sequence[Api]) -> Manner:
    renders: dict[str, Render] = {**_PLAIN, **{api.name: api.render for api in apis}}

    def chosen(path: str, slash: bool) -> Render:  # noqa: FBT001 - as above
        render = renders.get(api_name(path, slash), _problem_json)

        def said(problem: Problem) -> Response:
            response = render(problem)
            if problem.status == 405:
                response.headers["Allow"] = ", ".join(methods_at(apis, path))
            return response

        return said

    return chosen


def refusal(render: Render, problem: Problem) -> Response:
    """A problem as a reply, with what belongs to its status whatever the door says."""
    response = render(problem)
    if problem.status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    if problem.status == 408:
        response.headers["Connection"] = "close"  # the rest of the body may never come
    if problem.after is not None:
        response.headers["Retry-After"] = str(ceil(problem.after))
    return response


def astray(apis: Sequence[Api]) -> "Callable[[Request, Exception], Awaitable[Response]]":
    """What is said to who finds no route: not to the words of the framework."""
    chosen = manner(apis)

    async def said(request: Request, error: Exception) -> Response:
        path = request.scope["path"]
        status = error.status_code if isinstance(error, HTTPException) else 500
        detail = {404: "there is nothing at this path", 405: "this method is not for this path"}.get(status)
        problem = Problem(status, "no_route", detail or HTTPStatus(status).phrase)
        return refusal(chosen(path, SLASH in request.scope), problem)

    return said


def _problem_json(problem: Problem) -> Response:
    told = {"type": "about:blank", "title": problem.title, "status": problem.status, "detail": problem.detail}
    body = msgspec.json.encode({**told, "code": problem.code})
    return Response(body, problem.status, media_type="application/problem+json")


def _openai(problem: Problem) -> Response:
    kind = "invalid_request_error" if problem.status < 500 else "server_error"
    error = {"message": problem.detail, "type": kind, "param": None, "code": problem.code}
    return Response(msgspec.json.encode({"error": error}), problem.status, media_type="application/json")


_PLAIN: dict[str, Render] = {"api": _problem_json, "openai": _openai}
"""For doors that are not there."""
