"""The form of a ledger between us and a model: the schema it is asked for, and what its reply amounts to.

What follows from it is `stepwise`'s business.
"""

from collections.abc import Collection, Mapping, Sequence

import msgspec
from msgspec import Raw, Struct

from chargehand.agents.questions import instruction, texts, who, words, yes

_LONGEST = 1200


class Said(Struct, frozen=True):
    """What a ledger says. `replaces` names the task that failed whose place the next one takes."""

    done: bool
    looping: bool
    progress: bool
    worker: str
    instruction: str
    why: str
    replaces: str = ""
    unserved: tuple[str, ...] = ()

    def told(self) -> str:
        """It in words, for the trace."""
        if self.done:
            return f"done{self.reason}"
        looping = "looping" if self.looping else "not looping"
        progress = "progress" if self.progress else "no progress"
        after = f"next {self.worker or 'nobody'}: {self.instruction or 'nothing'}"
        return f"not done, {looping}, {progress}; {after}{self.reason}"

    @property
    def reason(self) -> str:
        return f" (why: {self.why})" if self.why else ""


def schema(workers: Sequence[str], failed: Sequence[str]) -> Raw:
    """The schema for a team, some of whose tasks failed."""
    flag = {"type": "boolean"}
    fields: dict[str, object] = {
        "why": {"type": "string", "maxLength": 600},
        "done": flag,
        "looping": flag,
        "progress": flag,
        "next": {"anyOf": [{"type": "string", "enum": list(workers)}, {"type": "null"}]},
        "instruction": {"type": "string", "maxLength": _LONGEST},
        "unserved": {"type": "array", "items": {"type": "string", "maxLength": 300}, "maxItems": 10},
    }
    if failed:
        fields["replaces"] = {"anyOf": [{"type": "string", "enum": list(failed)}, {"type": "null"}]}
    whole = {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}
    return Raw(msgspec.json.encode(whole))


def read(table: Mapping[str, object], workers: Sequence[str], failed: Collection[str]) -> Said:
    """What a reply amounts to; what it leaves out is taken as no reason to stop."""
    replaces = table.get("replaces")
    return Said(
        done=yes(table.get("done")),
        looping=yes(table.get("looping")),
        progress=yes(table.get("progress"), otherwise=True),
        worker=who(table.get("next"), workers),
        instruction=instruction(table.get("instruction")),
        why=words(table.get("why")),
        replaces=replaces if isinstance(replaces, str) and replaces in failed else "",
        unserved=texts(table.get("unserved")),
    )
