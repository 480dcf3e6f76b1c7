"""What a call of a model may cost before it is made, how long its reply may be, and what it cost after.

What is reserved bounds what can be billed: the length of a reply that is reserved is sent as `max_tokens`.
"""

from collections.abc import Iterable, Sequence
from math import ceil
from typing import TypeAlias

from msgspec import Struct, structs

from chargehand.engine.budget import NOTHING, Amount, Budget, Ledger
from chargehand.engine.facts import ModelFellBack
from chargehand.engine.failure import Failure
from chargehand.errors import Invalid
from chargehand.models.messages import Message, Reply, Request, Settings, ToolSpec, Usage
from chargehand.models.model import Hear, Model, ModelFailed, model_failed
from chargehand.models.observed import Observations
from chargehand.models.providers import is_free
from chargehand.models.reply_limit import GENEROUS_LIMIT, USUAL_LIMIT, longer_limit, reply_limit
from chargehand.runtime.executor import Claim, StepContext, WorkFailed

Lost: TypeAlias = list[tuple[Model, ModelFailed]]

LEAST_REPLY = 1_000
"""Tokens below which a reply is not asked for: where the budget covers fewer, the call is not made."""
_DENSE = 3  # bytes a token has at least, as a rule
_FRAME = 8  # tokens around a message, a call or a tool
_SUPERVISION = 3_000  # tokens that a call of the supervisor reads, as long as nobody knows better
_NOTHING_SET = Settings()
_NO_ESTIMATE = NOTHING
_MICROS_A_CALL = 10_000
_LEAST_CALLS = 10


class Priced(Struct, frozen=True):
    """A model, and what one call of it is taken to use; `micros` is None where nobody knows its price."""

    model: Model
    use: Amount
    micros: int | None


class CallClaim(Claim):
    """What one call reserves for a reply of `limit` tokens, if all of its models but the last fail.

    The limit shrinks, down to `least`, where the budget has no more.
    """

    __slots__ = ("_called", "_estimate", "_least", "_models", "_most", "_observations", "_read", "limit")

    def __init__(
        self,
        models: Sequence[Model],
        observations: Observations,
        *,
        read: int,
        most: int,
        estimate: Amount = _NO_ESTIMATE,
    ) -> None:
        self._models = models
        self._observations = observations
        self._read = read
        self._most = most
        self._least = min(most, LEAST_REPLY)
        self._estimate = estimate
        self._called: Model | None = None
        self.limit = most

    @property
    def read(self) -> int:
        return self._read

    @property
    def amount(self) -> Amount:
        return self.cost(self.limit)

    def cost(self, limit: int) -> Amount:
        """What is reserved for a reply of so many tokens."""
        model, *others = self._models
        amount = self.use(model, limit)
        for other in others:
            amount += self.use(other, limit)
        return amount

    def use(self, model: Model, limit: int) -> Amount:
        """What one of the models may use."""
        observed = self._observations.of(model)
        read = ceil(self._read * observed.input)
        out = observed.length(model.card, limit)
        price = model.card.price(read, out)
        micros = self._estimate.micros if price is None else ceil(price * observed.price)
        return Amount(tokens=read + out, micros=micros, calls=1)

    def reset(self) -> None:
        self.limit = self._most

    def fit(self, room: Amount) -> bool:
        low = self._least
        high = self._most
        if not self.cost(low).within(room):
            return False
        while low < high:
            middle = (low + high + 1) // 2
            if self.cost(middle).within(room):
                low = middle
            else:
                high = middle - 1
        self.limit = low
        return True

    @property
    def ample(self) -> bool:
        return 2 * self.limit >= self._most

    async def enter(self) -> None:
        await self.enter_for(self._models[0])

    async def enter_for(self, model: Model) -> None:
        """Wait until a call of this one of the models may be under way; that of the one before it is over."""
        self.leave()
        await self._observations.enter(model)
        self._called = model

    def leave(self) -> None:
        if self._called is not None:
            self._observations.leave(self._called)
            self._called = None


