"""The lint of plans: what it repairs, what it refuses, what it warns of, and that it says so usefully and cheaply."""

import random
import re
import time
from collections.abc import Collection, Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from chargehand.engine.lint import Linted, lint
from chargehand.engine.plan import Edge, Finding, Need, Task, TaskId, in_order, needs
from chargehand.engine.policy import Limits
from chargehand.engine.roster import Agent, Match, Roster
from tests.support.hunts import hunt_size

ROSTER = Roster(
    (
        Agent("researcher", tags=("search", "web")),
        Agent("data-analyst", tags=("numbers",)),
        Agent("writer", tags=("prose", "web")),
    )
)
ROOMY = Limits(max_tasks=200_000, max_depth=200_000, fan_out=200_000)


def edge(task: str, need: Need = "required") -> Edge:
    return Edge(TaskId(task), need)


def task(
    name: str,
    *after: str | Edge,
    say: str = "",
    worker: str = "researcher",
    match: Match | None = None,
    quorum: int = 0,
    for_each: str = "",
    at_least: int = 1,
    replaces: str = "",
) -> Task:
    """A task without faults, except those asked for."""
    return Task(
        id=TaskId(name),
        instruction=say or f"Use the results to compare offer number {name} with the market",
        worker=worker,
        match=match,
        after=tuple(one if isinstance(one, Edge) else TaskId(one) for one in after),
        quorum=quorum,
        for_each=TaskId(for_each),
        at_least=at_least,
        replaces=TaskId(replaces),
    )


def linted(*tasks: Task, roster: Roster = ROSTER, limits: Limits = ROOMY, known: Collection[str] = ()) -> Linted:
    return lint(tasks, roster, limits, known=frozenset(map(TaskId, known)))


def the_only(findings: Sequence[Finding]) -> Finding:
    assert len(findings) == 1, findings
    return findings[0]


def codes(findings: Sequence[Finding]) -> list[str]:
    return [finding.code for finding in findings]


# --- a clean plan -----------------------------------------------------------------------------------------------------


def test_a_clean_plan_comes_back_as_it_was() -> None:
    tasks = (
        task("t1", say="Find the list prices of the three largest cloud providers"),
        task("t2", say="Find the discounts those providers offer to startups"),
        task("t3", "t1", edge("t2", "optional"), say="Compare prices and discounts", worker="data-analyst"),
        task("t4", for_each="t1", say="Write one paragraph on this provider", worker="", match=Match(all=("prose",))),
    )
    assert linted(*tasks) == Linted(tasks)


def test_a_title_that_is_too_long_is_cut() -> None:
    long = structs.replace(task("t1"), title="Find the list prices of the three largest cloud providers")
    assert linted(long).tasks[0].title == "Find the list prices of the three largest cloud…"


def test_errors_and_warnings_are_told_apart_by_their_gravity() -> None:
    found = linted(task("t1", say="help"), task("t2", "t9"))
    assert codes(found.errors) == ["unknown_task"]
    assert codes(found.warnings) == ["vague_instruction"]
    assert {*found.errors, *found.warnings} == {*found.findings}


def test_inputs_may_stand_after_their_readers() -> None:
    assert linted(task("t1", "t2"), task("t2", "t3"), task("t3")).findings == ()


def test_inputs_may_be_tasks_already_in_the_run() -> None:
    assert linted(task("t2", "t1", for_each="t0"), known=["t0", "t1"]).findings == ()


# --- repairs ----------------------------------------------------------------------------------------------------------


def test_blanks_around_ids_are_dropped_wherever_the_id_stands() -> None:
    found = linted(
        task(" t1\n"),
        task("t2", "t1 ", edge(" t1", "optional")),
        task("t3", for_each=" t2", replaces="t0 "),
        known=["t0"],
    )
    assert found.errors == ()
    assert [one.id for one in found.tasks] == ["t1", "t2", "t3"]
    assert found.tasks[1].after == ("t1",)
    assert (found.tasks[2].for_each, found.tasks[2].replaces) == ("t2", "t0")
    assert [(one.code, one.place) for one in found.warnings] == [
        ("repaired_id", "tasks[0] ( t1\n).id"),
        ("repaired_after", "tasks[1] (t2).after"),
        ("repaired_for_each", "tasks[2] (t3).for_each"),
        ("repaired_replaces", "tasks[2] (t3).replaces"),
    ]


