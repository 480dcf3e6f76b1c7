"""Compares products feature by feature, from the bundled table. What a feature is worth is not its business."""

import csv
from pathlib import Path
from typing import Annotated, Literal

from chargehand.models.artifacts import Table
from chargehand.tools.tool import ToolFailed

FEATURES = Path(__file__).parent / "features" / "features.csv"
Feature = Literal[
    "Gantt view",
    "time tracking",
    "offline mode",
    "single sign-on",
    "automation rules",
    "guest access",
    "public API",
    "audit log",
]
Product = Literal["Tidewell", "Kanbrio", "Plotline", "Orchardly", "Stackmoor"]


def feature_comparison(first: Product, second: Product) -> Table:
    """Compare the features of two products side by side: which of them has a feature, and who leads."""
    if first == second:
        raise ToolFailed(f"{first} was named twice; name two products")
    held = _supported()
    rows: list[tuple[object, ...]] = []
    for feature in held[first]:
        ours = held[first][feature]
        theirs = held[second][feature]
        leads = "both" if ours and theirs else first if ours else second if theirs else "neither"
        rows.append((feature, _word(has=ours), _word(has=theirs), leads))
    return Table(("feature", first, second, "has it"), tuple(rows), "features/features.csv")


def feature_matrix() -> Table:
    """Analyse the features of all products side by side: who of us and our competitors has which."""
    held = _supported()
    rows = tuple((feature, *(_word(has=held[one][feature]) for one in held)) for feature in held["Tidewell"])
    return Table(("feature", *held), rows, "features/features.csv")


def who_has(feature: Feature) -> Table:
    """Which products or rivals have a feature, and which do not."""
    held = _supported()
    rows = [(name, _word(has=has[feature])) for name, has in held.items()]
    rows.sort(key=lambda row: row[1] == "no")
    return Table(("product", f"has {feature}"), tuple(rows), "features/features.csv")


def feature_gaps(product: Annotated[Product, "Whose gaps"]) -> Table:
    """The feature gaps of a product: what it lacks, how many rivals have it, and which."""
    held = _supported()
    rows: list[tuple[object, ...]] = []
    for feature, has in held[product].items():
        rivals = [name for name in held if name != product and held[name][feature]]
        if not has and rivals:
            rows.append((feature, len(rivals), ", ".join(rivals)))
    rows.sort(key=lambda row: (-int(str(row[1])), str(row[0])))
    return Table(("missing feature", "rivals", "which"), tuple(rows), "features/features.csv")


def _supported() -> dict[str, dict[str, bool]]:
    """By product: its features, and whether it has them."""
    found: dict[str, dict[str, bool]] = {}
    with FEATURES.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            found.setdefault(row["product"], {})[row["feature"]] = row["supported"] == "yes"
    return found


def _word(*, has: bool) -> str:
    return "yes" if has else "no"
