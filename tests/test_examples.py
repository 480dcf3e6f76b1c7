"""Every example of a way to lead runs as its page says: who works, in which order, and what comes of it."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec import Struct

from chargehand.config.load import load_team
from chargehand.engine import events as ev
from chargehand.journal.store import read_run
from tests.cli.commands import EXAMPLES, JOURNAL, chargehand

STRATEGIES = EXAMPLES / "strategies"
PAGE = (STRATEGIES / "README.md").read_text(encoding="utf-8")
TEAMS = sorted(one.name for one in STRATEGIES.iterdir() if (one / "team.yaml").exists())


class Ran(Struct, frozen=True):
    """What a program is told of a run, and its journal."""

    told: dict[str, object]
    entries: tuple[ev.Entry, ...]

    @property
    def answer(self) -> str:
        return str(self.told["answer"])

    @property
    def workers(self) -> list[str]:
        """Who worked, in the order in which they began."""
        return [one.event.worker for one in self.entries if isinstance(one.event, ev.AttemptStarted)]

    @property
    def notes(self) -> list[str]:
        return [one.event.text for one in self.entries if isinstance(one.event, ev.Noted)]

    @property
    def most_at_once(self) -> int:
        under_way = 0
        most = 0
        for entry in self.entries:
            under_way += isinstance(entry.event, ev.AttemptStarted)
            under_way -= isinstance(entry.event, ev.AttemptSucceeded | ev.AttemptFailed)
            most = max(most, under_way)
        return most


def ran(folder: Path, strategy: str, *words: str | Path) -> Ran:
    """The example, run by the real command without any key."""
    done = chargehand(
        folder, "run", "--team", STRATEGIES / strategy, *(words or ("--example",)), "--run", "one", "--json", "-q"
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["ending"], told["gaps"]) == ("complete", [])
    return Ran(told, tuple(read_run(folder / JOURNAL, "one")))


def test_a_plan_does_at_the_same_time_what_does_not_depend(tmp_path: Path) -> None:
    found = ran(tmp_path, "plan")
    assert found.workers == ["analyst", "archivist", "artist"]
    assert found.most_at_once == 2
    for fact in ("North 452", "South 279", "free of charge", "Bar chart"):
        assert fact in found.answer, fact


@pytest.mark.parametrize(
    ("example", "worker", "fact"),
    [("1", "billing", "corrected within three days"), ("2", "repairs", "open the valve"), ("3", "desk", "8 to 17")],
)
def test_a_route_leads_to_one_worker_and_says_why(tmp_path: Path, example: str, worker: str, fact: str) -> None:
    found = ran(tmp_path, "route", "--example", example)
    assert found.workers == [worker]
    assert fact in found.answer
    assert re.search(rf"route to {worker}, confidence \d\.\d\d, by words: ", found.notes[0])


def test_a_loop_takes_one_task_at_a_time_and_keeps_a_ledger(tmp_path: Path) -> None:
    found = ran(tmp_path, "loop")
    assert (found.workers, found.most_at_once) == (["buyer", "reckoner"], 1)
    assert "380" in found.answer
    assert "26.6" in found.answer
    assert [note[:12] for note in found.notes[:2]] == ["turn 1: not ", "turn 2: not "]
    assert found.notes[2].startswith("turn 3: done")


def test_a_broadcast_asks_all_with_the_tag_at_once(tmp_path: Path) -> None:
    found = ran(tmp_path, "broadcast")
    assert (sorted(found.workers), found.most_at_once) == (["harbour", "island", "upstream"], 3)
    for fact in ("harbour: 140 life jackets are in stock at the harbour", "island: 36 life", "upstream: 22 life"):
        assert fact in found.answer, fact
    assert found.told["contradictions"] == []  # three places, three numbers


def test_in_a_round_everybody_hears_those_before(tmp_path: Path) -> None:
    found = ran(tmp_path, "round_robin")
    assert (found.workers, found.most_at_once) == (["skipper", "cook", "guide"], 1)
    for fact in ("The ferry costs 120 euros", "Lunch costs 168 euros", "guide: The museum costs 72 euros"):
        assert fact in found.answer, fact


def test_a_talk_calls_on_those_who_have_something_to_say(tmp_path: Path) -> None:
    found = ran(tmp_path, "dynamic")
    assert found.workers == ["pilot", "mechanic"]
    assert "10:40" in found.answer
    assert "She may sail" in found.answer
    assert "the supervisor ended the talk" in found.notes[-1]


def test_what_is_too_big_is_split_and_split_again(tmp_path: Path) -> None:
    found = ran(tmp_path, "recursive")
    tasks = [task.id for one in found.entries if isinstance(one.event, ev.TasksAdded) for task in one.event.tasks]
    assert tasks == ["t1.1", "t1.2", "t2.1", "t2.2", "t3.1", "t3.2"]
    for fact in ("Centre 590", "13 to 17", "20 cents a day", "3 euros for the work", "Centre 3, Hill 1"):
        assert fact in found.answer, fact


def test_a_plan_of_your_own_is_carried_out_as_it_stands(tmp_path: Path) -> None:
    found = ran(tmp_path, "fixed", "--plan", STRATEGIES / "fixed" / "plan.json")
    assert found.workers == ["analyst", "artist"]
    assert not any(isinstance(one.event, ev.SupervisionStarted) and one.event.duty == "plan" for one in found.entries)
    assert "Barn 6, Mill 5" in found.answer


def test_the_best_of_several_is_selected_with_a_reason(tmp_path: Path) -> None:
    found = ran(tmp_path, "select")
    assert len(found.workers) == 3
    assert found.answer.startswith("Small children can swim at Sand Cove")
    assert "Chosen from 3 results: [t1]. Why: It speaks to 3 of the 3 words that were asked about." in found.answer


def test_what_most_agree_on_wins_a_vote_and_the_others_are_shown(tmp_path: Path) -> None:
    found = ran(tmp_path, "vote")
    assert found.answer.startswith("The water level at the bridge is 212 cm.")
    assert "2 of 3 results agree: [t1], [t2]." in found.answer
    assert "[t3] says: The water level at the bridge is 150 cm." in found.answer


def test_much_text_becomes_little(tmp_path: Path) -> None:
    found = ran(tmp_path, "reduce")
    for fact in ("40 trees", "roof off the hay barn", "30 metres"):
        assert fact in found.answer, fact
    assert "kites" not in found.answer


def test_a_team_works_in_a_team(tmp_path: Path) -> None:
    words = [sys.executable, "-W", "error", STRATEGIES / "nested.py"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 0, done.stderr
    first, second, *answer = done.stdout.splitlines()
    assert (first.partition(":")[0], second.partition(":")[0]) == ("t1 cellar", "t2 clerk")
    assert answer == ["- Stock (anvils): 12 [t1].", "- An anvil costs 240 euros [t2]."]


# --- the page


def test_the_page_names_every_example_and_nothing_else() -> None:
    named = set(re.findall(r"--team examples/strategies/(\w+)", PAGE))
    assert named == set(TEAMS)
    assert "examples/strategies/nested.py" in PAGE


@pytest.mark.parametrize("team", TEAMS)
def test_an_example_is_sound(team: str) -> None:
    made = load_team(STRATEGIES / team)
    assert made.examples or team == "fixed"


@pytest.mark.timeout(300)  # many commands, one after the other, perhaps on a busy machine
def test_what_the_page_shows_is_what_comes_out(tmp_path: Path) -> None:
    """The answer that is shown for a command stands in what it prints, line by line."""
    for words, shown in re.findall(
        r"\$ chargehand run (--team examples/strategies/\w+[^\n]*)\n(.*?)```", PAGE, re.DOTALL
    ):
        team, *more = words.removeprefix("--team examples/strategies/").split()
        given = [STRATEGIES.parents[1] / one if one.startswith("examples/") else one for one in more]
        done = chargehand(tmp_path, "run", "--team", STRATEGIES / team, *given, "-q")
        missing = [line for line in shown.splitlines() if line.strip() and line not in done.stdout]
        assert missing == [], team
