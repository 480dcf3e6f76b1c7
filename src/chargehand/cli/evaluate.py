"""`chargehand eval`: try cases on a team and report."""

import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from chargehand.cli.arguments import TEAM_FILE, add_options, shared
from chargehand.cli.console import Console, Tone, print_table, progress_bar, short
from chargehand.cli.exit_codes import GATE_MISSED, Terminated, stop_code
from chargehand.cli.run_session import StdoutClaim
from chargehand.cli.signals import StopSignals
from chargehand.config.environment import lookup_beside
from chargehand.config.load import load_team
from chargehand.config.source import find_team
from chargehand.errors import Invalid
from chargehand.evals.cases import Dataset, find_datasets, read_dataset
from chargehand.evals.report import (
    MEASURE_HEADS,
    EvalReport,
    Score,
    ScoreChange,
    Section,
    format_change,
    format_gate,
    format_measure,
    read_report,
    render_junit,
    render_markdown,
)
from chargehand.evals.report_files import encode_report, reports_folder, save_report
from chargehand.evals.run import EvalProgress, evaluate, report_unfinished
from chargehand.team import Team

_MAX_FAILED = 20
"""How many failed cases are shown."""
_EXAMPLES = """examples:
  chargehand eval            the datasets in evals/ beside the team file
  chargehand eval evals/routing.jsonl --gate accuracy=0.9
  chargehand eval -o now.json --baseline before.json --markdown report.md

"""


def add_eval(parser: ArgumentParser) -> None:
    parser.epilog = _EXAMPLES + (parser.epilog or "")
    add_options(
        parser,
        {
            "what": {
                "metavar": "FILE",
                "nargs": "*",
                "help": "datasets (.jsonl, .yaml)",
            },
            "--team": {"metavar": "PATH", "help": TEAM_FILE},
            **shared("--model"),
            "--judge": {
                "metavar": "NAME",
                "default": "",
                "help": "model that judges rubrics; without: these are skipped",
            },
            "--gate": {
                "metavar": "NAME=VALUE",
                "type": gate,
                "action": "append",
                "default": [],
                "help": "what a measure must reach: accuracy=0.9; repeatable",
            },
            "--baseline": {"metavar": "FILE", "type": Path, "help": "an earlier report to compare with"},
            "-o --output": {"metavar": "FILE", "type": Path, "help": "write the report there, as JSON"},
            "--markdown": {"metavar": "FILE", "type": Path, "help": "write the report there, as Markdown"},
            "--junit": {"metavar": "FILE", "type": Path, "help": "write the report there, as JUnit XML"},
            "--no-save": {
                "action": "store_true",
                "help": "keep no report in .chargehand/evals for the server",
            },
            "--act": {
                "action": "store_true",
                "help": "let tools change something; else such a case fails",
            },
            "--budget-usd": {
                "metavar": "USD",
                "type": float,
                "help": "begin no further case once all have cost so much",
            },
            "--max-parallel": {
                "metavar": "N",
                "type": int,
                "default": 4,
                "help": "cases that are tried in parallel (default 4)",
            },
            **shared("--json"),
            "-q --quiet": {"action": "store_true", "help": "no progress"},
            **shared("--no-color"),
        },
    )


def gate(text: str) -> tuple[str, float]:
    """A measure and a number."""
    name, _, value = text.partition("=")
    try:
        return name.strip(), float(value)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is no gate; write it like accuracy=0.9") from None


# --- trying cases


class PrintedProgress(EvalProgress):
    """A line for each case that did not pass, as soon as it is known, and a progress bar on a terminal.

    The scores are kept: they are all there is when the evaluation is stopped. `stop_code` is the exit code of an
    evaluation that a signal stopped, else 0.
    """

    def __init__(self, console: Console, show: Callable[[str, int, int], None]) -> None:
        self.scores: dict[str, list[Score]] = {}
        self.stop_code = 0
        self._console = console
        self._show = show
        self._cases = 0
        self._tried = 0

    def begin(self, datasets: Sequence[Dataset]) -> None:
        self._cases = sum(len(dataset.cases) for dataset in datasets)
        self.scores = {dataset.name: [] for dataset in datasets}

    def add(self, dataset: str, score: Score) -> None:
        self.scores[dataset].append(score)
        self._tried += 1
        self._show("cases", self._tried, max(self._tried, self._cases))  # a verifier case has several results
        if not score.passed:
            word = "not tried" if score.error else "failed"
            self._console.line(f"{self._tried:4d}  {score.kind}  {word}  {short(score.case, 80)}", "dim")


def eval(options: Namespace) -> int:  # noqa: A001 - a verb's function has its name
    """Cases touch neither the memory nor the journal of the team: each has a team and a memory of its own."""
    names = [name for name, _ in options.gate]
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise Invalid(f"--gate names {twice!r} twice; keep one of them")
    with StopSignals() as signals:
        claim = StdoutClaim()
        with progress_bar("eval") as show:
            progress = PrintedProgress(Console(sys.stderr, quiet=options.quiet), show)
            try:
                report = _evaluate(options, progress, signals)
            finally:
                claim.restore()
        problems = _write_reports(options, report)
        _save_report(options, report)
        console = Console(sys.stdout)
        if options.json:
            console.json(report)
        else:
            print_report(console, report)
    if not report.tried and not progress.stop_code:
        problems.append("no case could be tried; see what each of them says")
    for problem in problems:
        Console(sys.stderr).line(f"chargehand: {problem}", "bad")
    if progress.stop_code:
        return progress.stop_code
    if report.tried and not report.passed:
        return GATE_MISSED
    return 1 if problems else 5 if report.stopped else 0


