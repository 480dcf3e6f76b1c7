"""Pictures and PDFs that tools return beside their words: `ToolFile`, `WithFiles`."""

from collections.abc import Sequence
from typing import cast

from msgspec import Struct

MAX_FILES = 8
"""Files that are kept of one result."""
MAX_PICTURE = 5 * 1024 * 1024
"""Bytes of a picture; providers take no larger ones."""


class ToolFile(Struct, frozen=True):
    """A picture (PNG, JPEG, GIF, WebP) or a PDF that a tool returns. Its type is what is in it."""

    data: bytes
    """The file itself."""
    name: str = ""
    """What it is called, such as `chart.png`; empty: it gets a name."""


class WithFiles(Struct, frozen=True):
    """What a tool returns that has files besides its result."""

    value: object
    """The result, as without files."""
    files: Sequence[ToolFile] = ()
    """At most 8 of them are kept."""


def split_files(value: object) -> tuple[object, tuple[ToolFile, ...]]:
    """Return the result of a tool without its files, and the files. The result may be a file, or a list of them."""
    if isinstance(value, str):
        return value, ()
    if isinstance(value, WithFiles):
        return value.value, tuple(value.files)
    items = cast("Sequence[object]", value) if isinstance(value, list | tuple) else [value]
    files = tuple([item for item in items if isinstance(item, ToolFile)])
    return (None, files) if files and len(files) == len(items) else (cast("object", value), ())
