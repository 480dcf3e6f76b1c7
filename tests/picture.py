"""Make the picture at the top of the README anew, from a real run on a real terminal: python -m tests.picture.

Left out are the notice, the goal and the progress above the plan, and of the answer what `_SHOWN` does not name; a line
with three dots stands in the place of what is left out of the answer. Whether the picture is still true is held by
test_picture.
"""

import io
import re
import tempfile
from collections.abc import Iterator
from html import unescape
from pathlib import Path

from rich.console import Console
from rich.text import Text

from tests.cli.terminal import Terminal

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "pictures" / "run.svg"
COLUMNS = 112
_SHOWN = ("chart:", "answer:", "Kept", "Not answered")
_HEADINGS = (*_SHOWN, "gaps:", "Revenue per country in May 2026", "Notes", "Sources")
_PIECES = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|\n|\r|[^\x1b\r\n]+")
_FONT = "ui-monospace, DejaVu Sans Mono, monospace"  # no font is fetched from anywhere


def screen(drawn: str) -> list[str]:
    """The lines that stand on a terminal in the end, with their colours: a view that moves writes over its own."""
    lines = [""]
    row = 0
    fresh = True
    for piece in _PIECES.finditer(drawn):
        told = piece[0]
        if told == "\n":
            row += 1
            fresh = True
            lines += [""] * (row + 1 - len(lines))
        elif told == "\r":
            fresh = True
        elif piece[2] == "A":
            row = max(0, row - int(piece[1] or 1))
        elif piece[2] == "K":
            lines[row] = ""
        elif piece[2] in ("m", None):
            lines[row] = ("" if fresh else lines[row]) + told
            fresh = False
    return lines


def chosen(lines: list[str]) -> Iterator[str]:
    """What the picture shows of it."""
    plain = [Text.from_ansi(line).plain.strip() for line in lines]
    first = next(number for number, line in enumerate(plain) if line.startswith("plan: "))
    shows = True
    left_out = False
    for line, words in zip(lines[first:], plain[first:], strict=True):
        if words.startswith("Checked: "):
            return
        if any(words.startswith(heading) for heading in _HEADINGS):
            shows = words.startswith(_SHOWN)
        if shows:
            yield line
        elif not left_out:
            left_out = True
            yield " …"
            yield ""


def words_of(picture: str) -> list[str]:
    """The lines of text in a picture."""
    found: dict[float, str] = {}
    for height, text in re.findall(r'<text class="run-r\d+"[^>]* y="([\d.]+)"[^>]*>([^<]*)</text>', picture):
        found[float(height)] = found.get(float(height), "") + unescape(text).replace("\xa0", " ").rstrip("\n")
    return [found[height].rstrip() for height in sorted(found)]


def make() -> str:
    with tempfile.TemporaryDirectory() as folder:
        terminal = Terminal(Path(folder), "run", "--example", columns=COLUMNS, rows=60)
        code = terminal.end()
        assert code == 3, terminal.shown
    page = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    page.print(Text("$ chargehand run --example", style="bold"))
    for line in "\n".join(chosen(screen(terminal.drawn.decode()))).rstrip().split("\n"):
        page.print(Text.from_ansi(line), no_wrap=True, crop=True)
    picture = page.export_svg(title="chargehand", unique_id="run")
    picture = re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.DOTALL)
    picture = re.sub(r"<!--.*?-->\s*", "", picture, flags=re.DOTALL)
    return picture.replace("Fira Code, monospace", _FONT)


if __name__ == "__main__":
    PICTURE.write_text(make())
