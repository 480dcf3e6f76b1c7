"""The forecast of a plan: its critical path, its width, its time and its cost, worked out by hand and by properties."""

import math
import random
import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chargehand.engine.budget import NOTHING, Amount
from chargehand.engine.forecast import Forecast, forecast
from chargehand.engine.plan import Combine, Edge, Plan, Task, TaskId, in_order, needs
from chargehand.engine.policy import Limits, Policy
from chargehand.engine.roster import USUAL_SECONDS, Agent, Match, Roster
from tests.support.hunts import hunt_size

ROSTER = Roster(
    (
        Agent("researcher", tags=("web",), seconds=4.0, estimate=Amount(100, 10, 1), fallbacks=("writer", "nobody")),
        Agent("writer", tags=("web", "prose"), seconds=2.0, estimate=Amount(1000, 50, 2)),
    ),
    supervision=Amount(7, 3, 1),
)


def task(
    name: str,
    *after: str | Edge,
    seconds: float | None = None,
    worker: str = "researcher",
    match: Match | None = None,
    for_each: str = "",
) -> Task:
    inputs = tuple(one if isinstance(one, Edge) else TaskId(one) for one in after)
    return Task(TaskId(name), "x", worker, match, inputs, for_each=TaskId(for_each), seconds=seconds)


def foreseen(*tasks: Task, policy: Policy | None = None, combine: Combine = "merge") -> Forecast:
    return forecast(Plan(tasks, combine), ROSTER, policy or Policy())


def wide(width: int) -> Policy:
    return Policy(limits=Limits(width=width))


# --- time -------------------------------------------------------------------------------------------------------------


def test_the_critical_path_is_the_longest_in_seconds_and_not_in_tasks() -> None:
    found = foreseen(
        task("a", seconds=1),
        task("b", "a", seconds=1),
        task("c", "b", seconds=1),
        task("long", "a", seconds=10),
        task("end", "c", Edge(TaskId("long"), "optional"), seconds=2),
    )
    assert found.critical_path == ("a", "long", "end")
    assert (found.critical, found.serial, found.makespan) == (13.0, 15.0, 13.0)
    assert found.speedup == 15 / 13


def test_a_task_takes_what_it_says_or_else_what_its_worker_says() -> None:
    assert foreseen(task("a")).critical == 4.0
    assert foreseen(task("a", seconds=0.5)).critical == 0.5
    assert foreseen(task("a", worker="", match=Match(all=("prose",)))).critical == 2.0
    assert foreseen(task("a", worker="", match=Match(some=("web",)))).critical == 4.0
    assert foreseen(task("a", worker="stranger")).critical == USUAL_SECONDS


def test_a_forecast_says_whether_anybody_said_how_long_each_task_takes() -> None:
    assert foreseen(task("a"), task("b", seconds=0.5)).timed
    assert not foreseen(task("a"), task("b", worker="stranger")).timed


def test_time_below_nothing_counts_as_nothing() -> None:
    found = foreseen(task("a", seconds=-5), task("b", "a", seconds=math.nan), task("c", "b", seconds=1))
    assert (found.critical, found.serial, found.critical_path) == (1.0, 1.0, ("a", "b", "c"))


def test_width_is_the_most_tasks_at_one_time_if_nothing_limits_them() -> None:
    tasks = (
        task("a", seconds=1),
        task("b", seconds=5),
        task("c", "a", seconds=1),
        task("d", "a", seconds=1),
        task("e", "c", "d", seconds=1),
    )
    assert foreseen(*tasks).width == 3  # b, c and d, though only a and b can start
    assert foreseen(*tasks, policy=wide(1)).width == 3


def test_a_task_starting_as_another_ends_does_not_run_beside_it() -> None:
    assert foreseen(task("a", seconds=0.1), task("b", "a", seconds=0.2), task("c", "b", seconds=0.3)).width == 1


def test_tasks_that_take_no_time_still_have_a_path_and_a_width() -> None:
    found = foreseen(task("a", seconds=0), task("b", "a", seconds=0), task("c", "a", seconds=0))
    assert found.critical_path in {("a", "b"), ("a", "c")}
    assert (found.critical, found.makespan, found.width, found.speedup) == (0.0, 0.0, 2, 1.0)


def test_with_one_slot_everything_takes_its_turn() -> None:
    tasks = [task(f"t{n}", seconds=n) for n in range(1, 5)]
    assert foreseen(*tasks, policy=wide(1)).makespan == 10.0
    assert foreseen(*tasks, policy=wide(4)).makespan == 4.0


def test_free_slots_go_to_the_critical_path_first() -> None:
    chain = [task("p", seconds=1), task("q", "p", seconds=1), task("r", "q", seconds=4)]
    others = [task(f"a{n}", seconds=1) for n in range(6)]
    found = foreseen(*others, *chain, policy=wide(2))
    assert found.makespan == 6.0  # first come, first served would take 9


def test_slots_that_come_free_together_are_shared_out_together() -> None:
    tasks = [
        task("a", seconds=1),
        task("b", seconds=1),
        task("short", "a", seconds=1),
        task("also", "a", seconds=1),
        task("long", "b", seconds=3),
    ]
    assert foreseen(*tasks, policy=wide(2)).makespan == 4.0


