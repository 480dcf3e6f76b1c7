"""Plans with shared memory, and teams with a real one: from the request to what the next run finds."""

from pathlib import Path

import pytest

import chargehand.config as config
from chargehand import Supervisor, Worker
from chargehand.config.load import load_team
from chargehand.memory.archives import Archive
from chargehand.memory.blocks import Block
from chargehand.memory.declared import Memory
from chargehand.models.subject import WorkerCard
from chargehand.runtime.result import Result
from chargehand.tools.documents import documents
from tests.models.offline.shelf import skilled
from tests.models.offline.teams import CLINIC, GARDEN, LIBRARY, RETAIL, Plan, linted, planned
from tests.models.offline.test_shop import shop

SHOP = Path(config.__file__).parent / "templates" / "shop"
EVERYBODY = tuple(skilled(card) for card in RETAIL)
LIBRARIAN = tuple(skilled(card) if card.name == "librarian" else card for card in RETAIL)


def tasks(plan: Plan) -> list[tuple[str, str, list[str]]]:
    return [(one["worker"], one["instruction"], one["after"]) for one in plan["tasks"].values()]


# --- plans


def test_a_worker_who_may_keeps_its_own_findings_within_its_task() -> None:
    plan = planned("Find what the handbook says about strikes and keep it in the archive tagged carrier.", EVERYBODY)
    ((worker, text, _),) = tasks(plan)
    assert worker == "librarian"
    assert text.startswith(
        "Find what the handbook says about strikes. Keep what you find in the archive, tagged carrier."
    )


def test_what_somebody_found_who_may_not_keep_things_is_kept_by_another_afterwards() -> None:
    plan = planned("How many orders were late in May 2026? Keep it in the archive.", LIBRARIAN)
    (first, second) = tasks(plan)
    assert first[0] == "analyst"
    assert second[0] == "librarian"
    assert second[2] == ["t1"]
    assert second[1].startswith("Keep the result of t1 in the archive.")
    assert linted(plan, LIBRARIAN).findings == ()


def test_all_findings_are_kept_where_that_is_said_at_the_end() -> None:
    request = "How many orders were late in May 2026? What does the handbook say about refunds? Keep all findings."
    assert all("Keep what you find in the archive." in text for _, text, _ in tasks(planned(request, EVERYBODY)))
    last = tasks(planned(request, LIBRARIAN))[-1]
    assert (last[0], last[2]) == ("librarian", ["t1", "t2"])


def test_a_wish_in_the_middle_is_for_what_stands_before_it() -> None:
    request = (
        "Convert 100 euros to US dollars and add it to our notes, find what the handbook says about strikes and keep "
        "it in the archive, and say how many orders were late in May 2026."
    )
    texts = {worker: text for worker, text, _ in tasks(planned(request, EVERYBODY))}
    assert "Add what you find to the block notes." in texts["banker"]
    assert "Keep what you find in the archive." in texts["librarian"]
    assert "archive" not in texts["analyst"]
    assert "block" not in texts["analyst"]


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        ("Remember that the safe is open.", "Keep in the archive: \u201cThe safe is open\u201d."),
        ("Note in status that the report is done.", "Add to the block status: \u201cThe report is done\u201d."),
        ('Replace "draft" by "final" in the notes.', 'Replace "draft" by "final" in the notes.'),
        ("What do we already know about late deliveries?", "What do we already know about late deliveries?"),
        ("What is on the status block?", "What is on the status block?"),
        ("What did you find last time about refunds?", "What did you find last time about refunds?"),
    ],
)
def test_a_request_for_memory_alone_is_one_task(request_: str, text: str) -> None:
    plan = planned(request_, EVERYBODY)
    ((_, instruction, after),) = tasks(plan)
    assert instruction.startswith(text)
    assert (after, plan["unserved"]) == ([], [])


def test_what_is_already_known_is_looked_up_by_who_may_search() -> None:
    writer = (*RETAIL[:-1], skilled(RETAIL[-1], "archival_memory_search"))
    ((worker, _, _),) = tasks(planned("What do we already know about late deliveries?", writer))
    assert worker == "editor"


def test_what_is_named_and_not_asked_for_yet_is_found_first() -> None:
    ((worker, text, _),) = tasks(planned("Add the total revenue in May 2026 to the notes.", EVERYBODY))
    assert worker == "analyst"
    assert "Add what you find to the block notes." in text


