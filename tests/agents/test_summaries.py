"""Summaries of what a worker was asked before: each stands for the former one, too."""

import re
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chargehand.agents.recall import quote_for_summary
from chargehand.memory.conversations import Turn
from chargehand.models.token_count import TokenRates


def facts_in(text: str) -> list[int]:
    return [int(fact) for fact in dict.fromkeys(re.findall(r"F(\d+) holds", text))]


def turns_with(facts: Sequence[int], length: int) -> list[Turn]:
    return [Turn("user", f"F{fact} holds. {'x' * length}", fact + 1) for fact in facts]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 30), min_size=2, max_size=6), st.integers(0, 3000))
def test_a_model_that_keeps_each_fact_it_is_shown_loses_none(rounds: list[int], length: int) -> None:
    """Each round some turns get behind a summary, which a perfect model writes from what it is shown."""
    known = 0
    former: list[Turn] = []
    for count in rounds:
        quoted = quote_for_summary([*former, *turns_with(range(known, known + count), length)], 6000, TokenRates())
        known += count
        assert facts_in(quoted) == list(range(known))
        text = " ".join(f"F{fact} holds." for fact in facts_in(quoted))
        former = [Turn("summary", text, known + 1000, upto=known)]


def test_turns_that_have_no_room_are_counted() -> None:
    former = Turn("summary", "F7 holds.", 5000, upto=7)
    quoted = quote_for_summary([*turns_with(range(10, 1010), 0), former], 4000, TokenRates())
    shown = facts_in(quoted)
    assert shown[0] == 7, "the former summary is first, wherever it stood"
    assert shown[-1] == 1009
    assert f"… {1000 - len(shown) + 1} turns are left out here …" in quoted


@pytest.mark.parametrize("former", ["", "What was before."])
def test_a_turn_that_is_cut_says_so(former: str) -> None:
    summary = [Turn("summary", former, 99, upto=1)] if former else []
    quoted = quote_for_summary([*summary, *turns_with([1, 2], 9000)], 600, TokenRates())
    assert facts_in(quoted) == [1, 2]
    assert len(re.findall(r"… [\d,]+ characters are left out here …", quoted)) == 2
