"""Hears the words of a run while they are written, for who streams them."""

import asyncio
from typing import TypeAlias

from msgspec import Struct

from chargehand.server.tenants import Tenant
from chargehand.terms.events import Entry
from chargehand.terms.work import Work


class Over(Struct, frozen=True):
    """Nothing more comes; with an error, because nobody could listen any longer."""

    error: Exception | None = None


Line: TypeAlias = "asyncio.Queue[Entry | tuple[Work, str] | Over]"


class Ear:
    """`kind` is the work whose words become the answer. It must listen before the run begins, to miss none of them.

    One that never listens, because the run was begun before, hears nothing: half an answer is no beginning of it.
    """

    def __init__(self, tenant: Tenant, kind: str) -> None:
        self._tenant = tenant
        self._run = ""
        self.kind = kind
        self.line: Line = asyncio.Queue()

    def listen(self, run: str) -> None:
        self._run = run
        self._tenant.whispers.setdefault(run, []).append(self._hear)

    def leave(self) -> None:
        found = self._tenant.whispers.get(self._run, [])
        if self._hear in found:
            found.remove(self._hear)
        if not found:
            self._tenant.whispers.pop(self._run, None)

    def _hear(self, work: Work, words: str) -> None:
        self.line.put_nowait((work, words))
