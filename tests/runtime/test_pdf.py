"""Text of PDFs by the extra `files`: bounded, with marks of pages, and with clear words where it cannot be read."""

import sys
import time
from io import BytesIO
from typing import Any

import pytest
from pypdf import PageObject, PdfWriter

from chargehand.errors import WrongFileType
from chargehand.runtime import pdf
from chargehand.runtime.pdf import count_pages, mark_pages, read_pdf
from tests.sample_files import make_pdf


async def test_the_text_of_each_page_has_its_mark() -> None:
    read = await read_pdf(make_pdf("Hello 42", "", "Goodbye"), "the file a.pdf")
    assert read.pages == 3
    assert read.text == (
        "[page 1]\nHello 42\n\n[page 2]\n(no text on this page: it may be a scan)\n\n[page 3]\nGoodbye"
    )


def encrypted(password: str) -> bytes:
    writer = PdfWriter(clone_from=BytesIO(make_pdf("Hello")))
    writer.encrypt(password, algorithm="RC4-128")
    body = BytesIO()
    writer.write(body)
    return body.getvalue()


async def test_an_encrypted_file_is_refused_by_its_name_unless_it_opens_without_a_password() -> None:
    with pytest.raises(WrongFileType, match=r"the file a\.pdf is encrypted with a password; save it without one"):
        await read_pdf(encrypted("secret"), "the file a.pdf")
    assert "Hello" in ((await read_pdf(encrypted(""), "the file a.pdf")).text or "")


@pytest.mark.parametrize("body", [b"%PDF-1.7\xff", make_pdf("Hello")[:200], b"%PDF-1.4 " + b"junk " * 1000, make_pdf()])
async def test_a_broken_file_is_refused_by_its_name(body: bytes) -> None:
    with pytest.raises(WrongFileType, match=r"the file a\.pdf (cannot be read as a PDF|has no pages)"):
        await read_pdf(body, "the file a.pdf")


async def test_pages_text_and_time_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    body = make_pdf(*[f"This is page {number}" for number in range(1, 8)])
    monkeypatch.setattr(pdf, "MAX_PAGES", 3)
    read = await read_pdf(body, "it")
    assert read.pages == 7
    assert read.text is not None
    assert read.text.endswith("[page 3]\nThis is page 3\n\n[pages 4 to 7 were not read: the file is too long]")
    monkeypatch.setattr(pdf, "MAX_TEXT", 20)
    read = await read_pdf(body, "it")
    assert "[pages 3 to 7 were not read" in (read.text or "")
    plain = PageObject.extract_text

    def slow(self: PageObject, *args: Any, **kwargs: Any) -> str:
        time.sleep(0.1)
        return plain(self, *args, **kwargs)

    monkeypatch.setattr(pdf, "MAX_TEXT", 10_000)
    monkeypatch.setattr(PageObject, "extract_text", slow)
    read = await read_pdf(body, "it", seconds=0.05)
    assert "[pages 2 to 7 were not read" in (read.text or "")


async def test_a_file_whose_page_hangs_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(*_: object, **__: object) -> str:
        time.sleep(5)
        return ""

    monkeypatch.setattr(PageObject, "extract_text", hang)
    began = time.monotonic()
    read = await read_pdf(make_pdf("a", "b"), "it", seconds=0.05)
    assert time.monotonic() - began < 4
    assert read.text == "[pages 1 to 2 were not read: the file is too long]"


async def test_without_the_extra_only_pages_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pypdf", None)
    monkeypatch.setattr(pdf, "can_read_text", lambda: False)
    read = await read_pdf(make_pdf("a", "b"), "it")
    assert (read.pages, read.text) == (2, None)


def test_pages_are_counted_without_the_extra_about() -> None:
    assert count_pages(make_pdf("a", "b", "c")) == 3
    assert count_pages(b"%PDF-1.5\n1 0 obj\n<< /Linearized 1 /L 9 /H [ 1 2 ] /O 4 /E 9 /N 12 /T 9 >>") == 12
    assert count_pages(b"%PDF-1.5" + bytes(200_000)) == 4
    assert mark_pages(("half \ud800",), 1) == "[page 1]\nhalf ?"
