"""What model calls may cost: reserve, call, settle.

What is reserved bounds what can be billed: the reserved length of a reply is sent as `max_tokens`, and a call whose
usage or price is unknown is charged what was reserved for it.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from math import ceil
from typing import Any, TypeAlias, TypeVar

from msgspec import Struct, structs

from chargehand.engine.budget import NOTHING, Amount, Budget, CapReached, Ledger
from chargehand.engine.events import Effect, Noted, StepKind
from chargehand.engine.facts import CallsLost, ModelFellBack, UsageUnknown
from chargehand.engine.failure import Failure
from chargehand.errors import Invalid
from chargehand.models.messages import Reply, Request, Settings, Usage
from chargehand.models.model import Hear, Model, ModelFailed, model_failed
from chargehand.models.provider_tools import MAX_USES, RESULT_TOKENS
from chargehand.models.providers import is_free
from chargehand.models.reply_limit import GENEROUS_LIMIT, USUAL_LIMIT, Observations, reply_limit
from chargehand.models.token_count import EMPTY, Size, measure_deferred, measure_request, without
from chargehand.models.tool_search import MOST_AT_ONCE, MOST_SEARCHES
from chargehand.runtime.executor import Claim, Done, StepContext, WorkFailed

# --- reserve, call, settle


_Shape = TypeVar("_Shape")
FailedCalls: TypeAlias = Sequence[tuple[Model, ModelFailed]]

LEAST_REPLY = 1_000
"""Tokens below which a reply is not asked for: where the budget covers fewer, the call is not made."""
_LEARNED = 5  # replies that teach at first, and how many there are to one that does later
_SUPERVISION = 3_000  # tokens that a call of the supervisor reads, before its request is known
_MICROS_PER_CALL = 10_000
_LEAST_CALLS = 10


class Reservation:
    """Money for one call: enough for a call of each of its models, of which all but the last may fail.

    Its reply has at most `most` tokens; fewer, down to `LEAST_REPLY`, where the budget has no more.
    """

    __slots__ = (
        "_asked",
        "_bounds",
        "_estimate",
        "_most",
        "_size",
        "_spending",
        "_turn",
        "claim",
        "keeps_floor",
        "kept_as",
        "models",
        "request",
    )

    def __init__(
        self,
        spending: "Spending",
        models: Sequence[Model],
        request: Request,
        *,
        size: Size | int | None,
        most: int,
        estimate: Amount,
    ) -> None:
        self._spending = spending
        self._most = most
        self._estimate = estimate
        self._turn: Model | None = None
        """The model of which a call may be under way."""
        self.models = models
        self._asked = request
        """As it was reserved for: without the bytes of pictures."""
        self.request = request
        self._size = size
        self._bounds: dict[str, tuple[int, int]] = {}
        """For a model, how many replies of it were known, and the tokens that the call reads at most by that."""
        self.claim: Claim | None = None
        """What is reserved for it, once it is, where the budget is capped."""
        self.keeps_floor = False
        """It is a call of the supervisor that is not for the answer."""
        self.kept_as = ""
        """The hash of a request whose reply is kept until the supervisor's work is done; empty: it is not."""

    def make_claim(self) -> Claim:
        """Say what it takes, by what is known of its models now."""
        least = self._cost(min(self._most, LEAST_REPLY))
        self.claim = Claim(
            self._cost(self._most),
            least,
            keeps_floor=self.keeps_floor,
            turn=self,
            expected=self.expected_use(self.models[0]),
        )
        return self.claim

    def expected_use(self, model: Model) -> Amount:
        """Return what a call of one of the models is expected to use: what it reads, and a reply of usual length."""
        observed = self._spending.observations.of(model)
        return self._use(model, self.read(model), observed.usual_length(self._most))

    def read(self, model: Model) -> int:
        """Return the tokens that a call of one of the models reads, about."""
        size = self._measured()
        if isinstance(size, int):
            return size
        return self._spending.observations.of(model).rates.estimate(self._read_at_first(model, size))

    def most_read(self, model: Model) -> int:
        """Return the tokens that a call of one of the models reads at most."""
        size = self._measured()
        if isinstance(size, int):
            return size
        rates = self._spending.observations.of(model).rates
        known, most = self._bounds.get(model.card.handle, (-1, 0))
        if known != rates.replies:
            most = rates.bound(size)
            at_first = self._read_at_first(model, size)
            if at_first is not size:  # it is read anew after each search, and all schemas at most
                most += MOST_SEARCHES * rates.bound(at_first)
            self._bounds[model.card.handle] = rates.replies, most
        return most

    def _read_at_first(self, model: Model, size: Size) -> Size:
        """Return the size of what one of the models reads before it has searched for tools."""
        if not model.card.searches_tools or len(self._asked.tools) <= MOST_AT_ONCE:
            return size
        return without(size, measure_deferred(self._asked))

    def _measured(self) -> Size | int:
        if self._size is None:
            self._size = measure_request(self._asked)
        return self._size

    def learn(self, model: Model, usage: Usage) -> None:
        """Let a reply teach how many tokens the request was."""
        rates = self._spending.observations.of(model).rates
        if self._size is None and not model.card.searches_tools:
            rates.note(self._asked, usage.input)
        elif not isinstance(size := self._measured(), int):
            rates.learn(self._read_at_first(model, size), usage.input)

    @property
    def limit(self) -> int:
        """Tokens of the longest reply that is covered by what is held."""
        if self.claim is None or self._cost(self._most).within(self.claim.held):
            return self._most
        low = min(self._most, LEAST_REPLY)
        high = self._most
        while low < high:
            middle = (low + high + 1) // 2
            if self._cost(middle).within(self.claim.held):
                low = middle
            else:
                high = middle - 1
        return low

    @property
    def is_covered(self) -> bool:
        """Whether what is held still covers its models, as they were observed to behave since it was reserved."""
        return self.claim is None or self._cost(min(self._most, LEAST_REPLY)).within(self.claim.held)

    def _cost(self, limit: int) -> Amount:
        amount = self.use(self.models[0], limit)
        for model in self.models[1:]:
            amount += self.use(model, limit)
        return amount

    def use(self, model: Model, limit: int) -> Amount:
        """What one of the models may use for a reply of so many tokens, as it was observed to behave."""
        observed = self._spending.observations.of(model)
        read = _with_results(ceil(self.most_read(model) * observed.input), self.request)
        return self._use(model, read, observed.length(model.card, limit))

    def _use(self, model: Model, read: int, out: int) -> Amount:
        settings = self.request.settings
        price = model.card.highest_price(
            read,
            out,
            hour=settings.cache == "1h",
            tier=settings.service_tier or "",
            searches=MAX_USES if "web_search" in self.request.provider_tools else 0,
        )
        observed = self._spending.observations.of(model)
        micros = self._estimate.micros if price is None else ceil(price * observed.price)
        return Amount(tokens=read + out, micros=micros, calls=1)

    async def wait_for_turn(self, model: Model) -> None:
        """Wait until a call of one of the models may be under way; that of the one before it is over."""
        self.end_turn()
        await self._spending.observations.enter(model)
        self._turn = model

    async def rejoin(self) -> None:
        """Wait for another turn, and claim what the call takes by then."""
        await self.wait_for_turn(self.models[0])
        if self.claim is not None:
            self.claim.wanted = self._cost(self._most)
            self.claim.least = self._cost(min(self._most, LEAST_REPLY))

    def end_turn(self) -> None:
        if self._turn is not None:
            self._spending.observations.leave(self._turn)
            self._turn = None