def _report_files(options: Namespace) -> dict[Path, Callable[[EvalReport], str]]:
    """The files that a report is written to, and how."""
    files: dict[Path | None, Callable[[EvalReport], str]] = {
        options.output: encode_report,
        options.markdown: render_markdown,
        options.junit: render_junit,
    }
    return {path: render for path, render in files.items() if path is not None}


def _check_reports(options: Namespace, inputs: Iterable[Path]) -> None:
    """Whether every report can be written, and over nothing that is read: before a long evaluation, not after it."""
    taken = {path.resolve(): "is read here" for path in inputs}
    for path in (options.output, options.markdown, options.junit):
        if path is None:
            continue
        is_new = not path.exists()
        if path.resolve() in taken:
            raise Invalid(f"{path} {taken[path.resolve()]}, and a report would be written over it; name another file")
        if is_new or path.is_file():  # a device takes as many reports as it is given
            taken[path.resolve()] = "is named for another report"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.open("ab").close()
        except OSError as error:
            raise Invalid(f"{path} cannot be written: {error.strerror}; name another file") from error
        if is_new:
            path.unlink()


def _evaluate(options: Namespace, progress: PrintedProgress, signals: StopSignals) -> EvalReport:
    team_file = find_team(options.team).file
    files = [Path(name) for name in options.what] or list(find_datasets(team_file))
    _check_reports(options, (team_file, *files))
    datasets = [read_dataset(file) for file in files]
    baseline = None if options.baseline is None else read_report(options.baseline)
    with TemporaryDirectory(prefix="chargehand-eval-") as folder:
        numbers = iter(range(sys.maxsize))

        def load() -> Team:
            return load_team(team_file, model=options.model or "", elsewhere=Path(folder, f"{next(numbers)}.db"))

        name = load().name  # what is wrong with a team file is said once, before anything is tried
        try:
            return signals.run(
                evaluate(
                    datasets,
                    load,
                    judge=options.judge,
                    gate=dict(options.gate),
                    baseline=baseline,
                    lookup=lookup_beside(team_file.resolve().parent),
                    max_parallel=options.max_parallel,
                    act=options.act,
                    budget_usd=options.budget_usd,
                    progress=progress,
                )
            )
        except KeyboardInterrupt as stop:
            if not any(progress.scores.values()):
                raise  # nothing is known that could be written over an earlier report
            progress.stop_code = stop_code(stop)
            how = "stopped by SIGTERM" if isinstance(stop, Terminated) else "interrupted"
            why = f"it was {how}: gates and comparisons are left out"
            return report_unfinished(name, progress.scores, why)


def _write_reports(options: Namespace, report: EvalReport) -> list[str]:
    """Why files could not be written: the report is still shown, since it may have been paid for."""
    problems: list[str] = []
    for path, render in _report_files(options).items():
        try:
            path.write_text(render(report), encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            problems.append(f"{path} could not be written: {error.strerror}; keep what stands above")
            continue
        Console(sys.stderr, quiet=options.quiet).line(f"written: {path}", "dim")
    return problems


def _save_report(options: Namespace, report: EvalReport) -> None:
    """Save it where the server finds it. A folder that cannot be written does not make the evaluation a failure."""
    if options.no_save or not report.tried:
        return
    folder = reports_folder(find_team(options.team))
    try:
        file = save_report(report, folder)
    except OSError as error:
        why = f"{folder} cannot be written ({error.strerror}): the server will not show this report"
        Console(sys.stderr).line(f"chargehand: {why}; allow it, or name another file with -o", "warn")
        return
    Console(sys.stderr, quiet=options.quiet).line(f"saved: {file}", "dim")


# --- the report on a terminal


def print_report(console: Console, report: EvalReport) -> None:
    if report.notice:
        console.line(f"notice: {report.notice}", "dim")
    for section in report.sections:
        _print_section(console, section)
    for text in report.warnings:
        console.line(f"warning: {text}", "warn")
    for change in report.changes:
        _print_change(console, change)
    for gate in report.gates:
        console.line(f"gate: {format_gate(gate)}", "good" if gate.passed else "bad")
    if report.stopped:
        console.line(f"stopped: {report.stopped}", "bad")


def _print_section(console: Console, section: Section) -> None:
    passed = sum(score.passed for score in section.scores)
    console.line(f"{section.dataset}: {section.kind}: {passed} of {len(section.scores)} passed", "bold")
    print_table(console, MEASURE_HEADS, [format_measure(measure) for measure in section.measures])
    for rows in section.tables:
        console.line()
        console.line(rows.title, "bold")
        print_table(console, rows.heads, rows.rows)
    console.line()
    failed = [score for score in section.scores if not score.passed]
    for score in failed[:_MAX_FAILED]:
        console.line(f"failed: {short(score.case, 70)}: {'; '.join(score.why)}", "bad")
    if len(failed) > _MAX_FAILED:
        console.line(f"and {len(failed) - _MAX_FAILED} more: --json or --markdown shows all")
    if failed:
        console.line()


def _print_change(console: Console, change: ScoreChange) -> None:
    tones: dict[str, Tone] = {"no difference shown": "plain", "better": "good"}
    console.line(f"since the baseline: {format_change(change)}", tones.get(change.verdict, "bad"))
    for word, cases in (("lost", change.lost), ("won", change.won)):
        for case in cases[:_MAX_FAILED]:
            console.line(f"  {word}: {short(case, 80)}")
