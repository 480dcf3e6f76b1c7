"""Teams with a memory for the tests of `chargehand memory`, and how its commands are called."""

import json
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import BytesIO, TextIOWrapper
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

from chargehand.cli.main import main
from tests.cli.commands import Done, chargehand
from tests.config.files import write

MEMORY = Path(".chargehand/memory.db")
TEAM = """\
version: 1
name: desk
memory:
  blocks:
    guidelines: {value: "Cite every claim.", description: How we work., limit: 2000, trusted: true}
    notes: {share: append}
  archives:
    findings: {description: What we found., embed: words}
    papers: {embed: words, share: read}
workers:
  ann: {description: Reads., remembers: true, tags: [reading, fast], blocks: {notes: write}}
  bob: {description: Writes., tags: [writing, fast], blocks: {notes: none}}
"""


def desk(folder: Path, text: str = TEAM) -> Path:
    """A folder with a team that has a memory."""
    (folder / ".git").mkdir()
    write(folder, text)
    return folder


def memory(folder: Path, *words: str | Path, given: str = "", **more: str) -> Done:
    """One command in a process of its own."""
    return chargehand(folder, "memory", *words, given=given, **more)


def here_and_now(folder: Path, *words: str | Path, given: str = "") -> Done:
    """The same command in this process: there are many of them, and starting one takes longer than what it does."""
    streams = [TextIOWrapper(BytesIO(), encoding="utf-8", errors="surrogateescape") for _ in range(2)]
    source = sys.stdin
    sys.stdin = TextIOWrapper(BytesIO(given.encode()), encoding="utf-8")
    try:
        with chdir(folder), redirect_stdout(streams[0]), redirect_stderr(streams[1]):
            code = main(["memory", *map(str, words)])
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    finally:
        sys.stdin = source
    for stream in streams:
        stream.flush()
    out, err = (stream.buffer.getvalue().decode(errors="surrogateescape") for stream in streams)
    return CompletedProcess([str(word) for word in words], code, out, err)


def done(folder: Path, *words: str | Path, given: str = "") -> str:
    """What a command that must work has said: data first, then what is good to know."""
    found = here_and_now(folder, *words, given=given)
    assert found.returncode == 0, found.stderr
    return found.stdout + found.stderr


def told(folder: Path, *words: str | Path) -> Any:
    """The JSON document of a command that must work."""
    found = here_and_now(folder, *words, "--json")
    assert (found.returncode, found.stderr) == (0, "")
    return json.loads(found.stdout)
