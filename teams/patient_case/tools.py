"""Reads trends out of the bundled lab results and interactions out of the bundled lists. It makes no diagnosis."""

import csv
from collections.abc import Iterator
from datetime import date
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Annotated, Literal

from chargehand.models.artifacts import Table
from chargehand.tools.tool import ToolFailed

HERE = Path(__file__).parent
Patient = Annotated[Literal["Moreau", "Vos", "Hart"], "The patient's family name"]
Medicine = Literal[
    "metformin",
    "lisinopril",
    "spironolactone",
    "ibuprofen",
    "warfarin",
    "amiodarone",
    "naproxen",
    "levothyroxine",
    "calcium carbonate",
]
Test = Literal["HbA1c", "creatinine", "potassium", "haemoglobin", "ferritin", "INR", "TSH"]


def lab_trend(patient: Patient, test: Test) -> Table:
    """The trend of a lab test of a patient over time: each result by day, how it changed since the first, its range."""
    low, high = _range(test)
    rows = [row for row in _rows("labs/results.csv") if (row["patient"], row["test"]) == (patient, test)]
    if not rows:
        known = sorted({row["test"] for row in _rows("labs/results.csv") if row["patient"] == patient})
        raise ToolFailed(f"{patient} has no results for {test}; there are {', '.join(known)}")
    first = Decimal(rows[0]["result"])
    found = [
        (row["day"], float(row["result"]), _percent(Decimal(row["result"]), first), _place(row["result"], low, high))
        for row in rows
    ]
    columns = ("day", f"{test} in {rows[0]['unit']}", "change in percent", f"range {low} to {high}")
    return Table(columns, tuple(found), "labs/results.csv, labs/ranges.csv")


def abnormal_results(patient: Patient) -> Table:
    """The abnormal lab results of a patient and their trends: tests whose last result is outside the range."""
    tests, rows = _abnormal(patient)
    if not rows:
        return Table(("abnormal results", "tests in range"), (("none", tests),), "labs/results.csv, labs/ranges.csv")
    columns = ("test", "last result", "unit", "range", "place", "moves", "day")
    return Table(columns, tuple(rows), "labs/results.csv, labs/ranges.csv")


def patients_out_of_range() -> Table:
    """All three patients: which patients have results outside the range, and of which test."""
    rows = [(patient, *row) for patient in ("Moreau", "Vos", "Hart") for row in _abnormal(patient)[1]]
    columns = ("patient", "test", "last result", "unit", "range", "place", "moves", "day")
    return Table(columns, tuple(rows), "labs/results.csv, labs/ranges.csv")


def gather_records(patient: Patient) -> Table:
    """Gather the records of a patient, whole: problems, allergies and every visit, the latest last."""
    text = (HERE / "records" / f"{patient.lower()}.md").read_text(encoding="utf-8")
    title, *parts = text.removeprefix("# ").split("\n## ")
    rows = [("patient", title.strip()), *((head.strip(), body.strip()) for head, _, body in map(_halves, parts))]
    return Table(("section", "what it says"), tuple(rows), f"records/{patient.lower()}.md")


def _halves(part: str) -> tuple[str, str, str]:
    return part.partition("\n")


def _abnormal(patient: str) -> tuple[int, list[tuple[object, ...]]]:
    """How many tests there are, and those whose last result is outside its range."""
    results: dict[str, list[dict[str, str]]] = {}
    for row in _rows("labs/results.csv"):
        if row["patient"] == patient:
            results.setdefault(row["test"], []).append(row)
    rows: list[tuple[object, ...]] = []
    for test, found in results.items():
        low, high = _range(test)
        last = found[-1]
        before = found[-2] if len(found) > 1 else found[-1]
        place = _place(last["result"], low, high)
        if place != "in range":
            moves = _moves(Decimal(before["result"]), Decimal(last["result"]))
            rows.append((test, float(last["result"]), last["unit"], f"{low} to {high}", place, moves, last["day"]))
    return len(results), rows


def medication_interactions(patient: Patient) -> Table:
    """Check a patient's medication for interactions: pairs of medicines that the patient takes, what may happen.

    It may be bleeding, a medicine that builds up, or one that raises potassium or the INR.
    """
    taken = {row["medicine"]: row for row in _rows("medicines/prescriptions.csv") if row["patient"] == patient}
    rows: list[tuple[object, ...]] = []
    for row in _rows("medicines/interactions.csv"):
        if row["first"] in taken and row["second"] in taken:
            since = max(taken[row["first"]]["since"], taken[row["second"]]["since"])
            rows.append((f"{row['first']} with {row['second']}", row["severity"], row["what"], since))
    if not rows:
        rows = [("none", "", f"no interaction of the {len(taken)} medicines is listed", "")]
    return Table(
        ("medicines", "severity", "what may happen", "together since"), tuple(rows), "medicines/interactions.csv"
    )


def medicines(patient: Patient, medicine: Medicine | None = None) -> Table:
    """The medicines a patient takes (prescriptions), or one of them: the dose, and since when."""
    taken = [row for row in _rows("medicines/prescriptions.csv") if row["patient"] == patient]
    if medicine and medicine not in {row["medicine"] for row in taken}:
        raise ToolFailed(f"{patient} does not take {medicine}; there are {', '.join(row['medicine'] for row in taken)}")
    taken = [row for row in taken if medicine in (None, row["medicine"])]
    rows = tuple((row["medicine"], row["dose"], row["since"]) for row in taken)
    return Table(("medicine", "dose", "since"), rows, "medicines/prescriptions.csv")


def days_on_medicine(patient: Patient, medicine: Medicine, day: date) -> Table:
    """For how many days a patient has taken a medicine, how long they have been on it, on a given day."""
    taken = {row["medicine"]: row["since"] for row in _rows("medicines/prescriptions.csv") if row["patient"] == patient}
    if medicine not in taken:
        raise ToolFailed(f"{patient} does not take {medicine!r}; there are {', '.join(taken)}")
    since = date.fromisoformat(taken[medicine])
    return Table(
        ("medicine", "since", "days"), ((medicine, str(since), (day - since).days),), "medicines/prescriptions.csv"
    )


def _range(test: str) -> tuple[Decimal, Decimal]:
    return next((Decimal(row["low"]), Decimal(row["high"])) for row in _rows("labs/ranges.csv") if row["test"] == test)


def _place(result: str, low: Decimal, high: Decimal) -> str:
    value = Decimal(result)
    return "below" if value < low else "above" if value > high else "in range"


def _moves(before: Decimal, after: Decimal) -> str:
    return "rising" if after > before else "falling" if after < before else "steady"


def _percent(value: Decimal, first: Decimal) -> float:
    return float((100 * (value / first - 1)).quantize(Decimal("0.1"), ROUND_HALF_UP))


def _rows(name: str) -> Iterator[dict[str, str]]:
    with (HERE / name).open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)
