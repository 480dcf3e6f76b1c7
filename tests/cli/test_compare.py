"""`--compare-sequential`: measured by doing the plan again where that is free and changes nothing, else reckoned."""

import asyncio
import json
import re
import time
from pathlib import Path
from subprocess import DEVNULL, Popen

import pytest

from chargehand import (
    Archive,
    Block,
    Memory,
    MemoryJournal,
    Plan,
    Reply,
    Request,
    ScriptedModel,
    Supervisor,
    Task,
    ToolCall,
    Usage,
    Worker,
    tool,
)  # fmt: skip
from chargehand.cli.compare import Compared, compare
from chargehand.cli.main import main
from chargehand.models.model import ModelCard, ModelFailed
from chargehand.runtime.result import Result
from chargehand.stores.reader import read_run
from chargehand.terms.budget import NOTHING, Amount
from chargehand.terms.failure import Failure
from chargehand.terms.plan import TaskId
from chargehand.tools.tool import Costs
from tests.cli.commands import COMMAND, JOURNAL, Done, Underway, chargehand, environment

FREE = ModelCard("free", micros_in=0.0, micros_out=0.0)
TEAM = """
version: 1
name: gauges
workers:
  north: {description: Reads the north gauge., tools: [north_gauge]}
  south: {description: Reads the south gauge., tools: [south_gauge]}
  west: {description: Reads the west gauge., tools: [west_gauge]}
tools:
"""
TOOLS = '''
import time
from pathlib import Path


def _read(name):
    with Path("called.txt").open("a") as file:
        file.write(name + "\\n")
    seen = Path("called.txt").read_text().count(name)
    time.sleep(WAIT if seen == 1 else AGAIN)
    if seen > GOOD:
        raise ValueError("the gauge is broken")
    return f"The {name} gauge shows 212 cm."


def north_gauge():
    """Read the north gauge."""
    return _read("north")


def south_gauge():
    """Read the south gauge."""
    return _read("south")


def west_gauge():
    """Read the west gauge."""
    return _read("west")
'''
GAUGES = ("north", "south", "west")


def gauges(folder: Path, *, wait: float = 0.2, again: float = 0.2, good: int = 9, effect: str = "read") -> Path:
    """A team of three whose tools wait; each call is written down in called.txt. Its plan is in plan.json."""
    lines = [f'  {name}_gauge: {{python: "tools:{name}_gauge", effect: {effect}}}\n' for name in GAUGES]
    (folder / "team.yaml").write_text(TEAM + "".join(lines))
    numbers = {"WAIT": str(wait), "AGAIN": str(again), "GOOD": str(good)}
    source = re.sub("WAIT|AGAIN|GOOD", lambda found: numbers[found[0]], TOOLS)
    (folder / "tools.py").write_text(source)
    tasks = [{"id": name, "instruction": f"Read the {name} gauge.", "worker": name} for name in GAUGES]
    (folder / "plan.json").write_text(json.dumps({"tasks": tasks, "goal": "Read all gauges."}))
    return folder


def asked(folder: Path, *more: str) -> Done:
    return chargehand(folder, "run", "--plan", "plan.json", "--run", "one", "--compare-sequential", *more)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def asked_here(capfd: pytest.CaptureFixture[str], *more: str) -> Done:
    """The same in this process, where one of its own is not the point."""
    words = ("run", "Read all gauges.", "--plan", "plan.json", "--run", "one", "--compare-sequential", *more)
    code = main(words)
    shown = capfd.readouterr()
    return Done(words, code, shown.out, shown.err)


def calls(folder: Path) -> dict[str, int]:
    found = (folder / "called.txt").read_text().split()
    return {name: found.count(name) for name in GAUGES}


