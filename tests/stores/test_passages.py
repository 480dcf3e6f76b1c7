"""What every catalog promises of passages: kept once, found by words and by meaning, filtered, listed, deleted."""

import asyncio
import random
import string
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from chargehand.errors import Invalid, NotJson, Refused, Unknown
from chargehand.memory.archives import Archive, Filter, Passage
from chargehand.memory.blocks import Origin
from chargehand.memory.catalog import Catalog, Order
from chargehand.memory.ranking import terms
from chargehand.memory.session import open_catalog
from chargehand.store_url import MEMORY
from tests.support.hunts import hunt_size

ROOT = Path(__file__).parents[2]
HANDLE = "test:model"
SHORT = settings(
    max_examples=hunt_size(quick=20, thorough=60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


async def archive(catalog: Catalog, *texts: str, name: str = "notes") -> str:
    made = await catalog.add(Archive(name))
    await catalog.insert(made.id, [Passage(text) for text in texts])
    return made.id


async def said(catalog: Catalog, where: str, query: str, within: Filter | None = None, limit: int = 10) -> list[str]:
    hits = await catalog.search([where], query, within=within or Filter(), limit=limit)
    return [hit.passage.text for hit in hits]


def vector(*numbers: float) -> bytes:
    return struct.pack(f"<{len(numbers)}f", *numbers)


# --- keeping


async def test_a_passage_comes_back_as_it_was_given(catalog: Catalog) -> None:
    where = await archive(catalog)
    origin = Origin(
        by="worker", name="ann", run="r1", task="t1", attempt=2, key="r1/t1/2/7", source="notes.txt", tainted=True
    )
    passage = Passage(
        text="Ünïcode\n\n ☃ text",
        tags=("b", "a"),
        metadata={"deep": [1, None, {"x": 1.5}]},
        origin=origin,
        created=77.5,
        id="",
        archive="",
        document="doc",
        part=3,
    )
    (told,) = await catalog.insert(where, [passage])
    assert told.new
    assert told.id.startswith("passage-")
    assert await catalog.passage(told.id) == replace(passage, id=told.id, archive=where)
    assert await catalog.passages(where) == [replace(passage, id=told.id, archive=where)]


async def test_a_passage_without_a_time_has_that_of_inserting(catalog: Catalog) -> None:
    where = await archive(catalog, "text")
    (kept,) = await catalog.passages(where)
    assert kept.created >= 1000


async def test_the_same_text_is_kept_once_and_tags_are_joined(catalog: Catalog) -> None:
    where = await archive(catalog)
    texts = ["A cafe\u0301  by the\nsea ", "other", "A café by the sea"]
    first = await catalog.insert(where, [Passage(text, tags=(f"t{at}", "all")) for at, text in enumerate(texts)])
    assert [one.new for one in first] == [True, True, False]
    assert first[2].id == first[0].id
    (again,) = await catalog.insert(where, [Passage("other", tags=("t9", "all"), metadata={"lost": 1})])
    assert (again.id, again.new) == (first[1].id, False)
    assert [one.tags for one in await catalog.passages(where)] == [("t0", "all", "t2"), ("t1", "all", "t9")]
    assert await said(catalog, where, "other", Filter(tags=("t9",))) == ["other"]
    assert await said(catalog, where, "sea", Filter(tags=("t0", "t2"), tag_match="all")) == [texts[0]]
    assert await catalog.count(where) == (2, 0)


@pytest.mark.parametrize(
    ("ann", "bob"),
    [
        (Origin("worker", "ann"), Origin("worker", "bob")),
        (Origin("person", "ann"), Origin("worker", "ann")),
        (Origin("team", source="ann.txt"), Origin("team", source="bob.txt")),
        (Origin("worker", "desk", scope="user-1"), Origin("worker", "desk", scope="user-2")),
        (Origin("worker", "desk", run="r1", scope="user-1"), Origin("worker", "desk", run="r2")),
    ],
)
async def test_the_same_text_of_two_origins_is_two_passages(catalog: Catalog, ann: Origin, bob: Origin) -> None:
    where = await archive(catalog)
    text = "I am allergic to nuts."
    passages = [Passage(text, metadata={"at": at}, origin=each) for at, each in enumerate((ann, bob))]
    one, two = await catalog.insert(where, passages)
    assert one.new
    assert two.new
    assert [passage.origin for passage in await catalog.passages(where)] == [ann, bob]
    later = [Passage(text, origin=replace(each, run="r9")) for each in (bob, ann)]
    assert [each.id for each in await catalog.insert(where, later)] == [two.id, one.id], "another run adds no copy"
    await catalog.forget(where, [one.id])
    [left] = await catalog.passages(where)
    assert (left.id, left.origin, left.metadata) == (two.id, bob, {"at": 1})


async def test_the_same_text_may_be_in_two_archives_and_case_matters(catalog: Catalog) -> None:
    one = await archive(catalog, "text", "Text")
    two = await archive(catalog, "text")
    assert (await catalog.count(one), await catalog.count(two)) == ((2, 0), (1, 0))


async def test_a_repeated_call_inserts_nothing_again(catalog: Catalog) -> None:
    where = await archive(catalog)
    origin = Origin(by="worker", name="ann", run="r", task="t", attempt=1, key="r/t/1/1")
    parts = [Passage(f"part {n}", origin=origin, part=n) for n in range(3)]
    first = await catalog.insert(where, parts)
    assert [one.new for one in first] == [True] * 3
    changed = [replace(one, text=one.text + " changed", tags=("new",)) for one in parts]
    assert await catalog.insert(where, changed) == [replace(one, new=False) for one in first]
    assert [one.text for one in await catalog.passages(where)] == ["part 0", "part 1", "part 2"]
    (later,) = await catalog.insert(where, [Passage("part 3", origin=replace(origin, key="r/t/1/2"))])
    assert later.new


async def test_ids_may_be_brought_once_a_space(catalog: Catalog) -> None:
    one = await archive(catalog)
    two = await archive(catalog)
    await catalog.insert(one, [Passage("text", id="passage-x")])
    assert await catalog.insert(one, [Passage("text", id="passage-x")]) != []  # the same again: an import done twice
    for where, passages in (
        (two, [Passage("more", id="passage-x")]),
        (one, [Passage("a", id="y"), Passage("b", id="y")]),
    ):
        with pytest.raises(Refused, match=r"another passage (passage-x|y) already"):
            await catalog.insert(where, passages)
    assert await catalog.count(two) == (0, 0)
    elsewhere = catalog.of("other")
    there = await elsewhere.add(Archive("notes"))
    await elsewhere.insert(there.id, [Passage("text", id="passage-x")])
    kept = await elsewhere.passage("passage-x")
    assert kept is not None
    assert kept.archive == there.id


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (Passage(" \n"), "passage 1 has no text"),
        (Passage("half \ud83d"), "half a surrogate"),
        (Passage("text", tags=("a", " ")), "an empty tag"),
        (Passage("text", metadata={"x": float("nan")}), "nan"),
        (Passage("text", metadata={"x": object()}), "JSON cannot carry"),
        (Passage("text", part=1 << 70), "count parts from 0"),
    ],
)
async def test_one_wrong_passage_and_none_is_kept(catalog: Catalog, wrong: Passage, says: str) -> None:
    where = await archive(catalog, "before")
    with pytest.raises(Invalid, match=says) as caught:
        await catalog.insert(where, [Passage("good"), wrong])
    assert isinstance(caught.value, NotJson) == ("x" in wrong.metadata)
    assert [one.text for one in await catalog.passages(where)] == ["before"]
    assert await said(catalog, where, "good") == []


