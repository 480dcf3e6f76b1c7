"""The team that reviews contracts: clauses are quoted, rules checked, risks added up; what nobody wrote is a gap."""

from pathlib import Path

import pytest

from tests.teams.bundled import TEAMS, accuracy, lacking, model_of, ran
from tests.teams.executors import artifacts, asked, examples, module, rows, workers

TEAM = "contract_review"


def test_its_folder_is_complete() -> None:
    assert lacking(TEAM) == []


@pytest.mark.slow("all golden, held out and routing cases of the team are carried out")
def test_its_golden_cases_hold_and_its_routes_lead_where_they_should(tmp_path: Path) -> None:
    found = accuracy(tmp_path, TEAM)
    assert found["run"] == 1
    assert found["routing"] >= 0.9
    assert found["held_out"] >= 0.6


def test_the_first_example_ranks_the_risks_draws_them_and_quotes_the_playbook(tmp_path: Path) -> None:
    found = ran(tmp_path, TEAM, "--example")
    assert found.code == 0
    assert found.workers == {"assessor", "illustrator", "adviser"}
    assert "| Juniper Payroll | 18 |" in found.answer
    assert "Unlimited liability is never accepted" in found.answer


def test_a_clause_that_no_contract_has_is_a_gap(tmp_path: Path) -> None:
    found = ran(tmp_path, TEAM, "--example", "6")
    assert found.code == 3
    assert "Quillmark sends all its parcels" in found.answer
    assert "nothing about escrow" in found.answer


def test_the_risk_score_is_the_sum_of_the_points_of_broken_rules() -> None:
    points = {one["rule"]: int(one["points"]) for one in rows(TEAM, "rules.csv")}
    tools = module(TEAM, "tools")
    found = {rule["rule"] for rule, _ in tools.broken("Juniper Payroll")}
    assert found == {"liability cap", "cap for both", "breach report", "subcontractors"}
    assert sum(points[rule] for rule in found) == 18
    (table,) = artifacts(asked(TEAM, "Assess the risk of all contracts."), "table")
    assert table["rows"] == [
        [one, tools.score(one)] for one in sorted(tools.SUPPLIERS, key=lambda one: -tools.score(one))
    ]


@pytest.mark.parametrize(
    ("supplier", "facts"),
    [
        ("Tarn Hosting", ("14, at least 30 are wanted", "24, at most 12 are accepted", "no confidentiality clause")),
        ("Osprey Logistics", ("we may end it only for cause", "liability has no cap")),
        ("Hollins Design", ("all rules are kept",)),
    ],
)
def test_a_contract_is_held_against_every_rule(supplier: str, facts: tuple[str, ...]) -> None:
    result = asked(TEAM, f"Check the compliance of the contract with {supplier}.")
    assert (result.ending, workers(result)) == ("complete", {"compliance"})
    for fact in facts:
        assert fact in str(result.answer)


def test_figures_of_the_register_are_those_of_the_file() -> None:
    owners: dict[str, int] = {}
    for one in rows(TEAM, "data/contracts.csv"):
        owners[one["owner"]] = owners.get(one["owner"], 0) + int(one["annual_value_eur"])
    result = asked(TEAM, examples(TEAM)[4])
    assert workers(result) == {"registrar", "illustrator"}
    for owner, value in owners.items():
        assert f"{owner} {value:,}" in str(result.answer)
    (chart,) = artifacts(result, "chart")
    assert all(owner in str(chart["svg"]) for owner in owners)


def test_what_is_kept_is_found_again(tmp_path: Path) -> None:
    from chargehand.config.load import load_team

    team = load_team(TEAMS / TEAM, model=model_of(TEAM))
    kept = team.run_sync("What do the contracts say about data breaches? Keep it in the archive tagged breach.")
    assert "Kept in the archive findings, tagged breach" in str(kept.answer)
    found = team.run_sync("What do we already know about data breaches?")
    assert "within 72 hours" in str(found.answer)


def test_no_contract_is_left_out_where_all_have_the_clause() -> None:
    answer = str(asked(TEAM, "Extract the termination clauses.").answer)
    assert all(f"notice period of {days} days" in answer for days in (180, 60, 30, 14, 90))


def test_the_owner_of_the_contract_with_the_highest_annual_value_is_its_owner() -> None:
    best = max(rows(TEAM, "data/contracts.csv"), key=lambda row: int(row["annual_value_eur"]))
    assert best["owner"] in str(asked(TEAM, "Who owns the contract with the highest annual value?").answer)


def test_what_contracts_lack_is_not_looked_for_in_what_they_have() -> None:
    assert asked(TEAM, "Which contracts have no confidentiality clause?").ending == "failed"
