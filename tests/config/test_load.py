"""From a file to a team that can run."""

from pathlib import Path

import pytest

from chargehand.config.load import load_team
from chargehand.engine.budget import Budget
from chargehand.engine.policy import Limits, Policy, Retry
from chargehand.errors import Invalid
from chargehand.tools.tool import Tool
from tests.config.files import TOOLS, write

WHOLE = """\
version: 1
name: whole
examples: [One, Two]
defaults:
  model: demo
timeout: 2m
budget: {usd: 0.5, tokens: 200k, calls: 9}
supervisor:
  instructions: file:lead.md
  prompts: {answer: "Say it. {{manner}}"}
  timeout: 4m
  factory: {tools: [twice], max_tools: 1, concurrency: 2}
policy:
  retry: {attempts: 5, fallback_attempts: 2, base: 1s, ceiling: 20s, obey_retry_after: 5s}
  limits: {max_tasks: 8, max_depth: 4}
  refine: false
  approve: true
  uncertain: ask
workers:
  ann: {description: Doubles numbers., tools: [twice], fallbacks: [bob], concurrency: 2, tags: [sums]}
  bob: Writes.
tools: {twice: {python: "tools:double"}}
"""


def whole(folder: Path, text: str = WHOLE) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "tools.py").write_text(TOOLS)
    (folder / "lead.md").write_text("Lead well.")
    return write(folder, text)


def test_a_team_is_what_its_file_says(tmp_path: Path) -> None:
    team = load_team(whole(tmp_path))
    assert (team.name, team.examples, team.timeout) == ("whole", ("One", "Two"), 120.0)
    assert team.budget == Budget(tokens=200_000, usd=0.5, calls=9, seconds=120.0)
    retry = Retry(attempts=5, fallback_attempts=2, base=1.0, ceiling=20.0, obey_retry_after=5.0)
    limits = Limits(max_tasks=8, max_depth=4)
    assert team.policy == Policy(
        retry=retry, limits=limits, refine=False, approve=True, uncertain="ask", supervision=240.0
    )
    ann, bob, factory = team.roster.agents
    assert (ann.name, ann.tools, ann.fallbacks, ann.concurrency) == ("ann", ("twice",), ("bob",), 2)
    assert (bob.name, bob.description, bob.model) == ("bob", "Writes.", "demo")
    assert (factory.tools, factory.concurrency) == (("twice",), 2)


def test_what_a_file_leaves_out_is_as_in_python(tmp_path: Path) -> None:
    team = load_team(write(tmp_path, "version: 1\nworkers: {ann: Reads.}\n"))
    assert (team.budget, team.policy, team.timeout) == (Budget(), Policy(), 300.0)
    (ann,) = team.roster.agents
    assert (ann.model, ann.timeout, ann.seconds) == ("demo", 300.0, None)


def test_a_model_stands_in_for_all(tmp_path: Path) -> None:
    text = WHOLE.replace("model: demo", "model: openai:gpt-5-mini")
    team = load_team(whole(tmp_path, text), model="demo")
    assert {agent.model for agent in team.roster.agents} == {"demo"}


def test_without_a_file_the_bundled_team_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CHARGEHAND_TEAM", raising=False)
    assert load_team().name == "shop"


def test_the_first_error_is_raised_and_the_others_are_counted(tmp_path: Path) -> None:
    text = "version: 1\nworkers:\n  ann: {tools: [x, y], fallbacks: [zoe]}\n"
    file = write(tmp_path, text)
    with pytest.raises(Invalid) as caught:
        load_team(file)
    assert str(caught.value).startswith(f"{file}:3: workers.ann.fallbacks[0]: there is no other worker 'zoe'")
    assert str(caught.value).endswith(f"(2 more: chargehand check --team {file})")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (WHOLE.replace("file:lead.md", "file:none.md"), ":9: supervisor.instructions: there is no 'none.md' beside"),
        (
            WHOLE.replace("{{manner}}", "{{manners}}"),
            ":10: supervisor.prompts.answer: prompt 'answer' has the slot 'manners'",
        ),
        (WHOLE.replace("{attempts: 5", "{attempts: 0"), "policy.retry.attempts: is 0"),
        (WHOLE.replace("timeout: 2m", "timeout: 0"), ":6: timeout: is 0; it must be longer than nothing"),
        (WHOLE.replace("timeout: 4m", "timeout: 0s"), ":11: supervisor.timeout: is '0s'; it must be longer"),
    ],
)
def test_what_is_wrong_with_the_supervisor_is_said_with_the_file(tmp_path: Path, text: str, words: str) -> None:
    file = whole(tmp_path, text)
    with pytest.raises(Invalid) as caught:
        load_team(file)
    assert str(caught.value).startswith(str(file))
    assert words in str(caught.value)


