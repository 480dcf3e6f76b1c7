"""Large bodies: the very bytes that were put, or an error."""

import os
from hashlib import sha256
from pathlib import Path

import pytest

from chargehand.errors import Corrupt, StoreUnavailable
from chargehand.journal import rows
from chargehand.journal.rows import Blobs, FileBlobs


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return FileBlobs(tmp_path / "deep" / "blobs")


def test_a_body_comes_back_by_its_reference(blobs: Blobs) -> None:
    bodies = [b"", b"a", b"a" * 200_000, os.urandom(1000)]
    references = [blobs.put(body) for body in bodies]
    assert [blobs.get(reference) for reference in references] == bodies
    assert references == [blobs.put(body) for body in bodies] == [sha256(body).hexdigest() for body in bodies]


def test_a_body_never_put_is_missing(blobs: Blobs) -> None:
    with pytest.raises(Corrupt, match="missing"):
        blobs.get("0" * 64)


@pytest.mark.parametrize(
    "reference", ["", "..", "../../etc/passwd", "/etc/passwd", "0" * 63, "A" * 64, "0" * 64 + "\n"]
)
def test_a_reference_cannot_lead_elsewhere(tmp_path: Path, reference: str) -> None:
    with pytest.raises(Corrupt, match="not the name of a blob"):
        FileBlobs(tmp_path).get(reference)


@pytest.mark.parametrize("damage", [b"", b"hellp", b"hello "])
def test_a_damaged_body_is_noticed(tmp_path: Path, damage: bytes) -> None:
    reference = FileBlobs(tmp_path).put(b"hello")
    (tmp_path / reference).write_bytes(damage)
    with pytest.raises(Corrupt, match="damaged"):
        FileBlobs(tmp_path).get(reference)


@pytest.mark.parametrize("fault", ["fsync", "replace"])
def test_a_body_that_cannot_be_kept_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    blobs = FileBlobs(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(*((rows.os, "fsync") if fault == "fsync" else (Path, "replace")), full)
        with pytest.raises(StoreUnavailable, match="No space left"):
            blobs.put(b"hello")
        assert list(tmp_path.iterdir()) == []
    assert blobs.get(blobs.put(b"hello")) == b"hello"


def test_a_directory_in_the_way_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreUnavailable, match="could not be kept"):
        FileBlobs(tmp_path / "file").put(b"hello")
    (tmp_path / "blobs" / ("0" * 64)).mkdir(parents=True)
    with pytest.raises(StoreUnavailable, match="cannot be read"):
        FileBlobs(tmp_path / "blobs").get("0" * 64)
