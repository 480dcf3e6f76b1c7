"""PDFs: how many pages one has, and its text for models that take no PDFs. The text is read by the extra `files`.

A PDF may come from anybody: of the text, the pages and the time to read them there is only so much.
"""

import asyncio
import logging
import re
import threading
from collections.abc import Sequence
from importlib.util import find_spec
from io import BytesIO
from time import monotonic
from typing import TYPE_CHECKING

from msgspec import Struct

from chargehand.engine.policy import Seconds
from chargehand.errors import WrongFileType
from chargehand.extras import install_command

if TYPE_CHECKING:
    from pypdf import PdfReader

BEGINNING = re.compile(rb"(?:\xef\xbb\xbf)?\s{0,64}%PDF-\d")
"""How a PDF begins."""
EXTRA = "files"
MAX_PAGES = 500
"""Pages whose text is read."""
MAX_TEXT = 256 * 1024
"""Characters of text that are read of one PDF."""
MAX_SECONDS: Seconds = 20.0
"""How long reading one may take."""
_PAGE = re.compile(rb"/Type\s*/Page(?![A-Za-z])")
_LINEARIZED = re.compile(rb"/Linearized\s[^>]{0,200}?/N\s+(\d{1,5})")
_BYTES_OF_PAGE = 50_000

logging.getLogger("pypdf").addHandler(logging.NullHandler())  # it tells of every small fault in a file


class PdfText(Struct, frozen=True):
    """What is known of a PDF."""

    pages: int
    """How many pages it has; without the extra, about."""
    text: str | None = None
    """Its text with a mark before each page; None: the extra is not installed."""


def can_read_text() -> bool:
    """Whether the extra that reads the text of PDFs is installed."""
    return find_spec("pypdf") is not None


def text_missing(name: str, who: str) -> str:
    """Why somebody who takes no PDFs cannot be given this one, and what to install."""
    return f"{name} is a PDF, which {who} does not take; its text needs the extra `{EXTRA}`: {install_command(EXTRA)}"


async def read_pdf(body: bytes, place: str, *, seconds: Seconds = MAX_SECONDS) -> PdfText:
    """Read the text of a PDF.

    Args:
        body: The file.
        place: What it is called in messages.
        seconds: How long that may take; what was read until then counts.

    Raises:
        WrongFileType: It is encrypted with a password, or no PDF that can be read.
    """
    if not can_read_text():
        return PdfText(count_pages(body))
    reading = _PdfReading(body, monotonic() + seconds)
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()

    def work() -> None:
        reading.run()
        if not loop.is_closed():
            loop.call_soon_threadsafe(ended.set)

    # A thread cannot be stopped: one that hangs in a page must hold up neither the caller nor the end of the process.
    threading.Thread(target=work, name="chargehand-pdf", daemon=True).start()
    try:
        async with asyncio.timeout(seconds + 1):
            await ended.wait()
    except TimeoutError:
        if not reading.total:
            raise WrongFileType(f"{place} was not read within {seconds:g} s; save it anew, or split it") from None
    if reading.problem:
        raise WrongFileType(f"{place} {reading.problem}")
    return PdfText(reading.total, mark_pages(tuple(reading.pages), reading.total))


class _PdfReading:
    """Reads a PDF in a thread, page by page, as long as there is time and room."""

    def __init__(self, body: bytes, until: float) -> None:
        self.pages: list[str] = []
        self.total = 0
        self.problem = ""
        self._body = body
        self._until = until

    def run(self) -> None:
        try:
            self._read()
        except Exception as error:  # noqa: BLE001 - a broken file makes the library raise anything
            if not self.pages:
                words = " ".join(str(error).split())[:200] or type(error).__name__
                self.problem = f"cannot be read as a PDF ({words}); save it anew"

    def _read(self) -> None:
        from pypdf import PdfReader  # noqa: PLC0415 - of the extra, and slow to import

        reader = PdfReader(BytesIO(self._body))
        if reader.is_encrypted and not _opens(reader):
            self.problem = "is encrypted with a password; save it without one"
            return
        total = len(reader.pages)
        if not total:
            self.problem = "has no pages; save it anew"
            return
        self.total = total
        room = MAX_TEXT
        for number in range(min(total, MAX_PAGES)):
            if room <= 0 or monotonic() > self._until:
                return
            try:
                text = reader.pages[number].extract_text()
            except Exception:  # noqa: BLE001 - as above: the other pages may be readable
                text = ""
            self.pages.append(text[:room])
            room -= len(text)


def _opens(reader: "PdfReader") -> bool:
    """Whether an encrypted PDF opens without a password, as many do that only forbid printing."""
    try:
        return bool(reader.decrypt(""))
    except Exception:  # noqa: BLE001 - a cipher whose library is not there
        return False


def mark_pages(pages: Sequence[str], total: int) -> str:
    """Return the text of pages with a mark before each; what was not read is said at the end."""
    parts = [
        f"[page {number}]\n{text.strip() or '(no text on this page: it may be a scan)'}"
        for number, text in enumerate(pages, 1)
    ]
    if len(pages) < total:
        parts.append(f"[pages {len(pages) + 1} to {total} were not read: the file is too long]")
    return "\n\n".join(parts).encode(errors="replace").decode()


def count_pages(body: bytes) -> int:
    """Return how many pages a PDF has, about: some hide it in what is compressed, and are judged by their bytes."""
    if match := _LINEARIZED.search(body[:2_048]):
        return max(1, int(match[1]))
    return len(_PAGE.findall(body)) or max(1, len(body) // _BYTES_OF_PAGE)
