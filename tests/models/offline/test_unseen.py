"""Teams and requests written after the rules were done. Rules are mended in general for them, never in particular."""

from collections.abc import Sequence

import pytest

from chargehand.models.subject import WorkerCard
from tests.models.offline.teams import CALCULATE, NUMBER, TEXT, linted, planned, skill

POINTS = {"type": "array", "items": {"type": "object", "properties": {"x": TEXT, "y": NUMBER}}}
HOTEL = (
    WorkerCard(
        "frontdesk",
        "looks up stays, guests, rooms and occupancy in the hotel register",
        (),
        (
            skill(
                "lookup",
                "Ask the register in SQL. Tables: stays(room, guest, arrived, left, paid), rooms(number, floor, beds, "
                "rate), guests(name, nation)",
                {"statement": TEXT},
            ),
        ),
    ),
    WorkerCard(
        "concierge",
        "answers from the guest information folder: breakfast, pets, parking, late checkout",
        (),
        (skill("read_folder", "Find a page of the folder.", {"question": TEXT}),),
    ),
    WorkerCard("artist", "turns numbers into graphs", (), (skill("plot", "Plot points.", {"points": POINTS}),)),
    WorkerCard(
        "teller",
        "changes money",
        (),
        (skill("exchange", "Exchange money.", {"amount": NUMBER, "from_code": TEXT, "to_code": TEXT}),),
    ),
    WorkerCard("scribe", "puts findings into a polite letter or a summary"),
)
WIND = (
    WorkerCard(
        "telemetry",
        "reads turbine output, wind speed and downtime from the plant log",
        (),
        (
            skill(
                "ask_log",
                "Energy in kWh, wind in m/s and outages per turbine and day. Columns: turbine, day, kwh, wind, "
                "outage_hours",
                {"question": TEXT},
            ),
        ),
    ),
    WorkerCard(
        "manuals",
        "searches the maintenance manuals and safety procedures",
        (),
        (skill("find_text", "Find pages that hold these words.", {"words": TEXT}),),
    ),
    WorkerCard("calc", "a calculator", (), (CALCULATE,)),
    WorkerCard(
        "calendar",
        "works out dates and intervals between them",
        (),
        (skill("days_between", "Days from one date to another.", {"start": TEXT, "end": TEXT}),),
    ),
)
AGENCY = (
    WorkerCard("nutritionist", "plans balanced meals and knows the calories of food"),
    WorkerCard("translator", "translates text between languages"),
    WorkerCard("lawyer", "explains contracts, rent and tenancy law"),
)
CINEMA = (
    WorkerCard(
        "boxoffice",
        "keeps the ticket sales of every screening",
        (),
        (
            skill(
                "tickets",
                "A table of tickets: film, hall, starts_at, seats_sold, takings. Takes SQL.",
                {"sql": TEXT},
            ),
        ),
    ),
    WorkerCard(
        "critic",
        "searches film reviews and press notes",
        ("reviews",),
        (skill("search_reviews", "Reviews that speak of these words.", {"query": TEXT}),),
    ),
    WorkerCard(
        "projectionist",
        "draws line and bar charts",
        (),
        (skill("chart", "A chart.", {"labels": {"type": "array", "items": TEXT}, "values": {"type": "array"}}),),
    ),
    WorkerCard("publicist", "writes press releases, newsletters and recommendations"),
)
FARM = (
    WorkerCard(
        "herdbook",
        "milk yield, feed and vet visits of every cow",
        (),
        (skill("herd", "Query the herd book. Fields: cow, day, litres, feed_kg, vet_cost.", {"query": TEXT}),),
    ),
    WorkerCard(
        "market",
        "today's prices of milk, grain and cattle",
        (),
        (skill("price_of", "The price of a good in EUR.", {"good": TEXT}),),
    ),
    WorkerCard("abacus", "arithmetic", (), (CALCULATE,)),
)


