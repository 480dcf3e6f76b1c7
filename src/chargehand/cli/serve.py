"""`chargehand serve`: teams over HTTP, for `letta-client`, OpenAI clients and our own API. `tokens`: access to it."""

import os
import shlex
import sys
import threading
import time
import webbrowser
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, cast

from chargehand.cli import DEPLOYMENT, USUAL_DATA, USUAL_JOURNAL
from chargehand.cli.arguments import (
    USUAL_TEAM,
    Options,
    Verb,
    add_options,
    add_verbs,
    duration,
    engine_of,
    journal_words,
    model_handle,
    shared,
    team_source,
)
from chargehand.cli.console import Console, print_table
from chargehand.cli.log_lines import JsonLines
from chargehand.cli.tracing import listener_from
from chargehand.config.environment import lookup, secret_values
from chargehand.config.python_objects import find_plugin
from chargehand.engine.declared import argument_problem
from chargehand.errors import Invalid, Unknown
from chargehand.extras import OfExtra
from chargehand.runtime.listeners import check_listener

if TYPE_CHECKING:
    from chargehand.runtime.executor import Listener
    from chargehand.server.extension import HttpApi
    from chargehand.server.middleware.keys import ApiKey, KeyStore
    from chargehand.server.settings import ServerSettings

TOKEN = "CHARGEHAND_TOKEN"  # noqa: S105 - its name, not the token
PORT = 8283
_EXAMPLES = f"""examples:
  chargehand serve --open             the nearest team, else the bundled one
  chargehand serve --team shop --team desk --port 9000
  {TOKEN}=... chargehand serve --host 0.0.0.0 --allow-host box.example

"""


_SERVE_OPTIONS: Options = {
    "--team": {
        "metavar": "PATH",
        "action": "append",
        "default": [],
        "type": team_source,
        "help": USUAL_TEAM,
    },
    "--reload": {"action": "store_true", "help": "load a team anew when its files change"},
    "--plugin": {
        "metavar": "NAME",
        "action": "append",
        "default": [],
        "help": "an HTTP API or listener of a package, or module:attr",
    },
    **shared("--store", "--engine", "--heartbeat", "--data", "--price", "--no-color"),
    "--host": {"metavar": "ADDRESS", "default": "127.0.0.1", "help": "where to listen (default 127.0.0.1)"},
    "--port": {
        "metavar": "N",
        "type": int,
        "default": PORT,
        "help": f"the port (default {PORT}; 0 is any free one)",
    },
    "--open": {"action": "store_true", "help": "open the page in a browser, with a token for it"},
    "--no-token": {"action": "store_true", "help": "no token is needed; only on 127.0.0.1"},
    **shared("--allow-host"),
    "--custom-tools": {
        "action": "store_true",
        "help": "clients may bring tools in source, for the sandbox",
    },
    "--model-urls": {
        "action": "store_true",
        "help": "clients may name models by URL, at public addresses",
    },
    "--model-host": {
        "metavar": "HOST",
        "action": "append",
        "default": [],
        "help": "a local address (with :PORT) that they may name, too",
    },
    "--model": {
        "metavar": "NAME",
        "type": model_handle,
        "default": "",
        "help": "of every worker, and of agents without their own",
    },
    "--open-runs": {"metavar": "N", "type": int, "help": "runs that may go on at once (default 64)"},
    "--grace": {
        "metavar": "TIME",
        "type": duration,
        "default": 5.0,
        "help": "how long runs may go on after a stop (default 5s)",
    },
    "--resume": {
        "metavar": "WHICH",
        "choices": ("all", "crashed", "none"),
        "default": "all",
        "help": "open runs it resumes: all, crashed, none (default all)",
    },
    **shared("--log-format"),
    "-v --verbose": {"action": "store_true", "help": "also say what is usual"},
}


def add_serve(parser: ArgumentParser) -> None:
    parser.epilog = _EXAMPLES + (parser.epilog or "")
    add_options(parser, _SERVE_OPTIONS)


def serve(options: Namespace) -> int:
    """Serve until SIGTERM or Ctrl-C: 0 after an orderly end."""
    with OfExtra("serve", "server"):
        from chargehand.server import app, settings  # noqa: PLC0415 - only this verb needs them
        from chargehand.server.middleware.gate import browser_token, first_token  # noqa: PLC0415 - as above
    wanted = _settings(options)
    settings.check(wanted)

    def ready(port: int, teams: Sequence[str]) -> None:
        token = first_token(wanted, time.time())  # only now: one that is made and never shown is lost
        for line in startup_lines(wanted, port, token, teams, apis):
            Console(sys.stdout).line(line)
        sys.stdout.flush()
        if options.open:
            address = page_address(wanted, port, token or browser_token(wanted, time.time()))
            # a browser may take seconds to come up, and calls are answered meanwhile
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()

    tracing = listener_from(os.environ)
    apis, listeners = find_plugins(options.plugin)
    if tracing is not None:
        listeners.insert(0, tracing)
        JsonLines.trace_ids = tracing.log_ids
    say = Console(sys.stderr).line if options.reload else None
    app.serve(wanted, lookup, ready, apis, listeners, on_reload=say)
    return 0


