"""What every journal promises."""

import asyncio
import random
from pathlib import Path
from typing import cast

import pytest
from msgspec import Raw, structs

from chargehand.engine.events import (
    AttemptStarted,
    AttemptSucceeded,
    Entry,
    Event,
    Noted,
    Parent,
    RunEnded,
    RunRequested,
)
from chargehand.engine.plan import TaskId
from chargehand.errors import Corrupt, Fenced, Invalid, NotJson, Refused, RunBusy, RunUnknown
from chargehand.journal.protocol import Journal, JournalProxy, Lease, RouteExample
from chargehand.journal.store import list_runs, open_journal, opened_journal, read_run
from tests.stores.samples import AT, SHAPES, entries, noted, numbers, sample


async def begun(journal: Journal, run: str = "r", count: int = 3) -> Lease:
    lease = await journal.claim(run, new=True)
    await journal.append(lease, entries(*range(1, count + 1)))
    return lease


# --- writing and reading ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("full", [True, False])
async def test_every_event_there_is_comes_back_as_it_was(journal: Journal, full: bool) -> None:
    assert len(SHAPES) > 20
    written = [Entry(seq, AT + seq / 7, sample(shape, full=full)) for seq, shape in enumerate(SHAPES, 1)]
    lease = await journal.claim("r", new=True)
    await journal.append(lease, written)
    found = await journal.read("r")
    assert found == written
    assert [type(entry.event) for entry in found] == list(SHAPES)


async def test_entries_come_back_in_order_and_from_where_one_asks(journal: Journal) -> None:
    lease = await begun(journal)
    await journal.append(lease, entries(4))
    await journal.append(lease, entries(5, 6))
    assert numbers(await journal.read("r")) == [1, 2, 3, 4, 5, 6]
    assert numbers(await journal.read("r", after=4)) == [5, 6]
    assert await journal.read("r", after=6) == []
    assert await journal.read("r", after=99) == []
    assert numbers(await journal.read("r", after=-5)) == [1, 2, 3, 4, 5, 6]
    assert lease.seq == 6


async def test_an_append_of_nothing_writes_nothing(journal: Journal) -> None:
    lease = await begun(journal)
    await journal.append(lease, [])
    assert numbers(await journal.read("r")) == [1, 2, 3]


async def test_a_result_outlives_everything_it_was_read_with(journal: Journal) -> None:
    lease = await journal.claim("r", new=True)
    result = Raw(b'{"text":"' + b"x" * 500 + b'"}')
    await journal.append(lease, [Entry(1, AT, AttemptSucceeded(TaskId("t"), 1, result))])
    found = [(await journal.read("r"))[0].event for _ in range(100)]
    for event in found:
        assert isinstance(event, AttemptSucceeded)
        assert bytes(event.result) == bytes(result)


async def test_two_runs_do_not_mix(journal: Journal) -> None:
    one = await journal.claim("one", new=True)
    other = await journal.claim("other", new=True)
    for seq in range(1, 6):
        await journal.append(one, [noted(seq, f"one {seq}")])
        await journal.append(other, [noted(seq, f"other {seq}")])
    for run in ("one", "other"):
        assert await journal.read(run) == [noted(seq, f"{run} {seq}") for seq in range(1, 6)]


async def test_a_thousand_appends_at_once_all_arrive(journal: Journal) -> None:
    async def drive(run: str) -> None:
        lease = await journal.claim(run, new=True)
        for seq in range(1, 21):
            await journal.append(lease, [noted(seq, f"{run} {seq}")])
            assert lease.seq == seq

    runs = [f"run {number}" for number in range(50)]
    async with asyncio.TaskGroup() as jobs:
        for run in runs:
            jobs.create_task(drive(run))
    for run in runs:
        assert await journal.read(run) == [noted(seq, f"{run} {seq}") for seq in range(1, 21)]


