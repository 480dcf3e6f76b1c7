"""`make test` checks the types of `src` and of what changed, or of the packages whose tests are named."""

import subprocess
from pathlib import Path

import pytest

from tests.support.typed_files import changed_files, packages_of


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with one commit, cloned from another one."""
    origin = tmp_path / "origin"
    (origin / "tests").mkdir(parents=True)
    for name in ("kept", "edited", "removed"):
        (origin / "tests" / f"{name}.py").write_text("VALUE = 1\n")
    _git(origin, "init", "--quiet", "--initial-branch=main")
    _commit(origin)
    _git(tmp_path, "clone", "--quiet", str(origin), "checkout")
    return tmp_path / "checkout"


def test_files_that_differ_from_the_branch_of_origin_are_checked(checkout: Path) -> None:
    (checkout / "tests" / "edited.py").write_text("VALUE = 2\n")
    (checkout / "tests" / "removed.py").unlink()
    _commit(checkout)
    (checkout / "tests" / "new.py").write_text("VALUE = 3\n")
    assert changed_files(checkout) == ["tests/edited.py", "tests/new.py"]


def test_files_of_the_last_commits_are_checked_in_a_new_clone(checkout: Path) -> None:
    origin = checkout.parent / "origin"
    (origin / "tests" / "edited.py").write_text("VALUE = 2\n")
    _commit(origin)
    _git(checkout, "pull", "--quiet")
    assert changed_files(checkout) == ["tests/edited.py"]


def test_named_tests_are_checked_with_the_packages_they_belong_to() -> None:
    named = ["-q", "tests/engine/test_fold.py::test_case", "tests/test_docs.py", "--maxfail=1"]
    assert packages_of(["tests/engine", *named[2:]]) == ["tests/engine", "src/chargehand/engine", "tests/test_docs.py"]
    assert packages_of(["-x"]) == []


def _commit(folder: Path) -> None:
    _git(folder, "add", "--all")
    identity = ("-c", "user.name=tests", "-c", "user.email=tests@localhost")
    _git(folder, *identity, "commit", "--quiet", "--message", "change")


def _git(folder: Path, *command: str) -> None:
    subprocess.run(["git", *command], cwd=folder, check=True, capture_output=True)
