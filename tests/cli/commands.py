"""Real commands in real processes, and small scripts for them to play.

`COMMAND` starts a fresh interpreter; `chargehand`, `fed` and `Underway` fork one that has imported everything.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Self

from tests.cli.forked import Forked

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
COMMAND = (sys.executable, "-W", "error", "-m", "chargehand")
JOURNAL = Path(".chargehand/runs.db")
_PATIENCE = 60  # seconds

_NOT_OURS = ("NO_COLOR", "TERM", "PYTHONIOENCODING", "COLUMNS", "LINES")  # whoever runs the tests may set them

Done = subprocess.CompletedProcess[str]


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in _NOT_OURS}
    return {**kept, "PYTHONUTF8": "1", **more}


def chargehand(folder: Path, *words: str | Path, given: str = "", first: str = "", **more: str) -> Done:
    """Run one command in a folder, to its end. Its process runs the code `first` before."""
    with TemporaryFile() as source:
        source.write(given.encode(errors="surrogateescape"))
        source.seek(0)
        return _run(folder, source, *words, first=first, **more)


def fed(folder: Path, source: Path, *words: str) -> Done:
    """The same with a file as standard input: it need not be text."""
    with source.open("rb") as file:
        return _run(folder, file, *words)


def python(folder: Path, code: str) -> Done:
    """Run Python code in a folder, to its end."""
    with Path(os.devnull).open("rb") as nothing:
        return _run(folder, nothing, code=code)


def _run(
    folder: Path, source: IO[bytes], *words: str | Path, code: str | None = None, first: str = "", **variables: str
) -> Done:
    with TemporaryFile() as output, TemporaryFile() as errors:
        streams = source.fileno(), output.fileno(), errors.fileno()
        process = Forked(
            words, folder=folder, environment=environment(**variables), streams=streams, code=code, first=first
        )
        try:
            status = process.wait(timeout=_PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        return Done(list(words), status, _text(output), _text(errors))


class Speaking:
    """One command that is still running, of which the test reads what it prints. It ends with the block."""

    def __init__(self, folder: Path, *words: str | Path, **variables: str) -> None:
        source, target = os.pipe()
        with Path(os.devnull).open("r+b") as nothing:
            streams = nothing.fileno(), target, nothing.fileno()
            self.process = Forked(words, folder=folder, environment=environment(**variables), streams=streams)
        os.close(target)
        self.output = os.fdopen(source)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        """End it with SIGKILL, unless it has ended."""
        self.process.kill()
        self.process.wait()
        self.output.close()


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode().replace("\r\n", "\n").replace("\r", "\n")


class Underway:
    """One command that is still running. Its progress goes to a file, so that nothing blocks it."""

    def __init__(self, folder: Path, *words: str | Path) -> None:
        self.heard = folder / "progress.txt"
        with Path(os.devnull).open("r+b") as nothing, self.heard.open("wb") as progress:
            streams = nothing.fileno(), nothing.fileno(), progress.fileno()
            self.process = Forked(words, folder=folder, environment=environment(), streams=streams)

    def until(self, words: str) -> None:
        """Wait until it has said this."""
        while words not in self.heard.read_text():
            try:
                self.process.wait(timeout=0.02)
            except subprocess.TimeoutExpired:
                continue
            assert words in self.heard.read_text(), self.heard.read_text()

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def end(self) -> int:
        return self.process.wait(timeout=20)


def task(name: str, *after: object, worker: str = "ann", **more: object) -> dict[str, object]:
    said = f"carry out the part called {name} of the report"
    return {"id": name, "instruction": said, "worker": worker, "after": list(after), **more}


def script(folder: Path, *tasks: Mapping[str, object], **more: object) -> Path:
    """A script file with these tasks for a worker named ann."""
    story = {
        "goal": "a report",
        "roster": {"agents": [{"name": "ann", "estimate": {"calls": 1}}]},
        "policy": {"retry": {"base": 0.01}},
        "seconds": 60,
        "plan": {"tasks": list(tasks)},
        **more,
    }
    path = folder / "script.json"
    path.write_text(json.dumps(story))
    return path


def printed_command(output: str) -> list[str]:
    """Return the words after the program's name in the command that answers a question, as they were printed."""
    line = next(line for line in output.splitlines() if line.strip().startswith("go on"))
    command = line.partition("chargehand ")[2].partition("  (")[0]
    return shlex.split(command)


def quick_example(folder: Path, name: str, factor: float = 0.05) -> Path:
    """Copy an example script to a folder, with shorter work; the order of its events stays."""
    story = json.loads((EXAMPLES / name).read_text())
    for part in (*story["roster"]["agents"], *(move for moves in story["moves"].values() for move in moves)):
        if "seconds" in part:
            part["seconds"] *= factor
    path = folder / name
    path.write_text(json.dumps(story))
    return path


def run_of(done: Done) -> str:
    """The name of the run a command told of."""
    return next(line.split()[1] for line in done.stderr.splitlines() if line.startswith("run: "))
