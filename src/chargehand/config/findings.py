"""What a check of a team file has to say, one thing at a time, each with its place: file, line, path in the file."""

from collections.abc import Iterable, Sequence
from shlex import quote
from typing import TypeAlias

from msgspec import Struct

from chargehand.errors import Invalid
from chargehand.text.names import nearest_names

Path: TypeAlias = tuple[str | int, ...]


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
    nearest = nearest_names(name, names, count=1)
    return f"; did you mean {nearest[0]!r}?" if nearest else ""


def refuse(file: str, findings: Sequence[Finding]) -> None:
    """Raise Invalid for the first error, where there is one; the others are counted."""
    errors = [finding for finding in findings if finding.grave]
    if errors:
        more = f" ({len(errors) - 1} more: chargehand check --team {quote(file)})" if len(errors) > 1 else ""
        raise Invalid(f"{errors[0]}{more}")
