"""Texts of a folder become passages; what is no text, too much, or elsewhere, is refused."""

from pathlib import Path

import pytest

from chargehand.errors import Invalid
from chargehand.memory import chunking
from chargehand.memory.archives import Passage
from chargehand.memory.blocks import Origin
from chargehand.memory.chunking import read_sources


def text(text: str, source: str) -> Passage:
    return Passage(text, origin=Origin("team", source=source))


def test_texts_come_in_the_order_of_their_names_with_where_they_stood(tmp_path: Path) -> None:
    (tmp_path / "b" / ".hidden").mkdir(parents=True)
    (tmp_path / "b" / "two.TXT").write_bytes(b"\xef\xbb\xbfzwei")
    (tmp_path / "b" / ".hidden" / "no.md").write_text("no")
    (tmp_path / "a.md").write_text("eins")
    (tmp_path / "empty.md").write_text(" \n")
    (tmp_path / "picture.png").write_bytes(b"\x00\xff")
    assert read_sources(tmp_path) == [text("eins", "a.md"), text("zwei", "b/two.TXT")]
    assert read_sources(tmp_path / "b" / "two.TXT") == [text("zwei", "two.TXT")]


def test_a_link_inside_is_followed_and_one_that_leads_out_is_refused(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.md").write_text("eins")
    (tmp_path / "in" / "b.md").symlink_to("a.md")
    assert [one.origin.source for one in read_sources(tmp_path / "in")] == ["a.md", "b.md"]
    (tmp_path / "out.md").write_text("hush")
    (tmp_path / "in" / "c.md").symlink_to("../out.md")
    with pytest.raises(Invalid, match="leads out"):
        read_sources(tmp_path / "in")
    (tmp_path / "in" / "c.md").unlink()
    (tmp_path / "in" / "d.md").symlink_to("d.md")
    with pytest.raises(Invalid, match=r"cannot be followed|leads out"):
        read_sources(tmp_path / "in")


@pytest.mark.parametrize(("body", "words"), [(b"\xff\xfe", "is not text in UTF-8"), (b"a\x00b", "it holds zero bytes")])
def test_what_is_no_text_is_refused(tmp_path: Path, body: bytes, words: str) -> None:
    (tmp_path / "a.md").write_bytes(body)
    with pytest.raises(Invalid, match=words):
        read_sources(tmp_path)


def test_nothing_and_too_much_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Invalid, match="there is no file or folder"):
        read_sources(tmp_path / "none")
    with pytest.raises(Invalid, match=r"no \.md or \.txt files"):
        read_sources(tmp_path)
    for name in "abc":
        (tmp_path / f"{name}.md").write_text("x" * 10)
    monkeypatch.setattr(chunking, "MOST_FILES", 2)
    with pytest.raises(Invalid, match="holds 3 texts of 30 bytes"):
        read_sources(tmp_path)
    monkeypatch.setattr(chunking, "MOST_FILES", 9)
    monkeypatch.setattr(chunking, "_LARGEST", 5)
    with pytest.raises(Invalid, match=r"a\.md is larger than 5 bytes"):
        read_sources(tmp_path)
    monkeypatch.setattr(chunking, "_LOOKED_AT", 2)
    with pytest.raises(Invalid, match="holds more than 2 files"):
        read_sources(tmp_path)
