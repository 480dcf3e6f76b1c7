"""The contracts of import-linter bite: each breaks when its rule is broken, and holds when it is not."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The package in a copy of the repository, under the same contracts."""
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path / "src" / "chargehand"


def broken_contracts(package: Path) -> list[str]:
    """The names of the contracts that lint-imports says are broken."""
    src = package.parent
    done = subprocess.run(
        [
            Path(sys.executable).with_name("lint-imports"),
            "--no-cache",
            "--no-logo",
            "--config",
            src.parent / "pyproject.toml",
        ],
        cwd=src,
        env=os.environ | {"PYTHONPATH": str(src), "COLUMNS": "200", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    words = done.stdout.splitlines()
    broken = [line.removesuffix(" BROKEN") for line in words if line.endswith(" BROKEN")]
    kept = [line for line in words if line.endswith(" KEPT")]
    assert broken or kept, done.stdout + done.stderr
    assert (done.returncode == 0) == (not broken), done.stdout + done.stderr
    return broken


def add_line(module: Path, line: str) -> None:
    text = module.read_text(encoding="utf-8") if module.exists() else '"""Added by a test."""\n'
    module.write_text(f"{text}\n{line}\n", encoding="utf-8")


def test_the_package_as_it_is_keeps_every_contract(copy: Path) -> None:
    assert broken_contracts(copy) == []


def test_a_package_may_not_import_a_package_above(copy: Path) -> None:
    add_line(copy / "journal" / "__init__.py", "import chargehand.cli")
    assert broken_contracts(copy) == ["Packages are layered"]


@pytest.mark.parametrize("above", ["agents", "tools", "models", "team"])
def test_the_runtime_knows_no_agents(copy: Path, above: str) -> None:
    add_line(copy / "runtime" / "runner.py", f"import chargehand.{above}")
    assert broken_contracts(copy) == ["Packages are layered"]


def test_a_new_package_must_be_placed_on_purpose(copy: Path) -> None:
    (copy / "attic").mkdir()
    add_line(copy / "attic" / "__init__.py", "")
    assert broken_contracts(copy) == ["Packages are layered"]


def test_the_engine_may_not_import_upwards_within_itself(copy: Path) -> None:
    add_line(copy / "engine" / "state.py", "import chargehand.engine.fold")
    assert broken_contracts(copy) == ["The engine is layered"]


def test_a_new_module_of_the_engine_must_be_placed_on_purpose(copy: Path) -> None:
    add_line(copy / "engine" / "attic.py", "")
    assert broken_contracts(copy) == ["The engine is layered"]


@pytest.mark.parametrize("module", ["engine/state.py", "engine/roster.py"])
@pytest.mark.parametrize("impurity", ["random", "time", "os", "asyncio", "logging"])
def test_the_engine_may_not_touch_the_world(copy: Path, module: str, impurity: str) -> None:
    add_line(copy / module, f"import {impurity}")
    assert broken_contracts(copy) == ["The engine is pure"]
