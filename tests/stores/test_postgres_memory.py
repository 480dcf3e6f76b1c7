"""The catalog in PostgreSQL: vectors by the index, the extension, tenants, and what is lost with a connection."""

import asyncio
import random
import struct
import time

import pytest

from chargehand.errors import Invalid, Refused, StoreError, StoreUnavailable
from chargehand.memory import postgres_search
from chargehand.memory.archives import Archive, Filter, Passage
from chargehand.memory.blocks import PERSON, Block
from chargehand.memory.catalog import Catalog, Profile
from chargehand.memory.conversations import Turn
from chargehand.memory.edits import Append
from chargehand.memory.session import open_catalog
from chargehand.postgres.database import open_database
from chargehand.postgres.driver import Connection
from chargehand.store_url import postgres_url
from tests.postgres import PostgresServer

HANDLE = "test:model"
WIDTH = 16


def vector(rng: random.Random, width: int = WIDTH) -> bytes:
    return struct.pack(f"<{width}f", *(rng.gauss(0, 1) for _ in range(width)))


def alike(one: bytes, other: bytes) -> float:
    a, b = (struct.unpack(f"<{len(v) // 4}f", v) for v in (one, other))
    return sum(x * y for x, y in zip(a, b, strict=True)) / (sum(x * x for x in a) * sum(y * y for y in b)) ** 0.5


async def filled(catalog: Catalog, vectors: list[bytes], name: str = "notes") -> str:
    """An archive with these vectors: the text of each is its number, and it is tagged as even or odd."""
    archive = await catalog.add(Archive(name))
    passages = [Passage(f"{name} {at}", tags=("odd" if at % 2 else "even",)) for at in range(len(vectors))]
    await catalog.insert(archive.id, passages, vectors, handle=HANDLE)
    return archive.id


async def nearest(catalog: Catalog, archive: str, asked: bytes, within: Filter | None = None) -> list[str]:
    hits = await catalog.search([archive], "", asked, within=within or Filter())
    return [hit.passage.text for hit in hits]


async def wait_for_index(url: str, width: int) -> None:
    database = await open_database(postgres_url(url))
    question = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass($1)"
    until = time.monotonic() + 30
    while not any(row[0] for row in await database.fetch(question, f"chargehand.passage_vectors_{width}")):
        assert time.monotonic() < until, "the index was not built"
        await asyncio.sleep(0.02)


# --- vectors


async def test_a_large_archive_is_searched_by_an_index_that_is_built_meanwhile(
    postgres_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_search, "EXACT", 500)
    rng = random.Random(1)
    catalog = await open_catalog(postgres_store)
    vectors = [vector(rng) for _ in range(1_200)]
    where = await filled(catalog, vectors)
    small = await filled(catalog, [vector(rng) for _ in range(100)], "small")
    asked = [vector(rng) for _ in range(20)]
    before = [await nearest(catalog, where, one) for one in asked]
    best = [sorted(range(len(vectors)), key=lambda at: -alike(one, vectors[at]))[:10] for one in asked]
    assert before == [[f"notes {at}" for at in places] for places in best], "until it is there, all are compared"
    await wait_for_index(postgres_store, WIDTH)
    monkeypatch.setattr(postgres_search, "_NEAREST", "SELECT 'only the index is to be asked'")
    found = [await nearest(catalog, where, one) for one in asked]
    same = sum(len(set(one) & set(other)) for one, other in zip(found, before, strict=True))
    assert same >= 0.98 * 10 * len(asked)
    odd = await nearest(catalog, where, asked[0], Filter(tags=("odd",)))
    assert [int(text.split()[1]) % 2 for text in odd] == [1] * 10
    monkeypatch.undo()
    assert len(await nearest(catalog, small, asked[0])) == 10, "of few vectors all are compared"


