"""Vectors: by signs and one by one, as they come and go."""

import asyncio
import random
import sqlite3
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from importlib import resources
from pathlib import Path

import pytest

from chargehand.errors import Invalid
from chargehand.memory import vector_index, vectors
from chargehand.memory.archives import EVERYTHING, Archive, Filter, Inserted, Passage
from chargehand.memory.passages import VectorModel
from chargehand.memory.search import search
from chargehand.memory.space import MemorySpace, OpenArchive
from chargehand.memory.sqlite_catalog import SqliteCatalog, SqliteTables, finish
from chargehand.memory.sqlite_passages import Holding, SqlitePassages, holding
from chargehand.memory.vector_index import VectorIndex
from tests.support.hunts import hunt_size

ROOT = Path(__file__).parents[2]
ARCHIVE = Archive("notes", id="archive-1")
WIDTH = 48


def vector(rng: random.Random, width: int = WIDTH, *, near: bytes = b"", by: float = 0.3) -> bytes:
    around = struct.unpack(f"<{width}f", near) if near else (0.0,) * width
    return struct.pack(f"<{width}f", *(one + rng.gauss(0, by if near else 1.0) for one in around))


def alike(one: bytes, other: bytes) -> float:
    a, b = (struct.unpack(f"<{len(v) // 4}f", v) for v in (one, other))
    return sum(x * y for x, y in zip(a, b, strict=True)) / (sum(x * x for x in a) * sum(y * y for y in b)) ** 0.5


def made(path: Path | str) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None)
    script = resources.files("chargehand.sqlite").joinpath("schema", "passages-1.sql").read_text(encoding="utf-8")
    for statement in script.split(";"):
        db.execute(statement)
    return db


@pytest.fixture
def db() -> Iterator[sqlite3.Connection]:
    with closing(made(":memory:")) as connection:
        yield connection


def put(
    db: sqlite3.Connection, texts: list[str], given: list[bytes], tags: list[tuple[str, ...]] | None = None
) -> list[str]:
    passages = [Passage(text, tags=tags[at] if tags else ()) for at, text in enumerate(texts)]
    with db:
        db.execute("BEGIN")
        return [one.id for one in insert(db, passages, given)]


def insert(
    db: sqlite3.Connection,
    passages: list[Passage],
    given: list[bytes],
    *,
    archive: Archive = ARCHIVE,
    handle: str = "test:model",
) -> list[Inserted]:
    space = MemorySpace(SqliteTables(db, "", VectorIndex))
    opened = OpenArchive(0, archive, holding(db, "", archive.id))
    return finish(space.insert(opened, passages, given, handle, now=5.0))


def forget(db: sqlite3.Connection, ids: list[str]) -> int:
    return finish(SqlitePassages(db, "").delete(kept(db), ids))


def kept(db: sqlite3.Connection) -> Holding:
    return holding(db, "", ARCHIVE.id)


def found(
    db: sqlite3.Connection, index: VectorIndex, asked: bytes, within: Filter = EVERYTHING, limit: int = 10
) -> list[str]:
    return [
        hit.passage.text
        for hit in finish(
            search(SqliteTables(db, "", lambda: index), [kept(db)], "", asked, within=within, limit=limit)
        )
    ]


# --- arithmetic


@pytest.mark.parametrize("width", [1, 7, 48, 64, 65, 384])
def test_likeness_is_the_cosine(width: int) -> None:
    rng = random.Random(width)
    given = [vector(rng, width) for _ in range(50)]
    units = vectors.unit(given)
    likeness = vectors.likeness(units[0], list(enumerate(units)))
    assert likeness == pytest.approx({at: alike(given[0], one) for at, one in enumerate(given)}, abs=1e-5)
    for unit, bits in zip(units, vectors.sign_bits(units), strict=True):
        signs = "".join("1" if number > 0 else "0" for number in struct.unpack(f"<{width}f", unit))
        assert f"{int.from_bytes(bits, 'big'):0{8 * len(bits)}b}" == signs.ljust(8 * len(bits), "0")


