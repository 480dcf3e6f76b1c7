"""Workers whose models think: their thoughts go back to them between calls of tools, and nowhere else."""

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import permutations
from pathlib import Path
from typing import cast

import msgspec
import pytest

from chargehand.engine import events as ev
from chargehand.engine.failure import Failure
from chargehand.engine.state import TextKind, Work
from chargehand.journal.memory import MemoryJournal
from chargehand.models.http import Transport
from chargehand.models.messages import Message, Reply, Request
from chargehand.models.model import Hear, Model, ModelCard, ModelFailed
from chargehand.models.openai_responses import OpenAIResponses
from chargehand.models.testing.fault_server import FaultServer
from chargehand.models.testing.thought_rules import RULES, THOUGHT
from tests.agents.thinkers import ROUNDS, make_thinking_team, thinker

ROOT = Path(__file__).parents[2]
READABLE = [mode for mode in RULES if mode != "gemini"]


def replies(entries: Sequence[ev.Entry]) -> list[Reply]:
    """The replies of the worker's model, as the journal has them."""
    models = {e.step for one in entries if isinstance(e := one.event, ev.StepStarted) and e.kind == "model"}
    finished = [e for one in entries if isinstance(e := one.event, ev.StepFinished)]
    return [msgspec.json.decode(e.result, type=Reply) for e in finished if e.step in models]


def refused_once(mode: str, done: int) -> bool:
    """Whether a thought is refused after a resume: the results before it are delimited otherwise than they were.

    Thoughts are left out then, and the run goes on.
    """
    return mode == "thinking-bound" and done == ROUNDS - 1


async def cut(entries: Sequence[ev.Entry], at: int) -> MemoryJournal:
    journal = MemoryJournal()
    lease = await journal.claim("r", new=True)
    await journal.append(lease, entries[:at])
    await journal.release(lease)
    return journal


@asynccontextmanager
async def serving() -> AsyncGenerator[tuple[FaultServer, Callable[[str], Model]]]:
    """A server, and what makes a model of one of its modes."""
    transport = Transport()
    async with FaultServer() as server:
        try:
            yield server, lambda mode: thinker(mode, server.url(mode), transport)
        finally:
            await transport.close()


class Faltering:
    """A model that answers so many times, then never again."""

    def __init__(self, model: Model, answers: int) -> None:
        self.card: ModelCard = model.card
        self._model = model
        self._left = answers

    async def reply(self, request: Request, hear: Hear | None = None) -> Reply:
        self._left -= 1
        if self._left < 0:
            raise ModelFailed(Failure("network", "it is gone"), billed=False)
        return await self._model.reply(request, hear)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("mode", RULES)
async def test_a_worker_with_tools_is_refused_no_round(mode: str, *, streamed: bool) -> None:
    heard: dict[str, str] = {"answer": "", "thought": ""}

    def hear(_run: str, work: Work, text: str, kind: TextKind) -> None:
        if work.kind == "attempt":
            heard[kind] += text

    async with serving() as (server, make):
        team = make_thinking_team([make(mode)], MemoryJournal())
        result = await team.run("Look", run="r", on_text=hear if streamed else None)
        assert server.requests == {mode: ROUNDS}
    assert result.ending == "complete"
    assert "ostrich" in str(result.answer)
    assert THOUGHT.strip() not in str(result)
    assert THOUGHT not in heard["answer"]
    assert heard["thought"].count(THOUGHT) == (ROUNDS if streamed and mode in READABLE else 0)


