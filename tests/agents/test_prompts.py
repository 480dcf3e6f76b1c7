"""A team's own prompts: what nobody could do without must have its place in them."""

import re
from pathlib import Path

import pytest

from chargehand.agents.prompts import NAMES, Prompts, bundled
from chargehand.config.load import load_team
from chargehand.errors import Invalid
from tests.cli.commands import chargehand


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("task", "Task: {{instruction}}", "prompt 'task' lacks {{inputs}}: the worker would not see what others found"),
        ("task", "{{inputs}}", "prompt 'task' lacks {{instruction}}: the worker would not know its task"),
        ("task", "Work.", "prompt 'task' lacks {{instruction}} and {{inputs}}: "),
        ("plan", "Make a plan.", "prompt 'plan' lacks {{workers}}: the model would not know who is on the team"),
        ("judge", "Rule. {{form}}", "prompt 'judge' lacks {{manner}}: "),
        ("work", "You work.", "prompt 'work' lacks {{prompt}}: what each worker is told about itself would be lost"),
    ],
)
def test_a_prompt_without_a_needed_place_is_refused_by_name(name: str, text: str, said: str) -> None:
    with pytest.raises(Invalid, match=re.escape(said)):
        Prompts({name: text})


@pytest.mark.parametrize("name", NAMES)
def test_our_own_prompts_have_all_that_is_needed(name: str) -> None:
    assert Prompts({name: bundled(name)}).text(name)


def test_what_can_be_done_without_may_be_left_out() -> None:
    own = {"answer": "Answer.", "reduce": "Shorten.", "refine": "Put it better.", "plan": "For {{workers}}."}
    assert Prompts(own).text("plan", workers="ann") == "For ann."


def test_in_a_team_file_the_place_is_named(tmp_path: Path) -> None:
    (tmp_path / "team.yaml").write_text(
        'version: 1\nname: one\nsupervisor:\n  prompts: {task: "Do {{instruction}}"}\nworkers: {ann: counts}\n'
    )
    with pytest.raises(Invalid, match=r"lacks \{\{inputs\}\}"):
        load_team(tmp_path)
    done = chargehand(tmp_path, "check")
    assert done.returncode == 2
    assert "lacks {{inputs}}" in done.stdout + done.stderr
