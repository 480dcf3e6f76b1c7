"""Two workplaces the rules were not made with: a clinic and a fleet of vans. Tasks and data were written after them."""

import csv
import random
from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import date, timedelta
from functools import cache
from pathlib import Path

import pytest

from chargehand.models.exhibits import Chart, Figure, Table
from chargehand.tools.calculator import calculator
from chargehand.tools.chart import chart
from chargehand.tools.documents import documents
from chargehand.tools.sql import sql
from chargehand.tools.tool import Tool, tool
from tests.models.offline.working import Worked, do, table

Row = dict[str, str]
CITIES = ["Graz", "Linz", "Wels", "Steyr"]
INSURERS = ["Helvia", "Nordkasse", "Union Health"]
DOCTORS = [
    ("1", "Anna Lindqvist", "cardiology"),
    ("2", "Ben Okoro", "dermatology"),
    ("3", "Carla Moretti", "cardiology"),
]
STATUS = ["kept", "kept", "kept", "kept", "cancelled", "no-show"]
DEPOTS = ["North", "Harbour", "Airport"]
DRIVERS = ["Adeyemi", "Bauer", "Castillo", "Dufour", "Eriksen", "Fischer", "Okafor", "Petrov", "Quist", "Rossi"]
LEAFLETS = {
    "blood-test.md": "# Blood test\n\nDo not eat for 12 hours before a blood test. Water is allowed.\n",
    "mri.md": "# MRI\n\nTake off all metal before the scan. The scan takes 30 minutes.\n",
    "parking.md": "# Parking\n\nPatients park for free for 2 hours behind the clinic.\n",
}


@cache
def clinic() -> dict[str, list[Row]]:
    chance = random.Random(11)
    patients = [
        {
            "patient_id": str(n),
            "name": f"Patient {n}",
            "birth_year": str(chance.randint(1935, 2015)),
            "insurer": chance.choice(INSURERS),
            "city": chance.choice(CITIES),
        }
        for n in range(1, 41)
    ]
    doctors = [{"doctor_id": n, "name": name, "department": department} for n, name, department in DOCTORS]
    appointments = [
        {
            "appointment_id": str(n),
            "day": (date(2026, 1, 2) + timedelta(chance.randint(0, 150))).isoformat(),
            "patient_id": str(chance.randint(1, 40)),
            "doctor_id": chance.choice("123"),
            "minutes": str(chance.choice([10, 15, 20, 30, 45])),
            "status": chance.choice(STATUS),
            "fee_eur": f"{chance.randint(30, 160)}.50",
        }
        for n in range(1, 301)
    ]
    return {"patients": patients, "doctors": doctors, "appointments": appointments}


@cache
def fleet() -> dict[str, list[Row]]:
    chance = random.Random(12)
    vans = [
        {
            "van_id": f"V{n:02}",
            "plate": f"L-{n * 37:03}",
            "model": chance.choice(["Transit", "Sprinter", "Ducato"]),
            "depot": chance.choice(DEPOTS),
            "capacity_kg": str(chance.choice([900, 1100, 1250, 1400])),
        }
        for n in range(1, 15)
    ]
    trips = [
        {
            "trip_id": str(n),
            "van_id": f"V{chance.randint(1, 14):02}",
            "driver": chance.choice(DRIVERS),
            "start_day": (date(2026, 3, 1) + timedelta(chance.randint(0, 100))).isoformat(),
            "km": str(chance.randint(12, 320)),
            "parcels": str(chance.randint(5, 90)),
        }
        for n in range(1, 251)
    ]
    fuel = [
        {
            "van_id": f"V{chance.randint(1, 14):02}",
            "day": (date(2026, 3, 1) + timedelta(chance.randint(0, 100))).isoformat(),
            "litres": f"{chance.randint(20, 70)}.5",
            "cost_eur": f"{chance.randint(30, 120)}.25",
        }
        for _ in range(120)
    ]
    return {"vans": vans, "trips": trips, "fuel": fuel}


def written(folder: Path, tables: dict[str, list[Row]]) -> Tool:
    for name, rows in tables.items():
        with (folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)
    return sql(folder, name="records")


@pytest.fixture(scope="module")
def clinic_records(tmp_path_factory: pytest.TempPathFactory) -> Tool:
    return written(tmp_path_factory.mktemp("clinic"), clinic())


@pytest.fixture(scope="module")
def fleet_records(tmp_path_factory: pytest.TempPathFactory) -> Tool:
    return written(tmp_path_factory.mktemp("fleet"), fleet())


