"""What a check of a team file has to say, one thing at a time, each with its place: file, line, path in the file."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from shlex import quote
from typing import TypeAlias

from msgspec import Struct

from chargehand.errors import Invalid

Path: TypeAlias = tuple[str | int, ...]

_LONG = 80


class Finding(Struct, frozen=True, omit_defaults=True):
    """One thing to say. Errors stop a team, warnings do not (unless somebody asks for strictness)."""

    file: str
    message: str
    path: str = ""
    line: int = 0
    grave: bool = True

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        return f"{where}: {self.path}: {self.message}" if self.path else f"{where}: {self.message}"


def written(path: Path) -> str:
    """A path as people read it: `workers.market.tools[1]`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def near(name: str, names: Iterable[str]) -> str:
    """The nearest name, as the end of a sentence; nothing when none is near."""
    found = get_close_matches(name, list(names), 1, 0.6) if len(name) <= _LONG else []
    return f"; did you mean {found[0]!r}?" if found else ""


def among(names: Iterable[str], most: int = 8) -> str:
    """Names in a row, cut where there are too many of them."""
    known = list(names)
    return ", ".join(known[:most]) + (f" and {len(known) - most} more" if len(known) > most else "")


def refuse(file: str, findings: Sequence[Finding]) -> None:
    """Raise Invalid for the first error, where there is one; the others are counted."""
    errors = [finding for finding in findings if finding.grave]
    if errors:
        more = f" ({len(errors) - 1} more: chargehand check --team {quote(file)})" if len(errors) > 1 else ""
        raise Invalid(f"{errors[0]}{more}")
