"""Vectors for other languages than English: the encoder, when a route takes it, and what is said where it is not."""

import asyncio
import re
import struct
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from chargehand import Route
from chargehand.agents.strategies.route import find_route_embedding, fit_meaning
from chargehand.errors import Invalid, StoreUnavailable
from chargehand.extras import install_command
from chargehand.models import embeddings
from chargehand.models.embeddings import MultilingualEmbedding, find_embedding
from chargehand.models.request_facts import WorkerCard
from chargehand.text.words import is_english

TEAMS = Path(__file__).parents[2] / "bench" / "data" / "routing_teams.json"
GERMAN = (
    WorkerCard("versand", "Verfolgt Pakete und kümmert sich um verspätete oder verlorene Lieferungen."),
    WorkerCard("kasse", "Beantwortet Fragen zu Rechnungen, Gutscheinen und abgelehnten Karten."),
)
ENGLISH = (WorkerCard("shipping", "Tracks parcels and late deliveries."), WorkerCard("till", "Explains invoices."))


@pytest.fixture(scope="module", autouse=True)
def loaded_model() -> Iterator[None]:
    """Keep the model loaded, which all that use it at a time share: it takes a second."""
    embedding = MultilingualEmbedding()
    asyncio.run(embedding.embed(["load"]))
    yield
    asyncio.run(embedding.close())


def nothing(_name: str) -> str | None:
    return None


async def test_vectors_have_length_one_and_the_same_text_the_same_vector_in_any_company() -> None:
    embedding = MultilingualEmbedding()
    try:
        texts = ["wo ist mein Paket", "", "où est mon colis", "x" * 100_000, "\ud800 half a character", "日本語"] * 4
        vectors = await embedding.embed(texts)
        for vector in vectors:
            row = struct.unpack(f"<{embedding.width}f", vector)
            assert sum(number * number for number in row) == pytest.approx(1.0, abs=1e-3)
        (alone,) = await embedding.embed(texts[:1])
        pairs = zip(struct.unpack("<512f", alone), struct.unpack("<512f", vectors[0]), strict=True)
        assert sum(one * other for one, other in pairs) == pytest.approx(1.0, abs=1e-4)
    finally:
        await embedding.close()
    with pytest.raises(StoreUnavailable, match="was closed"):
        await embedding.embed(["too late"])


async def test_it_works_beside_the_event_loop() -> None:
    embedding = MultilingualEmbedding()
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0)
            ticks += 1

    async with asyncio.TaskGroup() as group:
        ticking = group.create_task(tick())
        await embedding.embed(["hello"] * 40)
        ticking.cancel()
    await embedding.close()
    assert ticks > 10


@pytest.mark.parametrize("language", ["de", "fr"])
async def test_requests_in_another_language_than_the_cards_find_their_worker(language: str) -> None:
    data = msgspec.json.decode(TEAMS.read_bytes())
    workers = data["teams"][data["languages"]["team"]]["workers"]
    embedding = MultilingualEmbedding()
    try:
        known = await fit_meaning([WorkerCard(name, does) for name, does in workers.items()], embedding)
        right = [(await known.decide(text)).scores[0][0] == worker for text, worker in data["languages"][language]]
    finally:
        await embedding.close()
    assert sum(right) >= 18, "of 24; MiniLM gets 5 or 6"


@pytest.mark.parametrize(
    ("texts", "english"),
    [
        ((), True),
        (("refunds", "error messages"), True),
        (("Helps with naïve café menus and the résumé of a client",), True),
        (("Beantwortet Fragen zu Rechnungen und Gutscheinen",), False),
        (("Répond aux questions sur les factures",), False),
        (("Ayuda con las facturas y los pagos",), False),
        (("請求書", "返品"), False),
        (("Rücksendungen", "Lieferverzögerungen für Händler"), False),
    ],
)
def test_it_is_told_whether_texts_are_english(texts: tuple[str, ...], english: bool) -> None:
    assert is_english(texts) is english


async def test_a_route_takes_it_by_itself_where_cards_are_not_english_and_where_it_is_named() -> None:
    found = [
        find_route_embedding(Route(), GERMAN, nothing),
        find_route_embedding(Route(embed="local:multilingual"), ENGLISH, nothing),
        find_embedding("local:multilingual", nothing),
    ]
    for embedding in found:
        assert embedding is not None
        assert embedding.handle == "local:multilingual"
        await embedding.close()
    assert find_route_embedding(Route(), ENGLISH, nothing) is None, "nothing was pulled there"
    assert find_route_embedding(Route(embed="words"), GERMAN, nothing) is None


def test_where_it_is_not_installed_auto_goes_without_and_a_name_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def nothing_installed(_name: str) -> None: ...

    monkeypatch.setattr(embeddings, "find_spec", nothing_installed)
    assert find_route_embedding(Route(), GERMAN, nothing) is None
    with pytest.raises(Invalid, match=re.escape(install_command("multilingual"))):
        find_embedding("local:multilingual", nothing)
    with pytest.raises(Invalid, match="local:minilm, local:multilingual"):
        find_embedding("local:other", nothing)
