"""`chargehand eval`: what people type, what they are told, and the exit codes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from chargehand.cli.main import main
from tests.cli.commands import Done, chargehand

ROUTES = (
    '{"request": "What was the revenue in May 2026?", "worker": "analyst"}\n'
    '{"request": "What does our returns policy say about damaged items?", "worker": "archivist"}\n'
    '{"request": "Convert 100 EUR to US dollars at the rate of 29 May 2026.", "worker": "analyst"}\n'
)
GOLDEN = "cases:\n  - {name: may, request: What was the revenue in May 2026?, expect: {numbers: 12223.40}}\n"


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    (tmp_path / "routes.jsonl").write_text(ROUTES)
    (tmp_path / "golden.yaml").write_text(GOLDEN)
    return tmp_path


Type: TypeAlias = Callable[..., Done]


@pytest.fixture
def typed(here: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Type:
    """One command after another in this process: where a process of its own is not the point."""
    monkeypatch.chdir(here)

    def run(*words: str) -> Done:
        code = main(words)
        shown = capfd.readouterr()
        return Done(words, code, shown.out, shown.err)

    return run


def refused(done: Done, words: str) -> None:
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert words in done.stderr


def test_a_gate_decides_the_exit_code(typed: Type) -> None:
    held = typed("eval", "routes.jsonl", "--gate", "accuracy=0.6")
    assert held.returncode == 0, held.stderr
    assert "routes: routing: 2 of 3 passed" in held.stdout
    assert "gate: routes routing: accuracy 66.7% >= 0.6: passed" in held.stdout
    under = typed("eval", "routes.jsonl", "golden.yaml", "--gate", "accuracy=0.9")
    assert under.returncode == 6
    assert "accuracy 66.7% >= 0.9: NOT passed" in under.stdout
    assert "gate: golden run: accuracy 100.0% >= 0.9: passed" in under.stdout


def test_reports_are_written_and_compared(here: Path, typed: Type) -> None:
    first = typed("eval", "golden.yaml", "-q", "-o", "a.json", "--markdown", "a.md", "--junit", "ci/a.xml")
    assert (first.returncode, first.stderr) == (0, "")
    assert (here / "a.md").read_text().startswith("# Evaluation of shop")
    assert (here / "ci" / "a.xml").read_text().startswith("<?xml")
    then = typed("eval", "golden.yaml", "--baseline", "a.json", "--json", "--gate", "regressions=0")
    assert then.returncode == 0, then.stderr
    report = json.loads(then.stdout)
    assert [one["measure"] for one in report["changes"]] == ["accuracy", "usd", "seconds"]
    assert report["gates"][0]["passed"]


def test_what_graders_say_and_print_spoils_no_report(here: Path) -> None:
    (here / "graders.py").write_text('def noisy(answer):\n    print("NOISE")\n    return "half \\ud800 a \\0 sign"\n')
    (here / "x.yaml").write_text(GOLDEN.replace("numbers: 12223.40", "python: 'graders.py:noisy'"))
    done = chargehand(here, "eval", "x.yaml", "--json", "-o", "a.json", "--markdown", "a.md", "--junit", "a.xml")
    assert done.returncode == 0, done.stderr
    assert "NOISE" in done.stderr
    (score,) = json.loads(done.stdout)["sections"][0]["scores"]
    assert score["why"] == ["graders.py:noisy: half ? a \0 sign"]
    assert json.loads((here / "a.json").read_text()) == json.loads(done.stdout)


def test_nothing_of_the_teams_own_is_touched(here: Path) -> None:
    (here / "kept.yaml").write_text(
        "cases:\n  - request: Report the revenue in May 2026 and keep it in the archive tagged revenue\n"
    )
    done = chargehand(here, "eval", "kept.yaml")
    assert done.returncode == 0, done.stderr
    assert [path.name for path in (here / ".chargehand").iterdir()] == ["evals"]  # the report, and no memory


def test_nor_is_the_memory_of_a_team_inside_it(here: Path, typed: Type) -> None:
    memory = "memory: {file: own.db, blocks: {notes: {value: Nothing yet., share: write}}}\n"
    (here / "in").mkdir()
    inner = "workers: {kim: Keeps notes in memory.}\n"
    outer = "workers: {ann: {team: in/team.yaml}}\n"
    (here / "in" / "team.yaml").write_text(f"version: 1\nname: inner\n{memory}{inner}")
    (here / "team.yaml").write_text(f"version: 1\nname: outer\n{memory}{outer}")
    (here / "notes.yaml").write_text("cases: [{request: Keep in the notes that apples are red.}]\n")
    done = typed("eval", "notes.yaml")
    assert done.returncode == 0, done.stdout
    assert list(here.rglob("*.db")) == []


def test_the_datasets_beside_a_team_file_are_found(here: Path, typed: Type) -> None:
    team = here / "crew"
    (team / "evals").mkdir(parents=True)
    (team / "team.yaml").write_text("version: 1\nname: crew\nworkers: {ann: Counts apples in the cellar.}\n")
    refused(typed("eval", "--team", "crew"), "holds no datasets")
    (team / "evals" / "routing.jsonl").write_text('{"request": "Count the apples in the cellar.", "worker": "ann"}\n')
    done = typed("eval", "--team", "crew", "--gate", "accuracy=1")
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_evaluation_that_could_try_nothing_has_failed(here: Path, typed: Type) -> None:
    (here / "x.yaml").write_text("cases: [{request: Count them, worker: nobody here, expect: {numbers: 1}}]\n")
    done = typed("eval", "x.yaml")
    assert done.returncode == 1
    assert "no case could be tried" in done.stderr
    assert "there is no worker 'nobody here'" in done.stdout
    (here / "routes.jsonl").write_text('{"request": "Count them", "worker": "nobody here"}\n')
    done = typed("eval", "routes.jsonl")
    assert done.returncode == 1
    assert "there is no worker 'nobody here'" in done.stdout
    assert not [word for word in ("Wanted", "Routes", "macro_f1") if word in done.stdout], "there is nothing to show"


def test_a_report_is_not_written_over_what_is_read_nor_over_another(here: Path, typed: Type) -> None:
    (here / "link.json").symlink_to("golden.yaml")
    for words in (["-o", "golden.yaml"], ["--markdown", "./golden.yaml"], ["--junit", "link.json"]):
        refused(typed("eval", "golden.yaml", *words), "is read here, and a report would be written over it")
    assert (here / "golden.yaml").read_text() == GOLDEN
    refused(typed("eval", "golden.yaml", "-o", "a.json", "--junit", "a.json"), "is named for another report")
    assert not (here / "a.json").exists()


def test_a_report_that_cannot_be_written_in_the_end_is_still_shown(here: Path, typed: Type) -> None:
    done = typed("eval", "golden.yaml", "-o", "/dev/full", "--junit", "a.xml")
    assert done.returncode == 1
    assert "golden: run: 1 of 1 passed" in done.stdout
    assert "/dev/full could not be written: No space left" in done.stderr
    assert (here / "a.xml").read_text().startswith("<?xml"), "the others are written"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["none.yaml"], "cannot be read"),
        (["golden.yaml", "--gate", "accuracy"], "is no gate"),
        (["golden.yaml", "--gate", "speed=1"], "nothing here measures 'speed'"),
        (["golden.yaml", "golden.yaml"], "two datasets have the same name"),
        (["golden.yaml", "--baseline", "routes.jsonl"], "is no report"),
        (["golden.yaml", "--max-parallel", "0"], "0 cases at once"),
        (["golden.yaml", "--gate", "accuracy=1", "--gate", "accuracy=0"], "names 'accuracy' twice"),
        (["golden.yaml", "--gate", "regressions=0"], "--baseline"),
        (["golden.yaml", "-o", "."], "cannot be written"),
        (["golden.yaml", "--markdown", "golden.yaml/x"], "cannot be written"),
        (["golden.yaml", "--judge", "nope"], "'nope' is no model"),
        (["ungraded.yaml"], "case 'may': there is no module 'nowhere', neither beside the cases nor installed"),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_is(
    here: Path, words: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(here)
    (here / "ungraded.yaml").write_text(GOLDEN.replace("numbers: 12223.40", "python: 'nowhere.py:f'"))
    try:
        code = main(["eval", *words])
    except SystemExit as ended:  # by the parser
        code = ended.code
    shown = capsys.readouterr()
    assert (code, shown.out) == (2, "")
    assert said in shown.err
