"""Passages to measure archives with: made up, or real sentences embedded with the small model."""

import json
import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import numpy
from msgspec import Struct
from numpy.typing import NDArray

from chargehand.models.embeddings import open_embedder

Matrix: TypeAlias = NDArray[numpy.float32]

MODELS = Path(os.environ.get("CHARGEHAND_MODELS") or Path(__file__).parents[1] / ".venv" / "models")
_SYLLABLES = ("ka", "ro", "mi", "tel", "sun", "var", "do", "lin", "pe", "gar", "tis", "on", "bel", "qua", "ster", "ulm")
_KINDS = 3_000  # words there are


class Data(Struct, frozen=True):
    """Vectors have length one. `few` is on 1 % of the rows, `some` on 30 %; every tenth text holds an identifier."""

    vectors: Matrix
    texts: list[str]
    asked: Matrix
    questions: list[str]
    few: NDArray[numpy.bool_]
    some: NDArray[numpy.bool_]
    about: str


def made_up(rows: int, width: int, queries: int, *, seed: int = 7) -> Data:
    """Clustered vectors with the spectrum that MiniLM has on short questions.

    The variance along the k-th principal axis falls as (k + 8)^-1.1, all vectors lean a little the same way (the mean
    has length 0.28), and each is a topic, a theme within it and something of its own, in shares of 0.34, 0.38 and 0.28
    of the variance, turned at random so that no axis is special. Questions are drawn the same way.
    """
    rng = numpy.random.default_rng(seed)
    scale = numpy.sqrt((numpy.arange(1, width + 1) + 8.0) ** -1.1)
    scale /= numpy.linalg.norm(scale)
    turned, _ = numpy.linalg.qr(rng.standard_normal((width, width)))
    total = rows + queries
    themes = max(20, total // 12)
    of_topic = rng.integers(0, max(5, themes // 10), themes)
    topics = rng.standard_normal((max(5, themes // 10), width)) * scale
    centres = 0.34**0.5 * topics[of_topic] + 0.38**0.5 * rng.standard_normal((themes, width)) * scale
    theme = rng.integers(0, themes, total)
    lean = turned[0] * 0.3
    found = numpy.empty((total, width), numpy.float32)
    for start in range(0, total, 10_000):
        part = slice(start, start + 10_000)
        own = 0.28**0.5 * rng.standard_normal((len(theme[part]), width)) * scale
        found[part] = (centres[theme[part]] + own) @ turned + lean
    found = _units(found)
    words = _words(random.Random(seed), total)
    return _data(found, words, rows, seed, "made-up vectors (clusters, spectrum of MiniLM), words by Zipf's law")


def embedded(texts: Path, rows: int, queries: int, *, seed: int = 7) -> Data:
    """Real sentences, a part of them held back as questions, and mixtures of two to fill up."""
    opened = open_embedder(MODELS)
    if opened is None:
        raise SystemExit(
            f"no embedding model below {MODELS}: `chargehand models pull minilm`, or set CHARGEHAND_MODELS"
        )
    parts = json.loads(texts.read_text(encoding="utf-8"))
    sentences = list(dict.fromkeys(sentence for part in parts.values() for sentence, _ in part))
    random.Random(seed).shuffle(sentences)
    sentences = sentences[: rows + queries]
    real = numpy.array([numpy.frombuffer(vector, "<f4") for vector in opened.embed(sentences)])
    asked = real[:queries]
    real = real[queries:]
    questions = sentences[:queries]
    sentences = sentences[queries:]
    rng = numpy.random.default_rng(seed)
    one, other = rng.integers(0, len(real), (2, rows - len(real)))
    share = rng.uniform(0.2, 0.8, (len(one), 1)).astype(numpy.float32)
    noise = rng.normal(0, 0.02, (len(one), real.shape[1])).astype(numpy.float32)
    mixed = _units(share * real[one] + (1 - share) * real[other] + noise)
    sentences += [f"{sentences[a]} and {sentences[b]}" for a, b in zip(one, other, strict=True)]
    found = numpy.vstack([real, mixed, asked])
    about = f"{len(real):,} sentences of {texts.name} embedded with MiniLM, the rest mixtures of two of them with noise"
    return _data(found, [*sentences, *questions], rows, seed, about)


def _data(found: Matrix, words: Sequence[str], rows: int, seed: int, about: str) -> Data:
    rng = numpy.random.default_rng(seed + 1)
    texts = [f"{text} (case K-{at})" if at % 10 == 0 else f"{text} #{at}" for at, text in enumerate(words[:rows])]
    # every second question names a case
    questions = [
        f"{text}: what about K-{int(rng.integers(0, rows // 10)) * 10}?" if at % 2 else text
        for at, text in enumerate(words[rows:])
    ]
    few, some = (rng.random(rows) < share for share in (0.01, 0.30))
    return Data(
        vectors=found[:rows], texts=texts, asked=found[rows:], questions=questions, few=few, some=some, about=about
    )


def _units(found: NDArray[numpy.floating]) -> Matrix:
    return (found / numpy.linalg.norm(found, axis=1, keepdims=True)).astype(numpy.float32)


def _words(rng: random.Random, count: int) -> list[str]:
    """Sentences of eight words; the k-th word is k times rarer than the first."""
    kinds = list(dict.fromkeys("".join(rng.choices(_SYLLABLES, k=3)) for _ in range(2 * _KINDS)))[:_KINDS]
    weights = [1 / (at + 1) for at in range(len(kinds))]
    drawn = rng.choices(kinds, weights, k=8 * count)
    return [" ".join(drawn[at : at + 8]) for at in range(0, len(drawn), 8)]
