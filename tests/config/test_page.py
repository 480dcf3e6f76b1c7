"""The page about team files cannot drift: every key is on it, in its own table, and its example is a team."""

import re
import runpy
from pathlib import Path

import pytest
from msgspec import Struct

from chargehand.config import check_shapes, memory_shapes, shapes, way_shapes
from chargehand.config.load import load_team
from chargehand.team import Supervisor
from tests.config.files import shaped, write

PAGE = (Path(__file__).parents[2] / "docs" / "team-file.md").read_text(encoding="utf-8")
SECTIONS: dict[str, type[Struct]] = {
    "## The file": shapes.TeamShape,
    "### `defaults`": shapes.DefaultsShape,
    "### `defaults.retry`": shapes.RetryShape,
    "### `budget`": shapes.BudgetShape,
    "### `hedge`": shapes.HedgeShape,
    "### `supervisor`": shapes.SupervisorShape,
    "### `supervisor.way`": way_shapes.WayShape,
    "### `supervisor.way.route`": way_shapes.RouteShape,
    "### `supervisor.way.loop`": way_shapes.LoopShape,
    "### `supervisor.way.broadcast`": way_shapes.BroadcastShape,
    "### `supervisor.way.round_robin`": way_shapes.TalkShape,
    "### `supervisor.way.dynamic`": way_shapes.TalkShape,
    "### `supervisor.way.recursive`": way_shapes.RecursiveShape,
    "### `supervisor.plan`": shapes.PlanShape,
    "### `supervisor.prompts`": shapes.PromptsShape,
    "### `workers`": shapes.WorkerShape,
    "### `workers.*.contacts`": shapes.ContactsShape,
    "### `workers.*.fallback`": shapes.FallbackShape,
    "### `workers.*.estimate`": shapes.EstimateShape,
    "### `workers.*.rules`": shapes.RuleShape,
    "### `tools`": shapes.ToolShape,
    "### `factory`": shapes.FactoryShape,
    "### `checks`": check_shapes.CheckShape,
    "### `memory`": memory_shapes.MemoryShape,
    "### `memory.blocks`": memory_shapes.BlockShape,
    "### `memory.archives`": memory_shapes.ArchiveShape,
}


@pytest.mark.parametrize("title", SECTIONS)
def test_every_key_has_its_row(title: str) -> None:
    section = re.split(r"^##", PAGE.partition(f"\n{title}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    rows = re.findall(r"^\| `(\w+)` \| \S", section, re.MULTILINE)
    assert sorted(rows) == sorted(SECTIONS[title].__struct_fields__)


def test_every_shape_has_a_section_or_is_told_in_a_row() -> None:
    told_in_a_row = {"ChildrenShape", "ParentShape", "CasesShape", "MostShape", "FetchShape", "NothingShape"}
    all_there_is = vars(shapes) | vars(memory_shapes) | vars(way_shapes)
    known = {name for name, one in all_there_is.items() if isinstance(one, type) and name.endswith("Shape")}
    assert known - told_in_a_row == {one.__name__ for one in SECTIONS.values()}


def test_the_rows_name_the_keys_of_the_small_shapes() -> None:
    for name in ("ChildrenShape", "ParentShape", "CasesShape", "MostShape"):
        keys = ", ".join(getattr(shapes, name).__struct_fields__)
        assert f"`{{{keys}}}`" in PAGE
    assert "{allow:" in PAGE


def test_later_sections_are_named() -> None:
    assert [name for name in shapes.LATER if f"`{name}`" not in PAGE] == []


def test_the_two_ways_make_the_same_team(tmp_path: Path) -> None:
    section = PAGE.partition("## The same in Python")[2]
    file = write(tmp_path, section.partition("```yaml\n")[2].partition("```")[0])
    made = runpy.run_path(str(write(tmp_path, section.partition("```python\n")[2].partition("```")[0], "same.py")))
    team, loaded = made["team"], load_team(file)
    assert isinstance(team, Supervisor)
    assert (team.name, team.roster, team.policy) == (loaded.name, loaded.roster, loaded.policy)


def test_the_example_has_the_right_shape(tmp_path: Path) -> None:
    example = PAGE.partition("```yaml\n")[2].partition("```")[0]
    team, findings = shaped(write(tmp_path, example))
    assert list(findings) == []
    assert team is not None
    assert team.name == "research"
