"""The folder of a team file: texts and paths beside it, and nothing outside."""

from pathlib import Path
from typing import cast

import msgspec

from chargehand.config.source import read_bytes
from chargehand.errors import Invalid

PREFIX = "file:"


def inside(folder: Path, written: str) -> Path:
    """A path relative to the folder; Invalid when it is not there or leads out, by dots or by a link."""
    found = within(folder, written)
    if not found.exists():
        raise Invalid(f"there is no {written!r} beside the team file")
    return found


def within(folder: Path, written: str) -> Path:
    """The same for what need not be there yet."""
    if not written or "\0" in written:
        raise Invalid(f"{written!r} is no path; name a file or a folder beside the team file")
    if written.startswith("~") or Path(written).is_absolute():
        raise Invalid(f"{written!r} is not relative to the team file; paths may not leave its folder")
    root = folder.resolve()
    try:
        found = (root / written).resolve()
        found.exists()  # a name that no file can have is an error here, not later
    except (OSError, RuntimeError) as error:
        raise Invalid(f"{written!r} cannot be followed: {error}") from error
    if not found.is_relative_to(root):
        raise Invalid(f"{written!r} leads out of the team's folder; copy what is needed into it")
    return found


def prose(folder: Path, text: str) -> str:
    """Text as it stands, or that of a file for `file:path`."""
    if not text.startswith(PREFIX):
        return text
    written = text.removeprefix(PREFIX).strip()
    body = read_bytes(inside(folder, written), "a text file")
    try:
        return body.decode("utf-8-sig").strip()
    except UnicodeDecodeError as error:
        raise Invalid(f"{written!r} is not text in UTF-8; save it as UTF-8") from error


def schema(folder: Path, written: str | dict[str, object]) -> dict[str, object]:
    """A JSON Schema that stands in the file, or in one beside it."""
    found: object = written
    if isinstance(written, str):
        if not written.startswith(PREFIX):
            raise Invalid(f"{written[:40]!r} is no schema; write file: and a path, or the schema itself")
        try:
            found = msgspec.json.decode(prose(folder, written))
        except (msgspec.DecodeError, RecursionError) as error:
            raise Invalid(f"{written.removeprefix(PREFIX).strip()!r} is not JSON: {error}") from error
    if not isinstance(found, dict) or not isinstance(cast("dict[str, object]", found).get("type"), str):
        raise Invalid('is no JSON Schema: begin with  type: object  (or "type": "object" in a file)')
    return cast("dict[str, object]", found)
