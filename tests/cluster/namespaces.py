"""Network namespaces: a worker that loses its link to everything else, as when a cable is pulled.

Needs root and `ip` (iproute2). The addresses exist only inside the two namespaces that are made here: the worker has
one of its own, and the other one has proxies to PostgreSQL and Temporal.
"""

import ctypes
import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

from tests.cluster.proxy import tcp_proxy

_HUB = "10.231.0.1"
_SPOKE = "10.231.0.2"
_CLONE_NEWNET = 0x40000000
Result = TypeVar("Result")


class NoNamespaces(Exception):
    """Why there can be no network namespaces here."""


class Link:
    """A link between the namespaces `hub` and `spoke`."""

    def __init__(self, hub: str, spoke: str) -> None:
        self.hub = hub
        self.spoke = spoke

    @property
    def prefix(self) -> tuple[str, ...]:
        """What a command in the spoke begins with. The process keeps its id."""
        return (_ip_command(), "netns", "exec", self.spoke)

    def lose(self) -> None:
        """Carry nothing: connections stay open and are silent."""
        _ip("-n", self.hub, "link", "set", "cable", "down")

    def heal(self) -> None:
        _ip("-n", self.hub, "link", "set", "cable", "up")

    def listen(self) -> socket.socket:
        """A socket that the spoke reaches over the link."""
        return inside(self.hub, lambda: socket.create_server((_HUB, 0), backlog=256))


@contextmanager
def namespace_link(local_port: int) -> Generator[Link]:
    """A link that works; NoNamespaces where there can be none.

    What listens on `local_port` of this machine is reached from the spoke at the same address, also without the link.
    """
    hub, spoke = f"chargehand-hub-{os.getpid()}", f"chargehand-spoke-{os.getpid()}"
    with ExitStack() as stack:
        for name in (hub, spoke):
            _ip("netns", "add", name)
            stack.callback(_ip, "netns", "delete", name)
            _ip("-n", name, "link", "set", "lo", "up")
        _ip("-n", hub, "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", spoke)
        for name, address in ((hub, _HUB), (spoke, _SPOKE)):
            _ip("-n", name, "address", "add", f"{address}/30", "dev", "cable")
            _ip("-n", name, "link", "set", "cable", "up")
        listening = inside(spoke, lambda: socket.create_server(("127.0.0.1", local_port), backlog=256))
        stack.enter_context(tcp_proxy(("127.0.0.1", local_port), listening))
        yield Link(hub, spoke)


def inside(namespace: str, function: Callable[[], Result]) -> Result:
    """Call a function in a thread whose network is that of a namespace; sockets that it makes stay there."""

    def work() -> Result:
        with (Path("/run/netns") / namespace).open() as file:
            if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), _CLONE_NEWNET):
                raise NoNamespaces(f"setns: {os.strerror(ctypes.get_errno())}")
        return function()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(work).result()


def _ip_command() -> str:
    path = shutil.which("ip") or shutil.which("ip", path="/usr/sbin:/sbin")
    if path is None:
        raise NoNamespaces("there is no `ip`; install iproute2")
    return path


def _ip(*words: str) -> None:
    done = subprocess.run([_ip_command(), *words], capture_output=True, text=True, timeout=30, check=False)
    if done.returncode:
        raise NoNamespaces(f"ip {' '.join(words)}: {done.stderr.strip()}")
