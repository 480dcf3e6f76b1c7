"""Problems as RFC 9457 tells them: with a stable `code`, what is wrong where, and the run it is about."""

from math import ceil

import msgspec
from msgspec import Struct
from starlette.responses import Response

from chargehand.server.problem import Fault, Problem, problem_of

TYPE = "application/problem+json"
CODES: dict[int, tuple[str, ...]] = {
    400: ("cut", "header_twice", "odd_path"),
    401: ("no_token",),
    403: ("forbidden", "foreign_origin", "foreign_site", "wrong_host"),
    404: ("no_route", "unknown"),
    405: ("method", "no_route"),
    408: ("too_slow",),
    409: ("busy", "conflict", "refused"),
    413: ("too_large",),
    414: ("path_too_long",),
    415: ("not_json_type",),
    422: ("invalid", "not_json", "other_body", "plan_invalid", "too_deep", "too_large"),
    429: ("overloaded", "streams", "too_many_calls", "too_many_tries"),
    431: ("headers_too_large",),
    500: ("internal", "store"),
    503: ("closing", "cut", "store_unavailable", "too_many_connections"),
}
"""Programs may go by these; new ones may be added, none changes its meaning."""


class Told(Struct, frozen=True, omit_defaults=True, rename={"kind": "type"}):
    """A problem. `code` is stable, `detail` is for people, `errors` says what was wrong in what was sent, and where."""

    title: str
    status: int
    detail: str
    code: str
    errors: tuple[Fault, ...] = ()
    run_id: str = ""
    kind: str = "about:blank"


class AboutRun(Problem):
    """A problem with one run."""

    def __init__(self, problem: Problem, run: str) -> None:
        super().__init__(problem.status, problem.code, problem.detail, faults=problem.faults, after=problem.after)
        self.run = run


def about(error: Exception, run: str) -> Exception:
    """What is raised in the place of an error that has to do with a run; others stay as they are."""
    return AboutRun(problem_of(error), run) if run else error


def told(problem: Problem) -> Response:
    run = problem.run if isinstance(problem, AboutRun) else ""
    body = Told(
        title=problem.title,
        status=problem.status,
        detail=problem.detail,
        code=problem.code,
        errors=problem.faults,
        run_id=run,
    )
    headers = {} if problem.after is None else {"Retry-After": str(ceil(problem.after))}
    told = {"type": body.kind, **msgspec.to_builtins(body)}
    return Response(msgspec.json.encode(told), problem.status, headers, TYPE)
