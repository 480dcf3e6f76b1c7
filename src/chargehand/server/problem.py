"""What went wrong with a call, in terms every door can put into its own words."""

from collections.abc import Sequence
from http import HTTPStatus

from msgspec import Struct

from chargehand.errors import (
    ChargehandError,
    Conflict,
    Corrupt,
    Invalid,
    PlanInvalid,
    Refused,
    RunBusy,
    StoreUnavailable,
    Unknown,
)


class Fault(Struct, frozen=True):
    """One thing that is wrong with what was sent, and where."""

    place: str
    message: str
    code: str = "invalid"


class Problem(Exception):
    """Raise it in a handler. `code` is stable: programs may go by it. `after` is when it makes sense to try again."""

    def __init__(
        self, status: int, code: str, detail: str, *, faults: Sequence[Fault] = (), after: float | None = None
    ) -> None:
        self.status = status
        self.code = code
        self.detail = detail
        self.faults = tuple(faults)
        self.after = after
        super().__init__(detail)

    @property
    def title(self) -> str:
        return HTTPStatus(self.status).phrase


def unknown(what: str, which: str) -> Problem:
    return Problem(404, "unknown", f"there is no {what} {which[:100]!r}")


def invalid(detail: str) -> Problem:
    return Problem(422, "invalid", detail)


def check_choice(name: str, value: object, choices: Sequence[str]) -> None:
    """Raise a problem unless a field has one of these values."""
    if value not in choices:
        raise invalid(f"{name} is {str(value)[:40]!r}; it must be one of {', '.join(choices)}")


def problem_of(error: Exception) -> Problem:
    """The problem an exception of ours amounts to. Others are ours to mend: they say nothing of themselves."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, PlanInvalid):
        faults = [Fault(place=one.place, message=one.message, code=one.code) for one in error.findings]
        return Problem(422, "plan_invalid", str(error), faults=faults)
    if isinstance(error, Invalid):
        return Problem(422, "invalid", str(error))
    if isinstance(error, Unknown):
        return Problem(404, "unknown", str(error))
    if isinstance(error, Conflict):
        return Problem(409, "conflict", str(error))
    if isinstance(error, RunBusy):
        return Problem(409, "busy", str(error))
    if isinstance(error, Refused):
        return Problem(409, "refused", str(error))
    if isinstance(error, ChargehandError):
        return _store_problem(error)
    return Problem(500, "internal", "something went wrong here; the server's log says what")


def _store_problem(error: ChargehandError) -> Problem:
    if isinstance(error, StoreUnavailable):
        return Problem(503, "store_unavailable", "the store cannot be written just now; try again soon", after=2.0)
    if isinstance(error, Corrupt):
        detail = str(error) if error.run else "the store is damaged; the server's log says where"
        return Problem(500, "corrupt", detail)
    return Problem(500, "store", "the store could not do what was asked; the server's log says why")
