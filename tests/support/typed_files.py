"""`python -m tests.support.typed_files [tests/engine ...]`: print what the type checker is to look at.

Without arguments: `src`, and the files of tests and benchmarks that differ from the branch this work began on, or that
the last commits changed where there is no other branch to compare with. With arguments: these tests, and the packages
they belong to. `make check` looks at everything.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
_BEFORE = 30
"""How many commits count as changed where nothing else says what is new."""


def changed_files(root: Path = ROOT) -> list[str]:
    """Return the Python files outside `src` that were added or changed."""
    wanted = ("tests/*.py", "bench/*.py", "examples/*.py", ":(exclude)examples/coming_from")
    compared = _git(root, "diff", "--name-only", "--diff-filter=d", _base(root), "--", *wanted)
    untracked = _git(root, "ls-files", "--others", "--exclude-standard", "--", *wanted)
    return sorted({*compared, *untracked})


def packages_of(tests: Sequence[str]) -> list[str]:
    """Return these tests with the packages of `src` that they belong to; options and names of cases are left out."""
    files: dict[str, None] = {}
    for argument in tests:
        path = Path(argument.partition("::")[0])
        if argument.startswith("-") or not (ROOT / path).exists():
            continue
        files[str(path)] = None
        package = Path("src/chargehand", *path.parts[1:2])
        if len(path.parts) > 1 and (ROOT / package).is_dir():
            files[str(package)] = None
    return list(files)


def _base(root: Path) -> str:
    """Return the commit that changes are counted from: the newest shared with the branch of origin, or an older one."""
    for candidate in (
        ("merge-base", "HEAD", "origin/HEAD"),
        ("rev-list", "--max-count=1", f"--skip={_BEFORE}", "HEAD"),
    ):
        base = _git(root, *candidate)
        if base and base != _git(root, "rev-parse", "HEAD"):
            return base[0]
    return (_git(root, "rev-list", "--max-parents=0", "HEAD") or ["HEAD"])[0]


def _git(root: Path, *command: str) -> list[str]:
    done = subprocess.run(["git", *command], cwd=root, capture_output=True, text=True, check=False)
    return done.stdout.split() if done.returncode == 0 else []


if __name__ == "__main__":
    print(*(packages_of(sys.argv[1:]) or ["src", *changed_files()]))
