"""Files of OpenAI clients: uploads, and the files and pictures in their messages."""

import base64
import binascii
import mimetypes
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

from msgspec import Struct, structs
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from chargehand.agents.inputs import describe_turns
from chargehand.engine.events import Material
from chargehand.engine.plan import TaskId
from chargehand.errors import Invalid
from chargehand.journal.files import StoredFile
from chargehand.server.files import add_file, download
from chargehand.server.openai.answer_format import refused
from chargehand.server.openai.request import FILE_PARTS, MessageSent, TeamTarget
from chargehand.server.routing import Api
from chargehand.server.tenants import Tenant
from chargehand.server.wire import Problem, number, part, problem_of, reply

Json: TypeAlias = dict[str, Any]
_PURPOSE = "user_data"
_PAGE = 100
_MAX_PAGE = 10_000

# --- in messages


class Attachment(Struct, frozen=True):
    """A file in a message: one that was uploaded, or its bytes."""

    place: str
    file: str = ""
    """The id of an uploaded file."""
    url: str = ""
    """Else its bytes, as a data URL."""
    name: str = "file"


def read_attachments(messages: Sequence[MessageSent], param: str) -> tuple[Attachment, ...]:
    """The files and pictures in messages."""
    attachments: list[Attachment] = []
    for place, message in enumerate(messages):
        content = message.content if message.type == "message" else None
        for position, item in enumerate(content if isinstance(content, list) else ()):
            if item.get("type") in FILE_PARTS:
                attachments.append(_attachment(item, f"{param}[{place}].content[{position}]"))
    return tuple(attachments)


def _attachment(item: dict[str, Any], place: str) -> Attachment:
    """A part that is a file. Chat completions have an object in it where responses have the fields themselves."""
    inner = item.get("file", item.get("image_url"))
    fields = cast("dict[str, Any]", inner) if isinstance(inner, dict) else item
    file = fields.get("file_id")
    url = fields.get("file_data") or fields.get("url") or fields.get("image_url")
    name = fields.get("filename")
    if isinstance(file, str) and file:
        return Attachment(place, file=file)
    if isinstance(url, str) and url.startswith("data:"):
        return Attachment(place, url=url, name=name if isinstance(name, str) and name else "file")
    detail = "a file is sent as the id of an upload (file_id), or as a data URL; other addresses are not fetched"
    raise refused(place, detail)


def check_attachments(target: TeamTarget, attachments: Sequence[Attachment]) -> None:
    """A problem where files are sent to models that read only the request."""
    if not attachments:
        return
    try:
        target.team.check_takes_files()
    except Invalid as error:
        raise refused(attachments[0].place, str(error)) from error


async def keep_attachments(tenant: Tenant, attachments: Sequence[Attachment]) -> list[str]:
    """The ids of files in messages, one each. Those that came with their bytes are kept like uploads."""
    ids: list[str] = []
    for attachment in attachments:
        if attachment.file:
            ids.append(attachment.file)
            continue
        media_type, body = _read_data_url(attachment)
        try:
            ids.append((await add_file(tenant, attachment.name, media_type, body)).id)
        except Invalid as error:
            problem = problem_of(error)
            raise refused(attachment.place, problem.detail, problem.code) from error
    return ids


def turns_of_files(
    ids: Sequence[str], turns: Sequence[int], earlier: Mapping[str, tuple[int, ...]]
) -> dict[str, tuple[int, ...]]:
    """Return by file the turns it was sent in: those of `earlier` requests, and those of the files with these ids."""
    sent = dict(earlier)
    for file, turn in zip(ids, turns, strict=True):
        sent[file] = (*sent.get(file, ()), turn)
    return sent


def with_turns(material: Sequence[Material], sent: Mapping[str, tuple[int, ...]], request: int) -> list[Material]:
    """Return files as material that says in which turns they were sent, unless all were sent with the request."""
    told: list[Material] = []
    for item in material:
        turns = () if item.file is None else tuple(turn for turn in sent.get(item.file.id, ()) if turn)
        if item.file is None or not set(turns) - {request}:
            told.append(item)
            continue
        name = TaskId(f"{item.name}, {describe_turns(turns)}")
        told.append(structs.replace(item, name=name, file=structs.replace(item.file, turns=turns)))
    return told


def _read_data_url(attachment: Attachment) -> tuple[str, bytes]:
    head, comma, data = attachment.url.removeprefix("data:").partition(",")
    media_type, _, encoding = head.partition(";base64")
    if not comma or encoding or not head.endswith(";base64"):
        raise refused(attachment.place, "a data URL is data:TYPE;base64,DATA", "invalid_value")
    try:
        return media_type, base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise refused(attachment.place, f"the data of the URL is no base64: {error}", "invalid_value") from error


# --- uploads


def add_file_routes(api: Api) -> None:
    api.add("POST", "/v1/files", create_file, "run")
    api.add("GET", "/v1/files", list_files, "read")
    api.add("GET", "/v1/files/{file}", show_file, "read")
    api.add("GET", "/v1/files/{file}/content", file_content, "read")
    api.add("DELETE", "/v1/files/{file}", delete_file, "run")


async def create_file(request: Request, tenant: Tenant) -> Response:
    try:
        async with request.form(max_files=1, max_fields=10) as form:
            upload = form.get("file")
            if not isinstance(upload, UploadFile):
                raise refused("file", "there is no file: send one as `file`, in a form (multipart/form-data)")
            name = upload.filename or "file"
            media_type = upload.content_type or mimetypes.guess_type(name)[0] or ""
            body = await upload.read()
    except (HTTPException, UnicodeError) as error:
        raise refused("file", "the form cannot be read", "invalid_value") from error
    except ClientDisconnect as error:
        raise Problem(400, "cut", "the file was cut off") from error
    return reply(_file(await add_file(tenant, name, media_type, body)))


async def list_files(request: Request, tenant: Tenant) -> Response:
    limit = number(request, "limit", _PAGE, 1, _MAX_PAGE)
    files = await tenant.journal.files.list(before=request.query_params.get("after", ""), limit=limit)
    return reply({"object": "list", "data": [_file(file) for file in files], "has_more": len(files) == limit})


async def show_file(request: Request, tenant: Tenant) -> Response:
    return reply(_file(await tenant.journal.files.get(part(request, "file"))))


async def file_content(request: Request, tenant: Tenant) -> Response:
    file = await tenant.journal.files.get(part(request, "file"))
    return download(await tenant.journal.files.read(file.id), file.name)


async def delete_file(request: Request, tenant: Tenant) -> Response:
    file = part(request, "file")
    await tenant.journal.files.delete(file)
    return reply({"id": file, "object": "file", "deleted": True})


def _file(file: StoredFile) -> Json:
    return {
        "id": file.id,
        "object": "file",
        "bytes": file.size,
        "created_at": int(file.at),
        "filename": file.name,
        "purpose": _PURPOSE,
        "status": "processed",
    }
