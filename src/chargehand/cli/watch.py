"""`chargehand watch`: follow a run that another process drives. And showing a finished run again, for `replay`."""

import asyncio
import shlex
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Coroutine, Sequence
from pathlib import Path

from chargehand.cli.arguments import RUN_HELP, add_shared
from chargehand.cli.console import Console
from chargehand.cli.exit_codes import exit_code
from chargehand.cli.signals import StopSignals
from chargehand.cli.transcript import Transcript
from chargehand.engine.events import Entry
from chargehand.errors import RunUnknown
from chargehand.journal.protocol import RunRow
from chargehand.journal.store import list_runs, read_run

_LOOK = 0.2  # seconds between two looks at the journal
_IDLE = 1.0  # a run that no process has driven for so long is not going on
_MAX_PAUSE = 2.0  # seconds between two entries that are shown again
_PICTURE = 0.125


def add_watch(parser: ArgumentParser) -> None:
    parser.add_argument("name", metavar="RUN", help=RUN_HELP)
    parser.add_argument("--from-seq", metavar="N", type=int, default=0, help="show what happened from entry N on")
    add_shared(parser, "--jsonl", "--journal", "--no-color")


def watch(options: Namespace) -> int:
    """Until the run ends, or no process drives it any more; the exit code is that of the run."""
    transcript = Transcript.of_command(options, options.name, Console(sys.stdout))
    _run(transcript, _follow(transcript, options))
    end = transcript.state.ended
    if end is not None:
        return exit_code(end.ending, end.reason)
    resume = f"chargehand resume {shlex.quote(options.name)}"
    transcript.console.line(f"no process drives it; go on: {resume}", "warn")
    return 4 if transcript.state.input is not None else 1


async def _follow(transcript: Transcript, options: Namespace) -> None:
    run: str = options.name
    entries = read_run(options.journal, run)
    first = max(0, min(options.from_seq - 1, len(entries)))
    transcript.catch_up(run, entries[:first])
    transcript.show(run, entries[first:])
    idle = 0.0
    while transcript.state.ended is None and idle < _IDLE:
        await asyncio.sleep(_LOOK)
        row = _find_row(options.journal, run)
        idle = 0.0 if row.held or row.seq > transcript.state.seq else idle + _LOOK
        if row.seq > transcript.state.seq:
            transcript.show(run, read_run(options.journal, run, after=transcript.state.seq))
        if transcript.live is not None:
            transcript.live.draw()


def _find_row(journal: Path, run: str) -> RunRow:
    for row in list_runs(journal):
        if row.run == run:
            return row
    raise RunUnknown(run)


def show_again(options: Namespace, entries: Sequence[Entry]) -> int:
    """A run as it went, at --speed."""
    now = entries[0].at
    transcript = Transcript.of_command(options, options.name, Console(sys.stdout), lambda: now)
    usual = 4.0 if transcript.console.terminal else 0.0
    speed: float = usual if options.speed is None else options.speed

    async def play() -> None:
        nonlocal now
        for entry in entries:
            pause = min(_MAX_PAUSE, (entry.at - now) / speed) if speed > 0 else 0.0
            pictures = int(pause / _PICTURE)
            step = (entry.at - now) / (pictures + 1)
            for _ in range(pictures):
                await asyncio.sleep(_PICTURE)
                now += step
                if transcript.live is not None:
                    transcript.live.draw()
            now = entry.at
            transcript.show(options.name, [entry])

    _run(transcript, play())
    return 0


def _run(transcript: Transcript, main: Coroutine[None, None, None]) -> None:
    """Show a run to its end. Ctrl-C is raised between two pictures, and leaves a whole one."""
    try:
        with StopSignals() as signals:
            signals.run(main)
    finally:
        if transcript.live is not None:
            transcript.live.stop(keep=True)
    transcript.close()
