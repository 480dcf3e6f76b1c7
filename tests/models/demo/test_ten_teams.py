"""Two or three plain requests for each of the ten bundled teams, served by the demo model itself.

`tests/teams` replays recordings; here nothing is recorded. A request that is served in part says what is missing.
"""

import pytest

from tests.models.demo.asking import TEAMS, ask

COMPLETE = [
    ("competitive_intelligence", "Which product has the highest rating?", ["Orchardly 4.6"]),
    ("competitive_intelligence", "List the feature gaps of Tidewell.", ["single sign-on", "Kanbrio, Plotline"]),
    ("competitive_intelligence", "Why do customers leave Orchardly?", ["no public API"]),
    ("contract_review", "How many invoices were paid late per supplier?", ["Tarn Hosting 2", "Osprey Logistics 1"]),
    ("contract_review", "Compare the compliance of Tarn Hosting and Juniper Payroll.", ["payment days", "72 hours"]),
    ("curriculum", "What has to be taught before sampling?", ["probability"]),
    ("curriculum", "Make a quiz on spread. What do our notes say about assessment?", ["range", "teaching.md"]),
    ("expert_router", "My wireless network is slow. What can I do?", ["channel"]),
    ("expert_router", "When does my lease end with 3 months of notice given on 2026-06-10?", ["2026-09-30"]),
    ("letta_crew", "What did Amsel and Dohle find?", ["38 percent fewer searches"]),
    ("letta_crew", "What do papers say about shared memory? Keep it in the archive tagged memory.", ["Kept in the"]),
    ("patient_case", "What is the dose of warfarin for Vos?", ["5 mg once a day"]),
    ("patient_case", "Show the trend of TSH for Hart.", ["6.9", "2.3", "in range"]),
    ("portfolio", "What is the average fee per asset class?", ["property 0.58", "bonds 0.16"]),
    ("portfolio", "Compare the risk of Fintry Gold and Aldermere World Equity.", ["17.4", "7.1"]),
    (
        "portfolio",
        (
            "Show the allocation of Harrow and draw a chart of it, list the trades that rebalance Harrow, and say "
            "what our policy says about approval."
        ),
        ["40,255.80", "second adviser", "Bar chart"],
    ),
    ("product_launch", "What is the average budget per segment? Draw a chart of it.", ["hikers 33.15", "Bar chart"]),
    ("product_launch", "Plan the launch schedule for 2027-09-06.", ["2027-06-28"]),
    (
        "recursive_research",
        "Count the steps of linear search and of binary search with 250 items.",
        ["250 steps", "8 steps"],
    ),
    ("recursive_research", "Is merge sort stable?", ["It is stable"]),
    ("tech_support", "The job crashes with the error Killed. What can I do?", ["used up the memory"]),
    ("tech_support", "Why do I get a 401, and how do I make a new token?", ["90 days", "drayman token new"]),
]
PARTIAL = [
    (
        "contract_review",
        "List the contracts of Nia Okafor and what our policy says about renewals.",
        ["Juniper Payroll"],
        "policy",  # contracts speak of renewals, but they are no policy
    ),
    (
        "contract_review",
        "What do the contracts say about exclusivity, and what do the contracts say about escrow?",
        ["Quillmark sends all its parcels"],
        "escrow",
    ),
    (
        "curriculum",
        "What do our notes say about neural networks, and what is the average cost of a project?",
        ["16.67"],
        "neural networks",
    ),
    (
        "letta_crew",
        "What does the documentation say about rate limits, and what does the documentation say about billing?",
        ["60 requests a minute"],
        "billing",
    ),
    ("patient_case", "Show the trend of TSH for Hart, and say what her blood group is.", ["6.9"], "blood group"),
    ("product_launch", "Plan the launch schedule for 2027-09-06 and write a memo about it.", ["2027-06-28"], "memo"),
    ("product_launch", "Compare the price points. How many visitors did our website have?", ["742.05"], "visitors"),
    (
        "recursive_research",
        "Which algorithm took the most steps, and what do our notes say about quantum computers?",
        ["bubble sort 629,245"],
        "quantum computers",
    ),
]


def test_no_team_is_left_out() -> None:
    asked = {team for team, *_ in (*COMPLETE, *PARTIAL)}
    assert asked == {path.name for path in TEAMS.iterdir() if (path / "team.yaml").is_file()}


@pytest.mark.parametrize(("team", "request_text", "facts"), COMPLETE, ids=[f"{row[0]}: {row[1]}" for row in COMPLETE])
def test_a_plain_request_is_answered(team: str, request_text: str, facts: list[str]) -> None:
    result = ask(team, request_text)
    assert result.ending == "complete", result.answer
    for fact in facts:
        assert fact in str(result.answer)


@pytest.mark.parametrize(
    ("team", "request_text", "facts", "missing"), PARTIAL, ids=[f"{row[0]}: {row[1]}" for row in PARTIAL]
)
def test_what_is_served_in_part_names_the_rest(team: str, request_text: str, facts: list[str], missing: str) -> None:
    result = ask(team, request_text)
    assert result.ending == "partial", result.answer
    for fact in facts:
        assert fact in str(result.answer)
    assert any(missing in gap.message for gap in result.gaps)