class Held(Struct, frozen=True):
    """A request with the longest reply that may be asked for, and what is held for it: nothing without caps."""

    request: Request
    amount: Amount = NOTHING
    claim: CallClaim | None = None

    @property
    def read(self) -> int:
        return self.claim.read if self.claim is not None else 0


class Purse:
    """How long replies may be and what is reserved for them, for one team. Without caps nothing is reserved.

    Models that wrote more than they were asked for are remembered, in `observations`, and reserved for as they are.
    """

    def __init__(self, budget: Budget, observations: Observations | None = None) -> None:
        self.capped = Ledger(budget).capped
        costly = budget.tokens is not None or budget.micros is not None
        self._most = USUAL_LIMIT if costly else GENEROUS_LIMIT
        self._observations = Observations() if observations is None else observations
        self._settings: dict[tuple[str, Settings], Settings] = {}

    # --- before a call

    def settings(self, model: Model, settings: Settings, read: int) -> Settings:
        """The settings of a call that reads so many tokens, where nothing has to be reserved for it."""
        card = model.card
        if read * 2 > card.window:  # else its size does not matter, and the same settings do for all such calls
            return structs.replace(settings, max_tokens=reply_limit(card, settings, read, most=self._most))
        key = (card.handle, settings)
        if key not in self._settings:
            limit = reply_limit(card, settings, most=self._most)
            self._settings[key] = structs.replace(settings, max_tokens=limit)
        return self._settings[key]

    def claim(
        self, models: Sequence[Model], request: Request, *, estimate: Amount = _NO_ESTIMATE, at_least: int = 0
    ) -> CallClaim:
        """What a call of these models in turn reserves: `at_least` so long a reply is wanted, if it may be."""
        return self.claim_for(models, read_tokens(request), request.settings, estimate=estimate, at_least=at_least)

    def claim_for(
        self,
        models: Sequence[Model],
        read: int,
        settings: Settings,
        *,
        estimate: Amount = _NO_ESTIMATE,
        at_least: int = 0,
    ) -> CallClaim:
        """The same for a call of which only the size is known yet."""
        most = max(reply_limit(models[0].card, settings, read, most=self._most), at_least)
        return CallClaim(models, self._observations, read=read, most=most, estimate=estimate)

    def limited(self, model: Model, request: Request, limit: int) -> Request:
        """The request as it is sent to one model: with no longer a reply than was reserved, and than it can write."""
        most = model.card.max_tokens
        wanted = min(limit, most) if most else limit
        if request.settings.max_tokens == wanted and request.pay_once == self.capped:
            return request
        settings = structs.replace(request.settings, max_tokens=wanted)
        return structs.replace(request, settings=settings, pay_once=self.capped)

    def priced(self, model: Model, claim: CallClaim) -> Priced:
        """What a call of this one model is expected to cost; where something is capped, what it may use at most."""
        usual = claim.use(model, min(claim.limit, LEAST_REPLY))
        use = claim.use(model, claim.limit) if self.capped else usual
        known = model.card.price(1, 1) is not None or usual.micros > 0
        return Priced(model, use, usual.micros if known else None)

    def trusts(self, model: Model) -> bool:
        """Whether replies of a model are taken to keep to what is reserved for them."""
        return self._observations.of(model).is_trusted(model.card)

    async def call_in_turn(
        self,
        models: Sequence[Model],
        request: Request,
        claim: CallClaim | None,
        context: StepContext,
        *,
        hear: Hear | None = None,
        lost: Lost | None = None,
    ) -> tuple[Reply, Amount | None]:
        """The reply of the first model that answers, and what the calls cost; WorkFailed where none does.

        Without a claim nothing is reserved. `lost` are calls of other models that failed before.
        """
        reserve = claim.amount if claim is not None and self.capped else NOTHING
        lost = [] if lost is None else lost
        for model in models:
            limited = request if claim is None else self.limited(model, request, claim.limit)
            if lost:
                failed, error = lost[-1]
                text = f"falls back to model {model.card.handle}: {error.failure.message}"
                context.note(text, error.failure, ModelFellBack(failed.card.handle, model.card.handle))
                if claim is None:
                    limited = self.limited(model, request, request.settings.max_tokens or self._most)
                elif not await self._may_call(model, claim, reserve):
                    context.note(f"{model.card.handle} is not called: what is reserved does not cover its reply")
                    continue
            try:
                reply = await model.reply(limited, hear)
            except Exception as error:  # noqa: BLE001 - a foreign model may raise anything; the next one may answer
                lost.append((model, model_failed(error)))
                continue
            if claim is not None:
                self.observe(model, claim.read, claim.limit, reply)
            used = self.used(model, reply, reserve)
            return reply, with_lost(used, lost, reserve) if lost else used
        assert lost, "there is at least one model"
        last = lost[-1][1]
        raise WorkFailed(last.failure, self.lost(lost)) from last

    async def _may_call(self, model: Model, claim: CallClaim, reserve: Amount) -> bool:
        """Wait until a fallback model may be called; False where what is reserved does not cover it.

        That is so where a model was seen to write more than it is asked for since then: the next attempt reserves more.
        """
        if not self.capped:
            return True
        await claim.enter_for(model)
        return claim.amount.within(reserve)

    # --- after a call

    def observe(self, model: Model, read: int, limit: int, reply: Reply) -> None:
        """Remember whether a reply kept to what was reserved for it."""
        if self.capped:
            self._observations.of(model).add_reply(model.card, read=read, limit=limit, reply=reply)

    def used(self, model: Model, reply: Reply, reserve: Amount) -> Amount | None:
        """What a call cost; None, or the reserve, for what nobody knows."""
        if reply.usage is None:
            return None if self.capped else Amount(calls=1)
        return _billed(model, reply.usage, reply.micros, reserve)

    def lost(self, calls: Sequence[tuple[Model, ModelFailed]]) -> Amount | None:
        """What failed calls cost; in a run with caps None where nobody knows that of one: what is held counts then."""
        costs = [failed(model, error) for model, error in calls]
        return total(costs if self.capped else [cost for cost in costs if cost is not None])


