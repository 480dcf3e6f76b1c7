"""How much may be asked of one provider at a time: calls at once, calls and tokens a minute, pauses, retries.

One limiter belongs to one credential of one provider and to one event loop. Who is let in is decided in order of
arrival. What a failure means is the guard's business.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from math import inf

from msgspec import Struct

from chargehand.engine.policy import Instant, Seconds
from chargehand.models.messages import Request

_MINUTE = 60.0
_LEAST_WAIT = 0.001
_MOST_DOUBLINGS = 16
_LONGEST_HOLD = 86_400.0  # a foreign model may ask for any time, even an endless one
_GUESSED_OUTPUT = 1_000


class Pace(Struct, frozen=True, forbid_unknown_fields=True):
    """The most a provider is asked for: calls at once (one at least), calls and tokens a minute (0: no limit is known).

    `recover` is the time per step back up.
    """

    concurrency: int = 64
    requests_per_minute: int = 0
    tokens_per_minute: int = 0
    recover: Seconds = 5.0


class Ticket:
    """One call that was let in. `tokens` is a guess until the call is over."""

    __slots__ = ("since", "tokens")

    def __init__(self, since: Instant, tokens: int) -> None:
        self.since = since
        self.tokens = tokens


class Limiter:
    """Lets calls in. After a refusal for asking too much, half as many at once are let in, and slowly more again."""

    def __init__(self, pace: Pace | None = None, *, clock: Callable[[], Instant] = time.monotonic) -> None:
        self.pace = pace or Pace()
        self.retries = Retries(clock=clock)
        self.allowed: int = max(1, self.pace.concurrency)
        self.active: int = 0
        self._clock = clock
        self._windowed = bool(self.pace.requests_per_minute or self.pace.tokens_per_minute)
        self._recent: deque[Ticket] = deque()
        self._tokens = 0
        self._paused_until = -inf
        self._changed = -inf
        self._waiting: deque[tuple[asyncio.Future[Ticket], int]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def counts_tokens(self) -> bool:
        """Whether it is worth guessing how many tokens a call will take."""
        return bool(self.pace.tokens_per_minute)

    def pause_left(self) -> Seconds:
        """How long no call is let in."""
        return max(0.0, self._paused_until - self._clock())

    @property
    def idle(self) -> bool:
        """Whether one more would be let in at once, and no refusal has slowed calls down lately."""
        slowed = self.allowed < self.pace.concurrency
        return not (slowed or self._waiting or self._wait(self._clock(), 0))

    async def enter(self, tokens: int = 0) -> Ticket:
        """Wait for a turn. Every ticket must be handed back with `leave`."""
        if not self._waiting:
            now = self._clock()
            if not self._wait(now, tokens):
                return self._admit(now, tokens)
        place: asyncio.Future[Ticket] = asyncio.get_running_loop().create_future()
        self._waiting.append((place, tokens))
        self._pump()
        try:
            return await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                if place.exception() is None:  # else it was turned away in the same moment, and has no ticket
                    self.leave(place.result(), tokens=0)
            else:
                self._pump()  # the next in line may be let in now
            raise

    def leave(self, ticket: Ticket, tokens: int | None = None) -> None:
        """The call is over. `tokens` is what it really took; left out, the guess stands."""
        self.active -= 1
        if tokens is not None and self._windowed:
            self._tokens += tokens - ticket.tokens
            ticket.tokens = tokens
        if self._waiting:
            self._pump()

    def hold(self, seconds: Seconds) -> None:
        """The provider asks for a pause: no call is let in before it is over."""
        self._paused_until = max(self._paused_until, self._clock() + min(seconds, _LONGEST_HOLD))

    def turn_away(self, why: Callable[[], Exception]) -> None:
        """Fail every waiting call with the reason, so that it may go elsewhere: none would be let in before long."""
        waiting = self._waiting
        self._waiting = deque()
        for place, _ in waiting:
            if not place.done():
                place.set_exception(why())

    def close(self) -> None:
        """No call is made any more."""

    def slow_down(self, ticket: Ticket) -> None:
        """The provider refused a call because it was asked too much. A burst of refusals counts as one."""
        if ticket.since > self._changed:
            self.allowed = max(1, min(self.allowed, self.active) // 2)
            self._changed = self._clock()

    def speed_up(self) -> None:
        """A call went well."""
        if self.allowed < self.pace.concurrency and (now := self._clock()) - self._changed >= self.pace.recover:
            self.allowed += 1
            self._changed = now
            self._pump()

    def _admit(self, now: Instant, tokens: int) -> Ticket:
        ticket = Ticket(now, tokens)
        self.active += 1
        if self._windowed:
            self._recent.append(ticket)
            self._tokens += tokens
        return ticket

    def _wait(self, now: Instant, tokens: int) -> Seconds:
        """How long until one more may go: infinite when another call has to end first."""
        if self.active >= self.allowed:
            return inf
        if now < self._paused_until:
            return self._paused_until - now
        return self._window(now, tokens) if self._windowed else 0.0

    def _window(self, now: Instant, tokens: int) -> Seconds:
        recent = self._recent
        pace = self.pace
        while recent and recent[0].since <= now - _MINUTE:
            self._tokens -= recent.popleft().tokens
        if not recent:
            return 0.0  # even a call larger than the limit goes once nothing else does
        if 0 < pace.requests_per_minute <= len(recent):
            return recent[len(recent) - pace.requests_per_minute].since + _MINUTE - now
        excess = self._tokens + tokens - pace.tokens_per_minute
        if not pace.tokens_per_minute or excess <= 0:
            return 0.0
        for ticket in recent:
            excess -= ticket.tokens
            if excess <= 0:
                return ticket.since + _MINUTE - now
        return recent[-1].since + _MINUTE - now

    def _pump(self) -> None:
        """Let in the calls that may go, and come back when the next one may."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = self._clock()
        while self._waiting:
            place, tokens = self._waiting[0]
            if not place.done():
                wait = self._wait(now, tokens)
                if wait:
                    if wait < inf:
                        self._timer = place.get_loop().call_later(max(wait, _LEAST_WAIT), self._pump)
                    return
                place.set_result(self._admit(now, tokens))
            self._waiting.popleft()


