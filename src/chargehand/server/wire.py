"""Bodies and replies: JSON in, typed and within bounds; JSON out."""

from collections.abc import Mapping
from functools import lru_cache
from typing import TypeVar, cast

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from chargehand.engine.declared import describe_misfit
from chargehand.server.problem import Fault, Problem

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
