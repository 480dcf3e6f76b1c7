"""`chargehand mcp`: what MCP servers offer, what of it was approved (`mcp.lock`), and what differs."""

import asyncio
import difflib
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from chargehand.cli.arguments import TEAM_FILE, Verb, add_verbs, shared, team_source
from chargehand.cli.console import Console, clean, print_table
from chargehand.cli.format import ROOM, counted
from chargehand.config.environment import lookup, secret_values
from chargehand.config.load import load_mcp_servers
from chargehand.errors import Invalid
from chargehand.extras import OfExtra
from chargehand.text.words import did_you_mean
from chargehand.tools.calling import ToolFailed
from chargehand.tools.mcp_client import McpServer
from chargehand.tools.mcp_lock import (
    McpLock,
    PinDifferences,
    PinnedServer,
    PinnedTool,
    approve_tools,
    changed_fields,
    find_differences,
    read_lock,
    write_lock,
)

_DIFFERS = 1
_NAMES = {"names": {"metavar": "SERVER", "nargs": "*", "help": "only these servers (default: all of the team file)"}}
_CHOSEN = {
    "names": {
        "metavar": "SERVER[/TOOL]",
        "nargs": "*",
        "help": "only these, with * for several (default: all of the team file)",
    }
}
_EXAMPLES = """examples:
  chargehand mcp                        what is approved; no server is asked
  chargehand mcp pin                    approve what new servers offer
  chargehand mcp diff                   what is not as it was approved
  chargehand mcp approve docs/search    approve it as it is now
  chargehand mcp serve --team shop      serve a team to an MCP client

"""


def add_mcp(parser: ArgumentParser) -> None:
    parser.epilog = _EXAMPLES + (parser.epilog or "")
    add_verbs(parser, _VERBS, "--team", "--json", "--no-color", team=f"{TEAM_FILE}; of serve also module:attr")


def mcp(options: Namespace) -> int:
    """Call a verb of it; without one, list what was approved."""
    if options.what == "serve":
        return _serve(options)
    servers = load_mcp_servers(options.team)
    if not servers:
        raise Invalid("the team file has no MCP servers; declare them under  mcp_servers:")
    verb = _VERBS[options.what].function if options.what else _list
    return int(verb(options, servers, Console(sys.stdout)))


def _list(options: Namespace, servers: Mapping[str, McpServer], console: Console) -> int:
    """What was approved."""
    lock = _lock_of(servers)
    rows: list[tuple[str, ...]] = []
    for name in servers:
        pinned = lock.servers.get(name)
        if pinned is None:
            rows.append((f"mcp:{name}", "", "nothing approved yet: chargehand mcp pin"))
        else:
            tools = pinned.tools.items()
            rows += [(f"mcp:{name}/{tool}", definition.effect, _summary(definition)) for tool, definition in tools]
    if options.json:
        console.json_line({name: lock.servers.get(name) for name in servers})
    else:
        print_table(console, ("tool", "effect", "what it does"), rows)
    return 0


def _pin(options: Namespace, servers: Mapping[str, McpServer], console: Console) -> int:
    """Approve all tools of servers of which nothing was approved so far."""
    file = _lock_file(servers)
    lock = read_lock(file)
    chosen = _chosen_servers(servers, options.names)
    pinned_now: dict[str, PinnedServer] = {}
    for name, server in chosen.items():
        if name in lock.servers:
            console.line(f"mcp:{name} is pinned already; what changed since: chargehand mcp diff {name}")
            continue
        listed, unfit = _ask(server)
        pinned_now[name] = approve_tools(None, listed, lambda _: True)
        lock = lock.with_server(name, pinned_now[name])
        _show_unfit(console, name, unfit)
    if pinned_now:
        write_lock(file, lock)
    if options.json:
        console.json_line(pinned_now)
        return 0
    for name, pinned in pinned_now.items():
        console.line(f"mcp:{name}: {counted(len(pinned.tools), 'tool')} approved, in {file.name}", "good")
        rows = [(tool, definition.effect, _summary(definition)) for tool, definition in pinned.tools.items()]
        print_table(console, ("tool", "effect", "what it does"), rows)
    return 0


def _diff(options: Namespace, servers: Mapping[str, McpServer], console: Console) -> int:
    """What is not as it was approved; 1 where anything is."""
    lock = _lock_of(servers)
    differences: dict[str, PinDifferences] = {}
    for name, server in _chosen_servers(servers, options.names).items():
        listed, unfit = _ask(server)
        pinned = lock.servers.get(name, PinnedServer(listed.identity))
        differences[name] = find_differences(pinned, listed, unfit)
        if not options.json:
            _show_differences(console, name, pinned, listed, differences[name])
            _show_unfit(console, name, unfit)
    if options.json:
        console.json_line(differences)
    return _DIFFERS if any(differences.values()) else 0


