"""The numbers a run is decided by. Times are seconds; instants are seconds since 1970.

Where a number comes from: docs/decisions/numbers.md. They are written out in full (no `omit_defaults`): a default that
changes later must not change what an old journal means.
"""

from functools import lru_cache
from typing import Literal, TypeAlias

from msgspec import structs

from chargehand.engine.keywords import Declared
from chargehand.errors import Invalid

Seconds: TypeAlias = float
Instant: TypeAlias = float


class Retry(Declared, frozen=True, forbid_unknown_fields=True):
    """How often, and how long to wait in between (full jitter under a doubling ceiling)."""

    attempts: int = 3
    """Attempts by the task's worker."""
    fallback_attempts: int = 1
    """Attempts by each who steps in."""
    base: Seconds = 0.5
    """The longest first wait, in seconds; it doubles."""
    ceiling: Seconds = 30.0
    """The longest wait of all."""
    obey_retry_after: Seconds = 60.0
    """The longest wait another side may ask for."""


class Breaking(Declared, frozen=True, forbid_unknown_fields=True):
    """When a breaker opens, for how long, and how long one probe may take."""

    consecutive: int = 5
    """It opens after so many failures in a row."""
    share: float = 0.5
    """Or when this share of the recent calls failed."""
    sample: int = 20
    """Of at least so many."""
    window: Seconds = 60.0
    """Within so many seconds."""
    open: Seconds = 30.0
    """For how many seconds, times how often it has opened."""
    open_ceiling: Seconds = 300.0
    """And never for longer."""
    lease: Seconds = 60.0
    """How many seconds the one call has that tries it out."""


class Limits(Declared, frozen=True, forbid_unknown_fields=True):
    """How wide, how deep, how many."""

    width: int = 16
    """Attempts at once."""
    max_tasks: int = 50
    """Tasks of a plan."""
    max_depth: int = 20
    """Tasks in a chain."""
    fan_out: int = 10
    """Readers of one result; more is a warning."""
    items: int = 100
    """Items of a `for_each`."""
    max_nesting: int = 3
    """Runs inside runs."""
    plans: int = 3
    """Tries at a plan."""
    answers: int = 3
    """Tries at the answer."""
    replans: int = 0
    """How often it is planned again when something is missing."""
    resumes: int = 3
    """How often an attempt is taken up after a crash."""


class Policy(Declared, frozen=True, forbid_unknown_fields=True):
    """How one run decides. `uncertain` says what becomes of an effect whose outcome nobody knows.

    `tainted_effects`: whether a person is asked before an effect that a worker wants who has seen text from outside.
    """

    retry: Retry = Retry()
    """How often, and after which waits."""
    breaking: Breaking = Breaking()
    """When somebody is left alone."""
    limits: Limits = Limits()
    """How wide, how deep, how many."""
    refine: bool = True
    """A task that failed is put better before it is tried again."""
    approve: bool = False
    """A person approves the plan first."""
    uncertain: Literal["fail", "ask"] = "fail"
    """An effect in doubt fails its task, or a person is asked."""
    tainted_effects: Literal["ask", "allow"] = "ask"
    """Before an effect of a worker that has seen text from outside a person is asked, or not."""
    supervision: Seconds = 120.0
    """How many seconds one piece of the supervisor's work may take."""
    answer: Seconds = 10.0
    """How many seconds are kept for the answer, a fifth of all at most."""
    grace: Seconds = 5.0
    """For how many seconds after the deadline an answer is still taken."""


_LEAST = {"attempts": 1, "fallback_attempts": 1, "width": 1, "max_tasks": 1, "plans": 1, "consecutive": 1, "sample": 1}


@lru_cache(maxsize=64)  # a server checks the same few policies for every run
def check(policy: Policy) -> None:
    """Raise Invalid for a number below its least sensible value."""
    for part in (policy.retry, policy.breaking, policy.limits, policy):
        for name, number in structs.asdict(part).items():
            if isinstance(number, int | float) and not number >= _LEAST.get(name, 0):
                raise Invalid(f"policy.{name} is {number}; it must be {_LEAST.get(name, 0)} or more")
