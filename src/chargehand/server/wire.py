"""Bodies, replies and problems: JSON in, typed and within bounds; JSON out; what went wrong, for each API to word."""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from http import HTTPStatus
from math import ceil
from typing import TypeVar, cast

import msgspec
from msgspec import Struct
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from chargehand.engine.declared import describe_misfit
from chargehand.errors import (
    ChargehandError,
    Conflict,
    Corrupt,
    FileTooLarge,
    Invalid,
    PlanInvalid,
    Refused,
    RunBusy,
    StoreUnavailable,
    Unknown,
    WrongFileType,
)
from chargehand.text.words import did_you_mean

_KINDS: tuple[tuple[type[ChargehandError], int, str], ...] = (
    (FileTooLarge, 413, "too_large"),
    (WrongFileType, 415, "wrong_file_type"),
    (Invalid, 422, "invalid"),
    (Unknown, 404, "unknown"),
    (Conflict, 409, "conflict"),
    (RunBusy, 409, "busy"),
    (Refused, 409, "refused"),
)
"""What an exception of ours amounts to; the first that fits."""


class OverHttp(Refused):
    """A refusal whose next step is a call of our own HTTP API. Clients of other protocols are told it without that."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.remedy = remedy


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
        remedy: str = "",
    ) -> None:
        self.status = status
        self.code = code
        self.detail = detail
        self.faults = tuple(faults)
        self.after = after
        self.remedy = remedy
        """The next step as a call of our own HTTP API; empty: there is none, or `detail` has it."""
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
    if isinstance(error, OverHttp):
        return Problem(409, "refused", str(error), remedy=error.remedy)
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


# --- bodies and replies


Shape = TypeVar("Shape")
_ENCODER = msgspec.json.Encoder()


@lru_cache(maxsize=256)
def _decoder(shape: type[Shape], *, strict: bool) -> "msgspec.json.Decoder[Shape]":
    return msgspec.json.Decoder(shape, strict=strict)


async def raw_body(request: Request) -> bytes:
    """All of a body; the middleware has made sure that it is not too long."""
    try:
        return await request.body()
    except ClientDisconnect as error:
        raise Problem(400, "cut", "the body was cut off") from error


async def body(request: Request, shape: type[Shape]) -> Shape:
    """What was sent, as `shape`; no body at all counts as an empty object."""
    return read(await raw_body(request), shape)


def read(raw: bytes, shape: type[Shape], *, strict: bool = False) -> Shape:
    """What was sent, as `shape`. Unless `strict`, a number may be written as text."""
    text = raw.strip() or b"{}"
    try:
        try:
            return _decoder(shape, strict=strict).decode(text)
        except msgspec.ValidationError as error:  # what follows need not be JSON
            raise misfit(error, shape, msgspec.json.decode(text)) from error
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise Problem(422, "not_json", f"the body is not JSON: {error}") from error


def misfit(error: msgspec.ValidationError, shape: object, sent: object) -> Problem:
    """The problem with what was sent, which is not of this shape, and its place."""
    place_and_message = describe_misfit(error, shape, sent)
    return Problem(
        422,
        "invalid",
        f"{place_and_message.place}: {place_and_message.message}",
        faults=[Fault(place_and_message.place, place_and_message.message)],
    )


def reply(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(_ENCODER.encode(value), status, headers, "application/json")


def nothing() -> Response:
    return Response(status_code=204)


def flag(request: Request, name: str, *, usual: bool = False) -> bool:
    """A query parameter that is true or false."""
    text = request.query_params.get(name)
    if text is None:
        return usual
    if text.lower() not in ("true", "false", "1", "0"):
        raise Problem(422, "invalid", f"{name} is {text[:40]!r}; it must be true or false")
    return text.lower() in ("true", "1")


def number(request: Request, name: str, usual: int, least: int, most: int) -> int:
    """A whole number in the query; one beyond the bounds is refused."""
    text = request.query_params.get(name)
    if text is None:
        return usual
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if not least <= value <= most:
        raise Problem(422, "invalid", f"{name} is {text[:40]!r}; it must be a whole number from {least} to {most}")
    return value


def part(request: Request, name: str) -> str:
    """A piece of the path."""
    return cast("str", request.path_params[name])
