"""One at a time: who changes some fields of a thing reads it first, and nobody else may change it in between.

Texts of blocks need none of this: the store edits them where they lie.
"""

import asyncio
from weakref import WeakValueDictionary

from chargehand.server.tenants import Tenant


class Writers:
    """The locks of one house, by the id of what is changed."""

    def __init__(self, _tenant: Tenant) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def of(self, which: str) -> asyncio.Lock:
        found = self._locks.get(which)
        if found is None:
            found = self._locks[which] = asyncio.Lock()
        return found


def changing(tenant: Tenant, which: str) -> asyncio.Lock:
    """Enter it before reading what is about to be changed."""
    return tenant.part(Writers).of(which)
