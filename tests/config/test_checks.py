"""The checks of a team file: every kind, who names them, and what is wrong with them, with its place."""

from pathlib import Path

import pytest

from chargehand.agents.checks import Reviewer, Rule, Verifier
from chargehand.agents.strategies import Route
from chargehand.config.describe import describe
from chargehand.config.load import build_team, load_team
from tests.config.files import parts, write

CREW = """
workers:
  ann: {description: counts things, accept: [%s]}
  bob: {description: writes things}
"""
CHECKS = """
version: 1
checks:
  figures: {python: "checks.py:figures"}
  exact: {python: "checks:figures"}
  form: {schema: {type: object, required: [apples]}}
  words: {contains: [apples, cellar], min_words: 3, max_words: 90}
  source: {cites: true, has_number: true, matches: "[0-9]+ apples"}
  second: {reviewer: bob}
  sound: {verifier: {prompt: Mind the boxes.}}
  plain: {verifier: true}
"""


def test_every_kind_of_check_can_be_declared(tmp_path: Path) -> None:
    (tmp_path / "checks.py").write_text("def figures(value):\n    return '12' in value['text']\n", encoding="utf-8")
    team = load_team(write(tmp_path, CHECKS + CREW % "figures, words, second"))
    checks = team.spec.checks
    assert checks.by_worker == {"ann": ("figures", "words", "second")}
    found = dict(checks.by_name)
    figures = found.pop("figures")
    exact = found.pop("exact")
    assert callable(figures)
    assert figures is exact
    assert found == {
        "form": {"type": "object", "required": ["apples"]},
        "words": Rule(contains=("apples", "cellar"), min_words=3, max_words=90),
        "source": Rule(cites=True, has_number=True, matches="[0-9]+ apples"),
        "second": Reviewer("bob"),
        "sound": Verifier("Mind the boxes."),
        "plain": Verifier(),
    }


def test_a_check_of_a_file_holds_in_a_run(tmp_path: Path) -> None:
    text = """
    version: 1
    supervisor: {strategy: {route: {router: rules, rules: {"250": reckoner}}}}
    checks: {euros: {contains: euros}}
    workers:
      reckoner: {description: Works out figures., tools: [calculator], accept: [euros]}
    """
    team = load_team(write(tmp_path, text))
    assert team.supervisor.strategy == Route("rules", {"250": "reckoner"})
    found = team.run_sync("What is 12% of 250?")
    assert {one.message for one in found.gaps} == {"not accepted by euros: 'euros' is not in it"}


@pytest.mark.parametrize(
    ("checks", "accept", "place", "said"),
    [
        (
            "it: {}",
            "it",
            "checks.it",
            "checks nothing; a check is one of python, schema, reviewer, verifier, or a rule",
        ),
        ("it: {cites: true, verifier: true}", "it", "checks.it", "mixes verifier, cites"),
        ("it: {reviewer: bop}", "it", "checks.it", "there is no worker 'bop' to review; did you mean 'bob'?"),
        ("it: {reviewer: ann}", "it", "workers.ann.accept", "would be reviewed by 'ann', who does it"),
        (
            "it: {cites: true}",
            "its",
            "workers.ann.accept",
            "names the check 'its', which there is not; did you",
        ),
        ("it: {matches: '('}", "it", "checks.it", "is no regular expression"),
        ("it: {python: 'nothing:here'}", "it", "checks.it", "there is no module 'nothing'"),
        ("it: {python: 'tools:RATE'}", "it", "checks.it", "'tools:RATE' is int, not a function of a result"),
        ("it: {schema: {}}", "it", "checks.it", "is no JSON Schema"),
        ("it: {min_words: 9, max_words: 2}", "it", "checks.it", "at least 9 and at most 2 words cannot be"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, checks: str, accept: str, place: str, said: str) -> None:
    found = parts(tmp_path, f"version: 1\nchecks:\n  {checks}\n{CREW % accept}")
    assert build_team(found) is None
    assert [one.path for one in found.findings if one.grave] == [place]
    assert said in next(finding.message for finding in found.findings if finding.grave)


def test_a_verifiers_model_is_among_those_that_are_looked_at(tmp_path: Path) -> None:
    file = write(tmp_path, f"version: 1\nchecks:\n  it: {{verifier: {{model: 'openai:gpt-5-mini'}}}}\n{CREW % 'it'}")
    assert "openai:gpt-5-mini" in describe(file).models


def test_a_check_that_nobody_names_is_a_warning(tmp_path: Path) -> None:
    text = "version: 1\nchecks:\n  figures: {has_number: true}\n  words: {min_words: 3}\n" + CREW % "words"
    told = describe(write(tmp_path, text))
    (found,) = told.findings
    assert (found.line, found.path, found.grave) == (3, "checks.figures", False)
    assert found.message.startswith("no worker names it under `accept`")
