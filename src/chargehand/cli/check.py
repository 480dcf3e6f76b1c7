"""`chargehand check`: a team file from all sides, one line a finding; exit 0 or 2."""

import re
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

import msgspec

from chargehand.cli.arguments import add_shared
from chargehand.cli.console import Console, Tone, print_table, short
from chargehand.cli.format import counted
from chargehand.config.explain import Description, WorkerLine, describe
from chargehand.config.keys import is_known, json_schema, key_at, paths
from chargehand.config.source import near
from chargehand.errors import Invalid

_MAX_VALUE = 40  # characters of a value


def add_check(parser: ArgumentParser) -> None:
    add_shared(parser, "--team")
    parser.add_argument("--schema", action="store_true", help="print the JSON Schema of team files, for editors")
    about = "say where each value comes from; with a KEY such as workers.*.tools, also what it means"
    parser.add_argument("--explain", metavar="KEY", nargs="?", const="", help=about)
    parser.add_argument("--strict", action="store_true", help="warnings count as errors")
    add_shared(parser, "--json", "--no-color")


def check(options: Namespace) -> int:
    """Look at a team file from all sides."""
    console = Console(sys.stdout)
    if options.schema:
        console.json(json_schema())
        return 0
    key: str | None = options.explain
    team = describe(options.team)
    if key:
        _select_values(team, key)
    errors = team.findings if options.strict else team.errors
    code = 2 if errors else 0
    if options.json:
        fields = msgspec.to_builtins(team)
        if key is None:
            del fields["values"]
        console.json({"ok": not team.errors, **fields})
        return code
    for finding in team.findings:
        is_error = finding.grave or options.strict
        console.line(f"{'error' if is_error else 'warning'}: {finding}", "bad" if is_error else "warn")
    if key is not None:
        _explain(console, team, key)
    _summarize(Console(sys.stderr), team, "bad" if errors else "good")
    return code


def _select_values(team: Description, key: str) -> None:
    """Leave only what stands at this key or beneath it. A star is any name."""
    is_used = any(value.path.startswith((f"{key}.", f"{key}[")) for value in team.values)  # a name may have dots in it
    if not is_used and not is_known(key):
        hint = near(key, paths()) or "; those of this file: chargehand check --explain"
        raise Invalid(f"a team file has no key {key!r}{hint}")
    pattern = re.compile(re.escape(key).replace(r"\*", ".+?") + r"(?:[.\[].*)?")
    team.values = [value for value in team.values if pattern.fullmatch(value.path)]


def _explain(console: Console, team: Description, path: str) -> None:
    if path and (key := key_at(path)):
        default = f"; default {key.default}" if key.default else ""
        console.line(f"{path}: {key.meaning}")
        console.line(f"takes: {key.takes}{default}")
    console.line(f"file: {team.file} ({team.how})")
    if not team.values:
        advice = "not shown; mend the errors above first" if team.errors else "none; the file sets nothing at this key"
        console.line(f"values: {advice}", "warn")
        return
    rows = [(value.path, short(value.value, _MAX_VALUE), value.origin) for value in team.values]
    print_table(console, ("key", "value", "origin"), rows)


def _summarize(console: Console, team: Description, tone: Tone) -> None:
    if team.name:
        # those of the toolbox that a worker has are tools too, though the file only names them
        declared = {name for tool in team.tools for name in tool.names}
        tools = declared.union(*(worker.tools for worker in team.workers))
        counts = f"{counted(len(team.workers), 'worker')}, {counted(len(tools), 'tool')}"
        if team.memory is not None:
            archives = counted(len(team.memory.archives), "archive")
            counts += f"; memory: {counted(len(team.memory.blocks), 'block')}, {archives}"
        console.line(f"team {team.name}: {counts}; models: {', '.join(team.models)}")
        _list_nested_teams(console, team.workers)
    errors = len(team.errors)
    verdict = "all is well"
    if team.findings:
        verdict = f"{counted(errors, 'error')}, {counted(len(team.findings) - errors, 'warning')}"
    console.line(f"{team.file}: {verdict}", tone)


def _list_nested_teams(console: Console, workers: Sequence[WorkerLine], indent: str = "  ") -> None:
    """Which workers are teams, and who is in them."""
    for worker in workers:
        if worker.team:
            names = ", ".join(member.name for member in worker.inside)
            count = counted(len(worker.inside), "worker")
            console.line(f"{indent}{worker.name} is a team of {count} in {worker.team}: {names}")
            _list_nested_teams(console, worker.inside, f"{indent}  ")
