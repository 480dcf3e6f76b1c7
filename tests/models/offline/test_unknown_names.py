"""A list of which one name is unknown: what is known of the others is said, and the rest is a gap."""

from pathlib import Path
from typing import Literal

import pytest

from chargehand.agents.worker import Worker
from chargehand.models.left_out import LEFT
from chargehand.models.offline.listed import listed, only, without
from chargehand.runtime.result import Result
from chargehand.team import Supervisor
from chargehand.tools.documents import documents
from chargehand.tools.sql import sql
from chargehand.tools.tool import tool
from tests.models.offline.working import do


@tool
def tide(harbour: Literal["Calais", "Hull", "Malmo"]) -> str:
    """How high the tide of a harbour is."""
    return f"The tide of {harbour} is {len(harbour)} metres high."


@tool
def staff_of(harbour: str) -> int:
    """How many people a harbour employs."""
    known = {"Ostend": 12, "Dover": 40}
    if harbour not in known:
        raise ValueError(f"there is no harbour {harbour!r}; there are {', '.join(known)}")
    return known[harbour]


@pytest.fixture
def team(tmp_path: Path) -> Supervisor:
    (tmp_path / "books").mkdir()
    rows = ("day,ship,cargo", "2026-01-02,Alma,200", "2026-02-09,Bella,60", "2026-05-30,Alma,40")
    (tmp_path / "books/landings.csv").write_text("\n".join(rows))
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers/ostend.md").write_text("# Ostend\nOstend closes its lock at night.\n")
    (tmp_path / "papers/dover.md").write_text("# Dover\nDover closes its lock in storms.\n")
    workers = [
        Worker(
            "clerk",
            "Answers questions about landings, ships and cargo from the database.",
            tools=[sql(tmp_path / "books")],
        ),
        Worker("reader", "Finds what our documents say.", tools=[documents(tmp_path / "papers")]),
        Worker("pilot", "Knows how high the tide of a harbour is.", tools=[tide]),
        Worker("warden", "Knows how many people a harbour employs.", tools=[staff_of]),
    ]
    return Supervisor(workers)


def told(found: Result) -> str:
    return " ".join(gap.message for gap in found.gaps)


@pytest.mark.parametrize(
    ("request_", "says", "lacks"),
    [
        ("Compare the cargo of Alma, Bella and Zyx.", ["Alma 240", "Bella 60"], "Zyx"),
        ("How high are the tides of Calais, Hull and Zyx?", ["Calais is 6", "Hull is 4"], "Zyx"),
        ("How many people do Ostend, Dover and Zyx employ?", ["Ostend: 12", "Dover: 40"], "Zyx"),
        ("What do our documents say about Ostend, Dover and Zyx?", ["at night", "in storms"], "Zyx"),
    ],
)
def test_of_a_list_with_an_unknown_name_the_rest_is_answered(
    team: Supervisor, request_: str, says: list[str], lacks: str
) -> None:
    found = team.run_sync(request_)
    assert (found.ending, found.reason) == ("partial", "gaps")
    assert [one for one in says if one not in str(found.answer)] == []
    assert lacks in told(found)
    assert not any(name in told(found) for name in ("Alma", "Ostend", "Dover"))


def test_where_nobody_in_the_list_is_known_nothing_is_answered(team: Supervisor) -> None:
    assert team.run_sync("How many people do Qux and Zyx employ?").ending == "failed"


def test_a_list_of_known_names_leaves_nothing(team: Supervisor) -> None:
    assert team.run_sync("How many people do Ostend and Dover employ?").ending == "complete"


def test_a_name_that_is_nearly_right_is_left_to_whoever_puts_the_task_better() -> None:
    found = do("How many people do Ostend and Dovre employ? Return the answer and where it comes from.", [staff_of])
    assert "no harbour 'Dovre'" in found.gave_up


def test_what_was_only_not_found_beside_the_others_is_found_alone() -> None:
    calls: list[str] = []

    @tool
    def lights(harbour: str) -> str:
        """The lights of a harbour, of one that is named."""
        calls.append(harbour)
        if harbour == "Zyx":
            raise ValueError("Zyx is unknown")
        return f"The lights of {harbour} are green."

    found = do("What are the lights of Ostend and Zyx? Return the answer and where it comes from.", [lights])
    assert found.text == f"The lights of Ostend are green.\n\n{LEFT}What are the lights of Zyx?"
    assert calls == ["Ostend", "Zyx"]  # what was asked once is not asked again


def test_a_list_is_put_together_anew() -> None:
    text = "Compare the cargo of Alma, Bella and Port of Zyx in May."
    assert listed(text) == ["Alma", "Bella", "Port of Zyx"]
    assert without(text, ["Port of Zyx"]) == "Compare the cargo of Alma and Bella in May."
    assert without(text, listed(text)) == ""
    assert only(text, ["Bella"]) == "Report the cargo of Bella in May."
    assert listed("How many ropes, sails and widgets are there?") == ["ropes", "sails", "widgets"]
    assert listed("Show what we sold, and draw it.") == []
