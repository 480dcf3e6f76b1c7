"""When a fallback fails too, the gap tells both reasons: that of the worker it was meant for is the one to mend."""

from chargehand import Supervisor, Team, Worker, tool
from chargehand.engine.failure import Failure
from chargehand.engine.owed import Brief
from chargehand.engine.plan import Task, TaskId
from chargehand.engine.state import Work
from chargehand.runtime.context import with_first


def brief(worker: str, earlier: str, first: str = "") -> Brief:
    task = Task(TaskId("t1"), "Count the steps.", "analyst")
    work = Work("attempt", TaskId("t1"), 2)
    return Brief(work, "goal", 9.0, worker, failure=earlier, first_failure=first, tasks=(task,))


def test_a_fallback_tells_what_its_predecessor_failed_of() -> None:
    found = with_first(Failure("logic", "no such size."), brief("measurer", "no such column"))
    assert found.message == "no such size (before that, analyst: no such column)"


def test_a_fallback_that_fails_again_tells_the_first_cause_once() -> None:
    once = with_first(Failure("logic", "no such size"), brief("measurer", "no such column"))
    twice = with_first(Failure("logic", "too late"), brief("measurer", once.message, once.first))
    assert twice.message == "too late (before that, analyst: no such column)"


def test_a_worker_that_fails_twice_itself_tells_only_the_last() -> None:
    failure = Failure("logic", "no such size")
    assert with_first(failure, brief("analyst", "no such column")) is failure
    assert with_first(failure, brief("measurer", "")) is failure


def test_a_question_for_a_person_keeps_its_words() -> None:
    failure = Failure("approval", "send(1)")
    assert with_first(failure, brief("measurer", "no such column")) is failure


def test_the_gap_of_a_run_names_both() -> None:
    @tool
    def stock(product: str) -> int:
        """How many of a product are in stock: anvils or tongs."""
        raise ValueError(f"the shelf of {product} is locked")

    @tool
    def count(product: str) -> int:
        """How many of a product are in stock, counted by hand: anvils or tongs."""
        raise ValueError(f"nobody is there to count {product}")

    keeper = Worker("keeper", "knows how many of a product are in stock", tools=[stock], fallbacks=["counter"])
    counter = Worker("counter", "counts by hand what lies in the yard", tools=[count])
    found = Team([keeper, counter], supervisor=Supervisor(model="demo")).run_sync('How many "anvils" are in stock?')
    (gap,) = found.gaps
    assert "nobody is there to count" in gap.message
    assert "before that, keeper: " in gap.message
    assert "locked" in gap.message
