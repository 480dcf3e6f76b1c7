"""The datasets on the page of evals, and those of the bundled team, are real: they are read, tried, and hold."""

import re
from pathlib import Path

from chargehand.config.load import load_team
from chargehand.config.source import TEMPLATES
from chargehand.evals.cases import find_datasets, read_dataset
from chargehand.evals.run import evaluate
from chargehand.team import Team
from tests.evals.samples import written

PAGE = Path(__file__).parents[2] / "docs" / "evals.md"
SHOP = TEMPLATES / "shop" / "team.yaml"


def shop() -> Team:
    return load_team(SHOP)


async def test_the_dataset_on_the_page_says_what_is_so(tmp_path: Path) -> None:
    (body,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    report = await evaluate([written(tmp_path, "golden.yaml", body)], shop)
    assert report.passed
    assert [one.case for part in report.sections for one in part.scores if not one.passed] == []


async def test_the_bundled_team_reaches_its_own_gates() -> None:
    report = await evaluate([read_dataset(file) for file in find_datasets(SHOP)], shop)
    assert report.passed
    assert {part.kind for part in report.sections} == {"routing", "plan", "worker", "run", "verifier"}
