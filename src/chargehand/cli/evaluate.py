"""`chargehand eval`: try cases on a team, say how good it is, save cases from runs, look into runs for known faults."""

import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import msgspec

from chargehand.cli import USUAL_JOURNAL
from chargehand.cli.console import Console, clean, clean_json
from chargehand.cli.verbs import TERMINATED, Terminated
from chargehand.errors import Invalid

if TYPE_CHECKING:
    from chargehand.cli.terminated import Termination
    from chargehand.evals.scores import Report

UNDER = 6
"""The exit code where a gate was not reached."""
SPENT = 5
"""The exit code where the budget ended it before every case was tried."""
_INTERRUPTED = "it was interrupted: gates and comparisons are left out"
_TERMINATED = "it was stopped by SIGTERM: gates and comparisons are left out"
_STOPS = {_INTERRUPTED: 130, _TERMINATED: TERMINATED}


def add_eval(parser: ArgumentParser) -> None:
    parser.epilog = (
        "examples:\n"
        "  chargehand eval            the datasets in evals/ beside the team file\n"
        "  chargehand eval evals/routing.jsonl --gate accuracy=0.9\n"
        "  chargehand eval -o now.json --baseline before.json --html report.html\n"
        "  chargehand eval save shop-1f2e3d --to evals/golden.yaml\n"
        "  chargehand eval audit      every run of the journal\n\n" + (parser.epilog or "")
    )
    words = "datasets (.jsonl, .yaml); or  save RUN,  or  audit [RUN ...]"
    parser.add_argument("what", metavar="FILE", nargs="*", help=words)
    words = "a team file or its folder (default: the nearest team.yaml upwards, else the bundled team)"
    parser.add_argument("--team", metavar="PATH", help=words)
    parser.add_argument("--model", metavar="NAME", help="the model of everybody on the team")
    parser.add_argument("--judge", metavar="NAME", default="", help="the model that judges rubrics (default: offline)")
    words = "only cases of this kind: routing, plan, worker, run or verifier; may be repeated"
    parser.add_argument("--kind", metavar="KIND", action="append", default=[], help=words)
    words = "a measure and what it must reach, such as accuracy=0.9 or usd=0.01; may be repeated"
    parser.add_argument("--gate", metavar="NAME=VALUE", type=gate, action="append", default=[], help=words)
    parser.add_argument("--baseline", metavar="FILE", type=Path, help="an earlier report to compare with")
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, help="write the report there, as JSON")
    parser.add_argument("--html", metavar="FILE", type=Path, help="write the report there, as one page")
    parser.add_argument("--junit", metavar="FILE", type=Path, help="write the report there, as JUnit XML")
    words = "let tools be called that change something; without it a case that would call one has not passed"
    parser.add_argument("--act", action="store_true", help=words)
    words = "begin no further case once all together have cost so many dollars"
    parser.add_argument("--budget-usd", metavar="USD", type=float, help=words)
    parser.add_argument(
        "--at-once", metavar="N", type=int, default=4, help="how many cases are tried at once (default 4)"
    )
    parser.add_argument(
        "--seed", metavar="N", type=int, default=0, help="for seeded mistakes and intervals (default 0)"
    )
    parser.add_argument("--to", metavar="FILE", type=Path, help="with save: the dataset the case is added to")
    parser.add_argument("--name", metavar="NAME", default="", help="with save: what to call the case")
    words = f"with save and audit: the SQLite file (default {USUAL_JOURNAL})"
    parser.add_argument("--journal", metavar="PATH", type=Path, default=Path(USUAL_JOURNAL), help=words)
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_true", help="the report as one JSON document")
    words = "a line of JSON for each result as soon as it is known, instead of the report"
    how.add_argument("--jsonl", action="store_true", help=words)
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")
    parser.add_argument("--no-color", action="store_true", help="no colours")


def gate(text: str) -> tuple[str, float]:
    """A measure and a number."""
    from chargehand.evals.gates import LESS  # noqa: PLC0415 - only who names a gate needs it

    name, _, value = text.replace(">=", "=").replace("<=", "=").partition("=")
    plain = name.strip()
    sign, way = ("<=", "at most") if plain.rpartition(".")[2] in LESS else (">=", "at least")
    if any(other in text and other != sign for other in ("<=", ">=")):
        raise ArgumentTypeError(f"{text!r} is no gate: {plain} is held to {way} so much; write {plain}{sign}{value}")
    try:
        return plain, float(value)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is no gate; write it like accuracy=0.9") from None


