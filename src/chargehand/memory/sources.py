"""Texts in a folder as passages for an archive. What is put in, and what is there already, is decided elsewhere."""

import os
from pathlib import Path

from chargehand.errors import Invalid
from chargehand.memory.archives import Passage
from chargehand.memory.blocks import Origin

KINDS = (".md", ".markdown", ".txt")
MOST_FILES = 2_000
MOST_BYTES = 32 * 1024 * 1024
_LARGEST = 8 * 1024 * 1024
_LOOKED_AT = 100_000


def read_sources(folder: Path) -> list[Passage]:
    """The texts of a folder, or of one file, in the order of their names; Invalid for what is no text.

    The source of each is its path below the folder, its origin the team.
    """
    files = source_files(folder)
    root = folder if folder.is_dir() else folder.parent
    texts = [(file.relative_to(root).as_posix(), text_of(file)) for file in files]
    return [Passage(text, origin=Origin("team", source=name)) for name, text in texts if text.strip()]


def source_files(folder: Path) -> list[Path]:
    """The files that `read_sources` would read; Invalid when there are none, too many, or one leads out."""
    if folder.is_file():
        found = [folder]
    elif folder.is_dir():
        found = _below(folder)
    else:
        raise Invalid(f"there is no file or folder {folder}; name one with .md or .txt files")
    if not found:
        raise Invalid(f"there are no .md or .txt files in {folder}; put some there, or name another folder")
    _check_size(folder, found)
    return found


def _below(folder: Path) -> list[Path]:
    root = folder.resolve()
    found = list[Path]()
    looked_at = 0
    for place, folders, names in os.walk(folder, followlinks=False):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        looked_at += len(names) + len(folders)
        if looked_at > _LOOKED_AT:
            raise Invalid(f"{folder} holds more than {_LOOKED_AT:,} files; name a folder with nothing but texts")
        for name in sorted(names):
            file = Path(place, name)
            if name.startswith(".") or file.suffix.lower() not in KINDS:
                continue
            if not _target(file).is_relative_to(root):
                raise Invalid(f"{file} is a link that leads out of {folder}; copy the text into the folder")
            if file.is_file():
                found.append(file)
    return found


def _target(file: Path) -> Path:
    try:
        return file.resolve()
    except (OSError, RuntimeError) as error:
        raise Invalid(f"{file} cannot be followed: {error}; take the link away") from error


def _check_size(folder: Path, found: list[Path]) -> None:
    sizes = [_size(file) for file in found]
    if len(found) > MOST_FILES or sum(sizes) > MOST_BYTES:
        have = f"{folder} holds {len(found):,} texts of {sum(sizes):,} bytes"
        raise Invalid(f"{have}; {MOST_FILES:,} and {MOST_BYTES:,} is the most, so split it over several archives")


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError as error:
        raise Invalid(f"{file} cannot be read: {error.strerror}; change its mode, or take it away") from error


def text_of(file: Path) -> str:
    """The text of one file; Invalid for what is too large, cannot be read, or is no text in UTF-8."""
    try:
        with file.open("rb") as opened:
            body = opened.read(_LARGEST + 1)
    except OSError as error:
        missing = isinstance(error, FileNotFoundError | IsADirectoryError)
        way = "name a file that is there" if missing else "change its mode, or take it away"
        raise Invalid(f"{file} cannot be read: {error.strerror}; {way}") from error
    if len(body) > _LARGEST:
        raise Invalid(f"{file} is larger than {_LARGEST:,} bytes; split it into several files")
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Invalid(f"{file} is not text in UTF-8 (byte {error.start}); save it as UTF-8, or take it away") from error
    if "\0" in text:
        raise Invalid(f"{file} is not text: it holds zero bytes; take it away")
    return text
