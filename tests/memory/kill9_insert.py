"""`python -m tests.memory.kill9_insert`: kill -9 a process that inserts passages, and look for damage.

A child inserts batches with tags and vectors into one store, and says which of them were acknowledged. After each death
the store is opened again: what was acknowledged is there exactly once, no batch is there in part, and words, tags,
vectors and counts agree with the passages.
"""

import argparse
import asyncio
import random
import sqlite3
import struct
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec import Struct, field

from chargehand.memory.archives import Archive, Filter, Passage
from chargehand.memory.catalog import Catalog
from chargehand.memory.session import open_catalog
from chargehand.postgres.database import open_database
from chargehand.store_url import PostgresUrl, parse_store_url

ROOT = Path(__file__).parents[2]
ARCHIVE = "archive-00000000-0000-4000-8000-000000000001"
BATCH = 40
WIDTH = 32
PATIENCE = 30.0

_AGREE = {
    "a row without words": "SELECT count(*) FROM passages WHERE number NOT IN (SELECT id FROM passage_words_docsize)",
    "words without a row": "SELECT count(*) FROM passage_words_docsize WHERE id NOT IN (SELECT number FROM passages)",
    "a row without a vector": "SELECT count(*) FROM passages WHERE number NOT IN (SELECT number FROM passage_vectors)",
    "a vector without a row": "SELECT count(*) FROM passage_vectors WHERE number NOT IN (SELECT number FROM passages)",
    "a vector without signs": "SELECT count(*) FROM passage_vectors WHERE sign NOT IN (SELECT sign FROM passage_signs)",
    "signs without a vector": "SELECT count(*) FROM passage_signs WHERE sign NOT IN (SELECT sign FROM passage_vectors)",
    "a row without its tags": "SELECT count(*) * 2 - (SELECT count(*) FROM passage_tags) FROM passages",
    "a wrong count": """
        SELECT count(*) FROM holdings WHERE passages <> (SELECT count(*) FROM passages)
        OR embedded <> (SELECT count(*) FROM passage_vectors)
    """,
}
_AGREE_POSTGRES = {
    "a row without words": "SELECT count(*) FROM passages WHERE number NOT IN (SELECT passage FROM passage_words)",
    "a row without a vector": "SELECT count(*) FROM passages WHERE number NOT IN (SELECT passage FROM passage_vectors)",
    "a wrong count": """
        SELECT count(*) FROM holdings WHERE passages <> (SELECT count(*) FROM passages)
        OR embedded <> (SELECT count(*) FROM passages JOIN passage_vectors ON passage = number)
    """,
}


class Tally(Struct):
    kills: int = 0
    told: int = 0
    problems: list[str] = field(default_factory=list[str])

    def line(self) -> str:
        return f"{self.kills} kills, {self.told} batches acknowledged, {len(self.problems)} violations"


# --- the child


def vector(batch: str, at: int) -> bytes:
    rng = random.Random(f"{batch}/{at}")
    return struct.pack(f"<{WIDTH}f", *(rng.gauss(0, 1) for _ in range(WIDTH)))


async def insert(url: str, life: int, most: int = 1_000_000) -> None:
    """Until killed. Every batch says twice what it is: in the text, and as a tag."""
    catalog = await open_catalog(url)
    if await catalog.get(Archive, ARCHIVE) is None:
        await catalog.add(Archive("notes", id=ARCHIVE))
    print("open", flush=True)
    for number in range(most):
        name = f"batch-{life}-{number}"
        passages = [Passage(f"passage {at} of {name}", tags=(name, f"place {at}")) for at in range(BATCH)]
        await catalog.insert(ARCHIVE, passages, [vector(name, at) for at in range(BATCH)], handle="test:model")
        print(name, flush=True)
    await catalog.close()


# --- the parent


def many(kills: int, *, seed: int) -> Tally:
    with TemporaryDirectory() as folder:
        return many_in(f"sqlite:///{folder}/memory.db", kills, seed=seed)


