"""The parts of dispatch that need no server."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from chargehand.dispatch.batching import Batcher
from chargehand.dispatch.engine import MAX_SLICE, SPREAD, EngineUrl, parse_engine_url, slices
from chargehand.errors import Invalid
from chargehand.server.cluster import check_skew


@pytest.mark.parametrize(
    ("url", "engine"),
    [
        ("", None),
        ("local", None),
        ("temporal://box:7233", EngineUrl("box:7233")),
        ("temporal://box", EngineUrl("box:7233")),
        ("temporal://box:1/lab", EngineUrl("box:1", "lab")),
        ("temporal://[::1]:7233/lab", EngineUrl("[::1]:7233", "lab")),
    ],
)
def test_an_engine_is_named_by_its_url(url: str, engine: EngineUrl | None) -> None:
    assert parse_engine_url(url) == engine


@pytest.mark.parametrize(
    "url", ["temporal", "http://box:7233", "temporal://", "temporal://box:x", "temporal://box/a/b", "temporal://u@box"]
)
def test_any_other_text_is_no_engine_and_the_error_says_how_one_is_written(url: str) -> None:
    with pytest.raises(Invalid, match="temporal://HOST:7233/NAMESPACE"):
        parse_engine_url(url)


@pytest.mark.parametrize("count", [0, 1, SPREAD, SPREAD + 1, 100, 1000])
def test_runs_of_one_moment_are_spread_over_jobs_and_many_travel_together(count: int) -> None:
    runs = [f"r{number}" for number in range(count)]
    parts = slices(runs)
    assert [run for part in parts for run in part] == runs
    assert all(1 <= len(part) <= MAX_SLICE for part in parts)
    assert len(parts) >= min(count, SPREAD) or count > SPREAD
    assert len(parts) <= max(SPREAD, -(-count // MAX_SLICE))


def test_a_clock_that_differs_too_much_from_the_database_is_refused() -> None:
    check_skew(database=1004.9, sent_at=1000.0, answered=1000.2)
    check_skew(database=995.1, sent_at=1000.0, answered=1000.2)
    for database in (1005.3, 994.9):
        with pytest.raises(Invalid, match=r"differ by 5\.1 s.*NTP"):
            check_skew(database=database, sent_at=1000.0, answered=1000.2)


# --- questions of one moment


async def test_questions_of_one_moment_are_asked_together() -> None:
    asked: list[Sequence[int]] = []

    async def answer(items: Sequence[int]) -> Mapping[int, int]:
        asked.append(items)
        return {item: item * item for item in items}

    batcher = Batcher(answer)
    async with asyncio.TaskGroup() as jobs:
        answers = [jobs.create_task(batcher.ask(number % 5)) for number in range(10)]
    assert [job.result() for job in answers] == [number * number for number in (0, 1, 2, 3, 4)] * 2
    assert asked == [[0, 1, 2, 3, 4]]


async def test_everybody_hears_why_a_question_failed() -> None:
    async def answer(_items: Sequence[int]) -> Mapping[int, int]:
        raise Invalid("no")

    batcher = Batcher(answer)
    async with asyncio.TaskGroup() as jobs:
        asking = [jobs.create_task(_error_of(batcher.ask(number))) for number in range(3)]
    assert [job.result() for job in asking] == ["no"] * 3


async def _error_of(awaited: "asyncio.Future[int] | object") -> str:
    with pytest.raises(Invalid) as caught:
        await awaited  # pyright: ignore[reportGeneralTypeIssues] - any awaitable
    return str(caught.value)


async def test_whoever_asks_first_may_be_cancelled_without_the_others_hearing_of_it() -> None:
    async def answer(items: Sequence[int]) -> Mapping[int, bool]:
        await asyncio.sleep(0.01)
        return dict.fromkeys(items, False)

    batcher = Batcher(answer)
    async with asyncio.TaskGroup() as jobs:
        first = jobs.create_task(batcher.ask(1))
        others = [jobs.create_task(batcher.ask(number)) for number in (1, 2)]
        await asyncio.sleep(0)
        first.cancel()
    assert [job.result() for job in others] == [False, False]
