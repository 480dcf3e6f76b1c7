"""Files in and out: uploads that runs are given by their ids, and what tools returned for a run, to be saved."""

import csv
import io
from collections.abc import Iterator

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from chargehand.agents.inputs import output_of
from chargehand.engine.value import decode_value
from chargehand.journal.files import StoredFile
from chargehand.models.artifacts import Artifact, Chart, Figure, Passages, Table
from chargehand.runtime.files import BYTES
from chargehand.server.api.operations import operation
from chargehand.server.api.shapes import PageSize, RequestBody
from chargehand.server.files import add_file, download
from chargehand.server.run_control import read_run
from chargehand.server.tenants import Tenant
from chargehand.server.wire import nothing, raw_body, unknown


class UploadQuery(RequestBody, frozen=True):
    """What is uploaded."""

    name: str = "file"
    """What the file is called."""


class FileQuery(RequestBody, frozen=True):
    """A page of files. Pass `next` of a page as `before` of the next call."""

    before: str = ""
    limit: PageSize = 50


class FileList(Struct, frozen=True):
    files: tuple[StoredFile, ...]
    next: str | None


@operation("POST", "/api/files", scope="run", uploads=True)
async def upload_file(tenant: Tenant, request: Request, query: UploadQuery) -> StoredFile:
    """Upload a file: the body is its bytes, `Content-Type` what is in it. The same file again has the same id."""
    body = await raw_body(request)
    return await add_file(tenant, query.name, request.headers.get("content-type", ""), body)


@operation("GET", "/api/files")
async def list_files(tenant: Tenant, query: FileQuery) -> FileList:
    """The uploaded files, the latest first; a page of them."""
    files = await tenant.journal.files.list(before=query.before, limit=query.limit)
    return FileList(tuple(files), files[-1].id if len(files) == query.limit else None)


@operation("GET", "/api/files/{file}")
async def show_file(tenant: Tenant, file: str) -> StoredFile:
    """One file: its name, type and size."""
    return await tenant.journal.files.get(file)


@operation("GET", "/api/files/{file}/content", media=(BYTES,))
async def read_file(tenant: Tenant, file: str) -> Response:
    """The bytes of a file."""
    stored = await tenant.journal.files.get(file)
    return download(await tenant.journal.files.read(file), stored.name)


@operation("DELETE", "/api/files/{file}", scope="run", may_be_empty=True)
async def delete_file(tenant: Tenant, file: str) -> Response:
    """Delete a file. Runs that were given its text still have that; a picture is gone."""
    await tenant.journal.files.delete(file)
    return nothing()


# --- what tools returned


class ArtifactInfo(Struct, frozen=True):
    """Something that tools returned for a task."""

    task: str
    number: int
    """Its place among those of the task, from 1."""
    kind: str
    """`table`, `figure`, `passages` or `chart`."""
    title: str
    name: str
    """What the file is called when it is saved."""
    media_type: str


class ArtifactList(Struct, frozen=True):
    artifacts: tuple[ArtifactInfo, ...]


@operation("GET", "/api/runs/{run}/artifacts")
async def list_artifacts(tenant: Tenant, run: str) -> ArtifactList:
    """Tables, charts, figures and passages that tools returned for the tasks of a run."""
    return ArtifactList(tuple(info for info, _ in await _artifacts(tenant, run)))


@operation("GET", "/api/runs/{run}/tasks/{task}/artifacts/{number}", media=(BYTES,))
async def read_artifact(tenant: Tenant, run: str, task: str, number: str) -> Response:
    """One of them as a file: a table as CSV, a chart as SVG, others as JSON."""
    for info, artifact in await _artifacts(tenant, run):
        if (info.task, str(info.number)) == (task, number):
            return download(_bytes_of(artifact), info.name)
    raise unknown("artifact", f"{number} of task {task}")


async def _artifacts(tenant: Tenant, run: str) -> list[tuple[ArtifactInfo, Artifact]]:
    artifacts: list[tuple[ArtifactInfo, Artifact]] = []
    state = (await read_run(tenant, run)).state
    for task, progress in state.tasks.items():
        output = None if progress.result is None else output_of(decode_value(progress.result))
        for number, artifact in enumerate(() if output is None else output.artifacts, 1):
            artifacts.append((_info(task, number, artifact), artifact))
    return artifacts


def _info(task: str, number: int, artifact: Artifact) -> ArtifactInfo:
    match artifact:
        case Table():
            kind, title, media_type, ending = "table", artifact.source, "text/csv", "csv"
        case Chart():
            kind, title, media_type, ending = "chart", artifact.title, "image/svg+xml", "svg"
        case Figure():
            kind, title, media_type, ending = (
                "figure",
                artifact.label or artifact.expression,
                "application/json",
                "json",
            )
        case Passages():
            kind, title, media_type, ending = "passages", artifact.query, "application/json", "json"
    return ArtifactInfo(task, number, kind, title, f"{kind}-{number}.{ending}", media_type)


def _bytes_of(artifact: Artifact) -> bytes:
    match artifact:
        case Table():
            text = io.StringIO()
            csv.writer(text).writerows(_csv_rows(artifact))
            return text.getvalue().encode()
        case Chart():
            return artifact.svg.encode()
        case _:
            return msgspec.json.encode(artifact)


def _csv_rows(table: Table) -> Iterator[tuple[object, ...]]:
    yield table.columns
    yield from table.rows
