"""Team files that name other team files as workers: paths, circles, depth, and what is wrong on which line of which."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from chargehand.config.describe import describe
from chargehand.config.load import load_team
from chargehand.config.source import FileFinding
from chargehand.engine.budget import Amount
from chargehand.errors import Invalid
from chargehand.journal.memory import MemoryJournal
from chargehand.models.guard import Guarded
from chargehand.models.resolve import Finder
from chargehand.team import Team
from tests.cli.commands import chargehand
from tests.config.files import write

INNER = """\
version: 1
name: cellar
description: Knows what is in stock.
timeout: 20s
budget: {calls: 40}
supervisor: {strategy: {broadcast: {}}}
workers:
  keeper:
    description: Looks up how many of a product are in stock.
    prompt: file:prompts/keeper.md
    tools: [stock]
tools:
  stock: {python: "tools:stock"}
"""
OUTER = """\
version: 1
name: office
workers:
  cellar:
    team: ../cellar
    description: Knows the stock of anvils and tongs.
    tags: [stock]
    estimate: {calls: 30}
    seconds: 3s
    timeout: 25s
  writer: Writes short notes.
"""
TOOLS = '''
"""Tools of the inner team."""

def stock(product: str) -> int:
    """How many of a product are in stock: anvils or tongs."""
    return {"anvils": 12, "tongs": 31}[product]
'''


@pytest.fixture
def outer(tmp_path: Path) -> Path:
    write(tmp_path / "cellar", INNER)
    write(tmp_path / "cellar", TOOLS, "tools.py")
    write(tmp_path / "cellar" / "prompts", "You keep the stock.", "keeper.md")
    return write(tmp_path / "office", OUTER)


def placed(findings: Sequence[FileFinding], root: Path) -> list[str]:
    return [str(one).replace(f"{root}/", "") for one in findings]


# --- what comes of it


async def test_a_file_that_names_another_makes_a_worker_of_that_team(outer: Path) -> None:
    team = load_team(outer)
    (inner,) = team.teams
    assert isinstance(inner, Team)
    assert (inner.name, inner.timeout, inner.budget.calls) == ("cellar", 20.0, 40)
    agent = team.roster.agents[0]
    assert (agent.name, agent.tags, agent.timeout, agent.seconds) == ("cellar", ("stock",), 25.0, 3.0)
    assert agent.description == "Knows the stock of anvils and tongs."
    journal = MemoryJournal()
    found = await Team([inner.as_worker(estimate=Amount(calls=9))], journal=journal).run(
        "How many anvils are in stock?"
    )
    assert "12" in str(found.answer)


async def test_the_inner_team_does_its_part_of_a_request(outer: Path) -> None:
    found = await load_team(outer).run("How many anvils are in stock?")
    assert found.ending == "complete"
    assert "12" in str(found.answer)


def test_a_file_and_its_folder_are_the_same_and_paths_are_those_of_the_file_that_names_them(outer: Path) -> None:
    root = outer.parent.parent
    write(root / "deep" / "down", OUTER.replace("../cellar", "../../cellar/team.yaml"))
    teams = [load_team(outer), load_team(root / "deep" / "down")]
    assert [one.teams[0].name for one in teams] == ["cellar", "cellar"]


def test_without_words_of_its_own_a_worker_says_what_its_team_says(outer: Path) -> None:
    write(outer.parent, "version: 1\nworkers: {cellar: {team: ../cellar}}\n")
    told = describe(outer)
    assert told.findings == []
    assert told.workers[0].description == "Knows what is in stock."
    assert load_team(outer).roster.agents[0].timeout == 25.0, "what leaves it all of its own 20 seconds"


def test_one_model_for_everybody_is_one_for_those_inside_too(outer: Path) -> None:
    write(outer.parent.parent / "cellar", INNER.replace("version: 1", "version: 1\ndefaults: {model: openai:gpt-x}"))
    team = load_team(outer, model="demo")
    assert "No language model" in team.notice
    assert [one.model for one in team.teams[0].roster.agents] == ["demo"]


# --- keys of the inner file's surroundings


async def test_keys_beside_the_inner_file_are_found_for_the_inner_team(outer: Path) -> None:
    cellar = outer.parent.parent / "cellar"
    write(cellar, INNER.replace("version: 1", "version: 1\ndefaults: {model: openai:gpt-x}"))
    (cellar / ".env").write_text("OPENAI_API_KEY=sk-of-the-cellar\n")
    assert describe(outer).errors == []
    team = load_team(outer)
    async with team.executor():  # without its own lookup this would say that the key is missing
        pass
    (cellar / ".env").unlink()
    assert (
        "cellar/team.yaml:2: defaults.model: openai:gpt-x needs a key"
        in placed(describe(outer).errors, cellar.parent)[0]
    )
    with pytest.raises(Invalid, match="needs a key"):
        async with team.executor():
            pass


async def test_limits_of_a_provider_are_shared_by_teams_with_the_same_key() -> None:
    finder = Finder({"OPENAI_API_KEY": "sk-one"}.get)
    same = finder.asking({"OPENAI_API_KEY": "sk-one"}.get)
    other = finder.asking({"OPENAI_API_KEY": "sk-two"}.get)
    found = [one.find("openai:gpt-x") for one in (finder, same, other)]
    limiters = [one.limiter for one in found if isinstance(one, Guarded)]
    assert len(limiters) == 3
    assert limiters[0] is limiters[1]
    assert limiters[0] is not limiters[2]
    await finder.close()


# --- what is wrong


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("tools", "[calculator]"),
        ("model", "demo"),
        ("prompt", "You are kind."),
        ("output", "{type: object}"),
        ("steps", "3"),
        ("remembers", "true"),
        ("settings", "{temperature: 1}"),
        ("contacts", "[writer]"),
        ("rules", "[]"),
    ],
)
def test_what_only_those_inside_can_have_is_refused_where_it_stands(outer: Path, key: str, value: str) -> None:
    text = f"version: 1\nworkers:\n  cellar:\n    team: ../cellar\n    {key}: {value}\n  writer: Writes.\n"
    said = placed(describe(write(outer.parent, text)).errors, outer.parent.parent)
    words = "does not go with `team`: the team brings what it works with"
    assert said == [f"office/team.yaml:5: workers.cellar.{key}: {words}"]


def test_fallback_models_and_shared_memory_are_refused_too(outer: Path) -> None:
    text = """\
    version: 1
    workers:
      cellar: {team: ../cellar, fallback_models: [demo], fallbacks: [writer, nobody], blocks: {notes: write}}
      writer: Writes.
    memory: {blocks: {notes: {value: x}}}
    """
    said = "\n".join(placed(describe(write(outer.parent, text)).errors, outer.parent.parent))
    assert "workers.cellar.fallback_models: does not go with `team`" in said
    assert "workers.cellar.fallbacks[1]: there is no other worker 'nobody'" in said
    assert "workers.cellar.blocks: does not go with `team`" in said


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (
            "tools: [stok]",
            "cellar/team.yaml:11: workers.keeper.tools[0]: there is no tool 'stok'; did you mean 'stock'?",
        ),
        (
            "tolls: [stock]",
            "cellar/team.yaml:11: workers.keeper.tolls: there is no key 'tolls' here; did you mean 'tools'?",
        ),
        ("tools: [stock", "cellar/team.yaml:"),
        (
            "prompt: file:none.md",
            "cellar/team.yaml:11: workers.keeper.prompt: there is no 'none.md' beside the team file",
        ),
    ],
)
def test_what_is_wrong_inside_names_the_inner_file_and_its_line(outer: Path, wrong: str, said: str) -> None:
    cellar = outer.parent.parent / "cellar"
    write(
        cellar,
        INNER.replace("    prompt: file:prompts/keeper.md\n", "").replace("tools: [stock]", f"steps: 5\n    {wrong}"),
    )
    found = placed(describe(outer).errors, cellar.parent)
    assert said in found[0]
    with pytest.raises(Invalid) as raised:
        load_team(outer)
    assert said in str(raised.value).replace(f"{cellar.parent}/", "")


@pytest.mark.parametrize("path", ["../nowhere", "~/cellar", "/etc/team.yaml", "../empty", "a\\0b"])
def test_a_path_that_leads_to_no_team_is_said_where_it_stands(outer: Path, path: str) -> None:
    (outer.parent.parent / "empty").mkdir()
    write(outer.parent, f'version: 1\nworkers:\n  cellar:\n    team: "{path}"\n')
    said = placed(describe(outer).errors, outer.parent.parent)
    assert len(said) == 1
    assert said[0].startswith("office/team.yaml:4: workers.cellar.team: ")


def test_a_file_that_cannot_be_read_is_said(outer: Path) -> None:
    inner = outer.parent.parent / "cellar" / "team.yaml"
    inner.write_bytes(b"version: 1\nname: \xff\xfe\n")  # one without permission would be read by root
    assert "cellar/team.yaml: is not text in UTF-8" in str(describe(outer).errors[0])


def test_a_circle_is_refused_and_named(tmp_path: Path) -> None:
    for here, there in (("a", "b"), ("b", "c"), ("c", "a")):
        write(tmp_path / here, f"version: 1\nname: {here}\nworkers: {{next: {{team: ../{there}}}}}\n")
    (said,) = placed(describe(tmp_path / "a").errors, tmp_path)
    assert said == (
        "c/team.yaml:3: workers.next.team: goes in a circle: team.yaml > ../b/team.yaml > ../c/team.yaml > team.yaml; "
        "a team cannot work for itself: leave it out"
    )
    own = write(tmp_path / "own", "version: 1\nworkers: {me: {team: .}}\n")
    assert "goes in a circle: team.yaml > team.yaml" in str(describe(own).errors[0])
    (tmp_path / "other").symlink_to(tmp_path / "a")
    write(tmp_path / "c", "version: 1\nworkers: {next: {team: ../other}}\n")
    assert "goes in a circle" in str(describe(tmp_path / "a").errors[0]), "by a link as well"


def chain(root: Path, count: int, more: str = "") -> Path:
    for number in range(count):
        write(root / f"n{number}", f"version: 1\nname: n{number}\nworkers: {{below: {{team: ../n{number + 1}}}}}\n")
    write(root / f"n{count}", "version: 1\nname: last\nworkers: {ann: Counts.}\n")
    return write(root / "n0", f"version: 1\nname: n0\n{more}workers: {{below: {{team: ../n1}}}}\n")


def test_depth_is_limited_and_the_limit_can_be_set_by_the_outermost_file(tmp_path: Path) -> None:
    assert describe(chain(tmp_path / "three", 3)).errors == []
    (said,) = placed(describe(chain(tmp_path / "four", 4)).errors, tmp_path)
    assert said.startswith(
        "four/n3/team.yaml:3: workers.below.team: is a team inside 4 others, and at most 3 are allow"
    )
    wide = load_team(chain(tmp_path / "wide", 4, "policy: {limits: {max_nesting: 4}}\n"))
    deepest = wide
    depth = 0
    while deepest.teams:
        assert deepest.policy.limits.max_nesting == 4, "it holds on every level"
        deepest = deepest.teams[0]
        depth += 1
    assert depth == 4


def test_files_that_name_each_other_many_times_over_end(tmp_path: Path) -> None:
    for number in range(12):
        both = ", ".join(f"{side}: {{team: ../n{number + 1}}}" for side in ("left", "right"))
        limit = "policy: {limits: {max_nesting: 50}}\n" if number == 0 else ""
        write(tmp_path / f"n{number}", f"version: 1\n{limit}workers: {{{both}}}\n")
    write(tmp_path / "n12", "version: 1\nworkers: {ann: Counts.}\n")
    assert "is one team too many: 100 are inside the outermost file already" in str(describe(tmp_path / "n0").errors[0])


def test_two_teams_of_one_name_do_not_share_a_memory(outer: Path) -> None:
    memory = "memory: {blocks: {notes: x}}\n"
    write(outer.parent.parent / "cellar", INNER + memory)
    assert describe(outer).errors == []
    write(outer.parent, OUTER.replace("name: office", "name: cellar") + memory)
    assert "is called 'cellar' as well" in str(describe(outer).errors[0])


# --- on the command line


def test_check_walks_into_the_teams_inside(outer: Path) -> None:
    good = chargehand(outer.parent, "check")
    assert good.returncode == 0
    assert "cellar is a team of 1 worker in ../cellar/team.yaml: keeper" in good.stderr.replace(
        f"{outer.parent.parent}/", "../"
    )
    told = json.loads(chargehand(outer.parent, "check", "--json").stdout)
    assert [one["team"].endswith("cellar/team.yaml") for one in told["workers"]] == [True, False]
    assert told["workers"][0]["inside"][0]["tools"] == ["stock"]
    write(outer.parent.parent / "cellar", INNER.replace("tools: [stock]", "tools: [stok]"))
    bad = chargehand(outer.parent, "check")
    assert bad.returncode == 2
    assert "cellar/team.yaml:11: workers.keeper.tools[0]: there is no tool 'stok'" in bad.stdout
    assert chargehand(outer.parent, "doctor").returncode == 1
    run = chargehand(outer.parent, "run", "How many anvils are in stock?")
    assert run.returncode == 2
    assert "cellar/team.yaml:11" in run.stderr


def test_a_run_of_nested_files_from_the_command_line(outer: Path) -> None:
    done = chargehand(outer.parent, "run", "How many anvils are in stock?", "--quiet")
    assert (done.returncode, "12" in done.stdout) == (0, True), done.stderr
