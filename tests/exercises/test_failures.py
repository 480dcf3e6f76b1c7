"""The exercises about failures and answers show what they say: who was tried, what was kept, what was lost."""

import re

import pytest

from tests.exercises.programs import EXERCISES, PAGE, printed, undisturbed

OURS = ("cascade", "refinement", "fallback", "breaker", "select_by_judge", "reduce")


def became(text: str) -> dict[str, str]:
    """The table of a cascade: a task, and what became of it."""
    return dict(re.findall(r"^  (T\d)  (\w+)", text, re.MULTILINE))


def missing(text: str) -> list[str]:
    """The tasks an answer says it has to do without."""
    return re.findall(r"\[(T\d)\]$", text.partition("## Not answered")[2], re.MULTILINE)


def test_a_cascade_takes_down_what_needs_it_and_nothing_else() -> None:
    strict = printed("cascade").split("T5 needs T4, and takes")[0]
    assert became(strict) == {"T1": "failed", "T2": "done", "T3": "skipped", "T4": "done", "T5": "skipped"}
    assert "T1  failed   3 attempts, the sales database does not answer" in strict
    assert "190 late parcels, 121 wrong sizes, 101 others [T2]" in strict
    assert "190 of 412 tickets [T4]" in strict
    assert "46%" not in strict
    assert missing(strict) == ["T1", "T3", "T5"]
    assert "2 of 5 parts covered" in strict


def test_an_optional_input_saves_what_can_be_done_without_it() -> None:
    best = printed("cascade").split("T5 needs T4, and takes")[1]
    assert became(best) == {"T1": "failed", "T2": "done", "T3": "skipped", "T4": "done", "T5": "done"}
    assert (
        "Late parcels are 46% of all complaints. Whether sales suffered is not known: there are no figures [T5]" in best
    )
    assert missing(best) == ["T1", "T3"]
    assert "3 of 5 parts covered" in best


def test_a_refined_task_has_learnt_from_the_error_and_works() -> None:
    first, second = re.findall(r"^attempt \d: (.*)\n  (.*)", printed("refinement").split("\n\n")[0], re.MULTILINE)
    assert "2026-05-30" in first[0]
    assert "2026-05-29" not in first[0]
    assert first[1].startswith("logic: `exchange_rate` failed: no rate for 2026-05-30; the nearest")
    assert "on 2026-05-29" in second[0]
    assert second[1] == "it worked"
    assert "complete: One euro was 1.1939 US dollars on 2026-05-29." in printed("refinement")


def test_a_task_that_cannot_be_done_is_given_up_after_three_attempts() -> None:
    hopeless = printed("refinement").partition("\n\n")[2]
    tried = re.findall(r"^attempt (\d): (.*)\n  (\w+)", hopeless, re.MULTILINE)
    assert [(number, kind) for number, _, kind in tried] == [("1", "logic"), ("2", "logic"), ("3", "logic")]
    assert [re.findall(r"on (\S+)\.", instruction)[0] for _, instruction, _ in tried] == [
        "2026-05-30",
        "2026-05-29",
        "2026-05-28",
    ]
    assert (
        "failed: Not answered:\n- t1: `stock_price` failed: the exchange published nothing for 2026-05-28" in hopeless
    )


def test_a_worker_that_keeps_failing_hands_over_to_its_fallback() -> None:
    *tried, ending = printed("fallback").split("\n\n")[0].splitlines()
    dead = [f"attempt {number} by scout: the line is dead" for number in (1, 2, 3)]
    assert tried == [*dead, "attempt 4 by librarian: done"]
    assert ending == "complete: Three ferries a day go to Hiiumaa."


def test_a_route_to_nobody_ends_with_the_generalist() -> None:
    *told, note, ending = printed("fallback").split("\n\n")[1].splitlines()
    assert told == ["the router is told: There is no worker 'astrologer'; there are research, code."] * 3
    assert note == "after 3 replies: desk gets the whole request"
    assert ending.startswith("complete: desk says: Nobody here reads the stars.")


def test_a_breaker_spares_calls_in_vain_and_lets_everybody_in_again() -> None:
    figures = r"^with(out)?.*: (\d+) calls, (\d+) in vain; (\d+) of 12 tasks done$"

    def check(told: str) -> None:
        without, broken = re.findall(figures, told, re.MULTILINE)
        assert (without[0], broken[0]) == ("out", "")
        assert broken[2] == "3", "as many as open it; nobody asks while it is open"
        assert (broken[1], broken[3]) == ("15", "12"), "after the probe everything is done, with a call each"
        assert int(without[2]) >= 4 * int(broken[2])
        assert int(without[3]) < 12
        assert re.findall(r"breaker ([\w-]+):", told) == ["open", "half-open", "closed"]

    undisturbed("breaker", check)


def test_the_judge_picks_the_result_that_answers_and_says_why() -> None:
    tried, answer, why = printed("select_by_judge").rstrip().split("\n\n")
    results = dict(re.findall(r"^(t\d) by \w+: \{'text': '(.*)'\}$", tried, re.MULTILINE))
    assert len(set(results.values())) == 3
    (chosen, reason) = re.findall(r"^Chosen from 3 results: \[(t\d)\]\. Why: (.+)$", why)[0]
    assert chosen == "t3", "the only one that speaks of rain"
    assert answer == results[chosen]
    assert reason == "It speaks to 5 of the 5 words that were asked about."


def test_results_larger_than_the_window_are_reduced_and_no_fact_is_lost() -> None:
    facts, answer = printed("reduce").split("\n\n")
    volume, window, reductions, largest = (
        int(re.findall(pattern, facts)[0])
        for pattern in (r"(\d+) tokens; the", r"window has (\d+)", r"(\d+) reductions", r"largest call had (\d+)")
    )
    assert volume > 5 * window
    assert reductions >= volume // window
    assert largest <= window
    assert "12 gusts in the results, 0 of them not in the answer" in facts
    assert re.findall(r"Station (\d+) had a gust of 1\d\d km/h at", answer) == [str(one) for one in range(1, 13)]


# --- the page


def test_the_page_names_every_exercise_and_nothing_else() -> None:
    named = set(re.findall(r"python examples/exercises/(\w+)\.py", PAGE.read_text(encoding="utf-8")))
    assert named == {one.stem for one in EXERCISES.glob("*.py")}


@pytest.mark.parametrize("name", OURS)
def test_what_the_page_shows_is_what_comes_out(name: str) -> None:
    """Line by line; what is left out is marked."""
    shown = re.findall(rf"\$ python examples/exercises/{name}\.py\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert shown, "the page shows it"
    parts = [part for block in shown for line in block.splitlines() for part in line.split("…") if part.strip()]

    def check(out: str) -> None:
        assert [part for part in parts if part.strip() not in out] == []

    undisturbed(name, check)


@pytest.mark.parametrize("name", OURS)
def test_an_exercise_is_short_and_uses_only_what_is_promised(name: str) -> None:
    source = (EXERCISES / f"{name}.py").read_text(encoding="utf-8")
    assert len(source.splitlines()) <= 70
    rooms = set(re.findall(r"^from (chargehand[\w.]*) import", source, re.MULTILINE))
    assert rooms <= {"chargehand", "chargehand.engine.policy"}