def many_in(url: str, kills: int, *, seed: int) -> Tally:
    """The deaths of processes that use this store, which is empty."""
    rng = random.Random(seed)
    tally = Tally()
    told = list[str]()
    for life in range(kills):
        told += _lived(url, life, rng.uniform(0.0, 0.8))
        tally.kills += 1
        tally.problems += [f"after kill {life}: {one}" for one in asyncio.run(inspected(url, told, rng))]
    tally.told = len(told)
    return tally


_SAID = 3


def _lived(url: str, life: int, seconds: float) -> list[str]:
    """What a child acknowledged in so many seconds after it had opened the store."""
    command = [sys.executable, "-m", "tests.memory.kill9_insert", "--child", url, "--life", str(life)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        try:
            first = child.stdout.readline()
            assert first == "open\n", f"the child said {first!r}"
            # on a busy machine nothing may be acknowledged in that time: every other one says something first
            said = [child.stdout.readline() for _ in range(_SAID if life % 2 else 0)]
            time.sleep(seconds)
        finally:
            child.kill()
        # a line cut off in the middle was not said
        return [line.strip() for line in (*said, *child.stdout) if line.endswith("\n")]


async def inspected(url: str, told: list[str], rng: random.Random) -> list[str]:
    """All that is wrong."""
    catalog = await open_catalog(url)
    try:
        found = await catalog.passages(ARCHIVE, limit=10_000_000)
        problems = _compared([one.text for one in found], told)
        for name in rng.sample(told, min(3, len(told))):
            problems += await _searched(catalog, name, rng.randrange(BATCH))
    finally:
        await catalog.close()
    place = parse_store_url(url)
    if isinstance(place, PostgresUrl):
        if not found:  # there is no table of vectors before the first of them
            return problems
        database = await open_database(place)
        return problems + [what for what, question in _AGREE_POSTGRES.items() if (await database.fetch(question))[0][0]]
    return problems + _disagreeing(place)


def _disagreeing(path: Path) -> list[str]:
    """What of the tables of a file does not fit the others."""
    problems: list[str] = []
    with closing(sqlite3.connect(path)) as db:
        (said,) = db.execute("PRAGMA integrity_check").fetchone()
        problems += [f"the file is damaged: {said}"] if said != "ok" else []
        problems += [what for what, question in _AGREE.items() if db.execute(question).fetchone()[0]]
        try:
            db.execute("INSERT INTO passage_words (passage_words, rank) VALUES ('integrity-check', 1)")
        except sqlite3.DatabaseError as error:
            problems.append(f"the words do not fit the passages: {error}")
    return problems


def _compared(texts: list[str], told: list[str]) -> list[str]:
    whole = {f"passage {at} of {name}" for name in told for at in range(BATCH)}
    batches: dict[str, int] = {}
    for text in texts:
        name = text.rsplit(" ", 1)[1]
        batches[name] = batches.get(name, 0) + 1
    problems = [f"{name} is there with {count} of {BATCH}" for name, count in batches.items() if count != BATCH]
    problems += ["a passage is there twice"] if len(set(texts)) < len(texts) else []
    return problems + [f"acknowledged and lost: {text}" for text in sorted(whole - set(texts))[:5]]


async def _searched(catalog: Catalog, name: str, at: int) -> list[str]:
    wanted = f"passage {at} of {name}"
    asked = vector(name, at)
    strategies = {
        "by words": await catalog.search([ARCHIVE], f'"{wanted}"', limit=1),
        "by meaning": await catalog.search([ARCHIVE], "", asked, limit=1),
        "by a tag": await catalog.search([ARCHIVE], "", asked, within=Filter(tags=(name,)), limit=1),
    }
    return [
        f"{wanted} is not found {strategy}"
        for strategy, hits in strategies.items()
        if [hit.passage.text for hit in hits] != [wanted]
    ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.memory.kill9_insert", description=__doc__)
    parser.add_argument("--kills", type=int, default=25)
    parser.add_argument("--seed", type=int, default=20_260_101)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--life", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        asyncio.run(insert(options.child, options.life))
        return 0
    found = many(options.kills, seed=options.seed)
    print(found.line(), *found.problems, sep="\n")
    return 1 if found.problems else 0


if __name__ == "__main__":
    sys.exit(main())
