"""`chargehand watch`: look on while another process drives a run. Nothing is taken over."""

import shlex
import time
from argparse import ArgumentParser, Namespace
from pathlib import Path

from chargehand.cli.arguments import RUN_HELP, add_shared
from chargehand.cli.exit_codes import exit_code
from chargehand.cli.run_session import RunOutput
from chargehand.cli.signals import deferred_interrupts
from chargehand.errors import RunUnknown
from chargehand.journal.protocol import RunRow
from chargehand.journal.store import list_runs, read_run


def add_watch(parser: ArgumentParser) -> None:
    parser.add_argument("name", metavar="RUN", help=RUN_HELP)
    parser.add_argument("--from-seq", metavar="N", type=int, default=0, help="tell what happened from entry N on")
    add_shared(parser, "--jsonl", "--journal", "--no-color")


_LOOK = 0.2
_LEFT = 1.0  # a run that nobody has driven for so long is not going on


def watch(options: Namespace) -> int:
    """Until the run ends, or nobody drives it any more; the exit code is that of the run."""
    run: str = options.name
    output = RunOutput(options, run)
    entries = read_run(options.journal, run)
    first = max(0, min(options.from_seq - 1, len(entries))) if options.from_seq else 0
    output.transcript.catch_up(run, entries[:first])
    output.show(entries[first:])
    last_seq = len(entries)
    idle = 0.0
    with deferred_interrupts() as raise_pressed:  # or a picture would be cut in two
        try:
            while output.transcript.state.ended is None and idle < _LEFT:
                time.sleep(_LOOK)
                raise_pressed()
                row = _find_row(options.journal, run)
                idle = 0.0 if row.held or row.seq > last_seq else idle + _LOOK
                if row.seq > last_seq:
                    more = read_run(options.journal, run, after=last_seq)
                    output.show(more)
                    last_seq = more[-1].seq
                output.draw()
        finally:
            output.stop(keep=True)
    return _close(output, run)


def _find_row(journal: Path, run: str) -> RunRow:
    for row in list_runs(journal):
        if row.run == run:
            return row
    raise RunUnknown(run)


def _close(output: RunOutput, run: str) -> int:
    state = output.transcript.state
    output.close()
    if (end := state.ended) is not None:
        return exit_code(end.ending, end.reason)
    output.console.line(f"nobody drives it; go on: chargehand resume {shlex.quote(run)}", "warn")
    return 4 if state.input is not None else 1