CASES: list[tuple[Sequence[WorkerCard], str, list[tuple[str, list[str]]]]] = [
    (CINEMA, "Which film took most money in August 2026?", [("boxoffice", [])]),
    (CINEMA, "What do the reviews say about the sound of Nightfall?", [("critic", [])]),
    (
        CINEMA,
        "Give me the takings per hall in 2026 as a bar chart and write a newsletter about it",
        [("boxoffice", []), ("projectionist", ["t1"]), ("publicist", ["t1", "t2"])],
    ),
    (
        CINEMA,
        "How many seats were sold on 3 October 2026? What did critics write about the film with the most seats?",
        [("boxoffice", []), ("boxoffice", []), ("critic", ["t2"])],
    ),
    (
        CINEMA,
        "Please list the five weakest screenings and recommend which film to drop.",
        [("boxoffice", []), ("publicist", ["t1"])],
    ),
    (CINEMA, "Fix the projector in hall 2", []),
    (FARM, "How much milk did cow 17 give in March 2026?", [("herdbook", [])]),
    (FARM, "What does grain cost today?", [("market", [])]),
    (
        FARM,
        "What was the total vet cost in 2025, and what is the price of milk?",
        [("herdbook", []), ("market", [])],
    ),
    (
        FARM,
        "Multiply the litres of cow 17 in May 2026 by the price of milk",
        [("herdbook", []), ("market", []), ("abacus", ["t1", "t2"])],
    ),
    (
        FARM,
        "Which cows gave the least milk last year; how much feed did they get?",
        [("herdbook", []), ("herdbook", ["t1"])],
    ),
    (FARM, "Sing the cows a song", []),
    (HOTEL, "How many guests stayed in April 2026?", [("frontdesk", [])]),
    (HOTEL, "Are dogs allowed in the rooms, and what does parking cost?", [("concierge", []), ("concierge", [])]),
    (HOTEL, "Plot occupancy per month for 2025", [("frontdesk", []), ("artist", ["t1"])]),
    (
        HOTEL,
        "Which room earned most in 2025? Change that amount into CHF.",
        [("frontdesk", []), ("teller", ["t1"])],
    ),
    (HOTEL, "Write a letter about late checkout", [("concierge", []), ("scribe", ["t1"])]),
    (HOTEL, "Exchange 300 GBP for EUR", [("teller", [])]),
    (
        HOTEL,
        "Show the ten most frequent nations of our guests and graph them.",
        [("frontdesk", []), ("artist", ["t1"])],
    ),
    (
        WIND,
        "Which turbine had the most downtime in March 2026 and what do the manuals say about gearbox oil?",
        [("telemetry", []), ("manuals", [])],
    ),
    (WIND, "How many days are there between 3 March 2026 and 17 May 2026?", [("calendar", [])]),
    (WIND, "What is (1200 - 350) / 4?", [("calc", [])]),
    (WIND, "Compute 8% of the total energy in 2025", [("telemetry", []), ("calc", ["t1"])]),
    (WIND, "How should a technician lock the rotor?", [("manuals", [])]),
    (
        WIND,
        "What was the average wind speed in June 2026, and in July 2026?",
        [("telemetry", []), ("telemetry", [])],
    ),
    (AGENCY, "Translate 'good morning' into Finnish", [("translator", [])]),
    (
        AGENCY,
        "How many calories are in an apple, and is subletting allowed under a tenancy contract?",
        [("nutritionist", []), ("lawyer", [])],
    ),
    (
        AGENCY,
        "Plan a week of vegetarian meals, then translate the plan into Spanish.",
        [("nutritionist", []), ("translator", ["t1"])],
    ),
    (AGENCY, "My landlord raised the rent by 20%. Is that legal?", [("lawyer", [])]),
    (HOTEL, "Repair the lift", []),
    (WIND, "Order a new gearbox from the supplier", []),
    (AGENCY, "Compose a symphony", []),
]


@pytest.mark.parametrize(("team", "goal", "expected"), CASES)
def test_a_team_never_seen_is_given_what_it_can_do(
    team: Sequence[WorkerCard], goal: str, expected: list[tuple[str, list[str]]]
) -> None:
    proposed = planned(goal, team)
    assert [(task["worker"], task["after"]) for task in proposed["tasks"].values()] == expected
    assert bool(proposed["unserved"]) == (not expected)
    if expected:
        assert [finding.message for finding in linted(proposed, team).findings] == []


def test_what_was_said_before_a_question_goes_with_it() -> None:
    (task,) = planned("My landlord raised the rent by 20%. Is that legal?", AGENCY)["tasks"].values()
    assert "My landlord raised the rent by 20%" in task["instruction"]