class Spending:
    """Reserves and makes the model calls of one team. Without caps nothing is reserved.

    Models that wrote more than they were asked for are remembered, in `observations`, and reserved for as they behave.
    """

    def __init__(self, budget: Budget, observations: Observations | None = None) -> None:
        self.capped = Ledger(budget).capped
        self.observations = Observations() if observations is None else observations
        costly = budget.tokens is not None or budget.micros is not None
        self._most = USUAL_LIMIT if costly else GENEROUS_LIMIT
        self._replies = 0
        self._settings: dict[tuple[Settings, int], Settings] = {}
        """Settings with a limit on the reply: most calls of a team share them."""

    def reserve(
        self,
        models: Sequence[Model],
        request: Request,
        *,
        read: int | None = None,
        size: Size | int | None = None,
        estimate: Amount = NOTHING,
        at_least: int = 0,
    ) -> Reservation:
        """What a call of these models in turn takes: `at_least` so long a reply is wanted, if it may be.

        `read` is how many tokens it reads, where that is known. `size` is that of what it reads, where it is measured
        already, or the most tokens it may read.
        """
        if read is None and size is None:
            size = measure_request(request)
        if read is None:
            read = size if isinstance(size, int) else self.observations.of(models[0]).rates.estimate(size or EMPTY)
        most = max(reply_limit(models[0].card, request.settings, read, most=self._most), at_least)
        return Reservation(self, models, request, size=size, most=most, estimate=estimate)

    def limit_reply(self, model: Model, request: Request, limit: int) -> Request:
        """The request with no longer a reply than this, and than the model can write."""
        limit = min(limit, model.card.max_tokens or limit)
        key = (request.settings, limit)
        settings = self._settings.get(key)
        if settings is None:
            settings = self._settings[key] = structs.replace(request.settings, max_tokens=limit)
        return structs.replace(request, settings=settings, pay_once=self.capped)

    def step(
        self,
        context: StepContext,
        reservation: Reservation,
        name: str,
        call: Callable[[str], Awaitable[Done]],
        *,
        kind: StepKind,
        request: str,
        effect: Effect = "read",
        shape: type[_Shape],
    ) -> Coroutine[Any, Any, _Shape]:
        """Make a step of an attempt that calls a model, with the money for it."""
        if not self.capped:
            return context.step(name, call, kind=kind, request=request, effect=effect, shape=shape)

        async def step_in_turn() -> _Shape:
            async with self.turn(reservation):
                reserve = reservation.make_claim()
                return await context.step(
                    name, call, kind=kind, request=request, effect=effect, reserve=reserve, shape=shape
                )

        return step_in_turn()

    @asynccontextmanager
    async def turn(self, reservation: Reservation) -> AsyncGenerator[None]:
        """Wait until one more call of a model may be under way: those that may write more than asked start slowly."""
        await reservation.wait_for_turn(reservation.models[0])
        try:
            yield
        finally:
            reservation.end_turn()

    async def call(
        self, reservation: Reservation, context: StepContext, *, hear: Hear | None = None
    ) -> tuple[Reply, Amount | None]:
        """The reply of the first model that answers, and what the calls cost; WorkFailed where none does."""
        reserved = NOTHING if reservation.claim is None else reservation.claim.held
        failed: list[tuple[Model, ModelFailed]] = []
        for model in reservation.models:
            if failed:
                _note_fallback(context, failed[-1], model)
                if reservation.claim is not None:
                    await reservation.wait_for_turn(model)
                if not reservation.is_covered:
                    context.note(f"{model.card.handle} is not called: what is reserved does not cover its reply")
                    continue
            limit = reservation.limit
            try:
                reply = await model.reply(self.limit_reply(model, reservation.request, limit), hear)
            except Exception as error:  # noqa: BLE001 - a foreign model may raise anything; the next one may answer
                failed.append((model, model_failed(error)))
                continue
            if reply.notice:
                context.note(reply.notice)
            used = _billed(model, reply, reserved)
            if used is None and reply.usage is not None:
                reply = _without_usage(model, reply, reservation.request, context)
            self._replies += 1
            # without caps little depends on it: a part of the replies is enough
            if self.capped or self._replies <= _LEARNED or self._replies % _LEARNED == 0:
                self._learn(reservation, model, reply, limit)
            if used is None and not self.capped:
                used = Amount(calls=1)
            return reply, total([used, self._failed_cost(reservation, context, failed)]) if failed else used
        last = failed[-1][1]
        raise WorkFailed(last.failure, self._failed_cost(reservation, context, failed)) from last

    def _learn(self, reservation: Reservation, model: Model, reply: Reply, limit: int) -> None:
        """Let a reply teach what calls of its model take.

        One that used tools of the provider, or searched for ours, teaches nothing: what was asked was read several
        times, with their results.
        """
        if reply.provider_calls or reply.tool_searches:
            return
        if reply.usage is not None:
            reservation.learn(model, reply.usage)
        if self.capped:
            self.observations.of(model).add_reply(
                model.card, read=reservation.most_read(model), limit=limit, reply=reply
            )

    def _failed_cost(self, reservation: Reservation, context: StepContext, failed: FailedCalls) -> Amount:
        """Return what failed calls cost. One of unknown cost is lost: under a cap it costs what it was expected to."""
        cost = NOTHING
        for model, error in failed:
            known = _known_cost(model, error)
            if known is None and self.capped:
                known = reservation.expected_use(model)
                context.note(f"a call of {model.card.handle} is lost; its cost is an estimate", fact=CallsLost(known))
            cost += Amount(calls=1) if known is None else known
        return cost


