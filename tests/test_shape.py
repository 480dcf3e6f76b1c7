"""What the tree promises: names, no traces of a machine, few dependencies, a cheap import."""

import ast
import re
import resource
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.support.syntax import functions

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src" / "chargehand"

NAMELESS = re.compile(r"(?:^|_)(?:utils?|helpers?|managers?|v[2-9])$")
MAX_FUNCTION_LINES = 60
UNFORMATTED = re.compile(r"#\s*fmt:\s*(?:skip|off)")
MACHINE_PATH = re.compile(r"(?<![\w.~)}\]-])/(?:work|root|home|Users)/\w")
REGISTRY_HOST = re.compile(r"\b(?:pypi|npmjs|pythonhosted|(?:deb|ftp)\.debian)\.(?:org|com)\b")


def tracked_files() -> list[Path]:
    """Every file git holds, or would hold after `git add --all`; outside a checkout, every file of the source."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listing.returncode != 0:
        rooms = ("src", "tests", "bench", "docs", "examples", "teams", "requirements")
        return [path for room in rooms for path in (ROOT / room).rglob("*") if path.is_file() and path.suffix != ".pyc"]
    return [path for name in listing.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def places(pattern: re.Pattern[str]) -> list[str]:
    """Where tracked text matches, as `file:line`."""
    found: list[str] = []
    for path in tracked_files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        relative = path.relative_to(ROOT)
        found += [f"{relative}:{n}" for n, line in enumerate(text.splitlines(), 1) if pattern.search(line)]
    return found


def fresh_python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)


def seconds(code: str) -> float:
    """Of CPU: a machine that others use as well takes longer by the clock."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    fresh_python(code)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_every_module_is_named_for_what_it_holds() -> None:
    modules = [path for room in (SRC, ROOT / "tests") for path in room.rglob("*.py")]
    named = [path.relative_to(ROOT).with_suffix("") for path in modules]
    assert [str(path) for path in named if any(NAMELESS.search(part) for part in path.parts)] == []


@pytest.mark.parametrize("name", ["utils", "plan_utils", "helper", "run_manager", "loop_v2"])
def test_a_nameless_name_is_noticed(name: str) -> None:
    assert NAMELESS.search(name)


@pytest.mark.slow("parses the whole source")
def test_no_function_is_longer_than_sixty_lines() -> None:
    """Complexity is ruff's business; it cannot count lines."""
    long: list[str] = []
    for path in SRC.rglob("*.py"):
        for function in functions(ast.parse(path.read_text(encoding="utf-8"))):
            lines = (function.end_lineno or function.lineno) - function.lineno + 1
            if lines > MAX_FUNCTION_LINES:
                long.append(f"{path.relative_to(ROOT)}:{function.lineno} {function.name} has {lines} lines")
    assert long == []


def test_the_formatter_decides_about_every_line() -> None:
    assert [place for place in places(UNFORMATTED) if place.partition(":")[0].endswith(".py")] == []


def test_no_developers_machine_shows_in_the_files() -> None:
    assert places(MACHINE_PATH) == []


@pytest.mark.parametrize("folder", ["work", "root", "home", "Users"])
def test_a_machine_path_is_noticed_and_a_route_is_not(folder: str) -> None:
    assert MACHINE_PATH.search(f"see /{folder}/me/notes.md")
    assert not MACHINE_PATH.search(f"GET /v1/{folder}/me")


def test_no_registry_is_named_in_the_files() -> None:
    assert places(REGISTRY_HOST) == []


@pytest.mark.parametrize("host", [("pypi", "org"), ("files.pythonhosted", "org"), ("registry.npmjs", "org")])
def test_a_registry_host_is_noticed(host: tuple[str, str]) -> None:
    assert REGISTRY_HOST.search(f"https://{'.'.join(host)}/simple")


def test_few_packages_are_needed_to_run() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert len(project["dependencies"]) <= 10


def test_importing_costs_little() -> None:
    pairs = [(seconds("import chargehand"), seconds("pass")) for _ in range(5)]
    cost = min(ours for ours, _ in pairs) - min(bare for _, bare in pairs)
    assert cost < 0.150


def test_importing_brings_in_nothing_heavy() -> None:
    heavy = {"aiohttp", "anyio", "httpx", "openai", "pydantic", "sqlite3", "starlette", "uvicorn", "yaml"}
    printed = fresh_python("import sys, chargehand; print(*(name.partition('.')[0] for name in sys.modules))")
    assert heavy & set(printed.stdout.split()) == set()
