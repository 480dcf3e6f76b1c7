"""An evaluation in words: progress while cases are tried, then measures, tables, advice, changes and gates."""

from chargehand.cli.console import Console, clean, short
from chargehand.cli.table import table
from chargehand.evals.auditing import Audit
from chargehand.evals.evaluate import Progress
from chargehand.evals.scores import Change, Measure, Part, Report, Score

_FAILED = 20  # cases that are shown with what was wrong
_SHARES = (
    "accuracy",
    "out_of_scope",
    "refused",
    "coverage",
    "caught",
    "false_alarms",
    "confidence",
    "workers",
    "edges",
)


class Told(Progress):
    """A line for each case that did not pass, as soon as it is known, and a count on the way."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._count = 0

    def scored(self, score: Score) -> None:
        self._count += 1
        if not score.passed:
            self._console.line(f"{self._count:4d}  {score.kind}  failed  {short(score.case, 80)}", "dim")


def show(console: Console, report: Report) -> None:
    """The whole report."""
    if report.notice:
        console.line(f"notice: {clean(report.notice)}", "dim")
    for part in report.parts:
        _part(console, part)
    for change in report.changes:
        _change(console, change)
    for one in report.gates:
        sign = ">=" if one.better == "more" else "<="
        said = f"gate: {one.dataset} {one.kind}: {one.measure} {_figure(one.measure, one.value)} {sign} {one.wanted:g}"
        console.line(f"{clean(said)}: {'held' if one.held else 'NOT held'}", "good" if one.held else "bad")


def _part(console: Console, part: Part) -> None:
    passed = sum(one.passed for one in part.scores)
    console.line(f"{clean(part.dataset)}: {part.kind}: {passed} of {len(part.scores)} passed", "bold")
    table(console, ("measure", "is", "95 %", "cases"), [_measure(one) for one in part.measures])
    for one in part.tables:
        console.line()
        console.line(clean(one.title), "bold")
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
    interval = f"{_figure(one.name, one.low)} to {_figure(one.name, one.high)}" if one.known else ""
    return one.name, _figure(one.name, one.value), interval, str(one.count)


def _figure(name: str, value: float) -> str:
    return f"{value:.1%}" if name in _SHARES else f"{value:.4g}"


def _change(console: Console, one: Change) -> None:
    tone = {"better": "good", "worse": "bad"}.get(one.verdict, "plain")
    figures = f"{_figure(one.measure, one.before)} → {_figure(one.measure, one.now)}"
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
            text = f"{clean(run.run)}: MAST {one.mode}{done}:{where} {clean(one.message)}"
            console.line(text, "plain" if one.prevented else "warn")
    if not found.modes:
        console.line(f"{len(found.runs)} runs: nothing was found", "good")
        return
    console.line()
    rows = [(one.mode, str(one.runs), str(one.found), str(one.prevented)) for one in found.modes]
    table(console, ("mode", "runs", "found", "prevented"), rows)