# --- by words


async def test_words_are_found_in_any_form_and_the_best_comes_first(catalog: Catalog) -> None:
    where = await archive(
        catalog, "Refunds are paid within ten days.", "The café pays refunds to travellers.", "Nothing of the kind."
    )
    assert await said(catalog, where, "How is a refund paid?") == [
        "Refunds are paid within ten days.",
        "The café pays refunds to travellers.",
    ]
    assert await said(catalog, where, "CAFE traveller") == ["The café pays refunds to travellers."]
    (hit, *_) = await catalog.search([where], "refunds within days")
    assert hit.meaning is None
    assert hit.score == hit.words == 1.0
    assert hit.why.startswith("words only: ")
    assert {"refunds", "days"} == set(hit.why.removeprefix("words only: ").split(", "))


async def test_identifiers_and_quotes_are_found_as_they_are(catalog: Catalog) -> None:
    texts = [
        "ERR-4021: disk",
        "ERR-4022: disk",
        "4021 and ERR apart",
        "table FX_20731",
        "new york taxi",
        "york new taxi",
    ]
    where = await archive(catalog, *texts)
    assert await said(catalog, where, "ERR-4021") == ["ERR-4021: disk"]
    assert await said(catalog, where, "what is FX_20731?") == ["table FX_20731"]
    assert await said(catalog, where, 'the "new york" one') == ["new york taxi"]
    assert await said(catalog, where, "“york new”") == ["york new taxi"]


