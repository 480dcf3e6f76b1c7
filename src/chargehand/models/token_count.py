"""How many tokens a model reads: estimated from the characters of a text, then by what its replies say they read.

Tokenizers differ most in what they do with digits, accents and other scripts, so a text is measured by kinds of
characters, and each kind has a ratio of its own that is learned for each model.
"""

import string
from collections import deque
from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import ceil, sqrt
from operator import add, mul, sub
from typing import NamedTuple, TypeAlias

from chargehand.models.messages import IMAGE_TOKENS, Message, Request, ToolSpec
from chargehand.models.tool_search import deferrable

Size: TypeAlias = tuple[float, ...]
"""Tokens of each kind, as they are estimated before anything is known of a model; the sum is the estimate."""


class _TextKind(NamedTuple):
    """Something a model reads.

    `doubt` is how far the estimate of it is off for a usual tokenizer, as a part of it; `margin` is what is added to
    it, as a part of it, where too little must not be reserved.
    """

    name: str
    doubt: float
    margin: float


# Fitted to the tokenizers of GPT-4o, Gemini, DeepSeek V3, Qwen 3 and Claude 2; tests/models/token_samples.json has
# counts of theirs.
_KINDS = (
    _TextKind("English and code", 0.15, 0.4),
    _TextKind("other Latin words", 0.35, 0.7),
    _TextKind("Cyrillic", 0.45, 1.1),
    _TextKind("Chinese", 0.5, 1.2),
    _TextKind("Japanese", 0.5, 1.1),
    _TextKind("other scripts", 0.6, 1.5),
    _TextKind("digits", 0.55, 1.1),
    _TextKind("marks", 0.12, 0.5),
    _TextKind("frames", 0.5, 1.0),
    _TextKind("tools", 0.4, 0.6),
    _TextKind("images", 0.5, 0.0),
    _TextKind("documents", 0.6, 0.6),
    _TextKind("request", 8.0, 0.0),
)
TOOLS = -4
"""The place of tools and schemas in a size."""
_BYTES_OF_KEPT = 3
"""Bytes of what a provider wants back with a message, for each token it counts them as; a guess on the high side."""
_FRAME = 4.0  # tokens around a message, a call or a tool
_REQUEST = 10.0  # tokens that a provider adds to a request
_NOISE = 0.08  # of an estimate: texts of one kind differ by so much
_LEAST_DOUBT = 0.25  # of the first doubt: what is known of a model stays open to what it reads next
_LEAST_MARGIN = 0.6  # of the first margin
_FEWEST = 0.4  # of the first estimate
_FARTHEST = 2.0  # standard deviations of one reply that count
_RATIOS = (0.2, 5.0)
_UNREAD = 4  # replies of which nothing was learned yet; older ones are forgotten
_LONGEST = 8_192  # characters; of a longer text, slices are measured
_SLICES = 8
_USUAL = 4.0  # characters a token of English
_KEPT = 2_048  # characters of the longest text whose size is remembered

# --- texts


def _table() -> bytes:
    """Map the first byte of each character in UTF-8 to a letter for its class."""
    classes = bytearray(b"o" * 256)
    for letter, members in (
        ("p", range(0x80)),  # punctuation, and what is none of the next three
        ("a", string.ascii_lowercase.encode()),
        ("A", string.ascii_uppercase.encode()),
        ("d", string.digits.encode()),
        ("s", b" "),
        ("n", b"\n\r\t"),
        ("y", (0xC2, 0xE2, 0xEF)),  # symbols and full-width punctuation
        ("l", range(0xC3, 0xCA)),  # Latin letters with accents
        ("c", range(0xD0, 0xD5)),  # Cyrillic
        ("k", (0xE3,)),  # kana and East Asian punctuation
        ("h", range(0xE4, 0xEA)),  # Chinese characters
    ):
        for byte in members:
            classes[byte] = ord(letter)
    return bytes(classes)


_CLASSES = _table()
_CONTINUATIONS = bytes(range(0x80, 0xC0))
_LETTERS = bytes([byte if byte in b"ac" else ord("a") if byte in b"Al" else ord(".") for byte in range(256)])
"""What tells where words begin: letters, and a dot for all else."""
_NO_FRAME: Size = (0.0, 0.0, 0.0, 0.0, 0.0)
_FOREIGN = 0.005  # accents among the letters of a text, from which on its words are no English
_KANA = 0.15  # of the East Asian characters of a text, from which on it is Japanese


