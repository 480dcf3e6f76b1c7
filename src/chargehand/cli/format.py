"""Values as short text: money, counts, times, sizes, results, failures and gaps."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import cast

import msgspec
from msgspec import Raw, structs

from chargehand.cli.console import short
from chargehand.engine import events as ev
from chargehand.engine.budget import NOTHING, Amount
from chargehand.engine.plan import NO_TASK
from chargehand.engine.policy import Seconds
from chargehand.engine.value import decode_value
from chargehand.models.artifacts import Artifact, Chart, Figure, Passages, Table
from chargehand.runtime.trace import calls_in

ROOM = 72
_NAMED_TASKS = 8


def money(amount: Amount) -> str:
    """Dollars, tokens and calls; what is nothing is left out."""
    parts = [dollars(amount.micros)] if amount.micros else []
    parts += [counted(amount.tokens, "token")] if amount.tokens else []
    parts += [counted(amount.calls, "call")] if amount.calls else []
    return ", ".join(parts) or "nothing"


def cost(used: Amount, lost: Amount, unpriced: Sequence[str] = ()) -> str:
    """Return what a run cost, the part of it that is an estimate for lost calls, and the models of unknown price."""
    parts = [money(used)]
    parts += [f"of it for lost calls, estimated: {money(lost)}"] if lost != NOTHING else []
    parts += [f"cost unknown: {', '.join(name or 'a model' for name in dict.fromkeys(unpriced))}"] if unpriced else []
    return "; ".join(parts)


def dollars(micros: int) -> str:
    whole, _, cents = f"{micros / 1_000_000:.6f}".partition(".")
    return f"${int(whole):,}.{cents.rstrip('0').ljust(2, '0')}"


def counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def describe_result(result: Raw) -> str:
    """A result in a few words."""
    value = decode_value(result)
    if isinstance(value, dict):
        return _describe_fields(cast("dict[str, object]", value), result)
    if isinstance(value, list):
        return f"a list of {len(cast('list[object]', value))}"
    return short(value if isinstance(value, str) else bytes(result).decode(), ROOM)


def _describe_fields(fields: dict[str, object], result: Raw) -> str:
    """What a worker, a tool or a model returned: its words, where it has any."""
    if calls := calls_in(fields):
        return short(f"a wish to call {', '.join(call.name for call in calls)}", ROOM)
    for name, lead in (("error", "an error: "), ("text", "")):
        text = fields.get(name)
        if text and isinstance(text, str):
            return short(f"{lead}{text}", ROOM)
    value = fields.get("value")
    text = value if value and isinstance(value, str) else bytes(result).decode()
    return short(_describe_artifact(value) or text, ROOM)


def _describe_artifact(value: object) -> str:
    """What a tool returned to be shown, by its kind; nothing for anything else."""
    artifact: Artifact
    try:
        artifact = msgspec.convert(value, Artifact)
    except msgspec.ValidationError:
        return ""
    match artifact:
        case Table(rows=rows):
            return f"a table of {counted(len(rows), 'row')}"
        case Passages(found=passages):
            return counted(len(passages), "passage")
        case Figure(value=figure, unit=unit):
            return f"{figure} {unit}".strip()
        case Chart(title=title):
            return f"a chart: {title}"


def describe_gaps(gaps: Sequence[ev.Gap]) -> list[str]:
    """Return what an answer does without, a line each; tasks that are missing for the same reason share one."""
    groups: dict[bytes, tuple[ev.Gap, list[str]]] = {}
    for gap in gaps:
        cause = structs.replace(gap, cap=None)
        if gap.task and not gap.run:
            cause = structs.replace(cause, task=NO_TASK)
        # a gap holds the arguments of a call, so it is no key itself
        groups.setdefault(msgspec.json.encode(cause), (cause, []))[1].append(gap.task)
    lines: list[str] = []
    for gap, tasks in groups.values():
        names = ", ".join(tasks[:_NAMED_TASKS])
        more = f" and {len(tasks) - _NAMED_TASKS} more" if len(tasks) > _NAMED_TASKS else ""
        lines.append(_describe_gap(gap, f"{names}{more}"))
    return lines


def _describe_gap(gap: ev.Gap, tasks: str) -> str:
    reason = gap.message if gap.reason == gap.status else f"{gap.reason}: {gap.message}"
    if gap.run:
        where = f"{gap.inner} in {gap.run}".strip()
        return f"{gap.task} without a part of {gap.worker}: {where} {gap.status} ({reason})"
    if not tasks:
        return f"{gap.status}: {gap.message}"
    return f"{tasks} {gap.status} ({reason})"


def describe_failure(failure: ev.Failure) -> str:
    return f"({failure.kind}: {short(failure.message, ROOM)})"


_BAR = 10


def bar(share: float) -> str:
    """Ten signs, of which as many are full as the share says; whatever is not nothing shows."""
    filled = max(1, round(min(1.0, share) * _BAR)) if share > 0 else 0
    return f"{'━' * filled}{'·' * (_BAR - filled)}"


def when(at: float) -> str:
    """A moment on the clock here."""
    if not at:
        return "never"
    try:
        return datetime.fromtimestamp(at, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return "no known time"


def ago(at: float, present: float) -> str:
    """How long ago a moment was; a day, if that is long."""
    if not at:
        return "never"
    passed = present - at
    for limit, unit, word in ((60, 1, ""), (3600, 60, "min"), (86_400, 3600, "h"), (864_000, 86_400, "days")):
        if -5 <= passed < limit:
            count = int(passed // unit)
            label = "day" if word == "days" and count == 1 else word
            return f"{count} {label} ago" if word else "just now"
    return when(at)[:10]


def roughly(micros: int) -> str:
    """Dollars in two digits that count, for what is only estimated."""
    step = 10 ** max(0, len(str(micros)) - 2)
    return dollars(-(-micros // step) * step)


def seconds(amount: Seconds) -> str:
    if amount < 0.0995:
        return f"{amount * 1000:.0f} ms" if amount else "0 s"
    if amount < 120:
        return f"{amount:.1f} s"
    return f"{amount / 60:.1f} min" if amount < 7200 else f"{amount / 3600:.1f} h"
