"""Checks of every call before its body is read: headers, host, origin, path, token, rate.

Each check is a middleware around the next; `guard` composes them. Scopes of keys are checked by the API.
"""

import asyncio
import base64
import binascii
import hmac
import logging
import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from types import TracebackType
from typing import Self, cast

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chargehand.engine.policy import Instant, Seconds
from chargehand.errors import StoreError
from chargehand.server.middleware.keys import ApiKey, KeyStore, create_key, digest_of
from chargehand.server.middleware.limits import Bodies, check_crowd, trust
from chargehand.server.middleware.redaction import Redactor
from chargehand.server.middleware.sqlite_keys import SqliteKeys
from chargehand.server.page import is_page
from chargehand.server.routing import CALLER, HEADERS, SLASH, ApiCaller, Apis
from chargehand.server.settings import FIRST, LOOPBACK, ServerSettings
from chargehand.server.wire import Problem
from chargehand.store_url import PostgresUrl, StoreUrl, parse_store_url

OPERATOR = "operator"
"""What the key of the operator's own token is called."""
_LONGEST_TOKEN = 512
_BROWSER_TOKEN: Seconds = 12 * 3600
_LOOK_EVERY: Seconds = 0.25
"""How often a revoked key is looked for while streams are open."""
_ID_IN_TOKEN = slice(3, 11)
OPEN = frozenset(("/healthz", "/readyz"))
"""Paths besides those of the page that need no token: they show nothing of any tenant."""
_STRANGER = ApiCaller(FIRST)
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
_REPLY_HEADERS = (
    (
        b"content-security-policy",
        b"default-src 'self'; img-src 'self' blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)
_NO_STORE = (b"cache-control", b"no-store")

logger = logging.getLogger(__name__)


# --- who is calling


def open_keys(url: StoreUrl) -> KeyStore:
    """The keys at a URL, made if they are missing."""
    place = parse_store_url(url)
    if isinstance(place, PostgresUrl):
        from chargehand.server.middleware.postgres_keys import PostgresKeys  # noqa: PLC0415 - the driver is an extra

        return PostgresKeys(place)
    return SqliteKeys(place)


def first_token(settings: ServerSettings, now: Instant) -> str | None:
    """The token of a server that is started for the first time, to be shown once; None where there is a way in."""
    if settings.token or settings.unlocked:
        return None
    with closing(open_keys(settings.keys)) as store:
        if any(key.good(now) for key in store.all()):
            return None
        key, token = create_key(FIRST, "first", "admin", now)
        store.add(key)
        return token


def browser_token(settings: ServerSettings, now: Instant) -> str:
    """A token for a browser on this machine: the operator's own, else a new one that is good for half a day."""
    if settings.token or settings.unlocked:
        return settings.token
    with closing(open_keys(settings.keys)) as store:
        key, token = create_key(FIRST, "browser", "admin", now, expires=now + _BROWSER_TOKEN)
        store.add(key)
        return token


class Keyring:
    """A token against the keys there are: the same work for a good one and a bad one.

    Enter it to read the keys. Without that only the operator's own token is known.
    """

    def __init__(self, settings: ServerSettings, now: Callable[[], Instant] = time.time) -> None:
        self._settings = settings
        self._now = now
        self._own = digest_of(settings.token.encode() or secrets.token_bytes(32))
        self._operator = ApiCaller(FIRST, OPERATOR, "admin", OPERATOR)
        self._no_key, _ = create_key(FIRST, "", "read", 0.0, expires=0.0)
        self._keys: dict[str, ApiKey] = {}
        self._store: KeyStore | None = None
        self._version = -1
        self._open: dict[str, set[asyncio.Timeout]] = {}
        self._jobs = asyncio.TaskGroup()
        self._watch: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        if not self._settings.unlocked:
            self._store = await asyncio.to_thread(open_keys, self._settings.keys)
            self._refresh()
        await self._jobs.__aenter__()
        self._watch = self._jobs.create_task(self._watch_revoked())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._watch is not None, "it was entered"
        self._watch.cancel()
        try:
            await self._jobs.__aexit__(kind, error, trace)
        finally:
            if self._store is not None:
                self._store.close()

    def caller(self, authorization: bytes) -> ApiCaller | None:
        """Whose token this is; None for everything that is not a good one."""
        if self._settings.unlocked:
            return self._operator
        token = token_of(authorization)
        digest = digest_of(token)
        self._refresh()
        key = self._keys.get(token[_ID_IN_TOKEN].decode("latin-1"), self._no_key)
        is_own = hmac.compare_digest(digest, self._own)
        is_known = hmac.compare_digest(digest, key.digest)
        if is_own:
            return self._operator
        return ApiCaller(key.tenant, key.id, key.scope, key.name) if is_known and key.good(self._now()) else None

    def opened(self, key: str, until: asyncio.Timeout) -> None:
        """Something is open under this key: `until` runs out when the key is revoked or expires."""
        self._open.setdefault(key, set()).add(until)
        expires = self._keys[key].expires if key in self._keys else None
        if expires is not None:
            until.reschedule(asyncio.get_running_loop().time() + max(0.0, expires - self._now()))

    def closed(self, key: str, until: asyncio.Timeout) -> None:
        streams = self._open[key]
        streams.discard(until)
        if not streams:
            del self._open[key]

    async def _watch_revoked(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_EVERY)
            if self._open:
                self._refresh()

    def _refresh(self) -> None:
        """Read the keys again if they have changed. While they cannot be read, no key is valid."""
        if self._store is None:
            return
        try:
            version = self._store.version()
            if version == self._version:
                return
            keys = self._store.all()
            self._version = version
        except StoreError:
            logger.exception("the keys cannot be read: only the operator's own token is good until they can")
            keys = []
            self._version = -1
        self._keys = {key.id: key for key in keys}
        now = self._now()
        for key, streams in self._open.items():
            is_good = key == OPERATOR or (key in self._keys and self._keys[key].good(now))
            for until in () if is_good else tuple(streams):
                if not until.expired():
                    until.reschedule(asyncio.get_running_loop().time())


def is_open_path(path: str) -> bool:
    """Whether a path needs no token."""
    return path in OPEN or is_page(path)


def token_of(authorization: bytes) -> bytes:
    """The token of a header: a bearer's, or the password of Basic; nothing where there is none."""
    kind, _, rest = authorization.partition(b" ")
    kind = kind.lower()
    rest = rest.strip()
    if len(rest) > _LONGEST_TOKEN:
        return b""
    if kind == b"bearer":
        return rest
    if kind != b"basic":
        return b""
    try:
        return base64.b64decode(rest, validate=True).partition(b":")[2]
    except (binascii.Error, ValueError):
        return b""


# --- what every call must pass


def guard(
    app: ASGIApp,
    settings: ServerSettings,
    keys: Keyring,
    apis: Apis,
    *,
    redactor: Redactor,
    lifespan: ASGIApp,
    clock: Callable[[], Seconds] = time.monotonic,
) -> ASGIApp:
    """The application behind all checks."""
    checked = Bodies(app, settings.limits, redactor)
    return GateMiddleware(lifespan, RequestChecks(Access(checked, settings, keys, apis, clock), settings), apis)


class GateMiddleware:
    """Tells calls of HTTP from others, words what the checks refuse, and adds the headers that every reply has."""

    def __init__(self, lifespan: ASGIApp, checked: ASGIApp, apis: Apis) -> None:
        self._lifespan = lifespan
        self._checked = checked
        self._apis = apis

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})  # WebSockets are not supported
            return
        path: str = scope["path"]
        if len(path) > 1 and path.endswith("/"):
            scope["path"] = path.rstrip("/") or "/"
            scope[SLASH] = True
        has_begun = False

        async def send_with_headers(message: Message) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                has_begun = True
                _add_headers(message)
            await send(message)

        try:
            await self._checked(scope, receive, send_with_headers)
        except Problem as problem:
            if has_begun:  # a status was sent: nothing else can be said
                raise
            response = self._apis.owner(scope).refuse(problem)
            await response(scope, receive, send_with_headers)


