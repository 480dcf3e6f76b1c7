"""SQLite files: connections, transactions, group commit; and the URLs of stores, of which a path is shorthand."""

from pathlib import Path
from typing import TypeAlias

from chargehand.errors import Invalid

StoreUrl: TypeAlias = str | Path
MEMORY = "memory:"
"""The URL of a store that ends with the process."""
_SQLITE = "sqlite:///"


def file_of_url(url: StoreUrl) -> Path:
    """The SQLite file a URL or a path names; Invalid for any other URL."""
    if isinstance(url, Path):
        return url
    if url.startswith(_SQLITE):
        return Path(url.removeprefix(_SQLITE))
    if url == MEMORY:
        raise Invalid(f"{url} ends with its process, so there is nothing to open; name a file: {_SQLITE}runs.db")
    if "://" in url or not url:
        raise Invalid(f"{url!r} is not the URL of a store; write {_SQLITE}PATH, or the path of a file")
    return Path(url)