def test_a_free_run_is_done_again_one_task_at_a_time_and_both_are_measured(tmp_path: Path) -> None:
    done = asked(gauges(tmp_path, again=0.5))
    assert done.returncode == 0, done.stderr
    assert "doing the plan again, one task at a time" in done.stderr
    told = re.search(
        r"one at a time: ([\d.]+) s; side by side: ([\d.]+) s; ([\d.]+) times faster \((.*)\)", done.stderr
    )
    assert told is not None, done.stderr
    assert 1.5 <= float(told[1]) < 15
    assert 0.5 <= float(told[2]) < float(told[1])
    assert float(told[3]) > 1.5
    assert told[4] == "measured by doing the plan again, both ways"
    listed = json.loads(chargehand(tmp_path, "runs", "--json").stdout)
    assert "one" in json.dumps(listed)
    assert "again" not in json.dumps(listed)  # the journal knows of one run
    assert read_run(tmp_path / JOURNAL, "one")[-1].event.__class__.__name__ == "RunEnded"


def test_what_may_change_something_is_done_once_and_the_gain_is_reckoned(
    here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    gauges(here, wait=0.05, effect="effect")
    done = asked_here(capfd, "--json", "-q")
    assert done.returncode == 0, done.stderr
    assert calls(here) == {"north": 1, "south": 1, "west": 1}
    told = json.loads(done.stdout)["compared"]
    assert told["measured"] is False
    assert re.fullmatch(r"(north|south|west) called \1_gauge, which may change something", told["why"])
    assert f"(reckoned from the journal, because {told['why']})" in done.stderr


def test_a_second_time_that_ends_otherwise_says_so_and_changes_no_exit_code(
    here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    gauges(here, wait=0.02, again=0.02, good=1)
    done = asked_here(capfd, "--json")
    told = json.loads(done.stdout)
    assert (done.returncode, told["ending"]) == (0, "complete")
    assert told["compared"]["measured"] is False
    assert told["compared"]["why"] == "the plan could not be done again: the second time it ended failed (no_results)"


def test_ctrl_c_cuts_the_second_time_short_and_leaves_the_run_as_it_ended(tmp_path: Path) -> None:
    gauges(tmp_path, wait=0.02, again=8)
    under_way = Underway(tmp_path, "run", "--plan", "plan.json", "--run", "one", "--compare-sequential")
    under_way.until("doing the plan again")
    under_way.until("again: 0 of 3 tasks")
    under_way.interrupt()
    assert under_way.end() == 0
    told = under_way.heard.read_text()
    assert "because doing the plan again was cut short by Ctrl-C" in told
    assert "ending: complete" in told


def test_sigterm_in_the_second_time_leaves_the_document_of_the_run(tmp_path: Path) -> None:
    gauges(tmp_path, wait=0.02, again=8)
    words = ("run", "--plan", "plan.json", "--run", "one", "--compare-sequential", "--json")
    heard, told = tmp_path / "heard.txt", tmp_path / "told.json"
    with heard.open("w") as progress, told.open("w") as answer:
        process = Popen(
            [*COMMAND, *words], cwd=tmp_path, env=environment(), stdin=DEVNULL, stdout=answer, stderr=progress
        )
    while "again: 0 of 3 tasks" not in heard.read_text():
        assert process.poll() is None, heard.read_text()
        time.sleep(0.02)
    process.terminate()
    assert process.wait(timeout=30) == 143
    found = json.loads(told.read_text())
    assert (found["run"], found["ending"], len(found["results"])) == ("one", "complete", 3)
    compared = found["compared"]
    assert (compared["measured"], compared["why"]) == (False, "doing the plan again was cut short by SIGTERM")


# --- in this process: who pays, who acts


@tool
async def look(place: str) -> str:
    """Look at a place."""
    await asyncio.sleep(0.05)
    return f"nothing new in the {place}"


def plan_for(worker: str) -> Plan:
    tasks = [Task(TaskId(place), f"Look at the {place}.", worker) for place in ("harbour", "market")]
    return Plan(tuple(tasks), "forward")


def looks(request: Request) -> Reply | str:
    if request.messages[-1].role == "tool":
        return "Nothing new."
    return Reply(calls=(ToolCall("1", "look", '{"place": "harbour"}'),), finish="tools")


def compared(team: Supervisor) -> tuple[Result, Compared]:
    result = team.run_sync("What is new?")
    return result, compare(team, result.entries, result.trace(), lambda _: None)


def team_of(model: ScriptedModel) -> Supervisor:
    worker = Worker("scout", "looks at places", tools=[look], model=model)
    return Supervisor([worker], model=model, plan=plan_for("scout"), journal=MemoryJournal())


def test_two_waits_take_twice_as_long_one_at_a_time() -> None:
    tries: list[Compared] = []
    while len(tries) < 9 and not (tries and 1.3 < tries[-1].times < 3):  # a busy machine may stand still in any of them
        tries.append(compared(team_of(ScriptedModel(looks, card=FREE)))[1])
    assert [one.why for one in tries] == [""] * len(tries)
    assert all(one.one_at_a_time >= 0.1 for one in tries)
    assert 1.3 < tries[-1].times < 3


def test_what_was_paid_for_is_not_paid_for_twice() -> None:
    model = ScriptedModel(looks, card=ModelCard("dear", micros_in=1.0, micros_out=1.0), micros=50, usage=Usage(9, 1))
    result, found = compared(team_of(model))
    assert found.why == "the run cost money"
    assert len(model.requests) == 4
    assert result.cost > 0


def test_a_model_whose_price_nobody_knows_is_not_asked_again() -> None:
    model = ScriptedModel(looks)
    _, found = compared(team_of(model))
    assert "models cost nothing" in found.why
    assert len(model.requests) == 4


@pytest.mark.parametrize("card", [ModelCard("dear", micros_in=1.0, micros_out=1.0), ModelCard("unknown")])
def test_a_worker_whose_calls_nobody_counted_is_not_asked_again_either(card: ModelCard) -> None:
    model = ScriptedModel(looks, card=card)  # it does not say what it used, so the run seems to have cost nothing
    worker = Worker("scout", "looks at places", tools=[look], model=model)
    result, found = compared(Supervisor([worker], model="offline", plan=plan_for("scout")))
    assert result.cost == 0
    assert found.why.startswith("the plan could not be done again: ")
    assert len(model.requests) == 4


def test_who_would_act_only_the_second_time_is_kept_from_it() -> None:
    sent: list[str] = []

    @tool(effect="effect")
    def send(text: str) -> str:
        """Send a message."""
        sent.append(text)
        return "sent"

    def fickle(request: Request) -> Reply | str:
        if len(model.requests) <= 4:
            return looks(request)
        return Reply(calls=(ToolCall("1", "send", '{"text": "hello"}'),), finish="tools")

    model = ScriptedModel(fickle, card=FREE)
    worker = Worker("scout", "looks at places", tools=[look, send], model=model)
    result, found = compared(Supervisor([worker], model=model, plan=plan_for("scout")))
    assert result.ending == "complete"
    assert "wanted to call send, which may change something" in found.why
    assert sent == []


def test_who_remembers_is_not_made_to_remember_twice() -> None:
    model = ScriptedModel(looks, card=FREE)
    worker = Worker("scout", "looks at places", tools=[look], model=model, remembers=True)
    memory = Memory(blocks=[Block("notes")])
    _, found = compared(Supervisor([worker], model=model, plan=plan_for("scout"), memory=memory))
    assert "remember" in found.why
    assert len(model.requests) == 4


def test_one_task_leaves_nothing_to_compare() -> None:
    model = ScriptedModel(looks, card=FREE)
    worker = Worker("scout", tools=[look], model=model)
    plan = Plan(plan_for("scout").tasks[:1], "forward")
    _, found = compared(Supervisor([worker], model=model, plan=plan))
    assert found.why == "there was nothing to do side by side"


def test_where_nothing_was_carried_out_no_times_are_compared() -> None:
    team = Supervisor([Worker("scout", "looks at places", tools=[look])], model="offline")
    result = team.run_sync("Sing me a song.")
    assert (result.ending, result.reason, result.trace().tasks) == ("failed", "no_plan", [])
    found = compare(team, result.entries, result.trace(), lambda _: None)
    assert found.line == "nothing was carried out, so there is nothing to compare"
    assert found.document()["why"] == "nothing was carried out"
    assert (found.one_at_a_time, found.document()["measured"]) == (0.0, False)


def test_a_team_inside_is_not_sent_out_twice() -> None:
    model = ScriptedModel(looks, card=FREE)
    inner = team_of(model)
    outer = Supervisor([inner.as_worker("office", "looks at places")], model=model, plan=plan_for("office"))
    _, found = compared(outer)
    assert found.why in ("a team worked for harbour", "a team worked for market")


def test_a_function_that_makes_the_answer_is_called_once() -> None:
    made: list[str] = []

    def own(goal: str, results: dict[str, object], gaps: object) -> str:
        made.append(goal)
        return f"{len(results)} places"

    model = ScriptedModel(looks, card=FREE)
    worker = Worker("scout", "looks at places", tools=[look], model=model)
    result, found = compared(Supervisor([worker], model=model, plan=plan_for("scout"), combine=own))
    assert result.answer == "2 places"
    assert "a function makes its answer" in found.why
    assert len(made) == 1


def test_an_archive_whose_vectors_may_cost_something_is_not_searched_again() -> None:
    model = ScriptedModel(looks, card=FREE)
    worker = Worker("scout", "looks at places", tools=[look], model=model)
    for embedding, measured in (("openai+http://127.0.0.1:9/v1#e", False), ("words", True)):
        memory = Memory(archives=[Archive("notes", embedding=embedding)])
        _, found = compared(Supervisor([worker], model=model, plan=plan_for("scout"), memory=memory))
        assert (found.why == "") is measured, found.why
        assert measured or embedding in found.why


def test_what_a_tool_or_a_guess_may_cost_is_not_spent_a_second_time() -> None:
    paid: list[str] = []

    @tool(reserve=Amount(micros=100))
    def register(place: str) -> Costs:
        """Look into a register that may charge."""
        paid.append(place)
        return Costs("nothing", NOTHING)  # this time it did not

    def asks(request: Request) -> Reply | str:
        if request.messages[-1].role == "tool":
            return "Nothing."
        return Reply(calls=(ToolCall("1", "register", '{"place": "harbour"}'),), finish="tools")

    free = ScriptedModel(asks, card=FREE)
    scout = Worker("scout", "looks at places", tools=[register], model=free)
    result, found = compared(Supervisor([scout], model=free, plan=plan_for("scout")))
    assert (result.cost, len(paid)) == (0, 2)
    assert "could not be done again" in found.why
    unknown = ScriptedModel(looks, card=ModelCard("unknown"))
    guessed = Worker("scout", "looks at places", tools=[look], model=unknown, estimate=Amount(micros=5))
    _, found = compared(Supervisor([guessed], model="offline", plan=plan_for("scout")))
    assert "could not be done again" in found.why
    assert len(unknown.requests) == 4


def test_a_dear_model_that_stands_in_only_the_second_time_is_not_asked() -> None:
    def tires(request: Request) -> Reply | str:
        if len(usual.requests) > 4:
            raise ModelFailed(Failure("network", "down"))
        return looks(request)

    usual = ScriptedModel(tires, card=FREE)
    dear = ScriptedModel(looks, card=ModelCard("dear", micros_in=1.0, micros_out=1.0))
    worker = Worker("scout", "looks at places", tools=[look], model=usual, fallback_models=[dear])
    _, found = compared(Supervisor([worker], model=usual, plan=plan_for("scout")))
    assert "could not be done again" in found.why
    assert dear.requests == []


def test_instances_of_a_worker_are_measured_like_anybody() -> None:
    model = ScriptedModel(looks, card=FREE)
    worker = Worker("scout", "looks at places", tools=[look], model=model, instances=2)
    _, found = compared(Supervisor([worker], model=model, plan=plan_for("scout")))
    assert found.why == ""


@pytest.mark.parametrize(
    ("slow", "fast", "words"), [(4.1, 1.4, "2.9 times faster"), (1.0, 1.0, "nothing was gained"), (1.0, 0.0, "nothing")]
)
def test_the_line_says_both_times_and_the_gain(slow: float, fast: float, words: str) -> None:
    found = Compared(slow, fast)
    assert words in found.line
    assert found.line.endswith("(measured by doing the plan again)")
