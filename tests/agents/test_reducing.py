"""More results than a window holds: shortened in pieces, side by side, every piece with the tasks it comes from."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chargehand.agents.asking import Bill
from chargehand.agents.crew import WorkFailed
from chargehand.agents.reducing import by_result, pieces, reduced
from chargehand.models.envelope import wrap
from chargehand.models.messages import Reply, Request, Usage
from chargehand.models.model import ModelCard
from chargehand.models.scripted import Line, ScriptedModel
from chargehand.terms.budget import Amount
from chargehand.terms.failure import Failure
from tests.agents.crowd import model, plan, team
from tests.agents.judges import Desk, writer

SMALL = ModelCard("small", window=2000, micros_in=0.0, micros_out=0.0)


def results(*texts: str) -> str:
    return "\n\n".join(wrap("ab12", f"task t{n}, ann: count", text) for n, text in enumerate(texts, 1))


def test_pieces_are_cut_between_results_and_name_their_tasks() -> None:
    found = pieces(by_result(results("apple " * 100, "pear " * 100, "plum " * 300)), 1500)
    assert [tasks for _, tasks in found] == [("t1", "t2"), ("t3",), ("t3",)]
    assert all(len(piece) <= 1500 for piece, _ in found)


@given(st.lists(st.text(max_size=400), min_size=1, max_size=6), st.integers(20, 500))
def test_no_character_of_the_results_is_lost_between_pieces(texts: list[str], size: int) -> None:
    whole = results(*texts)
    found = pieces(by_result(whole), size)
    assert "".join(piece for piece, _ in found) == whole
    assert all(len(piece) <= size for piece, _ in found)


async def test_what_fits_is_left_as_it_is() -> None:
    script = ScriptedModel([], card=SMALL)
    text = results("apple " * 100)
    assert await reduced(writer(script), Bill(), Desk(), "Count", text) == text
    assert script.requests == []


async def test_pieces_are_shortened_side_by_side_and_keep_their_task_ids() -> None:
    at_once, most = 0, 0

    async def shorten(request: Request) -> Line:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.02)
        at_once -= 1
        return "kept [t1]" if "apple" in request.messages[1].text else "kept"

    script = ScriptedModel(shorten, usage=Usage(10, 5), micros=7, card=SMALL)
    bill, desk = Bill(), Desk()
    text = await reduced(writer(script), bill, desk, "Count", results("apple " * 400, "pear " * 500, "plum " * 500))
    assert text == "kept [t1]\n\n[t2]: kept\n\n[t3]: kept"
    assert most == 3
    assert bill.total() == Amount(45, 21, 3)
    assert "they are reduced first" in desk.notes[0]


async def test_what_is_still_too_long_is_reduced_again_and_keeps_its_task_ids() -> None:
    script = ScriptedModel(lambda _: "half " * 300 if len(script.requests) <= 4 else "short", card=SMALL)
    text = await reduced(writer(script), Bill(), Desk(), "Count", results(*["apple " * 450] * 4))
    assert len(script.requests) > 4
    assert text == "[t1]: short\n\n[t2]: short\n\n[t3]: short\n\n[t4]: short"


async def test_a_model_that_does_not_shorten_ends_with_a_cut_and_is_not_asked_for_ever() -> None:
    script = ScriptedModel(lambda request: request.messages[1].text * 2, card=SMALL)
    desk = Desk()
    text = await reduced(writer(script), Bill(), desk, "Count", results(*["apple " * 450] * 4))
    assert len(script.requests) <= 4
    assert len(text) < 4000
    assert "cut" in desk.notes[-1]


async def test_a_piece_that_fails_fails_the_answer_once() -> None:
    script = ScriptedModel(lambda _: Failure("network", "gone"), card=SMALL)
    with pytest.raises(WorkFailed, match="gone"):
        await reduced(writer(script), Bill(), Desk(), "Count", results(*["apple " * 450] * 3))


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
