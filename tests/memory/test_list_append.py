"""Sixteen writers on one block: nothing is lost, nothing is doubled, and only whole values meet conflicts."""

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from chargehand.memory.blocks import PERSON, Block, Edit, Origin
from chargehand.memory.edits import Append, Insert, Rethink
from chargehand.memory.sqlite_catalog import SqliteCatalog
from tests.memory.list_append import OPERATIONS, WRITERS, Verdict, check, check_processes, judged, play, prepare
from tests.support.hunts import hunt_size

SIZE = hunt_size(quick=100, thorough=OPERATIONS)
SHORT = hunt_size(quick=40, thorough=OPERATIONS)
"""Operations of each writer where processes share a store."""


def all_is_there(verdict: Verdict, operations: int = SIZE) -> bool:
    assert verdict.operations == WRITERS * operations
    assert verdict.tally.conflicts > 0, "they never met"
    assert verdict.tally.whole > 0
    assert verdict.tally.repeats > 0
    return verdict.clean


@pytest.mark.parametrize("seed", range(hunt_size(quick=1, thorough=4)))
async def test_nothing_is_lost_in_memory(seed: int) -> None:
    verdict = await check(seed=seed, operations=SIZE)
    assert all_is_there(verdict), verdict.row()


@pytest.mark.parametrize("seed", range(hunt_size(quick=1, thorough=2)))
async def test_nothing_is_lost_in_a_file(tmp_path: Path, seed: int) -> None:
    verdict = await check(f"sqlite:///{tmp_path}/memory.db", seed, operations=SIZE)
    assert all_is_there(verdict), verdict.row()


async def test_nothing_is_lost_by_four_processes_on_one_file(tmp_path: Path) -> None:
    verdict = await check_processes(f"sqlite:///{tmp_path}/memory.db", seed=1, operations=SHORT)
    assert all_is_there(verdict, SHORT), verdict.row()


@pytest.mark.slow("four processes are started")
async def test_nothing_is_lost_by_four_processes_on_one_postgres(postgres_tenant: str) -> None:
    size = hunt_size(quick=40, thorough=60)
    verdict = await check_processes(postgres_tenant, seed=1, operations=size)
    assert all_is_there(verdict, size), verdict.row()


class Overwriting(SqliteCatalog):
    """Reads, changes and writes back, as if nobody else could come between."""

    async def edit(
        self, block: str, edit: Edit, origin: Origin, *, agent: str = "", expect: int | None = None
    ) -> Block:
        if not isinstance(edit, Append | Insert):
            return await super().edit(block, edit, origin, agent=agent, expect=expect)
        found = await self.get(Block, block)
        assert found is not None
        await asyncio.sleep(0)
        return await super().edit(block, Rethink(f"{found.value}\n{edit.text}"), replace(PERSON, key=origin.key))


class Forgetful(SqliteCatalog):
    """Does not know what it has done already."""

    async def edit(
        self, block: str, edit: Edit, origin: Origin, *, agent: str = "", expect: int | None = None
    ) -> Block:
        return await super().edit(block, edit, replace(origin, key=""), agent=agent, expect=expect)


async def verdict_on(catalog: SqliteCatalog) -> Verdict:
    block, agent = await prepare(catalog)
    tally = await play(catalog=catalog, block=block, agent=agent, writers=range(4), operations=60, seed=0)
    verdict = await judged(catalog, block.id, tally, 1.0)
    await catalog.close()
    return verdict


async def test_the_check_notices_what_is_lost_or_doubled() -> None:
    assert (await verdict_on(await SqliteCatalog.open(None))).clean
    overwritten = await verdict_on(await Overwriting.open(None))
    assert overwritten.lost > 0
    repeated = await verdict_on(await Forgetful.open(None))
    assert repeated.lost == 0
    assert repeated.doubled > 0
    assert repeated.versions == repeated.tally.repeats
