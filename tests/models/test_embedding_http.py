"""Vectors over HTTP: what is sent, what is believed, what is tried again, and which handle leads where."""

import asyncio
import json
import struct
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import TypeAlias

import msgspec
import pytest

from chargehand.engine.policy import Retry
from chargehand.errors import Invalid, StoreUnavailable
from chargehand.models.call_errors import Party, Unreadable
from chargehand.models.embeddings import (
    HANDLE,
    EmbeddingEndpoint,
    HttpEmbedding,
    LocalEmbedding,
    find_embedding,
    read_vectors,
)
from chargehand.models.guard import Guarded
from chargehand.models.http import Timeouts
from chargehand.models.prices import FREE
from tests.models.loopback import Asked, Loopback, Move, loopback, whole
from tests.support.closing import closing

KEY = "sk-very-secret-0123456789"
SOON = Retry(base=0.01, ceiling=0.02)
PATIENT = Timeouts(whole=20.0, idle=20.0, total=30.0)
NO_ANSWER = Timeouts(whole=0.5, idle=20.0, total=30.0)
HALF_AN_ANSWER = Timeouts(whole=20.0, idle=0.3, total=30.0)
Answer: TypeAlias = Callable[[list[str]], Sequence[Move]]


def nothing(_variable: str) -> str | None:
    return None


def sent(asked: Asked) -> list[str]:
    return msgspec.convert(asked.json["input"], list[str])


def numbers(vector: bytes) -> list[float]:
    return list(struct.unpack(f"<{len(vector) // 4}f", vector))


def row(at: int, *values: float) -> dict[str, object]:
    return {"object": "embedding", "index": at, "embedding": list(values)}


def meant(texts: list[str], width: int = 3) -> list[dict[str, object]]:
    """A vector that tells how long the text is."""
    return [row(at, float(len(text)), *[1.0] * (width - 1)) for at, text in enumerate(texts)]


def fine(texts: list[str]) -> Sequence[Move]:
    return whole({"object": "list", "data": meant(texts), "usage": {"prompt_tokens": 7, "total_tokens": 7}})


def in_order(*answers: Answer) -> Answer:
    left: Iterator[Answer] = iter(answers)
    return lambda texts: next(left)(texts)  # noqa: PLW0108 - the next one each time


def always(moves: Sequence[Move]) -> Answer:
    return lambda _: moves


def data(*rows: dict[str, object]) -> Answer:
    return always(whole({"data": list(rows)}))


@asynccontextmanager
async def served(answer: Answer, timeouts: Timeouts = PATIENT) -> AsyncGenerator[tuple[HttpEmbedding, Loopback]]:
    def play(asked: Asked) -> Sequence[Move]:
        return answer(sent(asked))

    async with loopback(play) as server:
        endpoint = EmbeddingEndpoint(
            "openai:small", server.url, "small", KEY, timeouts=timeouts, max_bytes=200_000, variable="OPENAI_API_KEY"
        )
        model = HttpEmbedding(Guarded(endpoint, retry=SOON, random=Random(7)))
        try:
            yield model, server
        finally:
            await model.close()


async def test_texts_become_vectors_of_length_one_in_their_order() -> None:
    async with served(fine) as (model, server):
        assert (model.handle, model.width) == ("openai:small", 0)
        vectors = await model.embed(["four", "x"])
        assert [numbers(vector) for vector in vectors] == [
            pytest.approx([4 / 18**0.5, 1 / 18**0.5, 1 / 18**0.5]),
            pytest.approx([3**-0.5] * 3),
        ]
        assert model.width == 3
        (asked,) = server.asked
        assert (asked.path, asked.json) == ("/v1/embeddings", {"model": "small", "input": ["four", "x"]})
        assert asked.headers["authorization"] == f"Bearer {KEY}"


async def test_vectors_that_come_shuffled_are_put_in_order() -> None:
    async with served(data(row(2, 0, 0, 1), row(0, 1, 0, 0), row(1, 0, 1, 0))) as (model, _):
        vectors = [numbers(vector) for vector in await model.embed(["a", "b", "c"])]
        assert vectors == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]


async def test_many_texts_go_in_batches_of_64() -> None:
    async with served(fine) as (model, server):
        texts = ["y" * (1 + at % 9) for at in range(150)]
        vectors = await model.embed(texts)
        assert [len(sent(asked)) for asked in server.asked] == [64, 64, 22]
        assert vectors[149] == (await model.embed([texts[149]]))[0] != vectors[148]
        assert await model.embed([]) == []
        assert len(server.asked) == 4


