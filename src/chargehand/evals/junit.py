"""A report as JUnit XML, which continuous integration shows. What the figures mean is not known here."""

import re
from html import escape

from chargehand.evals.scores import Part, Report, Score

_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(report: Report) -> str:
    """One suite for each part, one test for each case; gates are a suite of their own."""
    suites = [_suite(part) for part in report.parts]
    if report.gates:
        failed = sum(not one.held for one in report.gates)
        lines = [f'  <testsuite name="gates" tests="{len(report.gates)}" failures="{failed}" errors="0">']
        for one in report.gates:
            lines.append(
                f'    <testcase classname="gates.{_text(one.dataset)}" name="{_text(one.kind)} {_text(one.measure)}">'
            )
            if not one.held:
                sign = "at least" if one.better == "more" else "at most"
                why = _text(f"; {one.why}") if one.why else ""
                lines.append(f'      <failure message="{one.value:.4g}, {sign} {one.wanted:g} is wanted{why}"/>')
            lines.append("    </testcase>")
        suites.append("\n".join([*lines, "  </testsuite>"]))
    return "\n".join(['<?xml version="1.0" encoding="UTF-8"?>', "<testsuites>", *suites, "</testsuites>", ""])


def _suite(part: Part) -> str:
    errors = sum(one.error for one in part.scores)
    failed = sum(not one.passed for one in part.scores) - errors
    seconds = sum(one.seconds for one in part.scores)
    name = _text(f"{part.dataset}.{part.kind}")
    counts = f'tests="{len(part.scores)}" failures="{failed}" errors="{errors}" time="{seconds:.3f}"'
    head = f'  <testsuite name="{name}" {counts}>'
    return "\n".join([head, *(_case(name, one) for one in part.scores), "  </testsuite>"])


def _case(suite: str, score: Score) -> str:
    head = f'    <testcase classname="{suite}" name="{_text(score.case)}" time="{score.seconds:.3f}"'
    if score.passed:
        return f"{head}/>"
    kind = "error" if score.error else "failure"
    why = _text("; ".join(score.why))
    body = _text(f"asked: {score.request}\nwanted: {score.wanted}\ngot: {score.got}")
    return f'{head}>\n      <{kind} message="{why}">{body}</{kind}>\n    </testcase>'


def _text(text: str) -> str:
    return escape(_NO_XML.sub("\ufffd", text), quote=True)
