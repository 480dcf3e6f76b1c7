"""The gate every call passes before anything is read from its body: by which name, from which page, whose token.

What a key allows is checked at the door, and what is in a body, beyond its size, depth and keys, by who reads it.
"""

import asyncio
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import cast

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chargehand.server.middleware.bodies import Cut, bounded, taken, too_large
from chargehand.server.middleware.connections import check_crowd, trust
from chargehand.server.middleware.keyring import Keyring
from chargehand.server.middleware.manners import SLASH, manner, refusal
from chargehand.server.middleware.redaction import Redactor
from chargehand.server.problem import Problem
from chargehand.server.routing import CALLER, Api, Caller
from chargehand.server.settings import FIRST, LOOPBACK, Settings
from chargehand.terms.policy import Seconds

# --- headers

_ONCE = frozenset(
    (
        b"host",
        b"origin",
        b"authorization",
        b"content-length",
        b"sec-fetch-site",
        b"content-type",
        b"transfer-encoding",
        b"upgrade",
    )
)
_LONGEST_PATH = 2048
_LONGEST_QUERY = 8192
_ODD = re.compile(r"[\x00-\x1f\x7f\\]|(?:^|/)\.\.?(?:/|$)|\ufffd")
_HIDDEN_SLASH = re.compile(rb"%(?:2f|5c)", re.IGNORECASE)
_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
_HTTP_PORT = 80


def headers_of(scope: Scope, most: int) -> Mapping[bytes, bytes]:
    """The headers that matter here, each of which may be there once."""
    found: dict[bytes, bytes] = {}
    size = 0
    for name, value in cast("Sequence[tuple[bytes, bytes]]", scope["headers"]):
        size += len(name) + len(value)
        if name in _ONCE:
            if name in found:
                raise Problem(400, "header_twice", f"the header {name.decode()} is there twice; send it once")
            found[name] = value
    if size > most:
        raise Problem(431, "headers_too_large", f"the headers have {size} bytes; at most {most} are allowed")
    return found


def check_path(scope: Scope) -> None:
    """Raise a problem for a path or a method that no honest client sends."""
    path = cast("str", scope["path"])
    raw = cast("bytes", scope.get("raw_path") or b"")
    if len(raw) > _LONGEST_PATH or len(path) > _LONGEST_PATH or len(scope["query_string"]) > _LONGEST_QUERY:
        raise Problem(414, "path_too_long", f"the path may have {_LONGEST_PATH} bytes, the query {_LONGEST_QUERY}")
    if _ODD.search(path):
        raise Problem(400, "odd_path", "the path has control characters, backslashes, dots for a step, or is not UTF-8")
    # the names of runs inside runs have slashes, and so have those of models
    if b"%" in raw and not path.startswith(("/api/", "/v1/models/")) and _HIDDEN_SLASH.search(raw):
        raise Problem(400, "odd_path", "the path has a slash in disguise (%2F or %5C)")
    if scope["method"] not in _METHODS:
        raise Problem(405, "method", "this method is not known here; use GET, POST, PUT, PATCH or DELETE")


