"""`chargehand doctor --ask MODEL`: one real call, and what came of it."""

import asyncio
import os
import sys
import time

from msgspec import Struct

from chargehand.cli.console import Console, clean
from chargehand.cli.format import counted, dollars
from chargehand.models.code_errors import model_failed
from chargehand.models.failed import headline
from chargehand.models.find import Finder
from chargehand.models.guard import Guarded
from chargehand.models.messages import Message, Reply, Request, Settings, Usage
from chargehand.models.model import Model
from chargehand.terms.failure import Failure
from chargehand.terms.policy import Retry, Seconds

_REQUEST = Request((Message("user", "Reply with the word ok and nothing else."),), settings=Settings(max_tokens=256))
_ONCE = Retry(attempts=1)


class Asked(Struct, frozen=True):
    """What one call of a model came to: a reply, or a failure."""

    model: str
    ok: bool
    seconds: Seconds
    usage: Usage | None = None
    micros: int | None = None
    failure: Failure | None = None

    def line(self) -> str:
        """What happened, in one line."""
        if self.failure is not None:
            refusal = self.failure.refusal
            return f"error: {headline(refusal)}" if refusal is not None else f"error: {self.failure.message}"
        said = [f"answered in {self.seconds:.2f} s"]
        if self.usage is not None:
            said.append(f"{counted(self.usage.input, 'token')} in, {self.usage.output:,} out")
        said.append("cost unknown" if self.micros is None else dollars(self.micros))
        return f"ok  {self.model}  {', '.join(said)}"


async def ask_model(model: Model) -> Asked:
    """Make one call."""
    begun = time.monotonic()
    try:
        reply = await model.reply(_REQUEST)
    except Exception as error:  # noqa: BLE001 - whatever it raises is what is to be told
        return Asked(model.card.handle, ok=False, seconds=time.monotonic() - begun, failure=model_failed(error).failure)
    return _answered(model, reply, time.monotonic() - begun)


def _answered(model: Model, reply: Reply, seconds: Seconds) -> Asked:
    micros = reply.micros
    if micros is None and reply.usage is not None:
        micros = model.card.price(reply.usage.input, reply.usage.output)
    return Asked(model.card.handle, ok=True, seconds=seconds, usage=reply.usage, micros=micros)


async def _asked(handle: str) -> Asked:
    finder = Finder(os.environ.get)
    try:
        model = finder.find(handle, retry=_ONCE)
        if isinstance(model, Guarded):
            await model.prepare()
        return await ask_model(model)
    finally:
        await finder.close()


def doctor_ask(handle: str, *, as_json: bool) -> int:
    """0 when the model answered, 1 when it did not; Invalid when there is no such model, or no key for it."""
    asked = asyncio.run(_asked(handle))
    console = Console(sys.stdout)
    if as_json:
        console.json(asked)
        return 0 if asked.ok else 1
    console.line(clean(asked.line()), "good" if asked.ok else "bad")
    if asked.failure is not None and asked.failure.refusal is not None:
        console.line(f"    {clean(asked.failure.message)}")
    return 0 if asked.ok else 1
