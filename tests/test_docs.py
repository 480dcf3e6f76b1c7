"""The pages cannot drift: their code runs, their commands end as they say, their tables hold what the code holds."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec import structs

from chargehand.cli.main import VERBS
from chargehand.cli.teams import ScriptedRun
from chargehand.engine.policy import Breaking, Limits, Policy, Retry
from tests.cli.commands import chargehand, python

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]
TOLD = {str(page.relative_to(ROOT)): page.read_text(encoding="utf-8") for page in PAGES}

_BLOCK = re.compile(r"(?:<!-- runs: (\d+)(, exact)? -->\n)?```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
BLOCKS = [(name, *found.groups()) for name, text in TOLD.items() for found in _BLOCK.finditer(text)]
PYTHON = [(name, body) for name, _, _, kind, body in BLOCKS if kind == "python"]
CONSOLE = [(name, code, exact, body) for name, code, exact, kind, body in BLOCKS if kind == "console"]


@pytest.mark.parametrize(("page", "code"), PYTHON, ids=[page for page, _ in PYTHON])
def test_the_python_on_a_page_runs(tmp_path: Path, page: str, code: str) -> None:
    done = python(tmp_path, code)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("page", "code", "exact", "body"), CONSOLE, ids=[page for page, *_ in CONSOLE])
def test_the_commands_on_a_page_end_as_it_says(
    tmp_path: Path, page: str, code: str | None, exact: str | None, body: str
) -> None:
    assert code is not None, f"{page}: say how a console block ends, with <!-- runs: 0 --> before it"
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    if not exact:
        hasten_scripts(tmp_path / "examples")
    commands = [shlex.split(line.removeprefix("$ chargehand ")) for line in body.splitlines() if line.startswith("$ ")]
    codes: list[int] = []
    shown = ""
    for words in commands:
        done = chargehand(tmp_path, *words)
        codes.append(done.returncode)
        shown += done.stdout
    assert codes == [*([0] * (len(commands) - 1)), int(code)]
    if exact:
        assert shown.splitlines() == [line for line in body.splitlines() if not line.startswith("$ ")]


def hasten_scripts(folder: Path) -> None:
    """Let the scripted runs of a folder take a tenth of the time; their deadlines stay."""
    for script in folder.glob("*.json"):
        text = script.read_text(encoding="utf-8")
        script.write_text(re.sub(r'("(?:seconds|base)": 0\.)(?=\d)', r"\g<1>0", text), encoding="utf-8")


def test_there_is_something_to_run() -> None:
    assert {page for page, _ in PYTHON} >= {"README.md", "docs/library.md", "docs/journal.md"}
    assert {page for page, *_ in CONSOLE} >= {"README.md", "docs/cli.md"}


def test_a_mistake_is_logged_as_the_page_about_logging_says(tmp_path: Path) -> None:
    (code,) = [body for page, body in PYTHON if page == "docs/library.md" and "basicConfig" in body]
    logged = "a mistake in code: AttributeError: 'dict' object has no attribute 'gett'"
    assert logged in python(tmp_path, code).stderr
    assert logged in TOLD["docs/library.md"]
    assert python(tmp_path, code.replace("logging.basicConfig()", "")).stderr == ""


def test_the_library_example_runs(tmp_path: Path) -> None:
    words = [sys.executable, "-W", "error", ROOT / "examples" / "library.py"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=30)
    assert done.stdout == "complete {'near': 35, 'far': 47, 'both': 82}\n", done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("page", TOLD)
def test_every_link_leads_to_a_file(page: str) -> None:
    linked = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", TOLD[page])
    assert [link for link in linked if "://" not in link and not ((ROOT / page).parent / link).exists()] == []


@pytest.mark.parametrize("page", TOLD)
def test_every_link_into_a_page_leads_to_a_heading(page: str) -> None:
    linked = re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", _prose(TOLD[page]))
    into = [((ROOT / page).parent / link if link else ROOT / page, part) for link, part in linked if "://" not in link]
    assert [(path.name, part) for path, part in into if path.suffix == ".md" and part not in _parts(path)] == []


def _parts(path: Path) -> set[str]:
    """Where a link may lead inside a page: its headings, as they are written in addresses, and marks."""
    text = _prose(path.read_text(encoding="utf-8"))
    headings = re.findall(r"^#{1,6} (.+)$", text, re.MULTILINE)
    named = {re.sub(r"[^\w\- ]", "", one.strip().lower()).replace(" ", "-") for one in headings}
    return named | set(re.findall(r'<a id="([^"]+)"', text))


def _prose(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


def test_every_verb_is_told_of() -> None:
    """Options have their rows in the reference, which is held by test_reference."""
    page = TOLD["docs/cli.md"]
    readme = TOLD["README.md"]
    assert [verb for verb in VERBS if f"### `chargehand {verb}" not in page] == []
    assert [verb for verb in VERBS if f"`chargehand {verb}" not in readme] == []


def test_every_field_of_a_script_is_documented() -> None:
    page = TOLD["docs/cli.md"].partition("## Script files")[2]
    assert {field.name for field in structs.fields(ScriptedRun) if f"| `{field.name}` |" not in page} == set()


def test_every_default_number_is_documented_as_it_is() -> None:
    page = TOLD["docs/decisions/numbers.md"]
    numbers = (Retry(), Breaking(), Limits(), Policy())
    retry, breaking, limits, policy = numbers
    for words in (
        f"| {retry.attempts}, then {retry.fallback_attempts} by each fallback |",
        f"| {retry.base} s, doubling, at most {retry.ceiling:.0f} s, full jitter |",
        f"obeyed up to {retry.obey_retry_after:.0f} s",
        f"| {breaking.consecutive} failures in a row |",
        f"| half of at least {breaking.sample} calls within {breaking.window:.0f} s |",
        f"| {breaking.open:.0f} s × times opened, at most {breaking.open_ceiling:.0f} s |",  # noqa: RUF001 - as printed
        f"| one, leased for {breaking.lease:.0f} s |",
        f"| {limits.width} attempts a run |",
        f"| {limits.max_tasks} tasks, {limits.max_depth} deep, {limits.fan_out} readers of one result (a warning), ",
        f" (a warning), {limits.items} items, nested {limits.max_nesting} |",
        f"| {limits.plans} each; replans {limits.replans} |",
        f"supervisor {policy.supervision:.0f} s, answer {policy.answer:.0f} s kept back (a fifth at most), grace ",
        f"grace {policy.grace:.0f} s",
    ):
        assert words in page, words
    assert limits.plans == limits.answers == limits.resumes


@pytest.mark.parametrize("page", [page for page in TOLD if page.startswith("docs/decisions/")])
def test_a_decision_fits_on_a_short_page(page: str) -> None:
    lines = TOLD[page].splitlines()
    assert len(lines) <= 20 or page == "docs/decisions/dropped.md"  # a list, which grows
    assert lines[0].startswith("# ")