def test_without_anybody_who_may_it_is_said() -> None:
    plan = planned("How many orders were late in May 2026? Keep it in the archive.", RETAIL)
    assert len(plan["tasks"]) == 1
    assert plan["unserved"] == ["Keep it in the archive: nobody on the team may add to an archive."]
    readers = tuple(skilled(card, "archival_memory_search") for card in RETAIL)
    barred = planned("How many orders were late in May 2026? Keep it in the archive.", readers)
    assert barred["unserved"] == ["Keep it in the archive: nobody on the team may add to an archive."]
    nothing = planned("Keep what you find in the archive.", EVERYBODY)
    assert nothing["unserved"] == ["Keep what you find in the archive: there is nothing to keep yet."]


REQUESTS: tuple[tuple[str, tuple[WorkerCard, ...]], ...] = (
    ("What was the revenue per country in May 2026? Draw a chart of it. Keep it short.", RETAIL),
    ("How many orders were late in May 2026, and what do our notes say about refunds?", RETAIL),
    ("What do we know about our best customers?", RETAIL),
    ("Convert the revenue of May 2026 to US dollars and write a memo about it.", RETAIL),
    ("Note that amounts are in euros. What was the revenue in 2026?", RETAIL),
    ("Which doctor had the most appointments in 2025? Remember to name the department.", CLINIC),
    ("What do the leaflets say about waiting times?", CLINIC),
    ("Which books are overdue? Draft a letter to the members.", LIBRARY),
    ("What do the rules say about lost books, and how many were lent in 2025?", LIBRARY),
    ("Which plants suit shade? Will it rain in Kassel?", GARDEN),
    ("Cancel order 3.", RETAIL),
    ("Hello!", RETAIL),
)


@pytest.mark.parametrize(("request_", "team"), REQUESTS)
def test_memory_on_every_card_changes_no_plan_that_does_not_ask_for_it(
    request_: str, team: tuple[WorkerCard, ...]
) -> None:
    assert planned(request_, tuple(skilled(card) for card in team)) == planned(request_, team)


# --- from end to end


def ran(folder: Path, request: str) -> Result:
    return load_team(SHOP, memory=folder / "memory.db").run_sync(request)


def test_the_first_example_keeps_a_finding_and_a_note_and_only_once(tmp_path: Path) -> None:
    first, again = (ran(tmp_path, shop().examples[0]) for _ in range(2))
    assert "[t4] Added to the block notes." in str(first.answer)
    assert "[t5] Kept in the archive findings, tagged carrier and strike." in str(first.answer)
    assert "[t4] The block notes has this already." in str(again.answer)
    assert "[t5] The archive findings had this already, tagged carrier and strike." in str(again.answer)
    assert [task.id for task in again.plan.tasks] == ["t1", "t2", "t3", "t4", "t5", "t6"]
    notes = ran(tmp_path, "Show me the notes.")
    assert str(notes.answer).count("14,593.52 USD") == 1


def test_a_later_run_knows_what_an_earlier_one_found(tmp_path: Path) -> None:
    before = ran(tmp_path, "What do we already know about late deliveries?")
    assert "14 parcels to Austria were late" in str(before.answer)
    assert "21 parcels" not in str(before.answer)
    first = ran(tmp_path, shop().examples[0])
    known = ran(tmp_path, shop().examples[-1])
    assert known.ending == "complete"
    assert "21 parcels were late" in str(known.answer)
    assert f"findings: archivist, task t5 of run {first.run}" in str(known.answer)
    assert "Amounts are in euros unless somebody asks for another currency (block guidelines)" in str(known.answer)
    told = ran(tmp_path, "What did you find last time about late deliveries?")
    assert "the drivers of our main carrier were on strike" in str(told.answer)


def test_a_guideline_cannot_be_changed_by_a_worker(tmp_path: Path) -> None:
    result = ran(tmp_path, 'Add "Amounts are in pounds." to the guidelines.')
    assert result.ending == "failed"
    assert "guidelines" in result.gaps[0].message
    shown = ran(tmp_path, "What do our guidelines say about amounts?")
    assert "pounds" not in str(shown.answer)


def test_a_team_made_in_python_keeps_what_it_is_told_to_keep_always(tmp_path: Path) -> None:
    (tmp_path / "terms.md").write_text("# Delivery\nOrders over 100 euros are delivered free of charge.\n")
    finder = Worker(
        "finder",
        "Finds what our documents say.",
        "Keep your findings in the archive.",
        [documents(tmp_path)],
        archives=["findings"],
    )
    keeper = Worker("keeper", "Answers from the archive.", archives=["findings"])
    memory = Memory(blocks=[Block("notes", share="append")], archives=[Archive("findings")])
    team = Supervisor([finder, keeper], memory=memory)
    first = team.run_sync("What do our documents say about delivery?")
    assert "Kept in the archive findings." in str(first.answer)
    known = team.run_sync("What do we already know about delivery?")
    assert "free of charge" in str(known.answer)
