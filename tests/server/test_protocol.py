"""Calls put together by hand: headers behind bodies, bodies that never come, and calls that want to speak otherwise."""

import socket
from pathlib import Path

import pytest

from chargehand.server.middleware import limits
from chargehand.server.middleware.limits import BoundedHttp
from chargehand.server.settings import ServerSettings
from tests.server.guarded import guarded

TOKEN = "an-operators-own-token-0123456789"
JSON = "Content-Type: application/json\r\n"
BEARER = f"Authorization: Bearer {TOKEN}\r\n"


def told(url: str, first: str, body: bytes = b"", timeout: float = 5.0) -> bytes:
    """All that is said to a call until the line is closed."""
    port = int(url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=timeout) as line:
        line.sendall(f"{first}Host: 127.0.0.1:{port}\r\n\r\n".encode() + body)
        found = b""
        try:
            while more := line.recv(65536):
                found += more
        except ConnectionResetError:
            pass
        return found


def test_a_token_behind_a_body_opens_nothing(tmp_path: Path) -> None:
    chunked = (
        "POST /who HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Type: application/json\r\nConnection: close\r\n"
    )
    behind = b"2\r\n{}\r\n0\r\n" + BEARER.encode() + b"\r\n"
    with guarded(ServerSettings(tmp_path, token=TOKEN)) as url:
        assert b" 401 " in told(url, chunked, behind)
        assert b" 200 " in told(url, chunked + BEARER, b"2\r\n{}\r\n0\r\n\r\n")
        assert b" 200 " in told(url, chunked + BEARER, b"2\r\n{}\r\n0\r\nX-Sum: 1\r\n\r\n")


def test_headers_behind_a_body_and_sizes_of_chunks_have_an_end(tmp_path: Path) -> None:
    chunked = f"POST /who HTTP/1.1\r\nTransfer-Encoding: chunked\r\n{JSON}Connection: close\r\n{BEARER}"
    with guarded(ServerSettings(tmp_path, token=TOKEN)) as url:
        for body in (b"2\r\n{}\r\n0\r\n" + b"X: y\r\n" * 200_000, b"2;" + b"x" * 1_000_000):
            found = told(url, chunked, body)
            assert not found or b" 431 " in found
        many = b"1\r\n \r\n" * 60_000 + b"0\r\n\r\n"
        assert b'"bytes":60000' in told(url, chunked, many)


def test_a_body_of_which_nothing_comes_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BODY_PATIENCE", 0.1)
    monkeypatch.setattr(BoundedHttp, "upload", 0.3)
    begun = "POST /who HTTP/1.1\r\nContent-Length: 10\r\n"
    with guarded(ServerSettings(tmp_path, token=TOKEN)) as url:
        for came in (b"", b"x"):
            late = told(url, begun + BEARER, came)
            assert b" 408 " in late
            assert b"\r\nconnection: close\r\n" in late.lower()
            assert b" 401 " in told(url, begun, came)  # and the line is closed, though all of it never comes


def test_a_body_that_comes_with_a_wish_to_speak_otherwise_is_refused_not_lost(tmp_path: Path) -> None:
    wish = f"Connection: Upgrade\r\nUpgrade: h2c\r\n{BEARER}"
    with guarded(ServerSettings(tmp_path, token=TOKEN)) as url:
        assert b" 400 " in told(url, f"POST /who HTTP/1.1\r\n{wish}Content-Length: 2\r\n", b"{}")
        assert b" 200 " in told(url, f"GET /who HTTP/1.1\r\n{wish}")
