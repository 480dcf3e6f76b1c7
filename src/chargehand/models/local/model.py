"""The model on this machine, behind the same protocol as every other. The engine does the work, in a thread.

The engine always listens on a loopback port, also in process, so that port gets a key.
"""

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from secrets import token_urlsafe
from typing import Any, Protocol, cast

import msgspec
from msgspec import Struct, structs

from chargehand.engine.failure import Failure
from chargehand.errors import ChargehandError, Invalid
from chargehand.models.extras import install_command
from chargehand.models.local.actions import Json, action_schema, bound, read_action, turns
from chargehand.models.local.pull import CATALOG, installed
from chargehand.models.messages import Reply, Request, ToolCall, Usage
from chargehand.models.model import Hear, ModelCard, ModelFailed
from chargehand.models.reply_limit import reply_limit

NOTICE = "answered by a small language model on this machine: check what it says"
_LONGEST_TEXT = 1024  # tokens of free text: a small model that has no end writes on for ever


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


class _EngineReply(Struct):
    """What came of one call of the engine, put together as it came."""

    text: list[str]
    finish: str = ""
    usage: Usage | None = None
    error: str = ""
    too_long: bool = False

    def take(self, event: Json) -> str:
        """Note what an event says, and return the words in it."""
        if "error" in event:
            error = cast("Json", event["error"])
            self.error = str(error.get("message", "no reason given"))
            self.too_long = error.get("type") == "exceed_context_size_error"
        if isinstance(usage := event.get("usage"), dict):
            counts = cast("dict[str, int]", usage)
            self.usage = Usage(counts["prompt_tokens"], counts["completion_tokens"])
        words = ""
        for choice in cast("list[Json]", event.get("choices") or []):
            words += str(cast("Json", choice["delta"]).get("content") or "")
            self.finish = str(choice.get("finish_reason") or self.finish)
        if words:
            self.text.append(words)
        return words


class LocalModel:
    """`name_or_path` is a GGUF file, or a model of the catalog that was pulled into `folder`.

    It is loaded when it is first asked. It answers one call at a time.
    """

    def __init__(
        self, name_or_path: str | Path, *, folder: Path | None = None, threads: int | None = None, context: int = 4096
    ) -> None:
        if find_spec("xllamacpp") is None:
            raise Invalid(f"local:{name_or_path} needs the extra `local`: {install_command('local')}")
        self._path = weights_file(name_or_path, folder)
        self._threads = threads
        self._engine: Engine | None = None
        self._numbers = count(1)
        # a pool of its own: a slow model must not take the threads that tools run in
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="local-model")
        handle = f"local:{name_or_path}"
        self.card = ModelCard(
            handle,
            window=context,
            native_tools=False,
            schema=True,
            notice=NOTICE,
            micros_in=0.0,
            micros_out=0.0,
            max_tokens=context // 2,
            keeps_limit=True,
            in_process=True,
            free=True,
        )

    async def reply(self, request: Request, hear: Hear | None = None) -> Reply:
        """Answer once. A call that is cancelled stops at the next token."""
        loop = asyncio.get_running_loop()
        gone = threading.Event()
        # the pieces of an action are not passed on as words
        listener: Hear | None = None
        if hear is not None and not request.tools:
            listener = partial(_on_loop, loop, hear)
        try:
            result = await loop.run_in_executor(self._pool, self._ask, request, listener, gone)
        finally:
            gone.set()
        reply = self._read(request, result)
        if hear is not None and request.tools and reply.text:
            hear(reply.text)
        return reply

    async def close(self) -> None:
        """Let go of the memory, after the calls under way. Asked again, it is loaded again."""
        await asyncio.get_running_loop().run_in_executor(self._pool, self._drop)

    def _drop(self) -> None:
        if self._engine is not None:
            self._engine.close()
        self._engine = None

    def _ask(self, request: Request, listener: Hear | None, gone: threading.Event) -> _EngineReply:
        result = _EngineReply([])
        if gone.is_set():
            return result
        if self._engine is None:
            try:
                self._engine = open_engine(self._path, self._threads, self.card.window)
            except EngineMissing as error:
                raise ModelFailed(Failure("logic", str(error), permanent=True), billed=False) from error

        def take(event: Json) -> bool:
            words = result.take(event)
            if words and listener is not None and not gone.is_set():
                listener(words)
            return gone.is_set()

        self._engine.chat(self._body(request), take)
        return result

    def _body(self, request: Request) -> Json:
        messages = turns(request.messages, request.tools)
        body: Json = {"messages": [{"role": message.role, "content": message.text} for message in messages]}
        body["temperature"] = request.settings.temperature or 0.0
        most = reply_limit(self.card, request.settings)
        body["max_tokens"] = min(most, _LONGEST_TEXT)
        body["stream_options"] = {"include_usage": True}
        schema: Json | None = None
        if request.tools:
            schema = action_schema(request.tools, request.schema)
        elif request.schema is not None:
            schema = bound(msgspec.json.decode(request.schema, type=Json))
        if schema is not None:
            body["max_tokens"] = most  # an object that is cut off is worth nothing; the schema ends it before
            body["grammar"] = grammar(schema)
        return body

    def _read(self, request: Request, result: _EngineReply) -> Reply:
        text = "".join(result.text)
        handle = self.card.handle
        if result.error:
            step = "shorten the request or load the model with a larger context" if result.too_long else "try again"
            failure = Failure("logic", f"{handle}: {result.error}; {step}", permanent=result.too_long)
            raise ModelFailed(failure, result.usage)
        reply = Reply(text, finish="length", usage=result.usage, micros=0, model=handle)
        if result.finish == "length":
            return reply
        if result.finish != "stop" or not text.strip():
            message = f"{handle} said nothing; try again or put it differently"
            raise ModelFailed(Failure("logic", message), result.usage)
        calls: tuple[ToolCall, ...] = ()
        try:
            if request.tools:
                text, calls = read_action(text, next(self._numbers))
            elif request.schema is not None:
                msgspec.json.decode(text)
        except ValueError as error:
            raise ModelFailed(Failure("logic", f"{handle} wrote no such JSON: {error}"), result.usage) from error
        return structs.replace(reply, text=text, calls=calls, finish="tools" if calls else "stop")


def _on_loop(loop: asyncio.AbstractEventLoop, hear: Hear, words: str) -> None:
    loop.call_soon_threadsafe(hear, words)


def weights_file(name_or_path: str | Path, folder: Path | None) -> Path:
    """The file to load. A name must have been pulled; anything else must be a file."""
    path = Path(name_or_path)
    name = str(name_or_path)
    if name in CATALOG:
        if folder is None:
            raise Invalid(f"say in which folder the model {name!r} lies, or give the path of its file")
        home = installed(folder).get(name)
        if home is None:
            raise Invalid(f"the model {name!r} is not here yet: run `chargehand models pull {name}`")
        path = home / CATALOG[name].files[0].name
    if not path.is_file():
        raise Invalid(f"{name!r} is neither a GGUF file nor one of: {', '.join(CATALOG)}")
    return path
