"""Plans: read from JSON with the place of what is wrong, walked without recursion, told apart by digests."""

import json
import random
from collections.abc import Sequence
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chargehand.engine.plan import (
    Edge,
    Finding,
    Task,
    TaskId,
    depth,
    digest,
    fingerprint,
    in_order,
    needs,
    parse,
)
from chargehand.engine.roster import Match
from chargehand.errors import PlanInvalid
from tests.support.hunts import hunt_size


def task(name: str, *after: str | Edge, for_each: str = "") -> Task:
    inputs = tuple(one if isinstance(one, Edge) else TaskId(one) for one in after)
    return Task(TaskId(name), f"Do {name}", "writer", after=inputs, for_each=TaskId(for_each))


def ids(tasks: Sequence[Task]) -> list[str]:
    return [one.id for one in tasks]


def problem(source: bytes | str | dict[str, object]) -> Finding:
    """What `parse` has to say about something that is no plan."""
    with pytest.raises(PlanInvalid) as caught:
        parse(source)
    (finding,) = caught.value.findings
    assert isinstance(finding, Finding)
    assert finding.message in str(caught.value)
    return finding


# --- reading ----------------------------------------------------------------------------------------------------------

WHOLE = {
    "goal": "Choose a provider",
    "combine": "select",
    "tasks": [
        {"id": "t1", "instruction": "Find prices", "worker": "researcher"},
        {"id": "t2", "instruction": "Check each", "match": {"all": ["web"]}, "for_each": "t1", "at_least": 2},
        {"id": "t3", "instruction": "Compare", "after": ["t1", {"task": "t2", "need": "quorum"}], "quorum": 1},
        {"id": "t4", "instruction": "Again", "worker": "analyst", "replaces": "t0", "seconds": 2.5},
    ],
}


def test_a_plan_is_read_the_same_from_text_bytes_and_plain_data() -> None:
    text = json.dumps(WHOLE)
    plan = parse(text)
    assert plan == parse(text.encode()) == parse(WHOLE)
    assert (plan.goal, plan.combine, ids(plan.tasks)) == ("Choose a provider", "select", ["t1", "t2", "t3", "t4"])
    assert plan.tasks[1].match == Match(all=("web",))
    assert plan.tasks[2].after == ("t1", Edge(TaskId("t2"), "quorum"))
    assert plan.tasks[3].seconds == 2.5


def test_a_plan_written_out_is_read_back() -> None:
    plan = parse(WHOLE)
    assert parse(msgspec.json.encode(plan)) == plan


@pytest.mark.parametrize(
    "source",
    ["", "I cannot do that.", "{", '{"tasks": [}', '{"tasks": []} and more', b"\xff\xfe", '{"tasks": ["\\ud800"]}'],
)
def test_what_is_not_json_is_said_not_to_be(source: str | bytes) -> None:
    finding = problem(source)
    assert (finding.code, finding.place, finding.grave) == ("not_json", "plan", True)
    assert finding.message.startswith("This is not JSON: ")
    assert finding.message.endswith("Send one JSON object with a list `tasks`.")


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ("[]", "plan"),
        ("null", "plan"),
        ("{}", "plan"),
        ('{"tasks": {}}', "$.tasks"),
        ('{"tasks": [], "combine": "blend"}', "$.combine"),
        ('{"tasks": [], "note": 1}', "plan"),
        ('{"tasks": [{"id": "t1"}]}', "$.tasks[0]"),
        ('{"tasks": [{"id": 1, "instruction": "x"}]}', "$.tasks[0].id"),
        ('{"tasks": [{"id": "t1", "instruction": "x"}, {"id": "t2", "instruction": null}]}', "$.tasks[1].instruction"),
        ('{"tasks": [{"id": "t1", "instruction": "x", "after": [1]}]}', "$.tasks[0].after[0]"),
        (
            '{"tasks": [{"id": "", "instruction": "", "after": [{"task": "", "need": "so"}]}]}',
            "$.tasks[0].after[0].need",
        ),
        ('{"tasks": [{"id": "t1", "instruction": "x", "quorum": 1.5}]}', "$.tasks[0].quorum"),
        ('{"tasks": [{"id": "t1", "instruction": "x", "match": {"any": []}}]}', "$.tasks[0].match"),
        ('{"tasks": [{"id": "t1", "instruction": "x", "depends_on": []}]}', "$.tasks[0]"),
    ],
)
def test_a_wrong_shape_is_named_with_its_place(source: str, place: str) -> None:
    finding = problem(source)
    assert (finding.code, finding.place) == ("wrong_shape", place)
    assert finding == problem(source.encode())


def test_an_unknown_field_is_named() -> None:
    assert "`depends_on`" in problem('{"tasks": [{"id": "t1", "instruction": "x", "depends_on": []}]}').message
    assert "`note`" in problem({"tasks": [], "note": 1}).message


@pytest.mark.parametrize(
    "source", ["[" * 10_000 + "]" * 10_000, '{"tasks":' * 10_000, '{"tasks": ' + "[" * 10_000 + "]" * 10_000 + "}"]
)
def test_ten_thousand_brackets_are_refused_and_not_fatal(source: str) -> None:
    assert problem(source).code in {"too_deep", "wrong_shape", "not_json"}


PLAIN = st.none() | st.booleans() | st.integers() | st.text()
KEYS = st.sampled_from(["tasks", "id", "instruction", "after"])
JSON = st.recursive(PLAIN, lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner))


@settings(max_examples=hunt_size(quick=40, thorough=500))
@given(JSON.map(json.dumps) | st.binary())
def test_anything_at_all_is_a_plan_or_refused_in_words(source: str | bytes) -> None:
    try:
        plan = parse(source)
    except PlanInvalid as error:
        said = [finding.message[-1] for finding in error.findings]
    else:
        said = ["." for _ in plan.tasks]
    assert set(said) <= {"."}


