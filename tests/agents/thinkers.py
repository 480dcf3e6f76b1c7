"""Teams whose worker calls tools with a model that thinks, at a server that wants its thoughts back."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from chargehand.agents.roles import Worker
from chargehand.engine.policy import Policy, Retry
from chargehand.journal.protocol import Journal
from chargehand.models.anthropic import AnthropicMessages
from chargehand.models.http import Transport
from chargehand.models.model import Model
from chargehand.models.openai import OpenAIChat
from chargehand.models.openai_responses import OpenAIResponses
from chargehand.models.testing.thought_rules import RULES
from chargehand.team import Team
from chargehand.tools.tool import tool
from tests.agents.crowd import model as play
from tests.agents.crowd import plan
from tests.agents.options import make_team

TASK = "Find out what it is. [[tool:first]]"
ROUNDS = 3
"""Replies of the worker's model: two calls of tools, one after the other, and the result."""


_MODELS = {"/chat/completions": OpenAIChat, "/responses": OpenAIResponses, "/messages": AnthropicMessages}


def thinker(mode: str, url: str, transport: Transport | None = None) -> Model:
    """A model whose server follows the rule of a mode."""
    make = _MODELS[RULES[mode].path] if mode in RULES else OpenAIChat
    return make(f"test:{mode}", url, f"model-{mode}", "key", transport=transport)


def make_thinking_team(
    models: list[Model], journal: Journal | None = None, *, between: Callable[[], None] | None = None
) -> Team:
    """One worker with two tools. `between` is called while the second one runs."""

    @tool
    def first() -> str:
        """Look at it."""
        return "It has feathers. [[tool:second]]"

    @tool
    def second() -> str:
        """Look again."""
        if between is not None:
            between()
        return "It is an ostrich."

    worker = Worker("ann", "looks", "You are Ann.", model=models[0], fallback_models=models[1:], tools=[first, second])
    script = play(plans=[plan((TASK, "ann", []), combine="forward")])
    policy = Policy(retry=Retry(base=0.001))
    return make_team([worker], model=script, journal=journal, policy=policy, name="thinkers")


async def drive(folder: Path, mode: str, url: str) -> None:
    """Begin a run and die in its second tool call, or resume it to its end."""
    started = folder / "started"
    journal = f"sqlite:///{folder / 'runs.db'}"

    def die() -> None:
        if not started.exists():
            started.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    team = make_thinking_team([thinker(mode, url)], journal, between=die)  # pyright: ignore[reportArgumentType] - a URL
    result = await (team.resume("r") if started.exists() else team.run("Look", run="r"))
    print(result.ending, result.answer)


if __name__ == "__main__":
    import asyncio

    asyncio.run(drive(Path(sys.argv[1]), *sys.argv[2:]))
