"""Saved reports: every evaluation leaves one beside its team file, where the server finds it."""

import os
import re
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

import msgspec
from msgspec import Struct

from chargehand.config.source import TEMPLATES, Found
from chargehand.engine.policy import Instant
from chargehand.errors import Invalid, Refused, Unknown
from chargehand.evals.cases import Kind
from chargehand.evals.report import EvalReport, Measure, Section, read_report

MAX_LISTED = 200
"""Saved reports that are looked at, the newest ones."""
_FOLDER = Path(".chargehand", "evals")
_SUFFIX = ".json"
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,199}\Z")
_HEADLINE = "accuracy"


class SectionSummary(Struct, frozen=True):
    """The cases of one kind in one dataset, in short."""

    dataset: str
    kind: Kind
    cases: int
    passed: int
    headline: Measure | None
    """The accuracy, with its interval; null where nothing was tried."""


class ReportSummary(Struct, frozen=True):
    """A saved report in a list."""

    report: str
    """Its name: that of its file, without the ending."""
    at: Instant
    """When it was made; 0 where that is not known."""
    sections: tuple[SectionSummary, ...] = ()
    gates_passed: int = 0
    gates_failed: int = 0
    stopped: str = ""
    """Why not every case was tried."""
    damage: str = ""
    """Why the file cannot be read."""


def reports_folder(team: Found | None) -> Path:
    """Where the reports of a team are: beside its file; in the current folder for a team of this package, or without a
    file.
    """  # noqa: D205 - one sentence
    if team is None or team.file.absolute().is_relative_to(TEMPLATES):
        return _FOLDER
    return team.file.parent / _FOLDER


def encode_report(report: EvalReport) -> str:
    """A report as it stands in a file; `read_report` reads it."""
    return msgspec.json.format(msgspec.json.encode(report), indent=1).decode() + "\n"


def save_report(report: EvalReport, folder: Path) -> Path:
    """Write a report under a name of its own; the file. OSError where it cannot be written."""
    folder.mkdir(parents=True, exist_ok=True)
    stamp = datetime.fromtimestamp(report.at, UTC).strftime("%Y%m%d-%H%M%S")
    text = encode_report(report)
    number = 1
    while True:
        file = folder / (f"{stamp}{_SUFFIX}" if number == 1 else f"{stamp}-{number}{_SUFFIX}")
        try:
            with file.open("x", encoding="utf-8", errors="backslashreplace") as opened:
                opened.write(text)
        except FileExistsError:  # another evaluation ended in the same second
            number += 1
        else:
            return file


def list_reports(folder: Path, team: str) -> list[ReportSummary]:
    """The saved reports of a team, the newest first; files that cannot be read are among them."""
    summaries: list[ReportSummary] = []
    for file, status in _newest_files(folder):
        of_team, summary = _summarize(file, status.st_mtime_ns, status.st_size)
        if of_team in ("", team):
            summaries.append(summary)
    return sorted(summaries, key=lambda summary: (summary.at, summary.report), reverse=True)


def load_report(folder: Path, team: str, name: str) -> EvalReport:
    """A saved report of a team; Unknown where there is none of this name, Refused where it cannot be read."""
    file = folder / f"{name}{_SUFFIX}"
    if not _NAME.match(name) or not file.is_file():
        raise Unknown(f"there is no report {name[:100]!r} of team {team}; make one: chargehand eval")
    try:
        report = read_report(file)
    except Invalid as error:
        raise Refused(str(error)) from error
    if report.team != team:
        raise Unknown(f"report {name!r} is of team {report.team!r}, not of {team!r}")
    return report


def _newest_files(folder: Path) -> list[tuple[Path, os.stat_result]]:
    files = [(file, file.stat()) for file in folder.glob(f"*{_SUFFIX}") if _NAME.match(file.stem) and file.is_file()]
    return sorted(files, key=lambda pair: pair[1].st_mtime_ns, reverse=True)[:MAX_LISTED]


@lru_cache(maxsize=2 * MAX_LISTED)
def _summarize(file: Path, _changed: int, _bytes: int) -> tuple[str, ReportSummary]:
    """The team of a report, empty where it cannot be read, and its summary. Kept until the file changes."""
    try:
        report = read_report(file)
    except Invalid as error:
        return "", ReportSummary(report=file.stem, at=0.0, damage=str(error))
    summary = ReportSummary(
        report=file.stem,
        at=report.at,
        sections=tuple(map(_summarize_section, report.sections)),
        gates_passed=sum(gate.passed for gate in report.gates),
        gates_failed=sum(not gate.passed for gate in report.gates),
        stopped=report.stopped,
    )
    return report.team, summary


def _summarize_section(section: Section) -> SectionSummary:
    return SectionSummary(
        dataset=section.dataset,
        kind=section.kind,
        cases=len(section.scores),
        passed=sum(score.passed for score in section.scores),
        headline=section.measure(_HEADLINE),
    )
