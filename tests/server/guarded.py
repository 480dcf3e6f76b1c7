"""A gate with next to nothing behind it, on a real socket: for what concerns the walls alone."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from chargehand.server.app import all_apis
from chargehand.server.middleware.gate import Keyring, guard
from chargehand.server.middleware.limits import bounded_http
from chargehand.server.middleware.redaction import Redactor
from chargehand.server.routing import CALLER, ApiCaller
from chargehand.server.settings import ServerSettings
from chargehand.server.streams import streamed
from tests.server.running import listening


async def _who(request: Request) -> Response:
    caller: ApiCaller = request.scope[CALLER]
    body = await request.body()
    slash = "chargehand.slash" in request.scope
    told = {"tenant": caller.tenant, "key": caller.key, "bytes": len(body), "slash": slash, "path": request.url.path}
    return JSONResponse(told)


async def _ticks() -> AsyncGenerator[bytes]:
    yield b"data: 0\n\n"
    while True:  # nothing comes any more, until somebody ends it
        await asyncio.sleep(3600)
        yield b"data: 1\n\n"


async def _stream(_request: Request) -> Response:
    return streamed(_ticks(), every=60.0)


@contextmanager
def guarded(settings: ServerSettings, patience: float = 15.0, now: Callable[[], float] = time.time) -> Generator[str]:
    """The address of a server that says who calls it."""
    keys = Keyring(settings, now)

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncGenerator[None]:
        async with keys:
            yield

    routes = [Route("/who", _who, methods=["GET", "POST"]), Route("/stream", _stream), Route("/", _who)]
    app = Starlette(routes=routes, lifespan=lifespan)
    http = bounded_http(settings.limits)
    http.patience = patience
    config = uvicorn.Config(
        guard(app, settings, keys, all_apis(), redactor=Redactor(()), lifespan=app),
        host="127.0.0.1",
        port=0,
        log_level="error",
        access_log=False,
        server_header=False,
        loop="asyncio",
        http=http,
        ws="none",
    )
    with listening(config) as port:
        yield f"http://127.0.0.1:{port}"
