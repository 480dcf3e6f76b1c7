"""`chargehand check`: one line a finding, exit 0 or 2, a schema, and what keys mean."""

import json
from pathlib import Path

import pytest

from tests.cli.commands import chargehand
from tests.config.files import TOOLS, write

GOOD = (
    'version: 1\nname: good\nworkers: {ann: {description: Doubles., tools: [twice]}}\ntools: {twice: "tools:double"}\n'
)
BAD = "version: 1\nnam: x\nworkers:\n  ann: {tools: [calculater], timeout: soon}\n"


def test_a_good_team_is_well(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(TOOLS)
    write(tmp_path, GOOD)
    done = chargehand(tmp_path, "check")
    assert (done.returncode, done.stdout) == (0, "")
    assert "team good: 1 worker, 1 tool; models: demo" in done.stderr
    assert "team.yaml: all is well" in done.stderr
    write(tmp_path, GOOD.replace("[twice]", "[twice, calculator, chart]"))
    assert "1 worker, 3 tools" in chargehand(tmp_path, "check").stderr


def test_it_says_whose_earlier_tasks_are_shown(tmp_path: Path) -> None:
    write(tmp_path, "version: 1\nname: good\nworkers: {ann: {description: Counts., remembers: true}}\n")
    done = chargehand(tmp_path, "check")
    assert (done.returncode, done.stdout) == (0, "")
    assert "earlier tasks (ann): kept apart by the labels session and user; served, else by key" in done.stderr


EFFECTS = '''
"""Tools with effects."""
from chargehand import CallKey, tool

@tool(effect="effect")
def pay(euros: float) -> str:
    """Pay."""
    return "paid"

@tool(effect="effect")
def book(seat: str, key: CallKey) -> str:
    """Book a seat."""
    return "booked"

@tool(effect="effect", happened=lambda arguments, key: None)
def mail(to: str) -> str:
    """Send a mail."""
    return "sent"
'''


@pytest.mark.parametrize(
    ("policy", "outcome"),
    [("", "a person is asked whether it happened"), ("policy: {uncertain: fail}\n", "its task fails")],
)
def test_it_says_what_a_crash_does_to_an_effect_that_nothing_can_look_up(
    tmp_path: Path, policy: str, outcome: str
) -> None:
    (tmp_path / "tools.py").write_text(EFFECTS)
    tools = "tools: {pay: 'tools:pay', book: 'tools:book', mail: 'tools:mail'}"
    worker = "workers: {ann: {description: Pays., tools: [pay, book, mail]}}"
    write(tmp_path, f"version: 1\nname: good\n{policy}{worker}\n{tools}\n")
    done = chargehand(tmp_path, "check")
    assert (done.returncode, done.stdout) == (0, "")
    assert f"  pay: after a crash {outcome}; take a CallKey or give happened= to look it up" in done.stderr
    assert json.loads(chargehand(tmp_path, "check", "--json").stdout)["in_doubt"] == ["pay"]


def test_every_finding_has_a_line(tmp_path: Path) -> None:
    write(tmp_path, BAD)
    done = chargehand(tmp_path, "check", "--team", "team.yaml")
    assert done.returncode == 2
    assert done.stdout.splitlines() == [
        "error: team.yaml:2: nam: there is no key 'nam' here; did you mean 'name'?",
        "error: team.yaml:4: workers.ann.timeout: is 'soon'; write a duration such as 90s, 5m, 1h30m or 250ms",
        "error: team.yaml:4: workers.ann.tools[0]: there is no tool 'calculater'; did you mean 'calculator'?",
    ]
    assert "team.yaml: 3 errors, 0 warnings" in done.stderr


def test_warnings_stop_only_when_strict(tmp_path: Path) -> None:
    write(tmp_path, "version: 1\nworkers: {ann: {prompt: Read.}}\n")
    done = chargehand(tmp_path, "check", "--team", "team.yaml")
    assert done.returncode == 0
    assert done.stdout.startswith("warning: team.yaml:2: workers.ann: has no description")
    strict = chargehand(tmp_path, "check", "--team", "team.yaml", "--strict")
    assert strict.returncode == 2
    assert strict.stdout.startswith("error: team.yaml:2: workers.ann: has no description")


def test_json_is_one_document(tmp_path: Path) -> None:
    write(tmp_path, BAD)
    done = chargehand(tmp_path, "check", "--team", "team.yaml", "--json")
    assert done.returncode == 2
    told = json.loads(done.stdout)
    assert told["ok"] is False
    places = [(one["line"], one["path"]) for one in told["findings"]]
    assert places == [(2, "nam"), (4, "workers.ann.timeout"), (4, "workers.ann.tools[0]")]


def test_one_key_is_explained_with_what_it_takes(tmp_path: Path) -> None:
    told = chargehand(tmp_path, "check", "--explain", "workers.*.steps").stdout.splitlines()
    assert told == [
        "workers.*.steps: How many times it may call its model in one attempt.",
        "takes: whole number, 1 to 10000; default 10",
    ]
    told = chargehand(tmp_path, "check", "--explain", "workers.bob.steps").stdout.splitlines()
    assert told[1:] == ["takes: whole number, 1 to 10000; default 10"]
    told = chargehand(tmp_path, "check", "--explain", "workers.bob").stdout.splitlines()
    assert told[0] == "workers.bob: By name: who does the work. One that is only a text is its description."


def test_a_key_is_explained_without_its_stars(tmp_path: Path) -> None:
    for path, key in (("tools.approve", "tools.*.approve"), ("workers.steps", "workers.*.steps")):
        told = chargehand(tmp_path, "check", "--explain", path).stdout
        assert told == chargehand(tmp_path, "check", "--explain", key).stdout
        assert told.startswith(f"{key}: ")


def test_a_key_that_is_not_there_is_refused_with_the_nearest(tmp_path: Path) -> None:
    done = chargehand(tmp_path, "check", "--explain", "defaults.step")
    assert done.returncode == 2
    assert done.stderr == "chargehand: a team file has no key 'defaults.step'; did you mean 'defaults.steps'?\n"
    nobody = chargehand(tmp_path, "check", "--explain", "workers.*.retry")
    assert nobody.stderr.startswith("chargehand: a team file has no key 'workers.*.retry'")


def test_the_schema_is_json(tmp_path: Path) -> None:
    done = chargehand(tmp_path, "check", "--schema")
    assert done.returncode == 0
    schema = json.loads(done.stdout)
    assert schema["$schema"].endswith("2020-12/schema")
    assert set(schema["properties"]) > {"version", "workers", "tools"}


@pytest.mark.parametrize(
    ("team", "said"),
    [
        ("none.yaml", "there is no team file none.yaml"),
        ("empty", "empty holds no team.yaml or team.yml"),
    ],
)
def test_a_team_that_is_not_there_is_an_error_in_one_line(tmp_path: Path, team: str, said: str) -> None:
    (tmp_path / "empty").mkdir()
    done = chargehand(tmp_path, "check", "--team", team)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_binary_file_and_one_full_of_signs_do_no_harm(tmp_path: Path) -> None:
    (tmp_path / "team.yaml").write_bytes(bytes(range(256)) * 4)
    done = chargehand(tmp_path, "check")
    assert done.returncode == 2
    assert "is not text in UTF-8" in done.stdout
    write(tmp_path, 'version: 1\n"\\e[31mred\\e[0m": 1\nworkers: {ann: Reads.}\n')
    done = chargehand(tmp_path, "check")
    assert done.returncode == 2
    assert "\x1b" not in done.stdout + done.stderr


def test_the_environment_may_name_the_team(tmp_path: Path) -> None:
    write(tmp_path / "other", "version: 1\nname: other\nworkers: {ann: Reads.}\n")
    done = chargehand(tmp_path, "check", CHARGEHAND_TEAM="other")
    assert done.returncode == 0
    assert "named by CHARGEHAND_TEAM" in done.stderr


def test_a_threshold_on_an_argument_that_is_not_there_is_found(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(TOOLS)
    write(tmp_path, GOOD.replace('twice: "tools:double"', 'twice: {python: "tools:double", approve: {nr: "> 5"}}'))
    done = chargehand(tmp_path, "check")
    assert done.returncode == 2
    assert "team.yaml:4: tools.twice: 'twice' has no argument 'nr'; did you mean 'number'?" in done.stdout


PAYING = '''
"""Tools that ask above thresholds."""
from chargehand import Team, Worker, tool
from chargehand.tools.rules import RequiresApproval

@tool(effect="idempotent", approve={"euros": "> 500", "to": "not in [Ott, 'Lehm & Co']"})
def pay(euros: float, to: str) -> str:
    """Pay."""
    return "paid"

@tool(effect="idempotent", approve=lambda euros: euros > 500)
def lend(euros: float) -> str:
    """Lend."""
    return "lent"

def send(to: str) -> str:
    """Send."""
    return "sent"

rule = RequiresApproval("send", {"to": "== 5"})
team = Team([Worker("ann", "pays", tools=[pay, lend, send], rules=[rule])])
outer = Team([team.as_worker("desk", "pays")])
'''


DESK = """
version: 1
name: desk
workers:
  ann:
    description: Pays.
    tools: [pay, lend, send]
    rules: [{requires_approval_when: {tool: send, when: {to: "== Ott"}}}]
tools: {pay: "paying:pay", lend: "paying:lend", send: "paying:send"}
"""


def test_it_prints_how_each_threshold_was_read(tmp_path: Path) -> None:
    (tmp_path / "paying.py").write_text(PAYING.replace("== 5", "== Ott"))
    write(tmp_path, DESK)
    lines = [
        'pay: asks if euros > 500 and to not in ["Ott", "Lehm & Co"]',
        "lend: a function decides whether it asks",
        'send (ann): asks if to == "Ott"',
    ]
    for team in (".", "paying:team", "paying:outer"):
        done = chargehand(tmp_path, "check", "--team", team, PYTHONPATH=str(tmp_path))
        assert done.returncode == 0, done.stdout + done.stderr
        assert "\n".join(f"  {line}" for line in lines) in done.stderr
        assert "all is well" in done.stderr
        told = chargehand(tmp_path, "check", "--json", "--team", team, PYTHONPATH=str(tmp_path))
        assert json.loads(told.stdout)["thresholds"] == lines


@pytest.mark.parametrize("written", ["not in Ott, Lehm", "Not In [Ott]", "!Ott"])
def test_a_threshold_that_only_looks_like_one_is_found(tmp_path: Path, written: str) -> None:
    (tmp_path / "paying.py").write_text(PAYING.replace("== 5", written))
    done = chargehand(tmp_path, "check", "--team", "paying:team", PYTHONPATH=str(tmp_path))
    assert done.returncode == 2
    assert f"to: {written!r} begins like an operator and is none; write one of '> 500'" in done.stderr
    (tmp_path / "paying.py").write_text(PAYING.replace("== 5", "== Ott"))
    write(tmp_path, DESK.replace("== Ott", written))
    done = chargehand(tmp_path, "check", PYTHONPATH=str(tmp_path))
    assert done.returncode == 2
    assert f"team.yaml:8: workers.ann.rules: to: {written!r} begins like an operator and is none" in done.stdout
    assert "  send (ann)" not in done.stderr
