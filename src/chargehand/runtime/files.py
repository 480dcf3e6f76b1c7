"""Files that runs are given: which are taken, and how a run is given them. The journal of the run keeps them.

Of a text file a run has the text. Of a picture it has the id: models that take pictures are shown it. Of a PDF it has
both, the text for models that take no PDFs.
"""

import asyncio
import mimetypes
import re
import stat
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from sys import maxsize

from msgspec import Struct, structs

from chargehand.engine.events import FileReference, Material, RunRequested
from chargehand.engine.plan import TaskId
from chargehand.engine.value import encode_value
from chargehand.errors import FileTooLarge, Invalid, WrongFileType
from chargehand.journal.files import Files, StoredFile, file_id
from chargehand.runtime.pdf import BEGINNING, PdfText, read_pdf

MAX_FILE = 16 * 1024 * 1024
"""Bytes of a file, unless a server allows another number."""
MAX_FILES = 20
"""Files of one run."""
BYTES = "application/octet-stream"
_MAX_TEXT = 1024 * 1024
"""Bytes of text that the files of one run may have."""
_IMAGES = {
    "image/png": re.compile(rb"\x89PNG\r\n\x1a\n"),
    "image/jpeg": re.compile(rb"\xff\xd8\xff"),
    "image/gif": re.compile(rb"GIF8[79]a"),
    "image/webp": re.compile(rb"RIFF.{4}WEBP", re.DOTALL),
}
"""The types of pictures, and how such a file begins."""
PDF = "application/pdf"
_SHOWN = {**_IMAGES, PDF: BEGINNING}
"""The types of files that models are shown as they are, and how such a file begins."""
_ENDINGS = mimetypes.MimeTypes()
"""The types of endings, the same on every machine."""
_TEXTS = frozenset(("application/json", "application/x-ndjson", "application/xml", "application/yaml"))
_NAME = re.compile(r"[^\0-\x1f\x7f/\\\ud800-\udfff]{1,200}")


class NewFile(Struct, frozen=True):
    """A file that is taken and not kept yet."""

    file: StoredFile
    body: bytes
    pdf: PdfText | None = None
    """Of a PDF: what was read of it; None: it is none, or was not read yet."""


# --- which are taken


def new_file(name: str, media_type: str, body: bytes, *, max_size: int = MAX_FILE, place: str = "the file") -> NewFile:
    """A file to keep; Invalid for one that no model could be given. Messages begin with `place`."""
    media_type = media_type.partition(";")[0].strip().lower()
    if not _NAME.fullmatch(name):
        raise Invalid(
            f"{place}: its name must have 1 to 200 characters of UTF-8, without slashes and control characters"
        )
    if not body:
        raise Invalid(f"{place} is empty; leave it out")
    _check_size(len(body), max_size, place)
    _check_type(media_type, body, place)
    return NewFile(StoredFile(file_id(name, media_type, body), name, media_type, len(body), time.time()), body)


def _check_size(size: int, max_size: int, place: str) -> None:
    if size > max_size:
        raise FileTooLarge(f"{place} has {size:,} bytes; {max_size:,} is the most: split it, or leave some out")


def _check_type(media_type: str, body: bytes, place: str) -> None:
    beginning = _SHOWN.get(media_type)
    if beginning is not None:
        if not beginning.match(body):
            raise WrongFileType(f"{place} is no {media_type}, as it is said to be; save it anew")
    elif not _is_text(media_type):
        takes = "text (text/*, JSON, XML, YAML), PDFs and pictures (PNG, JPEG, GIF, WebP)"
        raise WrongFileType(f"{place} is of type {media_type[:80] or 'unknown'}; convert it to what is taken: {takes}")
    elif _read_text(body) is None:
        raise WrongFileType(f"{place} is said to be text and is not text in UTF-8; save it as UTF-8")


def _is_text(media_type: str) -> bool:
    return media_type.startswith("text/") or media_type in _TEXTS


def _read_text(body: bytes) -> str | None:
    """The text of a file; None where it is none."""
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


# --- files of this machine


async def load_paths(paths: Sequence[Path | str]) -> tuple[NewFile, ...]:
    """The files of one run, read from this machine; Invalid, with the path, for one that cannot be given to it."""
    loaded = await asyncio.to_thread(read_paths, paths)
    return tuple([await _with_text(new, f"the file {path}") for new, path in zip(loaded, paths, strict=True)])


async def _with_text(new: NewFile, place: str) -> NewFile:
    return structs.replace(new, pdf=await read_pdf(new.body, place)) if new.file.media_type == PDF else new


def read_paths(paths: Sequence[Path | str]) -> tuple[NewFile, ...]:
    """The files as `load_paths` has them, but for the text of PDFs."""
    if len(paths) > MAX_FILES:
        raise Invalid(f"a run is given {MAX_FILES} files at most, and these are {len(paths)}; leave some out")
    new = tuple(_read_path(Path(path)) for path in paths)
    _check_text_size([taken.file for taken in new])
    return new


