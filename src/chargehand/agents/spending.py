"""What model calls may cost: reserve, call, settle.

What is reserved bounds what can be billed: the reserved length of a reply is sent as `max_tokens`, and a call whose
usage or price is unknown is charged what was reserved for it.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from math import ceil
from typing import TypeAlias

from msgspec import Struct, field, structs

from chargehand.agents.roles import Hedge
from chargehand.engine.budget import NOTHING, Amount, Budget, Ledger
from chargehand.engine.facts import ModelFellBack
from chargehand.engine.failure import Failure
from chargehand.engine.policy import Seconds
from chargehand.errors import Invalid
from chargehand.models.guard import Guarded
from chargehand.models.messages import Message, Reply, Request, Settings, ToolSpec, Usage
from chargehand.models.model import Hear, Model, ModelFailed, model_failed
from chargehand.models.providers import is_free
from chargehand.models.reply_limit import GENEROUS_LIMIT, USUAL_LIMIT, Observations, longer_limit, reply_limit
from chargehand.runtime.executor import Claim, StepContext, WorkFailed

# --- hedged calls: a second call of a model where the first takes unusually long


_MAX_TIMES = 200
_ENOUGH_TIMES = 20
_UNUSUAL = 0.95
_MARGIN = 1.1  # five calls in a hundred are slower than the others by definition: what matters is by how much
_MAX_CREDIT = 10.0  # second calls that may be made one right after the other, however many calls were quick before


class HedgedCall(Struct, frozen=True):
    """One of the two calls."""

    model: Model
    request: Request
    use: Amount
    """What it is taken to have used if it is not waited for."""
    micros: int | None
    """What it is expected to cost; None where the price is unknown."""


class Race(Struct):
    """What came of a call that may have been made twice: a reply and its model, or only failures."""

    reply: Reply | None = None
    winner: Model | None = None
    calls: int = 1
    failed: list[tuple[Model, ModelFailed]] = field(default_factory=list[tuple[Model, ModelFailed]])
    abandoned: list[Amount] = field(default_factory=list[Amount])
    """What calls may have used that were not waited for."""


class Hedging:
    """How long the calls of one team take, for all its runs in this process."""

    def __init__(self, hedge: Hedge) -> None:
        self._hedge = hedge
        self._times: dict[str, deque[Seconds]] = {}
        self._credit = 0.0

    async def race(
        self, first: HedgedCall, second: HedgedCall | None, *, hear: Hear | None, context: StepContext
    ) -> Race:
        """Make a call, and where it takes too long the second one; the first good reply is used."""
        race = Race()
        patience = self._patience(first, second)
        self._credit = min(_MAX_CREDIT, self._credit + self._hedge.share)
        gate = _TextGate(hear)
        async with asyncio.TaskGroup() as jobs:
            running = {jobs.create_task(self._call(first, gate if hear else None, patience)): first}
            await asyncio.wait(running, timeout=patience)
            answers = gate.heard or any(job.done() for job in running)
            if second is not None and not answers and self._take_credit(first.model, second.model):
                late = f"hedged: {first.model.card.handle} has not answered within {patience:.3g} s"
                context.note(f"{late}, so {second.model.card.handle} is asked as well")
                race.calls = 2
                gate.is_shut = True
                running[jobs.create_task(self._call(second))] = second
            await _first_reply(race, running)
        if race.calls > 1 and race.winner is not None and race.reply is not None:
            context.note(f"hedged: {race.winner.card.handle} answered first")
            if hear is not None and race.reply.text:
                hear(race.reply.text)
        return race

    def _patience(self, first: HedgedCall, second: HedgedCall | None) -> Seconds | None:
        """After how long the second call is made; None where there is none to make."""
        if second is None or second.model.card.in_process or self._credit < 1.0 or not self._is_cheap(first, second):
            return None
        if self._hedge.after is not None:
            return self._hedge.after
        times = sorted(self._times.get(first.model.card.handle, ()))
        return _MARGIN * times[ceil(_UNUSUAL * len(times)) - 1] if len(times) >= _ENOUGH_TIMES else None

    def _is_cheap(self, first: HedgedCall, second: HedgedCall) -> bool:
        if second.micros is None:  # it is certain only that it costs no more than itself
            return second.model is first.model and self._hedge.max_usd is None
        max_micros = first.micros if self._hedge.max_usd is None else round(self._hedge.max_usd * 1_000_000)
        return max_micros is not None and second.micros <= max_micros

    def _take_credit(self, *models: Model) -> bool:
        """Whether the second call is made now: it must not add to the trouble of a provider."""
        if self._credit < 1.0 or not all(model.is_calm for model in models if isinstance(model, Guarded)):
            return False
        self._credit -= 1.0
        return True

    async def _call(
        self, call: HedgedCall, hear: Hear | None = None, patience: Seconds | None = None
    ) -> Reply | ModelFailed:
        """What comes of one call. What it raises is returned: it must not end the other one."""
        clock = asyncio.get_running_loop().time
        begun = clock()
        times = self._times.setdefault(call.model.card.handle, deque(maxlen=_MAX_TIMES))
        try:
            reply = await call.model.reply(call.request, hear)
        except asyncio.CancelledError:
            if patience is not None and clock() - begun >= patience:  # else a run was cancelled, which says nothing
                times.append(clock() - begun)
            raise
        except Exception as error:  # noqa: BLE001 - a foreign model may raise anything
            return model_failed(error)
        times.append(clock() - begun)
        return reply


async def _first_reply(race: Race, running: dict[asyncio.Task[Reply | ModelFailed], HedgedCall]) -> None:
    """Wait for the first good reply; the other call is abandoned."""
    while running and race.reply is None:
        done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        for job in [job for job in running if job in done]:
            if race.reply is not None:
                break  # both came back at once: what the other used is counted below
            call = running.pop(job)
            outcome = job.result()
            if isinstance(outcome, Reply):
                race.reply = outcome
                race.winner = call.model
            else:
                race.failed.append((call.model, outcome))
    for job, call in running.items():
        job.cancel()
        race.abandoned.append(call.use)


class _TextGate:
    """Passes text on while only one model is called; with two it is not known yet whose text counts."""

    __slots__ = ("_hear", "heard", "is_shut")

    def __init__(self, hear: Hear | None) -> None:
        self._hear = hear
        self.heard = False
        self.is_shut = False

    def __call__(self, text: str) -> None:
        if self._hear is not None and not self.is_shut:
            self.heard = True
            self._hear(text)


# --- reserve, call, settle


FailedCalls: TypeAlias = Sequence[tuple[Model, ModelFailed]]

LEAST_REPLY = 1_000
"""Tokens below which a reply is not asked for: where the budget covers fewer, the call is not made."""
_BYTES_PER_TOKEN = 3  # at least, as a rule
_FRAME = 8  # tokens around a message, a call or a tool
_SUPERVISION = 3_000  # tokens that a call of the supervisor reads, before its request is known
_MICROS_PER_CALL = 10_000
_LEAST_CALLS = 10


class Reservation(Claim):
    """What one call may use, for a reply of at most `limit` tokens: enough for a call of each of its models.

    All models but the last may fail. The limit shrinks, down to `LEAST_REPLY`, where the budget has no more.
    """

    __slots__ = ("_entered", "_estimate", "_most", "_spending", "amount_held", "limit", "models", "read", "request")

    def __init__(
        self, spending: "Spending", models: Sequence[Model], request: Request, *, read: int, most: int, estimate: Amount
    ) -> None:
        self._spending = spending
        self._most = most
        self._estimate = estimate
        self._entered: Model | None = None
        self.models = models
        self.request = request
        self.read = read
        """Tokens that the call reads."""
        self.limit = most
        self.amount_held = NOTHING
        """What the run holds for it, where the supervisor reserved it."""

    @property
    def for_step(self) -> "Reservation | Amount":
        """What a step reserves: nothing where nothing is capped."""
        return self if self._spending.capped else NOTHING

    @property
    def amount(self) -> Amount:
        return self._cost(self.limit)

    def _cost(self, limit: int) -> Amount:
        amount = self.use(self.models[0], limit)
        for model in self.models[1:]:
            amount += self.use(model, limit)
        return amount

    def use(self, model: Model, limit: int) -> Amount:
        """What one of the models may use for a reply of so many tokens, as it was observed to behave."""
        observed = self._spending.observations.of(model)
        read = ceil(self.read * observed.input)
        out = observed.length(model.card, limit)
        price = model.card.price(read, out)
        micros = self._estimate.micros if price is None else ceil(price * observed.price)
        return Amount(tokens=read + out, micros=micros, calls=1)

    def request_for(self, model: Model) -> Request:
        """The request as it is sent to one model: for no longer a reply than is reserved, and than it can write."""
        return self._spending.limit_reply(model, self.request, self.limit)

    def reset(self) -> None:
        self.limit = self._most

    def fit(self, room: Amount) -> bool:
        low = min(self._most, LEAST_REPLY)
        high = self._most
        if not self._cost(low).within(room):
            return False
        while low < high:
            middle = (low + high + 1) // 2
            if self._cost(middle).within(room):
                low = middle
            else:
                high = middle - 1
        self.limit = low
        return True

    @property
    def ample(self) -> bool:
        return 2 * self.limit >= self._most

    async def enter(self) -> None:
        await self.enter_for(self.models[0])

    async def enter_for(self, model: Model) -> None:
        """Wait until a call of this one of the models may be under way; that of the one before it is over."""
        self.leave()
        await self._spending.observations.enter(model)
        self._entered = model

    def leave(self) -> None:
        if self._entered is not None:
            self._spending.observations.leave(self._entered)
            self._entered = None


class Spending:
    """Reserves and makes the model calls of one team. Without caps nothing is reserved.

    Models that wrote more than they were asked for are remembered, in `observations`, and reserved for as they behave.
    """

    def __init__(self, budget: Budget, observations: Observations | None = None) -> None:
        self.capped = Ledger(budget).capped
        self.observations = Observations() if observations is None else observations
        costly = budget.tokens is not None or budget.micros is not None
        self._most = USUAL_LIMIT if costly else GENEROUS_LIMIT
        self._settings: dict[tuple[Settings, int], Settings] = {}
        """Settings with a limit on the reply: most calls of a team share them."""

    def reserve(
        self,
        models: Sequence[Model],
        request: Request,
        *,
        read: int | None = None,
        estimate: Amount = NOTHING,
        at_least: int = 0,
    ) -> Reservation:
        """What a call of these models in turn takes: `at_least` so long a reply is wanted, if it may be.

        `read` is how many tokens it reads, where that is known without counting.
        """
        if read is None:
            read = read_tokens(request)
        most = max(reply_limit(models[0].card, request.settings, read, most=self._most), at_least)
        return Reservation(self, models, request, read=read, most=most, estimate=estimate)

    def limit_reply(self, model: Model, request: Request, limit: int) -> Request:
        """The request with no longer a reply than this, and than the model can write."""
        limit = min(limit, model.card.max_tokens or limit)
        key = (request.settings, limit)
        settings = self._settings.get(key)
        if settings is None:
            settings = self._settings[key] = structs.replace(request.settings, max_tokens=limit)
        return structs.replace(request, settings=settings, pay_once=self.capped)

    async def call(
        self,
        reservation: Reservation,
        context: StepContext,
        *,
        hear: Hear | None = None,
        hedging: Hedging | None = None,
    ) -> tuple[Reply, Amount | None]:
        """The reply of the first model that answers, and what the calls cost; WorkFailed where none does."""
        reserved = reservation.amount if self.capped else NOTHING
        models = reservation.models
        failed: list[tuple[Model, ModelFailed]] = []
        if hedging is not None:
            race = await self._race(hedging, reservation, hear, context)
            failed = race.failed
            models = models[race.calls :]
            if race.reply is not None and race.winner is not None:
                return race.reply, self._race_cost(race, race.winner, race.reply, reservation, reserved)
        for model in models:
            if failed:
                _note_fallback(context, failed[-1], model)
                if self.capped and not await self._covers_fallback(model, reservation, reserved):
                    context.note(f"{model.card.handle} is not called: what is reserved does not cover its reply")
                    continue
            try:
                reply = await model.reply(reservation.request_for(model), hear)
            except Exception as error:  # noqa: BLE001 - a foreign model may raise anything; the next one may answer
                failed.append((model, model_failed(error)))
                continue
            if self.capped:
                self._observe(model, reservation, reply)
            return reply, self._cost(model, reply, failed, reserved)
        last = failed[-1][1]
        raise WorkFailed(last.failure, self._sum(_failed_cost(model, error) for model, error in failed)) from last

    async def _covers_fallback(self, model: Model, reservation: Reservation, reserved: Amount) -> bool:
        """Wait until a fallback model may be called; False where what is reserved does not cover it any more.

        That is so where a model was seen to write more than it is asked for since then: the next attempt reserves more.
        """
        await reservation.enter_for(model)
        return reservation.amount.within(reserved)

    def _observe(self, model: Model, reservation: Reservation, reply: Reply) -> None:
        observed = self.observations.of(model)
        observed.add_reply(model.card, read=reservation.read, limit=reservation.limit, reply=reply)

    def _cost(self, model: Model, reply: Reply, failed: FailedCalls, reserved: Amount) -> Amount | None:
        """What a reply cost together with the calls that failed before it; None: what was reserved."""
        used = None if reply.usage is None else _billed(model, reply.usage, reply.micros, reserved)
        if used is not None and not failed:
            return used
        return self._sum([used, *(_failed_cost(model, error) for model, error in failed)])

    def _sum(self, costs: Iterable[Amount | None]) -> Amount | None:
        """What several calls cost together; one of unknown cost counts as a call, and under a cap as all reserved."""
        unknown = None if self.capped else Amount(calls=1)
        return total([unknown if cost is None else cost for cost in costs])

    # --- a call that may be made twice

    async def _race(self, hedging: Hedging, reservation: Reservation, hear: Hear | None, context: StepContext) -> Race:
        """A call of the first model, and of the second (the same one, if there is no other) where that takes long."""
        first, *others = reservation.models
        second = others[0] if others else first
        trusted = self.observations.of(second).is_trusted(second.card)
        covered = not self.capped or (bool(others) and trusted)
        return await hedging.race(
            self._hedged_call(first, reservation),
            self._hedged_call(second, reservation) if covered else None,
            hear=hear,
            context=context,
        )

    def _hedged_call(self, model: Model, reservation: Reservation) -> HedgedCall:
        usual = reservation.use(model, min(reservation.limit, LEAST_REPLY))
        return HedgedCall(
            model=model,
            request=reservation.request_for(model),
            use=reservation.use(model, reservation.limit) if self.capped else usual,
            micros=usual.micros if model.card.price(1, 1) is not None or usual.micros else None,
        )

    def _race_cost(
        self, race: Race, winner: Model, reply: Reply, reservation: Reservation, reserved: Amount
    ) -> Amount | None:
        if self.capped:
            self._observe(winner, reservation, reply)
        if race.abandoned and reply.micros is None and self.capped:
            return None  # the price of the call that is not waited for is unknown, too
        return total([self._cost(winner, reply, race.failed, reserved), *race.abandoned])


def _note_fallback(context: StepContext, failed: tuple[Model, ModelFailed], to: Model) -> None:
    model, error = failed
    text = f"falls back to model {to.card.handle}: {error.failure.message}"
    context.note(text, error.failure, ModelFellBack(model.card.handle, to.card.handle))


def read_tokens(request: Request) -> int:
    """As many tokens as a call reads at most, as a rule: messages, tools and schema."""
    size = sum([_message_bytes(message) for message in request.messages])
    size += sum([_tool_bytes(tool) for tool in request.tools])
    frames = len(request.messages) + len(request.tools)
    if request.schema is not None:
        size += len(bytes(request.schema))
        frames += 1
    return -(-size // _BYTES_PER_TOKEN) + _FRAME * frames


def _message_bytes(message: Message) -> int:
    size = _bytes(message.text)
    for call in message.calls:
        size += _bytes(call.name) + _bytes(call.arguments) + _BYTES_PER_TOKEN * _FRAME
    return size


def _tool_bytes(tool: ToolSpec) -> int:
    return _bytes(tool.name) + _bytes(tool.description) + len(bytes(tool.parameters))


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="replace"))


def _billed(model: Model, usage: Usage, micros: int | None, reserved: Amount) -> Amount:
    if micros is None:
        micros = model.card.price(usage.input, usage.output)
    return Amount(tokens=usage.input + usage.output, micros=reserved.micros if micros is None else micros, calls=1)


def _failed_cost(model: Model, error: ModelFailed) -> Amount | None:
    """What a failed call cost: one call where it was not billed, None where its cost is unknown."""
    if error.usage is None:
        return None if error.billed else Amount(calls=1)
    return _billed(model, error.usage, None, NOTHING)


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


def too_expensive(what: str, *, permanent: bool) -> WorkFailed:
    """The failure of a call that the budget does not cover: `permanent` where nothing under way gives anything back."""
    return WorkFailed(Failure("budget", f"the budget does not cover {what}", permanent=permanent), NOTHING)


# --- calls of the supervisor


class SupervisorCalls:
    """Calls of one model for one piece of the supervisor's work. What they take is held before each is made."""

    def __init__(
        self, context: StepContext, spending: Spending, model: Model, settings: Settings, reserve: Amount
    ) -> None:
        self.context = context
        self.spending = spending
        self.model = model
        self.settings = settings
        """Those of the team: a limit in them is never exceeded."""
        self.reserve = reserve
        """What is held for a call of the supervisor in any case."""
        self._used: list[Amount | None] = []

    def total(self) -> Amount | None:
        """What all of them cost; None where the cost of one is not known."""
        return total(self._used)

    async def hold(
        self, request: Request, *, covered: bool = True, at_least: int = 0, at_most: int = 0
    ) -> Reservation | None:
        """Hold what a call takes; None where the budget does not cover it.

        `covered`: the reserve is for this call. The reply is to have room for `at_least` so many tokens, if it may, and
        for `at_most` so many unless the settings say.
        """
        if at_most and request.settings.max_tokens is None:
            request = structs.replace(request, settings=structs.replace(request.settings, max_tokens=at_most))
        reservation = self.spending.reserve([self.model], request, estimate=self.reserve, at_least=at_least)
        if self.spending.capped:
            amount = await self.context.hold(reservation, self.reserve if covered else NOTHING)
            if amount is None:
                return None
            reservation.amount_held = amount
        return reservation

    async def call(self, reservation: Reservation, hear: Hear | None = None) -> Reply:
        """Make a call for which money is held. A reply that is cut is asked for once more, with more room."""
        reply = await self._call(reservation, hear)
        limit = reservation.limit
        longer = longer_limit(self.model.card, self.settings, limit, reservation.read)
        if reply.finish != "length" or longer <= limit:
            return reply
        request = structs.replace(reservation.request, settings=self.settings)
        again = await self.hold(request, covered=False, at_least=longer)
        if again is None or again.limit <= limit:
            return reply
        handle = self.model.card.handle
        self.context.note(f"{handle}: the reply was cut off at {limit:,} tokens and is asked for again with more")
        return await self._call(again, hear)

    async def _call(self, reservation: Reservation, hear: Hear | None) -> Reply:
        """Make a call once it may be under way, with more held where the model was seen to write more than asked."""
        if not self.spending.capped:
            return await self._call_and_settle(reservation, hear)
        await reservation.enter()
        try:
            if not reservation.amount.within(reservation.amount_held):
                amount = await self.context.hold(reservation, reservation.amount_held)
                if amount is None:
                    message = f"the budget does not cover a reply of {self.model.card.handle}"
                    raise WorkFailed(Failure("budget", message), self.total())
                reservation.amount_held = amount
            return await self._call_and_settle(reservation, hear)
        finally:
            reservation.leave()

    async def _call_and_settle(self, reservation: Reservation, hear: Hear | None) -> Reply:
        # a call that is cancelled before it comes back costs what is held for it
        unknown = reservation.amount_held if self.spending.capped else None
        place = len(self._used)
        self._used.append(unknown)
        began = asyncio.get_running_loop().time()
        try:
            reply, used = await self.spending.call(reservation, self.context, hear=hear)
        except WorkFailed as error:
            self._used[place] = error.used or unknown
            raise WorkFailed(error.failure, self.total()) from error
        usage = reply.usage or Usage()
        seconds = asyncio.get_running_loop().time() - began
        self.context.record_call(reply.model or self.model.card.handle, seconds, (usage.input, usage.output), used)
        if used is not None:
            self._used[place] = used
            self.context.release(reservation.amount_held.beyond(used))
        return reply


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
    price = model.card.price(_SUPERVISION, out)
    if price is None:
        return 0 if model.card.free else max(1, floor)
    return price


