"""What lessons do to a decision: within bounds, only for like requests, and undone by what is said later."""

import math
import random

import pytest

from chargehand.agents.routers.decision import Decision, nobody
from chargehand.agents.routers.lessons import FIRM, MILD, NEAREST, Near, leanings, learnt, telling
from chargehand.agents.routers.likeness import Once, Vectors, Words
from chargehand.agents.routers.notebook import Notebook, notebook
from chargehand.stores.lessons import SOURCES, Lesson, Lessons, Source
from chargehand.stores.memory import MemoryJournal
from tests.agents.test_routers import Bag, Dead

NAMES = ("baker", "smith", "clerk")
TIE = Decision(
    worker="baker",
    second="smith",
    confidence=0.5,
    scores=(("baker", 0.5), ("smith", 0.45), ("clerk", 0.05)),
    why="by the cards",
    router="meaning",
)
CLEAR = Decision(
    worker="baker",
    second="smith",
    confidence=0.97,
    scores=(("baker", 0.991), ("smith", 0.009)),
    why="by the cards",
    router="meaning",
)


def near(
    worker: str, score: float = 1.0, source: Source = "feedback", likeness: float = 1.0, number: int = 1, run: str = ""
) -> Near:
    return Near(
        Lesson(
            request="mend the gate",
            worker=worker,
            score=score,
            source=source,
            run=run or f"r{number}",
            at=0.0,
            number=number,
        ),
        likeness,
    )


def test_without_lessons_it_is_the_very_same_decision() -> None:
    assert learnt(TIE, [], NAMES) is TIE
    assert learnt(TIE, [near("stranger")], NAMES) is TIE
    assert learnt(TIE, [near("smith", score=0.5)], NAMES) is TIE, "neither good nor bad"
    assert learnt(TIE, [near("smith", likeness=0.31)], NAMES) is TIE, "hardly like it"


def test_a_person_turns_what_is_not_clear_and_the_reason_says_so() -> None:
    found = learnt(TIE, [near("smith")], NAMES)
    assert (found.worker, found.second) == ("smith", "baker")
    assert found.confidence > TIE.confidence
    assert found.why == (
        "by the cards; learnt from 1 like request: smith 10.00 times as likely, so smith instead of baker"
    )
    assert math.isclose(sum(share for _, share in found.scores), 1.0, abs_tol=1e-3)


@pytest.mark.parametrize("source", SOURCES)
def test_whatever_is_said_how_often_a_clear_fit_stays(source: Source) -> None:
    flood = [near("smith", 1.0, source, number=at) for at in range(100)]
    flood += [near("baker", 0.0, source, number=at) for at in range(100, 200)]
    found = learnt(CLEAR, flood, NAMES)
    assert found.worker == "baker"
    assert dict(found.scores)["smith"] > 0.009, "but it is less clear than before"


def test_factors_stay_within_the_bounds_and_nobody_is_shut_out() -> None:
    chance = random.Random(3)
    for _ in range(300):
        found = [
            near(chance.choice(NAMES), chance.random(), chance.choice(SOURCES), chance.uniform(0.3, 1), at)
            for at in range(chance.randrange(1, 40))
        ]
        for lean in leanings(found).values():
            assert 1 / FIRM - 1e-9 <= math.exp(lean) <= FIRM + 1e-9
        after = learnt(TIE, found, NAMES)
        assert {name for name, share in after.scores if share > 0} == {name for name, _ in TIE.scores}
        assert 0 <= after.confidence <= 1


def test_that_runs_ended_well_shifts_little_however_many_did() -> None:
    many = [near("smith", 1.0, "outcome", number=at) for at in range(1000)]
    assert leanings(many)["smith"] == pytest.approx(math.log(MILD))
    assert learnt(TIE, many, NAMES).worker == "smith", "a near tie is turned"
    apart = Decision(
        worker="baker",
        second="smith",
        confidence=0.6,
        scores=(("baker", 0.6), ("smith", 0.4)),
        why="by the cards",
        router="meaning",
    )
    assert learnt(apart, many, NAMES).worker == "baker"