@pytest.mark.parametrize("wrong", [0.0, float("nan"), float("inf")])
def test_a_vector_that_points_nowhere_is_refused_by_its_place(wrong: float) -> None:
    good = struct.pack("<3f", 1.0, 2.0, 3.0)
    with pytest.raises(Invalid, match="vector 1 is all zeros or holds a number that is not finite"):
        vectors.unit([good, struct.pack("<3f", wrong, 0.0, 0.0), good])


@pytest.mark.parametrize("size", [1e-38, 1e38])
def test_a_very_long_or_short_vector_is_brought_to_length_one(size: float) -> None:
    (one,) = vectors.unit([struct.pack("<2f", 3 * size, -2 * size)])
    assert struct.unpack("<2f", one) == pytest.approx((0.83205, -0.5547), abs=1e-4)


def test_signs_are_found_however_they_came() -> None:
    """In any order, a few at a time, with widths of several words."""
    rng = random.Random(1)
    given = [vector(rng, 130) for _ in range(300)]
    units = vectors.unit(given)
    bits = vectors.sign_bits(units)
    numbers = rng.sample(range(10**12), 300)
    signs = vectors.NO_SIGNS
    for start in range(0, 300, 37):
        signs = signs.added([(numbers[at], bits[at]) for at in range(start, min(start + 37, 300))])
    assert len(signs.numbers) == 300
    for at in rng.sample(range(300), 30):
        assert signs.nearest(vectors.VectorQuery(units[at], bits[at]), 1)[0] == numbers[at] or numbers[
            at
        ] in signs.nearest(vectors.VectorQuery(units[at], bits[at]), 3)
        some = sorted(rng.sample(numbers, 50))
        assert set(signs.nearest(vectors.VectorQuery(units[at], bits[at]), 5, [*some, 10**12 + 1])) <= set(some)
    assert sorted(signs.nearest(vectors.VectorQuery(units[0], bits[0]), 300)) == sorted(numbers)


# --- the index


def test_nearly_all_of_the_nearest_are_found_among_many(db: sqlite3.Connection) -> None:
    rng = random.Random(2)
    centres = [vector(rng, 128) for _ in range(60)]
    given = [vector(rng, 128, near=rng.choice(centres), by=0.8) for _ in range(4_000)]
    put(db, [f"text {at}" for at in range(len(given))], given)
    index = VectorIndex()
    hits = 0
    tries = hunt_size(quick=4, thorough=10)
    for _ in range(tries):
        asked = vector(rng, 128, near=rng.choice(centres), by=0.8)
        best = sorted(range(len(given)), key=lambda at: -alike(asked, given[at]))[:10]
        hits += len({f"text {at}" for at in best} & set(found(db, index, asked)))
    assert hits >= 0.97 * 10 * tries


def test_what_a_filter_leaves_is_compared_exactly(db: sqlite3.Connection) -> None:
    rng = random.Random(3)
    given = [vector(rng) for _ in range(2_000)]
    tags = [("one" if at % 50 == 0 else "other", f"half {at % 2}") for at in range(2_000)]
    put(db, [f"text {at}" for at in range(2_000)], given, tags)
    index = VectorIndex()
    for wanted, places in (("one", range(0, 2_000, 50)), ("half 1", range(1, 2_000, 2))):
        asked = vector(rng)
        best = sorted(places, key=lambda at: -alike(asked, given[at]))[:10]
        assert found(db, index, asked, Filter(tags=(wanted,))) == [f"text {at}" for at in best]


def test_a_filter_that_leaves_many_is_answered_from_the_signs(db: sqlite3.Connection) -> None:
    rng = random.Random(4)
    given = [vector(rng, 16) for _ in range(12_000)]
    put(db, [f"text {at}" for at in range(12_000)], given, [(f"half {at % 2}",) for at in range(12_000)])
    asked = vector(rng, 16, near=given[7], by=0.01)
    told = found(db, VectorIndex(), asked, Filter(tags=("half 1",)))
    assert told[0] == "text 7"
    assert len(told) == 10
    assert all(int(text.split()[1]) % 2 for text in told)