def test_a_model_that_is_handed_in_is_not_the_fault_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"^'dmeo' is no model; write provider:name or demo"):
        load_team(whole(tmp_path), model="dmeo")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"\x89PNG\r\n\x1a\n\x00\x00", "is not text in UTF-8"),
        (b"version: 1\nname: a\x00b\n", "it holds zero bytes"),
        (b"version: 1\nname: \xff\n", "is not text in UTF-8 (byte 17)"),
        (b"", "is empty; begin with  version: 1"),
        (b"# " + b"x" * 1024 * 1024, "is larger than 1 MiB"),
        (b"version: 1\nversion: 1\n", ":2: the key 'version' is here twice"),
        (b"version: 1\nname: {a: ${B}}\n", ":2: this is not YAML: did not find expected"),
        (b"[" * 10_000, ":1: this is nested more than 32 levels deep"),
    ],
)
def test_a_file_that_is_no_team_file_is_refused(tmp_path: Path, body: bytes, words: str) -> None:
    file = tmp_path / "team.yaml"
    file.write_bytes(body)
    with pytest.raises(Invalid) as caught:
        load_team(file)
    assert str(caught.value).startswith(str(file))
    assert words in str(caught.value)


def test_a_variable_in_braces_is_a_hint(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"inside \{ \} and \[ \] put \$\{…\} in quotes"):
        load_team(write(tmp_path, "version: 1\nbudget: {usd: ${MONEY}}\n"))


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "pipe.yaml")
    with pytest.raises(Invalid, match="is no regular file"):
        load_team(tmp_path / "pipe.yaml")
    with pytest.raises(Invalid, match="is no regular file"):
        load_team("/dev/zero")


def test_a_key_may_lie_in_dotenv_beside_the_team(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    file = write(tmp_path, 'version: 1\ndefaults: {model: "openai:gpt-5-mini"}\nworkers: {ann: Reads.}\n')
    with pytest.raises(Invalid, match="openai:gpt-5-mini needs a key: set OPENAI_API_KEY"):
        _ = load_team(file).notice
    (tmp_path / ".env").write_text("OPENAI_API_KEY=not-a-real-key\n")
    assert load_team(file).notice == ""


def test_a_worker_names_a_tool_of_its_provider(tmp_path: Path) -> None:
    file = tmp_path / "team.yaml"
    text = (
        "version: 1\nname: searchers\ndefaults: {{model: '{model}'}}\n"
        "workers:\n  ann: {{description: Searches., tools: ['provider:{tool}']}}\n"
    )
    file.write_text(text.format(model="anthropic:claude-haiku-4-5", tool="web_search"), encoding="utf-8")
    (ann,) = load_team(file).spec.workers
    assert [(tool.name, tool.hosted) for tool in ann.tools if isinstance(tool, Tool)] == [("web_search", True)]
    file.write_text(text.format(model="openai:gpt-4o", tool="web_search"), encoding="utf-8")
    with pytest.raises(Invalid, match="openai:gpt-4o has none; models of anthropic"):
        load_team(file)
    file.write_text(text.format(model="anthropic:claude-haiku-4-5", tool="web_serch"), encoding="utf-8")
    with pytest.raises(Invalid, match=r"no provider has a tool 'provider:web_serch'.*web_search"):
        load_team(file)
