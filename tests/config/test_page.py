"""The page about team files cannot drift: its examples are teams, in a file and in Python."""

import runpy
from pathlib import Path

from chargehand.config.keys import key_at, sections
from chargehand.config.load import load_team
from chargehand.models.providers import BUILT_IN
from chargehand.team import Team
from chargehand.tools.tool import CAP
from tests.config.files import shaped, write

PAGE = (Path(__file__).parents[2] / "docs" / "team-file.md").read_text(encoding="utf-8")


def test_every_key_has_a_meaning_and_names_the_real_defaults() -> None:
    assert [(part.path, key.name) for part in sections() for key in part.keys if not key.meaning] == []
    named = {
        "defaults.model": BUILT_IN,
        "tools.x.cap": f"{CAP // 1024}KiB",
    }
    for path, default in named.items():
        key = key_at(path)
        assert key is not None
        assert default in key.meaning


def test_the_two_ways_make_the_same_team(tmp_path: Path) -> None:
    section = PAGE.partition("## The same in Python")[2]
    file = write(tmp_path, section.partition("```yaml\n")[2].partition("```")[0])
    made = runpy.run_path(str(write(tmp_path, section.partition("```python\n")[2].partition("```")[0], "same.py")))
    team = made["team"]
    loaded = load_team(file)
    assert isinstance(team, Team)
    assert (team.name, team.roster, team.policy) == (loaded.name, loaded.roster, loaded.policy)


def test_the_example_has_the_right_shape(tmp_path: Path) -> None:
    example = PAGE.partition("```yaml\n")[2].partition("```")[0]
    team, findings = shaped(write(tmp_path, example))
    assert list(findings) == []
    assert team is not None
    assert team.name == "research"