def _read_path(path: Path) -> NewFile:
    place = f"the file {path}"
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            kind = "is a folder; name the files in it" if path.is_dir() else "is no regular file; save it as one"
            raise Invalid(f"{path} {kind}")
        _check_size(status.st_size, MAX_FILE, place)
        body = path.read_bytes()
    except OSError as error:
        raise Invalid(f"{place} cannot be read: {error.strerror}; name one that is there and may be read") from error
    except ValueError as error:  # a NUL character
        raise Invalid(f"{str(path)!r} is no path: {error}; name a file that is there") from error
    return new_file(path.name, _find_type(path.name, body), body, place=place)


def _find_type(name: str, body: bytes) -> str:
    """The type of a file by what is in it; what that leaves open, by the ending of its name."""
    if media_type := shown_type(body):
        return media_type
    guess, encoding = _ENDINGS.guess_type(name)
    media_type = BYTES if guess is None or encoding else guess
    is_known = _is_text(media_type) or media_type in _SHOWN
    return media_type if is_known or _read_text(body) is None else "text/plain"


def shown_type(body: bytes) -> str:
    """The type of a picture or a PDF by how it begins; empty: it is neither."""
    return next((media_type for media_type, beginning in _SHOWN.items() if beginning.match(body)), "")


# --- what a run is given


async def keep_files(files: Files, new: Sequence[NewFile]) -> tuple[Material, ...]:
    """Keep files in a journal, as material of a run."""
    for taken in new:
        await files.add(taken.file, taken.body, room=maxsize)
    known = {taken.file.id: taken.pdf for taken in new if taken.pdf is not None}
    return await read_files(files, [taken.file.id for taken in new], known)


_NONE_READ: Mapping[str, PdfText] = {}


async def keep_file(files: Files, name: str, media_type: str, body: bytes) -> tuple[FileReference, str]:
    """Keep a file that the work on a run came by; what it is found by, and its text if it is a PDF."""
    new = await _with_text(new_file(name, media_type, body), "it")
    stored = await files.add(new.file, new.body, room=maxsize)
    pages, text = (0, None) if new.pdf is None else (new.pdf.pages, new.pdf.text)
    return FileReference(stored.id, stored.name, stored.media_type, stored.size, pages), text or ""


async def read_files(
    files: Files, ids: Sequence[str], known: Mapping[str, PdfText] = _NONE_READ
) -> tuple[Material, ...]:
    """Files of a journal as material of a run.

    Args:
        files: The files of the journal.
        ids: Which of them.
        known: PDFs that were read before, by their ids.

    Raises:
        Unknown: one of them is not there.
        WrongFileType: one of them is a PDF that cannot be read.
    """
    stored = [await files.get(file) for file in dict.fromkeys(ids)]
    _check_text_size(stored)
    room = _MAX_TEXT
    materials: list[Material] = []
    for number, file in enumerate(stored, 1):
        material, size = await _material(files, file, number, known.get(file.id), room)
        materials.append(material)
        room -= size
    return tuple(materials)


def _check_text_size(files: Sequence[StoredFile]) -> None:
    size = sum(file.size for file in files if _is_text(file.media_type))
    if size > _MAX_TEXT:
        raise FileTooLarge(
            f"the text files of a run have {_MAX_TEXT:,} bytes at most, and these have {size:,}; "
            "put more into an archive of the team"
        )


async def _material(
    files: Files, file: StoredFile, number: int, pdf: PdfText | None, room: int
) -> tuple[Material, int]:
    """A file as material of a run, and how many bytes of the text of its PDFs that takes."""
    name = TaskId(f"file {number}: {file.name}")
    reference = FileReference(file.id, file.name, file.media_type, file.size)
    if file.media_type == PDF:
        pdf = pdf or await read_pdf(await files.read(file.id), f"the file {file.name}")
        reference = structs.replace(reference, pages=pdf.pages)
        if pdf.text is None:
            return Material(name, file=reference), 0
        text = pdf.text.encode()[: max(0, room)].decode(errors="ignore")
        cut = "" if len(text) == len(pdf.text) else "\n[the rest was not read: the files of this run are too long]"
        return Material(name, encode_value(text + cut), file=reference), len(text.encode())
    if not _is_text(file.media_type):
        return Material(name, file=reference), 0
    text = _read_text(await files.read(file.id)) or ""
    return Material(name, encode_value(text), file=reference), 0


def with_material(request: RunRequested, material: tuple[Material, ...]) -> RunRequested:
    """The request of a run that is given material from outside."""
    return structs.replace(request, inputs=material, outside=bool(material))