def _add_headers(message: Message) -> None:
    """A reply that says itself how long it may be kept is left so."""
    headers = cast("list[tuple[bytes, bytes]]", message["headers"])
    is_kept = any(name == b"cache-control" for name, _ in headers)
    message["headers"] = [*headers, *_REPLY_HEADERS] if is_kept else [*headers, *_REPLY_HEADERS, _NO_STORE]


# --- headers, names and paths


class RequestChecks:
    """Refuses headers, hosts, origins, paths and methods that no honest client sends, and calls beyond the crowd."""

    def __init__(self, app: ASGIApp, settings: ServerSettings) -> None:
        self._app = app
        self._settings = settings
        self._hosts: dict[object, frozenset[bytes]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = scope[HEADERS] = read_headers(scope, self._settings.limits.header)
        self._check_host(scope, headers)
        check_path(scope)
        check_crowd(scope)
        await self._app(scope, receive, send)

    def _check_host(self, scope: Scope, headers: Mapping[bytes, bytes]) -> None:
        """A page that turned its own name into our address does not call us by a name of ours."""
        host = headers.get(b"host", b"").lower()
        server = cast("tuple[str, int | None] | None", scope.get("server"))
        hosts = self._hosts.get(server)
        if hosts is None:
            hosts = self._hosts[server] = frozenset(self._own_hosts(server))
        if host not in hosts:
            detail = "this server does not answer to the name it was called by; --allow-host adds one"
            raise Problem(403, "wrong_host", detail)
        origin = headers.get(b"origin")
        if origin is not None and origin.lower() not in (b"http://" + host, b"https://" + host):
            raise Problem(403, "foreign_origin", "pages of other sites may not call this server")

    def _own_hosts(self, server: tuple[str, int | None] | None) -> set[bytes]:
        """By the address that was really called: where the port is any that is free, only the call tells it."""
        address, called_port = server or (self._settings.host, None)
        port = called_port or self._settings.port
        own = {*LOOPBACK, address, self._settings.host} - {"0.0.0.0", "::", ""}  # noqa: S104 - it is taken out
        names = {f"[{name}]" if ":" in name else name for name in own}
        hosts = {f"{name}:{port}" for name in names} | (names if port == _HTTP_PORT else set[str]())
        for name in self._settings.hosts:
            hosts |= {name} if re.search(r":\d+\Z", name) else {name, f"{name}:{port}"}
        return {name.lower().encode() for name in hosts}


def read_headers(scope: Scope, most: int) -> Mapping[bytes, bytes]:
    """The headers that matter here, each of which may be there once."""
    headers: dict[bytes, bytes] = {}
    size = 0
    for name, value in cast("Sequence[tuple[bytes, bytes]]", scope["headers"]):
        size += len(name) + len(value)
        if name in _ONCE:
            if name in headers:
                raise Problem(400, "header_twice", f"the header {name.decode()} is there twice; send it once")
            headers[name] = value
    if size > most:
        raise Problem(431, "headers_too_large", f"the headers have {size} bytes; at most {most} are allowed")
    return headers


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
        detail = "this method is not known here; use GET, POST, PUT, PATCH or DELETE"
        raise Problem(405, "method", detail, headers={"Allow": "GET, HEAD, POST, PUT, PATCH, DELETE"})


# --- who may call, and how often

_MINUTE = 60.0
_MOST = 10_000
"""Callers that are remembered at once."""


class CallRates:
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
            # those who owe nothing; failing that, all: to remember too many costs more than to let some call again
            self._due = {caller: due for caller, due in self._due.items() if due > now}
            if len(self._due) >= _MOST:
                self._due.clear()
        self._due[who] = due
        return 0.0


class Access:
    """Finds out who is calling, and how often. A stream is over as soon as its key is no longer good."""

    def __init__(
        self, app: ASGIApp, settings: ServerSettings, keys: Keyring, apis: Apis, clock: Callable[[], Seconds]
    ) -> None:
        self._app = app
        self._keys = keys
        self._apis = apis
        self._calls = CallRates(settings.limits.calls, clock)
        self._strangers = CallRates(settings.limits.strangers, clock)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller = scope[CALLER] = self._caller(scope)
        until = asyncio.timeout(None)
        is_stream = False

        async def watch(message: Message) -> None:
            nonlocal is_stream
            if message["type"] == "http.response.start" and _is_stream(message):
                is_stream = True
                self._keys.opened(caller.key, until)
            await send(message)

        try:
            async with until:
                await self._app(scope, receive, watch)
        except TimeoutError:
            if not until.expired():
                raise
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            if is_stream:
                self._keys.closed(caller.key, until)

    def _caller(self, scope: Scope) -> ApiCaller:
        headers: Mapping[bytes, bytes] = scope[HEADERS]
        path: str = scope["path"]
        is_open = is_open_path(path) or self._apis.owner(scope).is_open(path)
        # a browser that says another site makes it call may have kept a password of ours
        if not is_open and headers.get(b"sec-fetch-site") in (b"cross-site", b"same-site"):
            raise Problem(403, "foreign_site", "pages of other sites may not call this server")
        authorization = headers.get(b"authorization")
        if is_open and authorization is None:
            return _STRANGER
        caller = self._keys.caller(authorization or b"")
        if caller is None:
            if is_open:  # who brings a good token may be told more
                return _STRANGER
            raise self._refusal(scope, sent=authorization is not None)
        trust(scope)
        if not is_open and (wait := self._calls.wait(caller.key)):
            raise Problem(429, "too_many_calls", "this key was used for too many calls a minute; wait", after=wait)
        return caller

    def _refusal(self, scope: Scope, *, sent: bool) -> Problem:
        client = cast("tuple[str, int] | None", scope.get("client"))
        if wait := self._strangers.wait(client[0] if client else ""):
            return Problem(429, "too_many_tries", "too many calls without a good token; wait", after=wait)
        what = "this token is not good here, or not any more" if sent else "a token is needed"
        detail = f"{what}: send `Authorization: Bearer ...`; `chargehand tokens create` makes one"
        return Problem(401, "no_token", detail, headers={"WWW-Authenticate": "Bearer"})


def _is_stream(message: Message) -> bool:
    headers = cast("list[tuple[bytes, bytes]]", message["headers"])
    return any(name == b"content-type" and value.startswith(b"text/event-stream") for name, value in headers)
