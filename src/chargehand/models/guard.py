"""What stands around every provider: who may call now, what is tried again, what it cost.

It wraps any model and is one. Timeouts and sizes are kept below, in `http`; whether a task is tried again is decided
above, by the run.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from math import ceil
from random import Random
from sys import maxsize
from typing import Protocol

from msgspec import structs

from chargehand.engine.breaker import Breaker, forget_probe, lease, next_change, note, stand
from chargehand.engine.failure import OUTAGES, Failure
from chargehand.engine.policy import Breaking, Instant, Retry, Seconds
from chargehand.engine.state import TextKind
from chargehand.models.call_errors import CallFailed, is_rate_limited, shorten_words
from chargehand.models.limits import Limiter, Refusals, Ticket, guess_tokens
from chargehand.models.messages import Reply, Request, Usage
from chargehand.models.model import ClosableModel, Hear, Model, ModelCard, ModelFailed
from chargehand.models.rates import Price
from chargehand.models.token_count import TokenRates, measure_request
from chargehand.waits import waiting

RETRY = Retry()
BREAKING = Breaking()
_REFUSED_FOR: Seconds = 60.0
_REJECTED_FOR_ALL = 2
_TRIES_OF_ANSWERED = 2  # calls that may be made in all where the first was answered with nothing of use

logger = logging.getLogger(__name__)


class Prices(Protocol):
    """What one model costs. `price` is None until it is looked up, and where it is not known."""

    @property
    def price(self) -> Price | None: ...

    async def look_up(self) -> None: ...


class Guarded:
    """A model behind a limiter and a breaker, whose calls are tried again where that can help.

    Tried again (`retry.attempts` in all) is what failed on the way or was refused for asking too much, and only as long
    as no word of it was passed on; of a request to `pay_once` only what was not billed. A provider that answers, if
    with nothing of use, is no outage: such a call is made once more where retries are left. Share `limiter` among the
    models of one credential, and `breaker` among guards of the same model of it.
    """

    def __init__(
        self,
        model: Model,
        *,
        limiter: Limiter | None = None,
        breaker: Breaker | None = None,
        prices: Prices | None = None,
        retry: Retry = RETRY,
        breaking: Breaking = BREAKING,
        clock: Callable[[], Instant] = time.monotonic,
        sleep: Callable[[Seconds], Awaitable[None]] = asyncio.sleep,
        random: Random | None = None,
    ) -> None:
        self.limiter = limiter or Limiter(clock=clock)
        self.breaker = breaker or Breaker()
        self._model = model
        self._card = model.card
        self._prices = prices
        self._label_price: Price | None = None
        self._retry = retry
        self._breaking = breaking
        self._in_a_row = structs.replace(breaking, share=2.0)  # more than all of them: never
        self._never = structs.replace(self._in_a_row, consecutive=maxsize)
        self._refusals = Refusals(clock=clock)
        self._clock = clock
        self._sleep = sleep
        self._random = random or Random()  # noqa: S311 - it spreads waits, it guards nothing
        self._rates = TokenRates()
        self._why = ""
        self._refusal: Failure | None = None
        self._refused_until: Instant = 0.0
        self._rejected = 0  # requests in a row that it would not take the way they were put
        self._label()

    @property
    def card(self) -> ModelCard:
        notice = self._model.card.notice
        if notice != self._card.notice:  # the model was seen to lack something
            self._card = structs.replace(self._card, notice=notice)
        return self._card

    @property
    def is_calm(self) -> bool:
        """Whether it does well and has room: calls that need not be made are made only then."""
        return not self.breaker.row and not self.breaker.opened and self.limiter.idle

    async def prepare(self) -> None:
        """Find out what the model costs now, so that its card says so."""
        if self._prices is not None:
            await self._prices.look_up()
            self._label()

    def _label(self) -> None:
        price = None if self._prices is None else self._prices.price
        if price is not None and price is not self._label_price and not self._model.card.is_priced:
            self._label_price = price
            self._card = self._card.with_price(price)

    async def close(self) -> None:
        if isinstance(self._model, ClosableModel):
            await self._model.close()

    async def reply(self, request: Request, hear: Hear | None = None) -> Reply:
        await self.prepare()
        self.limiter.retries.called()
        listener = _StreamListener(hear) if hear is not None else None
        # holding: one of the provider's retries is ours
        tries = 0
        spent = None
        sent = False
        holding = False
        try:
            while True:
                tries += 1
                try:
                    reply = await self._once(request, listener)
                    break
                except ModelFailed as error:
                    if holding:
                        self.limiter.retries.give_back()
                        holding = False
                    error.usage = spent = _sum(spent, error.usage)
                    error.sent = sent = sent or error.sent
                    final = (listener is not None and listener.any) or (request.pay_once and error.billed)
                    if _is_answer(error) and not self._may_repeat(tries):
                        raise _permanent(error) from error
                    wait = None if final else self._wait(error, tries)
                    if wait is None:
                        raise
                    holding = error.failure.kind in OUTAGES
                    again = error.failure
                logger.info("%s: called again in %.1f s", self.card.handle, wait)
                why = shorten_words(again.message.removeprefix(f"{self.card.handle}: "), 160)
                with waiting(self.card.handle, why, wait):
                    await self._sleep(wait)
        finally:
            if holding:
                self.limiter.retries.give_back()
        return self._booked(reply, spent)

    async def _once(self, request: Request, listener: "_StreamListener | None") -> Reply:
        limiter = self.limiter
        pause = self._check(limiter)
        size = None
        if limiter.counts_tokens:
            size = measure_request(request, searches=self._model.card.searches_tools)
        tokens = 0 if size is None else guess_tokens(self._rates.estimate(size), request)
        if pause:
            with waiting(self.card.handle, f"no calls for now{self._why}", pause):
                ticket = await limiter.enter(tokens)
        else:
            ticket = await limiter.enter(tokens)
        used: int | None = 0
        try:
            probing = self._pass()
            used = None
            try:
                reply = await self._model.reply(request, listener)
            except ModelFailed as error:
                self._failed(error, ticket, probing=probing)
                used = _tokens(error.usage)
                raise
            except BaseException:  # cancelled: nothing is known of the provider
                self._forget(probing)
                raise
            self._answered()
            used = _tokens(reply.usage)
            if size is not None and reply.usage is not None and not reply.tool_searches:
                self._rates.learn(size, reply.usage.input)
            return reply
        finally:
            limiter.leave(ticket, used)

    def _check(self, limiter: Limiter) -> Seconds:
        """Do not queue for what is known to be shut; how long no call is let in."""
        if self._refusal is not None:
            self._check_refusal()
        pause = limiter.pause_left()
        if pause > self._retry.obey_retry_after:
            raise self._paused_failure()
        if stand(self.breaker, self._clock()) in ("open", "probing"):
            raise self._shut()
        return pause

    def _check_refusal(self) -> None:
        """A provider that refuses the key or the model is not asked again until that may have been put right."""
        if self._refusal is not None and self._clock() < self._refused_until:
            raise ModelFailed(self._refusal, billed=False, sent=False)
        self._refusal = None

    def _stop_calls(self, failure: Failure) -> None:
        """After a refusal: no other call is paid for that would be refused as well.

        One request may be rejected for what is in it; two in a row, with no reply between them, are taken for all.
        """
        if failure.refusal is None:
            return
        if failure.refusal.cause == "request":
            self._rejected += 1
            if self._rejected < _REJECTED_FOR_ALL:
                return
        if self._refusal is None:  # once for all the calls that were under way
            logger.warning("%s: not called for %d s: %s", self.card.handle, _REFUSED_FOR, failure.refusal.headline())
        self._refusal = failure
        self._refused_until = self._clock() + _REFUSED_FOR

    def _paused_failure(self) -> ModelFailed:
        pause = self.limiter.pause_left()
        message = f"{self.card.handle}: the provider wants no calls for another {ceil(pause)} s; wait, or use another"
        return ModelFailed(Failure("resource", message, pause), billed=False, sent=False)

    def _pass(self) -> Instant:
        """Ask the breaker. Not 0: this call is the one probe, until then."""
        if self._refusal is not None:
            self._check_refusal()
        now = self._clock()
        where = stand(self.breaker, now)
        if where == "closed":
            return 0.0
        if where == "half-open":
            lease(self.breaker, now, self._breaking)
            return self.breaker.leased
        raise self._shut()

    def _forget(self, probing: Instant) -> None:
        """Nothing came of this probe; another one that went out when its time was over is not forgotten with it."""
        if probing and self.breaker.leased == probing:
            forget_probe(self.breaker)

    def _shut(self) -> ModelFailed:
        wait = max(0.0, next_change(self.breaker) - self._clock())
        message = (
            f"{self.card.handle}: not called, because its last calls failed{self._why}; "
            f"it is tried again in {ceil(wait)} s, or use another model"
        )
        return ModelFailed(Failure("resource", message, wait), billed=False, sent=False)

    def _answered(self) -> None:
        self._refusals.rounds = 0
        self._rejected = 0
        note(self.breaker, self._clock(), self._breaking, good=True)
        self.limiter.speed_up()

    def _failed(self, error: ModelFailed, ticket: Ticket, *, probing: Instant) -> None:
        failure = error.failure
        before = self.breaker.opened
        self._why = f" (the last: {shorten_words(failure.message, 160)})"
        if failure.permanent:
            self._forget(probing)  # it answers, if not as one would like: that says nothing either way
            self._stop_calls(failure)
        elif failure.kind in OUTAGES:
            note(self.breaker, self._clock(), self._breaking, good=False)
        elif _is_answer(error):
            # the line holds, and no waiting mends the rest
            note(self.breaker, self._clock(), self._breaking, good=True)
        else:
            if self._refusals.again(ticket) or probing:
                self._refused()
            self.limiter.slow_down(ticket)
        if self.breaker.opened > before:
            wait = ceil(max(0.0, next_change(self.breaker) - self._clock()))
            logger.warning("%s: breaker open, not called for %d s%s", self.card.handle, wait, self._why)
        if failure.retry_after > 0:
            self.limiter.hold(failure.retry_after)
            if failure.retry_after > self._retry.obey_retry_after:
                self.limiter.turn_away(self._paused_failure)

    def _refused(self) -> None:
        """It is left alone for longer each time. Who serves so many a minute is shut only after a minute of nothing.

        An unbroken row of refusals tells, a share of them never would: one that is used to its limit refuses many.
        """
        most = self._refusals.pause(self._retry.base, self._retry.ceiling)
        self.limiter.hold(self._random.uniform(most / 2, most))
        numbers = self._in_a_row if self._refusals.lasted() >= self._breaking.window else self._never
        note(self.breaker, self._clock(), numbers, good=False)
        self.breaker.recent.pop()

    def _may_repeat(self, tries: int) -> bool:
        """Whether what was answered with nothing of use is asked once more, here or by the next attempt of its task."""
        return tries < _TRIES_OF_ANSWERED and self.limiter.retries.take_one()

    def _wait(self, error: ModelFailed, tries: int) -> Seconds | None:
        """How long to wait before this is tried again, one of the provider's retries then being taken; else None.

        A refusal takes none: how many are let in after one is up to the limiter, however many wait.
        """
        failure = error.failure
        numbers = self._retry
        if _is_answer(error) and tries < numbers.attempts:
            return 0.0
        if tries >= numbers.attempts or failure.permanent or failure.retry_after > numbers.obey_retry_after:
            return None
        refused = is_rate_limited(error)
        if (failure.kind != "network" and not refused) or stand(self.breaker, self._clock()) != "closed":
            return None
        if not refused and not self.limiter.retries.take():
            return None
        most = min(numbers.ceiling, numbers.base * 2 ** (tries - 1))
        return max(self._random.uniform(0.0, most), failure.retry_after)

    def _booked(self, reply: Reply, before: Usage | None) -> Reply:
        """The reply with what it cost, tries that were paid for in vain included."""
        usage = reply.usage
        micros = reply.micros
        if before is not None and usage is not None:
            usage = _sum(before, usage)
            micros = None
        if micros is None and usage is not None and self._prices is not None:
            micros = self._card.price(usage, reply.tier)
        if usage is reply.usage and micros is reply.micros:
            return reply
        return structs.replace(reply, usage=usage, micros=micros)


def _is_answer(error: ModelFailed) -> bool:
    """Whether the provider answered, if with nothing of use: no outage, and not too many calls."""
    return not error.failure.permanent and error.failure.kind not in OUTAGES and not is_rate_limited(error)


def _permanent(error: ModelFailed) -> ModelFailed:
    """The same failure, which is not to be tried again."""
    failure: Failure = structs.replace(error.failure, permanent=True)
    if isinstance(error, CallFailed):
        return CallFailed(failure, error.usage, status=error.status, billed=error.billed, sent=error.sent)
    return ModelFailed(failure, error.usage, billed=error.billed, sent=error.sent)


class _StreamListener:
    """Passes words on, and remembers whether any were of the answer: thoughts may be thought again."""

    __slots__ = ("_hear", "any")

    def __init__(self, hear: Hear) -> None:
        self._hear = hear
        self.any = False

    def __call__(self, words: str, kind: TextKind = "answer", /) -> None:
        self.any = self.any or kind == "answer"
        self._hear(words, kind)


def _tokens(usage: Usage | None) -> int | None:
    return None if usage is None else usage.input + usage.output


def _sum(first: Usage | None, second: Usage | None) -> Usage | None:
    if first is None or second is None:
        return first or second
    return first + second