async def test_a_question_of_small_words_alone_is_looked_for_as_a_phrase(catalog: Catalog) -> None:
    where = await archive(catalog, "to be or not to be", "be to or not")
    assert await said(catalog, where, "not to be") == ["to be or not to be"]


async def test_common_words_serve_where_rare_ones_find_too_little(catalog: Catalog) -> None:
    where = await archive(catalog, "the oldest zebra")
    for start in range(0, 6_000, 1_000):
        await catalog.insert(where, [Passage(f"invoice number {n}") for n in range(start, start + 1_000)])
    await catalog.insert(where, [Passage("an invoice for the zebra")])
    told = await said(catalog, where, "zebra invoice", limit=5)
    assert set(told[:2]) == {"the oldest zebra", "an invoice for the zebra"}
    assert len(told) == 5
    assert len(await said(catalog, where, "invoice number", limit=7)) == 7


@pytest.mark.parametrize("query", ["", " ", "?!", "\x00", "\ud800", "🦩", '"', '""', "*"])
async def test_a_question_without_words_finds_nothing(catalog: Catalog, query: str) -> None:
    where = await archive(catalog, "text", "🦩 flamingo")
    assert await said(catalog, where, query) == []


NASTY = st.lists(
    st.sampled_from([*"\"'*^(){}[]:-+~.\\/;%_,\x00\n ªéßΣ日🦩\ud800ab1", " AND ", " OR ", " NOT ", "NEAR(", "text:"])
).map("".join)


@SHORT
@given(query=st.one_of(NASTY, st.text()))
def test_no_question_is_read_as_query_syntax(nasty: tuple[Catalog, str], query: str) -> None:
    catalog, where = nasty
    for within in (Filter(), Filter(tags=("t",))):
        hits = asyncio.run(catalog.search([where], query, within=within))
        assert all(hit.passage.text == "text a b ab 1 near or and not é ß" for hit in hits)
        asyncio.run(catalog.search([where], query, vector(1.0, 0.5), within=within))


@pytest.fixture
def nasty(catalog: Catalog) -> tuple[Catalog, str]:
    async def fill() -> str:
        where = await archive(catalog)
        passage = Passage("text a b ab 1 near or and not é ß", tags=("t",))
        await catalog.insert(where, [passage], [vector(1.0, 1.0)], handle=HANDLE)
        return where

    return catalog, asyncio.run(fill())


@given(st.text(max_size=300))
def test_terms_are_few_and_never_empty(query: str) -> None:
    found = terms(query)
    assert all(any(sign.isalnum() for sign in term) for term in found)
    assert len({term.casefold() for term in found}) == len(found)


async def test_a_very_long_question_is_answered_in_time(catalog: Catalog) -> None:
    where = await archive(catalog, "needle in the stack", *(f"straw {n}" for n in range(500)))
    assert await said(catalog, where, "needle " + "straw hay " * 100_000, limit=1) == ["needle in the stack"]


# --- by both