@pytest.mark.parametrize("size", [65_400, 65_536, 65_600, 1_000_000])
async def test_a_large_body_comes_back_whole(journal: Journal, size: int) -> None:
    lease = await journal.claim("r", new=True)
    written = [noted(1), noted(2, "x" * size), noted(3), noted(4, "x" * size)]
    await journal.append(lease, written)
    await journal.append(lease, written)
    assert await journal.read("r") == written
    assert [row.last for row in await journal.runs()] == [written[-1]]


# --- what an append refuses ------------------------------------------------------------------------------------------


async def test_the_same_append_again_changes_nothing(journal: Journal) -> None:
    lease = await begun(journal)
    for again in (entries(1, 2, 3), entries(2, 3), entries(3)):
        await journal.append(lease, again)
        assert (numbers(await journal.read("r")), lease.seq) == ([1, 2, 3], 3)


@pytest.mark.parametrize("seqs", [[5], [5, 6], [3, 4], [1, 2, 3, 4]])
async def test_an_append_that_leaves_a_hole_or_overlaps_is_refused(journal: Journal, seqs: list[int]) -> None:
    lease = await begun(journal)
    with pytest.raises(Refused, match="'r' has 3 entries"):
        await journal.append(lease, entries(*seqs))
    assert (numbers(await journal.read("r")), lease.seq) == ([1, 2, 3], 3)
    await journal.append(lease, entries(4))


@pytest.mark.parametrize("seqs", [[4, 6], [4, 4], [5, 4], [0], [-1, 0]])
async def test_entries_not_numbered_one_by_one_are_invalid(journal: Journal, seqs: list[int]) -> None:
    lease = await begun(journal)
    with pytest.raises(Invalid, match="one by one"):
        await journal.append(lease, entries(*seqs))
    assert numbers(await journal.read("r")) == [1, 2, 3]


@pytest.mark.parametrize("other", [noted(3, "another"), Entry(3, AT, Noted("note 3"))])
async def test_another_content_at_the_same_place_is_corrupt(journal: Journal, other: Entry) -> None:
    lease = await begun(journal)
    with pytest.raises(Corrupt, match="entry 3 of run 'r'"):
        await journal.append(lease, [other])
    assert await journal.read("r") == entries(1, 2, 3)


@pytest.mark.parametrize(
    "event",
    [
        AttemptStarted(TaskId("t"), 1, "w", until=float("inf")),
        AttemptStarted(TaskId("t"), 1, "w", until=float("nan")),
        AttemptSucceeded(TaskId("t"), 1, Raw(b"{")),
        AttemptSucceeded(TaskId("t"), 1, Raw(b"")),
        Noted("half a pair \ud800"),
        RunEnded("complete", "done", gaps=[]),  # pyright: ignore[reportArgumentType] - the point of the test
    ],
)
async def test_what_could_not_be_read_back_is_not_written(journal: Journal, event: Event) -> None:
    lease = await begun(journal)
    with pytest.raises(NotJson):
        await journal.append(lease, [noted(4), Entry(5, AT, event)])
    assert numbers(await journal.read("r")) == [1, 2, 3]
    await journal.append(lease, entries(4))


# --- leases ----------------------------------------------------------------------------------------------------------


async def test_an_unknown_run_can_be_neither_claimed_nor_read(journal: Journal) -> None:
    with pytest.raises(RunUnknown, match="'nobody'"):
        await journal.claim("nobody")
    with pytest.raises(RunUnknown):
        await journal.claim("nobody", steal=True)
    with pytest.raises(RunUnknown):
        await journal.read("nobody")
    assert await journal.runs() == []


async def test_a_run_without_entries_does_not_exist_yet(journal: Journal) -> None:
    lease = await journal.claim("r", new=True)
    with pytest.raises(RunUnknown):
        await journal.read("r")
    with pytest.raises(RunBusy):
        await journal.claim("r", new=True)
    await journal.release(lease)
    with pytest.raises(RunUnknown):
        await journal.claim("r")
    again = await journal.claim("r", new=True)
    assert again.epoch > lease.epoch
    with pytest.raises(Fenced):
        await journal.append(lease, entries(1))


