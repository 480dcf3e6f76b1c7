"""Plans as trees, timelines of runs; charts and tables written to files."""

import csv
import io
import re
from collections.abc import Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Literal, cast

import msgspec
from msgspec import Struct
from rich.text import Text
from rich.tree import Tree

from chargehand.agents.draft import BASIS, CostForecast, PlanForecast
from chargehand.cli.console import Console, clean, short
from chargehand.cli.format import counted, money, roughly, seconds
from chargehand.engine.budget import Amount
from chargehand.engine.forecast import Forecast
from chargehand.engine.plan import Finding, Plan, Task, TaskId, in_order, needs
from chargehand.engine.policy import Seconds
from chargehand.errors import Invalid
from chargehand.models.artifacts import Artifact, Chart, Table
from chargehand.runtime.trace import AttemptTrace, DutyTrace, Trace

# --- plans

_MAX_TASKS = 60
_MAX_PATH = 80  # characters of a critical path
_COMBINED = {
    "merge": "merged into one answer",
    "select": "of which the best is the answer",
    "vote": "of which the answer is the one most agree on",
    "reduce": "reduced to one answer",
    "forward": "of which one is handed through as the answer",
    "none": "whose results are the answer",
}


def print_plan(console: Console, plan: Plan, forecast: Forecast | None) -> None:
    """The tasks of a plan as a tree, and what it will take."""
    heading = f"{counted(len(plan.tasks), 'task')}, {_COMBINED[plan.combine]}" if plan.tasks else "nothing to do"
    console.line(f"plan: {heading}", "bold")
    if plan.tasks:
        console.draw(plan_tree(plan.tasks), columns=console.columns)
    for line in forecast_lines(forecast) if forecast is not None else ():
        console.prose(line, "dim")


def plan_tree(tasks: Sequence[Task]) -> Tree:
    """Each task under the input that comes last. Tasks in a circle have no place in a tree and stand at its top."""
    ordered, _ = in_order(tasks)
    placed = {task.id for task in ordered}
    ordered = [*ordered, *(task for task in tasks if task.id not in placed)]
    tree = Tree("", hide_root=True)
    branches: dict[TaskId, Tree] = {}
    depths: dict[TaskId, int] = {}
    for task in ordered[:_MAX_TASKS]:
        inputs = [(depths[name], need == "required", name) for name, need in needs(task) if name in depths]
        depth, _, parent = max(inputs, default=(0, True, task.id))
        label = f"{short(task.id, 24)}  {short(_worker(task), 20)}{_describe_inputs(task)}  {clean(task.instruction)}"
        depths[task.id] = depth + 1
        branches[task.id] = branches.get(parent, tree).add(Text(label, no_wrap=True, overflow="ellipsis"))
    if len(ordered) > _MAX_TASKS:
        tree.add(f"… and {len(ordered) - _MAX_TASKS} more")
    return tree


def _worker(task: Task) -> str:
    if task.worker or task.match is None:
        return task.worker or "anybody"
    tags = [*task.match.all, *(["/".join(task.match.some)] if task.match.some else [])]
    return f"#{' #'.join(tags)}"


def _describe_inputs(task: Task) -> str:
    inputs = [(name, need) for name, need in needs(task) if name != task.for_each]
    quorum = [name for name, need in inputs if need == "quorum"]
    parts = [f"each of {task.for_each}"] if task.for_each else []
    parts += [name for name, need in inputs if need == "required"]
    parts += [f"{name} (optional)" for name, need in inputs if need == "optional"]
    parts += [f"{task.quorum} of ({', '.join(quorum)})"] if quorum else []
    is_above = parts == [name for name, _ in inputs] and len(parts) == 1
    return clean(f" (needs {', '.join(parts)})") if parts and not is_above else ""


def forecast_lines(forecast: Forecast) -> list[str]:
    """What a plan will take, in a few lines; nothing about times and costs that were not stated."""
    path = short(" → ".join(forecast.critical_path), _MAX_PATH)
    lines: list[str] = []
    if forecast.timed:
        work = f"{seconds(forecast.serial)} of work, up to {forecast.width} at once"
        lines.append(f"expected: {seconds(forecast.makespan)} ({work})")
        lines.append(f"critical: {path} ({seconds(forecast.critical)})")
    elif len(forecast.critical_path) > 1:
        lines.append(f"longest chain: {path}")
    usd = forecast.usd if isinstance(forecast, PlanForecast) else None
    if usd is not None:
        lines.append(f"cost: {_describe_usd(usd)}")
    elif forecast.cost != Amount():
        lines.append(f"cost: about {money(forecast.cost)}")
    if usd is not None and usd.about:
        lines.append(f"estimate: {BASIS}")
    return lines


def _describe_usd(cost: CostForecast) -> str:
    if cost.about is None:
        return f"unknown: there is no price for {' and '.join(cost.unknown) or 'one of the models'}"
    if cost.about == 0 and not cost.grows:
        return "$0, since no model that is called costs anything"
    grows = f" or more ({cost.grows})" if cost.grows else ""
    cap = f", above the budget of ${cost.budget}" if cost.above_budget else ""
    return f"about {roughly(round(1_000_000 * cost.about))}{grows}{cap}"


def describe_finding(finding: Finding) -> str:
    """One finding on one line: how grave, where, what, and its code."""
    return f"{'error' if finding.grave else 'warning'}: {finding.place}: {finding.message} [{finding.code}]"


# --- the timeline of a run

