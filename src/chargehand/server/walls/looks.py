"""What can be told of a call by looking at it: its headers, its path, the name it was called by, the page it is from.

Nothing is read from its body, and whose token it brings is not asked.
"""

import re
from collections.abc import Mapping, Sequence
from typing import cast

from starlette.types import Scope

from chargehand.server.problem import Problem
from chargehand.server.settings import LOOPBACK, Settings

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
