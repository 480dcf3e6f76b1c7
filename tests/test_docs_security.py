"""The page on security names places and tests that are there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
ATTACKS = PAGE.partition("## What is done against what")[2].partition("\nTwo of them")[0]


def test_every_attack_names_a_place_and_a_test_that_are_there() -> None:
    rows = [line.split(" | ") for line in ATTACKS.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 15
    for *_, where, tried in rows:
        for place in re.findall(r"`([^`]+)`", where):
            assert list((ROOT / "src" / "chargehand").glob(place)) or list(ROOT.glob(place)), place
        found = re.search(r"`(tests/\S+\.py)::(test_\w+)`", tried)
        assert found is not None, tried
        assert f"def {found[2]}(" in (ROOT / found[1]).read_text(encoding="utf-8"), tried
