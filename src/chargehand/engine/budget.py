"""Money and its like: reserve before spending, settle after. Knows nothing of tasks.

`spent + reserved <= cap` holds before every call. Where it is not reported what was used, what was reserved is charged.
"""

from functools import cached_property, lru_cache
from math import inf
from typing import Literal

from msgspec import Struct, structs

from chargehand.engine.declared import Declared
from chargehand.errors import Invalid


class Amount(Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """Dollars are whole millionths (`micros`), because floats do not add up."""

    tokens: int = 0
    """Tokens, read and written."""
    micros: int = 0
    """Millionths of a dollar."""
    calls: int = 0
    """Calls of models, and of tools that are paid for."""

    @property
    def usd(self) -> float:
        return self.micros / 1_000_000

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(
            tokens=self.tokens + other.tokens, micros=self.micros + other.micros, calls=self.calls + other.calls
        )

    def __sub__(self, other: "Amount") -> "Amount":
        """What is left without the other, which may be less than nothing; see `beyond`."""
        return Amount(
            tokens=self.tokens - other.tokens, micros=self.micros - other.micros, calls=self.calls - other.calls
        )

    def __floordiv__(self, parts: int) -> "Amount":
        return Amount(tokens=self.tokens // parts, micros=self.micros // parts, calls=self.calls // parts)

    def __mul__(self, times: int) -> "Amount":
        return Amount(tokens=self.tokens * times, micros=self.micros * times, calls=self.calls * times)

    def max(self, other: "Amount") -> "Amount":
        """The larger of each, which covers either amount."""
        return Amount(
            tokens=max(self.tokens, other.tokens),
            micros=max(self.micros, other.micros),
            calls=max(self.calls, other.calls),
        )

    def min(self, other: "Amount") -> "Amount":
        """The smaller of each, which either amount covers."""
        return Amount(
            tokens=min(self.tokens, other.tokens),
            micros=min(self.micros, other.micros),
            calls=min(self.calls, other.calls),
        )

    def beyond(self, covered: "Amount") -> "Amount":
        """What this takes that is not covered, never less than nothing."""
        return (self - covered).max(NOTHING)

    def within(self, other: "Amount") -> bool:
        """Whether the other amount covers this one."""
        return self.tokens <= other.tokens and self.micros <= other.micros and self.calls <= other.calls


NOTHING = Amount()
UNLIMITED = 1 << 60
"""Stands for a missing cap where what is left is computed: more than any run uses."""


CapName = Literal["tokens", "usd", "calls", "time"]


class CapReached(Struct, frozen=True, omit_defaults=True, gc=False):
    """The cap that stopped something, in its own unit: tokens, US dollars, calls or seconds."""

    cap: CapName
    """Which cap."""
    limit: int | float
    """The most that may be used."""
    used: int | float
    """What was used or reserved of it by then."""
    needed: int | float = 0
    """What the next call would have needed; 0: no call was wanted, or the cap is of time."""
    kept: int | float = 0
    """What of it was kept for the answer."""

    def describe(self) -> str:
        """One line: the cap, and what it was used for."""
        parts = [f"{self._quantity(self.used)} used"]
        if self.kept:
            parts.append(f"{self._quantity(self.kept)} kept for the answer")
        if self.needed:
            parts.append(f"{self._quantity(self.needed)} needed for the next call")
        return f"the cap of {self._quantity(self.limit)}: {', '.join(parts)}"

    def _quantity(self, value: float) -> str:
        if self.cap == "usd":
            whole, _, cents = f"{value:,.6f}".partition(".")
            return f"${whole}.{cents.rstrip('0').ljust(2, '0')}"
        if self.cap == "time":
            return f"{value:,.1f} s" if value >= 1 else f"{value * 1000:.0f} ms"
        unit = self.cap.removesuffix("s") if value == 1 else self.cap
        return f"{value:,} {unit}"


def usd_of(micros: int | None) -> float | None:
    """Whole millionths as dollars. `Budget.micros` gives them back exactly."""
    return None if micros is None else micros / 1_000_000


class Budget(Declared, frozen=True, kw_only=True, dict=True, omit_defaults=True, forbid_unknown_fields=True):
    """The caps of one run; None is no cap. `usd` is in US dollars; `floor` is kept back for writing the answer."""

    tokens: int | None = None
    """The most tokens."""
    usd: float | None = None
    """The most US dollars."""
    calls: int | None = None
    """The most calls."""
    seconds: float | None = None
    """The most seconds."""
    floor: Amount = NOTHING
    """What tasks leave for the answer."""

    @cached_property
    def micros(self) -> int | None:
        """The cap on dollars in whole millionths, as the ledger counts them."""
        return None if self.usd is None else round(self.usd * 1_000_000)

    @cached_property
    def caps(self) -> Amount:
        """All caps as an amount."""
        return Amount(
            tokens=UNLIMITED if self.tokens is None else self.tokens,
            micros=UNLIMITED if self.micros is None else self.micros,
            calls=UNLIMITED if self.calls is None else self.calls,
        )

    def limited(self, caps: Amount) -> "Budget":
        """The same with no more than these caps. What is kept back for the answer is never more than there is."""
        least = self.caps.min(caps)
        return structs.replace(
            self,
            tokens=_cap(least.tokens),
            usd=usd_of(_cap(least.micros)),
            calls=_cap(least.calls),
            floor=self.floor.min(least),
        )

    def counted(self, amount: Amount) -> Amount:
        """What of an amount is capped here."""
        return Amount(
            tokens=0 if self.tokens is None else amount.tokens,
            micros=0 if self.micros is None else amount.micros,
            calls=0 if self.calls is None else amount.calls,
        )


def _cap(value: int) -> int | None:
    return None if value >= UNLIMITED else value


@lru_cache(maxsize=64)
def check(budget: Budget) -> None:
    """Raise Invalid for a budget that makes no sense."""
    for name in ("tokens", "usd", "calls", "seconds"):
        cap = getattr(budget, name)
        if cap is not None and not 0 <= cap < inf:  # also NaN
            raise Invalid(f"budget.{name} is {cap!r}; a cap is a number, zero or more, or left out for none")
    for name in ("tokens", "micros", "calls"):
        floor = getattr(budget.floor, name)
        cap = getattr(budget, name)
        if floor < 0:
            raise Invalid(f"budget.floor.{name} is {floor}; what is kept back is zero or more")
        if cap is not None and floor > cap:
            raise Invalid(f"budget.floor.{name} keeps {floor} of a cap of {cap}; lower the floor or raise the cap")


class Ledger(Struct, gc=False):
    """What one run has spent and what it holds in reserve, in place."""

    budget: Budget
    tokens: int = 0
    micros: int = 0
    calls: int = 0
    held_tokens: int = 0
    held_micros: int = 0
    held_calls: int = 0
    capped: bool = False
    """Whether the budget has a cap on tokens, dollars or calls."""
    lost: Amount = NOTHING
    """The part of `spent` that is an estimate: for calls that were made and whose outcome is not known."""

    def __post_init__(self) -> None:
        budget = self.budget
        self.capped = budget.tokens is not None or budget.usd is not None or budget.calls is not None

    def covers(self, amount: Amount, *, keep: Amount = NOTHING) -> bool:
        """Whether this much more may be reserved while `keep` stays untouched."""
        if not self.capped:
            return True
        budget = self.budget
        return (
            _room(budget.tokens, self.tokens + self.held_tokens, amount.tokens, keep.tokens)
            and _room(budget.micros, self.micros + self.held_micros, amount.micros, keep.micros)
            and _room(budget.calls, self.calls + self.held_calls, amount.calls, keep.calls)
        )

    def cap_reached(self, amount: Amount, *, keep: Amount = NOTHING) -> CapReached | None:
        """The first cap that does not cover this much more while `keep` stays untouched; None: all do."""
        budget = self.budget
        if not _room(budget.tokens, self.tokens + self.held_tokens, amount.tokens, keep.tokens):
            return CapReached(
                cap="tokens",
                limit=budget.tokens or 0,
                used=self.tokens + self.held_tokens,
                needed=amount.tokens,
                kept=keep.tokens,
            )
        if not _room(budget.micros, self.micros + self.held_micros, amount.micros, keep.micros):
            return CapReached(
                cap="usd",
                limit=budget.usd or 0.0,
                used=(self.micros + self.held_micros) / 1_000_000,
                needed=amount.usd,
                kept=keep.usd,
            )
        if not _room(budget.calls, self.calls + self.held_calls, amount.calls, keep.calls):
            return CapReached(
                cap="calls",
                limit=budget.calls or 0,
                used=self.calls + self.held_calls,
                needed=amount.calls,
                kept=keep.calls,
            )
        return None

    def cap_overspent(self) -> CapReached | None:
        """The first cap that more was spent than it allows; None: none."""
        reached = self.cap_reached(self.overspent)
        return None if reached is None else structs.replace(reached, needed=0)

    def reserve(self, amount: Amount) -> None:
        self.held_tokens += amount.tokens
        self.held_micros += amount.micros
        self.held_calls += amount.calls

    def settle(self, reserved: Amount, used: Amount | None) -> None:
        """Give a reservation back and book what was used; unknown use books the whole reservation."""
        self.held_tokens -= reserved.tokens
        self.held_micros -= reserved.micros
        self.held_calls -= reserved.calls
        booked = reserved if used is None else used
        self.tokens += booked.tokens
        self.micros += booked.micros
        self.calls += booked.calls

    def lose(self, reserved: Amount, expected: Amount | None) -> None:
        """Give a reservation back and book what a lost call is expected to have used; None books the reservation."""
        booked = reserved if expected is None else expected
        self.settle(reserved, booked)
        self.lost += booked

    @property
    def spent(self) -> Amount:
        return Amount(tokens=self.tokens, micros=self.micros, calls=self.calls)

    @property
    def overspent(self) -> Amount:
        """What was spent beyond the caps: by a model that wrote more than it was asked for, or charged more."""
        return self.spent.beyond(self.budget.caps) if self.capped else NOTHING

    @property
    def reserved(self) -> Amount:
        return Amount(tokens=self.held_tokens, micros=self.held_micros, calls=self.held_calls)

    @property
    def taken(self) -> Amount:
        """What is spent or reserved, and so no longer to be had."""
        return self.spent + self.reserved

    def room(self, keep: Amount) -> Amount:
        """What may still be reserved while `keep` stays untouched."""
        return self.budget.caps.beyond(self.taken + keep)


def _room(cap: int | None, taken: int, more: int, keep: int) -> bool:
    # asking for nothing always fits: a free tool may run when the purse is empty
    return cap is None or more == 0 or taken + more + keep <= cap
