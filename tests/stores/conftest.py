"""Every journal and every catalog there is, for the tests that all of them must pass."""

import asyncio
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from chargehand.journal.memory import MemoryJournal
from chargehand.journal.protocol import Journal
from chargehand.journal.sqlite import SqliteJournal
from chargehand.journal.store import open_journal
from chargehand.memory.catalog import Catalog
from chargehand.memory.session import open_catalog


@pytest.fixture(params=["memory", "sqlite", "sqlite, process durability", "postgres"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Journal]:
    made: Journal
    match request.param:
        case "memory":
            made = MemoryJournal()
        case "postgres":
            made = asyncio.run(open_journal(request.getfixturevalue("postgres_store")))
        case "sqlite":
            made = asyncio.run(SqliteJournal.open(tmp_path / "runs.db"))
        case _:
            made = asyncio.run(SqliteJournal.open(tmp_path / "runs.db", durability="process"))
    yield made
    asyncio.run(made.close())


@pytest.fixture(params=["memory:", "sqlite:///{folder}/memory.db", "postgresql:"])
def catalog_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a catalog of each kind is. A new kind of store is one more URL here."""
    if request.param == "postgresql:":
        return request.getfixturevalue("postgres_tenant")
    return request.param.format(folder=tmp_path)


@pytest.fixture
def catalog(catalog_url: str) -> Iterator[Catalog]:
    """One that counts the seconds from 1000 on: each call of its clock is one later."""
    ticks = itertools.count(1000)
    made = asyncio.run(open_catalog(catalog_url, durability="process", clock=lambda: float(next(ticks))))
    yield made
    asyncio.run(made.close())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, path: Path) -> str:
    """The URL of a store that many processes may use."""
    return str(path) if request.param == "sqlite" else request.getfixturevalue("postgres_store")


@pytest.fixture
def fast(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory where there is one: for tests that open hundreds of files."""
    shared = Path("/dev/shm")
    with TemporaryDirectory(dir=shared if os.access(shared, os.W_OK) else tmp_path) as directory:
        yield Path(directory)