@pytest.mark.parametrize("written", ["Data-Analyst", "data_analyst", "data analyst", "dataanalyst", " DATA-ANALYST "])
def test_a_worker_written_a_little_differently_is_understood(written: str) -> None:
    found = linted(task("t1", worker=written))
    assert found.tasks[0].worker == "data-analyst"
    assert the_only(found.findings) == Finding(
        "repaired_worker", "tasks[0] (t1).worker", f"{written!r} was read as 'data-analyst'.", grave=False
    )


def test_a_name_that_could_be_either_of_two_workers_is_not_guessed() -> None:
    roster = Roster((Agent("data-analyst"), Agent("DataAnalyst")))
    found = linted(task("t1", worker="data analyst"), roster=roster)
    assert the_only(found.findings).code == "unknown_worker"
    assert "'data-analyst'" in found.findings[0].message
    assert "'DataAnalyst'" in found.findings[0].message


def test_the_exact_name_between_blanks_wins_over_one_like_it() -> None:
    found = linted(task("t1", worker=" DataAnalyst "), roster=Roster((Agent("data-analyst"), Agent("DataAnalyst"))))
    assert (found.tasks[0].worker, codes(found.findings)) == ("DataAnalyst", ["repaired_worker"])


def test_the_only_worker_there_is_takes_tasks_for_nobody() -> None:
    found = linted(task("t1", worker=" "), roster=Roster((Agent("solo"),)))
    assert found.tasks[0].worker == "solo"
    assert codes(found.findings) == ["repaired_worker"]


def test_the_only_worker_does_not_take_what_asks_for_tags() -> None:
    found = linted(task("t1", worker="", match=Match(all=("web",))), roster=Roster((Agent("solo", tags=("web",)),)))
    assert found.tasks[0].worker == ""
    assert found.findings == ()


@pytest.mark.parametrize(
    ("after", "kept"),
    [
        (("t1", "t1"), ("t1",)),
        ((edge("t1", "optional"), "t1"), ("t1",)),
        (("t1", edge("t1", "quorum")), ("t1",)),
        (
            (edge("t1", "optional"), edge("t2", "optional"), edge("t1", "optional")),
            (edge("t1", "optional"), edge("t2", "optional")),
        ),
    ],
)
def test_an_input_listed_twice_is_kept_once_with_the_strongest_need(
    after: tuple[str | Edge, ...], kept: tuple[str | Edge, ...]
) -> None:
    found = linted(task("t1"), task("t2"), task("t3", *after))
    assert found.tasks[2].after == kept
    assert [(one.code, one.place, one.grave) for one in found.findings] == [
        ("repaired_after", "tasks[2] (t3).after", False)
    ]


def test_a_quorum_input_listed_twice_counts_once() -> None:
    found = linted(task("t1"), task("t2"), task("t3", edge("t1", "quorum"), edge("t1", "quorum"), quorum=2))
    assert codes(found.errors) == ["bad_quorum"]


def test_what_a_task_is_repeated_over_is_not_its_input_a_second_time() -> None:
    found = linted(task("t1"), task("t2", "t1", for_each="t1"))
    assert found.tasks[1].after == ()
    assert codes(found.findings) == ["repaired_after"]


# --- errors -----------------------------------------------------------------------------------------------------------


def test_a_plan_without_tasks_is_refused_at_the_start_only() -> None:
    assert the_only(linted().findings) == Finding("empty_plan", "tasks", "The plan has no tasks. Give at least one.")
    assert linted(known=["t1"]).findings == ()


