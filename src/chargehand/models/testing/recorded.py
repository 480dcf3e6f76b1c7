"""Real traffic kept as JSON lines, and a model that answers from them. Keys are headers, and headers are not kept."""

import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Raw, Struct

from chargehand.errors import Invalid
from chargehand.models.messages import Reply, Request, Usage
from chargehand.models.model import Hear, Model, ModelCard, ModelFailed
from chargehand.terms.failure import Failure

_ENVELOPE = re.compile(r"(</?data )[0-9a-f]{4,}")  # the number that marks data differs with every run
_WORDS = re.compile(r"\S+\s*|\s+")


class Pair(Struct, frozen=True, omit_defaults=True):
    """One line: what was asked, and the reply or the failure that came of it."""

    digest: str
    card: ModelCard
    request: Raw
    reply: Reply | None = None
    failure: Failure | None = None
    usage: Usage | None = None
    billed: bool = True


_PAIR = msgspec.json.Decoder(Pair)
_json = msgspec.json.encode


def digest(request: Request) -> str:
    """The same for the same question: what it is asked for matters, not when, nor how its schemas are laid out."""
    asked = {
        "messages": [
            [message.role, _ENVELOPE.sub(r"\1", message.text), message.call, message.calls]
            for message in request.messages
        ],
        "tools": sorted((tool.name, tool.description, _plain(tool.parameters)) for tool in request.tools),
        "schema": None if request.schema is None else _plain(request.schema),
        "temperature": request.settings.temperature,  # how long a reply may be goes by what is left of a budget
    }
    return hashlib.sha256(_json(asked, order="deterministic")).hexdigest()


def _plain(document: Raw) -> str:
    return _json(msgspec.json.decode(document), order="deterministic").decode()


class Recorder:
    """Passes every call on to `model` and adds it to the file at `path`, which only its owner may read.

    `secrets` are strings that must not be written down even where they occur in a prompt or a reply.
    """

    def __init__(self, model: Model, path: Path, *, secrets: Sequence[str] = ()) -> None:
        self._model = model
        self._path = path
        self._secrets = [_json(secret)[1:-1] for secret in secrets if secret]

    @property
    def card(self) -> ModelCard:
        return self._model.card

    async def reply(self, request: Request, hear: Hear | None = None) -> Reply:
        try:
            reply = await self._model.reply(request, hear)
        except ModelFailed as error:
            self._write(request, failure=error.failure, usage=error.usage, billed=error.billed)
            raise
        self._write(request, reply)
        return reply

    def _write(
        self,
        request: Request,
        reply: Reply | None = None,
        failure: Failure | None = None,
        usage: Usage | None = None,
        *,
        billed: bool = True,
    ) -> None:
        pair = Pair(
            digest=digest(request),
            card=self.card,
            request=Raw(_json(request)),
            reply=reply,
            failure=failure,
            usage=usage,
            billed=billed,
        )
        line = _json(pair)
        for secret in self._secrets:
            line = line.replace(secret, b"[secret]")
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "ab", buffering=0) as file:
            file.write(line + b"\n")  # one write: lines of calls that end together do not mix


class Replayer:
    """Answers from a file that a Recorder wrote, in whatever order it is asked.

    What was asked more than once is answered as it was, one after the other; the last answer then repeats.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, list[Pair]] = {}
        card: ModelCard | None = None
        for number, line in enumerate(_lines(path), 1):
            try:
                pair = _PAIR.decode(line)
            except (ValueError, RecursionError) as error:
                raise Invalid(f"{path}, line {number}: this is no recorded call ({error}); record it again") from error
            card = card or pair.card
            self._known.setdefault(pair.digest, []).append(pair)
        if card is None:
            raise Invalid(f"{path} holds no recorded calls; record some with a Recorder")
        self._card = card

    @property
    def card(self) -> ModelCard:
        return self._card

    async def reply(self, request: Request, hear: Hear | None = None) -> Reply:
        pairs = self._known.get(digest(request))
        if pairs is None:
            last = request.messages[-1].text[:80] if request.messages else ""
            message = f"{self._path} holds no answer to this request (it ends in {last!r}); record it again"
            raise ModelFailed(Failure("logic", message, permanent=True), billed=False)
        pair = pairs.pop(0) if len(pairs) > 1 else pairs[0]
        if pair.reply is None:
            failure = pair.failure or Failure("logic", "the recording says only that it failed")
            raise ModelFailed(failure, pair.usage, billed=pair.billed)
        if hear is not None:
            for word in _WORDS.findall(pair.reply.text):
                hear(word)
        return pair.reply


def _lines(path: Path) -> list[bytes]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise Invalid(f"{path} cannot be read ({error.strerror}); name a file that a Recorder wrote") from error
    return [line for line in content.split(b"\n") if line]
