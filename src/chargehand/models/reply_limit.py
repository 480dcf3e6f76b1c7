"""How many tokens a reply may have, and what replies of each model took beyond what was reserved for them.

The limit is sent as `max_tokens` with every call, thinking included. A cap bounds what is billed as long as models keep
to it. Where that is not known of a model, its calls start slowly: one, then as many more as there were replies that
kept to what was reserved for them.
"""

import asyncio
import logging
import re
from math import ceil

from msgspec import Struct, field

from chargehand.models.messages import Reply, Settings
from chargehand.models.model import Model, ModelCard
from chargehand.models.token_count import TokenRates

USUAL_LIMIT = 8_192
"""Where neither the settings nor the model's card says, and where a budget has to cover it."""
GENEROUS_LIMIT = 16_384
"""Asked for where nothing is capped and the model can write so much. A reply that is cut is asked for again, longer.

Providers count `max_tokens` towards the rate limit of a key, so it is not the largest number there is.
"""
EXPECTED_REPLY = 1_000
"""Tokens that a reply is expected to have before any of its model was seen."""
_LONGER = 2  # times as long, where a reply was cut
_SHARE_OF_WINDOW = 8

# What models write at most, by a part of their name; the first that fits counts.
_BY_NAME: tuple[tuple[re.Pattern[str], int], ...] = tuple(
    (re.compile(pattern), limit)
    for pattern, limit in (
        (r"gpt-3\.5|gpt-4-turbo|gpt-4-1106|gpt-4-0125|gpt-4-vision|gpt-4o-2024-05-13", 4_096),
        (r"gpt-5-chat|gpt-4o|gpt-4\.5|chatgpt-4o", 16_384),
        (r"gpt-4\.1", 32_768),
        (r"gpt-4(?!\w)", 4_096),
        (r"gpt-[5-9]", 128_000),
        (r"(?<![a-z])o1-mini", 65_536),
        (r"(?<![a-z])o1-preview", 32_768),
        (r"(?<![a-z])o[1-9](?![a-z0-9])", 100_000),
        (r"claude-(2|instant|3-opus|3-sonnet|3-haiku)", 4_096),
        (r"claude-3[-.]5", 8_192),
        (r"claude-opus-4(-[01])?(?!-?[2-9])", 32_000),
        (r"claude", 64_000),
        (r"gemini-(1|2\.0)", 8_192),
        (r"gemini", 65_536),
        (r"deepseek-reasoner|deepseek-r", 64_000),
    )
)


def known_limit(name: str) -> int:
    """Tokens a model of this name writes at most; 0 where that is not known."""
    plain = name.lower().rpartition("/")[2]
    return next((limit for pattern, limit in _BY_NAME if pattern.search(plain)), 0)


def reply_limit(card: ModelCard, settings: Settings, read: int = 0, *, most: int = GENEROUS_LIMIT) -> int:
    """Tokens a reply may have: as the settings say, else as many as the model writes, `most`, and fit its window.

    `read` is how many tokens the call reads.
    """
    if settings.max_tokens is not None:
        return settings.max_tokens
    return max(1, min(card.max_tokens or USUAL_LIMIT, most, _room(card, read)))


def longer_limit(card: ModelCard, settings: Settings, limit: int, read: int = 0) -> int:
    """The limit with which a reply is asked for again that was cut at `limit`; the same where it may not be longer."""
    if settings.max_tokens is not None:
        return limit
    return max(limit, min(card.max_tokens or _LONGER * USUAL_LIMIT, _LONGER * limit, _room(card, read)))