@pytest.mark.parametrize("name", ["", "  ", "x" * 65, "a\x00b", "a\nb", "a\u202eb", "t[3]", "t]", "["])
def test_an_id_nobody_can_write_down_is_refused(name: str) -> None:
    found = the_only(linted(task(name)).errors)
    assert (found.code, found.grave) == ("bad_id", True)
    assert found.place.startswith("tasks[0] (")
    assert found.place.endswith(").id")
    assert "1 to 64 printable characters without square brackets" in found.message


@pytest.mark.parametrize("name", ["t1", "x" * 64, "price check", "prüfen", "比较", "a.b:c/d-e_f", "{0}", "%s"])
def test_every_other_id_will_do(name: str) -> None:
    assert linted(task(name)).findings == ()


def test_an_id_given_twice_is_refused() -> None:
    found = the_only(linted(task("t1"), task("t2"), task(" t1", say="Find something else entirely in Rome")).errors)
    assert found == Finding(
        "duplicate_id", "tasks[2] (t1).id", "There is another task 't1'. Give every task an id of its own."
    )


def test_an_id_already_in_the_run_is_refused() -> None:
    found = the_only(linted(task("t1"), known=["t1"]).errors)
    assert (found.code, found.place) == ("duplicate_id", "tasks[0] (t1).id")


def test_an_unknown_input_is_named_with_the_nearest_that_exists() -> None:
    found = the_only(linted(task("t1"), task("t2", "t1"), task("t4", edge("t9", "optional"))).errors)
    assert (found.code, found.place) == ("unknown_task", "tasks[2] (t4).after")
    assert found.message.startswith("Task 't4' waits for 't9', which does not exist. Did you mean 't")
    assert found.message.endswith("? Name an existing task or drop the input.")


def test_an_unknown_list_to_repeat_over_is_named_in_its_own_place() -> None:
    found = the_only(linted(task("t2", for_each="cities"), known=["city"]).errors)
    assert (found.code, found.place) == ("unknown_task", "tasks[0] (t2).for_each")
    assert "Did you mean 'city'?" in found.message


def test_the_nearest_is_found_among_many_of_the_same_length() -> None:
    known = [*(f"alpha-{n:02}" for n in range(90)), "price-ab"]
    assert "Did you mean 'price-ab'?" in the_only(linted(task("t2", "price-aa"), known=known).errors).message


def test_nothing_is_suggested_where_nothing_is_near() -> None:
    found = the_only(linted(task("prices"), task("t2", "weather")).errors)
    assert (
        found.message == "Task 't2' waits for 'weather', which does not exist. Name an existing task or drop the input."
    )


def test_an_unknown_worker_is_named_with_the_nearest_and_with_all() -> None:
    found = the_only(linted(task("t1", worker="reseacher")).findings)
    assert found == Finding(
        "unknown_worker",
        "tasks[0] (t1).worker",
        "Task 't1' is for the worker 'reseacher', who does not exist. Did you mean 'researcher'? "
        "The workers are: researcher, data-analyst, writer.",
    )


@pytest.mark.parametrize("match", [None, Match(all=("web",))])
def test_without_any_workers_every_task_is_for_an_unknown_one(match: Match | None) -> None:
    found = linted(task("t1", worker="", match=match), task("t2", worker="writer"), roster=Roster())
    assert codes(found.errors) == ["unknown_worker", "unknown_worker"]


def test_a_task_for_nobody_is_refused_where_there_is_a_choice() -> None:
    found = the_only(linted(task("t1", worker="")).findings)
    assert (found.code, found.place) == ("no_worker", "tasks[0] (t1).worker")
    assert found.message.endswith("The workers are: researcher, data-analyst, writer.")


@pytest.mark.parametrize(
    "match", [Match(all=("search", "prose")), Match(some=("music",)), Match(all=("web",), some=("numbers",))]
)
def test_tags_that_nobody_carries_together_are_refused(match: Match) -> None:
    found = linted(task("t1", worker="", match=match), task("t2", worker="", match=match))
    assert [(one.code, one.place) for one in found.errors] == [
        ("no_match", "tasks[0] (t1).match"),
        ("no_match", "tasks[1] (t2).match"),
    ]
    assert "The tags are: numbers, prose, search, web." in found.errors[0].message