async def test_where_the_index_finds_too_few_all_are_compared(
    postgres_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of another archive are nearer, and the index stops looking after so many."""
    monkeypatch.setattr(postgres_search, "EXACT", 50)
    rng = random.Random(2)
    catalog = await open_catalog(postgres_store)
    near = struct.pack("<4f", 1.0, 0.0, 0.0, 0.0)
    crowd = [struct.pack("<4f", 1.0, *(rng.gauss(0, 0.01) for _ in range(3))) for _ in range(600)]
    await filled(catalog, crowd, "crowd")
    far = [struct.pack("<4f", -1.0, *(rng.gauss(0, 0.3) for _ in range(3))) for _ in range(60)]
    where = await filled(catalog, far)
    await wait_for_index(postgres_store, 4)
    best = sorted(range(60), key=lambda at: -alike(near, far[at]))[:10]
    assert await nearest(catalog, where, near) == [f"notes {at}" for at in best]


async def test_without_the_extension_words_are_searched_and_vectors_are_refused(
    postgres: PostgresServer, postgres_store: str
) -> None:
    name = postgres_url(postgres_store).dsn.split("/")[3].split("?")[0]
    postgres.execute("DROP EXTENSION vector", database=name)
    catalog = await open_catalog(postgres_store)
    archive = await catalog.add(Archive("notes"))
    await catalog.insert(archive.id, [Passage("plain words")])
    with pytest.raises(StoreUnavailable, match="run CREATE EXTENSION vector in it, or give the archive"):
        await catalog.insert(archive.id, [Passage("more")], [vector(random.Random(1))], handle=HANDLE)
    assert [hit.passage.text for hit in await catalog.search([archive.id], "word", vector(random.Random(1)))] == [
        "plain words"
    ]
    assert [one.text for one in await catalog.unembedded(archive.id)] == ["plain words"]
    assert await catalog.forget(archive.id, [one.id for one in await catalog.passages(archive.id)]) == 1
    postgres.execute("CREATE EXTENSION vector", database=name)
    await catalog.insert(archive.id, [Passage("more")], [vector(random.Random(1))], handle=HANDLE)
    assert await catalog.count(archive.id) == (1, 1)


async def test_vectors_that_are_too_wide_for_the_type_are_refused(postgres_tenant: str) -> None:
    catalog = await open_catalog(postgres_tenant)
    archive = await catalog.add(Archive("notes"))
    wide = struct.pack("<16001f", *[1.0] * 16_001)
    with pytest.raises(Invalid, match="PostgreSQL keeps at most 16000"):
        await catalog.insert(archive.id, [Passage("text")], [wide], handle=HANDLE)
    assert await catalog.count(archive.id) == (0, 0)


# --- tenants


async def test_a_tenant_sees_nothing_of_another_not_even_by_statements_of_its_own(postgres_tenant: str) -> None:
    ours = await open_catalog(postgres_tenant)
    agent = await ours.add(Profile("ann", tags=("t",)))
    block = await ours.add(Block("facts", "secret"))
    archive = await ours.add(Archive("notes"))
    await ours.insert(archive.id, [Passage("secret", id="passage-x")])
    await ours.say(agent.id, [Turn("user", "secret")])
    url = postgres_url(f"{postgres_tenant}-other")
    theirs = await open_catalog(url)
    for kind, which in ((Profile, agent.id), (Block, block.id), (Archive, archive.id)):
        assert await theirs.get(kind, which) is None
        assert await theirs.find(kind) == []
    assert await theirs.passage("passage-x") is None
    assert (await theirs.add(Block("facts", "theirs", id=block.id))).value == "theirs"
    database = await open_database(url)
    tables = ("things", "changes", "turns", "said", "holdings", "passages", "attachments")
    for table in tables:
        rows = await database.fetch(f"SELECT DISTINCT tenant FROM {table}")
        assert {row[0] for row in rows} <= {database.tenant}, table
    with pytest.raises(StoreError, match="row-level security"):
        await database.fetch("UPDATE things SET tenant = tenant - 1 RETURNING number")


# --- texts


async def test_what_no_text_of_the_database_can_hold_is_unknown_or_refused(postgres_tenant: str) -> None:
    bad = "a\0b"
    catalog = await open_catalog(postgres_tenant)
    block = await catalog.add(Block("facts", "one"))
    agent = await catalog.add(Profile("ann"))
    archive = await catalog.add(Archive("notes"))
    assert await catalog.get(Block, bad) is None
    assert await catalog.passage(bad) is None
    assert await catalog.find(Block, name=bad) == []
    assert await catalog.attached_to([bad]) == {}
    assert await catalog.search([archive.id], bad, within=Filter(tags=(bad,), run=bad)) == []
    assert await catalog.recall(agent.id, bad) == []
    assert await catalog.forget(archive.id, [bad]) == 0
    with pytest.raises(Invalid):
        await catalog.insert(archive.id, [Passage("text", document=bad)])
    with pytest.raises(Invalid):
        await catalog.edit(block.id, Append(bad), PERSON)
    with pytest.raises(Invalid):
        await catalog.say(agent.id, [Turn("user", "x", run=bad)])
    with pytest.raises(Invalid):
        catalog.of(bad)


async def test_long_names_keys_and_texts_are_kept(postgres_tenant: str) -> None:
    """An index of PostgreSQL takes at most 2,700 bytes of a row."""
    rng = random.Random(3)
    long = "".join(rng.choice("abcdefghijklmnopqrstuvwxyz ") for _ in range(20_000))
    catalog = await open_catalog(postgres_tenant)
    agent = await catalog.add(Profile(long, tags=(long,)))
    assert await catalog.find(Profile, name=long) == [agent]
    assert await catalog.find(Profile, name=long[:300]) == []
    assert await catalog.say(agent.id, [Turn("user", long)], key=long)
    assert not await catalog.say(agent.id, [Turn("user", long)], key=long)
    archive = await catalog.add(Archive("notes"))
    huge = " ".join(f"w{number}" for number in range(200_000))
    await catalog.insert(archive.id, [Passage(long, tags=(long,)), Passage(huge)])
    assert len(await catalog.search([archive.id], "w17", within=Filter())) == 1
    assert len(await catalog.passages(archive.id, within=Filter(tags=(long,)))) == 1


# --- connections


async def test_a_lost_connection_costs_an_edit_nothing(postgres: PostgresServer, postgres_tenant: str) -> None:
    catalog = await open_catalog(postgres_tenant)
    block = await catalog.add(Block("facts"))

    async def append(number: int) -> None:
        for turn in range(20):
            await catalog.edit(block.id, Append(f"{number}.{turn}"), PERSON)

    async def disconnect() -> None:
        for _ in range(5):
            await asyncio.sleep(0.05)
            await asyncio.to_thread(postgres.disconnect)

    async with asyncio.TaskGroup() as jobs:
        jobs.create_task(disconnect())
        for number in range(4):
            jobs.create_task(append(number))
    after = await catalog.get(Block, block.id)
    assert after is not None
    lines = after.value.split("\n")
    assert sorted(lines) == sorted(f"{number}.{turn}" for number in range(4) for turn in range(20))


async def test_a_closed_catalog_of_one_space_leaves_the_database_to_others(postgres_tenant: str) -> None:
    one = await open_catalog(postgres_tenant)
    other = await open_catalog(postgres_tenant)
    await one.close()
    with pytest.raises(Refused, match="closed"):
        await one.find(Block)
    assert await other.find(Block) == []


async def test_words_are_looked_up_in_an_index(postgres_tenant: str) -> None:
    """Row level security keeps PostgreSQL from using a word index; so it must not lie on the table of words."""
    catalog = await open_catalog(postgres_tenant)
    archive = await catalog.add(Archive("notes"))
    await catalog.insert(archive.id, [Passage(f"note {number}") for number in range(100)])
    database = await open_database(postgres_url(postgres_tenant))

    async def explain(db: Connection) -> str:
        await db.execute("SET LOCAL enable_seqscan = off")
        plan = await db.fetch("EXPLAIN SELECT passage FROM passage_words WHERE words @@ '''#1'' & note17'::tsquery")
        return "\n".join(row[0] for row in plan)

    assert "passage_words_index" in await database.write(explain)