def read_tokens(request: Request) -> int:
    """As many tokens as a call reads at most, as a rule: messages, tools and schema."""
    size = sum([_message_bytes(message) for message in request.messages])
    size += sum([_tool_bytes(tool) for tool in request.tools])
    frames = len(request.messages) + len(request.tools)
    if request.schema is not None:
        size += len(bytes(request.schema))
        frames += 1
    return -(-size // _DENSE) + _FRAME * frames


def _message_bytes(message: Message) -> int:
    size = _bytes(message.text)
    for call in message.calls:
        size += _bytes(call.name) + _bytes(call.arguments) + _DENSE * _FRAME
    return size


def _tool_bytes(tool: ToolSpec) -> int:
    return _bytes(tool.name) + _bytes(tool.description) + len(bytes(tool.parameters))


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="replace"))


def _billed(model: Model, usage: Usage, micros: int | None, reserve: Amount) -> Amount:
    if micros is None:
        micros = model.card.price(usage.input, usage.output)
    return Amount(tokens=usage.input + usage.output, micros=reserve.micros if micros is None else micros, calls=1)


def failed(model: Model, error: ModelFailed) -> Amount | None:
    """What a failed call cost: nothing but itself where it was not billed, None where nobody knows."""
    if error.usage is None:
        return None if error.billed else Amount(calls=1)
    return _billed(model, error.usage, None, NOTHING)


# --- calls of the supervisor


