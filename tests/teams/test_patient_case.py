"""The team that summarises a case: abnormal results, trends, interactions, records, and no diagnosis."""

from pathlib import Path

import pytest

from tests.teams.bundled import accuracy, lacking, ran
from tests.teams.executors import asked

TEAM = "patient_case"


def test_the_folder_has_all_that_a_team_brings() -> None:
    assert lacking(TEAM) == []


def test_a_summary_names_what_is_abnormal_what_interacts_and_what_was_said(tmp_path: Path) -> None:
    found = ran(tmp_path, TEAM, "--example")
    assert (found.code, found.workers) == (0, {"laboratory", "illustrator", "pharmacist", "records", "writer"})
    found.holds("| HbA1c | 8.4 | percent | 4.0 to 7.0 | above | rising | 2026-06-10 |", "Line chart, 4 values")
    found.holds("| 2026-06-10 | 134.0 | 36.7 | above |", "lisinopril with spironolactone", "painkiller for the knee")
    assert "accepted by short" in found.notes
    assert "diagnos" not in found.answer


@pytest.mark.parametrize(
    ("example", "workers", "facts"),
    [
        ("2", {"pharmacist", "records"}, ["| naproxen with warfarin | high | bleeding |", "called the same day"]),
        ("3", {"laboratory"}, ["| 2026-06-09 | 2.3 | -66.7 | in range |", "range 0.4 to 4.0"]),
        ("4", {"records"}, ["Hart is allergic to latex"]),
        ("5", {"pharmacist"}, ["| spironolactone | 2026-01-20 | 141 |"]),
        ("6", {"registrar", "illustrator"}, ["Moreau 11, Vos 9, Hart 5"]),
    ],
)
def test_each_question_goes_to_whoever_can_work_it_out(
    tmp_path: Path, example: str, workers: set[str], facts: list[str]
) -> None:
    found = ran(tmp_path, TEAM, "--example", example)
    assert (found.code, found.workers) == (0, workers)
    found.holds(*facts)


def test_what_the_records_do_not_say_is_named_as_a_gap(tmp_path: Path) -> None:
    found = ran(tmp_path, TEAM, "--example", "7")
    assert (found.code, found.told["ending"]) == (3, "partial")
    assert "blood group" in found.gaps
    found.holds("dark stools for two weeks", "Not answered")


def test_a_test_nobody_took_is_refused_with_those_there_are(tmp_path: Path) -> None:
    found = ran(tmp_path, TEAM, "Show the trend of ferritin for Hart.")
    assert found.code == 1
    assert "Hart has no results for ferritin; there are TSH, haemoglobin" in found.gaps


@pytest.mark.slow("all golden, held out and routing cases of the team are carried out")
def test_its_own_cases_hold(tmp_path: Path) -> None:
    found = accuracy(tmp_path, TEAM)
    assert found["run"] == 1.0
    assert found["routing"] >= 0.85
    assert found["held_out"] >= 0.7


def test_a_patient_without_abnormal_results_has_none_and_that_is_an_answer() -> None:
    result = asked(TEAM, "List the abnormal lab results of Hart.")
    assert result.ending == "complete"
    assert "| none | 2 |" in str(result.answer)


def test_a_brief_gathers_the_whole_record_of_the_one_it_names() -> None:
    request = "Gather the records of Moreau, analyse the trends in the lab results and produce a clinical summary."
    answer = str(asked(TEAM, request).answer)
    assert all(fact in answer for fact in ("tired legs", "swollen ankles", "penicillin", "HbA1c", "134"))
    assert "Vos" not in answer