def test_what_comes_later_is_found_and_what_goes_is_not(db: sqlite3.Connection) -> None:
    rng = random.Random(5)
    index = VectorIndex()
    living: dict[str, tuple[str, bytes]] = {}
    for turn in range(40):
        fresh = [vector(rng) for _ in range(rng.randint(1, 30))]
        texts = [f"text {turn} {at}" for at in range(len(fresh))]
        living |= dict(zip(put(db, texts, fresh), zip(texts, fresh, strict=True), strict=True))
        gone = rng.sample(sorted(living), rng.randint(0, len(living) // 2))
        assert forget(db, [*gone, "passage-unknown"]) == len(gone)
        for which in gone:
            del living[which]
        asked = vector(rng)
        best = sorted(living.values(), key=lambda one: -alike(asked, one[1]))[:10]
        assert found(db, index, asked) == [text for text, _ in best]
    assert (kept(db).passages, kept(db).embedded) == (len(living), len(living))


def test_when_much_was_deleted_the_signs_are_read_anew(db: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the dead are the nearest here, and more than are forgiven: they would keep the living out."""
    monkeypatch.setattr(vector_index, "FORGIVEN", 50)
    monkeypatch.setattr("chargehand.memory.sqlite_search.CANDIDATES", 20)
    monkeypatch.setattr("chargehand.memory.search.BY_WORDS", 5)
    rng = random.Random(6)
    centre = vector(rng)
    near = put(db, [f"near {at}" for at in range(1_000)], [vector(rng, near=centre, by=0.01) for _ in range(1_000)])
    put(db, [f"far {at}" for at in range(1_000)], [vector(rng) for _ in range(1_000)])
    index = VectorIndex()
    assert found(db, index, centre, limit=1)[0].startswith("near")
    for start in range(0, 1_000, 40):
        forget(db, near[start : start + 40])
        (told,) = found(db, index, centre, limit=1)
        assert told.startswith("near" if start < 960 else "far")


def test_an_archive_not_asked_for_lately_is_let_go_and_read_again(db: sqlite3.Connection) -> None:
    rng = random.Random(7)
    index = VectorIndex(most=100)
    archives = [Archive(f"a{n}", id=f"archive-{n}") for n in range(4)]
    given = [vector(rng) for _ in range(60)]
    for one in archives:
        insert(db, [Passage(f"{one.name} {at}") for at in range(60)], given, archive=one)
    for turn in range(8):
        one = archives[turn % 4]
        (hit,) = finish(
            search(
                SqliteTables(db, "", lambda: index),
                [holding(db, "", one.id)],
                "",
                given[turn],
                within=EVERYTHING,
                limit=1,
            )
        )
        assert hit.passage.text == f"{one.name} {turn}"
        assert len(index._loaded) == 1
    together = finish(
        search(
            SqliteTables(db, "", lambda: index),
            [holding(db, "", one.id) for one in archives],
            "",
            given[3],
            within=EVERYTHING,
            limit=4,
        )
    )
    assert {hit.passage.text for hit in together} == {f"a{n} 3" for n in range(4)}


def test_another_processes_passages_are_seen_and_its_deletions_too(tmp_path: Path) -> None:
    rng = random.Random(8)
    with (
        closing(made(tmp_path / "a.db")) as one,
        closing(sqlite3.connect(tmp_path / "a.db", isolation_level=None)) as two,
    ):
        index = VectorIndex()
        first = vector(rng)
        second = vector(rng)
        (early,) = put(one, ["early"], [first])
        assert found(two, index, second) == ["early"]
        put(one, ["late"], [second])
        assert found(two, index, second) == ["late", "early"]
        forget(one, [early])
        assert found(two, index, second) == ["late"]


WITHOUT = """
import asyncio, struct, sys
sys.modules["numpy"] = None  # as if it were not installed
from chargehand.errors import StoreUnavailable
from chargehand.memory.archives import Archive, Passage
from chargehand.memory.session import open_catalog

async def main():
    catalog = await open_catalog(sys.argv[1])
    (archive,) = await catalog.find(Archive)
    vector = struct.pack("<2f", 1.0, 1.0)
    for work in (
        lambda: catalog.insert(archive.id, [Passage("plain")], [vector], handle="test:model"),
        lambda: catalog.search([archive.id], "", vector),
    ):
        try:
            await work()
        except StoreUnavailable as error:
            print(error)
    print(*(hit.passage.text for hit in await catalog.search([archive.id], "quick")))
    await catalog.close()

asyncio.run(main())
"""


async def test_without_numpy_vectors_are_refused_and_words_are_searched(tmp_path: Path) -> None:
    catalog = await SqliteCatalog.open(tmp_path / "memory.db")
    where = (await catalog.add(Archive("notes"))).id
    await catalog.insert(where, [Passage("quick")], [struct.pack("<2f", 1.0, 1.01)], handle="test:model")
    command = [sys.executable, "-c", WITHOUT, str(tmp_path / "memory.db")]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=True, cwd=ROOT)
    *refusals, words = done.stdout.splitlines()
    assert len(refusals) == 2
    assert all("chargehand[local]" in refusal for refusal in refusals)
    assert words == "quick"
    await catalog.close()


# --- what is refused


def test_vectors_of_another_model_or_width_are_refused(db: sqlite3.Connection) -> None:
    rng = random.Random(9)
    put(db, ["text"], [vector(rng)])
    before = list(db.iterdump())
    refused = [
        (
            [vector(rng, 40)],
            "test:model",
            "has vectors of test:model with 48 dimensions, and these are of test:model with 40",
        ),
        ([vector(rng)], "other:model", "and these are of other:model"),
        ([vector(rng)], "", "without the handle"),
        ([vector(rng)] * 2, "test:model", "2 vectors for 1 passages"),
        ([b"abc"], "test:model", "a vector of 3 bytes"),
        ([b""], "test:model", "a vector of 0 bytes"),
        ([bytes(4 * WIDTH)], "test:model", "all zeros"),
    ]
    for given, handle, says in refused:
        with pytest.raises(Invalid, match=says):
            insert(db, [Passage("more")], given, handle=handle)
    with pytest.raises(Invalid, match="different lengths"):
        insert(db, [Passage("a"), Passage("b")], [vector(rng), vector(rng, 3)])
    with pytest.raises(Invalid, match="takes vectors of local:minilm"):
        insert(db, [Passage("a")], [vector(rng)], archive=Archive("b", embedding="local:minilm"))
    with pytest.raises(Invalid, match="by words alone"):
        insert(db, [Passage("a")], [vector(rng)], archive=Archive("b", embedding="words"))
    assert list(db.iterdump()) == before


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (
            struct.pack("<3f", 1, 2, 3),
            "of 3 dimensions cannot be compared .* have 48; embed the question with test:model",
        ),
        (bytes(4 * WIDTH), "all zeros"),
        (b"abc", "a vector of 3 bytes"),
    ],
)
def test_a_question_that_cannot_be_compared_is_refused(db: sqlite3.Connection, asked: bytes, says: str) -> None:
    put(db, ["text"], [vector(random.Random(1))])
    with pytest.raises(Invalid, match=says):
        found(db, VectorIndex(), asked)


def test_once_all_vectors_are_gone_another_model_may_come(db: sqlite3.Connection) -> None:
    rng = random.Random(10)
    index = VectorIndex()
    ids = put(db, ["a", "b"], [vector(rng), vector(rng)])
    assert len(found(db, index, vector(rng))) == 2
    assert kept(db).model == VectorModel("test:model", WIDTH)
    forget(db, ids)
    assert kept(db).model is None
    insert(db, [Passage("c")], [vector(rng, 20)], handle="other:model")
    assert kept(db).model == VectorModel("other:model", 20)
    assert found(db, index, vector(rng, 20)) == ["c"]
    assert kept(db).removed == 2
