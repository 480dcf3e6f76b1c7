"""Settings of a server."""

import re
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec import Struct

from chargehand.dispatch.engine import EngineUrl
from chargehand.engine.policy import Seconds
from chargehand.errors import Invalid
from chargehand.models.rates import Price
from chargehand.runtime.files import MAX_FILE
from chargehand.store_url import FIRST_TENANT, PostgresUrl, StoreUrl
from chargehand.team import Team

TeamSource: TypeAlias = Path | str | Team
"""Where a team comes from: a file or folder, a Python object by its name, or itself."""
FIRST = FIRST_TENANT
"""The tenant that is there from the beginning."""
JOURNAL = "runs.db"
"""The file of a tenant's journal."""
ResumedRuns: TypeAlias = Literal["all", "crashed", "none"]
LOOPBACK = frozenset(("127.0.0.1", "::1", "localhost"))
_TENANT = re.compile(r"[a-z0-9][a-z0-9-]{0,62}\Z")
_HOST = re.compile(r"(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:]+\])(?::[0-9]{1,5})?\Z")
_DEPLOYMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}\Z")
_SHORTEST = 16
SHORTEST_HEARTBEAT: Seconds = 1.0
_MEGABYTE = 1024 * 1024


class ServerLimits(Struct, frozen=True, forbid_unknown_fields=True):
    """How much callers may ask for."""

    runs: int = 64
    """Runs driven at once."""
    waiting: int = 256
    """Runs that may wait for a slot."""
    patience: Seconds = 20.0
    """How long a run may wait for a slot."""
    backlog: int = 20_000
    """Runs of one tenant that an engine may have open, nested ones too."""
    streams: int = 1000
    calls: int = 60_000
    """Calls a minute of one key."""
    strangers: int = 60
    """Calls a minute of one address without a valid token."""
    body: int = _MEGABYTE
    """Bytes of a body."""
    upload: int = MAX_FILE
    """Bytes of an uploaded file."""
    files: int = 1024 * _MEGABYTE
    """Bytes of all uploaded files of one tenant."""
    depth: int = 64
    """Nesting of JSON."""
    keys: int = 1000
    """Keys of one JSON object."""
    header: int = 16 * 1024
    """Bytes of all headers."""
    connections: int = 1024
    """Open connections beyond those that carry runs and streams."""
    stranger_connections: int = 128
    """Open connections of one address that have not brought a valid token."""
    message_calls: int = 256
    """Model calls that all agents together may make because of one message of a Letta client."""
    message_micros: int = 5_000_000
    """The same in millionths of a dollar."""

    @property
    def open_connections(self) -> int:
        """Connections that may be open at once."""
        return self.streams + self.runs + self.waiting + self.connections


class WebhookTimes(Struct, frozen=True, forbid_unknown_fields=True):
    """How long webhooks wait."""

    look: Seconds = 30.0
    """How often the store is asked what other processes have left."""
    timeout: Seconds = 10.0
    """How long an address may take to answer."""
    claim: Seconds = 25.0
    """For how long a process keeps what it is about to send; longer than an answer may take."""
    pauses: tuple[Seconds, ...] = (1, 10, 60, 300, 1200, 3600, 7200, 14_400, 28_800, 28_800)
    """Between one try and the next: 24 hours in all."""


class ServerSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of one server."""

    data: Path
    """The folder of all data, with a folder for each tenant."""
    store: PostgresUrl | None = None
    """The database of all data but evaluations; left out, they are files in the folder."""
    engine: EngineUrl | None = None
    """The engine that has runs driven by any process; left out, each server drives those that were begun there."""
    deployment: str = ""
    """Its name among deployments that share an engine; left out, one that the database has."""
    heartbeat: Seconds = 15.0
    """How long a process may be silent until the engine gives its runs to others."""
    host: str = "127.0.0.1"
    port: int = 8283
    hosts: tuple[str, ...] = ()
    """Names it may be called by besides its own address."""
    teams: tuple[TeamSource, ...] = ()
    """Team files or folders, `module:attribute` of teams in Python, or teams; the bundled team if there are none."""
    token: str = ""
    """The operator's own token, for the first tenant."""
    unlocked: bool = False
    """Ask for no token."""
    model: str = ""
    """Used instead of models that are not available."""
    custom_tools: bool = False
    """Clients may bring tools as source, which run in the sandbox."""
    model_urls: bool = False
    """Clients may name a model by its URL, and so make the server call any public address."""
    model_hosts: tuple[str, ...] = ()
    """Private addresses that such URLs may name, as HOST or HOST:PORT."""
    grace: Seconds = 5.0
    """How long runs may go on when the server is told to stop."""
    pulse: Seconds = 10.0
    """Seconds between two pings of a stream."""
    agent_poll: Seconds = 2.0
    """How often the store is asked about messages to agents that another server drives, should a notice be lost."""
    reload_every: Seconds = 0.5
    """How often the files of teams are looked at, where they are watched."""
    secrets: tuple[str, ...] = ()
    """Texts that must not be written anywhere."""
    limits: ServerLimits = ServerLimits()
    webhooks: WebhookTimes = WebhookTimes()
    price: Price | None = None
    """The price of models that no table has."""
    resume: ResumedRuns = "all"
    """Which open runs of teams are resumed at the start: also those that were stopped in an orderly way, only those
    whose process died (`crashed`), or none.
    """

    def stores(self, tenant: str) -> "StoreUrls":
        """Where the stores of a tenant are."""
        if self.store is not None:
            database = self.store.of_tenant(tenant)
            return StoreUrls(database, database, database)
        folder = self.data / tenant
        return StoreUrls(folder / JOURNAL, folder / "memory.db", folder / "letta.db")

    @property
    def keys(self) -> StoreUrl:
        """Where the keys of the server are."""
        return self.store or key_store_url(self.data)

    def __repr__(self) -> str:  # without the token and the secrets: it may end up in a log
        return f"ServerSettings(data={str(self.data)!r}, host={self.host!r}, port={self.port})"


class StoreUrls(Struct, frozen=True):
    """Where the stores of a tenant are."""

    journal: StoreUrl
    memory: StoreUrl
    index: StoreUrl
    """Of runs, messages and steps of its agents."""


def key_store_url(data: Path) -> Path:
    """The file of a server's keys, where they are kept in one."""
    return data / "keys.db"


def check(settings: ServerSettings) -> None:
    """Raise Invalid for settings that are unsafe or impossible."""
    if settings.unlocked and settings.host not in LOOPBACK:
        raise Invalid(
            f"the server would listen on {settings.host} without asking for a token; leave out --no-token, or listen "
            "on 127.0.0.1"
        )
    if not 0 <= settings.port <= 65535:
        raise Invalid(f"the port is {settings.port}; it must be from 0 (any that is free) to 65535")
    for name in settings.hosts:
        if not _HOST.match(name.lower()):
            raise Invalid(
                f"{name[:100]!r} is no name for a host; write it like box.example or box.example:8283, without a "
                "scheme and without *: a server that answers to every name can be called by every web page"
            )
    if settings.engine is not None and settings.store is None:
        raise Invalid("--engine needs a database that all processes share; add --store postgresql://USER@HOST/DATABASE")
    if settings.heartbeat < SHORTEST_HEARTBEAT:
        raise Invalid(
            f"the heartbeat is {settings.heartbeat:g} s; it must be at least {SHORTEST_HEARTBEAT:g} s, or living "
            "processes are taken for dead"
        )
    if settings.deployment and not _DEPLOYMENT.match(settings.deployment):
        raise Invalid(f"{settings.deployment[:100]!r} is no name for a deployment; use 63 letters, digits, _ and -")
    _check_token(settings.token)


def _check_token(token: str) -> None:
    if token and (len(token) < _SHORTEST or not token.isascii() or not token.isprintable() or " " in token):
        raise Invalid(
            f"the token must have at least {_SHORTEST} characters, all ASCII and no spaces; `openssl rand -hex 32` "
            "makes one, or leave it out and chargehand makes one"
        )


def check_tenant(name: str) -> None:
    """Raise Invalid for a name that cannot be a folder's."""
    if not _TENANT.match(name):
        raise Invalid(f"{name[:70]!r} is no name for a tenant; use up to 63 small letters, digits and -")