def pairs(done: Worked) -> dict[object, float]:
    assert not done.gave_up, done.gave_up
    found = done.results[0]
    assert isinstance(found, Table)
    return {row[0]: round(float(str(row[-1])), 2) for row in found.rows}


def one(done: Worked) -> float:
    assert not done.gave_up, done.gave_up
    found = done.results[0]
    assert isinstance(found, Table)
    assert len(found.rows) == 1
    return float(str(found.rows[0][-1]))


def by_id(rows: Iterable[Row], key: str) -> dict[str, Row]:
    return {row[key]: row for row in rows}


def percent(part: int, whole: int) -> float:
    return round(100 * part / whole, 1)


# --- the clinic


def doctor(row: Row, field: str) -> str:
    return by_id(clinic()["doctors"], "doctor_id")[row["doctor_id"]][field]


def test_appointments_of_each_doctor(clinic_records: Tool) -> None:
    march = [row for row in clinic()["appointments"] if row["day"].startswith("2026-03")]
    done = do("How many appointments did each doctor have in March 2026?", [clinic_records])
    assert pairs(done) == Counter(doctor(row, "name") for row in march)


def test_average_minutes_per_department(clinic_records: Tool) -> None:
    minutes: dict[str, list[int]] = defaultdict(list)
    for row in clinic()["appointments"]:
        minutes[doctor(row, "department")].append(int(row["minutes"]))
    done = do("What is the average length of an appointment in minutes per department?", [clinic_records])
    assert pairs(done) == {name: round(sum(all_) / len(all_), 2) for name, all_ in minutes.items()}


def test_no_show_rate_per_department(clinic_records: Tool) -> None:
    every = Counter(doctor(row, "department") for row in clinic()["appointments"])
    missed = Counter(doctor(row, "department") for row in clinic()["appointments"] if row["status"] == "no-show")
    done = do("Work out the no-show rate per department.", [clinic_records])
    assert pairs(done) == {name: percent(missed[name], count) for name, count in every.items()}


def test_the_insurer_with_the_highest_fees(clinic_records: Tool) -> None:
    patients = by_id(clinic()["patients"], "patient_id")
    fees: Counter[str] = Counter()
    for row in clinic()["appointments"]:
        fees[patients[row["patient_id"]]["insurer"]] += int(float(row["fee_eur"]) * 100)
    done = do("Which insurer brought in the highest total fees in 2026?", [clinic_records])
    assert pairs(done) == {name: cents / 100 for name, cents in fees.most_common(1)}


def test_patients_from_a_city(clinic_records: Tool) -> None:
    done = do("List the patients from Graz.", [clinic_records])
    found = done.results[0]
    assert isinstance(found, Table)
    names = {row["name"] for row in clinic()["patients"] if row["city"] == "Graz"}
    assert names == {cell for row in found.rows for cell in row if str(cell).startswith("Patient ")}


def test_patients_born_before_a_year(clinic_records: Tool) -> None:
    done = do("How many patients were born before 1960?", [clinic_records])
    assert one(done) == sum(int(row["birth_year"]) < 1960 for row in clinic()["patients"])


def test_two_months_compared(clinic_records: Tool) -> None:
    done = do("Compare the number of appointments in January 2026 and February 2026.", [clinic_records, calculator()])
    months = Counter(row["day"][:7] for row in clinic()["appointments"])
    assert pairs(done) == {name: months[name] for name in ("2026-01", "2026-02")}


def test_share_of_cancelled_appointments(clinic_records: Tool) -> None:
    rows = clinic()["appointments"]
    done = do("What share of the appointments was cancelled in 2026?", [clinic_records])
    assert one(done) == percent(sum(row["status"] == "cancelled" for row in rows), len(rows))


def test_cardiology_fees_in_a_quarter(clinic_records: Tool) -> None:
    rows = [row for row in clinic()["appointments"] if row["day"] < "2026-04"]
    expected = sum(float(row["fee_eur"]) for row in rows if doctor(row, "department") == "cardiology")
    done = do("Total fees of the cardiology department in the first quarter of 2026", [clinic_records])
    assert one(done) == round(expected, 2)


def test_a_slot_with_a_doctor_on_a_day() -> None:
    @tool
    def free_slot(doctor: str, day: date) -> str:
        """The next free slot of a doctor on a day."""
        return f"{doctor} is free at 10:40 on {day}"

    done = do("Find the next free slot of Dr Lindqvist on 14 April 2026.", [free_slot])
    assert "Lindqvist" in str(done.arguments()["doctor"])
    assert done.arguments()["day"] == "2026-04-14"
    assert "10:40" in done.text


