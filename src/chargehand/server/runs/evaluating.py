"""Evaluations under way: `chargehand eval` in a process of its own, and what its report says.

What foreign graders do to their process, and how long cases keep a processor busy, is so nothing to the server. Whoever
calls names no files: they are those beside the team's file, and belong to who runs the server.
"""

import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
from msgspec import Struct, structs

from chargehand.config.hidden import for_children
from chargehand.server.runs.eval_shapes import EvalLine, EvalShown, FailedCase, Figure, Figures, GateShown, Kind
from chargehand.terms.policy import Instant, Seconds

LONGEST: Seconds = 3600.0
_AT_ONCE = 2  # cases; the server needs a processor too
_MOST = 16 * 1024 * 1024  # bytes of a report
_SAID = 2000  # characters of what a process said at last
_PATIENCE: Seconds = 2.0
_UNDER = 6  # how `chargehand eval` ends where a gate was not reached


class _Score(Struct, frozen=True):
    case: str
    passed: bool
    why: tuple[str, ...] = ()
    error: bool = False


class _Part(Struct, frozen=True):
    dataset: str
    kind: Kind
    scores: tuple[_Score, ...]
    measures: tuple[Figure, ...] = ()


class _Report(Struct, frozen=True):
    """As much of a report as is told apart from it."""

    parts: tuple[_Part, ...]
    gates: tuple[GateShown, ...] = ()


class NotEvaluated(Exception):
    """Why there is no report."""


async def evaluated(file: Path, line: EvalLine, model: str) -> tuple[bytes, str]:
    """The report on the team of this file, and what is wrong with it; NotEvaluated where there is none.

    Whoever stops waiting ends the process, and all it has started.
    """
    with TemporaryDirectory(prefix="chargehand-eval-") as folder:
        report, said = Path(folder, "report.json"), Path(folder, "said")
        words = ["eval", f"--team={file}", "--json", "--quiet", f"--at-once={_AT_ONCE}", f"--output={report}"]
        words += [f"--model={model}"] if model else []
        words += [*(f"--kind={one}" for one in line.kinds), *(f"--gate={one}" for one in line.gate)]
        code = await _ended(words, said)
        return await asyncio.to_thread(_read, report, code, _last_of(said, file.parent))


def _read(report: Path, code: int, last: str) -> tuple[bytes, str]:
    if not report.is_file():
        raise NotEvaluated(last or f"the evaluation ended with {code} and said nothing")
    if report.stat().st_size > _MOST:
        raise NotEvaluated(f"the report has more than {_MOST} bytes; ask for fewer kinds of cases at once")
    return report.read_bytes(), "" if code in (0, _UNDER) else last or f"the evaluation ended with {code}"


async def _ended(words: list[str], said: Path) -> int:
    with said.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "chargehand", *words, stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL, stderr=errors, start_new_session=True, env=for_children(),
        )  # fmt: skip
    try:
        async with asyncio.timeout(LONGEST):
            return await process.wait()
    except TimeoutError:
        raise NotEvaluated(f"it took longer than {LONGEST:g} s; ask for fewer kinds of cases at once") from None
    finally:
        await _cut(process)


async def _cut(process: asyncio.subprocess.Process) -> None:
    """End a process that is still there with all it has started; first so that it can clear away its files."""
    for sign in (signal.SIGINT, signal.SIGKILL):
        if process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, sign)  # it leads a group of its own
        try:
            async with asyncio.timeout(_PATIENCE):
                await process.wait()
        except TimeoutError:
            continue
        except asyncio.CancelledError:  # asked again: at once
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise


def _last_of(said: Path, folder: Path) -> str:
    """What a process said at last, without where the team's files lie: that is not for callers."""
    text = said.read_bytes()[-4 * _SAID :].decode(errors="replace").replace(f"{folder}/", "")
    return text.strip().removeprefix("chargehand: ")[-_SAID:]


def told(line: EvalLine, report: bytes, wrong: str, now: Instant) -> EvalShown:
    """An evaluation that has ended with a report."""
    try:
        read = msgspec.json.decode(report, type=_Report)
    except (msgspec.DecodeError, UnicodeError) as error:
        return failed(line, f"the report cannot be read: {error}", now)
    figures = tuple(
        Figures(one.dataset, one.kind, len(one.scores), sum(score.passed for score in one.scores), one.measures)
        for one in read.parts
    )
    unmet = tuple(
        FailedCase(one.dataset, one.kind, score.case, score.why, score.error)
        for one in read.parts
        for score in one.scores
        if not score.passed
    )
    line = structs.replace(
        line, state="failed" if wrong else "done", ended=now, why=wrong,
        held=all(one.held for one in read.gates) if read.gates else None,
        cases=sum(one.cases for one in figures), passed=sum(one.passed for one in figures),
    )  # fmt: skip
    return EvalShown(line, figures, unmet, read.gates, msgspec.json.decode(report))


def failed(line: EvalLine, why: str, now: Instant | None) -> EvalShown:
    return EvalShown(structs.replace(line, state="failed", why=why, ended=now))
