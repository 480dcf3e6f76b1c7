"""Five deaths at every run of the tests; `python -m tests.memory.kill9_insert` dies more often."""

import asyncio
import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.memory.kill9_insert import insert, inspected, many, many_in
from tests.support.hunts import hunt_size


def test_what_was_acknowledged_survives_and_nothing_is_there_in_part() -> None:
    lives = hunt_size(quick=2, thorough=5)
    tally = many(lives, seed=20_260_101)
    assert tally.problems == []
    assert tally.kills == lives
    assert tally.told >= 3 * (lives // 2), "every other life says three times that a batch is kept"


def test_the_same_is_so_in_postgres(postgres_tenant: str) -> None:
    tally = many_in(postgres_tenant, hunt_size(quick=2, thorough=3), seed=20_260_101)
    assert tally.problems == []
    assert tally.told >= 3


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        ("SELECT 1", ""),
        ("DELETE FROM passages WHERE id IN (SELECT id FROM passages LIMIT 1)", "is there with 39 of 40"),
        ("DELETE FROM passages WHERE text LIKE '%batch-0-1'", "acknowledged and lost"),
        ("DELETE FROM passage_vectors WHERE number IN (SELECT number FROM passages LIMIT 1)", "a row without a vector"),
        ("DELETE FROM passage_signs", "a vector without signs"),
        ("DELETE FROM passage_tags WHERE tag = 'place 7'", "a row without its tags"),
        ("INSERT INTO passage_words (passage_words) VALUES ('delete-all')", "a row without words"),
        ("UPDATE passages SET text = replace(text, 'passage 3 ', 'passage 93 ')", "the words do not fit the passages"),
        ("UPDATE holdings SET passages = 79", "a wrong count"),
    ],
)
def test_damage_is_noticed(tmp_path: Path, damage: str, says: str) -> None:
    path = tmp_path / "memory.db"
    url = f"sqlite:///{path}"
    asyncio.run(insert(url, 0, 2))
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(damage)
    problems = asyncio.run(inspected(url, ["batch-0-0", "batch-0-1"], random.Random(1)))
    assert any(says in one for one in problems) if says else problems == []
