"""What the measurement of small models counts as invented."""

from bench.local_quality import invented_numbers, without_notes
from bench.local_requests import Asked
from chargehand.agents.answer import CUT, MISSING, NOT_WHOLE
from chargehand.agents.audit.report import COUNTED, UNTRACED
from chargehand.engine.budget import NOTHING
from chargehand.engine.plan import Plan
from chargehand.runtime.result import Result

_NOTHING_CALLED = Result(
    run="r",
    ending="complete",
    reason="done",
    answer="",
    plan=Plan(()),
    results={},
    gaps=(),
    spent=NOTHING,
    entries=(),
)


def test_numbers_in_notes_of_our_own_are_not_invented() -> None:
    asked = Asked("shop", "What do 40 cost?", {}, list)
    notes = [
        f"{NOT_WHOLE}the reply was cut off after 1,024 tokens; raise max_tokens or the budget, or ask for less.",
        f"{CUT}3 results of 1,234 bytes.",
        f"{MISSING}\n- t1: 17 calls failed",
        f"{UNTRACED}\n- 99",
        f"{COUNTED}5 figures traced to tools.",
    ]
    answer = "\n\n".join(["All 40 cost 123.45 euros.", *notes])
    assert invented_numbers(asked, _NOTHING_CALLED, answer) == ("123.45",)
    assert without_notes(answer) == "All 40 cost 123.45 euros."