class SupervisorCalls:
    """Calls of one model for one piece of the supervisor's work. What they take is held before each is made."""

    def __init__(self, context: StepContext, purse: Purse, model: Model, settings: Settings, reserve: Amount) -> None:
        self.context = context
        self.purse = purse
        self.model = model
        self.settings = settings
        """Those that were asked for: a limit in them is never exceeded."""
        self.reserve = reserve
        """What is held for a call of the supervisor in any case."""
        self._used: list[Amount | None] = []

    def total(self) -> Amount | None:
        """What all of them cost; None where the cost of one is not known."""
        return total(self._used)

    async def hold(self, request: Request, *, covered: bool = True, at_least: int = 0, at_most: int = 0) -> Held | None:
        """The request as it may be made, once what it takes is held; None where the budget does not cover it.

        `covered`: the reserve is for this call. The reply is to have room for `at_least` so many tokens, if it may, and
        for `at_most` so many unless the settings say.
        """
        purse = self.purse
        if at_most and request.settings.max_tokens is None:
            request = structs.replace(request, settings=structs.replace(request.settings, max_tokens=at_most))
        if purse.capped:
            claim = purse.claim([self.model], request, estimate=self.reserve, at_least=at_least)
            amount = await self.context.hold(claim, self.reserve if covered else NOTHING)
            if amount is None:
                return None
            return Held(purse.limited(self.model, request, claim.limit), amount, claim)
        read = read_tokens(request) if at_least else sum([len(message.text) for message in request.messages]) // _DENSE
        settings = purse.settings(self.model, request.settings, read)
        if at_least > (settings.max_tokens or 0):
            settings = structs.replace(settings, max_tokens=at_least)
        return Held(structs.replace(request, settings=settings))

    async def call(self, held: Held, hear: Hear | None = None) -> Reply:
        """Make a call for which money is held. A reply that is cut is asked for once more, with more room."""
        reply = await self._call_in_turn(held, hear)
        limit = held.request.settings.max_tokens or 0
        longer = longer_limit(self.model.card, self.settings, limit, held.read)
        if reply.finish != "length" or longer <= limit:
            return reply
        request = structs.replace(held.request, settings=self.settings)
        again = await self.hold(request, covered=False, at_least=longer)
        if again is None or (again.request.settings.max_tokens or 0) <= limit:
            return reply
        handle = self.model.card.handle
        self.context.note(f"{handle}: the reply was cut off at {limit:,} tokens and is asked for again with more")
        return await self._call_in_turn(again, hear)

    async def _call_in_turn(self, held: Held, hear: Hear | None) -> Reply:
        """Make a call once it may be under way, with more held where the model wrote more than it was asked for."""
        claim = held.claim
        if claim is None:
            return await self._call_now(held, hear)
        await claim.enter()
        try:
            if not claim.amount.within(held.amount):
                amount = await self.context.hold(claim, held.amount)
                if amount is None:
                    message = f"the budget does not cover a reply of {self.model.card.handle}"
                    raise WorkFailed(Failure("budget", message), self.total())
                held = Held(self.purse.limited(self.model, held.request, claim.limit), amount, claim)
            return await self._call_now(held, hear)
        finally:
            claim.leave()

    async def _call_now(self, held: Held, hear: Hear | None) -> Reply:
        # nobody knows what a call costs that is given up before it comes back: what was held for it counts
        unknown = held.amount if self.purse.capped else None
        at = len(self._used)
        self._used.append(unknown)
        try:
            reply = await self.model.reply(held.request, hear)
        except Exception as error:
            lost = model_failed(error)
            self._used[at] = failed(self.model, lost) or unknown
            raise WorkFailed(lost.failure, self.total()) from error
        self.purse.observe(self.model, held.read, held.request.settings.max_tokens or 0, reply)
        if reply.usage is None:
            self._used[at] = unknown or Amount(calls=1)
        else:
            used = _billed(self.model, reply.usage, reply.micros, held.amount)
            self._used[at] = used
            self.context.release(held.amount.beyond(used))
        return reply


def cut_off(reply: Reply) -> str:
    """That a reply is not whole, in words; empty where it is."""
    if reply.finish != "length":
        return ""
    after = f" after {reply.usage.output:,} tokens" if reply.usage is not None else ""
    return f"the reply was cut off{after}; raise max_tokens or the budget, or ask for less"