class Names:
    """The names a server may be called by. A page that turned its own name into our address is not among them."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._known: dict[object, frozenset[bytes]] = {}

    def check(self, scope: Scope, found: Mapping[bytes, bytes]) -> None:
        """Raise a problem for a call by another name, or from another page."""
        host = found.get(b"host", b"").lower()
        if host not in self._names(cast("tuple[str, int | None] | None", scope.get("server"))):
            said = "this server does not answer to the name it was called by; --allow-host adds one"
            raise Problem(403, "wrong_host", said)
        origin = found.get(b"origin")
        if origin is not None and origin.lower() not in (b"http://" + host, b"https://" + host):
            raise Problem(403, "foreign_origin", "pages of other sites may not call this server")

    def _names(self, server: tuple[str, int | None] | None) -> frozenset[bytes]:
        """By the address that was really called: where the port is any that is free, only the call tells it."""
        names = self._known.get(server)
        if names is None:
            address, port = server or (self._settings.host, None)
            names = self._known[server] = frozenset(self._listed(address, port or self._settings.port))
        return names

    def _listed(self, address: str, port: int) -> set[bytes]:
        own = {*LOOPBACK, address, self._settings.host} - {"0.0.0.0", "::", ""}  # noqa: S104 - it is taken out
        written = {f"[{name}]" if ":" in name else name for name in own}
        names = {f"{name}:{port}" for name in written} | (written if port == _HTTP_PORT else set[str]())
        for name in self._settings.hosts:
            names |= {name} if re.search(r":\d+\Z", name) else {name, f"{name}:{port}"}
        return {name.lower().encode() for name in names}


def check_site(found: Mapping[bytes, bytes]) -> None:
    """Raise a problem where a browser says that another site makes it call: it may have kept a password of ours."""
    if found.get(b"sec-fetch-site") in (b"cross-site", b"same-site"):
        raise Problem(403, "foreign_site", "pages of other sites may not call this server")


# --- how often somebody may call

_MINUTE = 60.0
_MOST = 10_000
"""Callers that are remembered at once."""


class Rates:
    """Calls a minute, by caller. One that has not called for a minute is forgotten."""

    def __init__(self, most: int, clock: Callable[[], Seconds]) -> None:
        self._each = _MINUTE / max(1, most)
        self._clock = clock
        self._due: dict[str, Seconds] = {}
        """When all that a caller has used up so far will have come back."""

    def wait(self, who: str) -> Seconds:
        """Count one call; 0 if it may be made, else how long to wait before the next, and nothing is counted."""
        now = self._clock()
        due = max(now, self._due.get(who, 0.0)) + self._each
        over = due - now - _MINUTE
        if over > 1e-9:  # sums of fractions are not exact
            return over
        if who not in self._due and len(self._due) >= _MOST:
            self._forget(now)
        self._due[who] = due
        return 0.0

    def _forget(self, now: Seconds) -> None:
        """Those who owe nothing; failing that, all: to remember too many costs more than to let some call again."""
        self._due = {who: due for who, due in self._due.items() if due > now}
        if len(self._due) >= _MOST:
            self._due.clear()


OPEN = frozenset(("/", "/healthz", "/readyz"))
"""Where nobody is asked for a token: what is there says nothing about anybody."""
UPLOADS = frozenset(("/v1/agents/import",))
_STRANGER = Caller(FIRST)
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
        apis: Sequence[Api],
        clock: Callable[[], Seconds] = time.monotonic,
        redactor: Redactor | None = None,
    ) -> None:
        self._app = app
        self._limits = settings.limits
        self._keys = keys
        self._names = Names(settings)
        self._redactor = redactor or Redactor(())
        self._manner = manner(apis)
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
            scope[CALLER] = self._caller(scope, path, found)
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

    def _caller(self, scope: Scope, path: str, found: Mapping[bytes, bytes]) -> Caller:
        if path in OPEN:  # who brings a good token may be told more
            known = self._keys.caller(found[b"authorization"]) if b"authorization" in found else None
            if known is not None:
                trust(scope)
            return known or _STRANGER
        check_site(found)
        caller = self._keys.caller(found.get(b"authorization", b""))
        if caller is None:
            if wait := self._strangers.wait(_address(scope)):
                raise Problem(429, "too_many_tries", "too many calls without a good token; wait", after=wait)
            sent = b"authorization" in found
            what = "this token is not good here, or not any more" if sent else "a token is needed"
            said = f"{what}: send `Authorization: Bearer ...`; `chargehand tokens create` makes one"
            raise Problem(401, "no_token", said)
        trust(scope)
        if wait := self._calls.wait(caller.key):
            raise Problem(429, "too_many_calls", "this key was used for too many calls a minute; wait", after=wait)
        return caller

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
        key = cast("Caller", scope[CALLER]).key
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