def test_a_leaflet(tmp_path: Path) -> None:
    for name, text in LEAFLETS.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    done = do("What should patients do before a blood test?", [documents(tmp_path, name="leaflets")])
    assert "Do not eat for 12 hours" in done.text
    assert "blood-test.md" in done.text
    assert "parking" not in done.text


# --- the fleet


def van(row: Row, field: str) -> str:
    return by_id(fleet()["vans"], "van_id")[row["van_id"]][field]


def test_kilometres_per_depot(fleet_records: Tool) -> None:
    expected: Counter[str] = Counter()
    for row in fleet()["trips"]:
        if row["start_day"].startswith("2026-04"):
            expected[van(row, "depot")] += int(row["km"])
    assert pairs(do("Total kilometres per depot in April 2026", [fleet_records])) == expected


def test_the_five_vans_that_drove_most(fleet_records: Tool) -> None:
    expected: Counter[str] = Counter()
    for row in fleet()["trips"]:
        expected[row["van_id"]] += int(row["km"])
    found = pairs(do("Which five vans drove the most km?", [fleet_records]))
    assert sorted(found.values()) == sorted(count for _, count in expected.most_common(5))


def test_fuel_cost_by_month(fleet_records: Tool) -> None:
    expected: Counter[str] = Counter()
    for row in fleet()["fuel"]:
        expected[row["day"][:7]] += int(float(row["cost_eur"]) * 100)
    assert pairs(do("Fuel cost per month in 2026", [fleet_records])) == {k: v / 100 for k, v in expected.items()}


def test_parcels_of_one_driver(fleet_records: Tool) -> None:
    expected = sum(
        int(row["parcels"])
        for row in fleet()["trips"]
        if row["driver"] == "Okafor" and row["start_day"].startswith("2026-05")
    )
    assert one(do("How many parcels did driver Okafor deliver in May 2026?", [fleet_records])) == expected


def test_vans_above_a_capacity(fleet_records: Tool) -> None:
    done = do("List the vans with a capacity above 1200 kg.", [fleet_records])
    found = done.results[0]
    assert isinstance(found, Table)
    assert len(found.rows) == sum(int(row["capacity_kg"]) > 1200 for row in fleet()["vans"])


def test_what_nobody_records_is_given_up(fleet_records: Tool) -> None:
    done = do("How many speeding tickets did each driver get in April 2026?", [fleet_records])
    assert done.gave_up
    assert done.results == []


def test_two_places() -> None:
    @tool
    def route(origin: str, destination: str) -> Figure:
        """The distance by road between two places."""
        return Figure("223", unit="km", label=f"{origin} to {destination}")

    done = do("How far is it from Linz to Graz by road?", [route])
    assert done.arguments() == {"origin": "Linz", "destination": "Graz"}
    assert "223 km" in done.text


def test_a_line_chart_of_months() -> None:
    litres = table(("month", "litres"), ("2026-03", 410.5), ("2026-04", 388), ("2026-05", 402))
    done = do("Plot the litres per month as a line chart.", [chart()], [litres])
    assert done.arguments()["kind"] == "line"
    assert done.arguments()["values"] == [410.5, 388, 402]
    assert isinstance(done.results[0], Chart)


def test_cost_per_kilometre() -> None:
    inputs = [table(("cost_eur",), (1200,)), table(("km",), (15000,))]
    done = do("Divide the fuel cost by the kilometres driven.", [calculator()], inputs)
    found = done.results[0]
    assert isinstance(found, Figure)
    assert found.value == "0.08"


@pytest.mark.parametrize("task", ["Report the fleet.", "Why?", "Order more vans from the dealer."])
def test_vague_tasks_end(task: str, fleet_records: Tool) -> None:
    done = do(task, [fleet_records])
    assert done.text or done.gave_up


# --- a library, written after the first two had been looked at


BRANCHES = ["Central", "Eastside", "Riverside"]
GENRES = ["crime", "history", "poetry", "travel"]


