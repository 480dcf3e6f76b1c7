"""What turns text into vectors, seen from here."""

from collections.abc import Sequence
from typing import Protocol


class Embedding(Protocol):
    """`handle` names the model. Vectors have length one, as little-endian 32-bit floats: `width` times four bytes."""

    @property
    def handle(self) -> str: ...

    @property
    def width(self) -> int: ...

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        """One vector for each text. Raises StoreUnavailable when the model cannot be reached: nothing is lost by it."""
        ...

    async def close(self) -> None: ...
