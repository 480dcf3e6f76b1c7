"""Uploaded files over HTTP: kept within what the server allows, and sent back to be saved."""

from urllib.parse import quote

from starlette.responses import Response

from chargehand.journal.files import StoredFile
from chargehand.runtime.files import BYTES, new_file
from chargehand.server.tenants import Tenant


async def add_file(tenant: Tenant, name: str, media_type: str, body: bytes) -> StoredFile:
    """Keep an uploaded file; Invalid for one that no model could be given."""
    limits = tenant.settings.limits
    new = new_file(name, media_type, body, max_size=limits.upload)
    return await tenant.journal.files.add(new.file, new.body, room=limits.files)


def download(body: bytes, name: str) -> Response:
    """Bytes to be saved: a browser shows none of them on a page of this server."""
    headers = {
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name)}",
        "X-Content-Type-Options": "nosniff",
    }
    return Response(body, media_type=BYTES, headers=headers)