@pytest.mark.parametrize("name", ["", "half a pair \ud800", "a\0b"])
async def test_a_name_no_journal_can_keep_is_invalid(journal: Journal, name: str) -> None:
    with pytest.raises(Invalid):
        await journal.claim(name, new=True)
    with pytest.raises((Invalid, RunUnknown)):
        await journal.read(name)


async def test_any_other_name_will_do(journal: Journal) -> None:
    names = ["a'; DROP TABLE runs; --", "../../x", "é\N{SNOWMAN}", "%s {}", " ", "A", "a", "x" * 1000]
    for name in names:
        await begun(journal, name, 1)
    assert [row.run for row in await journal.runs()] == sorted(names)
    for name in names:
        assert numbers(await journal.read(name)) == [1]


async def test_an_existing_run_is_not_begun_anew(journal: Journal) -> None:
    lease = await begun(journal)
    for held in (True, False):
        with pytest.raises(Refused, match="'r' exists already") as caught:
            await journal.claim("r", new=True)
        assert not isinstance(caught.value, RunUnknown), held
        await journal.release(lease)


async def test_a_held_run_is_busy_until_it_is_released(journal: Journal) -> None:
    lease = await begun(journal)
    with pytest.raises(RunBusy, match="'r'"):
        await journal.claim("r")
    await journal.release(lease)
    taken = await journal.claim("r")
    assert (taken.run, taken.epoch, taken.seq) == ("r", lease.epoch + 1, 3)


async def test_a_released_lease_writes_no_more(journal: Journal) -> None:
    lease = await begun(journal)
    await journal.release(lease)
    with pytest.raises(Fenced, match="'r'"):
        await journal.append(lease, entries(4))
    await journal.release(lease)
    assert numbers(await journal.read("r")) == [1, 2, 3]


async def test_a_lease_of_another_journal_is_worth_nothing(journal: Journal) -> None:
    lease = await begun(journal)
    for stranger in (Lease("another", 1, 0, lease.number), Lease("r", 7, 3, lease.number)):
        with pytest.raises(Fenced):
            await journal.append(stranger, entries(stranger.seq + 1))
        await journal.release(stranger)
    await journal.append(lease, entries(4))
    assert numbers(await journal.read("r")) == [1, 2, 3, 4]


async def test_a_stolen_run_fences_the_one_before(journal: Journal) -> None:
    old = await begun(journal)
    new = await journal.claim("r", steal=True)
    assert new.epoch == old.epoch + 1
    for late in (entries(4), entries(1, 2, 3), entries(9)):
        with pytest.raises(Fenced, match="epoch 1 of run 'r'"):
            await journal.append(old, late)
    await journal.append(new, [noted(4, "by the new one")])
    with pytest.raises(Fenced):
        await journal.append(old, entries(5))
    await journal.release(old)
    with pytest.raises(RunBusy):
        await journal.claim("r")
    assert await journal.read("r") == [*entries(1, 2, 3), noted(4, "by the new one")]


# --- listings --------------------------------------------------------------------------------------------------------


async def test_a_listing_tells_how_far_each_run_is(journal: Journal) -> None:
    lease = await begun(journal, "b", 2)
    await journal.append(lease, [Entry(3, AT + 50, RunEnded("complete", "done"))])
    await begun(journal, "a", 1)
    await journal.claim("empty", new=True)
    await journal.release(lease)
    first, second = await journal.runs()
    assert (first.run, first.seq, first.ended, first.epoch, first.held) == ("a", 1, None, 1, True)
    assert (second.run, second.seq, second.epoch, second.held) == ("b", 3, 1, False)
    assert second.ended == RunEnded("complete", "done")
    assert (second.started, second.changed) == (AT + 1, AT + 50)


