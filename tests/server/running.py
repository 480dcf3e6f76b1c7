"""A real server for tests: uvicorn on a free port of this machine, in a thread, with a folder of its own."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import uvicorn

from chargehand.runtime.executor import Listener
from chargehand.server.app import Application
from chargehand.server.extension import HttpApi
from chargehand.server.http_server import HttpServer
from chargehand.server.settings import ServerSettings

TOKEN = "ch_test_0123456789abcdef0123456789abcdef"


class Running:
    """A server that answers at `url`. `token` opens everything of the first tenant."""

    def __init__(self, port: int, token: str) -> None:
        self.port = port
        self.token = token
        self.url = f"http://127.0.0.1:{port}"
        self.headers = {"Authorization": f"Bearer {token}"}
        self.keyed_url = f"http://:{token}@127.0.0.1:{port}"
        """What `LETTA_BASE_URL` may be set to."""


@contextmanager
def running(
    settings: ServerSettings,
    environment: Mapping[str, str] | None = None,
    apis: Sequence[HttpApi] = (),
    listeners: Sequence[Listener] = (),
    on_reload: Callable[[str], None] | None = None,
) -> Generator[Running]:
    """Serve until the block is left; then it shuts down as it would on SIGTERM."""
    known = dict(environment or {})
    application = Application(settings, known.get, apis, listeners, on_reload=on_reload)
    config = uvicorn.Config(
        application.app,
        host="127.0.0.1",
        port=0,
        log_level="warning",
        access_log=False,
        loop="asyncio",
        http="httptools",
        timeout_graceful_shutdown=5,
    )
    with listening(config, lambda: application.drain(settings.grace)) as port:
        yield Running(port, settings.token)


@contextmanager
def listening(config: uvicorn.Config, drain: Callable[[], Awaitable[None]] | None = None) -> Generator[int]:
    """Run uvicorn in a thread and yield its port. Start and stop are waited for without polling.

    `drain` is awaited before it stops.
    """
    started = threading.Event()
    loop = asyncio.new_event_loop()
    server = HttpServer(config, started.set)

    def serve() -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                runner.run(server.serve())
        finally:
            started.set()

    async def stop() -> None:
        if drain is not None:
            await drain()
        server.stop()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    started.wait(20)
    assert server.started, "the server did not start"
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        if thread.is_alive():
            asyncio.run_coroutine_threadsafe(stop(), loop)
        thread.join(20)
        assert not thread.is_alive(), "the server did not stop"


def settings_in(folder: Path, **changes: object) -> ServerSettings:
    return ServerSettings(folder, token=TOKEN, **{"model_urls": True, "model_hosts": ("127.0.0.1",), **changes})  # pyright: ignore[reportArgumentType] - tests name real fields