@pytest.mark.parametrize("match", [Match(), Match(all=("web", "prose")), Match(some=("music", "numbers"))])
def test_tags_that_somebody_carries_will_do(match: Match) -> None:
    assert linted(task("t1", worker="", match=match)).findings == ()


def test_a_cycle_is_named_from_task_to_task() -> None:
    found = linted(task("t1", "t2"), task("t2", "t1"), task("t3"))
    assert the_only(found.errors).code == "cycle"
    assert found.errors[0].place in {"tasks[0] (t1).after", "tasks[1] (t2).after"}
    assert re.search(r"t1 -> t2 -> t1|t2 -> t1 -> t2", found.errors[0].message)


def test_a_task_that_waits_for_itself_is_a_cycle() -> None:
    found = the_only(linted(task("t1", "t1")).errors)
    assert (found.code, found.place) == ("cycle", "tasks[0] (t1).after")
    assert ": t1 -> t1." in found.message


def test_a_task_repeated_over_itself_is_a_cycle() -> None:
    assert codes(linted(task("t1", for_each="t1")).errors) == ["cycle"]


def test_cycles_apart_from_each_other_are_all_named_at_once() -> None:
    found = linted(task("a", "b"), task("b", "a"), task("c", "d"), task("d", "c"), task("e", "e"))
    assert codes(found.errors) == ["cycle"] * 3


@pytest.mark.parametrize("text", ["", " ", "\n\t "])
def test_a_task_without_an_instruction_is_refused(text: str) -> None:
    empty = Task(TaskId("t1"), text, worker="writer")
    found = the_only(linted(empty).findings)
    assert (found.code, found.place, found.grave) == ("empty_instruction", "tasks[0] (t1).instruction", True)


@pytest.mark.parametrize(
    ("needed", "quorum"),
    [(["quorum", "quorum"], 3), (["quorum"], 0), (["quorum"], -1), ([], 1), (["required"], 1), ([], -1)],
)
def test_a_quorum_that_cannot_be_met_is_refused(needed: list[Need], quorum: int) -> None:
    inputs = [edge(f"t{number}", need) for number, need in enumerate(needed)]
    found = linted(task("t0"), task("t1"), task("t2", *inputs, quorum=quorum))
    assert the_only(found.errors).code == "bad_quorum"
    assert found.errors[0].place == "tasks[2] (t2).quorum"


@pytest.mark.parametrize("quorum", [1, 2])
def test_a_quorum_that_can_be_met_will_do(quorum: int) -> None:
    inputs = [edge("t0", "quorum"), edge("t1", "quorum"), edge("t2")]
    assert linted(task("t0"), task("t1"), task("t2"), task("t3", *inputs, quorum=quorum)).findings == ()


def test_fewer_than_no_items_are_refused() -> None:
    found = the_only(linted(task("t1"), task("t2", for_each="t1", at_least=-1)).errors)
    assert (found.code, found.place) == ("bad_for_each", "tasks[1] (t2).at_least")
    assert linted(task("t1"), task("t2", for_each="t1", at_least=0)).findings == ()


def test_only_a_task_already_in_the_run_can_be_replaced() -> None:
    found = the_only(linted(task("t1"), task("t2", replaces="t1"), known=["t0"]).errors)
    assert (found.code, found.place) == ("bad_replaces", "tasks[1] (t2).replaces")
    assert "Did you mean 't0'?" in found.message
    assert linted(task("t2", replaces="t0"), known=["t0"]).findings == ()


def test_tasks_already_in_the_run_count_towards_the_most_there_may_be() -> None:
    limits = Limits(max_tasks=3)
    assert linted(task("t1"), task("t2"), limits=limits, known=["k1"]).findings == ()
    found = the_only(linted(task("t1"), task("t2"), limits=limits, known=["k1", "k2"]).findings)
    assert (found.code, found.place) == ("too_many_tasks", "tasks")
    assert found.message.startswith("The run would have 4 tasks, and 3 are allowed.")