def _with_results(read: int, request: Request) -> int:
    """Return the tokens that a call reads, with what tools of the provider may return, which is read after each use."""
    if not request.provider_tools:
        return read
    return (MAX_USES + 1) * read + RESULT_TOKENS * MAX_USES * (MAX_USES + 1) // 2


def _note_fallback(context: StepContext, failed: tuple[Model, ModelFailed], to: Model) -> None:
    model, error = failed
    text = f"falls back to model {to.card.handle}: {error.failure.message}"
    context.note(text, error.failure, ModelFellBack(model.card.handle, to.card.handle))


def _billed(model: Model, reply: Reply, reserved: Amount) -> Amount | None:
    """Return what a reply cost; None where the provider does not say how many tokens it used, or says what cannot be.

    It is on the way of every call, so the counts are compared here without another one.
    """
    usage = reply.usage
    if (
        usage is None
        or usage.input < usage.cached + usage.cache_written + usage.cache_written_hour
        or usage.output < usage.reasoning
        or usage.cached < 0
        or usage.cache_written < 0
        or usage.cache_written_hour < 0
        or usage.reasoning < 0
        or usage.searches < 0
    ):
        return None
    micros = model.card.price(usage, reply.tier) if reply.micros is None else reply.micros
    if micros is None:
        micros = reserved.micros
    return None if micros < 0 else Amount(tokens=usage.input + usage.output, micros=micros, calls=1)


