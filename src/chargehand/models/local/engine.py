"""The engine that runs a weights file: how it is opened, asked and served. What is asked of it is not decided here.

The engine always listens on a loopback port, also in process, so that port gets a key.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from secrets import token_urlsafe
from typing import Any, Protocol, cast

import msgspec

from chargehand.errors import ChargehandError
from chargehand.models.extras import install_command
from chargehand.models.local.actions import Json


class _Server(Protocol):
    """The engine's own object. It ends when the last reference to it is gone."""

    @property
    def listening_address(self) -> str: ...

    def handle_chat_completions(self, body: Mapping[str, object], take: Callable[[Json], bool], /) -> None: ...


class EngineMissing(ChargehandError):
    """The extra is not installed, or the engine cannot read the file."""


class Engine:
    """One loaded model. It answers one request at a time; others wait."""

    def __init__(self, server: _Server, key: str) -> None:
        self._server: _Server | None = server
        self.url = server.listening_address
        self.key = key

    def chat(self, body: Mapping[str, object], take: Callable[[Json], bool]) -> None:
        """Ask, and hand over every event as it comes. It ends early when `take` returns True."""
        assert self._server is not None
        self._server.handle_chat_completions({**body, "stream": True}, take)

    def close(self) -> None:
        """Let go of the memory and the port. The engine has no other way to be told."""
        self._server = None


def grammar(schema: Json) -> str:
    """What holds the engine to a schema, without room for blanks that only cost tokens."""
    tight = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": ", "lenient": True}
    return str(_library().json_schema_to_grammar(msgspec.json.encode({**schema, "x-guidance": tight}).decode()))


def open_engine(path: Path, threads: int | None = None, context: int = 4096, key: str | None = None) -> Engine:
    """Load a file: a second or two. Without `threads` one core is left free."""
    library = _library()
    wanted = threads or max(1, (os.cpu_count() or 1) - 1)
    secret = token_urlsafe(24) if key is None else key
    params = library.CommonParams()
    params.model.path = str(path)
    params.n_ctx = context
    params.n_parallel = 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = wanted
    params.hostnames = ["127.0.0.1"]
    params.api_keys = [secret] if secret else []
    params.cors_origins = ""
    params.verbosity = -1
    params.ui = params.endpoint_slots = params.warmup = False
    params.cache_ram_mib = 0
    try:
        return Engine(cast("_Server", library.Server(params)), secret)
    except RuntimeError as error:
        raise EngineMissing(
            f"{path} cannot be loaded: {error}; is it a GGUF file, whole, and is it readable?"
        ) from error


def _library() -> Any:
    """The engine: 100 MB, only in the extra, and without types."""
    try:
        import xllamacpp  # noqa: PLC0415 - as above # pyright: ignore[reportMissingTypeStubs] - it has none
    except ImportError as error:
        raise EngineMissing(f"local models need the extra: {install_command('local')}") from error
    return xllamacpp


@asynccontextmanager
async def serve_local(
    path: Path, *, threads: int | None = None, context: int = 4096, key: str = ""
) -> AsyncGenerator[str, None]:
    """The engine's own server on loopback, as long as the context lasts. It speaks both protocols below this address.

    Anybody on this machine may ask it, unless there is a `key`.
    """
    engine = await asyncio.to_thread(open_engine, path, threads, context, key)
    try:
        yield engine.url
    finally:
        await asyncio.to_thread(engine.close)