def test_a_task_repeated_over_a_list_counts_once_and_is_named() -> None:
    found = foreseen(task("a"), task("b", for_each="a"), task("c", "b"))
    assert found.unbounded == ("b",)
    assert (found.critical, found.critical_path) == (12.0, ("a", "b", "c"))


def test_inputs_from_outside_the_plan_are_there_already() -> None:
    assert foreseen(task("b", "elsewhere", seconds=3)).critical == 3.0


def test_tasks_in_a_circle_are_left_out() -> None:
    found = foreseen(task("a", "b"), task("b", "a"), task("c", seconds=3))
    assert (found.critical_path, found.serial) == (("c",), 3.0)


def test_a_plan_without_tasks_costs_its_supervision() -> None:
    assert foreseen() == Forecast(cost=Amount(14, 6, 2))


# --- money ------------------------------------------------------------------------------------------------------------


def test_every_task_costs_one_attempt_beside_one_plan_and_one_answer() -> None:
    found = foreseen(task("a"), task("b"), task("c", worker="writer"))
    assert found.cost == Amount(2 * 100 + 1000 + 2 * 7, 2 * 10 + 50 + 2 * 3, 2 * 1 + 2 + 2)


def test_where_several_fit_the_first_does_it() -> None:
    assert foreseen(task("a", worker="", match=Match(all=("web",)))).cost == Amount(114, 16, 3)


@pytest.mark.parametrize(("combine", "limits"), [("none", Limits(plans=1)), ("merge", Limits(plans=1, answers=0))])
def test_where_no_answer_is_written_none_is_paid_for(combine: Combine, limits: Limits) -> None:
    found = foreseen(combine=combine, policy=Policy(limits=limits))
    assert found.cost == ROSTER.supervision


def test_nobody_costs_nothing() -> None:
    found = forecast(Plan((task("a", worker="stranger"),)), Roster(), Policy())
    assert found.cost == NOTHING


def test_a_part_of_the_cost_does_not_pass_for_all_of_it() -> None:
    roster = Roster((*ROSTER.agents, Agent("newcomer")), supervision=ROSTER.supervision)
    found = forecast(Plan((task("a"), task("b", worker="newcomer"))), roster, Policy())
    assert found.cost == NOTHING


# --- size and properties ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", ["chain", "tree", "flat"])
def test_the_time_of_a_forecast_grows_with_the_number_of_tasks(shape: str) -> None:
    def inputs(at: int) -> tuple[str, ...]:
        return {"chain": (f"t{at - 1}",), "tree": (f"t{at // 2}", f"t{at // 3}"), "flat": ()}[shape] if at else ()

    size = hunt_size(quick=10_000, thorough=100_000)
    tasks = tuple(task(f"t{at}", *inputs(at), seconds=at % 7) for at in range(size))
    began = time.thread_time()
    result = foreseen(*tasks)
    assert time.thread_time() - began < size * 100e-6  # 20 microseconds a task on an idle machine
    assert result.makespan >= result.critical
    assert result.serial == sum(at % 7 for at in range(size))


@st.composite
def plans(draw: st.DrawFn) -> list[Task]:
    size = draw(st.integers(0, 14))
    lengths = st.none() | st.integers(0, 9).map(float) | st.floats(0, 100)
    return [
        task(
            f"t{at}",
            *(f"t{one}" for one in draw(st.lists(st.integers(0, at - 1), unique=True, max_size=3)) if at),
            seconds=draw(lengths),
        )
        if at
        else task("t0", seconds=draw(lengths))
        for at in range(size)
    ]


def seconds(one: Task) -> float:
    return 4.0 if one.seconds is None else one.seconds


@given(plans(), st.integers(1, 6))
def test_the_numbers_of_a_forecast_fit_together(tasks: list[Task], width: int) -> None:
    found = foreseen(*tasks, policy=wide(width))
    slack = 1e-9 * (1 + found.serial)
    assert found.serial == pytest.approx(sum(map(seconds, tasks)))
    assert found.critical <= found.makespan <= found.serial + slack
    assert found.makespan >= found.serial / width - slack
    assert found.makespan <= found.critical + (found.serial - found.critical) / width + slack  # Graham's bound
    assert bool(tasks) <= found.width <= len(tasks)
    if width >= found.width:
        assert found.makespan == found.critical


@given(plans())
def test_the_critical_path_is_a_chain_as_long_as_any(tasks: list[Task]) -> None:
    found = foreseen(*tasks)
    by_id = {one.id: one for one in tasks}
    for needed, reader in pairwise(found.critical_path):
        assert needed in {name for name, _ in needs(by_id[reader])}
    assert sum(seconds(by_id[name]) for name in found.critical_path) == pytest.approx(found.critical)
    longest: dict[TaskId, float] = {}
    for one in in_order(tasks)[0]:
        longest[one.id] = seconds(one) + max((longest[name] for name, _ in needs(one)), default=0.0)
    assert found.critical == pytest.approx(max(longest.values(), default=0.0))


@given(plans(), st.randoms(use_true_random=False))
def test_the_order_tasks_are_written_in_changes_no_time(tasks: list[Task], dice: random.Random) -> None:
    again = tasks.copy()
    dice.shuffle(again)
    one = foreseen(*tasks)
    other = foreseen(*again)
    assert (one.critical, one.width, one.cost) == (other.critical, other.width, other.cost)
