"""Columns, bars, sizes and times for people to look at. What stands in them is the business of the verbs."""

import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from unicodedata import combining, east_asian_width

from chargehand.cli.console import Console, Tone, clean

_BAR = 10
_LEAST = 20  # columns that the last cell has, however narrow the terminal is


def table(
    console: Console, heads: Sequence[str], rows: Iterable[Sequence[str]], tones: Sequence[Tone] | None = None
) -> None:
    """Columns as wide as what stands in them; on a terminal the last one is cut where the line ends."""
    cells = [[clean(cell) for cell in row] for row in rows]
    wide = [max(columns(row[at]) for row in (heads, *cells)) for at in range(len(heads))]
    room = max(_LEAST, console.columns - sum(wide[:-1]) - 2 * (len(heads) - 1)) if console.terminal else 0
    for number, row in enumerate((heads, *cells)):
        last = fitted(row[-1], room) if room else row[-1]
        line = "  ".join([*(_padded(cell, width) for cell, width in zip(row[:-1], wide, strict=False)), last]).rstrip()
        usual: Tone = "dim" if number == 0 else "plain"
        console.line(line, tones[number - 1] if tones and number else usual)


def columns(text: str) -> int:
    """How many columns of a terminal a text takes: some signs take two, some none."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(one) else 2 if east_asian_width(one) in "WF" else 1 for one in text)


def fitted(text: str, room: int) -> str:
    """As much of a text as so many columns hold."""
    if columns(text) <= room:
        return text
    kept = text[:room]
    while columns(kept) > room - 1:
        kept = kept[:-1]
    return f"{kept}…"


def _padded(text: str, width: int) -> str:
    return text + " " * (width - columns(text))


def bar(share: float) -> str:
    """Ten signs, of which as many are full as the share says; whatever is not nothing shows."""
    filled = max(1, round(min(1.0, share) * _BAR)) if share > 0 else 0
    return f"{'━' * filled}{'·' * (_BAR - filled)}"


def size_of(count: float) -> str:
    """An amount of bytes."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 10 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def when(at: float) -> str:
    """A moment on the clock here."""
    if not at:
        return "never"
    try:
        return datetime.fromtimestamp(at, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return "no known time"


def ago(at: float, present: float) -> str:
    """How long ago a moment was; a day, if that is long."""
    if not at:
        return "never"
    passed = present - at
    for limit, unit, word in ((60, 1, ""), (3600, 60, "min"), (86_400, 3600, "h"), (864_000, 86_400, "days")):
        if -5 <= passed < limit:
            count = int(passed // unit)
            said = "day" if word == "days" and count == 1 else word
            return f"{count} {said} ago" if word else "just now"
    return when(at)[:10]


def now() -> float:
    return time.time()