def too_dear(what: str, *, alone: bool) -> WorkFailed:
    """The failure of who cannot pay for a call: for good, if it is `alone` and nobody gives anything back."""
    return WorkFailed(Failure("budget", f"the budget does not cover {what}", permanent=alone), NOTHING)


def with_lost(used: Amount | None, lost: Sequence[tuple[Model, ModelFailed]], reserve: Amount) -> Amount | None:
    """What a call cost together with those of the models that failed before another answered.

    Where something was reserved for them, one of them that nobody knows the cost of makes it unknown.
    """
    costs = [failed(model, error) for model, error in lost]
    if used is None or (reserve != NOTHING and None in costs):
        return None
    return total([used, *(Amount(calls=1) if cost is None else cost for cost in costs)])


def supervision(budget: Budget, models: Sequence[str | Model], settings: Settings = _NOTHING_SET) -> Amount:
    """What is held for a call of the supervisor at least: it is made with no less, and holds more where there is more.

    Never nothing where it may cost something: none is made once the money is spent, even if its price is not known yet.
    """
    if not Ledger(budget).capped:
        return NOTHING
    out = LEAST_REPLY if settings.max_tokens is None else min(LEAST_REPLY, settings.max_tokens)
    micros = 0 if budget.micros is None else max(_foreseen(model, budget.floor.micros, out) for model in models)
    return Amount(tokens=_SUPERVISION + out, micros=micros, calls=1)


def _foreseen(model: str | Model, kept: int, out: int) -> int:
    price = None if isinstance(model, str) else model.card.price(_SUPERVISION, out)
    if price is not None:
        return price
    free = is_free(model) if isinstance(model, str) else model.card.free
    return 0 if free else max(1, kept)


class PriceUnknown(Invalid):
    """Whoever set a budget in dollars: nobody knows the price of these `models`, so it could not be kept."""

    def __init__(self, models: Sequence[str]) -> None:
        self.models = tuple(models)
        super().__init__(
            f"nobody knows what {' and '.join(models)} costs, so the budget in dollars cannot be kept; "
            "cap tokens or calls instead, or say what a call costs: a worker's `estimate`, the budget's `floor`"
        )


class CallCap(Struct, frozen=True):
    """A cap on calls in place of one in dollars, which cannot be kept: nobody knows what the `models` cost."""

    models: tuple[str, ...]
    usd: float
    calls: int

    @property
    def warning(self) -> str:
        cents = f"{self.usd:.6f}".rstrip("0").partition(".")[2].ljust(2, "0")
        return (
            f"nobody knows what {' and '.join(self.models)} costs, so the budget of ${int(self.usd):,}.{cents} cannot "
            f"be kept in dollars; at most {self.calls:,} calls are made instead. --price IN/OUT says what it costs, in "
            "dollars per million tokens; in Python: team.priced(flat(IN, OUT))"
        )


def calls_for(micros: int) -> int:
    """How many calls stand in for a cap in dollars that cannot be kept: one for each cent, and 10 at least."""
    return max(_LEAST_CALLS, micros // _MICROS_A_CALL)


def call_cap(budget: Budget, unpriced: Sequence[str]) -> CallCap | None:
    """What replaces the dollars of a budget where the price of some models is unknown; None where they can be kept."""
    if budget.usd is None or budget.micros is None or not unpriced:
        return None
    calls = calls_for(budget.micros)
    return CallCap(tuple(unpriced), budget.usd, calls if budget.calls is None else min(calls, budget.calls))


def unpriced_handles(models: Iterable[Model]) -> tuple[str, ...]:
    """The handles of those models that nobody knows the price of."""
    return tuple(dict.fromkeys(model.card.handle for model in models if model.card.price(1, 1) is None))


def total(used: Sequence[Amount | None]) -> Amount | None:
    """What several calls cost together; None where that of one is not known."""
    known = [one for one in used if one is not None]
    if len(known) < len(used):
        return None
    return sum(known, NOTHING)
