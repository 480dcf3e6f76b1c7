"""The verb that checks a team file: one line a finding, exit 0 or 2."""

import re
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from chargehand.cli.arguments import add_shared
from chargehand.cli.console import Console, clean, short
from chargehand.config.source import near
from chargehand.errors import Invalid

if TYPE_CHECKING:
    from chargehand.config.explain import Description, WorkerLine


def add_check(parser: ArgumentParser) -> None:
    add_shared(parser, "--team")
    parser.add_argument("--schema", action="store_true", help="print the JSON Schema of team files, for editors")
    words = "say where each value comes from; with a KEY such as workers.*.tools, also what it means"
    parser.add_argument("--explain", metavar="KEY", nargs="?", const="", help=words)
    parser.add_argument("--strict", action="store_true", help="warnings count as errors")
    add_shared(parser, "--json")


def check(options: Namespace) -> int:
    """Look at a team file from all sides."""
    from chargehand.config.explain import describe  # noqa: PLC0415 - --help and completion must not wait for it

    console = Console(sys.stdout)
    if options.schema:
        from chargehand.config.keys import json_schema  # noqa: PLC0415 - as above

        console.json(json_schema())
        return 0
    key: str | None = options.explain
    told = describe(options.team)
    if key:
        _narrow(told, key)
    stopped = told.findings if options.strict else told.errors
    if options.json:
        console.json(_document(told, explained=key is not None))
        return 2 if stopped else 0
    for finding in told.findings:
        tone, word = ("bad", "error") if finding.grave or options.strict else ("warn", "warning")
        console.line(f"{word}: {clean(str(finding))}", tone)
    if key is not None:
        _explain(console, told, key)
    _sum_up(Console(sys.stderr), told, stopped=bool(stopped))
    return 2 if stopped else 0


def _document(told: "Description", *, explained: bool) -> dict[str, object]:
    fields = msgspec.to_builtins(told)
    if not explained:
        del fields["values"]
    return {"ok": not told.errors, **fields}


def _narrow(told: "Description", key: str) -> None:
    """Leave only what stands at this key or beneath it. A star is any name."""
    from chargehand.config.keys import is_known, paths  # noqa: PLC0415 - as above

    used = any(one.path.startswith((f"{key}.", f"{key}[")) for one in told.values)  # a name may have dots in it
    if not used and not is_known(key):
        hint = near(key, paths()) or "; those of this file: chargehand check --explain"
        raise Invalid(f"a team file has no key {key!r}{hint}")
    pattern = re.compile(re.escape(key).replace(r"\*", ".+?") + r"(?:[.\[].*)?")
    told.values = [one for one in told.values if pattern.fullmatch(one.path)]


def _explain(console: Console, told: "Description", at: str) -> None:
    from chargehand.config.keys import key_at  # noqa: PLC0415 - as above

    if at and (key := key_at(at)):
        default = f"; default {key.default}" if key.default else ""
        console.line(clean(f"{at}: {key.meaning}"))
        console.line(clean(f"takes: {key.takes}{default}"))
    console.line(f"file: {clean(told.file)} ({told.how})")
    path = max((len(one.path) for one in told.values), default=0)
    value = min(40, max((len(one.value) for one in told.values), default=0))
    for one in told.values:
        console.line(f"{clean(one.path):{path}}  {short(one.value, value):{value}}  {clean(one.origin)}")


def _sum_up(console: Console, told: "Description", *, stopped: bool) -> None:
    if told.name:
        models = ", ".join(told.models)
        # those of the toolbox that a worker has are tools too, though the file only names them
        tools = {name for one in told.tools for name in one.names}.union(*(one.tools for one in told.workers))
        many = f"{_counted(len(told.workers), 'worker')}, {_counted(len(tools), 'tool')}"
        if told.memory is not None:
            blocks = len(told.memory.blocks)
            archives = len(told.memory.archives)
            many += f"; memory: {_counted(blocks, 'block')}, {_counted(archives, 'archive')}"
        console.line(clean(f"team {told.name}: {many}; models: {models}"))
        _tell_teams(console, told.workers)
    errors = len(told.errors)
    warnings = len(told.findings) - len(told.errors)
    verdict = f"{_counted(errors, 'error')}, {_counted(warnings, 'warning')}" if told.findings else "all is well"
    console.line(clean(f"{told.file}: {verdict}"), "bad" if stopped else "good")


def _tell_teams(console: Console, workers: "Sequence[WorkerLine]", indent: str = "  ") -> None:
    """Which workers are teams, and who is in them."""
    for one in workers:
        if one.team:
            names = ", ".join(each.name for each in one.inside)
            many = _counted(len(one.inside), "worker")
            console.line(clean(f"{indent}{one.name} is a team of {many} in {one.team}: {names}"))
            _tell_teams(console, one.inside, f"{indent}  ")


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
