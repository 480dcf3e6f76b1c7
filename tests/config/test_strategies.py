"""How a team is led, from its file: every way, its settings, and what is wrong with them."""

from pathlib import Path

import pytest

from chargehand.agents.strategies import Broadcast, Dynamic, Loop, Recursive, RoundRobin, Route, Strategy, Whole
from chargehand.config.load import build_team, load_team
from tests.config.files import parts, write

CREW = """
workers:
  ann: {description: counts things, tags: [worker, cellar]}
  bob: {description: writes things, tags: [worker, office]}
"""


def way_of(tmp_path: Path, written: str) -> Strategy:
    team = load_team(write(tmp_path, f"version: 1\nsupervisor:\n  strategy: {written}\n{CREW}"))
    return team.supervisor.strategy


@pytest.mark.parametrize(
    ("written", "strategy"),
    [
        ("plan", Whole()),
        ("route", Route()),
        ("loop", Loop()),
        ("broadcast", Broadcast()),
        ("round_robin", RoundRobin()),
        ("dynamic", Dynamic()),
        ("recursive", Recursive()),
        (
            "{route: {router: words, rules: {apples: ann}, secondary: true, generalist: bob, threshold: 0.4}}",
            Route("words", {"apples": "ann"}, True, "bob", 0.4),
        ),
        ("{loop: {max_turns: 7, stalls: 1, fresh_starts: 0}}", Loop(7, 1, 0)),
        ("{broadcast: {match_all: [worker], match_some: [cellar]}}", Broadcast(("worker",), ("cellar",))),
        ("{round_robin: {max_turns: 3, token: ENOUGH}}", RoundRobin(3, "ENOUGH")),
        ("{dynamic: {max_turns: 4}}", Dynamic(4)),
        ("{recursive: {depth: 1, breadth: 3}}", Recursive(1, 3)),
    ],
)
def test_every_way_can_be_named_with_its_settings(tmp_path: Path, written: str, strategy: Strategy) -> None:
    assert way_of(tmp_path, written) == strategy


def test_a_team_that_says_nothing_is_led_by_a_plan(tmp_path: Path) -> None:
    assert load_team(write(tmp_path, f"version: 1\n{CREW}")).supervisor.strategy == Whole()


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("{route: {}, loop: {}}", "must be exactly one strategy, and is 2 (route, loop)"),
        ("{}", "must be exactly one strategy, and is 0"),
        ("{route: {generalist: bop}}", "the generalist 'bop' is not on the team; there are ann, bob"),
        ("{route: {rules: {apples: anne}}}", "a rule of the route names 'anne', which is not on the team"),
        ("{route: {router: rules}}", "routes by rules, and has none"),
        ("{broadcast: {match_all: [attic]}}", "no worker has these tags; the tags are cellar, office, worker"),
    ],
)
def test_what_cannot_be_meant_is_said_with_its_place(tmp_path: Path, written: str, said: str) -> None:
    made = parts(tmp_path, f"version: 1\nsupervisor:\n  strategy: {written}\n{CREW}")
    assert build_team(made) is None
    assert said in " ".join(one.message for one in made.findings)


@pytest.mark.parametrize("place", ["generalist: bob", "rules: {apples: bob}"])
def test_nobody_who_works_only_after_turns_is_sent_requests(tmp_path: Path, place: str) -> None:
    text = f"""
    version: 1
    supervisor: {{strategy: {{route: {{{place}}}}}}}
    memory: {{blocks: {{notes: {{description: what was said}}}}}}
    workers:
      ann: Counts things.
      bob: {{prompt: Keep the notes short., tools: [memory_rethink], every: 2, blocks: {{notes: write}}}}
    """
    made = parts(tmp_path, text)
    assert build_team(made) is None
    (found,) = made.findings
    assert (found.line, found.path) == (3, "supervisor.strategy")
    assert "'bob'" in found.message
    assert "not on the team; there are ann" in found.message
