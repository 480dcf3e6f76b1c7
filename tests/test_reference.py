"""The reference pages are what the code says: each is written anew and compared, and leaves nothing out."""

import re
from pathlib import Path
from typing import get_args

import pytest

from chargehand import errors
from chargehand.agents.strategies import loop
from chargehand.cli.exit_codes import EXIT_CODES, GATE_MISSED, TERMINATED, exit_code
from chargehand.cli.main import parser
from chargehand.config import keys
from chargehand.engine.events import Ending, EndReason, Noted
from chargehand.engine.failure import FailureKind
from chargehand.journal.codec import TAGS
from tests.reference import events_page, model_features
from tests.reference.parsers import every_parser
from tests.reference.write import FOLDER, PAGES

ROOT = Path(__file__).parents[1]
TOLD = {name: (FOLDER / name).read_text(encoding="utf-8") for name in PAGES}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_would_be_written_now(name: str) -> None:
    assert PAGES[name]() == TOLD[name], f"docs/reference/{name} is not what the code says any more: run  make reference"


def test_the_table_of_models_is_what_their_code_says() -> None:
    page = model_features.PAGE.read_text(encoding="utf-8")
    assert model_features.page_with_features(page) == page, "docs/models.md is not what the code says: make reference"


def test_the_table_of_models_tells_models_apart() -> None:
    claude = model_features.features("anthropic:claude-haiku-4-5")
    assert (claude.effort, claude.cache, claude.tiers) == (("thinking",), True, ())
    ollama = model_features.features("ollama:qwen3")
    assert (ollama.effort, ollama.cache) == (("reasoning_effort",), False)
    assert model_features.features("groq:openai/gpt-oss-120b").provider_tools == ("web_search",)
    assert not model_features.features("demo").thoughts


def test_there_is_no_page_that_nobody_writes() -> None:
    assert {page.name for page in FOLDER.iterdir()} == set(PAGES)


def test_every_verb_and_option_has_its_row() -> None:
    page = TOLD["cli.md"]
    for path, verb in every_parser():
        if not path:
            continue
        section = page.partition(f" `chargehand {path}`\n")[2].partition("\n## ")[0]
        assert section, f"chargehand {path} is not on the page"
        flags = {name for action in verb._actions for name in action.option_strings} - {"-h", "--help"}
        assert {flag for flag in flags if f"`{flag}`" not in section and f"`{flag} " not in section} == set()


def test_every_key_of_a_team_file_has_its_row_and_its_anchor() -> None:
    rows = re.findall(r'^\| <a id="([^"]+)"></a>`\w+` \| \S.* \| \S.* \|$', TOLD["team-file.md"], re.MULTILINE)
    assert rows == [path for path in keys.known_keys() if not path.endswith("*")]


def test_every_key_of_a_team_file_has_a_meaning() -> None:
    assert [
        f"{section.path}.{key.name}" for section in keys.sections() for key in section.keys if not key.meaning
    ] == []


def test_every_event_has_its_section_with_an_example() -> None:
    for tag in TAGS.values():
        section = TOLD["events.md"].partition(f"\n## `{tag}`\n")[2].partition("\n## ")[0]
        assert re.search(rf'"type": ?"{re.escape(tag)}"', section), tag


def test_every_field_of_an_event_and_of_what_is_inside_has_a_meaning() -> None:
    tables = re.findall(r"^\| field \|.*\n\|[-|]+\n((?:\|.*\n)+)", TOLD["events.md"], re.MULTILINE)
    rows = [re.split(r"(?<!\\) ?\| ?", row)[1:-1] for one in tables for row in one.splitlines()]
    assert len(rows) > 150
    assert [cells for cells in rows if len(cells) != len(("field", "meaning", "type", "default")) or not cells[1]] == []


def test_a_field_without_a_meaning_stops_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    known = events_page.meanings(Noted)
    assert known["attempt"]

    def forgetful(_kind: type) -> dict[str, str]:
        return known | {"attempt": ""}

    monkeypatch.setattr(events_page, "meanings", forgetful)
    with pytest.raises(LookupError, match=r"does not say what .* means: write it below the field"):
        PAGES["events.md"]()


def test_every_error_has_its_row_and_is_drawn() -> None:
    known = [name for name, one in vars(errors).items() if isinstance(one, type) and issubclass(one, Exception)]
    page = TOLD["errors.md"]
    assert [name for name in known if f"| `{name}` |" not in page] == ["ChargehandError"]
    assert re.findall(r"[A-Z]\w+", page.partition("```text\n")[2].partition("```")[0]) == known


def test_every_kind_of_failure_and_every_code_of_a_finding_has_its_row() -> None:
    rows = set(re.findall(r"^\| `(\w+)` \|", TOLD["errors.md"], re.MULTILINE))
    assert set(get_args(FailureKind)) <= rows
    source = "\n".join(
        path.read_text(encoding="utf-8")
        for room in ("engine", "agents")
        for path in (ROOT / "src" / "chargehand" / room).rglob("*.py")
    )
    said = re.findall(r'(?:\bFinding|self\.add|self\.refuse|self\.failed)\(\s*(?:code=)?"([a-z_]+)"', source)
    assert len(said) > 20
    assert {code for code in (*said, *loop.REFUSALS) if code not in rows} == set()


ENDS: list[tuple[Ending, EndReason]] = [
    ("complete", "done"),
    ("partial", "gaps"),
    ("partial", "budget"),
    ("failed", "deadline"),
    ("failed", "no_plan"),
    ("cancelled", "cancelled"),
    ("needs_input", "no_input"),
]


def test_every_exit_code_has_its_section() -> None:
    found = {int(code) for code in re.findall(r"^## (\d+)$", TOLD["exit-codes.md"], re.MULTILINE)}
    assert (
        found
        == set(EXIT_CODES)
        == {exit_code(ending, reason) for ending, reason in ENDS} | {2, GATE_MISSED, TERMINATED}
    )
    assert {int(code) for code in re.findall(r"(?<!\d)(\d+) [a-z]", parser().epilog or "")} == found