async def test_meaning_finds_what_words_do_not_and_names_decide_among_the_alike(catalog: Catalog) -> None:
    where = await archive(catalog)
    texts = {"ORD-4711 was late": (1.0, 0.1), "ORD-4712 was late": (1.0, 0.0), "a fine soup": (0.0, 1.0)}
    await catalog.insert(where, [Passage(text) for text in texts], [vector(*v) for v in texts.values()], handle=HANDLE)
    hits = await catalog.search([where], "delivery took too long", vector(1.0, 0.0), limit=2)
    assert [hit.passage.text for hit in hits] == ["ORD-4712 was late", "ORD-4711 was late"]
    assert hits[0].meaning == pytest.approx(1.0)
    assert hits[0].words == 0.0
    (hit, *_) = await catalog.search([where], "delivery of ORD-4711?", vector(1.0, 0.0))
    assert hit.meaning == pytest.approx(0.995, abs=1e-3)
    assert hit.score == pytest.approx((hit.meaning or 0.0) + hit.words)


async def test_a_name_is_found_though_many_are_nearer_in_meaning(catalog: Catalog) -> None:
    where = await archive(catalog)
    rng = random.Random(1)
    passages = [Passage(f"note {n}") for n in range(600)] + [Passage("Zylinski called")]
    vectors = [vector(rng.uniform(0.01, 0.02), 1.0, 0.0) for _ in range(600)] + [vector(0.0, 0.0, 1.0)]
    await catalog.insert(where, passages, vectors, handle=HANDLE)
    (hit, other) = await catalog.search([where], "What does Zylinski want?", vector(1.0, 0.0, 0.0), limit=2)
    assert hit.passage.text == "Zylinski called"
    assert hit.meaning == pytest.approx(0.0, abs=1e-6)
    assert hit.words > 0.02 > (other.meaning or 0.0) > 0.015
    assert "has Zylinski" in hit.why


async def test_passages_still_without_vectors_are_found_by_words_and_can_be_given_them(catalog: Catalog) -> None:
    where = await archive(catalog)
    await catalog.insert(where, [Passage("a dressed one")], [vector(1.0, 0.0)], handle=HANDLE)
    await catalog.insert(where, [Passage("a bare passage"), Passage("bare as well")])
    assert await catalog.count(where) == (3, 1)
    unembedded = await catalog.unembedded(where)
    assert [one.text for one in unembedded] == ["a bare passage", "bare as well"]
    assert len(await catalog.unembedded(where, limit=1)) == 1
    hits = await catalog.search([where], "the passage please", vector(1.0, 0.0))
    assert {hit.passage.text: hit.meaning is None for hit in hits} == {"a dressed one": False, "a bare passage": True}
    given = {one.id: vector(0.0, 1.0 + at) for at, one in enumerate(unembedded)}
    assert await catalog.add_vectors(where, given | {"passage-unknown": vector(1.0, 1.0)}, handle=HANDLE) == 2
    assert await catalog.add_vectors(where, given, handle=HANDLE) == 0
    assert await catalog.unembedded(where) == []
    assert await catalog.count(where) == (3, 3)
    hits = await catalog.search([where], "", vector(0.0, 1.0), limit=2)
    assert [hit.passage.text for hit in hits] == ["a bare passage", "bare as well"]
    with pytest.raises(Invalid, match="these are of other:model"):
        await catalog.add_vectors(where, {unembedded[0].id: vector(1.0, 0.0)}, handle="other:model")


async def test_a_known_text_that_comes_with_a_vector_takes_it(catalog: Catalog) -> None:
    where = await archive(catalog, "text")
    (told,) = await catalog.insert(where, [Passage("text")], [vector(1.0, 0.0)], handle=HANDLE)
    assert not told.new
    assert await catalog.count(where) == (1, 1)


async def test_several_archives_are_searched_at_once_and_no_others(catalog: Catalog) -> None:
    one = await archive(catalog, "red apple", "green pear")
    two = await archive(catalog, "red car")
    three = await archive(catalog, "red sea")
    hits = await catalog.search([one, two], "red")
    assert {hit.passage.text: hit.passage.archive for hit in hits} == {"red apple": one, "red car": two}
    empty = await archive(catalog)
    await catalog.insert(three, [Passage("red tape")], [vector(1.0, 0.0)], handle=HANDLE)
    hits = await catalog.search([one, three, empty], "red", vector(1.0, 0.0))
    assert {hit.passage.text for hit in hits} == {"red apple", "red sea", "red tape"}
    with pytest.raises(Unknown):
        await catalog.search([one, "archive-unknown"], "red")
    with pytest.raises(Unknown):
        await catalog.of("other").search([one], "red")