class Refusals:
    """Refusals for asking too much since the last call that went well, by rounds: a burst of them is one."""

    def __init__(self, *, clock: Callable[[], Instant] = time.monotonic) -> None:
        self.rounds = 0
        self._first = self._last = -inf
        self._clock = clock

    def again(self, ticket: Ticket) -> bool:
        """One more refusal; False for one of a burst that is counted already."""
        if ticket.since <= self._last:
            return False
        self._last = self._clock()
        if not self.rounds:
            self._first = self._last
        self.rounds += 1
        return True

    def lasted(self) -> Seconds:
        """For how long nothing but refusals came."""
        return self._last - self._first if self.rounds else 0.0

    def pause(self, base: Seconds, ceiling: Seconds) -> Seconds:
        """The longest pause after a refusal: twice as long each time."""
        return min(ceiling, base * 2 ** min(self.rounds - 1, _MOST_DOUBLINGS))


class Retries:
    """How many retries a provider is sent: a tenth of the calls of the last minute.

    Where that would be less than three, there may be three at once: a few calls overload no provider.
    """

    def __init__(
        self,
        share: float = 0.1,
        floor: int = 3,
        window: Seconds = _MINUTE,
        *,
        clock: Callable[[], Instant] = time.monotonic,
    ) -> None:
        self.running = 0
        self._share = share
        self._floor = floor
        self._window = int(window)
        self._clock = clock
        self._calls: deque[list[int]] = deque()  # [second, calls, retries], one for each second with calls
        self._called = 0
        self._retried = 0

    def called(self) -> None:
        """A call is made for the first time."""
        self._called += 1
        self._now()[1] += 1

    def take(self) -> bool:
        """Ask for a retry; True must be answered with `give_back` when the retry is over."""
        now = self._now()
        budget = self._share * self._called
        if (self.running if budget < self._floor else self._retried) >= max(budget, self._floor):
            return False
        self.running += 1
        self._retried += 1
        now[2] += 1
        return True

    def take_one(self) -> bool:
        """Ask for a retry of what was answered with nothing of use: a tenth of the calls, or three a minute."""
        now = self._now()
        if self._retried >= max(self._share * self._called, self._floor):
            return False
        self._retried += 1
        now[2] += 1
        return True

    def give_back(self) -> None:
        self.running -= 1

    def _now(self) -> list[int]:
        second = int(self._clock())
        calls = self._calls
        if not calls or calls[-1][0] != second:
            calls.append([second, 0, 0])
            while calls[0][0] <= second - self._window:
                _, called, retried = calls.popleft()
                self._called -= called
                self._retried -= retried
        return calls[-1]


def guess_tokens(read: int, request: Request) -> int:
    """Tokens of a call that was not made yet and reads so many; what it really took is booked afterwards."""
    return read + min(request.settings.max_tokens or _GUESSED_OUTPUT, _GUESSED_OUTPUT)