def find_plugins(names: Sequence[str]) -> "tuple[list[HttpApi], list[Listener]]":
    """The HTTP APIs and the listeners of these names; Invalid for what is neither."""
    from chargehand.server.extension import HttpApi  # noqa: PLC0415 - only this verb needs it

    apis: list[HttpApi] = []
    listeners: list[Listener] = []
    for name in names:
        plugin = find_plugin(name)
        if isinstance(plugin, HttpApi):
            apis.append(plugin)
        elif callable(plugin) and not argument_problem(plugin):
            apis.append(_returned_api(name, plugin))
        else:
            try:
                check_listener(plugin)
            except Invalid as error:
                raise Invalid(f"--plugin {name} is no HttpApi, nor a function that returns one, and {error}") from error
            listeners.append(cast("Listener", plugin))
    return apis, listeners


def _returned_api(name: str, function: Callable[..., object]) -> "HttpApi":
    from chargehand.server.extension import HttpApi  # noqa: PLC0415 - as above

    try:
        api = function()
    except (Exception, SystemExit) as error:  # a user's function
        raise Invalid(f"--plugin {name} made no HttpApi: {type(error).__name__}: {error}") from error
    if not isinstance(api, HttpApi):
        raise Invalid(f"--plugin {name} returns a {type(api).__name__}, not an HttpApi")
    return api


def _settings(options: Namespace) -> "ServerSettings":
    from chargehand.models.prices import flat  # noqa: PLC0415 - as above
    from chargehand.server.settings import ServerLimits, ServerSettings  # noqa: PLC0415 - as above

    usual = ServerLimits()
    runs: int = usual.runs if options.open_runs is None else options.open_runs
    if not 1 <= runs <= 10_000:
        raise Invalid(f"--open-runs is {runs}; it must be from 1 to 10000")
    limits = ServerLimits(runs=runs, waiting=max(usual.waiting, 4 * runs))
    return ServerSettings(
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
        unlocked=options.no_token,
        model=options.model,
        custom_tools=options.custom_tools,
        model_urls=options.model_urls,
        model_hosts=tuple(options.model_host),
        grace=options.grace,
        secrets=secret_values(),
        limits=limits,
        price=flat(*options.price.dollars) if options.price else None,
        resume=options.resume,
    )


def page_address(settings: "ServerSettings", port: int, token: str) -> str:
    """The page of a server. The token stands in the fragment, which is sent to no server and kept in no log."""
    return f"http://{_reached(settings)}:{port}/{f'#key={token}' if token else ''}"


def _reached(settings: "ServerSettings") -> str:
    """The address under which a server is reached from this machine."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(host, host)  # noqa: S104 - for a reader, not to listen


def _place_words(settings: "ServerSettings") -> tuple[str, ...]:
    """The words that name the place of its data; none where it is the usual one."""
    if settings.store is not None:
        return journal_words(settings.store)
    return () if settings.data == Path(USUAL_DATA) else ("--data", str(settings.data))


def startup_lines(
    settings: "ServerSettings",
    port: int,
    token: str | None,
    teams: Sequence[str] = (),
    apis: "Sequence[HttpApi]" = (),
) -> list[str]:
    """How to call the server. A token is shown once, when it was made just now. `apis` are those of plugins."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    reached = _reached(settings)
    password = token or ("TOKEN" if not settings.unlocked else "")
    create_token = shlex.join(("chargehand", "tokens", "create", *_place_words(settings)))
    facts: dict[str, str] = {}
    if token:
        facts["token"] = f"{token}  (shown this once; more: {create_token})"
    elif settings.token:
        facts["token"] = f"the one in {TOKEN}"
    elif not settings.unlocked:
        facts["token"] = f"one that was made before; another: {create_token}"
    if teams:
        facts["teams"] = ", ".join(teams)
    if settings.store is not None:
        facts["store"] = str(settings.store)
    if settings.engine is not None:
        facts["engine"] = str(settings.engine)
    facts["page"] = page_address(settings, port, "")
    journal = settings.store or settings.data / "main" / "runs.db"
    facts["its runs"] = shlex.join(("chargehand", "runs", *journal_words(journal)))
    if settings.store is None:
        shown_here = shlex.join(("chargehand", "run", *journal_words(journal)))
        facts["command line"] = f"its runs are in {USUAL_JOURNAL}, not here; to show one here: {shown_here} ..."
    at = f":{password}@{reached}" if password else reached
    facts["letta-client"] = f"LETTA_BASE_URL=http://{at}:{port}"
    facts["OpenAI clients"] = f"OPENAI_BASE_URL=http://{reached}:{port}/v1  OPENAI_API_KEY={password or 'any'}"
    for api in apis:
        facts[api.name] = "  ".join(f"http://{reached}:{port}{prefix}" for prefix in api.prefixes)
    lines = [f"{name:16}  {value}" for name, value in facts.items()]
    return [f"chargehand listens on http://{host}:{port}", *lines]