# --- filters, against what plain Python makes of them


WORDS = ("alpha", "beta", "gamma", "delta")
TAGS = ("red", "green", "blue", "odd tag, with \" signs '")
PASSAGES = st.builds(
    Passage,
    text=st.text(string.ascii_lowercase, min_size=3, max_size=8).map("alpha {}".format),
    tags=st.lists(st.sampled_from(TAGS), max_size=3).map(tuple),
    created=st.sampled_from((1.0, 2.0, 3.0)),
    origin=st.builds(
        Origin,
        by=st.sampled_from(("worker", "person")),
        name=st.sampled_from(("", "ann", "bob")),
        run=st.sampled_from(("", "r1", "r2")),
        task=st.sampled_from(("", "t1")),
        source=st.sampled_from(("", "a.txt")),
    ),
)
FILTERS = st.builds(
    Filter,
    tags=st.lists(st.sampled_from(TAGS), max_size=2).map(tuple),
    tag_match=st.sampled_from(("any", "all")),
    start=st.sampled_from((None, 1.0, 2.0, 2.5)),
    end=st.sampled_from((None, 1.0, 2.0, 2.5)),
    source=st.sampled_from(("", "a.txt")),
    run=st.sampled_from(("", "", "r1")),
    task=st.sampled_from(("", "", "t1")),
    worker=st.sampled_from(("", "", "ann")),
)


def passes(one: Passage, within: Filter) -> bool:
    held = [tag in one.tags for tag in within.tags]
    worker = one.origin.name if one.origin.by == "worker" else ""
    return all(
        (
            not held or (all(held) if within.tag_match == "all" else any(held)),
            within.start is None or one.created >= within.start,
            within.end is None or one.created <= within.end,
            within.source in ("", one.origin.source),
            within.run in ("", one.origin.run),
            within.task in ("", one.origin.task),
            within.worker in ("", worker),
        )
    )


@SHORT
@given(passages=st.lists(PASSAGES, max_size=25, unique_by=lambda one: one.text), within=FILTERS)
def test_filters_do_what_they_say_by_words_by_meaning_and_in_listings(
    catalog: Catalog, passages: list[Passage], within: Filter
) -> None:
    async def all_ways() -> None:
        where = await archive(catalog)
        await catalog.insert(where, passages, [vector(1.0, at) for at in range(len(passages))], handle=HANDLE)
        decoy = await archive(catalog)
        await catalog.insert(decoy, passages)
        wanted = [one.text for one in passages if passes(one, within)]
        assert [one.text for one in await catalog.passages(where, within=within)] == wanted
        by_words = await catalog.search([where], "alpha", within=within, limit=100)
        by_meaning = await catalog.search([where], "", vector(1.0, 1.0), within=within, limit=100)
        by_both = await catalog.search([where], "alpha", vector(1.0, 1.0), within=within, limit=100)
        for hits in (by_words, by_meaning, by_both):
            assert sorted(hit.passage.text for hit in hits) == sorted(wanted)

    asyncio.run(all_ways())


# --- listing and deleting


async def test_listing_goes_page_by_page_in_the_order_of_inserting(catalog: Catalog) -> None:
    where = await archive(catalog, *(f"text {n}" for n in range(25)))
    await archive(catalog, "another's")
    ways: dict[Order, range] = {"asc": range(25), "desc": range(24, -1, -1)}
    for order, wanted in ways.items():
        told: list[str] = []
        after = ""
        while page := await catalog.passages(where, after=after, limit=7, order=order):
            told += [one.text for one in page]
            after = page[-1].id
        assert told == [f"text {n}" for n in wanted]
    assert await catalog.passages(where, limit=0) == []
    with pytest.raises(Unknown, match="start again without"):
        await catalog.passages(where, after="passage-unknown")


