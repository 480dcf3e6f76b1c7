"""An evaluation in words: progress while cases are tried, then measures, tables, advice, changes and gates."""

import asyncio
from collections.abc import Sequence

import msgspec

from chargehand.cli.console import Console, clean, clean_json, short
from chargehand.cli.phrases import counted
from chargehand.cli.table import table
from chargehand.evals.auditing import Audit
from chargehand.evals.cases import Dataset
from chargehand.evals.gates import figure
from chargehand.evals.rounds import Progress
from chargehand.evals.scores import Change, Measure, Part, Report, Score

_FAILED = 20  # cases that are shown with what was wrong
_PROOF = 160  # characters of what a journal says
_WIDEST = 13  # columns of a matrix that are shown
_SECONDS = 10.0  # between two lines that say how far it is


class Told(Progress):
    """A line for each case that did not pass, as soon as it is known, and how far it is every few seconds.

    What was told is kept: it is all there is when somebody stops the evaluation. `lines` is for programs: they get a
    line of JSON for each result, with how far it is.
    """

    def __init__(self, console: Console, lines: Console | None = None, seconds: float = _SECONDS) -> None:
        self.kept: dict[str, list[Score]] = {}
        self._console, self._lines, self._seconds = console, lines, seconds
        self._cases = self._ticks = 0

    def begun(self, datasets: Sequence[Dataset]) -> None:
        self._cases = sum(len(one.cases) for one in datasets)
        self.kept = {one.name: [] for one in datasets}
        self._far()
        self._again()

    def scored(self, dataset: str, score: Score) -> None:
        self.kept[dataset].append(score)
        self._far(dataset=dataset, score=score)
        if not score.passed:
            word = "not tried" if score.error else "failed"
            self._console.line(f"{self._count:4d}  {score.kind}  {word}  {short(score.case, 80)}", "dim")

    @property
    def _count(self) -> int:
        return sum(map(len, self.kept.values()))

    @property
    def _passed(self) -> int:
        return sum(one.passed for found in self.kept.values() for one in found)

    @property
    def _all(self) -> int:
        """A case of a verifier has several results, so there may be more of them than cases."""
        return max(self._count, self._cases)

    def _far(self, **more: object) -> None:
        if self._lines is None:
            return
        told = {"tried": self._count, "passed": self._passed, "cases": self._all, **more}
        self._lines.line(clean_json(msgspec.json.encode(told).decode()))

    def _again(self) -> None:
        """It ends with its loop."""
        asyncio.get_running_loop().call_later(self._seconds, self._tick)

    def _tick(self) -> None:
        self._ticks += 1
        words = f"of {self._all}, {self._passed} passed, {self._ticks * self._seconds:g} s"
        self._console.line(f"{self._count:4d}  {words}", "dim")
        self._again()


def show(console: Console, report: Report) -> None:
    """The whole report."""
    if report.notice:
        console.line(f"notice: {clean(report.notice)}", "dim")
    for part in report.parts:
        _part(console, part)
    for text in report.warnings:
        console.line(f"warning: {clean(text)}", "warn")
    for change in report.changes:
        _change(console, change)
    for one in report.gates:
        sign = ">=" if one.better == "more" else "<="
        said = f"gate: {one.dataset} {one.kind}: {one.measure} {figure(one.measure, one.value)} {sign} {one.wanted:g}"
        why = f" ({clean(one.why)})" if one.why else ""
        console.line(f"{clean(said)}: {'held' if one.held else 'NOT held'}{why}", "good" if one.held else "bad")
    if report.stopped:
        console.line(f"stopped: {clean(report.stopped)}", "bad")


def _part(console: Console, part: Part) -> None:
    passed = sum(one.passed for one in part.scores)
    console.line(f"{clean(part.dataset)}: {part.kind}: {passed} of {len(part.scores)} passed", "bold")
    table(console, ("measure", "is", "95 %", "cases"), [_measure(one) for one in part.measures])
    for one in part.tables:
        console.line()
        console.line(clean(one.title), "bold")
        if one.heat and len(one.heads) > _WIDEST:
            console.line(f"too wide to be shown here ({len(one.heads) - 1} columns): --html FILE shows it")
        else:
            table(console, one.heads, one.rows)
    wrong = [one for one in part.scores if not one.passed]
    if wrong:
        console.line()
    for one in wrong[:_FAILED]:
        console.line(f"failed: {short(one.case, 70)}: {clean('; '.join(one.why))}", "bad")
    if len(wrong) > _FAILED:
        console.line(f"and {len(wrong) - _FAILED} more: --json or --html shows all")
    for text in part.warnings:
        console.line(f"warning: {clean(text)}", "warn")
    for text in part.advice:
        console.line(f"advice: {clean(text)}", "warn")
    console.line()


def _measure(one: Measure) -> tuple[str, ...]:
    interval = f"{figure(one.name, one.low)} to {figure(one.name, one.high)}" if one.known else ""
    return one.name, figure(one.name, one.value), interval, str(one.count)


def _change(console: Console, one: Change) -> None:
    tone = {"better": "good", "worse": "bad"}.get(one.verdict, "plain")
    figures = f"{figure(one.measure, one.before)} → {figure(one.measure, one.now)}"
    interval = f"{one.low:+.4g} to {one.high:+.4g} over {one.count} cases"
    line = f"since the baseline: {one.dataset} {one.kind}: {one.measure} {figures}, {one.verdict} ({interval})"
    console.line(clean(line), "good" if tone == "good" else "bad" if tone == "bad" else "plain")
    for words, cases in (("lost", one.lost), ("won", one.won)):
        for case in cases[:_FAILED]:
            console.line(f"  {words}: {short(case, 80)}")


def show_audit(console: Console, found: Audit) -> None:
    """What was found in each run, then how often each mode occurs."""
    for run in found.runs:
        for one in run.findings:
            where = f" {clean(one.task)}:" if one.task else ""
            done = " (prevented)" if one.prevented else ""
            proof = f" ({short(one.evidence, _PROOF)})" if one.evidence else ""
            text = f"{clean(run.run)}: MAST {one.mode}{done}:{where} {clean(one.message)}{proof}"
            console.line(text, "plain" if one.prevented else "warn")
    if not found.modes:
        console.line(f"{counted(len(found.runs), 'run')}: nothing was found", "good")
        return
    console.line()
    rows = [(one.mode, str(one.runs), str(one.found), str(one.prevented)) for one in found.modes]
    table(console, ("mode", "runs", "found", "prevented"), rows)
