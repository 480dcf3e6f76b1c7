"""`queue` in a team file: of workers, of the supervisor, and of teams inside."""

from pathlib import Path

import pytest

from chargehand.config.load import load_team
from chargehand.errors import Invalid

INNER = """
version: 1
name: cellar
supervisor: {queue: cellars}
workers:
  keeper: {description: counts stock, queue: scales}
"""
OUTER = """
version: 1
name: office
supervisor: {ask_person: true}
workers:
  stock: {team: cellar.yaml, description: knows stock%s}
  writer: {description: writes, queue: gpu}
"""


@pytest.mark.parametrize(("more", "queue"), [("", "cellars"), (", queue: far-away", "far-away")])
async def test_a_file_names_the_queues_of_workers_and_of_teams_inside(tmp_path: Path, more: str, queue: str) -> None:
    (tmp_path / "cellar.yaml").write_text(INNER)
    (tmp_path / "office.yaml").write_text(OUTER % more)
    team = load_team(tmp_path / "office.yaml")
    assert team.queues >= {"office", queue, "scales", "gpu"}
    assert {agent.name: agent.queue for agent in team.roster.agents if agent.queue} == {"writer": "gpu"}
    assert team.supervisor.ask_person
    assert team.request("Count.", 0.0).queue == ""


def test_a_name_that_no_queue_can_have_is_refused_at_its_place(tmp_path: Path) -> None:
    (tmp_path / "team.yaml").write_text("version: 1\nname: a\nworkers:\n  ann: {description: d, queue: a b}\n")
    with pytest.raises(Invalid, match=r"workers\.ann.*'a b' is no name for a queue; use up to 64 letters"):
        load_team(tmp_path / "team.yaml")
    (tmp_path / "team.yaml").write_text(
        "version: 1\nname: a\nsupervisor: {queue: a b}\nworkers: {ann: {description: d}}\n"
    )
    with pytest.raises(Invalid, match=r"supervisor.*'a b' is no name for a queue"):
        load_team(tmp_path / "team.yaml")
