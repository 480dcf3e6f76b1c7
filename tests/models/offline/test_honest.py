"""Three workplaces and thirty requests, half of which nobody there can answer.

Written after the rules, which were then mended in general where they failed. An answer that is wrong is worse than
none: what cannot be answered must not end as if it had been.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from chargehand import Supervisor, Worker, tool
from chargehand.team import Result
from chargehand.tools.calculator import calculator
from chargehand.tools.chart import chart
from chargehand.tools.documents import documents
from chargehand.tools.sql import sql

BREWERY = {
    "beers.csv": "beer_id,beer,style,strength_percent,price_eur\n1,Kestrel,lager,4.8,2.10\n2,Badger,stout,6.2,2.90\n"
    "3,Heron,wheat,5.1,2.40\n4,Otter,stout,7.0,3.20\n",
    "pubs.csv": "pub_id,name,town\n1,The Anchor,Hull\n2,The Plough,York\n3,The Bell,York\n4,The Crown,Leeds\n",
    "deliveries.csv": "delivery_id,day,pub_id,beer_id,kegs\n"
    "501,2026-02-03,1,1,10\n502,2026-02-17,2,2,4\n503,2026-03-04,1,2,6\n504,2026-03-11,3,3,5\n505,2026-03-20,2,1,8\n"
    "506,2026-04-02,4,4,3\n507,2026-04-09,1,1,12\n",
}
BREWERY_PAPERS = {
    "cleaning.md": "# Cleaning the tanks\n\nTanks are rinsed with hot water for 40 minutes, "
    "then with acid. Wear gloves.\n",
    "hops.md": "# Hops\n\nOur hops come from the farm of Edda Brandt in Tettnang. "
    "The contract runs until 31 October 2027.\n",
    "visits.md": "# Visits\n\nTours of the brewery take place on Saturdays at 14:00. "
    "A tour costs 12 pounds and takes 90 minutes.\n",
}
ORCHARD = {
    "trees.csv": "tree_id,kind,orchard,planted_on\nA1,apple,North,2015-03-01\nA2,apple,North,2016-04-10\n"
    "P1,pear,South,2012-11-05\nC1,cherry,South,2018-03-20\nA3,apple,South,2019-03-02\n",
    "harvests.csv": "harvest_id,tree_id,picked_on,kg\n1,A1,2025-09-10,80\n2,A2,2025-09-12,60\n3,P1,2025-09-20,45\n"
    "4,C1,2025-07-01,20\n5,A1,2026-09-08,95\n6,A2,2026-09-09,70\n7,C1,2026-07-03,25\n",
}
STOPS = {"Market": ["08:10", "08:40"], "Station": ["08:20", "08:50"], "Harbour": ["08:35"]}


def written(folder: Path, files: dict[str, str]) -> Path:
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def brewery(home: Path) -> Supervisor:
    books = written(home / "books", BREWERY)
    papers = written(home / "papers", BREWERY_PAPERS)
    return Supervisor(
        [
            Worker(
                "clerk",
                description="Knows the beers, pubs and deliveries of the brewery.",
                tools=[sql(books), calculator()],
            ),
            Worker(
                "keeper",
                description="Finds what the brewery's papers say.",
                tools=[documents(papers)],
                tags=["documents"],
            ),
            Worker("scribe", description="Writes memos and letters from the results of others."),
        ]
    )


def orchard(home: Path) -> Supervisor:
    books = written(home / "books", ORCHARD)
    return Supervisor(
        [
            Worker("forester", description="Answers questions about trees and harvests.", tools=[sql(books)]),
            Worker("painter", description="Draws charts of numbers.", tools=[chart()]),
        ]
    )


def tram(home: Path) -> Supervisor:
    @tool
    def departures(stop: str) -> list[str]:
        """The departures of the tram from a stop: Market, Station or Harbour."""
        return STOPS[stop]

    @tool
    def fare(zones: int) -> float:
        """The fare of a tram ticket for a number of zones, in euros."""
        return 1.5 + 0.5 * zones

    @tool
    def seats(line: str) -> int:
        """How many seats the trams of a line have: red, green or blue."""
        return {"red": 64, "green": 72, "blue": 90}[line]

    rules = written(
        home / "rules", {"rules.md": "# Rules\n\nDogs travel free of charge on a lead. Bicycles need a ticket.\n"}
    )
    return Supervisor(
        [
            Worker(
                "dispatcher",
                description="Knows departures, fares and seats of the tram.",
                tools=[departures, fare, seats],
            ),
            Worker(
                "warden", description="Finds what the rules of the tram say.", tools=[documents(rules)], tags=["rules"]
            ),
        ]
    )


ANSWERED = [
    (brewery, "How many kegs were delivered to The Anchor in March 2026?", ["6"]),
    (brewery, "Which beer is the strongest?", ["Otter"]),
    (brewery, "Which pubs got deliveries in March 2026 but not in April 2026?", ["The Plough", "The Bell"]),
    (brewery, "What is 20% of the total kegs in March 2026?", ["3.8"]),
    (brewery, "Where do our hops come from, and until when does the contract run?", ["Edda Brandt", "31 October 2027"]),
    (brewery, "How much does a tour cost?", ["12 pounds"]),
    (brewery, "List the pubs in York and write a letter about tours of the brewery.", ["The Bell", "Dear all"]),
    (orchard, "How many kg of apples did we harvest in 2026?", ["165"]),
    (orchard, "Total kg per kind in 2025 and a chart of them", ["140", "chart"]),
    (orchard, "Which trees have no harvests?", ["A3"]),
    (orchard, "When was tree P1 planted?", ["2012-11-05"]),
    (tram, "When does the tram leave from Station?", ["08:20", "08:50"]),
    (tram, "What is the fare for 3 zones?", ["3"]),
    (tram, "How many seats do the green trams have?", ["72"]),
    (tram, "Do dogs travel free of charge?", ["Dogs travel free"]),
]
REFUSED = [
    (brewery, "How many kegs were stolen in March 2026?"),
    (brewery, "Which pub complained most often about the beer?"),
    (brewery, "Who is our best customer by profit?"),
    (brewery, "How many bottles of Kestrel did we deliver in 2026?"),
    (brewery, "Write a limerick about stout."),
    (brewery, "How many visitors came to the tours in 2026?"),
    (brewery, "What does the paper about hops say about prices?"),
    (brewery, "How many kegs did we deliver last month?"),
    (orchard, "How many kg of plums did we harvest in 2025?"),
    (orchard, "Which trees are sick?"),
    (orchard, "What was the median harvest per tree in 2025?"),
    (orchard, "How much money did the apples bring in 2026?"),
    (tram, "When does the tram leave from Airport?"),
    (tram, "How many passengers travelled on the green line?"),
    (tram, "How many seats of the red trams are broken?"),
]


def run(team: Supervisor, request: str) -> Result:
    return team.run_sync(request)


@pytest.mark.parametrize(("team", "request_", "expected"), ANSWERED, ids=[one[1] for one in ANSWERED])
def test_what_can_be_answered_is_answered_right(
    team: Callable[[Path], Supervisor], request_: str, expected: list[str], tmp_path: Path
) -> None:
    result = run(team(tmp_path), request_)
    assert (result.ending, [gap.message for gap in result.gaps]) == ("complete", [])
    for value in expected:
        assert value in str(result.answer)


@pytest.mark.parametrize(("team", "request_"), REFUSED, ids=[one[1] for one in REFUSED])
def test_what_cannot_be_answered_does_not_end_as_if_it_had_been(
    team: Callable[[Path], Supervisor], request_: str, tmp_path: Path
) -> None:
    result = run(team(tmp_path), request_)
    assert result.ending != "complete"
    assert result.gaps
    assert all(gap.message for gap in result.gaps)
