"""`chargehand models` and `fault-server`: local models, and a server that misbehaves on purpose."""

import asyncio
import os
import sys
from argparse import ArgumentParser, Namespace

from chargehand.cli.arguments import add_options, shared
from chargehand.cli.console import Console, print_table, progress_bar
from chargehand.config.environment import models_home
from chargehand.errors import Invalid
from chargehand.models.local import CATALOG, PullFailed, installed, pull, remove
from chargehand.models.testing.fault_server import MODES, serve

FAULT_PORT = 8787


def add_models(parser: ArgumentParser) -> None:
    add_options(
        parser,
        {
            "act": {"choices": ("pull", "list", "rm"), "metavar": "pull|list|rm", "help": "fetch, list or remove"},
            "name": {"metavar": "NAME", "nargs": "?", "default": "", "help": "a model of the list"},
            **shared("--no-color"),
        },
    )


def models(options: Namespace) -> int:
    """Local models: 0 when it is as was asked, 1 when it could not be done."""
    name: str = options.name
    if options.act == "list":
        return _list()
    if not name:
        raise Invalid(f"models {options.act} needs a name; see  chargehand models list")
    if options.act == "pull":
        return _pull(name)
    was_here = remove(name, models_home())
    Console(sys.stderr).line(f"{name} is removed" if was_here else f"{name} was not here")
    return 0


def _list() -> int:
    console = Console(sys.stdout)
    here = installed(models_home())
    rows: list[tuple[str, ...]] = []
    for model in CATALOG.values():
        state = "here" if model.name in here else ""
        rows.append((model.name, state, f"{model.size / 1e6:,.0f} MB", f"{model.about} ({model.licence})"))
    print_table(console, ("model", "", "size", "what it is"), rows, right=("size",))
    console.line(f"folder: {models_home()}   fetch one with: chargehand models pull NAME", "dim")
    return 0


def _pull(name: str) -> int:
    stderr = Console(sys.stderr)
    try:
        with progress_bar(name) as show:
            home = pull(name, models_home(), show)
    except PullFailed as error:
        stderr.line(f"chargehand: {error}", "bad")
        return 1
    stderr.line(f"{name} is here", "good")
    Console(sys.stdout).line(str(home))
    return 0


def add_fault_server(parser: ArgumentParser) -> None:
    add_options(
        parser,
        {
            "--port": {
                "type": int,
                "default": FAULT_PORT,
                "metavar": "N",
                "help": f"default {FAULT_PORT}; 0 is any free one",
            },
            "--mode": {"default": "ok", "metavar": "NAME", "help": "the fault where a request names none (default ok)"},
        },
    )


def fault_server(options: Namespace) -> int:
    """Serve faults on this machine until Ctrl-C."""
    port: int = options.port
    if not 0 <= port <= 65535:
        raise Invalid(f"{port} is no port; name one from 0 to 65535")

    def announce(origin: str) -> None:
        stderr = Console(sys.stderr)
        print_table(stderr, ("mode", "fault"), list(MODES.items()))
        stderr.line(f"base address of a provider with a fault: {origin}/fault/MODE/v1   (end with Ctrl-C)")
        Console(sys.stdout).line(origin)

    try:
        asyncio.run(serve(port=port, mode=options.mode, ready=announce))
    except OSError as error:
        problem = os.strerror(error.errno) if error.errno else str(error)
        raise Invalid(f"127.0.0.1 port {port} cannot be used: {problem}; name another with --port") from error
    return 0