def test_a_person_outweighs_a_judge_and_a_judge_the_outcome_of_the_same_run() -> None:
    said = [
        Lesson(request="mend it", worker="smith", score=float(at % 2), source=source, run="one", at=0.0, number=at)
        for at, source in enumerate(SOURCES)
    ]
    assert [one.source for one in telling(said)] == ["feedback"]
    assert [one.source for one in telling(said[:2])] == ["judge"]
    pulls = [near("smith", 1.0, source).pull for source in SOURCES]
    assert pulls[0] < pulls[1] < pulls[2] <= pulls[3]


def test_of_the_same_request_what_was_said_last_counts() -> None:
    wrong = [
        Lesson(request="Mend the  gate", worker="clerk", score=1.0, source="feedback", run=f"r{at}", at=0.0, number=at)
        for at in range(1, 51)
    ]
    right = [
        Lesson(request="mend the gate", worker="clerk", score=0.0, source="feedback", run="r90", at=0.0, number=90),
        Lesson(request="mend the gate", worker="smith", score=1.0, source="feedback", run="r90", at=0.0, number=91),
        Lesson(request="mend the gate", worker="smith", score=0.0, source="outcome", run="r91", at=0.0, number=92),
    ]
    counted = telling([*right, *wrong])
    assert [(one.worker, one.score, one.source) for one in counted] == [
        ("clerk", 0.0, "feedback"),
        ("smith", 1.0, "feedback"),
    ]


def test_a_strangers_request_goes_to_whoever_did_the_same_well() -> None:
    stranger = nobody("meaning", "nothing is like it", (("clerk", 0.6),))
    found = learnt(stranger, [near("smith", likeness=0.9)], NAMES)
    assert (found.worker, found.confidence > 0.8) == ("smith", True)
    assert learnt(stranger, [near("smith", likeness=0.7)], NAMES) is stranger, "only like it"
    assert learnt(stranger, [near("smith", 1.0, "outcome", likeness=1.0)], NAMES) is stranger, "nobody judged it"
    assert learnt(stranger, [near("smith", 0.0)], NAMES) is stranger
    assert learnt(stranger, [near("smith")], ("baker", "clerk")) is stranger, "it has had it already"


def test_what_a_rule_says_is_never_turned() -> None:
    rule = Decision(
        worker="baker", second=None, confidence=1.0, scores=(("baker", 1.0),), why="the rule", router="rules"
    )
    assert learnt(rule, [near("smith"), near("baker", 0.0)], NAMES) is rule
    assert learnt(nobody("rules", "no rule matches"), [near("smith")], NAMES).worker is None


# --- which are like it


def test_likeness_by_words_is_the_share_of_words_that_both_have() -> None:
    found = Words(["mend the gate", "pay the bill of the baker", "mend the old gate by the river"]).near(
        "a gate to mend", 5
    )
    assert [at for at, _ in found] == [0, 2]
    assert found[0][1] == pytest.approx(1.0)
    assert Words(["mend the gate"]).near("", 5) == []


async def test_likeness_by_vectors_gives_the_nearest_first_and_leaves_out_what_has_nothing_to_do_with_it() -> None:
    bag = Bag()
    rows = Vectors(await bag.embed(["a letter", "the gate", "a gate and a horse"]), bag.width)
    (asked,) = await bag.embed(["that gate"])
    assert [at for at, _ in rows.near(asked, 10)] == [1, 2]
    assert len(rows.near(asked, 1)) == 1
    assert Vectors([], bag.width).near(asked, 10) == []


async def test_one_request_is_embedded_once() -> None:
    bag = Bag()
    once = Once(bag)
    assert await once.embed(["a gate"]) == await once.embed(["a gate"])
    assert await once.embed(["a gate", "a horse"]) == await bag.embed(["a gate", "a horse"])
    assert bag.asked.count(["a gate"]) == 1


