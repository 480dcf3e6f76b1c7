"""The verbs about models: fetch, list and remove local ones, and a server that misbehaves on purpose."""

import asyncio
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from chargehand.cli.console import Console, ProgressLine, clean
from chargehand.config.environment import models_home
from chargehand.errors import Invalid

FAULT_PORT = 8787


def add_models(parser: ArgumentParser) -> None:
    parser.add_argument("act", choices=("pull", "list", "rm"), metavar="pull|list|rm", help="fetch, list or remove")
    parser.add_argument("name", metavar="NAME", nargs="?", default="", help="a model of the list")
    parser.add_argument("--json", action="store_true", help="with list: one JSON document")


def models(options: Namespace) -> int:
    """Local models: 0 when it is as was asked, 1 when it could not be done."""
    act: str = options.act
    name: str = options.name
    if act == "list":
        return _list(as_json=options.json)
    if not name:
        raise Invalid(f"models {act} needs a name; see  chargehand models list")
    return _pull(name) if act == "pull" else _remove(name)


def _list(*, as_json: bool) -> int:
    from chargehand.models.local.catalog import CATALOG  # noqa: PLC0415 - verbs pay only for what they use
    from chargehand.models.local.pull import installed  # noqa: PLC0415 - as above

    console = Console(sys.stdout)
    here = installed(models_home())
    if as_json:
        rows = [
            {
                "name": one.name,
                "about": one.about,
                "licence": one.licence,
                "bytes": one.size,
                "path": _path(here, one.name),
            }
            for one in CATALOG.values()
        ]
        console.json(rows)
        return 0
    wide = max(map(len, CATALOG))
    for one in CATALOG.values():
        state = "here" if one.name in here else "    "
        console.line(f"{one.name:{wide}}  {state}  {one.size / 1e6:7,.0f} MB  {one.about} ({one.licence})")
    console.line(f"folder: {clean(str(models_home()))}   fetch one with: chargehand models pull NAME", "dim")
    return 0


def _path(here: dict[str, Path], name: str) -> str | None:
    return str(here[name]) if name in here else None


def _pull(name: str) -> int:
    from chargehand.models.local.pull import PullFailed, pull  # noqa: PLC0415 - as above

    line = ProgressLine(name)
    try:
        home = pull(name, models_home(), line.show)
    except PullFailed as error:
        line.end()
        Console(sys.stderr).line(f"chargehand: {clean(str(error))}", "bad")
        return 1
    line.end()
    Console(sys.stderr).line(f"{name} is here", "good")
    Console(sys.stdout).line(clean(str(home)))
    return 0


def _remove(name: str) -> int:
    from chargehand.models.local.pull import remove  # noqa: PLC0415 - as above

    there = remove(name, models_home())
    Console(sys.stderr).line(f"{name} is removed" if there else f"{name} was not here")
    return 0


def add_fault_server(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--port", type=int, default=FAULT_PORT, metavar="N", help=f"default {FAULT_PORT}; 0 is any free one"
    )
    parser.add_argument(
        "--mode", default="ok", metavar="NAME", help="the fault where a request names none (default ok)"
    )


def fault_server(options: Namespace) -> int:
    """Serve faults on this machine until Ctrl-C."""
    from chargehand.models.testing.fault_server.modes import MODES  # noqa: PLC0415 - as above
    from chargehand.models.testing.fault_server.server import serve  # noqa: PLC0415 - as above

    port: int = options.port
    if not 0 <= port <= 65535:
        raise Invalid(f"{port} is no port; name one from 0 to 65535")

    def ready(origin: str) -> None:
        wide = max(map(len, MODES))
        for mode, about in MODES.items():
            Console(sys.stderr).line(f"  {mode:{wide}}  {about}")
        Console(sys.stderr).line(f"base address of a provider with a fault: {origin}/fault/MODE/v1   (end with Ctrl-C)")
        Console(sys.stdout).line(origin)

    try:
        asyncio.run(serve(port=port, mode=options.mode, ready=ready))
    except OSError as error:
        raise Invalid(f"port {port} cannot be used: {error.strerror or error}; name another with --port") from error
    return 0
