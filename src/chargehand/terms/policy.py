"""The numbers a run is decided by. Times are seconds; instants are seconds since 1970.

Where a number comes from: docs/decisions/numbers.md. They are written out in full (no `omit_defaults`): a default that
changes later must not change what an old journal means.
"""

from functools import lru_cache
from typing import Literal, TypeAlias

from msgspec import structs

from chargehand.errors import Invalid
from chargehand.terms.keywords import Declared

Seconds: TypeAlias = float
Instant: TypeAlias = float


class Retry(Declared, frozen=True, forbid_unknown_fields=True):
    """How often, and how long to wait in between (full jitter under a doubling ceiling)."""

    attempts: int = 3
    fallback_attempts: int = 1
    base: Seconds = 0.5
    ceiling: Seconds = 30.0
    obey_retry_after: Seconds = 60.0


class Breaking(Declared, frozen=True, forbid_unknown_fields=True):
    """When a breaker opens, for how long, and how long one probe may take."""

    consecutive: int = 5
    share: float = 0.5
    sample: int = 20
    window: Seconds = 60.0
    open: Seconds = 30.0
    open_ceiling: Seconds = 300.0
    lease: Seconds = 60.0


class Limits(Declared, frozen=True, forbid_unknown_fields=True):
    """How wide, how deep, how many."""

    width: int = 16
    tasks: int = 50
    depth: int = 20
    fan_out: int = 10
    items: int = 100
    nesting: int = 3
    plans: int = 3
    answers: int = 3
    replans: int = 0
    resumes: int = 3


class Policy(Declared, frozen=True, forbid_unknown_fields=True):
    """How one run decides. `uncertain` says what becomes of an effect whose outcome nobody knows.

    `tainted_effects`: whether a person is asked before an effect that a worker wants who has seen text from outside.
    """

    retry: Retry = Retry()
    breaking: Breaking = Breaking()
    limits: Limits = Limits()
    refine: bool = True
    approve: bool = False
    uncertain: Literal["fail", "ask"] = "fail"
    tainted_effects: Literal["ask", "allow"] = "ask"
    supervision: Seconds = 120.0
    answer: Seconds = 10.0
    grace: Seconds = 5.0


_LEAST = {"attempts": 1, "fallback_attempts": 1, "width": 1, "tasks": 1, "plans": 1, "consecutive": 1, "sample": 1}


@lru_cache(maxsize=64)  # a server checks the same few policies for every run
def check(policy: Policy) -> None:
    """Raise Invalid for a number below its least sensible value."""
    if not isinstance(policy.approve, bool):  # pyright: ignore[reportUnnecessaryIsInstance] - people write "never"
        raise Invalid(f"policy.approve is {policy.approve!r}; write True or False")
    for part in (policy.retry, policy.breaking, policy.limits, policy):
        for name, number in structs.asdict(part).items():
            if isinstance(number, int | float) and not number >= _LEAST.get(name, 0):
                raise Invalid(f"policy.{name} is {number}; it must be {_LEAST.get(name, 0)} or more")
