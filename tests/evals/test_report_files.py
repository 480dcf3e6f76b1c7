"""Where reports of evaluations are saved."""

from pathlib import Path

from chargehand.config.source import TEMPLATES, Found
from chargehand.evals.report_files import reports_folder


def test_reports_are_saved_beside_the_team_file() -> None:
    assert reports_folder(Found(Path("teams/desk/team.yaml"), "named")) == Path("teams/desk/.chargehand/evals")


def test_nothing_is_saved_into_the_package() -> None:
    bundled = TEMPLATES / "shop" / "team.yaml"
    assert reports_folder(Found(bundled, "bundled")) == Path(".chargehand/evals")
    assert reports_folder(Found(bundled, "named")) == Path(".chargehand/evals")