@cache
def library() -> dict[str, list[Row]]:
    chance = random.Random(13)
    books = [
        {
            "book_id": str(n),
            "title": f"Volume {n}",
            "author": f"Author {n % 9}",
            "genre": chance.choice(GENRES),
            "pages": str(chance.randint(90, 700)),
            "publication_year": str(chance.randint(1950, 2025)),
        }
        for n in range(1, 61)
    ]
    members = [
        {
            "member_id": str(n),
            "name": f"Member {n}",
            "branch": chance.choice(BRANCHES),
            "joined_on": (date(2020, 1, 1) + timedelta(chance.randint(0, 2200))).isoformat(),
        }
        for n in range(1, 31)
    ]
    loans = [
        {
            "loan_id": str(n),
            "book_id": str(chance.randint(1, 60)),
            "member_id": str(chance.randint(1, 30)),
            "lent_on": (date(2025, 7, 1) + timedelta(chance.randint(0, 330))).isoformat(),
            "days": str(chance.randint(1, 45)),
            "fine_eur": f"{chance.choice([0, 0, 0, 1, 2, 5])}.00",
        }
        for n in range(1, 401)
    ]
    return {"books": books, "members": members, "loans": loans}


@pytest.fixture(scope="module")
def library_records(tmp_path_factory: pytest.TempPathFactory) -> Tool:
    return written(tmp_path_factory.mktemp("library"), library())


def book(row: Row, field: str) -> str:
    return by_id(library()["books"], "book_id")[row["book_id"]][field]


def member(row: Row, field: str) -> str:
    return by_id(library()["members"], "member_id")[row["member_id"]][field]


def test_loans_per_genre(library_records: Tool) -> None:
    done = do("Count the loans per genre in 2026.", [library_records])
    assert pairs(done) == Counter(book(row, "genre") for row in library()["loans"] if row["lent_on"] >= "2026")


def test_fines_per_branch(library_records: Tool) -> None:
    expected: Counter[str] = Counter()
    for row in library()["loans"]:
        if "2025-10-01" <= row["lent_on"] < "2026-01-01":
            expected[member(row, "branch")] += int(float(row["fine_eur"]))
    assert pairs(do("How much did we collect in fines per branch in Q4 2025?", [library_records])) == expected


def test_the_three_longest_poetry_books(library_records: Tool) -> None:
    poetry = sorted((int(row["pages"]) for row in library()["books"] if row["genre"] == "poetry"), reverse=True)
    done = do("What are the three longest poetry books?", [library_records])
    assert sorted(pairs(done).values(), reverse=True) == poetry[:3]


def test_books_of_a_decade(library_records: Tool) -> None:
    done = do("How many books were published after 2000?", [library_records])
    assert one(done) == sum(int(row["publication_year"]) > 2000 for row in library()["books"])


def test_who_joined_when(library_records: Tool) -> None:
    done = do("How many members joined since January 2024?", [library_records])
    assert one(done) == sum(row["joined_on"] >= "2024" for row in library()["members"])


def test_the_most_borrowed_author(library_records: Tool) -> None:
    expected = Counter(book(row, "author") for row in library()["loans"])
    ((name, count),) = pairs(do("Which author has the most loans?", [library_records])).items()
    assert expected[str(name)] == count == max(expected.values())


def test_average_days_of_crime_books(library_records: Tool) -> None:
    days = [int(row["days"]) for row in library()["loans"] if book(row, "genre") == "crime"]
    done = do("For how many days on average are crime books lent?", [library_records])
    assert round(one(done), 2) == round(sum(days) / len(days), 2)


def test_busy_months(library_records: Tool) -> None:
    expected = Counter(row["lent_on"][:7] for row in library()["loans"])
    done = do("Show the monthly number of loans.", [library_records])
    assert pairs(done) == expected


def test_members_by_branch_with_shares(library_records: Tool) -> None:
    count = Counter(row["branch"] for row in library()["members"])
    done = do("What is the share of members per branch?", [library_records])
    assert pairs(done) == {name: percent(n, 30) for name, n in count.items()}


def test_reserving_a_book() -> None:
    @tool
    def reserve(title: str, member_id: int, branch: str = "Central") -> str:
        """Reserve a book for a member."""
        return f"{title} is reserved for {member_id} at {branch}"

    done = do('Reserve "The Salt Path" for member 17.', [reserve])
    assert done.arguments() == {"title": "The Salt Path", "member_id": 17}


def test_late_fees_with_a_rate() -> None:
    done = do("What is the fine for 12 days at 0.25 euros a day?", [calculator()])
    found = done.results[0]
    assert isinstance(found, Figure)
    assert float(found.value) == 3.0


def test_opening_hours_nobody_knows(library_records: Tool) -> None:
    done = do("What are the opening hours of the Eastside branch?", [library_records])
    assert done.gave_up
