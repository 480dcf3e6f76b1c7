"""Vectors from the real small model, and the word pieces it reads."""

import asyncio
import os
import struct
import threading
from pathlib import Path

import pytest

from chargehand.errors import StoreUnavailable
from chargehand.models.embeddings import (
    HANDLE,
    SIZE,
    Embedder,
    LocalEmbedding,
    WordPieces,
    _grouped,
    open_embedder,
)
from chargehand.models.local import pull

MODELS = Path(os.environ.get("CHARGEHAND_MODELS") or Path(__file__).parents[2] / ".venv" / "models")


@pytest.fixture(scope="module")
def home() -> Path:
    return pull("minilm", MODELS)


@pytest.fixture(scope="module")
def embedder(home: Path) -> Embedder:
    opened = open_embedder(home.parent)
    assert opened is not None
    return opened


def numbers(vector: bytes) -> list[float]:
    return list(struct.unpack(f"<{SIZE}f", vector))


def alike(one: bytes, other: bytes) -> float:
    return sum(a * b for a, b in zip(numbers(one), numbers(other), strict=True))


def test_texts_that_mean_the_same_are_nearer_than_others(embedder: Embedder) -> None:
    asked, same, other = embedder.embed(
        ["How do I reset my password?", "I forgot my login credentials", "The recipe needs two eggs"]
    )
    assert len(numbers(asked)) == SIZE
    assert alike(asked, asked) == pytest.approx(1.0, abs=1e-5)
    assert alike(asked, same) > 0.5 > 0.2 > alike(asked, other)


def test_a_text_has_the_same_vector_alone_and_in_company(embedder: Embedder) -> None:
    texts = [f"{'long ' * number}text number {number}" for number in range(20)]
    together = embedder.embed(texts)
    alone = [embedder.embed([text])[0] for text in texts]
    # padding moves the scale of 8-bit numbers a little
    assert min(alike(a, b) for a, b in zip(together, alone, strict=True)) > 0.98


@pytest.mark.parametrize("text", ["", " \t\n", "\x00\x07", "🦩", "a" * 1_000_000, "word " * 100_000])
def test_any_text_at_all_has_a_vector(embedder: Embedder, text: str) -> None:
    (vector,) = embedder.embed([text])
    assert alike(vector, vector) == pytest.approx(1.0, abs=1e-5)


def test_no_texts_have_no_vectors(embedder: Embedder) -> None:
    assert embedder.embed([]) == []


# the ids come from the tokenizer that was published with the model
@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("Hello, Wörld! naïve café", [7592, 1010, 2088, 999, 15743, 7668]),
        ("日本 test", [1864, 1876, 3231]),
        ("a\u200bb\x00c\td", [5925, 1040]),
        ("unaffable don't $5.00", [14477, 20961, 3468, 2123, 1005, 1056, 1002, 1019, 1012, 4002]),
        ("🦩 " + "x" * 101, [100, 100]),
    ],
)
def test_words_are_cut_as_the_model_learned_them(home: Path, text: str, ids: list[int]) -> None:
    pieces = WordPieces((home / "vocab.txt").read_text(encoding="utf-8").split("\n"))
    assert pieces.ids(text) == [101, *ids, 102]


def test_without_its_files_there_is_no_embedder(tmp_path: Path) -> None:
    assert open_embedder(tmp_path) is None
    assert open_embedder(tmp_path / "nowhere") is None


# --- for archives


def test_texts_of_like_length_go_together_and_long_ones_few_at_a_time() -> None:
    assert list(_grouped([256] * 5, 512)) == [[0, 1], [2, 3], [4]]
    assert list(_grouped([900, 10, 900, 12], 512)) == [[1, 3], [0], [2]]
    assert [len(group) for group in _grouped([8] * 40, 512)] == [16, 16, 8]
    assert list(_grouped([], 512)) == []


async def test_archives_get_vectors_in_the_order_of_their_texts(home: Path, embedder: Embedder) -> None:
    local = LocalEmbedding(home.parent)
    assert (local.handle, local.width) == (HANDLE, SIZE)
    texts = [f"{'many ' * (at * 7 % 40)}words number {at}" for at in range(40)]
    vectors = await local.embed(texts)
    near = [alike(one, other) for one, other in zip(vectors, embedder.embed(texts), strict=True)]
    assert min(near) > 0.98
    assert await local.embed([]) == []
    await local.close()


async def test_it_is_loaded_with_the_first_text_in_one_thread_beside_the_loop(home: Path) -> None:
    def threads() -> set[threading.Thread]:
        return {thread for thread in threading.enumerate() if thread.name.startswith("chargehand-embedding")}

    ending = threads()  # of tests before
    local = LocalEmbedding(home.parent)
    assert threads() <= ending
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.001)
            ticks += 1

    async with asyncio.TaskGroup() as group:
        ticking = group.create_task(tick())
        async with asyncio.TaskGroup() as callers:
            found = [callers.create_task(local.embed([f"text {at}"] * 8)) for at in range(6)]
        ticking.cancel()
    assert ticks >= 6  # the loop went on while vectors were made
    assert [len(task.result()) for task in found] == [8] * 6
    assert len(threads() - ending) == 1
    await local.close()
    await local.close()


async def test_a_question_does_not_wait_behind_a_long_document(home: Path) -> None:
    local = LocalEmbedding(home.parent)
    ended: list[str] = []

    async def embed(what: str, texts: list[str]) -> None:
        await local.embed(texts)
        ended.append(what)

    async with asyncio.TaskGroup() as group:
        group.create_task(embed("document", ["a sentence of a document that is long"] * 160))
        await asyncio.sleep(0)
        group.create_task(embed("question", ["how long is it?"]))
    assert ended == ["question", "document"]
    await local.close()


async def test_what_is_closed_or_broken_says_what_to_do(home: Path, tmp_path: Path) -> None:
    local = LocalEmbedding(home.parent)
    await local.close()
    with pytest.raises(StoreUnavailable, match="find it again"):
        await local.embed(["text"])
    gone = LocalEmbedding(tmp_path)
    with pytest.raises(StoreUnavailable, match="chargehand models pull minilm"):
        await gone.embed(["text"])
    (tmp_path / "model.onnx").write_bytes(b"no model")
    (tmp_path / "vocab.txt").write_bytes((home / "vocab.txt").read_bytes())
    with pytest.raises(StoreUnavailable, match=r"does not work.*chargehand models pull minilm"):
        await gone.embed(["text"])
    await gone.close()
