"""An MCP server of protocol version 2025-06-18 over HTTP, without the SDK: it has sessions, and may forget them."""

import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import uuid4

from tests.mcp.raw_server import tools

INFO: dict[str, Any] = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "notes", "version": "1"},
}


class SessionServer(ThreadingHTTPServer):
    """Counts the calls that it carries out. `status` is how it refuses a session that it does not know."""

    def __init__(self, status: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = status
        self.is_closed = False
        """Whether it refuses all requests, as for a token that has expired."""
        self.sessions: set[str] = set()
        self.calls: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/mcp"

    def answer(self, message: dict[str, Any]) -> dict[str, Any]:
        if message["method"] == "initialize":
            return {"result": INFO}
        if message["method"] == "tools/list":
            return {"result": {"tools": tools()}}
        if message["method"] == "tools/call":
            self.calls.append(message["params"]["name"])
            return {"result": {"content": [{"type": "text", "text": f"call {len(self.calls)}"}]}}
        return {"error": {"code": -32601, "message": "there is no such method"}}


class _Handler(BaseHTTPRequestHandler):
    server: SessionServer  # pyright: ignore[reportIncompatibleVariableOverride] - it is made with no other

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        session = self.headers["mcp-session-id"]
        if self.server.is_closed:
            return self._send(401, b"no", "text/plain")
        if message["method"] == "initialize":
            session = uuid4().hex
            self.server.sessions.add(session)
        elif session is not None and session not in self.server.sessions:
            return self._send(self.server.status, b"no valid session", "text/plain")
        if "id" not in message:
            return self._send(202, b"", "text/plain")
        body = {"jsonrpc": "2.0", "id": message["id"], **self.server.answer(message)}
        return self._send(200, json.dumps(body).encode(), "application/json", session)

    def do_GET(self) -> None:
        self._send(405, b"", "text/plain")

    def do_DELETE(self) -> None:
        self._send(200, b"", "text/plain")

    def _send(self, status: int, body: bytes, kind: str, session: str | None = None) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        if session is not None:
            self.send_header("mcp-session-id", session)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as the base class names it
        pass


@contextmanager
def session_server(status: int) -> Generator[SessionServer]:
    with SessionServer(status) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
