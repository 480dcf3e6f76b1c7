"""Problems in the envelope of OpenAI, with the name of the parameter and of the run they are about."""

from math import ceil

import msgspec
from starlette.responses import Response

from chargehand.server.problem import Fault, Problem

RUN = "X-Run-Id"
_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_WRONG = frozenset(("invalid", "not_json", "plan_invalid", "other_body"))
_NEVER = {"x-should-retry": "false"}


class AboutRun(Problem):
    """A run came to nothing. The same call would come to the same, so the client is told not to make it again."""

    def __init__(self, status: int, code: str, detail: str, run: str) -> None:
        super().__init__(status, code, detail)
        self.run = run


def refused(param: str, detail: str, code: str = "unsupported_value") -> Problem:
    """A parameter that cannot be honoured."""
    return Problem(400, code, detail, faults=[Fault(place=param, message=detail, code=code)])


def error_of(problem: Problem) -> dict[str, object]:
    """What stands under `error`, in replies and in streams."""
    kind = _TYPES.get(problem.status) or ("invalid_request_error" if problem.status < 500 else "server_error")
    place = problem.faults[0].place.removeprefix("$").removeprefix(".") if problem.faults else ""
    return {"message": problem.detail, "type": kind, "param": place or None, "code": problem.code}


def enveloped(problem: Problem) -> Response:
    """What is wrong with a body is 400 here, as these clients know it; what the walls refuse keeps its status."""
    headers = {} if problem.after is None else {"Retry-After": str(ceil(problem.after))}
    if isinstance(problem, AboutRun):
        headers |= {RUN: problem.run, **_NEVER}
    status = 400 if problem.code in _WRONG else problem.status
    return Response(msgspec.json.encode({"error": error_of(problem)}), status, headers, "application/json")
