"""More results than a window holds: shortened in pieces, side by side, every piece with the tasks it comes from."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from chargehand.agents.roles import Worker
from chargehand.agents.spending import Spending
from chargehand.agents.writer import Piece, WriterCalls, cut_evenly, group_pieces, join_pieces, reduce_results
from chargehand.engine import events as ev
from chargehand.engine.budget import Amount, Budget
from chargehand.engine.failure import Failure
from chargehand.models.messages import Reply, Request, Settings, Usage
from chargehand.models.model import ModelCard
from chargehand.models.request_facts import Planning, Working
from chargehand.models.testing.scripted import Line, ScriptedModel
from chargehand.models.token_count import count_tokens
from chargehand.runtime.executor import WorkFailed
from tests.agents.crowd import model, plan, team
from tests.agents.judges import Desk, writer
from tests.runtime.test_nesting import kept_within

SMALL = ModelCard("small", window=2000, micros_in=0.0, micros_out=0.0)


def results(*texts: str) -> list[Piece]:
    return [Piece(text, (f"t{n}",), f"task t{n}, ann: count") for n, text in enumerate(texts, 1)]


async def reduced(calls: WriterCalls, *texts: str) -> str:
    return join_pieces(await reduce_results(calls, "Count", results(*texts), "ab12"), "ab12")


def test_pieces_are_cut_between_results_and_name_their_tasks() -> None:
    found = group_pieces(results("apple " * 100, "pear " * 100, "plum " * 400), 1500)
    assert [[piece.tasks for piece in group] for group in found] == [[("t1",), ("t2",)], [("t3",)], [("t3",)]]


@given(st.lists(st.text(max_size=400), min_size=1, max_size=6), st.integers(20, 500))
def test_no_character_of_the_results_is_lost_between_pieces(texts: list[str], size: int) -> None:
    found = group_pieces(results(*texts), size)
    assert "".join(piece.text for group in found for piece in group) == "".join(texts)
    assert all(sum(len(piece.text) for piece in group) <= size for group in found)


@given(st.integers(1, 400), st.integers(200, 900), st.sampled_from(["\n", "\\n", " "]))
def test_no_statement_is_cut_in_two_that_is_shorter_than_a_quarter_of_a_piece(
    count: int, size: int, between: str
) -> None:
    said = [f"Station {number} had a gust." for number in range(count)]
    texts = [piece.text for group in group_pieces(results(between.join(said)), size) for piece in group]
    assert [one for one in said if not any(one in text for text in texts)] == []


async def test_what_fits_is_left_as_it_is() -> None:
    script = ScriptedModel([], card=SMALL)
    text = "apple " * 100
    assert await reduced(WriterCalls(writer(script), Desk()), text) == join_pieces(results(text), "ab12")
    assert script.requests == []


async def test_pieces_are_shortened_side_by_side_and_keep_their_task_ids() -> None:
    at_once = 0
    most = 0

    async def shorten(request: Request) -> Line:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.02)
        at_once -= 1
        return "kept [t1]" if "apple" in request.messages[1].text else "kept"

    script = ScriptedModel(shorten, usage=Usage(10, 5), micros=7, card=SMALL)
    made = WriterCalls(writer(script), desk := Desk())
    text = await reduced(made, "apple " * 400, "pear " * 500, "plum " * 500)
    assert text == "kept [t1]\n\n[t2]: kept\n\n[t3]: kept"
    assert most == 3
    assert made.total() == Amount(45, 21, 3)
    assert "they are reduced first" in desk.notes[0]


async def test_what_is_still_too_long_is_reduced_again_and_keeps_its_task_ids() -> None:
    script = ScriptedModel(lambda _: "half " * 400 if len(script.requests) <= 4 else "short", card=SMALL)
    text = await reduced(WriterCalls(writer(script), Desk()), *["apple " * 450] * 4)
    assert len(script.requests) > 4
    assert text == "[t1]: short\n\n[t2]: short\n\n[t3]: short\n\n[t4]: short"


async def test_a_model_that_does_not_shorten_ends_with_a_cut_and_is_not_asked_for_ever() -> None:
    script = ScriptedModel(lambda request: request.messages[1].text * 2, card=SMALL)
    desk = Desk()
    text = await reduced(WriterCalls(writer(script), desk), *["apple " * 450] * 4)
    assert len(script.requests) <= 4
    assert count_tokens(text) <= 1000
    assert "cut" in desk.notes[-1]


async def test_a_piece_that_fails_fails_the_answer_once() -> None:
    script = ScriptedModel(lambda _: Failure("network", "gone"), card=SMALL)
    with pytest.raises(WorkFailed, match="gone"):
        await reduced(WriterCalls(writer(script), Desk()), *["apple " * 450] * 3)


async def test_reduced_results_reach_the_answer_and_every_call_is_paid() -> None:
    jobs = (("Count the apples in the cellar.", "ann", ()), ("Count the pears in the attic.", "ann", ()))
    workers = model(plans=[plan(*jobs, combine="reduce")], work=["apple " * 2000, "pear " * 2000])

    def shorten(request: Request) -> Line:
        return Reply("It is so [t1].") if request.subject else Reply("many")

    judge = ScriptedModel(shorten, usage=Usage(10, 5), micros=7, card=SMALL)
    found = await team(workers, judge=judge).run("Count")
    assert str(found.answer) == "It is so [t1]."
    assert len(judge.requests) > 2
    assert "[t1" in judge.requests[-1].messages[1].text
    assert "t2]: many" in judge.requests[-1].messages[1].text
    assert found.spent.calls == len(judge.requests) + len(workers.requests)


async def test_an_answer_from_results_that_had_to_be_cut_says_so() -> None:
    jobs = (("Count the apples in the cellar.", "ann", ()), ("Count the pears in the attic.", "ann", ()))
    workers = model(plans=[plan(*jobs, combine="reduce")], work=["apple " * 2000, "pear " * 2000])
    judge = ScriptedModel(lambda asked: "So [t1] [t2]." if asked.subject else asked.messages[1].text * 2, card=SMALL)
    found = await team(workers, judge=judge).run("Count")
    said = "Not all of the results were read: the results could not be reduced enough: all of them are cut."
    assert str(found.answer) == f"So [t1] [t2].\n\n{said}"
    assert found.claims == (), "what we say below an answer is nothing it claims"


async def test_pieces_beyond_what_a_round_holds_are_named_in_the_answer() -> None:
    judge = ScriptedModel(lambda asked: "So [t1]." if asked.subject else "few", card=SMALL)
    workers = model(
        plans=[plan(("Count the apples in the cellar.", "ann", ()), combine="reduce")], work=["an apple " * 28000]
    )
    found = await team(workers, judge=judge).run("Count")
    assert "pieces of the results are too much and left out." in str(found.answer)


async def test_a_round_that_cannot_be_paid_for_is_not_begun_and_all_results_are_cut_alike() -> None:
    script = ScriptedModel(lambda _: "short", card=SMALL)
    held = structs.replace(writer(script), reserve=Amount(4000, 0, 1), spending=Spending(Budget(calls=1)))
    desk = Desk(spending=0)
    text = await reduced(WriterCalls(held, desk), "apple " * 50, *["pear " * 900] * 4)
    assert script.requests == []
    assert count_tokens(text) <= 1000
    assert text.count("<data ab12") == text.count("</data ab12>") == 5, "what is cut is still marked as data"
    assert text.count("cut here") == 4
    assert "the budget does not cover" in desk.notes[-1]


@given(st.lists(st.text(max_size=3000), min_size=1, max_size=8), st.integers(500, 5000))
def test_what_is_cut_evenly_fits_and_leaves_nobody_out(texts: list[str], size: int) -> None:
    found = join_pieces(cut_evenly(results(*texts), size), "ab12")
    assert len(found.encode()) <= size + 250 * len(texts), "each may end with a note on what was cut"
    assert all(f"task t{number}, " in found for number in range(1, len(texts) + 1))


@pytest.mark.parametrize("most", range(3, 30))
async def test_however_little_there_is_no_more_is_spent_on_an_answer_than_the_caps_allow(most: int) -> None:
    jobs = (("Count the apples in the cellar.", "ann", ()), ("Count the pears in the attic.", "ann", ()))
    workers = model(plans=[plan(*jobs, combine="reduce")], work=["apple " * 4000, "pear " * 4000])
    judge = ScriptedModel(
        lambda request: Reply("It is so [t1].") if request.subject else Reply("many"), usage=Usage(10, 5), card=SMALL
    )
    found = await team(workers, judge=judge, budget=Budget(calls=most)).run("Count")
    assert len(judge.requests) + len(workers.requests) <= most
    assert kept_within(found.entries).calls == found.spent.calls
    if most >= 4:
        assert "It is so [t1]." in str(found.answer), "cut or reduced: there is an answer"


async def test_a_result_longer_than_what_is_held_for_the_answer_is_held_for_or_cut() -> None:
    dear = ModelCard("dear", micros_in=1.0, micros_out=1.0)
    jobs = (("Count the apples in the cellar.", "ann", ()), ("Count the pears in the attic.", "ann", ()))
    read: list[int] = []

    def line(request: Request) -> Line:
        size = sum(count_tokens(one.text) for one in request.messages)
        match request.subject:
            case Planning():
                return Reply(plan(*jobs), usage=Usage(size, 100), micros=size + 100)
            case Working():
                return Reply("apple " * 2500, usage=Usage(size, 1000), micros=size + 1000)
            case _:
                read.append(size)
                return Reply("Many [t1] [t2].", usage=Usage(size, 500), micros=size + 500)

    for cap in range(9_000, 24_000, 500):
        read.clear()
        ann = Worker("ann", settings=Settings(max_tokens=1000))
        found = await team(ScriptedModel(line, card=dear), ann, budget=Budget(usd=cap / 1_000_000)).run("Count")
        assert found.spent.micros <= cap
        kept_within(found.entries)
        if read and read[0] > 3500:
            assert any(
                isinstance(one.event, ev.SupervisionStarted) and one.event.duty == "answer" and one.event.number == 1
                for one in found.entries[-8:]
            ), "it was held before it was spent"
    assert max(read) > 4000, "with enough money it reads all of it"
