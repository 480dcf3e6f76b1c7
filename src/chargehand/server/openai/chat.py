"""POST /v1/chat/completions: a conversation with a team, whole or as it comes.

A client that goes away stops nothing: the run goes on, and its name was told in a header.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from chargehand.server.api.reading import seen
from chargehand.server.openai.carried import Wanted, carried, settled
from chargehand.server.openai.conversation import conversation
from chargehand.server.openai.ear import Ear
from chargehand.server.openai.heard import Progress, Words, heard, seated
from chargehand.server.openai.models import called
from chargehand.server.openai.order import Order
from chargehand.server.openai.outcome import Spent, Told, told
from chargehand.server.openai.problem import RUN, AboutRun, enveloped, error_of
from chargehand.server.openai.sent import ChatSent, check_chat, turns
from chargehand.server.problem import problem_of
from chargehand.server.streams import event, streamed
from chargehand.server.tenants import Tenant
from chargehand.server.wire import body, reply

DONE = b"data: [DONE]\n\n"


class _Head(Struct, frozen=True):
    """What every chunk begins with. `usage`: whether it is wanted at the end, and so named in all of them."""

    id: str
    created: int
    model: str
    usage: bool


async def complete(request: Request, tenant: Tenant) -> Response:
    sent = await body(request, ChatSent)
    check_chat(sent)
    whom = called(tenant, sent.model)
    wanted = Wanted(whom, conversation(turns(sent.messages, "messages"), "messages"), Order(whom.id, whom.worker))
    if not sent.stream:
        run = await carried(request, tenant, sent, wanted)
        try:
            came = told(await settled(tenant, run))
        except AboutRun as problem:  # told here: nothing is wrong with the server
            return enveloped(problem)
        return reply(_whole(await _head(tenant, run, sent), came), headers={RUN: run})
    slot = tenant.runs.take_stream_slot()
    ear = Ear(tenant, whom.aloud)
    run = await carried(request, tenant, sent, wanted, ear)
    parts = _stream(tenant, run, ear, await _head(tenant, run, sent), whom.team.notice)
    return streamed(seated(parts, slot), every=tenant.settings.pulse, headers={RUN: run})


async def _head(tenant: Tenant, run: str, sent: ChatSent) -> _Head:
    began = (await seen(tenant, run)).entries[0].at
    usage = bool(sent.stream_options and sent.stream_options.include_usage)
    return _Head(f"chatcmpl-{run}", int(began), sent.model, usage)


def _whole(head: _Head, came: Told) -> dict[str, object]:
    message = {"role": "assistant", "content": came.text, "refusal": None}
    choice = {"index": 0, "message": message, "finish_reason": came.finish, "logprobs": None}
    return {
        "id": head.id,
        "object": "chat.completion",
        "created": head.created,
        "model": head.model,
        "choices": [choice],
        "usage": usage_of(came.spent),
        "chargehand": {"run": came.run, "ending": came.ending},
    }


def usage_of(spent: Spent) -> dict[str, object]:
    return {"prompt_tokens": spent.input, "completion_tokens": spent.output, "total_tokens": spent.total}


async def _stream(tenant: Tenant, run: str, ear: Ear, head: _Head, notice: str) -> AsyncGenerator[bytes]:
    yield _chunk(head, {"role": "assistant", "content": ""})
    if notice:
        yield _chunk(head, {"reasoning_content": f"{notice}\n"})
    spoke = False
    async with aclosing(heard(tenant, run, ear)) as parts:
        try:
            async for one in parts:
                if isinstance(one, Progress):
                    if not spoke:  # an answer that has begun is not interrupted
                        yield _chunk(head, {"reasoning_content": one.text})
                elif isinstance(one, Words):
                    spoke = True
                    yield _chunk(head, {"content": one.text})
                else:
                    yield _chunk(head, {}, one.finish)
                    if head.usage:
                        yield _last(head, one)
        except Exception as error:  # noqa: BLE001 - the status was sent long ago, so it is said in the stream
            yield event({"error": error_of(problem_of(error))})
    yield DONE


def _chunk(head: _Head, delta: dict[str, str], finish: str | None = None) -> bytes:
    choice: dict[str, object] = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
    return _event(head, [choice], {"usage": None} if head.usage else {})


def _last(head: _Head, came: Told) -> bytes:
    return _event(head, [], {"usage": usage_of(came.spent)})


def _event(head: _Head, choices: list[dict[str, object]], more: dict[str, object]) -> bytes:
    kind = "chat.completion.chunk"
    told = {"id": head.id, "object": kind, "created": head.created, "model": head.model, "choices": choices}
    return event({**told, **more})
