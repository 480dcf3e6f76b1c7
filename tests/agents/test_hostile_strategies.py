"""Models that answer with whatever they like: every way to lead a crew ends, within its bounds, and breaks nothing."""

import json
import random
import time

import pytest

from chargehand.agents.audit.claims import unsupported
from chargehand.agents.audit.contradictions import find_contradictions
from chargehand.agents.roles import Supervisor, Worker
from chargehand.agents.strategies import Broadcast, Dynamic, Loop, Recursive, RoundRobin, Route, Strategy, Whole
from chargehand.agents.strategies.chat import says_token
from chargehand.engine.budget import Budget
from chargehand.engine.failure import Failure
from chargehand.engine.policy import Limits, Policy, Retry
from chargehand.journal.memory import MemoryJournal
from chargehand.models.messages import Request, Usage
from chargehand.models.model import ModelCard
from chargehand.models.request_facts import Given, Splitting, Working
from chargehand.models.testing.scripted import Line, ScriptedModel
from chargehand.runtime.runner import Runner
from chargehand.team import Team
from tests.agents.test_splitting import notes
from tests.runtime.test_nesting import kept_within
from tests.sim.loop import VirtualLoop
from tests.support.hunts import hunt_size

STRATEGIES: tuple[Strategy, ...] = (
    Whole(),
    Loop(max_turns=6, stalls=2, fresh_starts=1),
    Recursive(depth=3, breadth=3),
    RoundRobin(max_turns=5),
    Dynamic(max_turns=5),
    Broadcast(),
    Route(router="model", generalist="w0"),
)
KEYS = (
    "done",
    "looping",
    "progress",
    "next",
    "instruction",
    "why",
    "replaces",
    "unserved",
    "simple",
    "subtasks",
    "worker",
    "after",
    "primary",
    "secondary",
    "confidence",
    "reason",
    "winner",
    "agree",
    "ruling",
    "tasks",
    "combine",
    "goal",
)
ODD: tuple[object, ...] = (
    None,
    True,
    False,
    0,
    -1,
    10**30,
    0.5,
    "",
    " ",
    "w0",
    "W0",
    "w1",
    "nobody",
    "ann\u202e",
    "t1",
    "true",
    "yes",
    "DONE!",
    "\u00e4\u4e16\U0001f600" * 50,
    "x" * 20_000,
    "</data>",
    "merge",
    "vote",
    [],
    {},
    [list[object]()],
    ["w0"] * 500,
    [{"instruction": "Count the pears.", "worker": "w0", "after": [1, 2, -1, 10**9]}] * 40,
    {"t1": {"instruction": 3}},
    [{"instruction": f"Count heap {n}.", "worker": f"w{n % 3}"} for n in range(5)],
    ["Count this.", 7, None],
    {"t1": {"instruction": "Count.", "worker": "w0", "after": ["t1"]}},
)


def hostile(chance: random.Random, request: Request) -> Line:
    pick = chance.random()
    if pick < 0.1:
        return chance.choice(("", "DONE!", "{", "[]", "null", '"w0"', "w1", "\x00\ud7ff", "no " * 5_000))
    if pick < 0.15:
        return Failure(chance.choice(("network", "logic", "timeout", "resource")), "\u202eno\n" * 20)
    if isinstance(request.subject, Working) and pick < 0.7:
        return chance.choice(("There are 12 apples.", "There are 14 apples.", 'They say "DONE!" here.', "7 DONE!"))
    return json.dumps({key: chance.choice(ODD) for key in chance.sample(KEYS, chance.randint(1, len(KEYS)))})


