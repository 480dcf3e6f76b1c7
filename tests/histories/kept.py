"""Histories as they are kept: one JSON object per entry, and beside it what the run came to."""

from pathlib import Path

import msgspec
from msgspec import Raw, Struct

from chargehand.engine.budget import Amount
from chargehand.engine.events import Ending, EndReason, Entry
from chargehand.engine.state import RunState
from chargehand.engine.value import decode_value
from chargehand.journal.codec import TAGS, decode, encode, version_of

HERE = Path(__file__).parent


class Line(Struct, frozen=True):
    """An entry as stored: the version and the body of its event as they were when it was written."""

    seq: int
    at: float
    version: int
    event: Raw


class Expected(Struct, frozen=True):
    """What a run came to. `numbers` are those of its policy, also where the journal leaves them out as usual."""

    ending: Ending
    reason: EndReason
    statuses: dict[str, str]
    gaps: list[str]
    spent: Amount
    answer: object
    numbers: dict[str, object]


class _Tagged(Struct):
    type: str


def lines_of(entries: list[Entry]) -> list[Line]:
    return [Line(entry.seq, entry.at, version_of(entry.event), Raw(encode(entry.event))) for entry in entries]


def entries_of(lines: list[Line], name: str) -> list[Entry]:
    """The entries, through the same door by which a journal's rows come in."""
    found: list[Entry] = []
    for line in lines:
        body = bytes(line.event)
        kind = msgspec.json.decode(body, type=_Tagged).type
        found.append(Entry(line.seq, line.at, decode(kind, line.version, body, run=name, seq=line.seq)))
    return found


def expected_of(state: RunState) -> Expected:
    assert state.ended is not None
    return Expected(
        ending=state.ended.ending,
        reason=state.ended.reason,
        statuses={task: one.status.value for task, one in state.tasks.items()},
        gaps=[gap.task for gap in state.ended.gaps],
        spent=state.ledger.spent,
        answer=None if state.answer is None else decode_value(state.answer),
        numbers=_numbers(state.requested.policy),
    )


def _numbers(part: Struct, place: str = "policy") -> dict[str, object]:
    found: dict[str, object] = {}
    for name in part.__struct_fields__:
        value = getattr(part, name)
        found |= _numbers(value, f"{place}.{name}") if isinstance(value, Struct) else {f"{place}.{name}": value}
    return found


def tags(entries: list[Entry]) -> set[str]:
    return {TAGS[type(entry.event)] for entry in entries}


def read_lines(name: str) -> list[Line]:
    text = (HERE / f"{name}.jsonl").read_bytes()
    return [msgspec.json.decode(line, type=Line) for line in text.splitlines()]


def read_expected(name: str) -> Expected:
    return msgspec.json.decode((HERE / f"{name}.expected.json").read_bytes(), type=Expected)


def names() -> list[str]:
    return sorted(path.stem for path in HERE.glob("*.jsonl"))
