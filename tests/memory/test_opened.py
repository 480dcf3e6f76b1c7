"""An open memory on a real catalog: texts are cut and embedded on their way in, and found again."""

import logging
import math
import struct
import zlib
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from chargehand.errors import Invalid, Refused, StoreError, StoreUnavailable
from chargehand.memory.archives import Archive, Embedding, Filter, Passage
from chargehand.memory.blocks import Grant, Origin
from chargehand.memory.catalog import Profile
from chargehand.memory.chunking import LONGEST
from chargehand.memory.session import BATCH, OpenMemory, open_catalog


class HashedWords:
    """Each word counts in one place of the vector: texts with the same words are alike."""

    def __init__(self, handle: str = "test:words", width: int = 64) -> None:
        self.handle = handle
        self.width = width
        self.down = False
        self.calls: list[int] = []
        self.closed = 0

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        self.calls.append(len(texts))
        if self.down:
            raise StoreUnavailable("nobody answers")
        return [self._vector(text) for text in texts]

    async def close(self) -> None:
        self.closed += 1

    def _vector(self, text: str) -> bytes:
        counts = [0.01] * self.width
        for word in text.casefold().split():
            counts[zlib.crc32(word.encode()) % self.width] += 1.0
        length = math.hypot(*counts)
        return struct.pack(f"<{self.width}f", *(count / length for count in counts))


@asynccontextmanager
async def opened(*models: HashedWords) -> AsyncGenerator[OpenMemory]:
    known: dict[str, Embedding] = {model.handle: model for model in models}
    if models:
        known["auto"] = models[0]
    memory = OpenMemory(await open_catalog(), known.get, clock=lambda: 7.0)
    try:
        yield memory
    finally:
        await memory.close()


def story(count: int) -> str:
    return "\n\n".join(f"Paragraph {n} tells of sheep{n} " + "and more sheep " * 20 for n in range(count))


async def test_texts_are_kept_with_vectors_and_found_by_meaning_and_words() -> None:
    model = HashedWords()
    async with opened(model) as memory:
        archive = await memory.catalog.add(Archive("notes"))
        told = await memory.add(archive, [Passage("red apples"), Passage("green pears", tags=("fruit",))])
        assert [one.new for one in told] == [True, True]
        assert await memory.catalog.count(archive.id) == (2, 2)
        (best, *_) = await memory.search([archive], "pears")
        assert best.passage.text == "green pears"
        assert best.passage.created == 7.0
        assert best.meaning is not None
        (only,) = await memory.search([archive], "apples pears", within=Filter(tags=("fruit",)))
        assert only.passage.tags == ("fruit",)
        assert model.calls == [2, 1, 1]


async def test_a_long_text_is_kept_in_parts_of_one_document() -> None:
    async with opened(HashedWords()) as memory:
        archive = await memory.catalog.add(Archive("notes"))
        given = Passage(story(40), tags=("farm",), metadata={"year": 1}, origin=Origin(source="farm.md"))
        told = await memory.add(archive, [Passage("short"), given])
        short, *parts = await memory.catalog.passages(archive.id)
        assert len(told) == 1 + len(parts)
        assert (short.document, short.part) == ("", 0)
        assert [part.part for part in parts] == list(range(len(parts)))
        assert len({part.document for part in parts}) == 1
        assert parts[0].document
        assert all(len(part.text) <= LONGEST for part in parts)
        assert all((part.tags, part.metadata, part.origin) == (("farm",), {"year": 1}, given.origin) for part in parts)
        (best, *_) = await memory.search([archive], "sheep31", limit=1)
        assert "sheep31" in best.passage.text


async def test_many_texts_are_embedded_in_batches() -> None:
    model = HashedWords()
    async with opened(model) as memory:
        archive = await memory.catalog.add(Archive("notes"))
        told = await memory.add(archive, [Passage(f"text number{n}") for n in range(BATCH * 2 + 3)])
        assert len(told) == BATCH * 2 + 3
        assert model.calls == [BATCH, BATCH, 3]


async def test_a_repeated_call_adds_nothing_and_several_texts_of_one_call_are_all_kept() -> None:
    async with opened(HashedWords()) as memory:
        archive = await memory.catalog.add(Archive("notes"))
        origin = Origin(by="worker", name="ada", run="r", task="t", attempt=1, key="r/t/1/2")
        passages = [Passage("first", origin=origin), Passage("second", origin=origin), Passage(story(9), origin=origin)]
        told = await memory.add(archive, passages)
        assert all(one.new for one in told)
        again = await memory.add(archive, passages)
        assert [one.id for one in again] == [one.id for one in told]
        assert not any(one.new for one in again)
        assert (await memory.catalog.count(archive.id))[0] == len(told)


async def test_a_model_that_cannot_be_reached_keeps_nothing_from_being_kept(caplog: pytest.LogCaptureFixture) -> None:
    model = HashedWords()
    async with opened(model) as memory:
        archive = await memory.catalog.add(Archive("notes"))
        model.down = True
        with caplog.at_level(logging.WARNING):
            await memory.add(archive, [Passage(f"apple{n}") for n in range(BATCH + 1)])
            (hit,) = await memory.search([archive], "apple7")
        assert hit.passage.text == "apple7"
        assert hit.meaning is None
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert "test:words cannot be reached" in caplog.text
        assert model.calls == [BATCH, 1], "it is not asked again for every batch"
        with pytest.raises(StoreUnavailable):
            await memory.embed_rest(archive)
        assert await memory.catalog.count(archive.id) == (BATCH + 1, 0)
        model.down = False
        heard: list[int] = []
        assert await memory.embed_rest(archive, heard.append) == BATCH + 1
        assert heard == [BATCH, BATCH + 1]
        assert await memory.embed_rest(archive) == 0
        (hit, *_) = await memory.search([archive], "apple7")
        assert hit.meaning == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("embedding", ["words", "auto", "other:model"])