def eval(options: Namespace) -> int:  # noqa: A001 - a verb's function has its name
    """Nothing of the team's own memory or journal is touched by cases: each has a team and a memory of its own."""
    first: str = options.what[0] if options.what else ""
    if first in _OTHERS and not Path(first).exists():
        return _OTHERS[first](options, options.what[1:])
    from chargehand.cli.stage import Claim  # noqa: PLC0415 - --help must not wait for it
    from chargehand.cli.terminated import Termination  # noqa: PLC0415 - as above

    _check(options)
    with Termination() as termination:
        claim = Claim()
        lines = Console(claim.stream, patient=True) if options.jsonl else None
        try:
            report = _evaluated(options, lines, termination)
        finally:
            claim.give_back()
        return _told(options, report, lines)


def _told(options: Namespace, report: "Report", lines: Console | None) -> int:
    """Write it and show it; the exit code it deserves."""
    unwritten = _write(options, report)
    if lines is not None:
        lines.complain()
    console = Console(sys.stdout, quiet=options.jsonl)
    if options.json:
        console.line(clean_json(msgspec.json.format(msgspec.json.encode(report), indent=2).decode()))
    else:
        from chargehand.cli.eval_words import show  # noqa: PLC0415 - only who looks needs it

        show(console, report)
    for words in unwritten:
        Console(sys.stderr).line(f"chargehand: {clean(words)}", "bad")
    return _ending(report, wrote=not unwritten)


def _ending(report: "Report", *, wrote: bool) -> int:
    if report.stopped in _STOPS:
        return _STOPS[report.stopped]
    if not report.tried:
        Console(sys.stderr).line("chargehand: no case could be tried; see what each of them says", "bad")
        return 1
    if not report.held:
        return UNDER
    if not wrote:
        return 1
    return SPENT if report.stopped else 0


def _check(options: Namespace) -> None:
    """What is wrong with options, before a long evaluation rather than after it."""
    names = [name for name, _ in options.gate]
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise Invalid(f"--gate names {twice!r} twice; keep one of them")
    for path in _written(options):
        try:
            fresh = not path.exists()
            path.parent.mkdir(parents=True, exist_ok=True)
            path.open("ab").close()
            if fresh:
                path.unlink()
        except OSError as error:
            raise Invalid(f"{path} cannot be written: {error.strerror}; name another file") from error


def _written(options: Namespace) -> list[Path]:
    return [path for path in (options.output, options.html, options.junit) if path is not None]


def _spare(options: Namespace, read: Iterable[Path]) -> None:
    """Refuse to write over what is read, which somebody wrote by hand, and over a report that was just written."""
    taken = {path.resolve(): "is read here" for path in read}
    for path in _written(options):
        if path.exists() and not path.is_file():
            continue  # a device takes as many reports as it is given
        if why := taken.get(path.resolve()):
            raise Invalid(f"{path} {why}, and a report would be written over it; name another file")
        taken[path.resolve()] = "is named for another report"


