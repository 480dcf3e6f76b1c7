"""How many tokens a reply may have: what is sent as `max_tokens` with every call, thinking included."""

import re

from chargehand.models.messages import Settings
from chargehand.models.model import ModelCard

USUAL_LIMIT = 8_192
"""Where neither the settings nor the model's card says, and where a budget has to cover it."""
GENEROUS_LIMIT = 16_384
"""Asked for where nothing is capped and the model can write so much. A reply that is cut is asked for again, longer.

Providers count `max_tokens` towards the rate limit of a key, so it is not the largest number there is.
"""
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
