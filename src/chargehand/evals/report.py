"""The report of an evaluation as data, and as Markdown and JUnit XML. No case is run here."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, TypeAlias
from xml.etree.ElementTree import Element, SubElement, indent, tostring

import msgspec
from msgspec import Struct

from chargehand.engine.policy import Instant
from chargehand.errors import Invalid
from chargehand.evals.cases import Kind

Better: TypeAlias = Literal["more", "less"]
Verdict: TypeAlias = Literal["better", "worse", "no difference shown"]
MAX_REPORT_BYTES = 256 * 1024 * 1024
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_MARKDOWN = re.compile(r"([\\`*_\[\]|])")


class Score(Struct, frozen=True):
    """What came of one case, or of one result that was put before a check."""

    case: str
    kind: Kind
    passed: bool
    why: tuple[str, ...] = ()
    """What was wrong."""
    error: bool = False
    """The case could not be tried at all."""
    values: dict[str, float] = {}
    """Figures of this case by name."""
    seconds: float = 0.0
    usd: float | None = 0.0
    """None where the cost is not known."""
    request: str = ""
    got: str = ""
    wanted: str = ""
    mistake: str = ""
    """What is wrong with a result that was put before a check, or `right`."""
    notes: tuple[str, ...] = ()

    def value(self, name: str) -> float | None:
        """One of its figures; None where it has no such figure. Only accuracy is known of what was not tried."""
        if name == "accuracy":
            return float(self.passed)
        if self.error:
            return None
        if name == "usd":
            return self.usd
        return self.seconds if name == "seconds" else self.values.get(name)


class Measure(Struct, frozen=True):
    """A figure over cases, with its interval at 95 % confidence."""

    name: str
    value: float
    low: float
    high: float
    count: int
    better: Better = "more"
    percent: bool = False
    """Whether it is shown in percent."""


class ReportTable(Struct, frozen=True):
    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class RouteCount(Struct, frozen=True):
    """A cell of the confusion matrix: how many requests for `wanted` went to `got`."""

    wanted: str
    """A worker, several joined by ` + `, or `out of scope`."""
    got: str
    count: int


class Section(Struct, frozen=True):
    """The cases of one kind in one dataset."""

    dataset: str
    kind: Kind
    scores: tuple[Score, ...]
    measures: tuple[Measure, ...] = ()
    tables: tuple[ReportTable, ...] = ()
    routes: tuple[RouteCount, ...] = ()
    """Of routing cases, the cells of the confusion matrix that are not zero."""

    def measure(self, name: str) -> Measure | None:
        return next((measure for measure in self.measures if measure.name == name), None)


class Gate(Struct, frozen=True):
    """A measure that had to reach something, and whether it did."""

    dataset: str
    kind: Kind
    measure: str
    wanted: float
    value: float
    passed: bool
    better: Better = "more"
    percent: bool = False
    why: str = ""
    """Why there is no value to go by."""


class ScoreChange(Struct, frozen=True):
    """How a measure differs from an earlier report over the same cases, with the interval of the difference."""

    dataset: str
    kind: Kind
    measure: str
    before: float
    now: float
    low: float
    high: float
    count: int
    verdict: Verdict
    percent: bool = False
    lost: tuple[str, ...] = ()
    won: tuple[str, ...] = ()


class EvalReport(Struct, frozen=True):
    """One evaluation of a team."""

    team: str
    sections: tuple[Section, ...]
    gates: tuple[Gate, ...] = ()
    changes: tuple[ScoreChange, ...] = ()
    notice: str = ""
    """What readers must know about the models behind it."""
    warnings: tuple[str, ...] = ()
    """About the evaluation, not about the team."""
    stopped: str = ""
    """Why not every case was tried."""
    at: Instant = 0.0
    """When it was made; 0 where that is not known."""

    @property
    def tried(self) -> bool:
        """Whether at least one case could be tried."""
        return any(not score.error for section in self.sections for score in section.scores)

    @property
    def passed(self) -> bool:
        """Whether every gate was reached."""
        return all(gate.passed for gate in self.gates)


def read_report(file: Path) -> EvalReport:
    """A report that `chargehand eval -o FILE` wrote."""
    try:
        with file.open("rb") as opened:
            body = opened.read(MAX_REPORT_BYTES + 1)  # a device has no size that could be asked for
        if len(body) > MAX_REPORT_BYTES:
            raise Invalid(f"{file} is larger than {MAX_REPORT_BYTES:,} bytes; compare fewer cases at once")
        return msgspec.json.decode(body, type=EvalReport)
    except OSError as error:
        raise Invalid(f"{file} cannot be read: {error.strerror}; name a report that can be") from error
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise Invalid(f"{file} is no report: {error}; write one with  chargehand eval -o before.json") from error


# --- as lines of text, for the terminal and Markdown


def format_figure(value: float, *, percent: bool) -> str:
    return f"{value:.1%}" if percent else f"{value:.4g}"


def format_measure(measure: Measure) -> tuple[str, ...]:
    """The cells of a row: name, value, interval, number of cases. Values that are all the same have no interval."""
    value, low, high = (format_figure(x, percent=measure.percent) for x in (measure.value, measure.low, measure.high))
    interval = f"{low} to {high}" if measure.low != measure.high else ""
    return measure.name, value, interval, str(measure.count)


MEASURE_HEADS = ("measure", "value", "95 %", "cases")


def format_gate(gate: Gate) -> str:
    sign = ">=" if gate.better == "more" else "<="
    value = format_figure(gate.value, percent=gate.percent)
    why = f" ({gate.why})" if gate.why else ""
    verdict = "passed" if gate.passed else "NOT passed"
    return f"{gate.dataset} {gate.kind}: {gate.measure} {value} {sign} {gate.wanted:g}: {verdict}{why}"


def format_change(change: ScoreChange) -> str:
    before = format_figure(change.before, percent=change.percent)
    now = format_figure(change.now, percent=change.percent)
    interval = f"{change.low:+.4g} to {change.high:+.4g} over {change.count} cases"
    return f"{change.dataset} {change.kind}: {change.measure} {before} → {now}, {change.verdict} ({interval})"


# --- Markdown


def render_markdown(report: EvalReport) -> str:
    """The whole report as Markdown. Text of models and requests is escaped: it stays text."""
    return "\n".join(_markdown_lines(report)) + "\n"


def _markdown_lines(report: EvalReport) -> Iterator[str]:
    yield f"# Evaluation of {_plain(report.team)}"
    notes = (report.notice, *(f"Warning: {text}" for text in report.warnings))
    stopped = f"Stopped: {report.stopped}" if report.stopped else ""
    for text in (*notes, stopped):
        if text:
            yield f"\n{_plain(text)}"
    yield from _markdown_list("Gates", [format_gate(gate) for gate in report.gates])
    yield from _markdown_list("Since the baseline", [line for change in report.changes for line in _changed(change)])
    for section in report.sections:
        yield from _markdown_section(section)


def _changed(change: ScoreChange) -> Iterator[str]:
    yield format_change(change)
    yield from (f"lost: {case}" for case in change.lost)
    yield from (f"won: {case}" for case in change.won)


def _markdown_section(section: Section) -> Iterator[str]:
    passed = sum(score.passed for score in section.scores)
    yield f"\n## {_plain(section.dataset)}: {section.kind}, {passed} of {len(section.scores)} passed"
    measures = [format_measure(measure) for measure in section.measures]
    yield from _markdown_table(MEASURE_HEADS, measures)
    for table in section.tables:
        yield f"\n### {_plain(table.title)}"
        yield from _markdown_table(table.heads, table.rows)
    failed = [score for score in section.scores if not score.passed]
    yield from _markdown_list("Failed", [f"{score.case}: {'; '.join(score.why)}" for score in failed], level=3)


def _markdown_list(title: str, lines: Sequence[str], level: int = 2) -> Iterator[str]:
    if lines:
        yield f"\n{'#' * level} {title}\n"
        yield from (f"- {_plain(line)}" for line in lines)


def _markdown_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    if rows:
        yield f"\n| {' | '.join(map(_plain, heads))} |"
        yield f"|{'---|' * len(heads)}"
        yield from (f"| {' | '.join(map(_plain, row))} |" for row in rows)


def _plain(text: str) -> str:
    """A text in one line that Markdown and the HTML made of it show as it is."""
    one_line = " ".join(_NOT_XML.sub("\ufffd", text).split())
    return _MARKDOWN.sub(r"\\\1", one_line.replace("&", "&amp;").replace("<", "&lt;"))


# --- JUnit


def render_junit(report: EvalReport) -> str:
    """One suite for each section, one test for each case; gates are a suite of their own."""
    root = Element("testsuites")
    for section in report.sections:
        seconds = sum(score.seconds for score in section.scores)
        suite = _add(root, "testsuite", name=f"{section.dataset}.{section.kind}", time=f"{seconds:.3f}")
        for score in section.scores:
            test = _add_test(suite, score.case, seconds=score.seconds)
            if not score.passed:
                problem = _add(test, "error" if score.error else "failure", message="; ".join(score.why))
                problem.text = _xml(f"asked: {score.request}\nwanted: {score.wanted}\ngot: {score.got}")
    if report.gates:
        suite = _add(root, "testsuite", name="gates")
        for gate in report.gates:
            test = _add_test(suite, f"{gate.dataset} {gate.kind} {gate.measure}")
            if not gate.passed:
                _add(test, "failure", message=format_gate(gate))
    for suite in root:
        for attribute, tag in (("tests", "testcase"), ("failures", "failure"), ("errors", "error")):
            suite.set(attribute, str(len(list(suite.iter(tag)))))
    indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{tostring(root, encoding="unicode")}\n'


def _add_test(suite: Element, name: str, seconds: float = 0.0) -> Element:
    return _add(suite, "testcase", classname=suite.attrib["name"], name=name, time=f"{seconds:.3f}")


def _add(parent: Element, tag: str, **attributes: str) -> Element:
    return SubElement(parent, tag, {key: _xml(value) for key, value in attributes.items()})


def _xml(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)
