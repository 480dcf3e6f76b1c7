"""Every exception chargehand raises on purpose, by who can act on it: the first words of each say who.

ChargehandError
├── Invalid             the caller: what was handed in cannot be used
│   ├── FileTooLarge    a file, or the text of all files of a run
│   ├── WrongFileType   a file that is no text, picture or PDF that can be read
│   ├── PlanInvalid     carries the findings, each with a place and a sentence
│   │   └── BudgetExceeded  the budget does not cover making a plan
│   └── NotJson         a value that JSON cannot carry; carries the place
├── Refused             the requester: it does not fit what is so now
│   ├── Unknown         there is no such thing
│   │   └── RunUnknown  no such run
│   ├── Conflict        another writer was faster; carries the version that is current
│   └── RunBusy         another process is driving it
└── StoreError          the operator
    ├── StoreUnavailable    full, read-only or locked: waits may help
    ├── Fenced              a newer owner has taken over; this one must stop
    └── Corrupt             what is stored cannot be understood; nothing is guessed

A task's failure is not in this tree: it is data (`engine.failure.Failure`).
"""

from collections.abc import Sequence
from typing import Protocol


class ChargehandError(Exception):
    """The root: catch it to catch everything we raise on purpose."""


class Invalid(ChargehandError):
    """The caller: what was handed in cannot be used; the message says what, where and the next step."""


class FileTooLarge(Invalid):
    """The caller: a file for a run has too many bytes, or the text files of the run have. Give it less."""


class WrongFileType(Invalid):
    """The caller: a file for a run is no text in UTF-8, picture or PDF that can be read. Convert it."""


class Complaint(Protocol):
    """What a check has to say: `engine.plan.Finding` does."""

    @property
    def code(self) -> str: ...
    @property
    def place(self) -> str: ...
    @property
    def message(self) -> str: ...


class PlanInvalid(Invalid):
    """The author of the plan: it cannot run. Each of `findings` has a code, a place and a sentence.

    They can be handed back to a planner. `chargehand plan --from FILE` shows them all.
    """

    def __init__(self, findings: Sequence[Complaint]) -> None:
        self.findings = tuple(findings)
        super().__init__("the plan cannot run: " + " ".join(finding.message for finding in self.findings))


class BudgetExceeded(PlanInvalid):
    """The owner of the budget: it does not cover making a plan. Allow more, or name a cheaper model."""


class NotJson(Invalid):
    """The caller: JSON cannot carry a value (NaN, half a surrogate pair, an integer over 64 bits) at `place`."""

    def __init__(self, place: str, problem: str) -> None:
        self.place = place
        super().__init__(f"{place} {problem}")


class Refused(ChargehandError):
    """The requester: it does not fit what is so now: the run has ended, nothing is asked, a result comes too late."""


class Unknown(Refused):
    """The requester: there is no such block, archive, agent or run, or it belongs to another tenant, which is the same.

    The message names those there are.
    """


class RunUnknown(Unknown):
    """The requester: there is no such run in this journal; `chargehand runs` lists them."""

    def __init__(self, run: str) -> None:
        super().__init__(f"there is no run {run!r} in this journal")


class Conflict(Refused):
    """The requester: another writer changed it first. Read `version`, the current one, and decide again."""

    def __init__(self, message: str, version: int) -> None:
        self.version = version
        super().__init__(message)


class RunBusy(Refused):
    """The requester: another process drives this run; wait, or end that process."""


class StoreError(ChargehandError):
    """The operator: the store could not do what was asked."""


class StoreUnavailable(StoreError):
    """The operator: full, read-only or locked. Nothing was lost; trying again later may work."""


class Fenced(StoreError):
    """No action: a newer owner has taken this run over. What this one still holds must be dropped."""


class Corrupt(StoreError):
    """The operator: damaged, or written by a newer version. Nothing is guessed: restore a backup, or upgrade.

    `run` and `seq` name the first entry that cannot be read, where it is an entry; `read_readable` of the journal gives
    those before it. `newer` says that a newer version wrote it.
    """

    def __init__(self, message: str, *, run: str = "", seq: int = 0, newer: bool = False) -> None:
        self.run = run
        self.seq = seq
        self.newer = newer
        super().__init__(message)