# --- walking ----------------------------------------------------------------------------------------------------------


def test_the_inputs_of_a_task_begin_with_the_one_it_is_repeated_over() -> None:
    one = task("t3", "t1", Edge(TaskId("t2"), "optional"), for_each="t0")
    assert needs(one) == [("t0", "required"), ("t1", "required"), ("t2", "optional")]
    assert needs(task("t1")) == []


def test_in_order_every_input_comes_before_its_reader() -> None:
    line, cycle = in_order([task("t4", "t3", "t2"), task("t3", for_each="t1"), task("t2", "t1"), task("t1")])
    assert ids(line) == ["t1", "t3", "t2", "t4"]
    assert cycle == []


def test_inputs_from_outside_hold_nothing_up() -> None:
    assert in_order([task("t2", "t1", "elsewhere")]) == ([task("t2", "t1", "elsewhere")], [])
    assert in_order([]) == ([], [])


def test_an_input_listed_twice_does_not_hold_its_reader_up() -> None:
    assert ids(in_order([task("t2", "t1", "t1", for_each="t1"), task("t1")])[0]) == ["t1", "t2"]


def test_a_cycle_is_walked_from_input_to_reader_and_back_to_its_start() -> None:
    line, cycle = in_order([task("out", "c"), task("a", "c"), task("b", "a"), task("c", "b"), task("free")])
    assert ids(line) == ["free"]
    assert cycle[0] == cycle[-1]
    assert "".join(cycle[:-1]) in {"abc", "bca", "cab"}


def test_a_task_that_needs_itself_is_a_cycle_of_one() -> None:
    assert in_order([task("t1", "t1")]) == ([], ["t1", "t1"])


def test_a_cycle_of_ten_thousand_tasks_is_found_whole() -> None:
    ring = [task(f"t{n}", f"t{(n + 1) % 10_000}") for n in range(10_000)]
    line, cycle = in_order(ring)
    assert line == []
    assert len(cycle) == 10_001
    assert len(set(cycle)) == 10_000


def test_a_chain_of_ten_thousand_tasks_is_ordered_and_measured() -> None:
    chain = [task("t0"), *(task(f"t{n}", f"t{n - 1}") for n in range(1, 10_000))]
    line, cycle = in_order(reversed(chain))
    assert (line, cycle) == (chain, [])
    assert depth(line) == 10_000


def test_depth_is_the_longest_chain_and_not_the_number_of_tasks() -> None:
    line, _ = in_order(
        [task("a"), task("b", "a"), task("c", "a"), task("d", "b", "c"), task("e", for_each="d"), task("f")]
    )
    assert depth(line) == 4
    assert depth([task("a", "elsewhere")]) == 1
    assert depth([]) == 0


@given(st.lists(st.lists(st.integers(0, 9), max_size=4), max_size=10), st.randoms(use_true_random=False))
def test_whatever_the_graph_the_order_is_true_and_the_cycle_is_one(
    inputs: list[list[int]], dice: random.Random
) -> None:
    tasks = [task(f"t{at}", *(f"t{one}" for one in wanted)) for at, wanted in enumerate(inputs)]
    dice.shuffle(tasks)
    line, cycle = in_order(tasks)
    done: set[str] = set()
    names = set(ids(tasks))
    for one in line:
        assert all(name in done or name not in names for name, _ in needs(one))
        done.add(one.id)
    assert bool(cycle) == (len(line) < len(tasks))
    by_id = {one.id: one for one in tasks}
    for needed, reader in pairwise(cycle):
        assert needed in {name for name, _ in needs(by_id[reader])}
    assert not cycle or cycle[0] == cycle[-1]


# --- telling apart ----------------------------------------------------------------------------------------------------


def test_a_task_that_was_only_renamed_or_respaced_asks_for_the_same() -> None:
    first = Task(TaskId("t1"), "Find the  prices\n", "researcher")
    assert fingerprint(first) == fingerprint(Task(TaskId("t9"), "find THE prices", "researcher", after=(TaskId("t1"),)))


@pytest.mark.parametrize(
    "other",
    [
        Task(TaskId("t1"), "Find the costs", "researcher"),
        Task(TaskId("t1"), "Find the prices", "writer"),
        Task(TaskId("t1"), "Find the prices", match=Match(all=("web",))),
        Task(TaskId("t1"), "Find the prices", "researcher", for_each=TaskId("t0")),
    ],
)
def test_another_instruction_worker_match_or_list_asks_for_something_else(other: Task) -> None:
    assert fingerprint(Task(TaskId("t1"), "Find the prices", "researcher")) != fingerprint(other)


def test_where_one_part_ends_is_part_of_the_digest() -> None:
    said = [("ab", "c"), ("a", "bc"), ("abc",), ("abc", ""), ("", "abc"), ("a", "b", "c"), (), ("",), ("", "")]
    assert len({digest(*parts) for parts in said}) == len(said)


def test_text_and_its_bytes_have_one_digest_for_ever() -> None:
    assert digest("prüfen", b"x") == digest("prüfen".encode(), "x")
    assert digest("t1", "Find prices") == "873a38fea6b53d587960c85a4130a611"


@given(
    st.lists(st.text(alphabet="ab", max_size=3), max_size=4), st.lists(st.text(alphabet="ab", max_size=3), max_size=4)
)
def test_two_sequences_share_a_digest_only_if_they_are_equal(one: list[str], other: list[str]) -> None:
    assert (digest(*one) == digest(*other)) == (one == other)
