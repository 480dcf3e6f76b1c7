"""The exercises about speed and scale show what they say: what ran side by side, who got it, where it ended."""

import re

import pytest

from tests.exercises.programs import EXERCISES, PAGE, printed, undisturbed

OURS = ("parallel", "factory", "nested", "concurrency", "experts", "recursive")


def numbers(pattern: str, text: str) -> tuple[float, ...]:
    """The numbers in the one place that looks like this."""
    found = re.search(pattern, text)
    assert found is not None, text
    return tuple(float(one) for one in found.groups())


# --- side by side


@pytest.mark.slow("the program does the same work twice, in real time")
def test_side_by_side_takes_as_long_as_the_critical_path_and_alone_as_long_as_all_of_it() -> None:
    def check(told: str) -> None:
        (fast,) = numbers(r"side by side: ([\d.]+) s", told)
        (slow,) = numbers(r"one at a time: ([\d.]+) s", told)
        assert slow >= 0.8
        assert 0.4 <= fast < 0.75 * slow
        assert "critical path: research > report, 0.40 s" in told

    undisturbed("parallel", check)


def test_side_by_side_three_are_at_work_at_once_and_alone_never_two() -> None:
    def check(told: str) -> None:
        together, alone = told.split("one at a time")
        assert _most_at_once(together) == 3
        assert _most_at_once(alone) == 1

    undisturbed("parallel", check)


def _most_at_once(text: str) -> int:
    spans = [(float(a), float(b)) for a, b in re.findall(r"from ([\d.]+) to ([\d.]+) s", text)]
    assert len(spans) == 4
    return max(sum(began <= at < ended - 0.02 for began, ended in spans) for at, _ in spans)


# --- made on the fly


def test_each_made_worker_has_the_tool_its_task_needs_and_comes_to_the_same() -> None:
    told = printed("factory")
    made = re.findall(r"^Look up the (stock|price) of (\w+)\.\s+tools \['(\w+)'\], prompt: (.*)", told, re.MULTILINE)
    assert len(made) == 10
    assert all(asked == given for asked, _, given, _ in made)
    assert all(product in prompt for _, product, _, prompt in made)
    assert "10 of 10 results are the same" in told


def test_what_the_making_costs_is_measured_and_small() -> None:
    def check(told: str) -> None:
        before, after = numbers(r"static: ([\d.]+) ms of CPU a run; made on the fly: ([\d.]+) ms", told)
        each, share = numbers(r"overhead: (-?\d+) us a worker, (-?\d+)% of the run", told)
        assert before > 0
        assert each == pytest.approx((after - before) * 100, abs=15)
        assert each < 10_000
        assert share < 60
        assert "calls of models: 20 static, 30 made on the fly" in told

    undisturbed("factory", check)


# --- levels


def test_a_failure_inside_comes_up_as_a_gap_and_stops_nobody_else() -> None:
    told = printed("nested")
    assert "   < caller: the archive of April is gone" in told
    assert told.count("< report: done") == 1
    assert "partial: May had 412 boats, 13 a day [t3]." in told
    assert "- research: Find the count of April: the archive of April is gone" in told
    assert "gap in t1, from research, task caller: the archive of April is gone" in told


def test_the_flow_goes_down_and_comes_back_level_by_level() -> None:
    flow = printed("nested").partition("\n\n")[0].splitlines()
    open_: list[str] = []
    for line in flow:
        found = re.match(r"( *)([<>]) (\w+):", line)
        assert found is not None, line
        assert len(found[1]) == 3 * (len(open_) - (found[2] == "<"))
        if found[2] == ">":
            open_.append(found[3])
        else:
            assert open_.pop() == found[3]
    assert open_ == []
    assert len(flow) == 2 * (3 + 6)


def test_every_level_has_its_bill_and_they_add_up() -> None:
    told = printed("nested")
    whole, own = numbers(r"cost: \$([\d.]+), of it the office itself \$([\d.]+)", told)
    below = [float(one) for one in re.findall(r"^  \w+ +\$([\d.]+)", told, re.MULTILINE)]
    assert len(below) == 3
    assert own > 0
    assert whole == pytest.approx(own + sum(below))
    assert "  research $0.004  partial" in told


# --- who gets it


@pytest.mark.slow("the program does the same work twice, in real time")
def test_without_a_look_at_the_load_one_gets_all_and_with_it_they_share() -> None:
    undisturbed("concurrency", _shared)


