"""Stands between a browser and a server, so that a stream can break, fall silent, or be kept back for a while."""

import contextlib
import socket
import struct
import threading
from collections.abc import Generator

_ABORT = struct.pack("ii", 1, 0)
"""Close with a reset: what is not sent is lost."""


class Proxy:
    """Passes bytes on at `url`."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._host = self.url.removeprefix("http://").encode()
        self._target_host = f"127.0.0.1:{port}".encode()
        """A server answers to its own name only. And what is packed has no markers."""
        self._open: list[socket.socket] = []
        self._may_pass = threading.Event()
        self._may_pass.set()
        self._marker = b""
        self.is_held = threading.Event()
        """Set when the marker was seen and what follows is kept back."""
        self.passed = 0
        """How many bytes came from the server."""
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Break every connection."""
        for end in self._open:
            with contextlib.suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        self._open.clear()

    def hold_at(self, marker: bytes) -> None:
        """Keep back what the server sends from this on, until `release`."""
        self._marker = marker
        self.is_held.clear()
        self._may_pass.clear()

    def release_others(self) -> None:
        """Pass on what other connections bring; what is kept back stays so."""
        self._marker = b""

    def release(self) -> None:
        self._marker = b""
        self._may_pass.set()

    def close(self) -> None:
        self.release()
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                browser, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
                self._open += [browser, server]
                threading.Thread(target=self._pass, args=(browser, server, False), daemon=True).start()
                threading.Thread(target=self._pass, args=(server, browser, True), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, is_reply: bool) -> None:
        tail = b""
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if is_reply:
                    self.passed += len(data)
                    place = (tail + data).find(self._marker) if self._marker else -1
                    if place >= 0:
                        at = max(0, place - len(tail))
                        target.sendall(data[:at])
                        self.is_held.set()
                        self._may_pass.wait(60)
                        data = data[at:]
                    tail = (tail + data)[-len(self._marker) :] if self._marker else b""
                target.sendall(
                    data if is_reply else data.replace(b"gzip", b"none").replace(self._host, self._target_host)
                )
            target.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def open_proxy(port: int) -> Generator[Proxy]:
    proxy = Proxy(port)
    try:
        yield proxy
    finally:
        proxy.close()