def _room(card: ModelCard, read: int) -> int:
    return max(card.window - read, card.window // _SHARE_OF_WINDOW)


_LEAST_ASKED = 1_024
_TOO_LONG = re.compile(r"max_tokens|max_completion_tokens|max_output_tokens|context length|context limit|max_model_len")


def smaller_limit(status: int, words: str, limit: int) -> int | None:
    """A limit to try instead, where a server refused a call because it does not write, or hold, so much; else None."""
    if status not in (400, 422) or limit <= _LEAST_ASKED or not _TOO_LONG.search(words):
        return None
    return max(_LEAST_ASKED, limit // 2)


def depends_on_request(words: str) -> bool:
    """Whether a limit was refused because this request left no room for it, so that it says nothing of the next."""
    return "context" in words.lower()


# --- what replies took beyond what was reserved for them


_ENOUGH = 16  # replies in a row, no longer than reserved, after which any number of calls may be under way

logger = logging.getLogger(__name__)


class Observed(Struct):
    """What calls of one model took beyond what was reserved for them, at most: later ones reserve as much.

    `excess` is the longest reply that was longer than asked for, 0 while there was none, and `longest` that of all.
    `was_cut`: a reply ended at its limit. `input` and `price` are how many times as many tokens were read as its
    `rates` allow, and as many dollars charged as was reckoned. `kept_in_row` counts the replies in a row that were no
    longer than reserved, `under_way` the calls that have been let in and are not over.
    """

    excess: int = 0
    longest: int = 0
    was_cut: bool = False
    input: float = 1.0
    price: float = 1.0
    kept_in_row: int = 0
    under_way: int = 0
    replies: int = 0
    """How many replies said how long they are."""
    written: int = 0
    """Tokens of these replies together."""
    rates: TokenRates = field(default_factory=TokenRates)
    """How it counts what it reads."""

    def usual_length(self, limit: int) -> int:
        """Return how many tokens a reply within a limit is expected to have: the mean of those observed."""
        usual = ceil(self.written / self.replies) if self.replies else EXPECTED_REPLY
        return min(usual, limit)

    def keeps_limit(self, card: ModelCard) -> bool:
        """Whether it is known to keep to `max_tokens`."""
        return not self.excess and (card.keeps_limit or self.was_cut)

    def length(self, card: ModelCard, limit: int) -> int:
        """How long a reply may be that is asked for within a limit."""
        return limit if self.keeps_limit(card) else max(limit, self.longest)

    def is_trusted(self, card: ModelCard) -> bool:
        """Whether its replies are taken to keep to what is reserved for them, however many are under way."""
        return self.kept_in_row >= _ENOUGH or self.keeps_limit(card)

    def may_start(self, card: ModelCard) -> bool:
        """Whether another call may be let in now."""
        return self.is_trusted(card) or self.under_way <= self.kept_in_row

    def add_reply(self, card: ModelCard, *, read: int, limit: int, reply: Reply) -> None:
        """Count a reply to a call that reads so many tokens at most, and asked for a reply within a limit."""
        usage = reply.usage
        if usage is None:  # booked as what was reserved: nothing can be learned from it
            self.kept_in_row += 1
            return
        self.replies += 1
        self.written += usage.output
        is_longer = usage.output > self.length(card, limit)
        self.kept_in_row = 0 if is_longer else self.kept_in_row + 1
        if is_longer:
            logger.warning("%s wrote %d tokens where %d were asked for", card.handle, usage.output, limit)
        if usage.output > limit:
            self.excess = max(self.excess, usage.output)
        elif reply.finish == "length":
            self.was_cut = True
        self.longest = max(self.longest, usage.output)
        if read and usage.input > read:
            self.input = max(self.input, usage.input / read)
        price = card.price(usage)
        if price and reply.micros is not None and reply.micros > price:
            self.price = max(self.price, reply.micros / price)


class Observations:
    """What was observed of every model, by its handle, for all teams that find their models in one place."""

    def __init__(self) -> None:
        self._by_handle: dict[str, Observed] = {}
        self._waiting: list[asyncio.Future[None]] = []

    def of(self, model: Model) -> Observed:
        handle = model.card.handle
        observed = self._by_handle.get(handle)
        if observed is None:
            observed = self._by_handle[handle] = Observed()
        return observed

    async def enter(self, model: Model) -> None:
        """Wait until one more call of a model may be under way, and count it."""
        observed = self.of(model)
        while not observed.may_start(model.card):
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            await turn
        observed.under_way += 1

    def leave(self, model: Model) -> None:
        """A call that was let in is over."""
        self.of(model).under_way -= 1
        waiting = self._waiting
        self._waiting = []
        for turn in waiting:
            if not turn.done():
                turn.set_result(None)