def measure(text: str) -> Size:
    """Return the size of a text; of a very long one, by slices of it."""
    if len(text) <= _KEPT:
        return _measure_kept(text)
    if len(text) <= _LONGEST:
        return _measure(text)
    step = len(text) // _SLICES
    width = _LONGEST // _SLICES
    sizes = [_measure(text[start : start + width]) for start in range(0, step * _SLICES, step)]
    factor = len(text) / _LONGEST
    return tuple([factor * sum(tokens) for tokens in zip(*sizes, strict=True)])


def _measure(text: str) -> Size:
    scripts = (0.0, 0.0, 0.0, 0.0, 0.0)
    symbols = 0
    if text.isascii():
        classes = text.encode().translate(_CLASSES)
        letters = classes.translate(_LETTERS)
        english = 0.085 * letters.count(b"a") + 0.59 * _count_starts(letters, b"a")
    else:
        classes = text.encode(errors="replace").translate(_CLASSES, _CONTINUATIONS)
        english, *scripts = _measure_scripts(classes)
        symbols = classes.count(b"y")
    count = classes.count
    marks = 1.05 * (count(b"p") - count(b"pp")) + 0.65 * count(b"n") + count(b"ns") + symbols
    digits = 1.45 * _count_digit_groups(classes) if b"d" in classes else 0.0
    digits += 1.4 * count(b"AAAAAA")  # codes and keys: words in capitals are mostly one or two tokens
    return (english, *scripts, digits, marks, *_NO_FRAME)


def _measure_scripts(classes: bytes) -> tuple[float, ...]:
    """Return the size of what is written in letters: English, other Latin words, and the other scripts."""
    count = classes.count
    letters = classes.translate(_LETTERS)
    latin = letters.count(b"a")
    words = _count_starts(letters, b"a")
    is_foreign = count(b"l") > _FOREIGN * latin
    east = count(b"h")
    kana = count(b"k")
    is_japanese = kana > _KANA * (east + kana)
    return (
        0.0 if is_foreign else 0.085 * latin + 0.59 * words,
        0.09 * latin + 1.18 * words if is_foreign else 0.0,
        0.08 * count(b"c") + 1.5 * _count_starts(letters, b"c"),
        0.0 if is_japanese else 0.68 * (east + kana),
        0.95 * east + 0.5 * kana if is_japanese else 0.0,
        0.5 * count(b"o"),
    )


def _count_starts(letters: bytes, letter: bytes) -> int:
    """Return how many words of a script begin in a text."""
    return letters.count(b"." + letter) + letters.startswith(letter)


def _count_digit_groups(classes: bytes) -> int:
    """Return how many groups of up to three digits there are, as most tokenizers cut numbers."""
    rest = classes.replace(b"ddd", b"g")
    return (len(classes) - len(rest)) // 2 + rest.count(b"d") - rest.count(b"dd")


_measure_kept = lru_cache(maxsize=512)(_measure)


def count_tokens(text: str) -> int:
    """Return the tokens of a text as they are estimated before anything is known of a model."""
    return ceil(sum(measure(text)))


# --- requests


EMPTY: Size = (0.0,) * len(_KINDS)
REQUEST: Size = (*EMPTY[:-1], _REQUEST)
"""The size of a request without what is in it."""


def together(first: Size, second: Size) -> Size:
    """Return the size of two things together."""
    return tuple(map(add, first, second))


def without(whole: Size, part: Size) -> Size:
    """Return the size of what is left of a thing without a part of it."""
    return tuple(map(sub, whole, part))


def measure_message(message: Message) -> Size:
    """Return the size of a message with its pictures, documents and calls."""
    size = measure(message.text)
    for call in message.calls:
        size = together(size, measure(f"{call.name} {call.arguments}"))
    images = float(len(message.images) * IMAGE_TOKENS)
    documents = 0.0 if not message.documents else float(message.files_tokens - len(message.images) * IMAGE_TOKENS)
    if message.kept is not None:  # opaque, and often not text
        images += message.kept.size / _BYTES_OF_KEPT
    return (*size[:-5], _FRAME * (1 + len(message.calls)), 0.0, images, documents, 0.0)


def measure_tools(tools: Sequence[ToolSpec], schema: bytes | None = None) -> Size:
    """Return the size of what stands beside the messages of a request: its tools, and the schema of its reply."""
    texts = [f"{tool.name} {tool.description} {bytes(tool.parameters).decode()}" for tool in tools]
    if schema is not None:
        texts.append(bytes(schema).decode())
    tokens = sum([sum(measure(text)) + _FRAME for text in texts])
    return (*EMPTY[:-4], tokens, 0.0, 0.0, 0.0)


