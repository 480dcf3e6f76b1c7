"""One stream of a terminal: colour where it is wanted, drawing where it can be shown, nothing that steers the terminal.

Lines are cleaned as they are written; text of several lines goes through `clean_lines` or `clean_json` before that.
"""

import io
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, TextIO

from chargehand.errors import StoreUnavailable

if TYPE_CHECKING:
    from rich.console import RenderableType

Tone = Literal["plain", "good", "bad", "warn", "dim", "bold"]
STYLES: dict[Tone, str] = {"good": "green", "bad": "red", "warn": "yellow", "dim": "dim", "bold": "bold", "plain": ""}
"""The tones as rich calls them."""
_PAINT: dict[Tone, str] = {"good": "32", "bad": "31", "warn": "33", "dim": "2", "bold": "1"}

# C0, DEL, C1; what joins or breaks invisibly; what turns the reading direction; halves of pairs; tags
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f]"
)
_UNSAFE_BUT_LINES = re.compile(_UNSAFE.pattern.replace("\x00-\x1f", "\x00-\x08\x0b-\x1f"))
_ASCII = str.maketrans({"├": "|", "└": "`", "│": "|", "─": "-", "━": "=", "·": ".", "→": ">", "…": "~", "✔": "+"})


_UNBOUNDED = 100_000  # columns of a table in a file or a pipe


class OutputLost(StoreUnavailable):
    """Standard output takes no more. What is kept all the same depends on the verb: see `lost`."""


def clean(text: str) -> str:
    """One line, with a sign in the place of everything that could steer a terminal."""
    return _UNSAFE.sub("\ufffd", re.sub(r"[\t\r\n]+", " ", text))


def clean_lines(text: str) -> str:
    """The same for text that may have lines and tabs."""
    return _UNSAFE_BUT_LINES.sub("\ufffd", text.replace("\r\n", "\n"))


def clean_json(text: str) -> str:
    """JSON that means the same and is safe to look at. JSON escapes C0 itself, so what is left stands in strings."""
    return _UNSAFE_BUT_LINES.sub(_escape, text)


def format_json(document: object, *, indent: int = 2) -> str:
    """A document as JSON that is safe to look at; a negative indent puts all of it on one line."""
    import msgspec  # noqa: PLC0415 - --help prints no documents

    return clean_json(msgspec.json.format(msgspec.json.encode(document), indent=indent).decode())