# --- anything at all -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(10))
async def test_whatever_the_drivers_do_a_run_is_one_unbroken_story(journal: Journal, seed: int) -> None:
    """Two drivers steal a run from each other at random; what each was told is durable is there, once."""
    chance = random.Random(seed)
    leases = [await begun(journal, count=1)]
    told = {1: noted(1)}
    for number in range(120):
        lease = chance.choice(leases[-2:])
        if chance.random() < 0.2:
            leases.append(await journal.claim("r", steal=True))
            continue
        start = lease.seq + 1
        batch = [noted(seq, f"{number}") for seq in range(start, start + chance.randrange(1, 4))]
        try:
            await journal.append(lease, batch)
        except Fenced:
            assert lease is not leases[-1]
            continue
        assert lease is leases[-1]
        told |= {entry.seq: entry for entry in batch}
    assert await journal.read("r") == [told[seq] for seq in sorted(told)]
    assert sorted(told) == list(range(1, len(told) + 1))


async def test_the_latest_runs_come_page_by_page(journal: Journal) -> None:
    for name in ("c", "a", "b"):
        await begun(journal, name, 1)
    page = await journal.latest(before=2**63 - 1, limit=2)
    assert [row.run for row in page] == ["b", "a"]
    assert [row.run for row in await journal.latest(before=page[-1].number, limit=2)] == ["c"]
    assert await journal.latest(before=0, limit=2) == []


async def test_one_run_is_asked_for_by_its_name(journal: Journal) -> None:
    lease = await begun(journal, "r", 2)
    await begun(journal, "other", 1)
    row = await journal.row("r")
    assert (row.run, row.seq, row.held, row.last) == ("r", 2, True, noted(2))
    assert row == next(row for row in await journal.runs() if row.run == "r")
    await journal.release(lease)
    assert not (await journal.row("r")).held
    await journal.claim("empty", new=True)
    for name in ("none", "empty"):
        with pytest.raises(RunUnknown):
            await journal.row(name)


async def test_runs_that_changed_lately_are_asked_for_by_time(journal: Journal) -> None:
    await begun(journal, "old", 1)
    await begun(journal, "b", 3)
    await begun(journal, "a", 2)
    assert [row.run for row in await journal.changed_since(AT + 2)] == ["a", "b"]
    assert await journal.changed_since(AT + 4) == []


async def test_open_runs_are_those_that_have_not_ended(journal: Journal) -> None:
    await begun(journal, "open", 2)
    lease = await begun(journal, "over", 1)
    await journal.append(lease, [Entry(2, AT, RunEnded("complete", "done"))])
    assert [row.run for row in await journal.open_runs()] == ["open"]


async def test_the_runs_inside_a_run_are_found_at_any_depth(journal: Journal) -> None:
    for name in ("r", "r/a", "r/a/b", "r0", "other/r/a"):
        await begun(journal, name, 1)
    await journal.claim("r/empty", new=True)
    assert await journal.inside("r") == ["r/a", "r/a/b"]
    assert await journal.inside("r/a/b") == []


async def test_a_run_that_is_only_named_like_one_inside_another_is_not_inside_it(journal: Journal) -> None:
    await begun(journal, "nightly", 1)
    for name, around in (("nightly/may", ""), ("nightly/may/t1", "nightly/may"), ("nightly/t1", "nightly")):
        parent = Parent(run=around, root=around, task=TaskId("t1"), attempt=1, step=1, worker="ann", nesting=1)
        request = structs.replace(
            cast("RunRequested", sample(RunRequested, full=False)), parent=parent if around else None
        )
        lease = await journal.claim(name, new=True)
        await journal.append(lease, [Entry(1, AT, request)])
    assert await journal.inside("nightly") == ["nightly/t1"]
    assert await journal.inside("nightly/may") == ["nightly/may/t1"]


async def test_a_sound_run_is_readable_as_a_whole(journal: Journal) -> None:
    await begun(journal, "r", 3)
    readable = await journal.read_readable("r", after=1)
    assert (numbers(readable.entries), readable.damage) == ([2, 3], None)
    with pytest.raises(RunUnknown):
        await journal.read_readable("none")


async def test_an_append_without_waiting_is_an_append(journal: Journal) -> None:
    lease = await begun(journal, "r", 1)
    if journal.append_now is not None:
        journal.append_now(lease, entries(2))
        assert numbers(await journal.read("r")) == [1, 2]
    assert journal.trouble == ""


