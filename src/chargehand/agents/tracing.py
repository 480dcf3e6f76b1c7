"""What the figures of a worker's result rest on: its tools, what it was given, or its own words. No model is asked."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import cast

from msgspec import Struct

from chargehand.agents.claims import Claim, Source, told, trace_text
from chargehand.agents.evidence import Evidence
from chargehand.agents.levels import Partly
from chargehand.agents.off_loop import AT_ONCE
from chargehand.models.exhibits import Product
from chargehand.terms.tracing import Tracing, Untraced
from chargehand.terms.value import decode_value, encode_value

_MOST = 20  # of what could not be traced is kept
_LONGEST = 160  # characters of a text and of its sentence that are kept
_JUDGED = frozenset(
    (
        "score",
        "scores",
        "rating",
        "confidence",
        "priority",
        "rank",
        "index",
        "order",
        "probability",
        "grade",
        "severity",
        "level",
        "weight",
        "likelihood",
        "position",
        "step",
    )
)


class Material(Struct):
    """What a worker has to work from: results of `tools`, what was `given`, and what other workers alone say."""

    tools: list[object] = []
    given: list[object] = []
    words: list[object] = []
    untraced: list[Untraced] = []
    """What could not be traced in the results of other tasks that it was given."""
    has_tools: bool = False

    @property
    def size(self) -> int:
        return sum(len(str(one)) for one in (*self.tools, *self.given, *self.words))


async def trace_result(value: object, material: Material, today: date) -> Tracing | None:
    """What the figures of a result rest on; None where there are none. Much material is gone through in a thread."""
    text = claimed_text(value)
    if len(text) + material.size <= AT_ONCE:  # this is done for every task: no call more than is needed
        return _trace(text, material, today)
    return await asyncio.to_thread(_trace, text, material, today)


def _trace(text: str, material: Material, today: date) -> Tracing | None:
    untraced = [one.text for one in material.untraced]
    sources: dict[str, Source] = {"tools": Source(Evidence(*material.tools))}
    if material.given:
        sources["given"] = Source(Evidence(*material.given), "input", Evidence(*untraced) if untraced else None)
    if material.words:
        sources["words"] = Source(Evidence(*material.words), "words")
    if not all(source.evidence.whole for source in sources.values()):
        return Tracing(unread=True)
    claims = trace_text(text, sources, Evidence(), today)
    if not claims:
        return None
    left = [_untraced(one, material) for one in claims if not one.supported]
    from_tools = sum(one.origin == "tool" for one in claims)
    given = sum(one.origin == "input" for one in claims)
    return Tracing(from_tools, given, tuple(dict.fromkeys(left))[:_MOST])


def _untraced(claim: Claim, material: Material) -> Untraced:
    only_words = claim.origin == "words" or not (material.has_tools or claim.conflict)
    origin = "words" if only_words else ""
    return Untraced(
        kind=claim.kind,
        text=claim.text[:_LONGEST],
        origin=origin,
        conflict=claim.conflict,
        sentence=claim.sentence[:_LONGEST],
    )


def objection(tracing: Tracing, *, called: bool) -> str:
    """What a worker is told about figures that its tools did not return; empty where there are none."""
    wrong = [one for one in tracing.untraced if not one.origin]
    if not wrong:
        return ""
    lines = "\n".join(f"- {describe(one)}" for one in wrong[:8])
    cause = "stand in no result of your tools" if called else "rest on nothing: you have used none of your tools"
    return (
        f"These parts of your reply {cause}, nor in what you were given:\n{lines}\n"
        "Take them from what the tools returned, call a tool, or leave them out. Then send the whole reply again."
    )


def describe(one: Untraced) -> str:
    """Something that could not be traced, in a line."""
    return told(Claim(one.kind, one.text, one.sentence, conflict=one.conflict))


def claimed_text(value: object) -> str:
    """What a result says, line by line. Of data, every record is a line; grades that it gives are left out."""
    if isinstance(value, Product | Partly):
        return value.text
    if isinstance(value, str):
        return value
    plain = decode_value(encode_value(value))
    return "\n".join(_lines(plain))


def _lines(value: object) -> Iterator[str]:
    line: list[tuple[str, object]] = [("", value)]
    while line:
        key, one = line.pop()
        if isinstance(one, dict):
            table = cast("Mapping[str, object]", one)
            flat = [(name, item) for name, item in table.items() if not isinstance(item, dict | list)]
            said = [f"{name.replace('_', ' ')}: {_plain(item)}" for name, item in flat if name not in _JUDGED]
            yield "; ".join(part for part in said if part)
            flat_names = {name for name, _ in flat}
            line.extend((name, item) for name, item in table.items() if name not in flat_names)
        elif isinstance(one, list):
            line.extend((key, item) for item in reversed(cast("Sequence[object]", one)))
        elif one is not None and key not in _JUDGED:
            yield f"{key.replace('_', ' ')}: {_plain(one)}" if key else _plain(one)


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)