def _without_usage(model: Model, reply: Reply, request: Request, context: StepContext) -> Reply:
    """Return the reply without the usage that it reports, which cannot be, and tell people."""
    handle = model.card.handle
    text = (
        f"{handle} reports a usage that cannot be, so what its calls used is not known: `input` includes `cached`, "
        "`cache_written` and `cache_written_hour`, `output` includes `reasoning`, and nothing is below zero"
    )
    context.note(text, fact=UsageUnknown(request.asker, 1, "tokens", handle))
    return structs.replace(reply, usage=None, micros=None)


def _known_cost(model: Model, error: ModelFailed) -> Amount | None:
    """Return what a failed call cost: nothing if it was not sent, a call if it was not billed, None if unknown."""
    if not error.sent:
        return NOTHING
    if error.usage is None:
        return None if error.billed else Amount(calls=1)
    return _billed(model, Reply(usage=error.usage), NOTHING)


def total(costs: Sequence[Amount | None]) -> Amount | None:
    """What several calls cost together; None where that of one is not known."""
    amounts = [cost for cost in costs if cost is not None]
    return sum(amounts, NOTHING) if len(amounts) == len(costs) else None


def cut_off(reply: Reply) -> str:
    """That a reply is not whole, in words; empty where it is."""
    if reply.finish != "length":
        return ""
    after = f" after {reply.usage.output:,} tokens" if reply.usage is not None else ""
    return f"the reply was cut off{after}; raise max_tokens or the budget, or ask for less"