def _evaluated(options: Namespace, lines: Console | None, termination: "Termination") -> "Report":
    from chargehand.cli.eval_words import Told  # noqa: PLC0415 - --help must not wait for it
    from chargehand.config.discover import find_team  # noqa: PLC0415 - as above
    from chargehand.config.environment import lookup_beside  # noqa: PLC0415 - as above
    from chargehand.config.load import load_team  # noqa: PLC0415 - as above
    from chargehand.evals.comparing import read_report  # noqa: PLC0415 - as above
    from chargehand.evals.dataset import find_datasets, only, read_dataset  # noqa: PLC0415 - as above
    from chargehand.evals.evaluate import evaluate, unfinished  # noqa: PLC0415 - as above
    from chargehand.evals.graders import check_graders  # noqa: PLC0415 - as above
    from chargehand.team import Supervisor  # noqa: PLC0415 - as above

    team = find_team(options.team).file
    files = [Path(one) for one in options.what] or list(find_datasets(team))
    _spare(options, (team, *files))
    datasets = only([read_dataset(file) for file in files], options.kind)
    check_graders(datasets)
    baseline = None if options.baseline is None else read_report(options.baseline)
    with TemporaryDirectory(prefix="chargehand-eval-") as folder:
        count = iter(range(sys.maxsize))

        def fresh() -> Supervisor:
            return load_team(team, model=options.model or "", elsewhere=Path(folder, f"{next(count)}.db"))

        name = fresh().name  # a team file that is wrong is said once, before anything is tried
        told = Told(Console(sys.stderr, quiet=options.quiet), lines)
        try:
            return termination.run(
                evaluate(
                    datasets, fresh, judge=options.judge, gate=dict(options.gate), baseline=baseline,
                    lookup=lookup_beside(team.resolve().parent), at_once=options.at_once, seed=options.seed,
                    act=options.act, budget_usd=options.budget_usd, progress=told,
                )
            )  # fmt: skip
        except KeyboardInterrupt as stop:
            if not any(told.kept.values()):
                raise  # nothing is known that could be written over an earlier report
            why = _TERMINATED if isinstance(stop, Terminated) else _INTERRUPTED
            return unfinished(name, told.kept, why, options.seed)


def _write(options: Namespace, report: "Report") -> list[str]:
    """What could not be written, in words: the report is still shown, since it may have been paid for."""
    from chargehand.evals.junit import junit  # noqa: PLC0415 - --help must not wait for it
    from chargehand.evals.page import page  # noqa: PLC0415 - as above

    bodies: tuple[tuple[Path | None, Callable[[], str]], ...] = (
        (options.output, lambda: msgspec.json.format(msgspec.json.encode(report), indent=1).decode() + "\n"),
        (options.html, lambda: page(report)),
        (options.junit, lambda: junit(report)),
    )
    unwritten: list[str] = []
    for path, body in bodies:
        if path is None:
            continue
        try:
            path.write_text(body(), encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            unwritten.append(f"{path} could not be written: {error.strerror}; keep what stands above")
            continue
        Console(sys.stderr, quiet=options.quiet).line(f"written: {clean(str(path))}", "dim")
    return unwritten


# --- save, audit


def _save(options: Namespace, words: list[str]) -> int:
    """A case from a run that has ended."""
    from chargehand.cli.run_names import resolve_run  # noqa: PLC0415 - --help must not wait for it
    from chargehand.evals.saving import append, case_of  # noqa: PLC0415 - as above
    from chargehand.stores.reader import read_run  # noqa: PLC0415 - as above

    if len(words) != 1 or options.to is None:
        raise Invalid("say which run and where to: chargehand eval save RUN --to cases.yaml")
    run = resolve_run(options.journal, words[0])
    case = case_of(run, read_run(options.journal, run))
    if options.name:
        case = msgspec.structs.replace(case, name=options.name)
    count = append(case, options.to)
    console = Console(sys.stdout)
    console.line(f"saved: case {clean(case.name)} in {clean(str(options.to))}, which has {count} now")
    console.line("look at what it expects: it is what this run did, whether that was right or not", "warn")
    return 0


def _audit(options: Namespace, words: list[str]) -> int:
    """Runs of a journal, looked into for the known ways in which crews fail."""
    from chargehand.cli.eval_words import show_audit  # noqa: PLC0415 - --help must not wait for it
    from chargehand.cli.run_names import resolve_run  # noqa: PLC0415 - as above
    from chargehand.evals.auditing import audited  # noqa: PLC0415 - as above
    from chargehand.stores.reader import read_run, read_runs  # noqa: PLC0415 - as above

    named = [resolve_run(options.journal, word) for word in words]
    names = named or [run.row.run for run in read_runs(options.journal)]
    found = audited({name: read_run(options.journal, name) for name in names})
    console = Console(sys.stdout)
    if options.json:
        console.line(clean_json(msgspec.json.format(msgspec.json.encode(found), indent=2).decode()))
    else:
        show_audit(console, found)
    return 0


_OTHERS: dict[str, Callable[[Namespace, list[str]], int]] = {"save": _save, "audit": _audit}