async def test_long_texts_make_smaller_batches_and_an_empty_one_is_sent_as_a_blank() -> None:
    async with served(fine) as (model, server):
        await model.embed(["z" * 300_000, "z" * 300_000, "", "z" * 500_000])
        lengths = [[len(text) for text in sent(asked)] for asked in server.asked]
        assert lengths == [[300_000], [300_000, 1], [500_000]]


async def test_vectors_of_another_width_are_never_mixed() -> None:
    async with served(in_order(fine, lambda texts: whole({"data": meant(texts, 4)}))) as (model, server):
        with pytest.raises(StoreUnavailable, match=r"of 3 numbers before and of 4 now.*check that the same model"):
            await model.embed(["t"] * 65)
        assert (model.width, len(server.asked)) == (3, 2)


@pytest.mark.parametrize(
    ("answer", "complaint", "calls"),
    [
        (data(row(0, 1, 0)), "2 texts were sent and 1 vectors came back", 3),
        (data(row(0, 1, 0), row(0, 0, 1)), "not numbered from 0 on", 3),
        (data(row(1, 1, 0), row(2, 0, 1)), "not numbered from 0 on", 3),
        (data(row(0, 1, 0), row(1, 1)), "no common width", 2),
        (data(row(0), row(1)), "no common width", 2),
        (data(row(0, 1, float("nan")), row(1, 1, 0)), "no whole JSON document", 3),
        (data(row(0, 1, float("inf")), row(1, 1, 0)), "no whole JSON document", 3),
        (data(row(0, 1e300, 1e300), row(1, 1, 0)), "has no length", 2),
        (data(row(0, 0, 0), row(1, 1, 0)), "has no length", 2),
        (always(whole({"data": [{"index": 0, "embedding": [None]}]})), "another shape", 3),
        (always(whole({"data": None})), "0 vectors came back", 3),
        (always(whole({"error": {"message": f"no such model for {KEY}", "code": 404}})), "no such model", 1),
        (always(whole(b"<html>hello</html>", kind="text/html")), "an HTML page", 3),
        (always(whole(b"x" * 300_000)), "larger than 200,000 bytes", 2),
        (always(whole({"error": {"message": f"bad key {KEY}"}}, 401)), "check the key in OPENAI_API_KEY", 1),
        (always(whole({"error": "too long"}, 400)), "too long.*change the request", 1),
        (always([None]), "did not get through.*try again", 3),
        (always([b"HTTP/1.1 200 X\r\nContent-Length: 99\r\n\r\n{", 30.0]), "silent for 0.3 s", 1),
        (always([30.0]), "nothing of the reply came within 0.5 s", 1),
    ],
)
async def test_what_cannot_be_used_is_said_in_words_and_without_the_key(
    answer: Answer, complaint: str, calls: int
) -> None:
    timeouts = {"silent for 0.3 s": HALF_AN_ANSWER, "nothing of the reply came within 0.5 s": NO_ANSWER}
    async with served(answer, timeouts.get(complaint, PATIENT)) as (model, server):
        with pytest.raises(StoreUnavailable, match=complaint) as raised:
            await model.embed(["one", "two"])
        assert str(raised.value).startswith("openai:small: ")
        assert KEY not in str(raised.value)
        assert len(server.asked) == calls
        assert model.width == 0


async def test_a_server_that_stumbles_twice_is_asked_again() -> None:
    def down(_: list[str]) -> Sequence[Move]:
        return whole({"error": "later"}, 500)

    async with served(in_order(down, down, fine)) as (model, server):
        assert len(await model.embed(["one"])) == 1
        assert len(server.asked) == 3


async def test_a_server_that_asks_for_a_pause_gets_it() -> None:
    def busy(_: list[str]) -> Sequence[Move]:
        return whole({"error": "slow down"}, 429, Retry_After="0.4")

    async with served(in_order(busy, fine)) as (model, server):
        began = time.monotonic()
        assert len(await model.embed(["one"])) == 1
        assert time.monotonic() - began >= 0.4
        assert len(server.asked) == 2


async def test_a_text_that_json_cannot_carry_is_refused_before_it_is_sent() -> None:
    async with served(fine) as (model, server):
        with pytest.raises(StoreUnavailable, match="cannot be written as JSON"):
            await model.embed(["\ud800"])
        assert server.asked == []


