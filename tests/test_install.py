"""What is handed out installs and works where there is nothing else: a wheel in a clean place, and a whole sdist."""

import re
import shutil
import subprocess
import tarfile
import tomllib
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
from msgspec import Struct
from packaging.requirements import Requirement

from tests.wheel import ROOT, Environment, build, run

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
ONLY_HERE = {".ci/run", ".editorconfig"}  # for who works in the repository

pytestmark = pytest.mark.timeout(240)


class Made(Struct, frozen=True):
    """A wheel and an sdist, and what is in them by path."""

    wheel: Path
    sdist: Path
    inside: frozenset[str]
    source: frozenset[str]


def names_in(wheel: Path) -> frozenset[str]:
    with zipfile.ZipFile(wheel) as packed:
        return frozenset(packed.namelist())


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    dist = tmp_path_factory.mktemp("dist")
    sdist = build("sdist", ROOT, dist)
    wheel = build("wheel", ROOT, dist)
    with tarfile.open(sdist) as packed:
        source = frozenset(name.partition("/")[2] for name in packed.getnames())
    return Made(wheel, sdist, names_in(wheel), source)


def test_the_wheel_holds_the_package_with_all_its_files_and_nothing_else(made: Made) -> None:
    package = ROOT / "src" / "chargehand"
    files = {path for path in package.rglob("*") if path.is_file() and path.suffix != ".pyc"}
    assert {f"chargehand/{path.relative_to(package).as_posix()}" for path in files} <= made.inside
    assert {name.partition("/")[0] for name in made.inside} == {
        "chargehand",
        f"chargehand-{PROJECT['version']}.dist-info",
    }
    for needed in ("py.typed", "sqlite/schema/001.sql", "agents/prompts/plan.md", "config/templates/shop/team.yaml"):
        assert f"chargehand/{needed}" in made.inside
    licences = [name for name in made.inside if name.endswith(".dist-info/licenses/LICENSE")]
    assert len(licences) == 1
    with zipfile.ZipFile(made.wheel) as packed:
        assert packed.read(licences[0]) == (ROOT / "LICENSE").read_bytes()


def test_nothing_in_the_wheel_starts_by_itself(made: Made) -> None:
    assert [name for name in made.inside if name.endswith((".pth", ".so", ".pyc", "sitecustomize.py"))] == []


def test_the_sdist_holds_all_that_the_tests_need(made: Made) -> None:
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listing.returncode == 0 and listing.stdout:
        tracked = {name for name in listing.stdout.split("\0") if name and (ROOT / name).is_file()}
        assert tracked - made.source == ONLY_HERE & tracked
    rooms = {name.partition("/")[0] for name in made.source}
    assert rooms >= {"src", "tests", "bench", "docs", "examples", "teams", "requirements", "Makefile", "LICENSE"}
    assert {"requirements/run.lock", "requirements/dev.lock", "README.md", "pyproject.toml"} <= made.source
    assert [name for name in made.source if name.endswith((".pyc", ".db", ".env"))] == []


def test_a_wheel_made_from_the_sdist_is_the_same(made: Made, tmp_path: Path) -> None:
    with tarfile.open(made.sdist) as packed:
        packed.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.iterdir()
    again = build("wheel", unpacked, tmp_path)
    assert names_in(again) == made.inside
    with zipfile.ZipFile(again) as second, zipfile.ZipFile(made.wheel) as first:
        differ = [name for name in made.inside if first.read(name) != second.read(name)]
    assert differ == []


def test_every_place_says_the_same_version(made: Made) -> None:
    from chargehand import __version__

    assert __version__ == PROJECT["version"]
    assert made.wheel.name.startswith(f"chargehand-{__version__}-")
    assert made.sdist.name == f"chargehand-{__version__}.tar.gz"
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    released = re.findall(r"^## v?(\d\S*)", changelog, re.MULTILINE)
    assert released[:1] in ([], [__version__])


def quickstart() -> list[list[str]]:
    """The first commands on the first page."""
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    block = page.partition("```console\n")[2].partition("```")[0]
    return [line.removeprefix("$ ").split() for line in block.splitlines() if line.startswith("$ ")]


_LOCKED = re.compile(r"^(?P<what>[\w.-]+==[^\\\n]+)\\\n(?P<hashes>(?:[ \t]+--hash=[^\n]*\n)+)", re.MULTILINE)


def locked(file: str) -> dict[str, tuple[Requirement, frozenset[str]]]:
    """What a lock names, with the hashes it may have."""
    text = (ROOT / "requirements" / file).read_text(encoding="utf-8")
    found = [(Requirement(one["what"].strip()), one["hashes"]) for one in _LOCKED.finditer(text)]
    return {one.name: (one, frozenset(re.findall(r"--hash=(\S+)", hashes))) for one, hashes in found}


def test_what_is_locked_for_users_is_what_the_tests_run_with() -> None:
    for_users = locked("run.lock")
    for_tests = locked("dev.lock")
    assert len(for_users) > 20
    for name, (wanted, hashes) in for_users.items():
        assert (for_tests[name][0].specifier, for_tests[name][1]) == (wanted.specifier, hashes)


def lend(packages: Path) -> None:
    """Put what run.lock names, and nothing else, into an empty place: from here, where it came from the same hashes."""
    for name, (wanted, _) in locked("run.lock").items():
        if wanted.marker is not None and not wanted.marker.evaluate():
            continue
        found = distribution(name)
        assert wanted.specifier.contains(found.version), name
        for file in found.files or ():
            if ".." not in file.parts:  # else it is a command, for another python
                (packages / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(str(found.locate_file(file)), packages / file)


@pytest.mark.slow("installs a wheel and runs its commands in fresh processes")
def test_in_a_clean_place_the_first_page_works(made: Made, tmp_path: Path) -> None:
    place = tmp_path / "place"
    empty = tmp_path / "empty"
    empty.mkdir()
    environment = Environment(place)
    lend(environment.packages)
    environment.install(made.wheel)
    environment.pip("check")  # whether what we declare is covered by what is locked
    commands = quickstart()
    assert len(commands) > 3
    assert {words[0] for words in commands} == {"chargehand"}
    for words in commands:
        run([place / "bin" / "chargehand", *words[1:]], empty)
    where = Path(run([environment.python, "-c", "import chargehand; print(chargehand.__file__)"], empty).strip())
    assert where.is_relative_to(place)
    assert where.with_name("py.typed").is_file()
