"""Catalogs by URL: `sqlite:///memory.db`, `memory:`; a bare path is a SQLite file."""

from typing import TYPE_CHECKING

from chargehand.memory.catalog import Catalog
from chargehand.sqlite.url import MEMORY, StoreUrl, file_of_url

if TYPE_CHECKING:
    from chargehand.sqlite.examine import Examined


async def open_catalog(url: StoreUrl = MEMORY, *, space: str = "default") -> Catalog:
    """The catalog at a URL (`sqlite:///memory.db`, `memory:`) or in a file, made if it is missing."""
    from chargehand.memory.sqlite_catalog import SqliteCatalog  # noqa: PLC0415 - only teams with a memory need it

    return await SqliteCatalog.open(None if url == MEMORY else file_of_url(url), space=space)


def examine_catalog(url: StoreUrl) -> "Examined":
    """What is wrong with a catalog that is there; takes a few seconds at most."""
    from chargehand.sqlite.connection import CATALOG  # noqa: PLC0415 - as above
    from chargehand.sqlite.examine import examine  # noqa: PLC0415 - as above

    return examine(file_of_url(url), CATALOG)
