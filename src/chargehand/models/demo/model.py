"""The demo model: which rules answer is decided by what a request is about. No language model is asked."""

import asyncio
import re

import msgspec

from chargehand.engine.events import Failure
from chargehand.models.messages import Reply, Request, Usage
from chargehand.models.model import Hear, ModelCard, ModelFailed
from chargehand.models.request_facts import Answering, Planning, Working

NOTICE = (
    "No language model is used. A small set of rules makes the plan, chooses the tools and writes the answer from what "
    "they return."
)
_PIECE = re.compile(r"\s*\S+\s*")


class DemoModel:
    """Deterministic, free, and without a network."""

    def __init__(self) -> None:
        self.card = ModelCard(
            "demo",
            window=1_000_000,
            notice=NOTICE,
            micros_in=0.0,
            micros_out=0.0,
            keeps_limit=True,
            in_process=True,
            free=True,
            reads_facts=True,
        )

    async def reply(self, request: Request, hear: Hear | None = None) -> Reply:
        try:
            reply = await asyncio.to_thread(_reply, request)
        except ModelFailed:
            raise
        except Exception as error:
            message = f"the demo model could not make sense of this: {type(error).__name__}: {error}"
            raise ModelFailed(Failure("logic", message, permanent=True)) from error
        if hear is not None:
            for piece in _PIECE.findall(reply.text):
                hear(piece)
        read = sum(len(message.text) for message in request.messages)
        written = len(reply.text) + sum(len(call.arguments) for call in reply.calls)
        usage = Usage(input=read // 4, output=written // 4)
        return msgspec.structs.replace(reply, usage=usage, micros=0, model=self.card.handle)


def _reply(request: Request) -> Reply:
    from chargehand.models.demo import answer, plan, roles, work  # noqa: PLC0415 - loaded by those who use them

    subject = request.subject
    match subject:
        case Planning():
            return Reply(plan.write_plan(subject))
        case Working():
            return work.work(subject, request)
        case Answering():
            return Reply(answer.write_answer(subject))
        case _:
            return Reply(roles.reply(subject))