LEGEND = "━ work  x failed  · waiting to retry  ~ being refined"
_FILL = {"work": "━", "failed": "─", "refine": "~", "wait": "·"}
_MAX_ROWS = 40
_MAX_NAME = 20


class BarSegment(Struct, frozen=True):
    """What was done from `start` to `end`, in seconds since the run began; without an end it is under way."""

    kind: Literal["work", "failed", "refine", "wait"]
    start: Seconds
    end: Seconds | None
    attempt: int = 0
    """Its number: what was interrupted, or waited for a person, goes on under the same one."""


def timeline_rows(trace: Trace) -> dict[str, list[BarSegment]]:
    """The spans of each task and duty, in the order in which they began."""
    rows: dict[str, list[BarSegment]] = {}
    for duty in trace.supervision:
        rows.setdefault(duty.task or f"({duty.duty})", []).append(_span_of(duty))
    for task in (*trace.tasks, *trace.dropped):
        waits = [BarSegment("wait", retry.at, retry.at + retry.wait) for retry in task.retries if retry.wait > 0]
        spans = [*map(_span_of, task.attempts), *waits]
        if spans:
            rows.setdefault(task.id, []).extend(spans)
    for spans in rows.values():
        spans.sort(key=attrgetter("start"))
    return dict(sorted(rows.items(), key=lambda row: row[1][0].start))


def _span_of(work: AttemptTrace | DutyTrace) -> BarSegment:
    end = None if work.seconds is None else work.began + work.seconds
    if isinstance(work, DutyTrace) and work.duty == "refine":
        return BarSegment("refine", work.began, end)
    number = work.attempt if isinstance(work, AttemptTrace) else work.number
    return BarSegment("failed" if work.ending == "failed" else "work", work.began, end, number)


def draw_bar(spans: Sequence[BarSegment], room: int, until: Seconds) -> str:
    """The spans of one row in so many columns, from the beginning of the run."""
    scale = room / max(until, 1e-9)
    bar = ""
    for span in spans:  # each gets a cell at least, be it at the expense of the next
        start = max(len(bar), min(room - 1, int(span.start * scale)))
        end = max(start + 1, round((until if span.end is None else min(span.end, until)) * scale))
        drawn = _FILL[span.kind] * (end - start)
        bar = bar.ljust(start) + (f"{drawn[:-1]}x" if span.kind == "failed" else drawn)
    return bar[:room]


def timeline_lines(trace: Trace, columns: int) -> list[str]:
    """A line for each row: its name, its bar, how long was worked on it."""
    rows = timeline_rows(trace)
    name_room = max((len(short(name, _MAX_NAME)) for name in rows), default=0)
    bar_room = max(10, columns - name_room - 30)
    lines: list[str] = []
    for name, spans in list(rows.items())[:_MAX_ROWS]:
        bar = draw_bar(spans, bar_room, trace.seconds)
        lines.append(f"{short(name, _MAX_NAME):{name_room}} │{bar:{bar_room}}│ {_describe_work(spans, trace.seconds)}")
    if len(rows) > _MAX_ROWS:
        lines.append(f"… and {len(rows) - _MAX_ROWS} more")
    return lines


def _describe_work(spans: Sequence[BarSegment], until: Seconds) -> str:
    worked = [span for span in spans if span.kind in ("work", "failed")]
    took = sum((until if span.end is None else span.end) - span.start for span in worked)
    attempts = len({span.attempt for span in worked})
    return f"{seconds(took)}, {attempts} attempts" if attempts > 1 else seconds(took)


# --- charts and tables as files


# a picture is looked at in a browser: it must not do anything there
_ACTIVE = re.compile(
    r"<\s*(script|foreignobject|iframe|image|use|!doctype|!entity)|\son\w+\s*=|href\s*=|javascript:", re.IGNORECASE
)


class _WithArtifacts(msgspec.Struct):
    artifacts: list[Artifact] = []


def save_artifacts(trace: Trace, folder: Path) -> list[Path]:
    """Write the charts and the tables among the results of a run into a folder; the paths of the files."""
    files: dict[str, str] = {}
    for name, artifact in artifacts_of(trace):
        if isinstance(artifact, Table):
            files[f"{name}.csv"] = _csv(artifact)
        elif isinstance(artifact, Chart) and artifact.svg and not _ACTIVE.search(artifact.svg):
            files[f"{name}.svg"] = artifact.svg
    try:
        for name, text in files.items():
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8", newline="")
    except OSError as error:
        problem = f"{error.filename or folder} cannot be written: {error.strerror}"
        raise Invalid(f"{problem}; the run is in the journal, name another folder with --save") from error
    return [folder / name for name in files]


def artifacts_of(trace: Trace) -> Iterator[tuple[str, Artifact]]:
    """What the results of a run hold to be looked at, each with the name of its file."""
    for task in trace.tasks:
        results = cast("list[object]", task.result) if isinstance(task.result, list) else [task.result]
        number = 0
        for result in results:
            try:
                artifacts = msgspec.convert(result, _WithArtifacts).artifacts
            except msgspec.ValidationError:
                continue  # a result of some other shape
            for artifact in artifacts:
                number += 1
                yield f"{file_name(task.id)}-{number}", artifact


def file_name(name: str) -> str:
    return re.sub(r"[^\w.-]+", "_", name).strip(".") or "_"


def _csv(table: Table) -> str:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(map(_cell, table.columns))
    writer.writerows([_cell(value) for value in row] for row in table.rows)
    return text.getvalue()


def _cell(value: object) -> object:
    """A spreadsheet must not take text for a formula."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value