async def test_what_is_forgotten_is_found_no_more_and_may_come_again(catalog: Catalog) -> None:
    where = await archive(catalog)
    other = await archive(catalog, "blue sky")
    texts = ["blue sky", "blue sea"]
    told = await catalog.insert(
        where, [Passage(text, tags=("t",)) for text in texts], [vector(1.0, 0.0), vector(0.9, 0.1)], handle=HANDLE
    )
    assert len(await catalog.search([where], "", vector(1.0, 0.0))) == 2
    assert await catalog.forget(other, [told[0].id]) == 0
    assert await catalog.forget(where, [told[0].id, told[0].id, "passage-unknown"]) == 1
    assert await catalog.forget(where, [told[0].id]) == 0
    assert await catalog.forget(where, []) == 0
    assert await catalog.passage(told[0].id) is None
    assert await catalog.count(where) == (1, 1)
    assert await said(catalog, where, "blue") == ["blue sea"]
    assert await said(catalog, where, "blue", Filter(tags=("t",))) == ["blue sea"]
    assert [hit.passage.text for hit in await catalog.search([where], "", vector(1.0, 0.0))] == ["blue sea"]
    (again,) = await catalog.insert(where, [Passage("blue sky")])
    assert again.new
    assert await said(catalog, other, "blue") == ["blue sky"]


async def test_with_an_archive_all_its_passages_go(catalog: Catalog) -> None:
    where = await archive(catalog)
    other = await archive(catalog, "blue sky")
    passages = [Passage(f"blue {n}", tags=("t",)) for n in range(50)]
    await catalog.insert(where, passages, [vector(1.0, n) for n in range(50)], handle=HANDLE)
    assert len(await catalog.search([where], "blue", vector(1.0, 0.0), limit=100)) == 50
    assert await catalog.delete(Archive, where)
    assert await said(catalog, other, "blue") == ["blue sky"]
    again = await archive(catalog, "blue moon")
    assert [hit.passage.text for hit in await catalog.search([again], "blue", vector(1.0, 0.0))] == ["blue moon"]
    assert [hit.passage.text for hit in await catalog.search([again, other], "blue", limit=100)].count("blue 1") == 0


# --- processes

OTHER = """
import asyncio, struct, sys
from chargehand.memory.archives import Passage
from chargehand.memory.session import open_catalog

async def main():
    catalog = await open_catalog(sys.argv[1])
    given = [struct.pack("<2f", 0.0, 1.0)]
    told = await catalog.insert(sys.argv[2], [Passage("from far away")], given, handle="test:model")
    await catalog.close()
    print(told[0].id)

asyncio.run(main())
"""


async def test_what_another_process_inserts_is_found_by_this_ones_index(catalog_url: str) -> None:
    if catalog_url == MEMORY:
        return  # it ends with its process
    catalog = await open_catalog(catalog_url)
    where = await archive(catalog)
    await catalog.insert(where, [Passage("from here")], [vector(1.0, 0.0)], handle=HANDLE)
    assert len(await catalog.search([where], "", vector(0.0, 1.0))) == 1
    told = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", OTHER, catalog_url, where],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    hits = await catalog.search([where], "far", vector(0.0, 1.0))
    assert [hit.passage.text for hit in hits] == ["from far away", "from here"]
    assert hits[0].passage.id == told.stdout.strip()
    await catalog.forget(where, [hits[0].passage.id])
    assert [hit.passage.text for hit in await catalog.search([where], "far", vector(0.0, 1.0))] == ["from here"]
    await catalog.close()


async def test_searches_and_inserts_at_the_same_time_do_not_disturb_each_other(catalog_url: str) -> None:
    catalog = await open_catalog(catalog_url, durability="process")
    where = await archive(catalog)

    async def insert(who: int) -> None:
        for turn in range(20):
            passages = [Passage(f"by {who} in turn {turn}, {n}") for n in range(10)]
            await catalog.insert(where, passages, [vector(who + 1.0, turn, n) for n in range(10)], handle=HANDLE)

    async def search() -> None:
        for turn in range(40):
            hits = await catalog.search([where], f"turn {turn}", vector(1.0, turn, 1.0), limit=50)
            assert len({hit.passage.id for hit in hits}) == len(hits)

    async with asyncio.TaskGroup() as group:
        for who in range(3):
            group.create_task(insert(who))
            group.create_task(search())
    assert await catalog.count(where) == (600, 600)
    assert len(await catalog.search([where], "", vector(1.0, 1.0, 1.0), limit=1000)) == 600
    await catalog.close()