def _escape(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def short(text: str, room: int) -> str:
    """As much of a cleaned text as there is room for."""
    line = clean(text)
    return line if len(line) <= room else line[: max(1, room - 1)] + "…"


def wrap_words(text: str, columns: int) -> list[str]:
    """The lines of one line that is too wide, cut between words; all but the first are indented further.

    A word that is wider than that stays whole, so that it can be copied.
    """
    indent = text[: len(text) - len(text.lstrip(" "))]
    hanging = f"{indent}  " if len(indent) < columns // 2 else ""
    return textwrap.wrap(
        text, max(columns, 1), subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False
    )


class Console:
    """Lines to one stream. A reader who goes away is not an error: a run goes on without being watched.

    While a `pen` is set it writes the lines instead: a view that moves must not be written over. One that is `patient`
    leaves it to `raise_if_lost` to say that a line could not be written.
    """

    def __init__(self, stream: TextIO, *, quiet: bool = False, patient: bool = False) -> None:
        self.stream = stream
        self._patient = patient
        self._lost = ""
        self.pen: Callable[[str], None] | None = None
        self.terminal = stream.isatty() and os.environ.get("TERM") != "dumb"
        self.draws = (stream.encoding or "").lower().startswith("utf")
        self._silent = quiet
        wanted = self.terminal or bool(os.environ.get("FORCE_COLOR"))
        self.coloured = wanted and not os.environ.get("NO_COLOR")
        self.columns = shutil.get_terminal_size((100, 24)).columns if stream.isatty() else 100

    def paint(self, text: str, tone: Tone) -> str:
        return f"\x1b[{_PAINT[tone]}m{text}\x1b[0m" if self.coloured and tone in _PAINT and text else text

    def line(self, text: str = "", tone: Tone = "plain") -> None:
        """Write one line at once, cleaned."""
        self.text(clean(text), tone)

    def text(self, text: str, tone: Tone = "plain") -> None:
        """Write text of one or more lines that is clean already."""
        drawn = text if self.draws else text.translate(_ASCII)
        self.write(f"{self.paint(drawn, tone)}\n")

    def json(self, document: object) -> None:
        """Write one JSON document, safe to look at."""
        self.text(format_json(document))

    def json_line(self, document: object) -> None:
        """Write one line of JSON, safe to look at."""
        self.text(format_json(document, indent=-1))

    def prose(self, text: str, tone: Tone = "plain") -> None:
        """Write one line, cleaned; on a terminal that is too narrow for it as several, cut between words."""
        for line in wrap_words(clean(text), self.columns) if self.terminal else (text,):
            self.line(line, tone)

    def markdown(self, text: str) -> None:
        """Text for a reader: laid out where there is a terminal, else as it is. It is clean already."""
        if not self.terminal:
            self.text(text)
            return
        if not (self.draws and self.coloured):
            for line in text.split("\n"):
                self.prose(line)
            return
        from rich.markdown import Markdown  # noqa: PLC0415 - a quarter of a second that few commands need

        self.draw(Markdown(text.replace("\n", "  \n"), hyperlinks=False), columns=100)  # lines stay lines

    def draw(self, picture: "RenderableType", *, columns: int = _UNBOUNDED) -> None:
        """Write a table, a tree or a page of rich, in no more columns than there are."""
        from rich.console import Console as Page  # noqa: PLC0415 - --help draws nothing

        page = Page(
            file=io.StringIO(),
            width=min(columns, self.columns) if self.terminal else columns,
            force_terminal=self.coloured,
            color_system="standard" if self.coloured else None,
            highlight=False,
            legacy_windows=False,
        )
        with page.capture() as drawn:
            page.print(picture)
        for line in drawn.get().splitlines():
            self.text(line.rstrip())

    def write(self, text: str) -> None:
        if self._silent:
            return
        if self.pen is not None:
            self.pen(text)
            return
        try:
            self.stream.write(text)
            self.stream.flush()
        except OSError as error:
            self._silent = True
            # else the interpreter meets the same error once more when it ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.stream.fileno())
            # who does not read on has enough; progress that cannot be written is no reason to stop
            if not isinstance(error, BrokenPipeError) and self.stream is not sys.stderr:
                self._lost = error.strerror or type(error).__name__
            if not self._patient:
                self.raise_if_lost()

    @contextmanager
    def held(self) -> Generator[None]:
        """Hold lines back while the block lasts, and write them when it ends: a prompt must not be written over."""
        lines: list[str] = []
        before = self.pen
        self.pen = lines.append
        try:
            yield
        finally:
            self.pen = before
            for text in lines:
                self.write(text)

    def raise_if_lost(self) -> None:
        """Raise OutputLost if something could not be written."""
        if self._lost:
            raise OutputLost(f"the output cannot be written: {self._lost}")


def print_table(
    console: Console,
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    tones: Sequence[Tone] | None = None,
    *,
    right: Sequence[str] = (),
) -> None:
    """Columns as wide as their cells; on a terminal the last one is cut where the line ends.

    `tones` has one for each row. The columns named in `right` are aligned to the right.
    """
    from rich.table import Table  # noqa: PLC0415 - --help draws nothing
    from rich.text import Text  # noqa: PLC0415 - as above

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for number, head in enumerate(heads, 1):
        is_last = number == len(heads)
        table.add_column(head, no_wrap=not is_last, justify="right" if head in right else "left")
    for number, row in enumerate(rows):
        cells = [Text(clean(cell), no_wrap=True, overflow="ellipsis") for cell in row]
        table.add_row(*cells, style=STYLES[tones[number]] if tones else "")
    console.draw(table)


@contextmanager
def progress_bar(name: str) -> Generator[Callable[[str, int, int], None]]:
    """A progress bar on a terminal while the block lasts. The function takes a text, what is done and the total."""
    from rich.console import Console as Page  # noqa: PLC0415 - --help draws nothing
    from rich.markup import escape  # noqa: PLC0415 - as above
    from rich.progress import Progress  # noqa: PLC0415 - as above

    page = Page(stderr=True, highlight=False)
    with Progress(console=page, transient=True, disable=not page.is_terminal) as progress:
        job = progress.add_task(escape(clean(name)), total=None)

        def show(what: str, done: int, total: int) -> None:
            description = escape(clean(f"{name}: {what}"))
            progress.update(job, description=description, completed=done, total=total or None)

        yield show
