"""One stream of a terminal: colour where it is wanted, drawing where it can be shown, nothing that steers the terminal.

Whatever came from plans, results or errors goes through `clean` or `clean_json` before it is written.
"""

import os
import re
import shutil
from typing import Literal, TextIO

Tone = Literal["plain", "good", "bad", "warn", "dim", "bold"]

_PAINT: dict[Tone, str] = {"good": "32", "bad": "31", "warn": "33", "dim": "2", "bold": "1"}
# C0, DEL, C1; what joins or breaks invisibly; what turns the reading direction; halves of pairs; tags
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f]"
)
_UNSAFE_BUT_LINES = re.compile(_UNSAFE.pattern.replace("\x00-\x1f", "\x00-\x08\x0b-\x1f"))
_ASCII = str.maketrans({"├": "|", "└": "`", "│": "|", "─": "-", "━": "=", "·": ".", "→": ">", "…": "~"})


def clean(text: str) -> str:
    """One line, with a sign in the place of everything that could steer a terminal."""
    return _UNSAFE.sub("\ufffd", re.sub(r"[\t\r\n]+", " ", text))


def clean_lines(text: str) -> str:
    """The same for text that may have lines and tabs."""
    return _UNSAFE_BUT_LINES.sub("\ufffd", text.replace("\r\n", "\n"))


def clean_json(text: str) -> str:
    """JSON that means the same and is safe to look at. JSON escapes C0 itself, so what is left stands in strings."""
    return _UNSAFE_BUT_LINES.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    pair = found[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{pair[at : at + 4]}" for at in range(0, len(pair), 4))


def short(text: str, room: int) -> str:
    """As much of a cleaned text as there is room for."""
    said = clean(text)
    return said if len(said) <= room else said[: max(1, room - 1)] + "…"


class Console:
    """Lines to one stream. A reader who goes away is not an error: a run goes on without being watched."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._gone = False
        terminal = stream.isatty()
        self._coloured = terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        self._draws = (stream.encoding or "").lower().startswith("utf")
        self.columns = shutil.get_terminal_size((100, 24)).columns if terminal else 100

    def paint(self, text: str, tone: Tone) -> str:
        return f"\x1b[{_PAINT[tone]}m{text}\x1b[0m" if self._coloured and tone in _PAINT and text else text

    def line(self, text: str = "", tone: Tone = "plain") -> None:
        """Write one line at once; its text is clean already."""
        if self._gone:
            return
        said = self.paint(text, tone) if self._draws else self.paint(text.translate(_ASCII), tone)
        try:
            self._stream.write(said + "\n")
            self._stream.flush()
        except BrokenPipeError:
            self._gone = True
            # else the interpreter meets the same error once more when it ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())
