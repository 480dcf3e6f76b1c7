"""The page as it is in the package was built from the sources beside it."""

import re
from pathlib import Path

from tests.page.web_tools import ROOT, WEB, build_page, check_types

BUILT = ROOT / "src" / "chargehand" / "server" / "ui"
MOST_LINES = 250


def files_below(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_package_holds_the_page_that_the_sources_make(tmp_path: Path) -> None:
    build_page(tmp_path / "ui")
    built = files_below(tmp_path / "ui")
    kept = files_below(BUILT)
    assert sorted(built) == sorted(kept), "run `make web`"
    assert [name for name in built if built[name] != kept[name]] == [], "run `make web`"


def test_the_sources_have_the_types_they_say() -> None:
    check_types()


def test_no_source_is_long_and_none_says_any() -> None:
    sources = [path for path in (WEB / "src").rglob("*") if path.suffix in (".ts", ".tsx", ".css")]
    assert len(sources) > 20
    for path in sources:
        text = path.read_text()
        assert len(text.splitlines()) <= MOST_LINES, path
        assert path.name == "events.ts" or not re.search(r"(?::|<|as) any\b(?! )", text), path


def test_the_lock_names_no_host() -> None:
    assert '"resolved"' not in (WEB / "package-lock.json").read_text()
