"""The verb that checks a team file: one line a finding, exit 0 or 2."""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

import msgspec

from chargehand.cli.console import Console, clean, clean_json, short
from chargehand.config.describe import Description, WorkerLine, describe
from chargehand.config.schema import json_schema


def add_check(parser: ArgumentParser) -> None:
    parser.add_argument("--team", metavar="PATH", help="a team file or its folder (default: the nearest one upwards)")
    parser.add_argument("--schema", action="store_true", help="print the JSON Schema of team files, for editors")
    parser.add_argument("--explain", action="store_true", help="say where each value comes from")
    parser.add_argument("--strict", action="store_true", help="warnings count as errors")
    parser.add_argument("--json", action="store_true", help="one JSON document")


def check(options: Namespace) -> int:
    """Look at a team file from all sides."""
    console = Console(sys.stdout)
    if options.schema:
        console.line(msgspec.json.format(msgspec.json.encode(json_schema()), indent=2).decode())
        return 0
    told = describe(options.team)
    stopped = told.findings if options.strict else told.errors
    if options.json:
        console.line(clean_json(_document(told, explained=options.explain)))
        return 2 if stopped else 0
    for finding in told.findings:
        tone, word = ("bad", "error") if finding.grave or options.strict else ("warn", "warning")
        console.line(f"{word}: {clean(str(finding))}", tone)
    if options.explain:
        _explain(console, told)
    _sum_up(Console(sys.stderr), told, stopped=bool(stopped))
    return 2 if stopped else 0


def _document(told: Description, *, explained: bool) -> str:
    fields = msgspec.to_builtins(told)
    if not explained:
        del fields["values"]
    return msgspec.json.encode({"ok": not told.errors, **fields}).decode()


def _explain(console: Console, told: Description) -> None:
    console.line(f"file: {clean(told.file)} ({told.how})")
    path = max((len(one.path) for one in told.values), default=0)
    value = min(40, max((len(one.value) for one in told.values), default=0))
    for one in told.values:
        console.line(f"{clean(one.path):{path}}  {short(one.value, value):{value}}  {clean(one.origin)}")


def _sum_up(console: Console, told: Description, *, stopped: bool) -> None:
    if told.name:
        models = ", ".join(told.models)
        many = f"{_counted(len(told.workers), 'worker')}, {_counted(sum(len(one.names) for one in told.tools), 'tool')}"
        if told.memory is not None:
            blocks, archives = len(told.memory.blocks), len(told.memory.archives)
            many += f"; memory: {_counted(blocks, 'block')}, {_counted(archives, 'archive')}"
        console.line(clean(f"team {told.name}: {many}; models: {models}"))
        _tell_teams(console, told.workers)
    errors, warnings = len(told.errors), len(told.findings) - len(told.errors)
    verdict = f"{_counted(errors, 'error')}, {_counted(warnings, 'warning')}" if told.findings else "all is well"
    console.line(clean(f"{told.file}: {verdict}"), "bad" if stopped else "good")


def _tell_teams(console: Console, workers: Sequence[WorkerLine], indent: str = "  ") -> None:
    """Which workers are teams, and who is in them."""
    for one in workers:
        if one.team:
            names = ", ".join(each.name for each in one.inside)
            many = _counted(len(one.inside), "worker")
            console.line(clean(f"{indent}{one.name} is a team of {many} in {one.team}: {names}"))
            _tell_teams(console, one.inside, f"{indent}  ")


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