@pytest.mark.parametrize("backwards", [False, True])
def test_a_chain_longer_than_allowed_is_refused(backwards: bool) -> None:
    chain = [task("t0"), *(task(f"t{n}", f"t{n - 1}") for n in range(1, 4))]
    chain = chain[::-1] if backwards else chain
    assert linted(*chain, limits=Limits(max_depth=4)).findings == ()
    found = the_only(linted(*chain, limits=Limits(max_depth=3)).findings)
    assert (found.code, found.place) == ("too_deep", "tasks")
    assert found.message.startswith("The longest chain has 4 tasks, and 3 are allowed.")


# --- warnings ---------------------------------------------------------------------------------------------------------

VAGUE = [
    "help",
    "do it",
    "handle this",
    "research",
    "process the data",
    "do the task",
    "analyse",
    "Please help with this.",
    "research the topic",
    "work on it",
    "Analyze the information",
    "complete the task",
    "look into this issue",
    "perform the analysis",
    "continue the process as needed",
    "do something",
    "Check everything.",
    "next step",
    "start",
    "???",
]

GOOD = [
    "Find the list prices of the three largest cloud providers",
    "Summarise the findings in one page",
    "Combine the results",
    "Compare both offers",
    "Research the history of the Panama Canal",
    "Process the 2023 sales data by region",
    "Write a haiku about autumn",
    "Analyse customer churn in Q3",
    "Check the draft for factual errors",
    "Help the customer reset their password",
    "Translate the contract into German",
    "Fix the failing test in parser.py",
    "Book a table for four at eight",
    "List competitors of ACME in Europe",
    "Compute the median of the prices",
    "Handle refund request 4711 as the policy says",
    "Write the final report",
    "Review t1 and t2 for contradictions",
    "比较三家云服务商的价格",
    "Сравни цены трёх поставщиков",
]


@pytest.mark.parametrize("say", VAGUE)
def test_an_instruction_that_says_nothing_is_called_vague(say: str) -> None:
    found = the_only(linted(task("t1", say=say)).findings)
    assert (found.code, found.place, found.grave) == ("vague_instruction", "tasks[0] (t1).instruction", False)


@pytest.mark.parametrize("say", GOOD)
def test_an_instruction_that_says_something_is_not_called_vague(say: str) -> None:
    assert linted(task("t1", say=say)).findings == ()


def test_the_same_instruction_twice_for_one_worker_is_an_overlap() -> None:
    found = linted(
        task("t1", say="Find the prices of all providers."), task("t2", say="find the prices of ALL  providers")
    )
    assert the_only(found.findings) == Finding(
        "overlapping_tasks",
        "tasks[1] (t2).instruction",
        "Task 't2' asks the same as 't1' of the same worker. Merge them, or say how they differ.",
        grave=False,
    )


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (
            "Find three good hotels near the station in Rome for the team",
            "Find three good hotels near the station in Oslo for the team",
        ),
        ("Summarise chapter 1 of the novel by Mann", "Summarise chapter 2 of the novel by Mann"),
        ("Collect strong arguments for remote work", "Collect strong arguments against remote work"),
        ("Evaluate cost, benefit and risk of option A", "Evaluate cost, benefit and risk of option B"),
        ("List the countries with a coast", "List the countries without a coast"),
        ("Find hotels in Rome", "Book flights to Rome"),
        ("How many orders of May were refunded?", "Find the total of refunded orders of May"),
        ("Report the refunded orders of May as a table", "Report the total of refunded orders of May as a table"),
    ],
)
def test_two_tasks_that_differ_in_what_matters_do_not_overlap(first: str, second: str) -> None:
    assert linted(task("t1", say=first), task("t2", say=second)).findings == ()


def test_the_same_instruction_for_other_inputs_or_another_worker_is_no_overlap() -> None:
    say = "Summarise these results in one page"
    found = linted(
        task("t1"),
        task("t2"),
        task("t3", "t1", say=say),
        task("t4", "t2", say=say),
        task("t5", "t2", say=say, worker="writer"),
        task("t6", "t2", say=say, worker="", match=Match(all=("web",))),
        task("t7", for_each="t2", say=say),
    )
    assert found.findings == ()


