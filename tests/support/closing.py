"""Close what a test opened, also where the test fails: an open client would fail the test after it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar


class Closable(Protocol):
    async def close(self) -> None: ...


_Resource = TypeVar("_Resource", bound=Closable)


@asynccontextmanager
async def closing(resource: _Resource) -> AsyncGenerator[_Resource]:
    try:
        yield resource
    finally:
        await resource.close()
