"""Tools that read files inside one folder, and nothing outside it: no way up, no links out, no devices, no binaries."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Annotated

from msgspec import Meta

from chargehand.errors import Invalid
from chargehand.models.artifacts import FoundPassage, Passages, Table
from chargehand.tools.tool import Tool, ToolFailed, tool

MOST_BYTES = 10 * 1024 * 1024
MOST_SHOWN = 64 * 1024
MOST_LISTED = 200
MOST_SEEN = 20_000


def files(root: Path | str) -> tuple[Tool, Tool]:
    """`read_file` and `list_files` inside this folder."""
    place = Path(root)
    if not place.is_dir():
        raise Invalid(f"there is no folder {place}; name the one whose files may be read")
    place = place.resolve()

    def read_file(
        path: Annotated[str, "Path inside the folder, as list_files shows it"],
        start: Annotated[int, Meta(ge=1, description="First line")] = 1,
        lines: Annotated[int, Meta(ge=1, le=2000, description="How many lines")] = 200,
    ) -> Passages:
        text = read_text(place, path)
        every = text.splitlines(keepends=True)
        if start > max(1, len(every)):
            raise ToolFailed(f"{path} has {len(every)} lines; start at one of them")
        part = _fitting(every[start - 1 : start - 1 + lines])
        last = start + len(part) - 1
        note = f"[lines {start} to {last} of {len(every)}]\n" if len(part) < len(every) else ""
        return Passages(path, (FoundPassage(f"{path}#L{start}-L{last}", note + "".join(part)),))

    def list_files(pattern: Annotated[str, "Such as *.csv or notes/*.md; * also matches folders below"] = "*") -> Table:
        matches = sorted((name, size) for name, size in walk_files(place) if _matches(name, pattern))
        if not matches:
            raise ToolFailed(f"no file in {place.name} matches {pattern[:100]!r}; try * for all")
        listed = tuple(matches[:MOST_LISTED])
        return Table(
            columns=("path", "bytes"), rows=listed, source=place.name, query=pattern, more=len(matches) - len(listed)
        )

    reading = f"Read lines of a text file in the folder {place.name}."
    listing = f"List the files in the folder {place.name} with their sizes."
    return tool(description=reading)(read_file), tool(description=listing)(list_files)


def read_text(root: Path, path: str) -> str:
    """The text of a file; ToolFailed says why it may not or cannot be read."""
    descriptor = _open(root, _inside(root, path), path)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ToolFailed(f"{path} is no file; list_files shows what can be read")
        if status.st_size > MOST_BYTES:
            raise ToolFailed(f"{path} has {status.st_size:,} bytes; {MOST_BYTES:,} is the most")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            body = file.read(MOST_BYTES + 1)
    finally:
        os.close(descriptor)
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise ToolFailed(f"{path} is not a text file; only UTF-8 text can be read")
    return text


def _inside(root: Path, path: str) -> tuple[str, ...]:
    """The parts of the real path below the root, links resolved."""
    if not path.strip() or "\0" in path or PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
        raise ToolFailed(f"{path[:100]!r} is no path inside the folder; list_files shows what can be read")
    try:
        real = (root / path).resolve()
        parts = real.relative_to(root).parts
    except (OSError, RuntimeError, ValueError) as error:
        raise ToolFailed(f"{path[:100]!r} leads out of the folder, or nowhere") from error
    if not parts:
        raise ToolFailed(f"{path[:100]!r} is the folder itself; list_files shows what is in it")
    return parts


def _open(root: Path, parts: tuple[str, ...], path: str) -> int:
    """Open step by step, following no link: what was checked is opened, even if another process swaps it."""
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts[:-1]:
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            os.close(folder)
            folder = inner
        # a pipe without a writer would hold us up
        return os.open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "impossible name"
        raise ToolFailed(f"cannot read {path[:100]!r}: {reason}; list_files shows what can be read") from error
    finally:
        os.close(folder)


def _fitting(lines: list[str]) -> list[str]:
    """As many of the lines as fit; at least one, cut if need be."""
    room = MOST_SHOWN
    for count, line in enumerate(lines):
        room -= len(line)
        if room < 0:
            return lines[:count] or [line[:MOST_SHOWN] + "...\n"]
    return lines


def walk_files(root: Path) -> Iterator[tuple[str, int]]:
    """Plain files below the root, links not followed; hidden ones are left out."""
    count = 0
    for folder, below, names in os.walk(root):
        below[:] = sorted(name for name in below if not name.startswith("."))
        for name in sorted(names):
            count += 1
            if count > MOST_SEEN:
                return
            status = os.lstat(os.path.join(folder, name))  # noqa: PTH118 - os.walk gives text
            if stat.S_ISREG(status.st_mode) and not name.startswith("."):
                yield Path(folder, name).relative_to(root).as_posix(), status.st_size


def _matches(name: str, pattern: str) -> bool:
    return pattern == "*" or (bool(pattern.strip("./")) and PurePosixPath(name).match(pattern))
