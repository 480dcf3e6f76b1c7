"""Uploaded files: what is taken, and how a run is given them. The store of the runs keeps them, for all its servers.

Of a text file a run has the text. Of a picture it has the id: models that take pictures are shown it.
"""

import re
import time
from collections.abc import Sequence
from urllib.parse import quote

from starlette.responses import Response

from chargehand.engine.events import FileReference, Material
from chargehand.engine.plan import TaskId
from chargehand.engine.value import encode_value
from chargehand.journal.files import Files, StoredFile, file_id
from chargehand.server.tenants import Tenant
from chargehand.server.wire import Problem, invalid

_IMAGES = {
    "image/png": re.compile(rb"\x89PNG\r\n\x1a\n"),
    "image/jpeg": re.compile(rb"\xff\xd8\xff"),
    "image/gif": re.compile(rb"GIF8[79]a"),
    "image/webp": re.compile(rb"RIFF.{4}WEBP", re.DOTALL),
}
"""The types of pictures, and how such a file begins."""
_TEXTS = frozenset(("application/json", "application/x-ndjson", "application/xml", "application/yaml"))
BYTES = "application/octet-stream"
_NAME = re.compile(r"[^\0-\x1f\x7f/\\]{1,200}")
_MAX_TEXT = 1024 * 1024
"""Bytes of text that the files of one run may have."""


def files_of(tenant: Tenant) -> Files:
    files = tenant.journal.files
    if files is None:
        raise Problem(409, "refused", "this server keeps no files: its store is in memory")
    return files


async def add_file(tenant: Tenant, name: str, media_type: str, body: bytes) -> StoredFile:
    """Keep an uploaded file; a problem for one that no model could be given."""
    files = files_of(tenant)
    limits = tenant.settings.limits
    media_type = media_type.partition(";")[0].strip().lower()
    if not _NAME.fullmatch(name):
        raise invalid("the name of a file has 1 to 200 characters, and no slashes or control characters")
    if not body:
        raise invalid("the file is empty")
    if len(body) > limits.upload:
        raise Problem(413, "too_large", f"the file has {len(body):,} bytes; {limits.upload:,} is the most")
    _check_type(media_type, body)
    file = StoredFile(file_id(name, media_type, body), name, media_type, len(body), time.time())
    return await files.add(file, body, room=limits.files)


def _check_type(media_type: str, body: bytes) -> None:
    image = _IMAGES.get(media_type)
    if image is not None:
        if not image.match(body):
            raise _wrong_type(f"the file is no {media_type}")
    elif not is_text(media_type):
        takes = "text (text/*, JSON, XML, YAML) and pictures (PNG, JPEG, GIF, WebP)"
        raise _wrong_type(f"the file is said to be {media_type[:80] or 'of no type'}; {takes} are taken")
    elif read_text(body) is None:
        raise _wrong_type("the file is said to be text and is not text in UTF-8")


def _wrong_type(detail: str) -> Problem:
    return Problem(415, "wrong_file_type", detail)


def is_text(media_type: str) -> bool:
    return media_type.startswith("text/") or media_type in _TEXTS


def read_text(body: bytes) -> str | None:
    """The text of a file; None where it is none."""
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


async def read_files(tenant: Tenant, ids: Sequence[str]) -> tuple[Material, ...]:
    """Uploaded files as material of a run; 404 for one that is not there."""
    materials: list[Material] = []
    size = 0
    for number, which in enumerate(dict.fromkeys(ids), 1):
        file = await files_of(tenant).get(which)
        reference = FileReference(file.id, file.name, file.media_type, file.size)
        name = TaskId(f"file {number}: {file.name}")
        if not is_text(file.media_type):
            materials.append(Material(name, file=reference))
            continue
        size += file.size
        if size > _MAX_TEXT:
            detail = f"the text files of a run have {_MAX_TEXT:,} bytes at most; put more into an archive of the team"
            raise Problem(422, "too_large", detail)
        text = read_text(await files_of(tenant).read(which)) or ""
        materials.append(Material(name, encode_value(text), file=reference))
    return tuple(materials)


def download(body: bytes, name: str) -> Response:
    """Bytes to be saved: a browser shows none of them on a page of this server."""
    headers = {
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name)}",
        "X-Content-Type-Options": "nosniff",
    }
    return Response(body, media_type=BYTES, headers=headers)