def _shared(told: str) -> None:
    without, alone = re.search(r"without a look at the load: (\{.*\}), ([\d.]+) s", told).groups()  # pyright: ignore[reportOptionalMemberAccess] - it fails as it should
    shared = numbers(r"with it: \{'north': (\d+), 'south': (\d+)\}", told)
    (took,) = numbers(r"with it: .*?, ([\d.]+) s", told)
    assert without == "{'north': 10}"
    assert shared == (5, 5)
    assert took < float(alone)
    assert "route to south" in told
    assert "because it is less busy" in told


def test_a_quick_replica_gets_more_than_a_slow_one() -> None:
    def check(told: str) -> None:
        (dealt,) = numbers(r"dealt out in turn: \{'quick': 4, 'slow': 4\}, ([\d.]+) s", told)
        quick, slow, took = numbers(r"whoever is idle: \{'quick': (\d), 'slow': (\d)\}, ([\d.]+) s", told)
        assert quick > slow
        assert dealt >= 0.4
        assert took < dealt

    undisturbed("concurrency", check)


def test_every_request_goes_to_its_expert_and_one_to_the_generalist() -> None:
    experts, makers = printed("experts").split("by a model's JSON")
    assert re.findall(r" (\w+) +confidence", experts) == ["legal", "medical", "technical", "financial", "generalist"]
    assert re.findall(r" (\w+) +confidence", makers) == ["research", "writing", "code"]
    assert "5 of 5" in experts
    assert "3 of 3" in makers


# --- bounds


def test_a_tree_ends_at_its_depth_and_the_bill_grows_with_it() -> None:
    rows = re.findall(r"^depth (\d): (\d+) tasks, \$([\d.]+), calls to split: (.*)", printed("recursive"), re.MULTILINE)
    assert [(int(depth), int(tasks)) for depth, tasks, _, _ in rows] == [(1, 3), (2, 9), (3, 27)]
    for depth, tasks, dollars, levels in rows:
        calls = [int(one) for one in re.findall(r"level \d: (\d+)", levels)]
        assert calls == [3**level for level in range(int(depth))]
        assert float(dollars) == pytest.approx((sum(calls) + int(tasks) + 1) * 0.002)


def test_breadth_and_the_number_of_tasks_are_bounds_too() -> None:
    told = printed("recursive")
    assert len(re.findall(r"^ +t\d\.\d  Describe", told, re.MULTILINE)) == 9
    assert "breadth 2: 2 tasks, partial:" in told
    assert "A request is split into at most 2 parts; these are left out: Describe the future of the harbour." in told
    tasks, calls = numbers(r"depth 8, at most 20 tasks: (\d+) tasks, (\d+) calls", told)
    assert tasks <= 20
    assert calls <= 40


# --- the page


@pytest.mark.parametrize("name", OURS)
def test_what_the_page_shows_is_what_comes_out(name: str) -> None:
    """Line by line; what is left out is marked, and times are those of another machine."""
    command = f"python examples/exercises/{name}.py"
    assert command in (EXERCISES / f"{name}.py").read_text(encoding="utf-8")
    shown = re.findall(rf"\$ {re.escape(command)}\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert len(shown) == 1, "the page shows it"
    parts = [part for line in shown[0].splitlines() for part in line.split("…") if part.strip()]

    def check(told: str) -> None:
        out = _without_figures(told)
        assert [part for part in parts if _without_figures(part).strip() not in out] == []

    undisturbed(name, check)


def _without_figures(text: str) -> str:
    """A sign is part of a figure: a difference of two times measured on a busy machine may be below zero."""
    return re.sub(r"(?<![\w-])-?\d+(\.\d+)?|\d+(\.\d+)?", "#", text)


def test_a_page_holds_on_a_machine_whose_noise_is_larger_than_what_was_measured() -> None:
    shown = "overhead: 726 us a worker, 12% of the run"
    noisy = "overhead: -310 us a worker, -5% of the run"
    assert _without_figures(noisy) == _without_figures(shown)
    assert _without_figures("depth-2") == "depth-#"


@pytest.mark.parametrize("name", OURS)
def test_an_exercise_is_short_and_uses_only_what_is_documented(name: str) -> None:
    source = (EXERCISES / f"{name}.py").read_text(encoding="utf-8")
    assert len(source.splitlines()) <= 75
    rooms = set(re.findall(r"^from (chargehand[\w.]*) import", source, re.MULTILINE))
    assert rooms <= {"chargehand", "chargehand.runtime.trace"}
