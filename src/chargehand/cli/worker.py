"""`chargehand worker`: drives runs that servers began, as one of many processes on any number of hosts."""

import os
import re
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Sequence

from chargehand.cli import DEPLOYMENT, ENGINE, STORE
from chargehand.cli.arguments import (
    USUAL_TEAM,
    Options,
    add_options,
    duration,
    engine_of,
    model_handle,
    positive,
    shared,
    team_source,
)
from chargehand.cli.console import Console
from chargehand.cli.log_lines import JsonLines
from chargehand.cli.serve import TOKEN
from chargehand.cli.tracing import listener_from
from chargehand.config.environment import lookup, secret_values
from chargehand.errors import Invalid
from chargehand.extras import OfExtra

PORT = 8284
_QUEUE = re.compile(r"[\w.-]{1,100}\Z")
_EXAMPLES = """examples:
  chargehand worker --team shop --engine temporal://temporal:7233
  chargehand worker --team shop --queues gpu --slots 4

"""


def _queue_names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if not _QUEUE.match(name):
            raise ArgumentTypeError(f"{name!r} is no name of a queue; write them like gpu,reports")
    return names


_OPTIONS: Options = {
    "--team": {"metavar": "PATH", "action": "append", "default": [], "type": team_source, "help": USUAL_TEAM},
    **shared("--store", "--engine", "--heartbeat", "--data", "--price", "--no-color"),
    "--queues": {
        "metavar": "A,B",
        "type": _queue_names,
        "default": (),
        "help": "serve only these queues (default: all of its teams)",
    },
    "--slots": {"metavar": "N", "type": positive, "default": 64, "help": "runs driven at once (default 64)"},
    "--drain": {
        "metavar": "TIME",
        "type": duration,
        "default": 20.0,
        "help": "how long calls may go on after a stop (default 20s)",
    },
    "--host": {
        "metavar": "ADDRESS",
        "default": "127.0.0.1",
        "help": "of health and metrics (default 127.0.0.1)",
    },
    "--port": {"metavar": "N", "type": int, "default": PORT, "help": f"their port (default {PORT}; 0 is any free one)"},
    "--model": {"metavar": "NAME", "type": model_handle, "default": "", "help": "of every worker of its teams"},
    **shared("--allow-host", "--log-format"),
    "-v --verbose": {"action": "store_true", "help": "also say what is usual"},
}


def add_worker(parser: ArgumentParser) -> None:
    parser.epilog = _EXAMPLES + (parser.epilog or "")
    add_options(parser, _OPTIONS)


def worker(options: Namespace) -> int:
    """Drive runs until SIGTERM or Ctrl-C: 0 after an orderly end."""
    with OfExtra("worker", "server"):
        from chargehand.server import app, cluster, settings  # noqa: PLC0415 - only this verb needs them
    from chargehand.models.prices import flat  # noqa: PLC0415 - as above

    wanted = settings.ServerSettings(
        data=options.data,
        store=options.store,
        engine=engine_of(options),
        deployment=lookup(DEPLOYMENT) or "",
        heartbeat=options.heartbeat,
        host=options.host,
        port=options.port,
        hosts=tuple(options.allow_host),
        teams=tuple(options.team),
        token=os.environ.get(TOKEN, ""),
        model=options.model,
        grace=options.drain,
        secrets=secret_values(),
        price=flat(*options.price.dollars) if options.price else None,
    )
    if wanted.engine is None:
        raise Invalid(f"a worker needs an engine that gives it runs; add --engine temporal://HOST, or set {ENGINE}")
    if wanted.store is None:
        raise Invalid(f"a worker needs the database of its servers; add --store postgresql://HOST/NAME, or set {STORE}")
    settings.check(wanted)

    def ready(port: int, queues: Sequence[str]) -> None:
        console = Console(sys.stdout)
        console.line(f"chargehand works for {wanted.engine}: at most {options.slots} runs at once")
        console.line(f"{'queues':16}  {', '.join(queues)}")
        console.line(f"{'health, metrics':16}  http://{wanted.host}:{port}/healthz, /readyz, /metrics")
        sys.stdout.flush()

    todo = cluster.WorkSettings(queues=options.queues, slots=options.slots)
    tracing = listener_from(os.environ)
    if tracing is not None:
        JsonLines.trace_ids = tracing.log_ids
    app.work(wanted, lookup, ready, todo, listeners=() if tracing is None else (tracing,))
    return 0
