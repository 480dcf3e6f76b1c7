"""Going round in circles is noticed in three rounds; waiting and honest work never are."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chargehand.tools.rules import Repetition


def rounds(trace: list[tuple[str, str, str]]) -> int | None:
    """After how many calls the attempt counts as stuck."""
    seen = Repetition()
    for n, (tool, arguments, result) in enumerate(trace, 1):
        if seen.feed(tool, arguments, result).stuck:
            return n
    return None


def test_the_second_time_is_answered_with_a_warning_and_the_third_is_stuck() -> None:
    seen = Repetition()
    assert seen.feed("look", '{"a": 1}', "nothing").warning == ""
    second = seen.feed("look", '{"a": 1}', "nothing")
    assert "already called" in second.warning
    assert "nothing" in second.warning
    assert not second.stuck
    assert seen.feed("look", '{"a": 1}', "nothing").stuck


def test_the_order_of_keys_and_white_space_do_not_count() -> None:
    texts = ['{"a": 1, "b": 2}', '{"b":2,"a":1}', ' {"b" : 2, "a" : 1} ']
    assert rounds([("look", text, "x") for text in texts]) == 3


def test_arguments_that_are_not_json_are_compared_as_text() -> None:
    assert rounds([("look", "{oops", "not JSON")] * 3) == 3
    assert rounds([("look", "{oops" + "s" * n, "not JSON") for n in range(9)]) is None
    assert rounds([("look", "[" * 100_000, "not JSON")] * 3) == 3


def test_a_long_result_is_shown_short() -> None:
    seen = Repetition()
    seen.feed("look", "{}", "x" * 10_000)
    assert len(seen.feed("look", "{}", "x" * 10_000).warning) < 400


@pytest.mark.parametrize("length", [1, 2, 3, 4, 7])
def test_circles_of_any_length_stop_at_the_third_round(length: int) -> None:
    circle = [(f"tool{n}", "{}", "same") for n in range(length)]
    assert rounds(circle * 5) == 2 * length + 1


def test_two_who_hand_back_to_each_other_are_stuck_in_three_rounds() -> None:
    assert rounds([("ask_ann", "{}", "ask Bob"), ("ask_bob", "{}", "ask Ann")] * 10) == 5


def test_another_try_after_a_change_is_no_circle() -> None:
    trace: list[tuple[str, str, str]] = []
    for n in range(20):
        trace += [("edit", json.dumps({"line": n}), "saved"), ("run_tests", "{}", "1 failed")]
    assert rounds(trace) is None


polling = st.lists(st.sampled_from(["queued", "running", "running: 50 %", "throttled"]), min_size=1, max_size=200)


@settings(max_examples=50)
@given(polling, st.lists(st.text(max_size=5), max_size=5))
def test_polling_is_never_taken_for_a_circle(states: list[str], others: list[str]) -> None:
    seen = Repetition()
    for state in [*states, "done"]:
        found = seen.feed("status", '{"job": 7}', state, poll=True)
        assert (found.warning, found.stuck) == ("", False)
    for n, other in enumerate(others):
        assert not seen.feed("fetch", json.dumps({"n": n}), other).stuck


@settings(max_examples=50)
@given(st.lists(st.integers(0, 10_000), unique=True, min_size=3, max_size=200))
def test_asking_again_is_no_circle_while_the_answers_change(progress: list[int]) -> None:
    assert rounds([("status", '{"job": 7}', f"{part} of 10,000 done") for part in progress]) is None


_KINDS = 4  # of calls below: two tools, two results
_SOON = _KINDS + sum(range(1, _KINDS + 1)) + 1  # each is new once, and after it all known ones may come once more


@given(st.lists(st.tuples(st.sampled_from(["a", "b"]), st.just("{}"), st.sampled_from(["x", "y"])), min_size=_SOON))
def test_whatever_the_order_few_possible_calls_end_soon(trace: list[tuple[str, str, str]]) -> None:
    stuck = rounds(trace)
    assert stuck is not None
    assert stuck <= _SOON


def test_the_longest_way_to_be_stuck_is_as_long_as_it_is_said_to_be() -> None:
    kinds = [(tool, "{}", result) for tool in "ab" for result in "xy"]
    trace = [call for last in range(_KINDS) for call in (kinds[last], *kinds[: last + 1])]
    assert rounds([*trace, kinds[0]]) == _SOON
