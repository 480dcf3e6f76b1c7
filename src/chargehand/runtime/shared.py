"""One journal file for all runs of a team: opened by whoever comes first, closed by whoever leaves last.

A file belongs to one process and is opened once. How it is kept is the store's business.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from chargehand.stores.journal import Journal


class _Use:
    """The users on one event loop. The gate keeps out who comes while the file is being opened or closed."""

    def __init__(self) -> None:
        self.count = 0
        self.gate = asyncio.Lock()
        self.journal: Journal | None = None


class SharedFile:
    """A journal in a file, for as many users at once as there are."""

    def __init__(self, path: Path | str) -> None:
        self._path = path
        self._uses: dict[asyncio.AbstractEventLoop, _Use] = {}

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[Journal]:
        """The journal, open while somebody is inside; RunBusy if another process or event loop has it."""
        loop = asyncio.get_running_loop()
        use = self._uses.setdefault(loop, _Use())
        use.count += 1
        try:
            yield await self._enter(use)
        finally:
            use.count -= 1
            await self._leave(loop, use)

    async def _enter(self, use: _Use) -> Journal:
        from chargehand.stores.sqlite import SqliteJournal  # noqa: PLC0415 - most teams in tests never need it

        async with use.gate:
            if use.journal is None:
                use.journal = await SqliteJournal.open(self._path)
            return use.journal

    async def _leave(self, loop: asyncio.AbstractEventLoop, use: _Use) -> None:
        async with use.gate:
            if use.count:
                return
            journal, use.journal = use.journal, None
            if journal is not None:
                await journal.close()
            if not use.count:
                self._uses.pop(loop, None)