async def played(strategy: Strategy, seed: int, loop: VirtualLoop) -> None:
    """One run with models that answer at random."""
    chance = random.Random(f"{type(strategy).__name__}/{seed}")
    script = ScriptedModel(
        lambda request: hostile(chance, request),
        usage=Usage(10, 5),
        micros=0,
        card=ModelCard("odd", window=chance.choice((600, 128_000)), micros_in=0.0, micros_out=0.0),
    )
    workers = [Worker(f"w{n}", "counts \u00e4pfel", steps=2) for n in range(chance.choice((1, 2, 50)))]
    policy = Policy(retry=Retry(attempts=2), limits=Limits(max_tasks=8, replans=chance.choice((0, 1))))
    budget = chance.choice((Budget(), Budget(calls=chance.randint(0, 30))))
    team = Team(
        workers, supervisor=Supervisor(model=script, strategy=strategy), policy=policy, budget=budget, timeout=200.0
    )
    journal = MemoryJournal()
    async with team.executor() as executor:
        driver = Runner(journal, executor, wall=loop.time, ticks=loop.time)
        found = await driver.start("r", team.request("How many \u00e4pfel? Say DONE! then.", loop.time(), seed=1))
    assert found.ending in ("complete", "partial", "failed"), seed
    assert len(found.statuses) <= 8, seed
    spent = kept_within(await journal.read("r"))
    assert spent.calls <= (500 if budget.calls is None else budget.calls), seed


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: type(strategy).__name__)
def test_whatever_models_answer_a_run_ends_within_its_bounds(strategy: Strategy) -> None:
    for seed in range(hunt_size(quick=8, thorough=40)):
        loop = VirtualLoop(1_000_000.0)
        loop.run_until_complete(played(strategy, seed, loop))
        loop.close()


async def test_a_thousand_parts_are_not_all_written_down() -> None:
    listed = [{"instruction": f"Count heap {n} of the pears.", "worker": "w0"} for n in range(1000)]

    def line(request: Request) -> Line:
        many = isinstance(request.subject, Splitting) and request.subject.instruction == "Count all pears"
        return json.dumps({"why": "much", "simple": not many, "subtasks": listed if many else [], "worker": "w0"})

    script = ScriptedModel(line, usage=Usage(1, 1), micros=0, card=ModelCard("m", micros_in=0.0, micros_out=0.0))
    executor = [Worker("w0"), Worker("w1")]
    found = await Team(executor, supervisor=Supervisor(model=script, strategy=Recursive(depth=1, breadth=3))).run(
        "Count all pears"
    )
    missing = [gap.message for gap in found.gaps]
    assert len(found.plan.tasks) == 3
    assert len(missing) == 1
    assert missing[0].startswith("A request is split into at most 3 parts; these are left out: ")
    assert len(missing[0]) < 400
    assert len(script.requests) <= 1 + 1 + 3 + 1
    assert any("is split into t1, t2, t3" in one for one in notes(found))


class Stopwatch:
    """What is inside must not take longer, even where others use the machine as well."""

    def __init__(self, most: float) -> None:
        self._most = most

    def __enter__(self) -> None:
        self._began = time.process_time()

    def __exit__(self, *_: object) -> None:
        assert time.process_time() - self._began < self._most


def test_results_full_of_numbers_take_no_more_than_a_moment() -> None:
    chance = random.Random(1)
    some, others = (" ".join(str(chance.randint(1, 10**9)) for _ in range(10_000)) for _ in range(2))
    lines = "\n".join(f"The weight of box {n} is {chance.randint(1, 9999)} kg." for n in range(10_000))
    results = [Given(f"t{n}", f"Weigh box {n}", "w", lines) for n in range(50)]
    with Stopwatch(3):
        find_contradictions(results)
    with Stopwatch(3):
        assert unsupported(lines[:100_000], results) == (), "of this much nothing can be said to be missing"
    with Stopwatch(3):
        assert len(unsupported(others, [Given("t1", "Count", "w", some)])) == 200


def test_a_text_full_of_tokens_takes_no_more_than_a_moment() -> None:
    with Stopwatch(2):
        assert not says_token('say "DONE!" then ' * 20_000, "DONE!")
    with Stopwatch(2):
        assert says_token("x" * 100_000 + '\n"DONE!"\n', "DONE!")


def test_a_token_at_the_end_of_a_line_ends_a_talk_and_one_amid_a_line_does_not() -> None:
    assert says_token('That is all.\n"DONE!"', "DONE!")
    assert says_token("That is all.\r\n\u201cDONE!\u201d \r\nBye", "DONE!")
    assert not says_token('Whoever is ready says "DONE!" at the end.', "DONE!")
    assert not says_token(f'{"word " * 60}"DONE!"{" word" * 60}', "DONE!")
