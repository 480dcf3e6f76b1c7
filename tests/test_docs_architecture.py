"""The pages about the code name what is there: modules, packages, and the order in which they import each other."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "chargehand"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
_MODULE = re.compile(r"`(\w[\w/]*/\w+\.py)\b")
_UNNAMED = {"__init__.py", "__main__.py", "__pycache__", "py.typed"}


def import_order() -> list[list[str]]:
    """The packages of the import contract, the highest first."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    (layers,) = [contract["layers"] for contract in contracts if contract["name"] == "Packages are layered"]
    return [sorted(layer.split(" | ")) for layer in layers if layer != "__main__"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_module_that_a_page_names_is_there(page: Path) -> None:
    named = [name for name in _MODULE.findall(page.read_text(encoding="utf-8")) if "NAME" not in name]
    bases = (PACKAGE, ROOT, ROOT / "examples")
    assert [name for name in named if not any((base / name).exists() for base in bases)] == []


@pytest.mark.parametrize("name", ["docs/architecture.md", "CONTRIBUTING.md"])
def test_the_import_order_on_a_page_is_that_of_the_contract(name: str) -> None:
    page = (ROOT / name).read_text(encoding="utf-8")
    (order,) = re.findall(r"^    (cli > .*\n(?:     *> .*\n)*)", page, re.MULTILINE)
    assert [sorted(layer.strip().split(", ")) for layer in order.split(">")] == import_order()


def test_the_tree_names_every_package() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    tree = re.findall(r"^      (\w+(?:/|\.py)) ", page, re.MULTILINE)
    there = {path.name + "/" if path.is_dir() else path.name for path in PACKAGE.iterdir() if path.name not in _UNNAMED}
    assert set(tree) == there
