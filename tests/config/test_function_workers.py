"""Workers of a team file whose attempts a function makes."""

from pathlib import Path

import pytest

from chargehand import load_team
from chargehand.errors import Invalid

TEAM = """\
version: 1
name: shop
supervisor: {{model: demo}}
workers:
  clerk: {{description: Knows prices of anvils., {keys}}}
"""
CODE = """\
async def price(assignment, context):
    return "An anvil costs 12 euros."


def plain(assignment, context):
    return "12"
"""


def write(folder: Path, keys: str) -> Path:
    (folder / "shop_agents.py").write_text(CODE)
    (folder / "team.yaml").write_text(TEAM.format(keys=keys))
    return folder / "team.yaml"


def test_a_function_beside_the_file_does_the_tasks(tmp_path: Path) -> None:
    team = load_team(write(tmp_path, 'call: "shop_agents:price", timeout: 20s, tags: [prices]'))
    assert team.run_sync("What does an anvil cost?").answer == "An anvil costs 12 euros."


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ('call: "shop_agents:cost"', "has no 'cost'"),
        ('call: "shop_agents:plain"', "must be an async function"),
        ('call: "shop_agents:price", tools: [calculator]', "workers.clerk.tools: does not go with `call`"),
    ],
)
def test_what_cannot_work_is_refused_with_its_line(tmp_path: Path, keys: str, words: str) -> None:
    with pytest.raises(Invalid) as raised:
        load_team(write(tmp_path, keys))
    assert words in str(raised.value)
    assert "team.yaml:5" in str(raised.value)
