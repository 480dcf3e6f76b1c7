"""A museum that is asked what its papers say, and what they do not: passages that are found must be about the question.

Also words that point back or are mistyped. The museum, its papers and its books are made up for this.
"""

from pathlib import Path

import pytest

from chargehand.agents.worker import Worker
from chargehand.models.exhibits import Passage
from chargehand.models.offline.holding import numbered, says
from chargehand.models.offline.mistyped import mistyped
from chargehand.runtime.result import Result
from chargehand.team import Supervisor
from chargehand.tools.documents import documents
from chargehand.tools.sql import sql
from chargehand.tools.tool import tool

PAPERS = {
    "house.md": """# The house
The museum is open from Tuesday to Sunday from 10:00 to 18:00. It stands at 9 Quay Street.
## Tickets
A ticket costs 14 crowns, and 6 crowns for pupils. Members pay a fee of 40 crowns a year.
## Outage
The lift was down for 9 hours in April 2026, because a belt broke.
""",
    "loans.md": """# Loans
Lindgren Glass may raise its charge once a year by at most 4 percent, announced 90 days before.
## Liability
The liability of Lindgren Glass is capped at 12 months of fees.
## Term
Lindgren Glass lends the vases for 24 months.
""",
    "tools.md": """# Tools
Labels are printed with PrintWell or QuickPDF. Captions over 40 characters are cut off.
## Myths
Visitors often believe that every old bowl is Roman; this is the collector's fallacy.
## Mishaps
The opening of the Heron room sold 90 tickets, half of what was planned. Invitations came too late.
""",
}
EXHIBITS = "\n".join(
    (
        "exhibit,owner,room,value_crowns,ends_on",
        "Bronze bowl,Ostrander,North,900,2026-07-01",
        "Glass vase,Lindgren,South,400,2026-09-15",
        "Silver spoon,Ostrander,South,250,2027-01-31",
    )
)


@tool
def keeper_of(exhibit: str) -> str:
    """Who keeps an exhibit, and who decides about it."""
    return f"{exhibit}: Berit Solheim decides about it."


@pytest.fixture
def team(tmp_path: Path) -> Supervisor:
    for folder, files in {"papers": PAPERS, "books": {"exhibits.csv": EXHIBITS}}.items():
        (tmp_path / folder).mkdir()
        for name, text in files.items():
            (tmp_path / folder / name).write_text(text, encoding="utf-8")
    return Supervisor(
        [
            Worker("writer", "Writes letters and newsletters from the results of others."),
            Worker("reader", "Finds what the papers of the museum say.", tools=[documents(tmp_path / "papers")]),
            Worker(
                "registrar",
                "Answers questions about the register of exhibits, owners, rooms and values.",
                tools=[sql(tmp_path / "books")],
            ),
            Worker("warden", "Knows who decides about an exhibit and who keeps it.", tools=[keeper_of]),
        ]
    )


def told(found: Result) -> str:
    return " ".join(gap.message for gap in found.gaps)


@pytest.mark.parametrize(
    ("request_", "unsaid"),
    [
        ("What is the credit rating of Lindgren Glass?", "credit"),
        ("What will a ticket cost next year?", "what will be"),
        ("What does a month of parking cost?", "parking"),
        ("What is the price of parking?", "parking"),
        ("How long was the heating down?", "heating"),
        ("What is 17 divided by 0?", "17 divided by 0"),
        ("What is the insurance fee for vases?", "insurance"),
    ],
)
def test_what_no_paper_says_is_not_answered_with_what_stands_near_it(
    team: Supervisor, request_: str, unsaid: str
) -> None:
    found = team.run_sync(request_)
    assert found.ending == "failed"
    assert unsaid in told(found)


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        ("When do you close on Sundays?", "18:00"),
        ("How long was the lift down in April 2026?", "9 hours"),
        ("How do I print a label with QuickPDF?", "QuickPDF"),
        ("What do our papers say about the collectors falacy?", "old bowl"),
        ("What went wrong with the opening of the Heron room?", "too late"),
        ("What does a ticket cost for pupils?", "6 crowns"),
    ],
)
def test_what_a_paper_says_in_other_words_is_answered(team: Supervisor, request_: str, says: str) -> None:
    found = team.run_sync(request_)
    assert found.ending == "complete", told(found)
    assert says in str(found.answer)


def test_passages_that_only_name_the_same_people_are_left_out(team: Supervisor) -> None:
    said = str(team.run_sync("What do our papers say about the liability of Lindgren Glass?").answer)
    assert "12 months of fees" in said
    assert "24 months" not in said
    assert "loans.md#term" not in said


def test_that_contract_is_the_one_of_whom_was_named_before(tmp_path: Path) -> None:
    rows = ("contract_id,supplier,notice_days,ends", "C1,Ash Hosting,30,2026-02-28", "C2,Birch Design,14,2026-03-01")
    (tmp_path / "contracts.csv").write_text("\n".join(rows))
    clerk = Worker("clerk", "Answers questions about the register of contracts.", tools=[sql(tmp_path)])
    found = Supervisor([clerk]).run_sync(
        "How many notice days does Birch Design have, and when does that contract end?"
    )
    assert found.ending == "complete", told(found)
    assert "2026-03-01" in str(found.answer)
    assert "2026-02-28" not in str(found.answer)


def test_them_are_those_whose_number_was_asked_for(team: Supervisor) -> None:
    found = team.run_sync("How many euros do the exhibits of Ostrander cost, and which of them is in the south room?")
    assert "of the exhibits of Ostrander" in found.plan.tasks[-1].instruction


def test_nobody_is_asked_about_a_pronoun(team: Supervisor) -> None:
    found = team.run_sync("Who decides about them?")
    assert "them: Berit" not in str(found.answer)
    assert found.ending == "failed"


def test_whom_to_ask_is_no_part_of_the_question(team: Supervisor) -> None:
    found = team.run_sync("Ask the workers: what does a ticket cost for pupils?")
    assert [task.worker for task in found.plan.tasks] == ["reader"]
    assert found.ending == "complete", told(found)


def test_how_long_a_line_of_a_letter_may_be_asks_for_no_letter(team: Supervisor) -> None:
    found = team.run_sync("How long may a caption of the newsletter be?")
    assert "writer" not in [task.worker for task in found.plan.tasks]


@pytest.mark.parametrize(
    ("word", "right", "same"),
    [
        ("binery", "binary", True),  # a wrong vowel
        ("harow", "harrow", True),  # a letter missing
        ("winder", "winter", False),  # another consonant is another word
        ("effect", "affect", False),  # the first letter is seldom wrong
        ("mean", "moan", False),
    ],
)
def test_a_word_is_mistyped_or_another_one(word: str, right: str, *, same: bool) -> None:
    assert mistyped(word, right) is same


def test_a_length_of_time_is_no_price_and_a_rating_no_rate() -> None:
    time = Passage("a.md", "It takes 12 months.")
    money = Passage("a.md", "It takes 12 euros.")
    assert not says("cost", time)
    assert says("cost", money)
    assert says("rate", money)
    assert not says("rating", money)


def test_the_number_of_somebody_else_in_the_same_passage_is_no_answer() -> None:
    both = Passage("overview.md", "Ash is strong in rules. Birch connects to 140 programs.")
    assert numbered("programs", both, ["Birch"], counted=True)
    assert not numbered("programs", both, ["Ash"], counted=True)
    assert not numbered("programs", Passage("a.md", "Programs of Ash were down for 9 hours."), ["Ash"], counted=True)