def test_exact_repeats_are_found_in_plans_of_any_size() -> None:
    many = [task(f"t{n}") for n in range(3000)]
    found = linted(*many, task("again", say=many[17].instruction))
    assert the_only(found.findings).place == "tasks[3000] (again).instruction"
    assert "'t17'" in found.findings[0].message


def test_the_same_words_in_another_order_are_an_overlap() -> None:
    found = linted(task("t1", say="Compare prices in Rome"), task("t2", say="In Rome, compare prices"))
    assert codes(found.findings) == ["overlapping_tasks"]


ORDINARY = {
    "cloud": """
        t1: Gather current pricing for AWS compute, storage and egress
        t2: Gather current pricing for Azure compute, storage and egress
        t3: Gather current pricing for Google Cloud compute, storage and egress
        t4 < t1 t2 t3: Build a cost table for a workload of 10 VMs and 5 TB
        t5 < t4: Draft a one-page recommendation for the CTO""",
    "outage": """
        logs: Pull error logs of the checkout service for the last 24 hours
        deploys: List deployments to production in the same window
        metrics: Fetch latency and saturation metrics for checkout
        cause < logs deploys metrics: Identify the most likely root cause of the outage
        post < cause: Write a postmortem with timeline and action items""",
    "code": """
        repro: Reproduce bug 812 with a minimal script
        find < repro: Locate the faulty function in the parser
        patch < find: Patch the function and add a regression test
        check < patch: Run the full test suite and note failures
        pr < patch check: Describe the change in a pull request""",
    "papers": """
        search: Search for papers on retrieval-augmented generation since 2023
        read < search: Extract method, dataset and main result from every paper
        gaps < read: Identify open questions nobody addresses
        review < read gaps: Write a related-work section of 600 words""",
    "contracts": """
        one: Pull all clauses on liability from contract A
        two: Pull all clauses on liability from contract B
        both < one two: Contrast the two contracts clause by clause
        memo < both: Write a memo on the riskiest differences for counsel""",
    "rivals": """
        who: Identify direct competitors of Notion
        price < who: Fetch their pricing pages
        feat < who: List key features of each competitor
        table < price feat: Create a feature matrix
        brief < table: Prepare a briefing for sales""",
}


@pytest.mark.parametrize("name", ORDINARY)
def test_an_ordinary_plan_draws_no_warnings(name: str) -> None:
    rows = [row.strip().split(": ") for row in ORDINARY[name].strip().splitlines()]
    heads = [(head.partition(" < ")[0], head.partition(" < ")[2].split(), say) for head, say in rows]
    assert linted(*(task(head, *after, say=say) for head, after, say in heads)).findings == ()


def test_a_task_with_many_readers_is_a_warning_and_many_starting_points_are_not() -> None:
    limits = Limits(fan_out=3)
    readers = [task(f"r{n}", "t1", edge("k1", "optional")) for n in range(4)]
    found = linted(task("t1"), *readers, limits=limits, known=["k1"])
    assert [(one.code, one.place, one.grave) for one in found.findings] == [
        ("fan_out", "tasks[0] (t1).id", False),
        ("fan_out", "tasks", False),
    ]
    assert found.findings[1].message.startswith("4 tasks read 'k1', and 3 are advised.")
    assert linted(task("t1"), *readers[:3], limits=limits, known=["k1"]).findings == ()
    assert linted(*(task(f"t{n}") for n in range(9)), limits=limits).findings == ()


def test_tasks_behind_a_broken_one_are_unreachable_and_say_why() -> None:
    found = linted(
        task("t4", "t3"),
        task("t1", worker="nobody"),
        task("t2", "t1"),
        task("t3", "t2"),
        task("t5", edge("t1", "optional")),
        task("t6", for_each="t3"),
    )
    assert codes(found.errors) == ["unknown_worker"]
    assert [(one.code, one.place) for one in found.warnings] == [
        ("unreachable", "tasks[2] (t2).after"),
        ("unreachable", "tasks[3] (t3).after"),
        ("unreachable", "tasks[0] (t4).after"),
        ("unreachable", "tasks[5] (t6).after"),
    ]
    assert found.warnings[0].message == "Task 't2' can never run, since it needs 't1'. Put that one right."


