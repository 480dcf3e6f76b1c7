"""Another process that uses a journal. It is forked from one that has imported all it needs."""

import asyncio
import os
import signal
import sys
import warnings
from pathlib import Path

from chargehand.errors import Refused, StoreError
from chargehand.journal.store import open_journal
from chargehand.store_url import StoreUrl
from tests.cli.forked import Forked
from tests.stores.samples import noted

ROOT = Path(__file__).parents[2]
MANY = 50
"""The entries of a run that `append_many` writes."""


class Other:
    """Another process: it opens the journal, and appends when told to or without end (`serve`, `pour`)."""

    def __init__(self, path: StoreUrl, manner: str = "serve") -> None:
        given, self._input = os.pipe()
        output, taken = os.pipe()
        code = f"from tests.stores.other_process import main; main({str(path)!r}, {manner!r})"
        streams = (given, taken, 2)
        self.process = Forked((), folder=ROOT, environment=os.environ, streams=streams, code=code)
        os.close(given)
        os.close(taken)
        self._output = os.fdopen(output)

    def hear(self) -> str:
        return self._output.readline().strip()

    def send(self, word: str) -> None:
        os.write(self._input, f"{word}\n".encode())

    def tell(self, word: str) -> str:
        self.send(word)
        return self.hear()

    def leave(self) -> None:
        """Tell it that nothing more will be said."""
        os.close(self._input)
        self._input = -1

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        if self._input >= 0:
            self.leave()
        self._output.close()


def forked() -> int:
    """A child that has all our files and does nothing."""
    warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of a fork beside threads
    child = os.fork()
    if child == 0:
        os.close(1)
        signal.pause()
    return child


async def serve(path: str) -> None:
    journal = await open_journal(path)
    try:
        lease = await journal.claim("r", new=True)
    except Refused as error:
        print(type(error).__name__, error, flush=True)
        return
    print("open", flush=True)
    while command := await asyncio.to_thread(sys.stdin.readline):
        try:
            if command.strip() == "fork":
                print(forked(), flush=True)
                continue
            await journal.append(lease, [noted(lease.seq + 1, "by the other")])
        except StoreError as error:
            print(type(error).__name__, flush=True)
        else:
            print("done", lease.seq, flush=True)
    await journal.close()


async def append_many(path: str, run: str) -> None:
    """A run of its own, beside those of others."""
    journal = await open_journal(path)
    print("open", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    lease = await journal.claim(run, new=True)
    for seq in range(1, MANY + 1):
        await journal.append(lease, [noted(seq, run)])
    print("done", lease.seq, flush=True)
    await journal.close()


async def pour(path: str) -> None:
    """Append without end, and say each time what is durable."""
    journal = await open_journal(path)
    known = {row.run for row in await journal.runs()}
    lease = await journal.claim("r", new="r" not in known)
    print("open", flush=True)
    while True:
        await journal.append(lease, [noted(lease.seq + 1)])
        print(lease.seq, flush=True)


def main(path: str, manner: str) -> None:
    if manner == "pour":
        asyncio.run(pour(path))
    elif manner == "serve":
        asyncio.run(serve(path))
    else:
        asyncio.run(append_many(path, manner))
