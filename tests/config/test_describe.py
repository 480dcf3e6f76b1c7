"""What a check has to say: everything at once, and never a secret."""

from pathlib import Path

import pytest

from chargehand.config.describe import describe
from tests.config.files import TOOLS, write

TEXT = """\
version: 1
name: ${TEAM_NAME:-described}
description: ${MY_SECRET_KEY}
defaults: {model: "${TEAM_MODEL}"}
supervisor: {judge: "openai:gpt-5-mini"}
workers:
  ann: {description: Doubles., tools: [twice, calculator], model: "nobody:x", fallback_models: ["anthropic:y"]}
tools: {twice: {python: "tools:double", effect: effect, approve: always}}
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "TEAM_NAME", "MY_SECRET_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TEAM_MODEL", "demo")
    (tmp_path / ".env").write_text("MY_SECRET_KEY=hush-hush\n")
    (tmp_path / "tools.py").write_text(TOOLS)
    return write(tmp_path, TEXT)


def test_models_are_checked_without_calling_anybody(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = describe(file)
    assert [(one.line, one.path) for one in told.errors] == [
        (5, "supervisor.judge"),
        (7, "workers.ann.model"),
        (7, "workers.ann.fallback_models[0]"),
    ]
    assert "openai:gpt-5-mini needs a key: set OPENAI_API_KEY" in told.errors[0].message
    assert "there is no provider 'nobody'" in told.errors[1].message
    monkeypatch.setenv("OPENAI_API_KEY", "not-a-real-key")
    told = describe(file)
    assert len(told.errors) == 2
    assert "not-a-real-key" not in repr(told)


def test_a_model_whose_name_looks_misspelt_is_a_warning(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "not-a-real-key")
    told = describe(file, model="openai:gpt-55-mni")
    assert told.errors == []
    assert "did you mean 'openai:gpt-5-mini' or 'openai:gpt-5.4-mini'?" in told.findings[0].message
    for known in ("openai:gpt-5-mini", "openai:something-else-entirely"):
        assert describe(file, model=known).findings == []
    monkeypatch.setenv("OPENAI_BASE_URL", "https://models.example/v1")
    assert describe(file, model="openai:gpt-55-mni").findings == []


def test_one_model_for_all_needs_no_keys(file: Path) -> None:
    told = describe(file, model="demo")
    assert told.findings == []
    assert told.models == ["demo"]


def test_workers_and_tools_are_told(file: Path) -> None:
    told = describe(file, model="demo")
    (ann,) = told.workers
    assert (ann.name, ann.tools) == ("ann", ("twice", "calculator"))
    assert told.tools == ["calculator", "twice"]


def test_memory_is_told_and_its_models_are_checked(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHARGEHAND_HOME", str(tmp_path / "home"))
    text = """\
version: 1
memory:
  file: kept.db
  blocks: {notes: {value: abc, limit: 10, share: append}}
  archives:
    words: {embed: words}
    local: {embed: "local:minilm"}
    paid: {embed: "openai:text-embedding-3-small"}
    odd: {embed: "nobody:x"}
workers: {ann: {description: Reads., remembers: true}}
"""
    told = describe(write(file.parent, text))
    assert [one.path for one in told.errors] == [f"memory.archives.{name}.embed" for name in ("local", "paid", "odd")]
    assert "chargehand models pull minilm" in told.errors[0].message
    assert "OPENAI_API_KEY" in told.errors[1].message
    assert told.memory is not None
    assert told.memory.file == str(file.parent / "kept.db")
    assert told.memory.blocks == ("notes",)
    assert told.memory.archives["words"] == "words"


def test_a_file_that_cannot_be_read_is_one_finding(tmp_path: Path) -> None:
    told = describe(write(tmp_path, "version: 1\n: ["))
    (finding,) = told.findings
    assert told.name == ""
    assert str(finding).startswith(f"{tmp_path / 'team.yaml'}:")
    assert "this is not YAML" in str(finding)


def test_what_is_no_embedding_is_said_once(tmp_path: Path) -> None:
    told = describe(write(tmp_path, "version: 1\nworkers: {ann: Reads.}\nmemory: {archives: {a: {embed: wrds}}}\n"))
    assert [one.path for one in told.errors] == ["memory.archives.a.embed"]
    assert "did you mean 'words'?" in told.errors[0].message


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("version: 1\nworkers:\n  ann: a\n  ann: b\n", 4, "the key 'ann' is here twice (first in line 3)"),
        ("version: 1\nworkers:\n\tann: a\n", 3, "the line begins with a tab: use spaces"),
    ],
)
def test_what_is_no_yaml_is_said_with_its_line(tmp_path: Path, text: str, line: int, words: str) -> None:
    written = tmp_path / "team.yaml"
    written.write_text(text, encoding="utf-8")
    (found,) = describe(written).findings
    assert found.line == line
    assert words in found.message
    assert str(found).startswith(f"{written}:{line}: ")
