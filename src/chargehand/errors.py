"""Every exception chargehand raises on purpose, by who can act on it.

ChargehandError
├── Invalid             the caller: what was handed in cannot be used
│   ├── PlanInvalid     carries the findings, each with a place and a sentence
│   └── NotJson         a value that JSON cannot carry; carries the place
├── Refused             the requester: it does not fit what is so now
│   ├── Unknown         there is no such thing
│   │   └── RunUnknown  no such run
│   ├── Conflict        somebody else was faster; carries the version that is current
│   └── RunBusy         somebody else is driving it, or owns the journal
└── StoreError          the operator
    ├── StoreUnavailable    full, read-only or locked: waits may help
    ├── Fenced              a newer owner has taken over; this one must stop
    └── Corrupt             what is stored cannot be understood; nothing is guessed

A task's failure is not in this tree: it is data (`terms.events.Failure`).
"""

from collections.abc import Sequence
from typing import Protocol


class ChargehandError(Exception):
    """The root: catch it to catch everything we raise on purpose."""


class Invalid(ChargehandError):
    """Something handed in cannot be used; the message says what, where and the next step."""


class Complaint(Protocol):
    """What a check has to say: `terms.plan.Finding` does."""

    @property
    def code(self) -> str: ...
    @property
    def place(self) -> str: ...
    @property
    def message(self) -> str: ...


class PlanInvalid(Invalid):
    """A plan that cannot run. `findings` can be handed back to whoever wrote it."""

    def __init__(self, findings: Sequence[Complaint]) -> None:
        self.findings = tuple(findings)
        super().__init__("the plan cannot run: " + " ".join(finding.message for finding in self.findings))


class NotJson(Invalid):
    """A value that JSON cannot carry, for example NaN or half a surrogate pair."""

    def __init__(self, place: str, problem: str) -> None:
        self.place = place
        super().__init__(f"{place} {problem}")


class Refused(ChargehandError):
    """A report or request that does not fit what is so now, for example a result that comes too late."""


class Unknown(Refused):
    """There is no such block, archive, agent or run; or it belongs to somebody else, which is the same."""


class RunUnknown(Unknown):
    def __init__(self, run: str) -> None:
        super().__init__(f"there is no run {run!r} in this journal")


class Conflict(Refused):
    """What was to be replaced is not what is there any more. Read `version`, and decide again."""

    def __init__(self, message: str, version: int) -> None:
        self.version = version
        super().__init__(message)


class RunBusy(Refused):
    """Somebody else is driving this run, or owns the whole journal."""


class StoreError(ChargehandError):
    """The store could not do what was asked."""


class StoreUnavailable(StoreError):
    """Full, read-only or locked. Nothing was lost; trying again later may work."""


class Fenced(StoreError):
    """A newer owner has taken this run over. What this one still holds must be dropped."""


class Corrupt(StoreError):
    """What is stored cannot be understood: damaged, or written by a newer version."""
