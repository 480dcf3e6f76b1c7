"""What a server may be told. Where it comes from (options, environment) is the command line's business."""

import re
from pathlib import Path

from msgspec import Struct

from chargehand.engine.policy import Seconds
from chargehand.errors import Invalid
from chargehand.models.prices import Price

FIRST = "main"
"""The tenant that is there from the beginning."""
LOOPBACK = frozenset(("127.0.0.1", "::1", "localhost"))
_TENANT = re.compile(r"[a-z0-9][a-z0-9-]{0,62}\Z")
_HOST = re.compile(r"(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:]+\])(?::[0-9]{1,5})?\Z")
_SHORTEST = 16
_MEGABYTE = 1024 * 1024


class Limits(Struct, frozen=True, forbid_unknown_fields=True):
    """How much anybody may ask for.

    `runs` are carried at once, `waiting` more may wait for a turn, none for longer than `patience`. `calls` a minute
    are those of one key, `strangers` those of one address that brought no good key. `body` and `upload` are bytes,
    `depth` and `keys` those of JSON. `connections` may be open beyond those that carry runs and streams, and
    `stranger_connections` of one address on which no good token was sent yet. Agents that write to each other because
    of one message of a client may together make `message_calls` calls of models, for `message_micros` millionths of a
    dollar.
    """

    runs: int = 64
    waiting: int = 256
    patience: Seconds = 20.0
    streams: int = 1000
    calls: int = 60_000
    strangers: int = 60
    body: int = _MEGABYTE
    upload: int = 16 * _MEGABYTE
    depth: int = 64
    keys: int = 1000
    header: int = 16 * 1024
    connections: int = 1024
    stranger_connections: int = 128
    message_calls: int = 256
    message_micros: int = 5_000_000

    @property
    def open_connections(self) -> int:
        """Connections that may be open at once."""
        return self.streams + self.runs + self.waiting + self.connections


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """`data` is the folder in which everything is kept, a folder a tenant.

    `hosts` are names under which it may be called besides its own address. `teams` are team files or folders; with none
    the bundled team. `token` is that of the first tenant, as the operator chose it; `unlocked` asks nobody for one.
    `secrets` are texts that must not be written anywhere. `model` stands in for models that are not to be had. With
    `custom_tools` clients may bring tools in source, which run in the sandbox only; with `model_urls` they may name a
    model by its URL, and so make the server call any public address; those of this machine and of private networks
    only where `model_hosts` has them, as HOST or HOST:PORT. `grace` is how long runs may go on when the server is told
    to stop. Whoever waits for an answer gets a sign of life every `pulse` seconds. `price` is what models cost that no
    table has.
    """

    data: Path
    host: str = "127.0.0.1"
    port: int = 8283
    hosts: tuple[str, ...] = ()
    teams: tuple[Path, ...] = ()
    token: str = ""
    unlocked: bool = False
    model: str = ""
    custom_tools: bool = False
    model_urls: bool = False
    model_hosts: tuple[str, ...] = ()
    grace: Seconds = 5.0
    pulse: Seconds = 10.0
    secrets: tuple[str, ...] = ()
    limits: Limits = Limits()
    price: Price | None = None

    def __repr__(self) -> str:  # without the token and the secrets: it may end up in a log
        return f"Settings(data={str(self.data)!r}, host={self.host!r}, port={self.port})"


def check(settings: Settings) -> None:
    """Raise Invalid for a server that nobody should start."""
    if settings.unlocked and settings.host not in LOOPBACK:
        raise Invalid(
            f"the server would listen on {settings.host} and ask nobody for a token; leave out --no-token, or listen "
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
