"""The offline model: what a request is about decides which rules answer it. No language model is asked."""

import asyncio
import re
from pathlib import Path
from typing import cast

import msgspec

from chargehand.models.known import BUILT_IN
from chargehand.models.messages import Message, Reply, Request, Usage
from chargehand.models.model import Hear, ModelCard, ModelFailed
from chargehand.models.offline.matching import Embedder
from chargehand.models.offline.reading import read_subject, text_of
from chargehand.models.subject import (
    Answering,
    Judging,
    Ledger,
    Making,
    Planning,
    Refining,
    Reviewing,
    Routing,
    Speaking,
    Splitting,
    Subject,
    WorkerCard,
    Working,
)
from chargehand.terms.events import Failure

NOTICE = (
    "No language model was asked. A small set of rules made the plan, chose the tools and wrote the answer from what "
    "they returned."
)

_AT_ONCE = 10_000
"""Characters of all messages that are worked on without letting others run; more are worked on in a thread."""
_SHORT = 500
"""Characters of a request or a task for which the same holds."""
_MAIL = "send_message_to_agents_"


class OfflineModel:
    """Deterministic, free, and without a network.

    With an embedder it matches by meaning and not only by words: one of its own, or that among the pulled models in
    `folder`, if it is there.
    """

    def __init__(self, embedder: Embedder | None = None, folder: Path | None = None) -> None:
        self._embedder = embedder
        self._folder = folder
        self._card = ModelCard(
            BUILT_IN,
            window=1_000_000,
            notice=NOTICE,
            micros_in=0.0,
            micros_out=0.0,
            keeps_limit=True,
            in_process=True,
            free=True,
            reads_facts=True,
        )

    @property
    def card(self) -> ModelCard:
        return self._card

    async def reply(self, request: Request, hear: Hear | None = None) -> Reply:
        asked = sum(len(message.text) for message in request.messages)
        try:
            if asked <= _AT_ONCE and _is_short(request.subject):
                made = self._made(request)
            else:
                made = await asyncio.to_thread(self._made, request)
        except ModelFailed:
            raise
        except Exception as error:
            said = f"the offline model could not make sense of this: {type(error).__name__}: {error}"
            raise ModelFailed(Failure("logic", said, permanent=True)) from error
        if hear is not None:
            for piece in re.findall(r"\s*\S+\s*", made.text):
                hear(piece)
        written = len(made.text) + sum(len(call.arguments) for call in made.calls)
        usage = Usage(input=asked // 4, output=written // 4)
        return msgspec.structs.replace(made, usage=usage, micros=0, model="offline")

    def _matcher(self) -> Embedder | None:
        if self._folder is not None and (self._folder / "minilm").is_dir():
            from chargehand.models.embeddings import open_embedder  # noqa: PLC0415 - few have pulled one

            self._embedder = self._embedder or open_embedder(self._folder)
        self._folder = None
        return self._embedder

    def _made(self, request: Request) -> Reply:
        if isinstance(request.subject, Planning):
            from chargehand.models.offline.planning import plan  # noqa: PLC0415 - a worker needs no planner

            return Reply(plan(request.subject, self._matcher()))
        subject = _guessed(request) if request.subject is None else request.subject
        match read_subject(subject):
            case Refining() as subject:
                from chargehand.models.offline.refining import refine  # noqa: PLC0415 - seldom needed

                return Reply(refine(subject))
            case Answering() as subject:
                from chargehand.models.offline.answering import answer  # noqa: PLC0415 - see above

                return Reply(answer(subject))
            case Making() as subject:
                from chargehand.models.offline.making import make  # noqa: PLC0415 - seldom needed

                return Reply(make(subject))
            case Routing() | Speaking() | Ledger() | Splitting() as subject:
                return Reply(_led(subject, self._matcher()))
            case Judging() as subject:
                from chargehand.models.offline.judging import judge  # noqa: PLC0415 - seldom needed

                return Reply(judge(subject))
            case Reviewing() as subject:
                from chargehand.models.offline.reviewing import review  # noqa: PLC0415 - seldom needed

                return Reply(review(subject))
            case Working() as subject:
                return _worked(subject, request)


def _led(subject: Routing | Speaking | Ledger | Splitting, embedder: Embedder | None) -> str:
    """What the ways of leading other than by a whole plan ask for."""
    match subject:
        case Routing():
            from chargehand.models.offline.routing import choose  # noqa: PLC0415 - few teams are routed

            return choose(subject, embedder)
        case Speaking():
            from chargehand.models.offline.speaking import speak  # noqa: PLC0415 - few teams talk

            return speak(subject, embedder)
        case Ledger():
            from chargehand.models.offline.ledger import stand  # noqa: PLC0415 - few teams are led step by step

            return stand(subject, embedder)
        case Splitting():
            from chargehand.models.offline.splitting import split  # noqa: PLC0415 - few teams split

            return split(subject, embedder)


def _worked(subject: Working, request: Request) -> Reply:
    if subject.chat_turns:  # they stand in the subject, too: what is said in this task comes after them
        messages = (request.messages[0], *request.messages[1 + subject.chat_turns :])
        request = msgspec.structs.replace(request, messages=messages)
    first = subject.inputs[0].value if subject.inputs and request.schema is None else None
    if isinstance(first, dict) and cast("dict[str, object]", first).get("kind") == "turn":
        from chargehand.models.offline.housekeeping import look_back  # noqa: PLC0415 - few work in the background

        return look_back(subject, request.messages, request.tools)
    from chargehand.models.offline.work import work  # noqa: PLC0415 - text-to-SQL is not needed to plan

    if any(one.name.startswith(_MAIL) for one in request.tools):
        from chargehand.models.offline.delegating import delegate  # noqa: PLC0415 - few hand their tasks on

        handed = delegate(subject, request.messages, request.tools)
        if handed is not None:
            return handed
    made = work(subject, request.messages, request.tools, request.schema)
    if request.schema is None and any(one.name == "give_up" for one in made.calls):
        from chargehand.models.offline.reporting import report  # noqa: PLC0415 - the last resort

        return report(subject, request.messages, request.tools) or made
    return made


def _guessed(request: Request) -> Working:
    """Without a subject the last thing the user said is the task."""
    said = next((message.text for message in reversed(request.messages) if _from_user(message)), "")
    if not said.strip():
        raise ModelFailed(Failure("logic", "the offline model was asked nothing: give it a task", permanent=True))
    return Working(said, WorkerCard("worker", ""))


def _is_short(subject: Subject | None) -> bool:
    return subject is not None and len(text_of(subject)) <= _SHORT


def _from_user(message: Message) -> bool:
    return message.role == "user"
