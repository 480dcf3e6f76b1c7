"""What went wrong with a call, in terms that every API can put into its own words."""

from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from math import ceil

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
from chargehand.text.names import did_you_mean

_KINDS: tuple[tuple[type[ChargehandError], int, str], ...] = (
    (Invalid, 422, "invalid"),
    (Unknown, 404, "unknown"),
    (Conflict, 409, "conflict"),
    (RunBusy, 409, "busy"),
    (Refused, 409, "refused"),
)
"""What an exception of ours amounts to; the first that fits."""


class Fault(Struct, frozen=True):
    """One thing that is wrong with what was sent, and where."""

    place: str
    message: str
    code: str = "invalid"


class Problem(Exception):
    """Raise it in a handler. `code` is stable: programs may go by it. `after` is when it makes sense to try again."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        faults: Sequence[Fault] = (),
        after: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.status = status
        self.code = code
        self.detail = detail
        self.faults = tuple(faults)
        self.after = after
        self.headers = {**(headers or {}), **({} if after is None else {"Retry-After": str(ceil(after))})}
        self.run = ""
        """The run it is about."""
        super().__init__(detail)

    @property
    def title(self) -> str:
        return HTTPStatus(self.status).phrase


def unknown(what: str, which: str, names: Iterable[str] = ()) -> Problem:
    """404; with `names` it says which one may be meant."""
    choices = list(names)
    hint = f"; {did_you_mean(which, choices)}" if choices else ""
    return Problem(404, "unknown", f"there is no {what} {which[:100]!r}{hint}")


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
        faults = [Fault(finding.place, finding.message, finding.code) for finding in error.findings]
        return Problem(422, "plan_invalid", str(error), faults=faults)
    for kind, status, code in _KINDS:
        if isinstance(error, kind):
            return Problem(status, code, str(error))
    if isinstance(error, StoreUnavailable):
        return Problem(503, "store_unavailable", "the store cannot be written just now; try again soon", after=2.0)
    if isinstance(error, Corrupt):
        detail = str(error) if error.run else "the store is damaged; the server's log says where"
        return Problem(500, "corrupt", detail)
    if isinstance(error, ChargehandError):
        return Problem(500, "store", "the store could not do what was asked; the server's log says why")
    return Problem(500, "internal", "something went wrong here; the server's log says what")