@pytest.mark.parametrize("mode", RULES)
async def test_a_run_that_is_resumed_after_any_entry_sends_its_thoughts_back(mode: str) -> None:
    async with serving() as (server, make):
        journal = MemoryJournal()
        await make_thinking_team([make(mode)], journal).run("Look", run="r")
        entries = (await journal.read("r"))[:]
        assert len(replies(entries)) == ROUNDS
        assert all(reply.kept is not None for reply in replies(entries)[: ROUNDS - 1])
        begins = next(at for at, one in enumerate(entries, 1) if isinstance(one.event, ev.StepStarted))
        for at in range(begins, len(entries)):
            server.requests.clear()
            team = make_thinking_team([make(mode)], await cut(entries, at))
            assert (await team.resume("r")).ending == "complete"
            done = len(replies(entries[:at]))
            assert server.requests[mode] == ROUNDS - done + refused_once(mode, done), f"cut after {at}"


@pytest.mark.parametrize("mode", RULES)
async def test_a_run_that_was_killed_between_rounds_sends_its_thoughts_back(mode: str, tmp_path: Path) -> None:
    async with FaultServer() as server:
        for expected in (-9, 0):
            command = ["-m", "tests.agents.thinkers", str(tmp_path), mode, server.url(mode)]
            process = await asyncio.create_subprocess_exec(
                sys.executable, *command, cwd=ROOT, stdout=asyncio.subprocess.PIPE
            )
            output, _ = await process.communicate()
            assert process.returncode == expected
        assert output.startswith(b"complete")
        assert b"ostrich" in output
        assert server.requests == {mode: ROUNDS + refused_once(mode, 2)}


@pytest.mark.parametrize(("of", "to"), list(permutations(RULES, 2)))
async def test_a_fallback_model_of_another_provider_works_without_them(of: str, to: str) -> None:
    async with serving() as (server, make):
        models: list[Model] = [Faltering(make(of), 2), make(to)]
        journal = MemoryJournal()
        result = await make_thinking_team(models, journal).run("Look", run="r")
        assert result.ending == "complete"
        assert "ostrich" in str(result.answer)
        refused = server.requests[to] - 1
    assert server.requests[of] == 2
    # it says once that a thought is missing; OpenAI takes calls without ids, which name no thought
    assert refused == (0 if to in ("thinking-bound", "reasoning") else 1)


async def test_a_run_goes_back_to_a_model_with_what_that_thought_itself() -> None:
    """Each round is answered by another model than the round before."""
    async with serving() as (server, make):
        models = [make("reasoning"), make("thinking")]
        seen: list[list[Message]] = []

        class Alternating:
            card = models[0].card

            async def reply(self, request: Request, hear: Hear | None = None) -> Reply:
                seen.append(list(request.messages))
                return await models[(len(seen) - 1) % 2].reply(request, hear)

        result = await make_thinking_team([Alternating()], MemoryJournal()).run("Look", run="r")
    assert result.ending == "complete"
    assert len(seen) == ROUNDS
    assert server.requests == {"reasoning": 2, "thinking": 2}  # the second is told once that it did not think before
    [kept] = [message.kept for message in seen[-1] if message.kept is not None]  # the second was asked not to think
    [thought] = [part for part in kept.parts if part.kind == "reasoning"]
    written = cast("OpenAIResponses", models[0])._write_input(seen[-1])
    assert [item for item in written if item is thought.data], "it is sent back to the one that wrote it"


async def test_a_history_that_was_cut_goes_on_without_the_thoughts_that_are_refused() -> None:
    mode = "thinking-bound"
    async with serving() as (server, make):
        model = make(mode)
        journal = MemoryJournal()
        await make_thinking_team([model], journal).run("Look", run="r")
        server.requests.clear()
        seen: list[Request] = []

        class Changed:
            card = model.card

            async def reply(self, request: Request, hear: Hear | None = None) -> Reply:
                first, task, *rest = request.messages
                seen.append(request)
                changed = msgspec.structs.replace(task, text=f"{task.text} (shortened)") if len(rest) > 2 else task
                return await model.reply(msgspec.structs.replace(request, messages=[first, changed, *rest]), hear)

        result = await make_thinking_team([Changed()], MemoryJournal()).run("Look", run="r")
    assert result.ending == "complete"
    assert server.requests[mode] == ROUNDS + 1  # refused once, and sent again without them