def too_expensive(what: str, cap: CapReached | None, *, permanent: bool) -> WorkFailed:
    """The failure of a call that the budget does not cover: `permanent` where nothing under way gives anything back."""
    message = f"the budget does not cover {what}"
    return WorkFailed(Failure("budget", message, permanent=permanent, cap=cap), NOTHING)


# --- what the supervisor's calls take


def supervision(budget: Budget, models: Sequence[str | Model], settings: Settings) -> Amount:
    """What is held for a call of the supervisor at least: it is made with no less, and holds more where there is more.

    Never nothing where it may cost something: none is made once the money is spent, even if its price is not known yet.
    """
    if not Ledger(budget).capped:
        return NOTHING
    out = LEAST_REPLY if settings.max_tokens is None else min(LEAST_REPLY, settings.max_tokens)
    micros = 0
    if budget.micros is not None:
        micros = max(_expected_micros(model, budget.floor.micros, out) for model in models)
    return Amount(tokens=_SUPERVISION + out, micros=micros, calls=1)


def _expected_micros(model: str | Model, floor: int, out: int) -> int:
    if isinstance(model, str):
        return 0 if is_free(model) else max(1, floor)
    price = model.card.highest_price(_SUPERVISION, out)
    if price is None:
        return 0 if model.card.free else max(1, floor)
    return price


# --- caps in dollars that cannot be kept

_GIVE_PRICE = "--price IN/OUT says what it costs, in dollars per million tokens; in Python: team.priced(flat(IN, OUT))"


class PriceUnknown(Invalid):
    """A budget in dollars cannot be kept: the price of these `models` is unknown."""

    def __init__(self, models: Sequence[str]) -> None:
        self.models = tuple(models)
        super().__init__(
            f"the price of {' and '.join(models)} is unknown, so the budget in dollars cannot be kept; "
            f"{_GIVE_PRICE}. Or cap tokens or calls instead of dollars, or say what a call costs: a worker's "
            "`estimate`, the budget's `floor`"
        )


class CallCap(Struct, frozen=True):
    """A cap on calls in place of one in dollars, which cannot be kept: the price of the `models` is unknown."""

    models: tuple[str, ...]
    usd: float
    calls: int

    @property
    def warning(self) -> str:
        cents = f"{self.usd:.6f}".rstrip("0").partition(".")[2].ljust(2, "0")
        return (
            f"the price of {' and '.join(self.models)} is unknown, so the budget of ${int(self.usd):,}.{cents} cannot "
            f"be kept in dollars; at most {self.calls:,} calls are made instead. {_GIVE_PRICE}"
        )


def cost_unknown(model: str) -> Noted:
    """A note for a run without a cap in dollars: calls of this model add nothing to its cost."""
    text = f"the cost of {model} is not known and counts as nothing; {_GIVE_PRICE}"
    return Noted(text, fact=UsageUnknown("", 0, "price", model))


def calls_for(micros: int) -> int:
    """How many calls replace a cap in dollars that cannot be kept: one for each cent, and 10 at least."""
    return max(_LEAST_CALLS, micros // _MICROS_PER_CALL)


def call_cap(budget: Budget, unpriced: Sequence[str]) -> CallCap | None:
    """What replaces the dollars of a budget where the price of some models is unknown; None where they can be kept.

    PriceUnknown for a budget of nothing: no number of calls replaces that.
    """
    if budget.usd is None or budget.micros is None or not unpriced:
        return None
    if budget.micros == 0:
        raise PriceUnknown(unpriced)
    calls = calls_for(budget.micros)
    return CallCap(tuple(unpriced), budget.usd, calls if budget.calls is None else min(calls, budget.calls))


def unpriced_handles(models: Iterable[Model]) -> tuple[str, ...]:
    """The handles of those models whose price is unknown."""
    return tuple(dict.fromkeys(model.card.handle for model in models if not model.card.is_priced))
