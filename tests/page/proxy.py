"""Stands between a browser and a server, so that a stream can break, fall silent, or be kept back for a while."""

import contextlib
import socket
import struct
import threading
from collections.abc import Generator

_ABORT = struct.pack("ii", 1, 0)
"""Close with a reset: what is not sent is lost."""
_LONGEST = 60.0


class Hold:
    """Keeps back what a server sends from some bytes on."""

    def __init__(self, marker: bytes) -> None:
        self.marker = marker
        self.released = threading.Event()

    def release(self) -> None:
        self.released.set()


class Proxy:
    """Passes bytes on at `url`. A server answers to its own name only, and what is packed cannot be looked into: so
    requests are changed in these two points.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        own_port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{own_port}"
        self._changes = {f":{own_port}".encode(): f":{port}".encode(), b"gzip": b"none"}
        self._open: list[socket.socket] = []
        self._holds: list[Hold] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Break every connection."""
        for end in self._open:
            with contextlib.suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        self._open.clear()

    def hold_at(self, marker: bytes) -> Hold:
        """Keep back what the server sends from this on."""
        hold = Hold(marker)
        self._holds.append(hold)
        return hold

    def hold_no_more(self) -> None:
        """What is kept back stays so; new connections bring everything."""
        self._holds.clear()

    def close(self) -> None:
        for hold in self._holds:
            hold.release()
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                browser, _ = self._listener.accept()
                threading.Thread(target=self._connect, args=(browser,), daemon=True).start()

    def _connect(self, browser: socket.socket) -> None:
        with browser, contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port)) as server:
            self._open += [browser, server]
            requests = threading.Thread(target=self._pass_requests, args=(browser, server), daemon=True)
            requests.start()
            self._pass_replies(server, browser)
            requests.join(_LONGEST)

    def _pass_requests(self, browser: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := browser.recv(65536):
                changed = data
                for old, new in self._changes.items():
                    changed = changed.replace(old, new)
                server.sendall(changed)
            server.shutdown(socket.SHUT_WR)

    def _pass_replies(self, server: socket.socket, browser: socket.socket) -> None:
        before = b""
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                rest = data
                while rest:
                    hold, at = self._next_hold(before, rest)
                    browser.sendall(rest[:at])
                    before = (before + rest[:at])[-32:]
                    rest = rest[at:]
                    if hold is not None:
                        hold.released.wait(_LONGEST)
            browser.shutdown(socket.SHUT_WR)

    def _next_hold(self, before: bytes, data: bytes) -> tuple[Hold | None, int]:
        """The first hold whose marker is in the data, and where; none: all of the data may pass."""
        first: Hold | None = None
        where = len(data)
        for hold in self._holds:
            if hold.released.is_set():
                continue
            place = (before + data).find(hold.marker)
            at = max(0, place - len(before))
            if place >= 0 and (first is None or at < where):
                first = hold
                where = at
        return first, where


@contextlib.contextmanager
def open_proxy(port: int) -> Generator[Proxy]:
    proxy = Proxy(port)
    try:
        yield proxy
    finally:
        proxy.close()
