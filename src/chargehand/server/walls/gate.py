"""The gate every call passes before anything is read from its body: by which name, from which page, whose token.

What a key allows is checked at the door, and what is in a body, beyond its size, depth and keys, by who reads it.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import cast

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chargehand.server.doors import VISITOR, Door, Visitor
from chargehand.server.problem import Problem
from chargehand.server.settings import FIRST, Settings
from chargehand.server.walls.bodies import Cut, bounded, taken, too_large
from chargehand.server.walls.connections import check_crowd, trust
from chargehand.server.walls.keyring import Keyring
from chargehand.server.walls.looks import Names, check_path, check_site, headers_of
from chargehand.server.walls.manners import SLASH, manner, refusal
from chargehand.server.walls.rates import Rates
from chargehand.server.walls.redaction import Redactor
from chargehand.terms.policy import Seconds

OPEN = frozenset(("/", "/healthz", "/readyz"))
"""Where nobody is asked for a token: what is there says nothing about anybody."""
UPLOADS = frozenset(("/v1/agents/import",))
_STRANGER = Visitor(FIRST)
_HEADERS = (
    (b"content-security-policy", b"default-src 'self'; base-uri 'none'; frame-ancestors 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)
_DIGITS = 12  # of a length that can be meant
_UNKEPT = (b"cache-control", b"no-store")


class Gate:
    """Around the application."""

    def __init__(
        self,
        app: ASGIApp,
        settings: Settings,
        keys: Keyring,
        doors: Sequence[Door],
        clock: Callable[[], Seconds] = time.monotonic,
        redactor: Redactor | None = None,
    ) -> None:
        self._app = app
        self._limits = settings.limits
        self._keys = keys
        self._names = Names(settings)
        self._redactor = redactor or Redactor(())
        self._manner = manner(doors)
        self._calls = Rates(settings.limits.calls, clock)
        self._strangers = Rates(settings.limits.strangers, clock)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})  # nobody here speaks like that

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        slash = len(path) > 1 and path.endswith("/")
        if slash:
            path = scope["path"] = path.rstrip("/") or "/"
            scope[SLASH] = True
        try:
            found = headers_of(scope, self._limits.header)
            self._names.check(scope, found)
            check_path(scope)
            check_crowd(scope)
            scope[VISITOR] = self._visitor(scope, path, found)
            heard = await self._body(path, scope["method"], found, receive)
        except Problem as problem:
            await self._refuse(scope, refusal(self._manner(path, slash), problem), send)
            return
        except Cut:
            return
        await self._enter(scope, heard, send)

    async def _refuse(self, scope: Scope, response: Response, send: Send) -> None:
        async def dressed(message: Message) -> None:
            if message["type"] == "http.response.start":
                _dress(message)
            await send(message)

        await response(scope, _nothing, dressed)

    def _visitor(self, scope: Scope, path: str, found: Mapping[bytes, bytes]) -> Visitor:
        if path in OPEN:  # who brings a good token may be told more
            known = self._keys.visitor(found[b"authorization"]) if b"authorization" in found else None
            if known is not None:
                trust(scope)
            return known or _STRANGER
        check_site(found)
        visitor = self._keys.visitor(found.get(b"authorization", b""))
        if visitor is None:
            if wait := self._strangers.wait(_address(scope)):
                raise Problem(429, "too_many_tries", "too many calls without a good token; wait", after=wait)
            sent = b"authorization" in found
            what = "this token is not good here, or not any more" if sent else "a token is needed"
            said = f"{what}: send `Authorization: Bearer ...`; `chargehand tokens create` makes one"
            raise Problem(401, "no_token", said)
        trust(scope)
        if wait := self._calls.wait(visitor.key):
            raise Problem(429, "too_many_calls", "this key was used for too many calls a minute; wait", after=wait)
        return visitor

    async def _body(self, path: str, method: str, found: Mapping[bytes, bytes], receive: Receive) -> Receive:
        limits = self._limits
        most = limits.upload if path in UPLOADS else limits.body
        length = found.get(b"content-length")
        if b"upgrade" in found and (length not in (None, b"0") or b"transfer-encoding" in found):
            said = "a body cannot come with `Upgrade`: only HTTP/1.1 is spoken here; send it without that header"
            raise Problem(400, "upgrade", said)
        if length is not None and (len(length) > _DIGITS or not length.isdigit() or int(length) > most):
            raise too_large(most)
        if path in UPLOADS:
            return bounded(receive, most)
        if length is None and b"transfer-encoding" not in found and method in ("GET", "HEAD"):
            return receive
        reads = method not in ("GET", "HEAD")
        media_type = found.get(b"content-type", b"") if reads else None
        return await taken(receive, most, limits, media_type=media_type, redactor=self._redactor)

    async def _enter(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Into the application. A stream is over as soon as its key is no longer good."""
        key = cast("Visitor", scope[VISITOR]).key
        until = asyncio.timeout(None)
        streams = False

        async def dressed(message: Message) -> None:
            nonlocal streams
            if message["type"] == "http.response.start":
                _dress(message)
                if not streams and _is_stream(message):
                    streams = True
                    self._keys.opened(key, until)
            await send(message)

        try:
            async with until:
                await self._app(scope, receive, dressed)
        except TimeoutError:
            if not until.expired():
                raise
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            if streams:
                self._keys.closed(key, until)


def _dress(message: Message) -> None:
    """Headers that every reply has; one that says itself how long it may be kept is left so."""
    headers = cast("list[tuple[bytes, bytes]]", message["headers"])
    kept = any(name == b"cache-control" for name, _ in headers)
    message["headers"] = [*headers, *_HEADERS] if kept else [*headers, *_HEADERS, _UNKEPT]


def _is_stream(message: Message) -> bool:
    headers = cast("list[tuple[bytes, bytes]]", message["headers"])
    return any(name == b"content-type" and value.startswith(b"text/event-stream") for name, value in headers)


def _address(scope: Scope) -> str:
    client = cast("tuple[str, int] | None", scope.get("client"))
    return client[0] if client else ""


async def _nothing() -> Message:
    return {"type": "http.disconnect"}