def test_tasks_behind_a_cycle_are_unreachable_and_its_members_are_not_told_twice() -> None:
    found = linted(task("p", "q"), task("q", "p"), task("r", "q"), task("s"))
    assert codes(found.errors) == ["cycle"]
    assert the_only(found.warnings).place == "tasks[2] (r).after"


# --- how much is said -------------------------------------------------------------------------------------------------


def test_no_more_than_twenty_findings_of_one_code_and_then_their_number() -> None:
    found = linted(*(task(f"t{n}", "nowhere", say="help") for n in range(50)))
    errors = [one for one in found.findings if one.code == "unknown_task"]
    assert len(errors) == 21
    assert errors[-1] == Finding("unknown_task", "tasks", "There are 30 more of 'unknown_task'.")
    vague = [one for one in found.findings if one.code == "vague_instruction"]
    assert vague[-1] == Finding("vague_instruction", "tasks", "There are 30 more of 'vague_instruction'.", grave=False)
    assert len(vague) == 21


def test_twenty_findings_of_one_code_are_all_there_is() -> None:
    assert codes(linted(*(task(f"t{n}", "nowhere") for n in range(20))).findings) == ["unknown_task"] * 20


def test_no_more_than_twenty_cycles_are_named() -> None:
    assert codes(linted(*(task(f"t{n}", f"t{n}") for n in range(30))).errors) == ["cycle"] * 20


def test_endless_names_do_not_make_endless_sentences() -> None:
    huge = "x" * 1_000_000
    found = linted(task(huge, huge + "y", worker=huge), *(task(f"t{n}" + huge, f"t{n + 1}" + huge) for n in range(30)))
    assert {"bad_id", "unknown_task", "unknown_worker"} <= {*codes(found.errors)}
    assert max(len(one.message) + len(one.place) for one in found.findings) < 1500


def test_a_cycle_of_ten_thousand_tasks_is_found_and_told_shortly() -> None:
    ring = [task(f"t{n}", f"t{(n + 1) % 10_000}") for n in range(10_000)]
    found = linted(*ring)
    assert codes(found.errors) == ["cycle"]
    assert len(found.errors[0].message) < 400


def test_a_chain_of_ten_thousand_tasks_is_clean_in_either_order() -> None:
    chain = [task("t0"), *(task(f"t{n}", f"t{n - 1}") for n in range(1, 10_000))]
    assert linted(*chain).findings == ()
    assert linted(*reversed(chain)).findings == ()


def test_thousands_of_errors_of_every_kind_take_half_a_millisecond_each() -> None:
    size = hunt_size(quick=2_000, thorough=10_000)
    bad = [task(f"t{n}", f"u{n}", worker=f"w{n}", quorum=2, at_least=-1, replaces=f"r{n}") for n in range(size)]
    began = time.thread_time()
    result = linted(*bad, known=[f"k{n}" for n in range(1000)])
    assert time.thread_time() - began < size * 0.0005
    assert len(result.errors) == 5 * 21


def test_findings_do_not_depend_on_the_order_of_sets() -> None:
    names = [f"task-{n}" for n in range(700)]
    again = names.copy()
    random.Random(7).shuffle(again)
    assert linted(task("t", "task-xyz"), known=names) == linted(task("t", "task-xyz"), known=again)


# --- properties -------------------------------------------------------------------------------------------------------

NEEDS: list[Need] = ["required", "optional"]


@st.composite
def graphs(draw: st.DrawFn) -> list[Task]:
    """Tasks without a cycle, in any order."""
    size = draw(st.integers(1, 12))
    tasks: list[Task] = []
    for at in range(size):
        inputs = draw(st.lists(st.integers(0, at - 1), unique=True, max_size=4)) if at else []
        after = [edge(f"n{one}", draw(st.sampled_from(NEEDS))) for one in inputs]
        tasks.append(
            task(f"n{at}", *after, for_each=f"n{draw(st.integers(0, at - 1))}" if at and draw(st.booleans()) else "")
        )
    return draw(st.permutations(tasks))


