"""The page: the files that `make web` builds, served from the package. It needs no token; what it shows does.

Names of assets have a hash in them and may be kept for ever; the page itself is asked for again each time.
"""

import functools
import re
from importlib import resources
from pathlib import Path

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from chargehand.server.routing import Api
from chargehand.server.tenants import Tenant
from chargehand.server.wire import Problem

_INDEX = """chargehand is running.

/               the page, in a browser: runs, teams, memory, evals
/api            our own API: teams, runs, memory (docs: /api/openapi.json)
/v1/agents ...  the API of letta-client
/v1/chat/completions, /v1/responses, /v1/models
                a team as a model, for OpenAI clients
/metrics        figures for Prometheus
/healthz        whether the process lives; /readyz whether it takes work
"""
_VIEWS = (
    "/",
    "/runs/{run:path}",
    "/compare/{runs:path}",
    "/teams",
    "/teams/{team}",
    "/memory",
    "/memory/{team}",
    "/evals",
    "/evals/{team}",
    "/evals/{team}/{report}",
)
"""Paths that the page shows a view at; the page itself reads the rest of them."""
_OPEN = re.compile(r"/|/(?:assets|runs|teams|memory|evals|compare)(?:/.*)?")
"""The addresses of the page's files and views."""
_TYPES = {
    ".css": "text/css",
    ".entries": "application/json",
    ".html": "text/html",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
    ".woff2": "font/woff2",
}
_KEPT = "public, max-age=31536000, immutable"


def is_page(path: str) -> bool:
    """Whether a path is one of the page: its files and views show nothing of any tenant."""
    return _OPEN.fullmatch(path) is not None


def add_page(api: Api) -> None:
    for path in _VIEWS:
        api.add("GET", path, _view, "open")
    api.add("GET", "/assets/{name}", _asset, "open")


async def _view(request: Request, _tenant: Tenant) -> Response:
    """The page. Who calls `/` from a terminal is told what there is."""
    if request.url.path == "/" and "text/html" not in request.headers.get("accept", ""):
        return PlainTextResponse(_INDEX, headers={"Vary": "Accept"})
    headers = {"Vary": "Accept", "Cache-Control": "no-cache"}
    return Response(_read("index.html"), media_type=_TYPES[".html"], headers=headers)


async def _asset(request: Request, _tenant: Tenant) -> Response:
    name: str = request.path_params["name"]
    names = _asset_names()
    media_type = _TYPES.get(Path(name).suffix)
    if name not in names or media_type is None:
        raise Problem(404, "no_route", "there is no such file; load the page again")
    headers = {"Cache-Control": _KEPT, "Vary": "Accept-Encoding"}
    packed = f"{name}.gz"
    if packed in names and "gzip" in request.headers.get("accept-encoding", ""):
        return Response(
            _read(f"assets/{packed}"), media_type=media_type, headers={**headers, "Content-Encoding": "gzip"}
        )
    return Response(_read(f"assets/{name}"), media_type=media_type, headers=headers)


@functools.cache
def _asset_names() -> frozenset[str]:
    return frozenset(file.name for file in resources.files("chargehand.server").joinpath("ui", "assets").iterdir())


@functools.cache
def _read(name: str) -> bytes:
    return resources.files("chargehand.server").joinpath("ui", *name.split("/")).read_bytes()