# --- the notebook


def book() -> tuple[Lessons, Notebook]:
    store = MemoryJournal().lessons("shop")
    return store, notebook(store)


async def told(store: Lessons, run: str, request: str, worker: str, score: float = 1.0) -> None:
    await store.keep(run, "feedback", [Lesson(request, worker, score, "feedback", run)])


async def test_a_notebook_sees_what_was_written_since_it_looked() -> None:
    store, notes = book()
    assert await notes.consult(TIE, "mend the gate", NAMES, Bag()) is TIE
    await told(store, "one", "mend my gate", "smith")
    assert (await notes.consult(TIE, "mend the gate", NAMES, Bag())).worker == "smith"
    await told(store, "one", "mend my gate", "smith", 0.0)
    assert (await notes.consult(TIE, "mend the gate", NAMES, Bag())).worker == "baker"
    await store.forget()
    assert await notes.consult(TIE, "mend the gate", NAMES, Bag()) is TIE


async def test_each_lesson_is_embedded_once_and_its_vector_kept() -> None:
    store, notes = book()
    for at in range(5):
        await told(store, f"r{at}", f"gate number {at}", "smith")
    bag = Bag()
    await notes.consult(TIE, "the gate", NAMES, bag)
    await notes.consult(TIE, "the gate", NAMES, bag)
    assert sorted(len(texts) for texts in bag.asked) == [1, 1, 5]
    fresh = Bag()
    await notebook(MemoryJournal().lessons("other")).consult(TIE, "the gate", NAMES, fresh)
    assert fresh.asked == [], "nothing is embedded for a team without lessons"
    assert all(one.vector is not None for one in (await store.since("", 0, "bag")).lessons)


async def test_where_nothing_makes_vectors_words_tell_what_is_like_it() -> None:
    store, notes = book()
    await told(store, "one", "mend my gate", "smith")
    for embedding in (None, Dead()):
        assert (await notes.consult(TIE, "mend the gate", NAMES, embedding)).worker == "smith"
        assert await notes.consult(TIE, "write a letter", NAMES, embedding) is TIE


async def test_at_most_so_many_of_the_nearest_count() -> None:
    store, notes = book()
    for at in range(3 * NEAREST):
        await told(store, f"r{at}", f"gate number {at}", "smith")
        await store.keep(f"o{at}", "outcome", [Lesson(f"gate {at}", "smith", 1.0, "outcome", f"o{at}")])
    found = await notes.near("the gate", Bag())
    assert [sum(one.lesson.source == source for one in found) for source in ("feedback", "outcome")] == [NEAREST] * 2


async def test_how_runs_ended_is_taken_in_now_and_then_and_what_somebody_said_at_once() -> None:
    store, notes = book()
    for at in range(120):
        await store.keep(f"r{at}", "outcome", [Lesson(f"nail number {at}", "smith", 1.0, "outcome", f"r{at}")])
    assert len(await notes.lessons()) == 120
    for at in range(3):
        await store.keep(f"late{at}", "outcome", [Lesson(f"horse number {at}", "clerk", 1.0, "outcome", f"late{at}")])
        assert len(await notes.lessons()) == (120 if at < 2 else 123)
    await store.keep("more", "outcome", [Lesson("the letter", "clerk", 1.0, "outcome", "more")])
    await told(store, "said", "mend my gate", "smith")
    assert len(await notes.lessons()) == 125


async def test_a_request_that_was_routed_here_is_not_embedded_again_when_it_is_a_lesson() -> None:
    store, notes = book()
    await told(store, "one", "a horse", "smith")
    bag = Bag()
    await notes.consult(TIE, "the gate", NAMES, bag)
    await told(store, "two", "the gate", "smith")
    await notes.consult(TIE, "that gate", NAMES, bag)
    assert bag.asked == [["a horse"], ["the gate"], ["that gate"]]