@given(graphs())
def test_a_graph_without_a_cycle_never_gets_a_cycle_finding_and_can_be_put_in_order(tasks: list[Task]) -> None:
    found = linted(*tasks)
    assert found.errors == ()
    line, circle = in_order(found.tasks)
    assert (len(line), circle) == (len(tasks), [])


@settings(max_examples=hunt_size(quick=50, thorough=500))
@given(graphs(), st.data())
def test_an_edge_back_always_gets_one_and_the_path_named_is_a_cycle(tasks: list[Task], data: st.DataObject) -> None:
    line, _ = in_order(tasks)
    at = data.draw(st.integers(0, len(line) - 1))
    behind = _behind(line, line[at].id)
    last = data.draw(st.sampled_from(sorted(behind)))
    closed = [
        task(one.id, *one.after, edge(last, data.draw(st.sampled_from(NEEDS))), for_each=one.for_each)
        if one.id == line[at].id
        else one
        for one in tasks
    ]
    found = [one for one in linted(*closed).errors if one.code == "cycle"]
    assert found
    for finding in found:
        path = finding.message.split(": ")[1].split(". ")[0].split(" -> ")
        by_id = {one.id: one for one in closed}
        assert len(path) > 1
        assert path[0] == path[-1]
        for needed, reader in pairwise(path):
            assert needed in {name for name, _ in needs(by_id[TaskId(reader)])}


def _behind(line: Sequence[Task], start: TaskId) -> set[TaskId]:
    reached = {start}
    for one in line:
        if any(name in reached for name, _ in needs(one)):
            reached.add(one.id)
    return reached


NAMES = st.sampled_from(["", " ", "a", "b", " a", "A", "c", "t[1]", "x" * 70, "\x00", "\ud800", "k"])
EDGES = st.builds(Edge, NAMES, st.sampled_from(["required", "optional", "quorum"]))
ANY_TASK = st.builds(
    Task,
    id=NAMES,
    instruction=st.one_of(st.text(max_size=40), st.sampled_from(VAGUE + GOOD)),
    worker=st.one_of(NAMES, st.sampled_from(["writer", "WRITER", "data analyst"])),
    match=st.one_of(st.none(), st.builds(Match, st.tuples(st.sampled_from(["web", "no"])))),
    after=st.lists(st.one_of(NAMES, EDGES), max_size=4).map(tuple),
    quorum=st.integers(-2, 3),
    for_each=NAMES,
    at_least=st.integers(-1, 2),
    replaces=NAMES,
)
PLACE = re.compile(
    r"tasks(\[\d+\] \(.*\)\.(id|instruction|worker|match|after|quorum|for_each|at_least|replaces))?", re.DOTALL
)


@settings(max_examples=hunt_size(quick=40, thorough=500))
@given(st.lists(ANY_TASK, max_size=8), st.sampled_from([(), ("k",)]))
def test_lint_never_raises_and_every_finding_has_a_place_and_a_sentence(
    tasks: list[Task], known: tuple[str, ...]
) -> None:
    found = linted(*tasks, limits=Limits(max_tasks=6, max_depth=3, fan_out=2), known=known)
    assert len(found.tasks) == len(tasks)
    for one in found.findings:
        assert re.fullmatch(r"[a-z_]+", one.code)
        assert PLACE.fullmatch(one.place)
        assert one.message.endswith(".")


@settings(max_examples=hunt_size(quick=50, thorough=500))
@given(st.lists(ANY_TASK, max_size=8))
def test_what_was_repaired_needs_no_repair_and_keeps_its_errors(tasks: list[Task]) -> None:
    once = linted(*tasks)
    twice = linted(*once.tasks)
    assert twice.tasks == once.tasks
    assert not [one for one in twice.findings if one.code.startswith("repaired_")]
    assert codes(twice.errors) == codes(once.errors)
