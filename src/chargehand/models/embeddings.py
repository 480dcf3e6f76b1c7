"""Text into vectors, with a small model on this machine: all-MiniLM-L6-v2. What is done with them is not decided here.

The library and the files are optional (the extra `local`, and `chargehand models pull minilm`).
"""

import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

SIZE = 384
_LONGEST = 256  # word pieces; the model was trained on no more
_LONGEST_WORD = 100
_BATCH = 16


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
        found: list[int] = []
        for word in _words(text[: 8 * _LONGEST_WORD * _LONGEST]):
            found += self._word(word)
            if len(found) >= _LONGEST - 2:
                break
        return [self._first, *found[: _LONGEST - 2], self._last]

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

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """One vector of 384 numbers for each text. It takes 5 ms for a short one: not on the event loop."""
        rows = [self._pieces.ids(text) for text in texts]
        # together with those of like length, so that little is padded
        order = sorted(range(len(rows)), key=lambda at: len(rows[at]))
        vectors: list[list[float]] = [[] for _ in rows]
        for start in range(0, len(order), _BATCH):
            batch = order[start : start + _BATCH]
            for at, vector in zip(batch, self._run([rows[at] for at in batch]), strict=True):
                vectors[at] = vector
        return vectors

    def _run(self, rows: Sequence[Sequence[int]]) -> list[list[float]]:
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
        return (mean / numpy.linalg.norm(mean, axis=1, keepdims=True)).tolist()


def open_embedder(folder: Path) -> Embedder | None:
    """The embedder below the models' `folder`, or in it; None when it is not there, or the extra is not installed."""
    home = folder / "minilm" if (folder / "minilm").is_dir() else folder
    model, vocabulary = home / "model.onnx", home / "vocab.txt"
    if not (model.is_file() and vocabulary.is_file()):
        return None
    if not all(find_spec(name) for name in ("numpy", "onnxruntime")):
        return None
    import onnxruntime  # noqa: PLC0415 - only in the extra, and 60 MB # pyright: ignore[reportMissingTypeStubs]

    runtime: Any = onnxruntime
    options = runtime.SessionOptions()
    # the arena never gives memory back, and more threads take the cores that workers run on
    options.enable_cpu_mem_arena = options.enable_mem_pattern = False
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = runtime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    return Embedder(session, WordPieces(vocabulary.read_text(encoding="utf-8").split("\n")))


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
