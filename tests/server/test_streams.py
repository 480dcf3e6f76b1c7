"""Output of a run for many readers: each gets all of it, from where it begins, and the error in the end."""

import asyncio

import pytest

from chargehand.server.streams import Output


async def read_all(output: Output[int], start: int = 0) -> list[int]:
    return [item async for item in output.read(start)]


async def test_each_reader_gets_everything_from_where_it_begins() -> None:
    output = Output([1, 2])
    async with asyncio.TaskGroup() as jobs:
        early = jobs.create_task(read_all(output))
        late = jobs.create_task(read_all(output, 2))
        await asyncio.sleep(0)
        output.add(3)
        await asyncio.sleep(0)
        output.add(4, 5)
        output.close()
    assert early.result() == [1, 2, 3, 4, 5]
    assert late.result() == [3, 4, 5]
    assert await read_all(output, 4) == [5]


async def test_the_first_error_comes_after_what_was_there() -> None:
    output = Output([1])
    output.close(ValueError("broken"))
    output.close(TypeError("later"))
    items: list[int] = []
    with pytest.raises(ValueError, match="broken"):
        items.extend([item async for item in output.read()])
    seen = output.read()
    assert await anext(seen) == 1
    await seen.aclose()
