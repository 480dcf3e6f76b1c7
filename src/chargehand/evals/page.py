"""A report as one HTML file: no script, nothing that is fetched. Whatever came from models or people is escaped."""

from collections.abc import Iterator
from html import escape

from chargehand.evals.gates import figure
from chargehand.evals.scores import Change, Gate, Measure, Part, Report, Score, Table

_STYLE = """
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: .5rem 0 1.5rem; display: block; overflow-x: auto; }
th, td { border: 1px solid #8884; padding: .25rem .6rem; text-align: left; vertical-align: top; }
table.matrix td { text-align: center; padding: .25rem .4rem; }
table.matrix th:not(:first-child) { writing-mode: vertical-rl; transform: rotate(180deg); text-align: left; }
table.matrix td:first-child { text-align: left; position: sticky; left: 0; background: Canvas; }
td.right { background: color-mix(in srgb, #2a9d4a calc(var(--heat) * 70%), transparent); }
td.wrong { background: color-mix(in srgb, #d03b3b calc(var(--heat) * 70%), transparent); }
.good { color: #1f7a38; color: light-dark(#1f7a38, #56d364); }
.bad { color: #b42318; color: light-dark(#b42318, #ff7b72); } .dim { opacity: .7; }
details { margin: .3rem 0; } pre { white-space: pre-wrap; overflow-wrap: anywhere; }
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def page(report: Report) -> str:
    """The whole report to be read in a browser."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: Report) -> Iterator[str]:
    title = escape(f"Evaluation of {report.team}")
    yield '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>{title}</title><style>{_STYLE}</style></head><body><h1>{title}</h1>"
    if report.notice:
        yield f"<p class=dim>{escape(report.notice)}</p>"
    if report.stopped:
        yield f"<p class=bad>Stopped: {escape(report.stopped)}</p>"
    if report.warnings:
        yield f"<ul>{''.join(f'<li>{escape(one)}</li>' for one in report.warnings)}</ul>"
    if report.gates:
        yield from _gates(report.gates)
    if report.changes:
        yield from _changes(report.changes)
    for part in report.parts:
        yield from _part(part)
    yield "</body></html>"


def _gates(gates: tuple[Gate, ...]) -> Iterator[str]:
    heads = ("dataset", "kind", "measure", "wanted", "is", "")
    yield f"<h2>Gates</h2><table><tr>{''.join(f'<th>{one}</th>' for one in heads)}</tr>"
    for one in gates:
        sign = "≥" if one.better == "more" else "≤"
        tone = "good" if one.held else "bad"
        cells = (one.dataset, one.kind, one.measure, f"{sign} {one.wanted:g}")
        said = f"{'held' if one.held else 'not held'}{f': {one.why}' if one.why else ''}"
        words = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        value = figure(one.measure, one.value)
        yield f"<tr>{words}<td>{value}</td><td class={tone}>{escape(said)}</td></tr>"
    yield "</table>"


def _changes(changes: tuple[Change, ...]) -> Iterator[str]:
    heads = ("dataset", "kind", "measure", "before", "now", "difference at 95 %", "", "lost", "won")
    yield f"<h2>Since the baseline</h2><table><tr>{''.join(f'<th>{one}</th>' for one in heads)}</tr>"
    for one in changes:
        difference = f"{one.low:+.4g} … {one.high:+.4g}"
        was, now = figure(one.measure, one.before), figure(one.measure, one.now)
        cells = (one.dataset, one.kind, one.measure, was, now, difference, one.verdict)
        more = ("; ".join(one.lost), "; ".join(one.won))
        yield f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in (*cells, *more))}</tr>"
    yield "</table>"


def _part(part: Part) -> Iterator[str]:
    yield f"<h2>{escape(part.dataset)}: {part.kind}</h2>"
    yield "<table><tr><th>measure</th><th>value</th><th>95 %</th><th>cases</th></tr>"
    yield from (_measure(one) for one in part.measures)
    yield "</table>"
    for table in part.tables:
        yield from _table(table)
    for words, lines in (("Look at this", part.warnings), ("What to change", part.advice)):
        if lines:
            yield f"<h3>{words}</h3><ul>{''.join(f'<li>{escape(one)}</li>' for one in lines)}</ul>"
    yield "<h3>Cases</h3>"
    yield from (_score(one) for one in sorted(part.scores, key=lambda one: one.passed))


def _measure(one: Measure) -> str:
    interval = f"{figure(one.name, one.low)} … {figure(one.name, one.high)}" if one.known else ""
    value = figure(one.name, one.value)
    return f"<tr><td>{escape(one.name)}</td><td>{value}</td><td>{interval}</td><td>{one.count}</td></tr>"


def _table(table: Table) -> Iterator[str]:
    yield f"<h3>{escape(table.title)}</h3><table{' class=matrix' if table.heat else ''}>"
    yield f"<tr>{''.join(f'<th>{escape(head)}</th>' for head in table.heads)}</tr>"
    for number, row in enumerate(table.rows):
        heat = table.heat[number] if table.heat else ()
        yield f"<tr>{''.join(_cell(row, at, table.heads, heat) for at in range(len(row)))}</tr>"
    yield "</table>"


def _cell(row: tuple[str, ...], at: int, heads: tuple[str, ...], heat: tuple[float, ...]) -> str:
    if not heat or not at:
        return f"<td>{escape(row[at])}</td>"
    tone = "right" if heads[at] == row[0] else "wrong"
    return f'<td class={tone} style="--heat: {heat[at]:.2f}">{escape(row[at])}</td>'


def _score(one: Score) -> str:
    tone, word = ("good", "passed") if one.passed else ("bad", "not tried" if one.error else "failed")
    parts = [("asked", one.request), ("wanted", one.wanted), ("got", one.got), ("wrong", "\n".join(one.why))]
    parts.append(("notes", "\n".join(one.notes)))
    body = "".join(f"<b>{name}</b><pre>{escape(text)}</pre>" for name, text in parts if text)
    return f"<details><summary><span class={tone}>{word}</span> {escape(one.case)}</summary>{body}</details>"