async def test_without_a_model_words_have_to_do(embedding: str) -> None:
    models = (HashedWords(),) if embedding == "words" else ()
    async with opened(*models) as memory:
        archive = await memory.catalog.add(Archive("notes", embedding=embedding))
        await memory.add(archive, [Passage("red apples"), Passage("green pears")])
        (hit,) = await memory.search([archive], "pears")
        assert (hit.passage.text, hit.meaning) == ("green pears", None)
        with pytest.raises(Refused, match="archive 'notes' has no embedding model here"):
            await memory.embed_rest(archive)


async def test_archives_of_different_models_are_searched_apart_and_merged() -> None:
    small = HashedWords()
    large = HashedWords("test:large", 256)
    async with opened(small, large) as memory:
        kinds = ("auto", "test:large", "test:words", "words")
        archives = [await memory.catalog.add(Archive(f"notes {kind}", embedding=kind)) for kind in kinds]
        for archive, kind in zip(archives, kinds, strict=True):
            await memory.add(archive, [Passage(f"a pear of {kind}"), Passage(f"an apple of {kind}")])
        small.calls.clear()
        large.calls.clear()
        hits = await memory.search([*archives, archives[0]], "pear")
        assert {hit.passage.text for hit in hits[:4]} == {f"a pear of {kind}" for kind in kinds}
        assert len({hit.passage.id for hit in hits}) == len(hits)
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
        assert (small.calls, large.calls) == ([1], [1]), "the question is embedded once a model"
        assert len(await memory.search(archives, "pear", limit=3)) == 3
        assert await memory.search(archives, "pear", limit=0) == []
        assert await memory.search([], "pear") == []
        await memory.search(archives, "  ")
        assert (small.calls, large.calls) == ([1, 1], [1, 1]), "nothing is no question"


async def test_an_archive_begun_with_another_model_goes_on_by_words(caplog: pytest.LogCaptureFixture) -> None:
    before = HashedWords("test:before", 32)
    now = HashedWords("test:now", 64)
    known: dict[str, Embedding] = {"auto": before}
    memory = OpenMemory(await open_catalog(), known.get)
    archive = await memory.catalog.add(Archive("notes"))
    await memory.add(archive, [Passage("red apples")])
    known["auto"] = now
    memory = OpenMemory(memory.catalog, known.get)
    other = await memory.catalog.add(Archive("other"))
    await memory.add(archive, [Passage("green pears")])
    await memory.add(other, [Passage("blue pears")])
    hits = await memory.search([archive, other], "pears")
    assert {hit.passage.text for hit in hits if hit.words} == {"green pears", "blue pears"}
    assert len([record for record in caplog.records if record.levelname == "WARNING"]) == 1
    await memory.close()


async def test_vectors_of_another_model_than_the_one_named_are_refused() -> None:
    model = HashedWords("test:mine")
    memory = OpenMemory(await open_catalog(), lambda _: model)
    archive = await memory.catalog.add(Archive("notes", embedding="test:yours"))
    with pytest.raises(Invalid, match="test:yours"):
        await memory.add(archive, [Passage("red apples")])
    await memory.close()


@pytest.mark.parametrize("text", ["", " \n", "a\0b", "half \ud800"])
async def test_one_bad_text_keeps_all_out(text: str) -> None:
    async with opened(HashedWords()) as memory:
        archive = await memory.catalog.add(Archive("notes"))
        good = [Passage(f"text {n}") for n in range(BATCH + 1)]
        with pytest.raises(Invalid, match=f"passage {BATCH + 1}"):
            await memory.add(archive, [*good, Passage(text)])
        assert await memory.catalog.count(archive.id) == (0, 0)


async def test_closing_lets_go_of_the_catalog_and_of_each_model_once() -> None:
    model = HashedWords()
    unused = HashedWords("test:unused")
    async with opened(model, unused) as memory:
        for kind in ("auto", "test:words"):
            archive = await memory.catalog.add(Archive(kind, embedding=kind))
            await memory.add(archive, [Passage("text")])
        await memory.close()
        assert (model.closed, unused.closed) == (1, 0)
        with pytest.raises(StoreError):
            await memory.catalog.find(Archive)


async def test_vectors_of_two_models_of_one_width_are_not_compared(caplog: pytest.LogCaptureFixture) -> None:
    """The declaration has changed since the archive was begun."""
    async with opened(HashedWords("test:before"), HashedWords("test:now")) as memory:
        archive = await memory.catalog.add(Archive("notes", embedding="test:before"))
        await memory.add(archive, [Passage("red apples"), Passage("green pears")])
        archive = await memory.catalog.change(replace(archive, embedding="test:now"))
        [hit] = await memory.search([archive], "pears")
        assert (hit.passage.text, hit.meaning) == ("green pears", None)
        [kept] = await memory.add(archive, [Passage("blue plums")])
        assert kept.new, "its texts are kept all the same"
        assert await memory.catalog.count(archive.id) == (3, 2)
    assert "is searched by words" in caplog.text


async def test_who_may_only_search_adds_nothing() -> None:
    async with opened(HashedWords()) as memory:
        archive = await memory.catalog.add(Archive("notes"))
        agent = await memory.catalog.add(Profile("ann"))
        for question in (
            memory.add(archive, [Passage("x")], agent=agent.id),
            memory.search([archive], "x", agent=agent.id),
        ):
            with pytest.raises(Refused, match="may not use"):
                await question
        await memory.catalog.attach(agent.id, archive.id, Grant("append"))
        await memory.add(archive, [Passage("red apples")], agent=agent.id)
        assert len(await memory.search([archive], "apples", agent=agent.id)) == 1
