"""What a person must put right is told in full once, whatever fails for it; other lines refer to it."""

import asyncio
from pathlib import Path

from chargehand.models.testing.fault_server import FaultServer
from tests.cli.commands import chargehand

TOOLS = '''
def level(river: str) -> str:
    """The level of a river."""
    return river.lenght()
'''
TEAM = """
version: 1
name: gauges
supervisor: {strategy: broadcast}
workers:
  left: {description: Reads the left gauge of the river., tools: [level]}
  right: {description: Reads the right gauge of the river., tools: [level]}
tools: {level: {python: "gauges:level"}}
"""
MESSAGE = "'str' object has no attribute 'lenght'"


def folder(at: Path) -> Path:
    (at / "gauges.py").write_text(TOOLS)
    (at / "team.yaml").write_text(TEAM)
    return at


def test_a_mistake_in_a_tool_is_told_once_however_many_tasks_fail_for_it(tmp_path: Path) -> None:
    words = ("run", "What is the level of the river 'Inn'?", "--run", "one")
    for shown in (
        chargehand(folder(tmp_path), *words).stderr,
        chargehand(tmp_path, "runs", "show", "one").stdout,
        chargehand(tmp_path, *words[:-1], "two", "-q").stderr,
    ):
        assert shown.count(MESSAGE) == 1, shown
        assert shown.count("Traceback") == 1
        assert "failed (logic: AttributeError in gauges.py, line 4, in level, shown above)" in shown


async def test_a_model_that_the_provider_does_not_have_is_told_once_with_names_that_may_be_meant(
    tmp_path: Path,
) -> None:
    async with FaultServer() as server:
        done = await asyncio.to_thread(
            chargehand,
            folder(tmp_path),
            *("run", "What is the level of the river?", "--model", "openai:gpt-55-mni"),
            OPENAI_API_KEY="sk-none",
            OPENAI_BASE_URL=f"http://127.0.0.1:{server.port}/fault/404/v1",
        )
    assert done.returncode == 1
    assert "error: openai has no model 'gpt-55-mni' (404)" in done.stderr
    assert "Did you mean gpt-5-mini" in done.stderr
    assert done.stderr.count("404") == 1, done.stderr


async def test_an_effort_that_a_model_does_not_take_is_noted_and_the_run_goes_on(tmp_path: Path) -> None:
    async with FaultServer() as server:
        model = f"openai+{server.url('never-thinks')}#m"
        words = ("run", "What is the level of the river?", "--model", model, "--effort", "max", "--jsonl")
        done = await asyncio.to_thread(chargehand, folder(tmp_path), *words)
    assert "reasoning_effort is not taken, and is left out" in done.stdout
    assert server.requests["never-thinks"] > 1


def test_doctor_names_the_models_that_may_be_meant(tmp_path: Path) -> None:
    (tmp_path / "team.yaml").write_text(f"{TEAM}defaults: {{model: 'openai:gpt-55-mni'}}\n")
    (tmp_path / "gauges.py").write_text(TOOLS)
    done = chargehand(tmp_path, "doctor", OPENAI_API_KEY="sk-none")
    assert "did you mean 'openai:gpt-5-mini'" in done.stdout
