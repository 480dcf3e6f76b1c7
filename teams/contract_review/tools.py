"""Reads contracts clause by clause, holds them against the rules of the house and adds up what is at risk.

The rules are data (rules.csv). What a contract is worth and when it ends is not read here: that is in the register.
"""

import csv
import re
from pathlib import Path
from typing import Literal

from chargehand.models.artifacts import Table

HERE = Path(__file__).parent
PERSONAL = ("hosting", "payroll")  # what touches personal data must say how it is protected
Contract = Literal["Tarn Hosting", "Bellwether Paper", "Osprey Logistics", "Hollins Design", "Juniper Payroll"]
SUPPLIERS = ("Tarn Hosting", "Bellwether Paper", "Osprey Logistics", "Hollins Design", "Juniper Payroll")


def check_compliance(contract: Contract) -> Table:
    """Check one contract against the rules of the house: whether it complies, or breaks any rule.

    Args:
        contract: the supplier whose contract is checked

    """
    rows = tuple((rule["rule"], rule["severity"], what) for rule, what in broken(contract))
    return Table(
        ("rule", "severity", "finding"), rows or (("none", "none", "all rules are kept"),), source=_file(contract)
    )


def assess_risk() -> Table:
    """Assess the risk of all contracts: the risk score of each, which adds up the points of the rules it breaks."""
    rows = sorted(((one, score(one)) for one in SUPPLIERS), key=lambda row: -row[1])
    return Table(("contract", "risk score"), tuple(rows), source="contracts/ by rules.csv")


def explain_risk() -> Table:
    """The riskiest contract and why: the risk score of every contract, the riskiest first, and the reasons for it."""
    rows: list[tuple[object, ...]] = []
    for one in sorted(SUPPLIERS, key=lambda name: -score(name)):
        found = sorted(broken(one), key=lambda pair: -int(pair[0]["points"]))
        rows.append((one, score(one), "; ".join(f"{what} ({rule['severity']})" for rule, what in found) or "none"))
    return Table(("contract", "risk score", "reasons, the worst first"), tuple(rows), source="contracts/ by rules.csv")


def score(contract: str) -> int:
    return sum(int(rule["points"]) for rule, _ in broken(contract))


def broken(contract: str) -> list[tuple[dict[str, str], str]]:
    """Each rule the contract breaks, and how."""
    clauses = _clauses(contract)
    with (HERE / "rules.csv").open(encoding="utf-8", newline="") as file:
        rules = list(csv.DictReader(file))
    found = [(rule, _wrong(rule, clauses)) for rule in rules if _applies(rule, contract)]
    return [(rule, what) for rule, what in found if what]


def _applies(rule: dict[str, str], contract: str) -> bool:
    return rule["clause"] != "Data protection" or any(word in contract.lower() for word in PERSONAL)


def _wrong(rule: dict[str, str], clauses: dict[str, str]) -> str:
    text = clauses.get(rule["clause"], "")
    match = re.search(rule["pattern"], text) if text else None
    if match is None:
        return rule["missing"]
    if not match.groups() or match[1] is None:
        return ""
    number = int(match[1])
    if rule["least"] and number < int(rule["least"]):
        return f"{number}, at least {rule['least']} are wanted"
    if rule["most"] and number > int(rule["most"]):
        return f"{number}, at most {rule['most']} are accepted"
    return ""


def _clauses(contract: str) -> dict[str, str]:
    text = (HERE / _file(contract)).read_text(encoding="utf-8")
    _, *parts = re.split(r"^## ", text, flags=re.MULTILINE)
    pairs = (part.partition("\n") for part in parts)
    return {title.strip(): " ".join(body.split()) for title, _, body in pairs}


def _file(contract: str) -> str:
    return f"contracts/{contract.lower().replace(' ', '-')}.md"
