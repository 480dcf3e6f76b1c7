"""What an engine is asked for: to have a job done once, by a process that lives. `temporal` is one."""

import re
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol
from urllib.parse import urlsplit

from msgspec import Struct

from chargehand.engine.policy import Seconds
from chargehand.errors import Invalid

LOCAL = "local"
"""The engine that drives each run in the process that began it."""
MAX_SKEW: Seconds = 5.0
"""How far the clock of a process may be from that of the database: deadlines are instants, kept by any process."""
_NAMESPACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,254}\Z")


class EngineUrl(Struct, frozen=True):
    """`temporal://host:port[/namespace]`."""

    address: str
    """Host and port."""
    namespace: str = "default"

    def __str__(self) -> str:
        return f"temporal://{self.address}/{self.namespace}"


def parse_engine_url(url: str) -> EngineUrl | None:
    """The engine that a URL names; None for `local`. Invalid for any other text."""
    if url in ("", LOCAL):
        return None
    wrong = f"{url!r} is not an engine; write {LOCAL} or temporal://HOST:7233/NAMESPACE"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or 7233
    except ValueError as error:
        raise Invalid(wrong) from error
    namespace = parts.path.strip("/") or "default"
    has_more = parts.query or parts.fragment or parts.username or parts.password
    if parts.scheme != "temporal" or not host or has_more or not _NAMESPACE.match(namespace):
        raise Invalid(wrong)
    return EngineUrl(f"[{host}]:{port}" if ":" in host else f"{host}:{port}", namespace)


class Job(Struct, frozen=True):
    """Runs of one tenant that one process drives until each has ended or needs a person."""

    id: str
    tenant: str
    queue: str
    runs: tuple[str, ...]
    """For people who look at the engine. The runs of a job are those that the store has in it."""


class QueueDriver(Protocol):
    """Does the jobs of its queues in this process."""

    @property
    def queues(self) -> tuple[str, ...]: ...

    @property
    def free(self) -> int:
        """How many more runs can be driven now."""
        ...

    async def do(self, job: Job, *, attempt: int) -> None:
        """Drive the runs of a job until each has ended or needs a person."""
        ...


class Engine(Protocol):
    """Gives each job to a process that serves its queue, and to another one if that process dies."""

    @property
    def deployment(self) -> str:
        """Sets the jobs of this deployment apart from those of others on the same engine."""
        ...

    async def start(self, job: Job) -> None:
        """Have a job done; nothing happens while a job of this id is waiting or under way."""
        ...

    def serving(self, driver: QueueDriver) -> AbstractAsyncContextManager[None]:
        """Meanwhile, give the jobs of its queues to this driver, in this process."""
        ...


def slices(runs: Sequence[str]) -> list[Sequence[str]]:
    """The runs of one moment in parts that each become a job.

    A job costs the engine as much for one run as for many, so many runs travel together; few runs are spread, so that
    several processes take part.
    """
    size = min(MAX_SLICE, -(-len(runs) // SPREAD)) if runs else 1
    return [runs[begin : begin + size] for begin in range(0, len(runs), size)]


MAX_SLICE = 50
"""The most runs of one job."""
SPREAD = 8
"""Up to so many jobs are made of the runs of one moment before any has a second run."""
