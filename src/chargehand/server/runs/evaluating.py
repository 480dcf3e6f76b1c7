"""Evaluations under way: `chargehand eval` in a process of its own, which can be ended at any time.

What foreign graders do to their process, and how long cases keep a processor busy, is so nothing to the server. Whoever
calls names no files: they are those beside the team's file, and belong to who runs the server.
"""

import asyncio
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec import structs

from chargehand.config.hidden import for_children
from chargehand.server.runs.eval_reports import Ended, Far, far, told
from chargehand.server.runs.eval_shapes import EvalLine, EvalShown
from chargehand.terms.policy import Seconds

LONGEST: Seconds = 3600.0
STOPPED = "the server stopped"
_AT_ONCE = 2  # cases; the server needs a processor too
_SAID = 2000  # characters of what a process said at last
_PATIENCE: Seconds = 2.0  # at a stop of the server, which waits for it
_LONGER: Seconds = 10.0  # for one that is cancelled: it has its report to write
_WHOLE = (0, 6)  # how `chargehand eval` ends with every case tried; 6: a gate was not reached


class Trial:
    """One evaluation. `over` is set once what came of it is kept, or could not be."""

    def __init__(self, line: EvalLine) -> None:
        self.line = line
        self.over = asyncio.Event()
        self._cancelled = asyncio.Event()
        self._why = ""
        self._results: Path | None = None
        self._far = Far()

    def stands(self) -> EvalLine:
        """The line, with how far it is."""
        self._far = (None if self._results is None else far(self._results)) or self._far
        return structs.replace(self.line, tried=self._far.tried, passed=self._far.passed, cases=self._far.cases)

    def cancel(self, why: str) -> None:
        """Have it end, with the results it has by then. Who asks first says why."""
        if not self._cancelled.is_set():
            self._why = why
            self._cancelled.set()

    async def carried(self, file: Path, model: str) -> EvalShown:
        """What came of trying the team of this file.

        Whoever stops waiting ends the process, and all it has started; the results until then come back all the same.
        """
        with TemporaryDirectory(prefix="chargehand-eval-") as name:
            folder = Path(name)
            report, said = folder / "report.json", folder / "said"
            self._results = folder / "results.jsonl"
            words = ["eval", f"--team={file}", "--jsonl", "--quiet", f"--at-once={_AT_ONCE}", f"--output={report}"]
            words += [f"--model={model}"] if model else []
            words += [*(f"--kind={one}" for one in self.line.kinds), *(f"--gate={one}" for one in self.line.gate)]
            try:
                code = await self._ended(words, folder, self._results, said)
                ended = self._how(code, _last_of(said, file.parent), found=report.is_file())
            except TimeoutError:
                why = f"it took longer than {LONGEST:g} s; ask for fewer kinds of cases at once"
                ended = Ended("failed", time.time(), why)
            except asyncio.CancelledError:  # the last thing it does is to tell what it has
                ended = Ended("failed", time.time(), STOPPED)
            return await asyncio.to_thread(told, self.line, report, self._results, ended)

    def _how(self, code: int, last: str, *, found: bool) -> Ended:
        now = time.time()
        if code in _WHOLE and found:
            return Ended("done", now)
        if self._cancelled.is_set():
            return Ended("cancelled", now, self._why)
        return Ended("failed", now, last or f"the evaluation ended with {code} and said nothing")

    async def _ended(self, words: list[str], folder: Path, results: Path, said: Path) -> int:
        # what it leaves behind when it is killed goes with our folder
        surroundings = {**for_children(), "TMPDIR": str(folder)}
        with results.open("wb") as lines, said.open("wb") as errors:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "chargehand", *words, stdin=asyncio.subprocess.DEVNULL,
                stdout=lines, stderr=errors, start_new_session=True, env=surroundings,
            )  # fmt: skip
        try:
            async with asyncio.timeout(LONGEST), asyncio.TaskGroup() as jobs:
                watch = jobs.create_task(self._cut_when_cancelled(process))
                code = await process.wait()
                watch.cancel()
                return code
        finally:
            await _cut(process, _PATIENCE)

    async def _cut_when_cancelled(self, process: asyncio.subprocess.Process) -> None:
        await self._cancelled.wait()
        await _cut(process, _LONGER)


async def _cut(process: asyncio.subprocess.Process, patience: Seconds) -> None:
    """End a process that is still there with all it has started; first so that it can write what it has."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        if process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, sign)  # it leads a group of its own
        try:
            async with asyncio.timeout(patience):
                await process.wait()
        except TimeoutError:
            continue
        except asyncio.CancelledError:  # asked again: at once
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            with suppress(TimeoutError):
                async with asyncio.timeout(_PATIENCE):
                    await process.wait()  # it still writes to our folder until it is gone
            raise


def _last_of(said: Path, folder: Path) -> str:
    """What a process said at last, without where the team's files lie: that is not for callers."""
    with said.open("rb") as file:
        file.seek(max(0, said.stat().st_size - 4 * _SAID))
        text = file.read(4 * _SAID).decode(errors="replace").replace(f"{folder}/", "")
    return text.strip().removeprefix("chargehand: ")[-_SAID:]
