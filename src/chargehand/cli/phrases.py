"""Amounts, results, failures and gaps in a few words. What an event says as a whole lies in `words`."""

from typing import cast

import msgspec
from msgspec import Raw

from chargehand.agents.levels import InnerGap
from chargehand.cli.console import clean, short
from chargehand.models.exhibits import Chart, Exhibit, Figure, Passages, Table
from chargehand.runtime.traced import calls_in
from chargehand.terms import events as ev
from chargehand.terms.budget import Amount
from chargehand.terms.value import decode_value

ROOM = 72


def money(amount: Amount) -> str:
    """Dollars, tokens and calls; what is nothing is left out."""
    parts = [dollars(amount.micros)] if amount.micros else []
    parts += [counted(amount.tokens, "token")] if amount.tokens else []
    parts += [counted(amount.calls, "call")] if amount.calls else []
    return ", ".join(parts) or "nothing"


def dollars(micros: int) -> str:
    whole, _, cents = f"{micros / 1_000_000:.6f}".partition(".")
    return f"${int(whole):,}.{cents.rstrip('0').ljust(2, '0')}"


def counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def value(result: Raw) -> str:
    """A result in a few words."""
    found = decode_value(result)
    if isinstance(found, dict):
        return _table(cast("dict[str, object]", found), result)
    if isinstance(found, list):
        return f"a list of {len(cast('list[object]', found))}"
    return short(found if isinstance(found, str) else bytes(result).decode(), ROOM)


def _table(found: dict[str, object], result: Raw) -> str:
    """What a worker, a tool or a model returned: its words, where it has any."""
    if calls := calls_in(found):
        return short(f"a wish to call {', '.join(name for name, _ in calls)}", ROOM)
    for name, lead in (("error", "an error: "), ("text", "")):
        if isinstance(said := found.get(name), str) and said:
            return short(f"{lead}{said}", ROOM)
    shown = found.get("value")
    return _exhibit(shown) or short(shown if isinstance(shown, str) and shown else bytes(result).decode(), ROOM)


def _exhibit(found: object) -> str:
    """What a tool put on the table, by its kind; nothing for anything else."""
    exhibit: Exhibit
    try:
        exhibit = msgspec.convert(found, Exhibit)
    except msgspec.ValidationError:
        return ""
    match exhibit:
        case Table(rows=rows):
            return f"a table of {counted(len(rows), 'row')}"
        case Passages(found=passages):
            return counted(len(passages), "passage")
        case Figure(value=figure, unit=unit):
            return short(f"{figure} {unit}".strip(), ROOM)
        case Chart(title=title):
            return short(f"a chart: {title}", ROOM)


def gap(found: ev.Gap) -> str:
    """One thing an answer does without."""
    if isinstance(found, InnerGap):
        where = " ".join(filter(None, (clean(found.inner), f"in {clean(found.run)}")))
        said = f"{found.status} ({_why(found)})"
        return f"{clean(found.task)} without a part of {clean(found.worker)}: {where} {said}"
    if not found.task:
        return f"{found.status}: {clean(found.message)}"
    return f"{clean(found.task)} {found.status} ({_why(found)})"


def _why(found: ev.Gap) -> str:
    return clean(found.message) if found.reason == found.status else f"{found.reason}: {clean(found.message)}"


def failure(found: ev.Failure) -> str:
    return f"({found.kind}: {short(found.message, ROOM)})"