def measure_request(request: Request, *, searches: bool = False) -> Size:
    """Return the size of all that a call may read; with `searches`, without the tools it is left to search for."""
    size = add_request(measure_messages(request.messages), request)
    return without(size, measure_deferred(request)) if searches else size


def measure_deferred(request: Request) -> Size:
    """Return the size of the tools that a model may be left to search for: it reads them once it has found them."""
    tools = deferrable(request)
    return measure_tools(tools) if tools else EMPTY


def measure_messages(messages: Iterable[Message]) -> Size:
    """Return the size of messages together."""
    sizes = [measure_message(message) for message in messages]
    return tuple(map(sum, zip(*sizes, strict=True))) if sizes else EMPTY


def add_request(messages: Size, request: Request) -> Size:
    """Return the size of a request whose messages are measured already."""
    schema = None if request.schema is None else bytes(request.schema)
    return together(together(messages, measure_tools(request.tools, schema)), REQUEST)


# --- models


class TokenRates:
    """How many times as many tokens as estimated one model reads, by kinds: learned from its replies.

    Each ratio has a doubt, which every reply lowers where it had much of that kind. A reply that is far off what can be
    (tries in vain are counted in, or a server invents its usage) moves the ratios by a bounded amount.
    """

    __slots__ = ("_doubts", "_ratios", "_unread", "replies")

    def __init__(self) -> None:
        self._ratios = [1.0] * len(_KINDS)
        self._unread: deque[tuple[tuple[Message, ...], Request, int]] = deque(maxlen=_UNREAD)
        self._doubts = [kind.doubt for kind in _KINDS]
        self.replies = 0
        """How many replies were learned from."""

    def note(self, request: Request, read: int) -> None:
        """Remember that a request was so many tokens, until a ratio is asked for: most calls need none."""
        self._unread.append((tuple(request.messages), request, read))

    @property
    def ratios(self) -> list[float]:
        """For each kind, how many times as many tokens as estimated it is."""
        while self._unread:
            messages, request, read = self._unread.popleft()
            self.learn(add_request(measure_messages(messages), request), read)
        return self._ratios

    def estimate(self, size: Size) -> int:
        """Return the tokens that the model reads, about."""
        return ceil(sum(map(mul, size, self.ratios)))

    def bound(self, size: Size) -> int:
        """Return the tokens that the model reads at most.

        That a kind takes fewer tokens than estimated counts only as far as the doubt of it is gone.
        """
        shares: list[float] = []
        for ratio, doubt, kind in zip(self.ratios, self._doubts, _KINDS, strict=True):
            doubted = doubt / kind.doubt
            shares.append(max(ratio, 1 - (1 - ratio) * (1 - doubted)) + kind.margin * max(_LEAST_MARGIN, doubted))
        return ceil(sum(map(mul, size, shares)))

    def characters_per_token(self, text: str) -> float:
        """Return how many characters of a text are a token for the model, on average."""
        return len(text) / sum(map(mul, measure(text), self.ratios)) if text else _USUAL

    def bytes_per_token(self, text: str) -> float:
        """Return how many bytes of a text in UTF-8 are a token for the model, on average."""
        return self.characters_per_token(text) * len(text.encode(errors="replace")) / max(1, len(text))

    def restore(self, ratios: Sequence[float]) -> None:
        """Take over ratios that were written down; those of a version with other kinds are left alone."""
        if len(ratios) == len(self.ratios):
            self._ratios = list(ratios)

    def learn(self, size: Size, read: int) -> None:
        """Take from a reply that a request of this size was so many tokens.

        Fewer than can be teach nothing: some servers leave out what they read from their cache, or count nothing.
        """
        if read < _FEWEST * sum(size):
            return
        self.replies += 1
        expected = sum(map(mul, size, self._ratios))
        spreads = [(doubt * tokens) ** 2 for doubt, tokens in zip(self._doubts, size, strict=True)]
        variance = sum(spreads) + (_NOISE * expected) ** 2
        farthest = _FARTHEST * sqrt(variance)
        miss = max(-farthest, min(read - expected, farthest)) / variance
        least, most = _RATIOS
        for at, spread in enumerate(spreads):
            if spread:
                moved = self._ratios[at] + spread / size[at] * miss
                self._ratios[at] = least if moved < least else min(moved, most)
                doubt = self._doubts[at] * (1.0 - spread / variance) ** 0.5
                lowest = _LEAST_DOUBT * _KINDS[at].doubt
                self._doubts[at] = max(doubt, lowest)
