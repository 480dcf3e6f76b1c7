"""The numbers a run is decided by, and the waits that follow from them.

Times are seconds; instants are seconds since 1970. Where a number comes from: docs/decisions/numbers.md. They are
written out in full (no `omit_defaults`): a default that changes later must not change what an old journal means.
"""

from functools import lru_cache
from hashlib import blake2b
from typing import Literal, TypeAlias

from msgspec import structs

from chargehand.engine.declared import Declared, Number, Positive, Wait
from chargehand.errors import Invalid

Seconds: TypeAlias = float
Instant: TypeAlias = float


class Retry(Declared, frozen=True, forbid_unknown_fields=True):
    """How often, and how long to wait in between (full jitter under a doubling ceiling)."""

    attempts: Positive = 3
    """Attempts by the task's worker."""
    fallback_attempts: Positive = 1
    """Attempts by each who steps in."""
    base: Wait = 0.5
    """The longest first wait, in seconds; it doubles."""
    ceiling: Wait = 30.0
    """The longest wait of all."""
    obey_retry_after: Wait = 60.0
    """The longest wait another side may ask for."""


class Breaking(Declared, frozen=True, forbid_unknown_fields=True):
    """When a breaker opens, for how long, and how long one probe may take."""

    consecutive: Positive = 5
    """It opens after so many failures in a row."""
    share: float = 0.5
    """Or when this share of the recent calls failed."""
    sample: Positive = 20
    """Of at least so many."""
    window: Wait = 60.0
    """Within so many seconds."""
    open: Wait = 30.0
    """For how many seconds, times how often it has opened."""
    open_ceiling: Wait = 300.0
    """And never for longer."""
    lease: Wait = 60.0
    """How many seconds the one call has that tries it out."""


class Limits(Declared, frozen=True, forbid_unknown_fields=True):
    """How wide, how deep, how many."""

    width: Positive = 16
    """Attempts at once."""
    max_tasks: Positive = 50
    """Tasks of a plan."""
    max_depth: Number = 20
    """Tasks in a chain."""
    fan_out: Number = 10
    """Readers of one result; more is a warning."""
    items: Number = 100
    """Items of a `for_each`."""
    max_nesting: Number = 3
    """Runs inside runs."""
    plans: Positive = 3
    """Tries at a plan."""
    answers: Number = 3
    """Tries at the answer."""
    replans: Number = 0
    """How often it is planned again when something is missing."""
    resumes: Number = 3
    """How often an attempt is taken up after a crash."""


class PolicyKeys(Declared, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a policy says in a team file as in Python."""

    retry: Retry = Retry()
    """How often, and after which waits."""
    breaking: Breaking = Breaking()
    """When a failing worker or model is not called any more."""
    limits: Limits = Limits()
    """How wide, how deep, how many."""
    refine: bool = True
    """A task that failed is put better before it is tried again."""
    approve: bool = False
    """A person approves the plan first."""
    uncertain: Literal["fail", "ask"] = "ask"
    """A person is asked about an effect in doubt (`ask`), or its task fails (`fail`)."""
    tainted_effects: Literal["ask", "allow"] = "ask"
    """Before an effect of a worker that has seen text from outside a person is asked, or not."""
    answer: Wait = 10.0
    """How many seconds are kept for the answer, a fifth of all at most."""
    grace: Wait = 5.0
    """For how many seconds after the deadline an answer is still taken."""


class Policy(PolicyKeys, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How one run decides: retries, breakers, limits and approvals."""

    supervision: Wait = 120.0
    """How many seconds one piece of the supervisor's work may take."""


_LEAST = {"attempts": 1, "fallback_attempts": 1, "width": 1, "max_tasks": 1, "plans": 1, "consecutive": 1, "sample": 1}


@lru_cache(maxsize=64)  # a server checks the same few policies for every run
def check(policy: Policy) -> None:
    """Raise Invalid for a number below its least sensible value."""
    for part in (policy.retry, policy.breaking, policy.limits, policy):
        for name, number in structs.asdict(part).items():
            if isinstance(number, int | float) and not number >= _LEAST.get(name, 0):
                raise Invalid(f"policy.{name} is {number}; it must be {_LEAST.get(name, 0)} or more")


def jitter(seed: int, *parts: object) -> float:
    """A number in [0, 1)."""
    text = "/".join(map(str, (seed, *parts)))
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big") / 2**64


def backoff(seed: int, retry: Retry, failures: int, *parts: object) -> Seconds:
    """The wait after this many failures: full jitter under a ceiling that doubles."""
    return jitter(seed, *parts, failures) * min(retry.ceiling, retry.base * 2 ** min(failures, 32))
