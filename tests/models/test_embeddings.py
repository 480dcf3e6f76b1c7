"""Vectors from the real small model, and the word pieces it reads."""

import os
from pathlib import Path

import pytest

from chargehand.models.embeddings import SIZE, Embedder, WordPieces, open_embedder
from chargehand.models.local.pull import pull

MODELS = Path(os.environ.get("CHARGEHAND_MODELS") or Path(__file__).parents[2] / ".venv" / "models")


@pytest.fixture(scope="module")
def home() -> Path:
    return pull("minilm", MODELS)


@pytest.fixture(scope="module")
def embedder(home: Path) -> Embedder:
    opened = open_embedder(home.parent)
    assert opened is not None
    return opened


def alike(one: list[float], other: list[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


def test_texts_that_mean_the_same_are_nearer_than_others(embedder: Embedder) -> None:
    asked, same, other = embedder.embed(
        ["How do I reset my password?", "I forgot my login credentials", "The recipe needs two eggs"]
    )
    assert len(asked) == SIZE
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
