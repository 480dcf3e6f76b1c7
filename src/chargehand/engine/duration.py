"""Durations as people write them, in Python and in a team file: `90`, `"90s"`, `"5m"`, `"1h30m"`, `"250ms"`."""

import re
from typing import Annotated, TypeAlias

from chargehand.engine.declared_types import Write, written_as
from chargehand.errors import Invalid

_WORDS = Write('a duration such as 90, "90s" or "5m"')
WrittenDuration: TypeAlias = Annotated[float | str, _WORDS, written_as("Timeout")]
"""A number of seconds, or text such as `5m`."""

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"(\d{1,12}(?:\.\d{1,12})?)(ms|s|m|h|d)", re.ASCII)
_LONGEST = 366 * 86400.0
_LONGEST_SHOWN = 60


def parse_duration(written: object, *, longest: float = _LONGEST) -> float:
    """The seconds of a duration; ValueError, as the end of a sentence about it, for what is none."""
    if isinstance(written, str):
        text = written.replace(" ", "")
        parts = _PART.findall(text)
        if not parts or "".join(number + unit for number, unit in parts) != text:
            raise ValueError(f"is {show_value(written)}; write a duration such as 90s, 5m, 1h30m or 250ms")
        seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    elif isinstance(written, int | float) and not isinstance(written, bool):
        seconds = float(written)
    else:
        raise ValueError(f"is {show_value(written)}; write a duration such as 90s")  # noqa: TRY004 - one kind of complaint
    if not 0 <= seconds <= longest:
        raise ValueError(f"is {show_value(written)}; a duration is between 0s and {longest / 86400:.0f}d")
    return seconds


def parse_timeout(written: object) -> float:
    """The seconds of a duration that is longer than nothing; ValueError as `parse_duration` raises it."""
    seconds = parse_duration(written)
    if not seconds:
        raise ValueError(f"is {show_value(written)}; it must be longer than nothing, for example 90s")
    return seconds


def seconds_of(name: str, written: WrittenDuration) -> float:
    """The seconds of a duration that is called `name`; Invalid for what is none, and for nothing at all."""
    try:
        return parse_timeout(written)
    except ValueError as error:
        raise Invalid(f"{name} {error}") from None


def show_value(written: object) -> str:
    """A value as it stands in a file, cut where it is long."""
    text = repr(written) if isinstance(written, str) else str(written).lower()
    return text if len(text) <= _LONGEST_SHOWN else f"{text[: _LONGEST_SHOWN - 1]}…"