async def test_a_large_reply_is_read_beside_the_event_loop() -> None:
    large = b'{"data":[' + b",".join(b'{"embedding":[%b1]}' % (b"0.0123456789," * 4000) for _ in range(64)) + b"]}"
    small = b'{"data":[{"embedding":[%b1]}]}' % (b"0.0123456789," * 4000)

    # threads of its own: those of other tests have the usual names
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(thread_name_prefix="beside this loop"))

    def beside() -> bool:
        return any(thread.name.startswith("beside this loop") for thread in threading.enumerate())

    async with loopback(lambda asked: whole(large if len(asked.body) > 200 else small)) as server:
        model = find_embedding(f"openai+{server.url}#wide", nothing, price=FREE)
        assert model is not None
        async with closing(model):
            assert len(await model.embed(["t"])) == 1
            assert not beside()
            assert len(await model.embed(["t"] * 64)) == 64
            assert beside()
            assert model.width == 4001


# --- handles


@pytest.mark.parametrize(
    ("handle", "variables"),
    [
        ("openai:m", {"OPENAI_BASE_URL": "{}", "OPENAI_API_KEY": KEY}),
        ("ollama:m", {"OLLAMA_BASE_URL": "{}"}),
        ("vllm/m", {"VLLM_BASE_URL": "{}"}),
        ("openai+{}#m", {}),
        (" openai+{}:m ", {}),
    ],
)
async def test_a_handle_leads_to_its_server(handle: str, variables: dict[str, str]) -> None:
    async with loopback(lambda asked: fine(sent(asked))) as server:
        lookup = {name: value.format(server.url) for name, value in variables.items()}.get
        model = find_embedding(handle.format(server.url), lookup)
        assert isinstance(model, HttpEmbedding)
        async with closing(model):
            assert model.handle == handle.format(server.url).strip()
            assert len(await model.embed(["hello"])) == 1
            assert server.asked[0].json["model"] == "m"
            assert ("authorization" in server.asked[0].headers) == ("OPENAI_API_KEY" in variables)


def test_words_have_no_embedding_and_auto_has_one_only_where_it_is_here(tmp_path: Path) -> None:
    assert find_embedding("words", nothing, tmp_path) is None
    assert find_embedding("auto", nothing, tmp_path) is None
    assert find_embedding("auto", nothing) is None
    (tmp_path / "minilm").mkdir()
    (tmp_path / "minilm" / "model.onnx").touch()
    assert find_embedding("auto", nothing, tmp_path) is None
    (tmp_path / "minilm" / "vocab.txt").touch()
    for handle in ("auto", HANDLE):
        assert isinstance(find_embedding(handle, nothing, tmp_path), LocalEmbedding)
    assert isinstance(find_embedding("auto", {"CHARGEHAND_MODELS": str(tmp_path)}.get), LocalEmbedding)


@pytest.mark.parametrize(
    ("handle", "complaint"),
    [
        (HANDLE, r"pip install -e '.*\[local\]' and: chargehand models pull minilm"),
        ("local:other", "is no embedding.*local:minilm, local:multilingual"),
        ("openai:text-embedding-3-small", "needs a key: set OPENAI_API_KEY"),
        ("anthropic:claude", r"is no embedding.*openai\+https"),
        ("google:embedding", r"is no embedding.*openai\+https"),
        ("openai", "does not say which model"),
        ("wods", "is no embedding.*near: words"),
        ("demo", "is no embedding"),
        ("", "is no embedding"),
        ("http://127.0.0.1:1/v1#m", "is no embedding"),
        ("openai+http://joe:secret@host/v1#m", "holds no user or password"),
        ("soap+http://joe:secret@host/v1#m", "is no embedding"),
    ],
)
def test_a_handle_that_leads_nowhere_is_refused_with_the_next_step(handle: str, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=complaint) as raised:
        find_embedding(handle, nothing, tmp_path)
    assert "secret" not in str(raised.value)


def test_a_reply_without_numbers_on_its_vectors_is_taken_in_its_order() -> None:
    body = json.dumps({"data": [{"embedding": [0, 2]}, {"embedding": [3, 0]}]}).encode()
    assert [numbers(vector) for vector in read_vectors(Party("h", "p"), body).vectors] == [[0, 1], [1, 0]]
    with pytest.raises(Unreadable, match="below zero"):
        read_vectors(Party("h", "p"), body[:-1] + b',"usage":{"prompt_tokens":-4}}')