# --- tokens

_ACCESS_EXAMPLES = """examples:
  chargehand tokens create --name laptop
  chargehand tokens create --tenant lab --scope read --name board --expires 30d
  chargehand tokens revoke 1f2e3d4c

"""


def add_tokens(parser: ArgumentParser) -> None:
    parser.epilog = _ACCESS_EXAMPLES + (parser.epilog or "")
    add_verbs(parser, _TOKEN_VERBS, "--store", "--data", "--json", "--no-color")


def tokens(options: Namespace) -> int:
    """A server that runs in the same folder heeds it at once. Only the hash of a token is kept."""
    _TOKEN_VERBS[options.what or "list"].function(options, Console(sys.stdout))
    return 0


def _open_keys(options: Namespace, *, create: bool) -> "AbstractContextManager[KeyStore | None]":
    """The tokens in the folder of the server; None where there are none yet, and none are to be made."""
    from chargehand.server.middleware.gate import open_keys  # noqa: PLC0415 - the server is an extra
    from chargehand.server.settings import key_store_url  # noqa: PLC0415 - as above

    file = key_store_url(options.data)
    if options.store is not None:
        return closing(open_keys(options.store))
    return closing(open_keys(file)) if create or file.exists() else nullcontext()


def _list_tokens(options: Namespace, console: Console) -> None:
    with _open_keys(options, create=False) as store:
        rows = [_token_facts(key) for key in store.all()] if store is not None else []
    if options.json:
        console.json(rows)
    elif rows:
        print_table(console, list(rows[0]), [tuple(row.values()) for row in rows])
    else:
        console.line(
            f"there are no tokens in {options.store or options.data} yet; `chargehand tokens create` makes one"
        )


def _create_token(options: Namespace, console: Console) -> None:
    from chargehand.server.middleware.keys import create_key  # noqa: PLC0415 - the server is an extra

    now = time.time()
    expires = None if options.expires is None else now + options.expires
    key, token = create_key(options.tenant, options.name, options.scope, now, expires)
    with _open_keys(options, create=True) as store:
        assert store is not None, "it is made"
        store.add(key)
    if options.json:
        console.json({"token": token, **_token_facts(key)})
    else:
        console.line(token)
        Console(sys.stderr).line(f"token {key.id} of tenant {key.tenant}; it is not shown again", "dim")


def _revoke_token(options: Namespace, console: Console) -> None:
    from chargehand.server.middleware.keys import revoke_key  # noqa: PLC0415 - the server is an extra

    with _open_keys(options, create=False) as store:
        if store is None:
            raise Unknown(f"there are no tokens in {options.data}; --data names another folder")
        key = revoke_key(store, options.id, time.time())
    if options.json:
        console.json(_token_facts(key))
    else:
        console.line(f"revoked: {key.id} of tenant {key.tenant}")


def _token_facts(key: "ApiKey") -> dict[str, str]:
    times = {"created": key.created, "expires": key.expires, "revoked": key.revoked}
    facts = {"id": key.id, "tenant": key.tenant, "scope": key.scope, "name": key.name}
    for name, at in times.items():
        facts[name] = "" if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M")
    return facts


_TOKEN_VERBS = {
    "list": Verb("every token that was made, without what is secret of it", {}, _list_tokens),
    "create": Verb(
        "make a token; it is shown once",
        {
            "--tenant": {"metavar": "NAME", "default": "main", "help": "whose it is (default main)"},
            "--scope": {
                "choices": ("read", "run", "admin"),
                "default": "run",
                "help": "what it is good for; each includes those before it (default run)",
            },
            "--name": {"metavar": "TEXT", "default": "", "help": "what to remember it by"},
            "--expires": {"metavar": "TIME", "type": duration, "help": "how long it is good: 12h, 30d"},
        },
        _create_token,
    ),
    "revoke": Verb(
        "make a token invalid, from now on",
        {"id": {"metavar": "ID", "help": "as `tokens list` shows it"}},
        _revoke_token,
    ),
}
