"""Which turns are shown, when the rest gets behind a summary, and what a plain summary keeps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chargehand.memory.conversations import (
    KEPT_TURNS,
    LEAST_KEPT,
    MOST_TURNS,
    Role,
    Turn,
    behind,
    due,
    fitting,
    plain_summary,
    summary_turn,
)


def said(count: int, size: int = 8, start: int = 1) -> list[Turn]:
    roles: tuple[Role, Role] = ("assistant", "user")
    return [Turn(roles[n % 2], f"{n}".ljust(size, "."), n) for n in range(start, start + count)]


def test_the_newest_turns_that_fit_are_shown_in_order() -> None:
    assert [turn.number for turn in fitting(said(10), 32)] == [7, 8, 9, 10]
    assert fitting(said(3), 400) == said(3)
    assert fitting([], 400) == []
    assert fitting(said(3), 0) == []


def test_the_summary_comes_first_whatever_its_number() -> None:
    summary = Turn("summary", "what was before", 50, upto=4)
    turns = [summary, *said(6, start=5)]
    assert fitting(turns, 32)[0] == summary
    assert [turn.number for turn in fitting(turns, 32)] == [50, 9, 10]
    assert fitting([*said(10), summary], 4000)[1].number == 5, "what it stands for is not shown again"


def test_what_is_too_long_is_shortened_not_left_out() -> None:
    summary = Turn("summary", "s" * 1000, 50, upto=4)
    shown = fitting([summary, *said(2, 900, start=5)], 400)
    assert [turn.number for turn in shown] == [50, 6]
    assert shown[0].text == "s" * 161 + " … 839 characters are left out here …"
    assert shown[1].text.endswith(f" … {900 - len(shown[1].text.partition(' …')[0])} characters are left out here …")
    assert sum(len(turn.text) for turn in shown) <= 400


def test_compaction_is_due_after_so_many_turns() -> None:
    assert due(said(MOST_TURNS), 4000) == 0
    assert due(said(MOST_TURNS + 1), 4000) == MOST_TURNS + 1 - KEPT_TURNS
    summary = Turn("summary", "before", 99, upto=40)
    assert due([summary, *said(MOST_TURNS, start=41)], 4000) == 0, "the summary is no turn"
    assert due([summary, *said(MOST_TURNS + 1, start=41)], 4000) == 40 + MOST_TURNS + 1 - KEPT_TURNS


def test_compaction_is_due_when_turns_are_half_as_much_again_as_the_room() -> None:
    assert due(said(15, 40), 400) == 0
    assert due(said(16, 40), 400) == 16 - 5, "what stays fills half the room"
    assert due(said(LEAST_KEPT, 4000), 400) == 0, "nothing but what stays anyway"
    assert due(said(3, 4000), 400) == 1
    assert due([], 0) == 0


def test_what_gets_behind_a_summary_counts_the_former_summary_by_what_it_stands_for() -> None:
    former = Turn("summary", "before", 61, upto=40)
    turns = [former, *said(20, start=41)]
    assert [turn.number for turn in behind(turns, 50)] == [61, *range(41, 51)]
    made = summary_turn(behind(turns, 50), "text", 3.0)
    assert made == Turn("summary", "text", when=3.0, upto=50)


def test_taint_is_carried_into_the_summary() -> None:
    turns = [*said(2), Turn("user", "from outside", 3, tainted=True)]
    assert summary_turn(turns, "text", 0.0).tainted
    assert not summary_turn(turns[:2], "text", 0.0).tainted


def test_a_plain_summary_has_a_line_a_turn() -> None:
    turns = [Turn("user", "Count the\nsheep", 1), Turn("assistant", "Seven", 2)]
    assert plain_summary(turns) == "- asked: Count the sheep\n- answered: Seven"


def test_lines_share_the_room() -> None:
    sizes = [len(line) for line in plain_summary(said(20, 5000), 2000).split("\n")]
    assert len(sizes) == 20
    assert len(set(sizes)) == 1


def test_a_former_summary_is_kept_and_what_is_left_out_is_said() -> None:
    former = Turn("summary", "The crew keeps sheep.", 30, upto=5)
    assert plain_summary([former, *said(3, start=6)]).startswith("The crew keeps sheep.\n- answered: 6")
    few = plain_summary(said(100), 400)
    assert few.startswith("(earlier lines left out)\n- ")
    assert few.endswith(" 100.....")
    again = plain_summary([Turn("summary", few, 200, upto=100), *said(3, start=101)], 400)
    assert again.endswith("- asked: 103.....")


def test_a_long_former_summary_leaves_half_the_room() -> None:
    former = Turn("summary", "p" * 8000, 30, upto=5)
    made = plain_summary([former, *said(30, 500, start=6)], 4000)
    prose, *lines = made.split("\n")
    assert 1500 < len(prose) <= 2100
    assert len(lines) == 30


turns = st.lists(st.tuples(st.sampled_from(["user", "assistant"]), st.text(max_size=300), st.booleans()), max_size=90)


@given(turns, st.text(max_size=500), st.integers(0, 12_000))
def test_nothing_ever_takes_more_than_its_space(
    given_turns: list[tuple[Role, str, bool]], text: str, space: int
) -> None:
    turns = [Turn(role, text, n, tainted=tainted) for n, (role, text, tainted) in enumerate(given_turns, 3)]
    turns = [Turn("summary", text, 99, upto=2), *turns]
    shown = fitting(turns, space)
    assert sum(len(turn.text) for turn in shown) <= space
    numbers = [turn.number for turn in shown]
    assert numbers == [turn.number for turn in turns if turn.number in numbers]
    assert len(plain_summary(turns, space)) <= space
    upto = due(turns, space)
    left = [turn for turn in turns if turn.number > upto and turn.role != "summary"]
    assert upto == 0 or LEAST_KEPT <= len(left) <= KEPT_TURNS
    assert upto == 0 or due([summary_turn(behind(turns, upto), "", 0.0), *left], space) == 0


@pytest.mark.parametrize(
    "text", ["(" + "9" * 5000 + " earlier lines left out)", "", "\n\n", "(1 earlier lines left out)"]
)
def test_a_former_summary_of_any_form_is_taken(text: str) -> None:
    assert plain_summary([Turn("summary", text, 9, upto=1), *said(2, start=2)]).endswith("3.......")
