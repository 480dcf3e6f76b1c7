"""Serve teams that are declared in Python: what `Team.serve` does."""

import asyncio
import os
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from chargehand.config.environment import secret_values
from chargehand.errors import Invalid
from chargehand.runtime.executor import Listener
from chargehand.server import app
from chargehand.server.extension import HttpApi
from chargehand.server.middleware.gate import first_token
from chargehand.server.settings import ServerSettings
from chargehand.team import Team


def serve_teams(
    teams: Sequence[Team],
    *,
    host: str,
    port: int,
    data: Path,
    token: str,
    unlocked: bool,
    apis: Sequence[HttpApi],
    listeners: Sequence[Listener],
) -> None:
    """Serve until SIGTERM or Ctrl-C."""
    _check_thread()
    for api in apis:
        if not isinstance(api, HttpApi):  # pyright: ignore[reportUnnecessaryIsInstance] - `Team.serve` takes any object
            raise Invalid(f"serve: there is a {type(api).__name__} in apis; write HttpApi(...)")
    settings = ServerSettings(
        data=data, host=host, port=port, teams=tuple(teams), token=token, unlocked=unlocked, secrets=secret_values()
    )

    def ready(port: int, names: Sequence[str]) -> None:
        new_token = first_token(settings, time.time())  # only now: one that is made and never shown is lost
        lines = [f"chargehand serves {', '.join(names)} on http://{host}:{port}"]
        if new_token is not None:
            lines.append(f"token: {new_token}  (shown this once)")
        sys.stdout.write("\n".join([*lines, ""]))
        sys.stdout.flush()

    app.serve(settings, os.environ.get, ready, apis, listeners)


def _check_thread() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        if threading.current_thread() is threading.main_thread():
            return
        raise Invalid("serve() waits for signals, which only the main thread gets; call it there") from None
    raise Invalid("serve() has an event loop of its own; call it where none runs, not inside async code")
