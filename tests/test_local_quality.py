"""What the measurement of small models counts as invented."""

from msgspec import Raw

from bench.local_quality import invented_numbers, written_text
from bench.local_requests import Asked
from chargehand.agents.result import Result
from chargehand.engine import events as ev
from chargehand.engine.budget import NOTHING
from chargehand.engine.plan import Plan


def test_numbers_in_sections_below_the_answer_are_not_invented() -> None:
    asked = Asked("shop", "What do 40 cost?", {}, list)
    section = ev.AnswerSection("gaps", "Not answered:\n- t1: 17 calls failed")
    written = ev.AnswerWritten(1, Raw(b'"All 40 cost 123.45 euros."'), (section,))
    result = Result(
        run="r",
        ending="complete",
        reason="done",
        answer="All 40 cost 123.45 euros.\n\nNot answered:\n- t1: 17 calls failed",
        plan=Plan(()),
        results={},
        gaps=(),
        spent=NOTHING,
        entries=(ev.Entry(1, 0.0, written),),
    )
    assert invented_numbers(asked, result) == ("123.45",)
    assert written_text(result) == "All 40 cost 123.45 euros."