def _approve(options: Namespace, servers: Mapping[str, McpServer], console: Console) -> int:
    """Approve tools as they are now."""
    file = _lock_file(servers)
    lock = read_lock(file) if options.names else _readable_lock(file)
    wanted = [name.removeprefix("mcp:").partition("/") for name in options.names]
    approved: dict[str, PinDifferences] = {}
    for name, server in _chosen_servers(servers, [server for server, _, _ in wanted]).items():
        patterns = [pattern or "*" for server_name, _, pattern in wanted if server_name == name] or ["*"]
        listed, unfit = _ask(server)
        pinned = lock.servers.get(name)
        _check_patterns(name, patterns, {**listed.tools, **({} if pinned is None else pinned.tools)})
        updated = approve_tools(
            pinned, listed, lambda tool, patterns=patterns: any(fnmatchcase(tool, pattern) for pattern in patterns)
        )
        approved[name] = find_differences(pinned or PinnedServer(listed.identity), updated)
        lock = lock.with_server(name, updated)
        _show_unfit(console, name, unfit)
    write_lock(file, lock)
    if options.json:
        console.json_line(approved)
        return 0
    for name, changes in approved.items():
        gone = (f"{tool} (taken out)" for tool in changes.missing)
        identity = (f"the {part} of the server" for part in changes.identity)
        words = ", ".join((*identity, *changes.changed, *changes.new, *gone))
        console.line(f"mcp:{name}: approved: {clean(words) or 'nothing had changed'}", "good")
    return 0


def _serve(options: Namespace) -> int:
    """Serve one client over standard input and output, until it closes them."""
    with OfExtra("mcp serve", "mcp,server"):
        from chargehand.integrations.mcp_server import serve_stdio  # noqa: PLC0415 - the SDK and the server are extras
        from chargehand.server.app import serve_one_client  # noqa: PLC0415 - as above
        from chargehand.server.settings import ServerSettings  # noqa: PLC0415 - as above
    settings = ServerSettings(
        data=options.data,
        store=options.store,
        teams=() if options.team is None else (team_source(options.team),),
        model=options.model or "",
        secrets=secret_values(),
    )
    serve_one_client(settings, lookup, "mcp", serve_stdio)
    return 0


_VERBS = {
    "pin": Verb("approve the tools of servers of which nothing is approved yet", _NAMES, _pin),
    "diff": Verb("show what is not as it was approved; 1 if there is anything", _NAMES, _diff),
    "approve": Verb("approve tools as they are now", _CHOSEN, _approve),
    "serve": Verb("serve the team to an MCP client over pipes", shared("--model", "--store", "--data"), _serve),
}


# --- what is approved, and what is there


def _lock_file(servers: Mapping[str, McpServer]) -> Path:
    return Path(next(iter(servers.values())).lock)


def _lock_of(servers: Mapping[str, McpServer]) -> McpLock:
    return read_lock(_lock_file(servers))


def _readable_lock(file: Path) -> McpLock:
    """What was approved; nothing where the file was changed by hand, so that all is approved anew."""
    try:
        return read_lock(file)
    except Invalid:
        return McpLock()


def _chosen_servers(servers: Mapping[str, McpServer], names: Sequence[str]) -> dict[str, McpServer]:
    wanted = [name.removeprefix("mcp:") for name in names] or list(servers)
    for name in wanted:
        if name not in servers:
            raise Invalid(f"the team file has no MCP server {name!r}; {did_you_mean(name, servers)}")
    return {name: servers[name] for name in wanted}


def _check_patterns(server: str, patterns: Sequence[str], tools: Mapping[str, PinnedTool]) -> None:
    for pattern in patterns:
        if pattern != "*" and not any(fnmatchcase(tool, pattern) for tool in tools):
            raise Invalid(f"mcp:{server} has no tool {pattern!r}; {did_you_mean(pattern, tools)}")


def _ask(server: McpServer) -> tuple[PinnedServer, dict[str, str]]:
    try:
        return asyncio.run(server.listed())
    except ToolFailed as error:
        raise Invalid(f"{error}; see that it runs: {' '.join(server.command) or server.url}") from error


# --- what is shown


def _summary(tool: PinnedTool) -> str:
    return " ".join(tool.description.split())[: 2 * ROOM]


def _show_unfit(console: Console, server: str, unfit: Mapping[str, str]) -> None:
    for name, reason in unfit.items():
        console.line(clean(f"mcp:{server}/{name} cannot be approved: {reason}"), "warn")


def _show_differences(
    console: Console, name: str, pinned: PinnedServer, listed: PinnedServer, differences: PinDifferences
) -> None:
    if not differences:
        console.line(f"mcp:{name} is as it was approved", "good")
        return
    for part, (before, now) in changed_fields(pinned.identity, listed.identity).items():
        console.line(clean(f"mcp:{name}: its {part} was {before!r} and is {now!r}"), "warn")
    for tool in differences.missing:
        now = differences.renamed.get(tool)
        words = f"is called {now} now" if now else "is gone"
        console.line(clean(f"mcp:{name}/{tool} {words}"), "warn")
    for tool, parts in differences.changed.items():
        console.line(clean(f"mcp:{name}/{tool} changed: {', '.join(parts)}"), "warn")
        if tool in listed.tools:
            for line in _diff_lines(pinned.tools[tool], listed.tools[tool]):
                console.line(clean(f"  {line}"))
    for tool in differences.new:
        console.line(clean(f"mcp:{name}/{tool} is new: {_summary(listed.tools[tool])}"), "warn")
    console.line(f"what differs is off; to take it as it is now: chargehand mcp approve {name}")


def _diff_lines(before: PinnedTool, now: PinnedTool) -> Iterator[str]:
    """The lines of a definition that went and came."""
    lines = difflib.unified_diff(_definition(before), _definition(now), lineterm="", n=0)
    return (line for line in lines if not line.startswith(("---", "+++", "@@")))


def _definition(tool: PinnedTool) -> list[str]:
    body = msgspec.json.encode({"schema": tool.schema, "hints": tool.hints}, order="sorted")
    return [*tool.description.splitlines(), *msgspec.json.format(body).decode().splitlines()]