# --- caps in dollars that cannot be kept


class PriceUnknown(Invalid):
    """A budget in dollars cannot be kept: the price of these `models` is unknown."""

    def __init__(self, models: Sequence[str]) -> None:
        self.models = tuple(models)
        super().__init__(
            f"the price of {' and '.join(models)} is unknown, so the budget in dollars cannot be kept; "
            "cap tokens or calls instead, or say what a call costs: a worker's `estimate`, the budget's `floor`"
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
            f"be kept in dollars; at most {self.calls:,} calls are made instead. --price IN/OUT says what it costs, in "
            "dollars per million tokens; in Python: team.priced(flat(IN, OUT))"
        )


def calls_for(micros: int) -> int:
    """How many calls replace a cap in dollars that cannot be kept: one for each cent, and 10 at least."""
    return max(_LEAST_CALLS, micros // _MICROS_PER_CALL)


def call_cap(budget: Budget, unpriced: Sequence[str]) -> CallCap | None:
    """What replaces the dollars of a budget where the price of some models is unknown; None where they can be kept."""
    if budget.usd is None or budget.micros is None or not unpriced:
        return None
    calls = calls_for(budget.micros)
    return CallCap(tuple(unpriced), budget.usd, calls if budget.calls is None else min(calls, budget.calls))


def unpriced_handles(models: Iterable[Model]) -> tuple[str, ...]:
    """The handles of those models whose price is unknown."""
    return tuple(dict.fromkeys(model.card.handle for model in models if model.card.price(1, 1) is None))