async def test_route_examples_are_kept_by_team(journal: Journal) -> None:
    example = RouteExample("what does it cost", "clerk", "feedback", "r", AT)
    await journal.route_examples("desk").record("r", "feedback", [example])
    assert await journal.route_examples("desk").list() == (example,)
    assert await journal.route_examples("other").list() == ()
    assert await journal.example_teams() == ["desk"]
    other = RouteExample("what did it cost", "clerk", "feedback", "r2", AT)
    await journal.route_examples("desk").record("r2", "feedback", [other])
    assert await journal.route_examples("desk").clear("r") == 1
    assert await journal.route_examples("desk").list() == (other,)
    assert await journal.route_examples("desk").clear() == 1
    assert await journal.example_teams() == []


async def test_a_wrapper_passes_everything_on(journal: Journal) -> None:
    wrapper: Journal = JournalProxy(journal)
    lease = await begun(wrapper, "r", 2)
    assert [row.run for row in await wrapper.runs()] == ["r"]
    assert await wrapper.latest(before=99, limit=1) == await wrapper.open_runs()
    assert (await wrapper.read_readable("r")).entries == await wrapper.read("r")
    await wrapper.release(lease)
    assert (await journal.runs())[0].held is False
    assert await wrapper.inside("r") == []
    assert (wrapper.append_now, wrapper.trouble) == (None, "")
    assert wrapper.route_examples("desk").team == "desk"
    assert await wrapper.example_teams() == []


async def test_a_journal_is_opened_by_its_url(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with pytest.raises(Refused, match="there is no journal"):
        await open_journal(path, create=False)
    async with opened_journal(f"sqlite:///{path}") as journal:
        await begun(journal, "r", 2)
        assert [row.run for row in list_runs(str(path))] == ["r"]
        assert numbers(read_run(path, "r", after=1)) == [2]
    async with opened_journal("memory:") as journal:
        assert await journal.runs() == []
    for url in ("mysql://host/runs", ""):
        with pytest.raises(Invalid, match="is not the URL of a store"):
            await open_journal(url)
    with pytest.raises(Invalid, match="ends with its process"):
        list_runs("memory:")


# --- runs that are created for another process to drive


async def test_a_created_run_is_held_by_nobody_and_its_first_claim_has_epoch_one(journal: Journal) -> None:
    first = entries(1, 2)
    await journal.create("r", first)
    row = await journal.row("r")
    assert (row.seq, row.epoch, row.held) == (2, 0, False)
    lease = await journal.claim("r")
    assert (lease.epoch, lease.seq) == (1, 2)
    await journal.append(lease, entries(3))
    assert await journal.read("r") == [*first, *entries(3)]


async def test_a_run_is_created_once(journal: Journal) -> None:
    await journal.create("r", entries(1))
    await journal.create("r", entries(1))  # a repetition whose first reply was lost
    lease = await journal.claim("r")
    await journal.append(lease, entries(2))
    await journal.create("r", entries(1))
    with pytest.raises(Refused, match="exists already"):
        await journal.create("r", [Entry(1, AT, Noted(text="another"))])
    assert await journal.read("r") == entries(1, 2)


async def test_a_run_that_another_is_beginning_is_not_created(journal: Journal) -> None:
    lease = await journal.claim("r", new=True)
    with pytest.raises(RunBusy):
        await journal.create("r", entries(1))
    await journal.release(lease)
    await journal.create("r", entries(1))
    assert await journal.read("r") == entries(1)
    assert not (await journal.row("r")).held


@pytest.mark.parametrize("seqs", [[], [2], [1, 3]])
async def test_a_run_begins_with_its_first_entry(journal: Journal, seqs: list[int]) -> None:
    with pytest.raises(Invalid):
        await journal.create("r", entries(*seqs))
    with pytest.raises(RunUnknown):
        await journal.read("r")


async def test_a_created_run_may_have_a_large_body(journal: Journal) -> None:
    large = Entry(1, AT, Noted(text="x" * 200_000))
    await journal.create("r", [large])
    assert await journal.read("r") == [large]
