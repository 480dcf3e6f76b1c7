"""Skills: what a worker is told of them, what it reads when it needs it, and folders that cannot be used."""

from pathlib import Path

import pytest

from chargehand import Reply, ScriptedModel, Supervisor, Team, ToolCall, Worker
from chargehand.config.load import load_team
from chargehand.errors import Invalid
from chargehand.tools.skills import skills
from chargehand.tools.tool import ToolFailed

REFUND = """---
name: refunds
description: How to refund an order. Use it when a customer wants money back.
license: MIT
---
# Refunds

1. Look up the order.
2. Fill in the form in `forms/refund.txt`.
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    refunds = tmp_path / "skills" / "refunds"
    (refunds / "forms").mkdir(parents=True)
    (refunds / "SKILL.md").write_text(REFUND)
    (refunds / "forms" / "refund.txt").write_text("Order: ____\nAmount: ____\n")
    return tmp_path / "skills"


def call(name: str, arguments: str) -> Reply:
    return Reply(calls=(ToolCall("c1", name, arguments),), finish="tools")


async def test_a_worker_sees_names_first_and_follows_the_instructions_it_reads(folder: Path) -> None:
    model = ScriptedModel([call("skill", '{"skill": "refunds"}'), "Refunded."])
    worker = Worker("clerk", "refunds orders", tools=[skills(folder)], model=model)
    replies = await Team([worker], supervisor=Supervisor(model="demo")).message("Refund order 7.", workers=["clerk"])
    assert replies.replies[0].text == "Refunded."
    seen = model.requests
    (spec,) = [tool for tool in seen[0].tools if tool.name == "skill"]
    assert "refunds: How to refund an order" in spec.description
    assert "Look up the order" not in str(seen[0].messages), "what is not asked for takes no room"
    read = seen[1].messages[-1].text
    assert "1. Look up the order." in read
    assert "forms/refund.txt" in read
    assert "<data" not in read, "it is to be followed, unlike what other tools return"


def test_files_beside_the_instructions_are_read_and_nothing_outside(folder: Path, tmp_path: Path) -> None:
    read = skills(folder).function
    assert read("refunds", "forms/refund.txt").startswith("Order")
    (tmp_path / "secret.txt").write_text("secret")
    (folder / "refunds" / "link.txt").symlink_to(tmp_path / "secret.txt")
    for path in ("../../secret.txt", "link.txt", "/etc/passwd", "forms", "missing.txt"):
        with pytest.raises(ToolFailed):
            read("refunds", path)
    with pytest.raises(ToolFailed, match="refunds"):
        read("refund")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("# Refunds\n", r"SKILL\.md:1: a skill begins with ---"),
        ("---\nname: refunds\ndescription: a: b\n---\n", r"SKILL\.md:3: .* no YAML"),
        ("---\ndescription: x\nname: Big Name\n---\n", r"SKILL\.md:3: name is 'Big Name'"),
        ("---\nname: refunds\n---\n", r"SKILL\.md:1: write a description"),
        ("---\nname: refunds\ndescription: ''\n---\n", r"SKILL\.md:3: write a description"),
        ("---\n- name\n---\n", r"SKILL\.md:1: name is None"),
    ],
)
def test_a_skill_that_cannot_be_used_is_said_with_its_file(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "refunds").mkdir()
    (tmp_path / "refunds" / "SKILL.md").write_text(text)
    with pytest.raises(Invalid, match=problem):
        skills(tmp_path)


def test_two_skills_of_one_name_are_refused(folder: Path) -> None:
    (folder / "again").mkdir()
    (folder / "again" / "SKILL.md").write_text(REFUND)
    with pytest.raises(Invalid, match=r"refunds and .*again hold skills of one name"):
        skills(folder)


def test_a_folder_without_skills_says_how_to_write_one(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"NAME/SKILL\.md"):
        skills(tmp_path)


def test_a_team_file_names_a_folder_of_skills(folder: Path) -> None:
    team = folder.parent / "team.yaml"
    team.write_text(
        "version: 1\nname: desk\nworkers:\n  clerk: {description: refunds orders, tools: [playbook]}\n"
        "tools:\n  playbook: {skills: skills/}\n"
    )
    (clerk,) = load_team(team).spec.workers
    (tool,) = [item for item in clerk.tools if not isinstance(item, str)]
    assert getattr(tool, "name", "") == "playbook"
