"""Which team file is meant: the one somebody named, that of the environment, the nearest upwards, or the bundled."""

import os
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec import Struct

from chargehand.errors import Invalid

NAMES = ("team.yaml", "team.yml", "team.toml")
VARIABLE = "CHARGEHAND_TEAM"
BUNDLED = "shop"
TEMPLATES = Path(__file__).parent / "templates"

How: TypeAlias = Literal["named", "environment", "found", "bundled"]


class Found(Struct, frozen=True):
    """A team file, and how it was come by."""

    file: Path
    how: How

    @property
    def words(self) -> str:
        return {
            "named": "named on the command line",
            "environment": f"named by {VARIABLE}",
            "found": "the nearest one upwards",
            "bundled": f"the bundled team {BUNDLED!r}, because there is no team file here or above",
        }[self.how]


def find_team(named: Path | str | None = None, start: Path | None = None) -> Found:
    """The team file to use; Invalid where one is named that is not there."""
    if named is not None:
        if not str(named):  # a variable of a script that is not set: another team than was meant must not run
            raise Invalid("the team has an empty name; name a team file or its folder, or name none")
        return Found(_file(Path(named), ""), "named")
    if variable := os.environ.get(VARIABLE):
        return Found(_file(Path(variable), f" (from {VARIABLE})"), "environment")
    if (nearest := _upwards((start or Path.cwd()).resolve())) is not None:
        return Found(nearest, "found")
    return Found(TEMPLATES / BUNDLED / NAMES[0], "bundled")


def _file(named: Path, how: str) -> Path:
    if named.is_dir():
        inside = [named / name for name in NAMES if (named / name).is_file()]
        if not inside:
            raise Invalid(f"{named}{how} holds no {' or '.join(NAMES)}; write one, or: chargehand init minimal {named}")
        return _only(inside)
    if not named.exists():
        template = named.parent == Path() and (TEMPLATES / named / NAMES[0]).is_file()
        bundled = f"; for the bundled one: chargehand init {named}" if template else ""
        raise Invalid(f"there is no team file {named}{how}{bundled or '; to begin one: chargehand init minimal'}")
    return named


def _only(inside: list[Path]) -> Path:
    if len(inside) > 1:
        both = " and ".join(file.name for file in inside)
        raise Invalid(f"{inside[0].parent} holds {both}; keep one, or name the one you mean with --team")
    return inside[0]


def _upwards(start: Path) -> Path | None:
    """The nearest team file, not above the root of the repository we are in."""
    for folder in (start, *start.parents):
        inside = [folder / name for name in NAMES if (folder / name).is_file()]
        if inside:
            return _only(inside)
        if (folder / ".git").exists():
            return None
    return None
