"""Limits of providers that hold for all processes together, kept in a store that they share.

A process has a share of the calls that may be made at once, and admits calls within it by itself. It asks the store for
more when calls wait, and gives back what it does not need when other processes want more. A share grows only by an
answer of the store, and shrinks before the store is told: the shares never add up to more than the limit.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import Protocol

from msgspec import Struct

from chargehand.engine.policy import Instant, Seconds
from chargehand.errors import StoreError
from chargehand.models.limits import Limiter, Pace, Ticket

_POLL: Seconds = 0.05
"""How soon the store is asked again while calls wait, in case a notification of a change is lost."""
_PATIENCE: Seconds = 0.5
"""How soon it is asked again when it could not be reached."""
_LEASE: Seconds = 1.0
"""How long requests and tokens may be used that the store granted."""
_LINGER: Seconds = 0.25
"""How long an unused share is kept."""

logger = logging.getLogger(__name__)


class LimitDemand(Struct, frozen=True):
    """What a process tells the store about its calls with one credential, and asks for."""

    slots: int
    """The calls at once that it may make as far as it knows; it may have given up some that it had."""
    active: int = 0
    """The calls under way."""
    waiting: int = 0
    """The calls that wait to be let in."""
    requests: int = 0
    """Requests of this minute that it asks for."""
    tokens: int = 0
    """Tokens of this minute that it asks for."""
    first_tokens: int = 0
    """Tokens of the call that has waited for the longest."""
    excess_tokens: int = 0
    """How many more tokens calls took than was guessed; negative if they took less."""
    refused_round: int = -1
    """The round of the limit in which the provider refused a call for asking too much; -1 if it refused none."""
    succeeded: bool = False
    """A call went well since the last demand."""
    hold: Seconds = 0.0
    """How long the provider wants no calls."""


class LimitGrant(Struct, frozen=True):
    """What the store answers to a demand."""

    slots: int
    """The calls at once that the process may make."""
    fair: int = -1
    """How many of them to keep, once calls end, because others wait; -1 if none do."""
    round: int = 0
    """How often the limit was lowered. Refusals of calls from an earlier round do not lower it again."""
    slowed: bool = False
    """Fewer calls at once are let in than configured."""
    pause: Seconds = 0.0
    """How long the provider wants no calls."""
    requests: int = 0
    tokens: int = 0
    wait: Seconds = 0.0
    """When to ask again for requests and tokens, if there were too few."""


class LimitStore(Protocol):
    """Where processes agree on their shares."""

    def join(self, credential: str, pace: Pace, changed: Callable[[], None]) -> "LimitMember":
        """Take part. `changed` is called, in any thread, when the store should be asked again."""
        ...


class LimitMember(Protocol):
    """One limiter that takes part."""

    def exchange(self, demand: LimitDemand, then: Callable[[LimitGrant | StoreError], None]) -> None:
        """Send a demand; `then` is given the answer, in any thread. The next demand waits until then."""
        ...

    def leave(self) -> None:
        """Give back the whole share."""
        ...


class _Ticket(Ticket):
    __slots__ = ("round",)

    def __init__(self, since: Instant, tokens: int, in_round: int) -> None:
        super().__init__(since, tokens)
        self.round = in_round


class SharedLimiter(Limiter):
    """Admits calls within the share of this process."""

    def __init__(
        self, credential: str, pace: Pace, store: LimitStore, *, clock: Callable[[], Instant] = time.monotonic
    ) -> None:
        super().__init__(pace, clock=clock)
        self.allowed = 0
        self._member = store.join(credential, self.pace, self._changed_elsewhere)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._grant = LimitGrant(slots=0)
        self._asking = False
        self._ask_again = False
        self._asked_slots = 0
        self._told_waiting = False
        """The store knows that calls wait: it is asked again in a moment, and tells of changes."""
        self._next_ask: asyncio.TimerHandle | None = None
        self._requests_left = 0
        self._tokens_left = 0
        self._lease_ends = -inf
        self._used_of_lease = 0
        self._excess_tokens = 0
        self._refused_round = -1
        self._succeeded = False
        self._hold_to_tell: Seconds = 0.0

    @property
    def idle(self) -> bool:
        return not (self._grant.slowed or self._waiting or self.pause_left())

    async def enter(self, tokens: int = 0) -> Ticket:
        self._loop = asyncio.get_running_loop()
        return await super().enter(tokens)

    def leave(self, ticket: Ticket, tokens: int | None = None) -> None:
        self.active -= 1
        if tokens is not None:
            self._excess_tokens += tokens - ticket.tokens
            ticket.tokens = tokens
        if self._shrink():
            self._ask()
        if self._waiting:
            self._pump()
        elif not self.active:
            self._ask_later(_LINGER)

    def hold(self, seconds: Seconds) -> None:
        super().hold(seconds)
        self._hold_to_tell = self.pause_left()
        self._ask()

    def slow_down(self, ticket: Ticket) -> None:
        if isinstance(ticket, _Ticket) and ticket.round == self._grant.round:
            self._refused_round = ticket.round
            self._ask()

    def speed_up(self) -> None:
        self._succeeded = True
        if self._grant.slowed and self._clock() - self._changed >= self.pace.recover:
            self._changed = self._clock()
            self._ask()

    def close(self) -> None:
        """Give the share back. No call may wait any more."""
        if self._next_ask is not None:
            self._next_ask.cancel()
        self._member.leave()

    def _admit(self, now: Instant, tokens: int) -> Ticket:
        self.active += 1
        self._requests_left -= 1
        self._tokens_left -= tokens
        self._used_of_lease += 1
        return _Ticket(now, tokens, self._grant.round)

    def _window(self, now: Instant, tokens: int) -> Seconds:
        if now >= self._lease_ends:
            return inf
        lacks_requests = self.pace.requests_per_minute and self._requests_left < 1
        lacks_tokens = self.pace.tokens_per_minute and self._tokens_left < tokens
        return inf if lacks_requests or lacks_tokens else 0.0

    def _pump(self) -> None:
        super()._pump()
        if not self._waiting or self._told_waiting:
            return
        pause = self.pause_left()
        if pause:
            self._ask_later(pause)
        else:
            self._ask()

    # --- asking the store

    def _ask(self) -> None:
        """Send a demand, or another one after that which is under way."""
        if self._asking:
            self._ask_again = True
            return
        if self._next_ask is not None:
            self._next_ask.cancel()
            self._next_ask = None
        self._asking = True
        self._told_waiting = bool(self._waiting)
        demand = self._demand()
        self._asked_slots = demand.slots
        self._member.exchange(demand, self._answered)

    def _ask_later(self, wait: Seconds) -> None:
        if self._next_ask is None and self._loop is not None:
            self._next_ask = self._loop.call_later(wait, self._asked_by_timer)

    def _asked_by_timer(self) -> None:
        self._next_ask = None
        self._ask()

    def _demand(self) -> LimitDemand:
        waiting = [tokens for place, tokens in self._waiting if not place.done()]
        if not self.active and not waiting:
            self.allowed = 0
        requests = 0
        tokens = 0
        if self._windowed and waiting:
            spare_calls = self._used_of_lease  # as many as the last lease served: the next second needs no trip
            requests = max(0, len(waiting) + spare_calls - self._requests_left)
            tokens = max(0, sum(waiting) + spare_calls * waiting[0] - self._tokens_left)
        demand = LimitDemand(
            slots=self.allowed,
            active=self.active,
            waiting=len(waiting),
            requests=requests,
            tokens=tokens,
            first_tokens=waiting[0] if waiting else 0,
            excess_tokens=self._excess_tokens,
            refused_round=self._refused_round,
            succeeded=self._succeeded,
            hold=self._hold_to_tell,
        )
        self._excess_tokens = 0
        self._refused_round = -1
        self._succeeded = False
        self._hold_to_tell = 0.0
        return demand

    # both are called in the thread of the store, also when the loop of the calls is closed already

    def _answered(self, answer: LimitGrant | StoreError) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._apply, answer)

    def _changed_elsewhere(self) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._ask)

    def _apply(self, answer: LimitGrant | StoreError) -> None:
        self._asking = False
        if isinstance(answer, StoreError):
            logger.warning("no call begins, because the limits of its provider cannot be looked up: %s", answer)
            self.allowed = self.active
            self._ask_later(_PATIENCE)
            return
        self._grant = answer
        self.allowed += answer.slots - self._asked_slots
        super().hold(answer.pause)
        self._take_lease(answer)
        super()._pump()
        if self._shrink() or self._ask_again:
            self._ask_again = False
            self._ask()
        elif self._waiting:
            self._ask_later(max(_POLL, answer.wait))
        else:
            self._told_waiting = False
            if self.allowed and not self.active:  # its call was cancelled while the store was asked
                self._ask_later(_LINGER)

    def _shrink(self) -> bool:
        """Give up unused slots beyond the fair share; whether there were any."""
        if self._grant.fair < 0 or self.allowed <= max(self.active, self._grant.fair):
            return False
        self.allowed = max(self.active, self._grant.fair)
        return True

    def _take_lease(self, answer: LimitGrant) -> None:
        if not answer.requests and not answer.tokens:
            return
        now = self._clock()
        if now >= self._lease_ends:  # what was not used of the last one is lost: its minute has begun already
            self._requests_left = 0
            self._tokens_left = 0
            self._used_of_lease = 0
        self._requests_left += answer.requests
        self._tokens_left += answer.tokens
        self._lease_ends = now + _LEASE
