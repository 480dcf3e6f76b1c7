"""Evaluations on disk: a file each in the folder of their tenant, whole or not at all, and only so many.

What is in them is not known here, but for the line that a list shows.
"""

import os
import re
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from chargehand.errors import Corrupt, StoreUnavailable
from chargehand.server.runs.eval_shapes import EvalLine, EvalShown

Shape = TypeVar("Shape")
MOST = 200
"""So many are kept; the oldest go first."""
_HALF = 8
_NAME = re.compile(r"eval-[0-9a-f]{12}-[0-9a-f]{12}\Z")


class _Lined(Struct, frozen=True):
    line: EvalLine


class EvalFiles:
    """All of one tenant. Their names begin with when they began, so that they sort."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lines: dict[str, EvalLine] = {}
        """Of those that have ended: they do not change any more."""

    def write(self, shown: EvalShown) -> None:
        """On disk when it is back. StoreUnavailable where that cannot be; what was there before is there still."""
        name = shown.line.id
        beside = self._folder / f"{name}.new"
        try:
            self._folder.mkdir(exist_ok=True)
            with beside.open("wb") as file:
                file.write(msgspec.json.encode(shown))
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self._folder / f"{name}.json")
            self._sync()
        except OSError as error:
            raise StoreUnavailable(f"{self._folder} cannot be written: {error.strerror}; make room there") from error

    def prune(self) -> None:
        """Take away what is too old."""
        for name in self.names()[MOST:]:
            self._lines.pop(name, None)
            (self._folder / f"{name}.json").unlink(missing_ok=True)
        for left in sorted(self._folder.glob("eval-*.new"))[:-_HALF]:
            left.unlink(missing_ok=True)  # what crashes left half written; the latest may be written just now

    def read(self, name: str) -> EvalShown | None:
        """None where there is none of this name, or it is no name at all: nobody reaches other files by one."""
        body = self._body(name)
        return None if body is None else _decoded(body, name, EvalShown)

    def line(self, name: str) -> EvalLine | None:
        if name in self._lines:
            return self._lines[name]
        body = self._body(name)
        if body is None:
            return None
        line = _decoded(body, name, _Lined).line
        if line.state != "running":
            self._lines[name] = line
        return line

    def names(self) -> list[str]:
        """The latest first."""
        found = (one.stem for one in self._folder.glob("eval-*.json"))
        return sorted((one for one in found if _NAME.match(one)), reverse=True)

    def _body(self, name: str) -> bytes | None:
        if not _NAME.match(name):
            return None
        try:
            return (self._folder / f"{name}.json").read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreUnavailable(f"{name} cannot be read: {error.strerror}") from error

    def _sync(self) -> None:
        """A new name is on disk only when its folder is."""
        folder = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _decoded(body: bytes, name: str, shape: type[Shape]) -> Shape:
    try:
        return msgspec.json.decode(body, type=shape)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise Corrupt(f"what is kept of {name} cannot be read: {error}; take its file away") from error
