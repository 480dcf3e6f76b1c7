"""Models for tests without a network and without a key: one that follows a script, and one that replays a recording.

Calls are recorded in a file as JSON lines. A recorded call is looked up by what it asks: the subject of the request,
the tool calls and results so far, the names of the tools. The wording of prompts does not count, so a recording
outlives a change of a prompt; neither do ids and times, which differ with every run.
"""

import asyncio
import hashlib
import inspect
import os
import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias, cast

import msgspec
from msgspec import Struct, structs

from chargehand.engine.failure import Failure
from chargehand.engine.policy import Seconds
from chargehand.errors import Invalid
from chargehand.models.messages import Message, Reply, Request, Usage, thought_text, ways_to_answer
from chargehand.models.model import Hear, Model, ModelCard, ModelFailed
from chargehand.models.providers import RECORDED, RECORDING

Line: TypeAlias = Reply | str | Failure | ModelFailed
Script: TypeAlias = Sequence[Line] | Callable[[Request], Line | Awaitable[Line]]

_WORDS = re.compile(r"\S+\s*|\s+")


class ScriptedModel:
    """Replies from a list, in turn, or from a function of the request (plain or async).

    A string is a reply of that text; a `Failure` or `ModelFailed` fails the call. A list that has run out fails
    clearly, unless `repeat` says to go on with its last line. `latency` is waited before each reply; `micros` is what a
    reply costs (in millionths of a dollar) and `usage` what it used, where the reply does not say so itself. `faults`
    are failures by number of the call, counted from 1, and come before the script: the line of that call is not used
    up. What it was asked is in `requests`.

        model = ScriptedModel([Reply(calls=(ToolCall("1", "add", '{"a": 2, "b": 2}'),), finish="tools"), "It is 4."])
        model = ScriptedModel(lambda request: f"you said {request.messages[-1].text}", latency=0.05)
        model = ScriptedModel(["fine"], faults={1: Failure("network", "the line went dead")})
    """

    def __init__(
        self,
        script: Script,
        *,
        handle: str = "scripted",
        latency: Seconds = 0.0,
        micros: int | None = None,
        usage: Usage | None = None,
        faults: Mapping[int, Failure | ModelFailed] | None = None,
        repeat: bool = False,
        card: ModelCard | None = None,
    ) -> None:
        self._script = script
        self._card = card or ModelCard(handle, keeps_limit=True)
        self._latency = latency
        self._micros = micros
        self._usage = usage
        self._faults = dict(faults or {})
        self._repeat = repeat
        self._used = 0
        self.requests: list[Request] = []

    @property
    def card(self) -> ModelCard:
        return self._card

    async def reply(self, request: Request, hear: Hear | None = None) -> Reply:
        self.requests.append(structs.replace(request, messages=tuple(request.messages)))  # the caller's list grows
        fault = self._faults.get(len(self.requests))
        if self._latency:
            await asyncio.sleep(self._latency)
        line = fault if fault is not None else await self._line(request)
        if isinstance(line, Failure):
            raise ModelFailed(line)
        if isinstance(line, ModelFailed):
            raise line
        reply = self._priced(Reply(line) if isinstance(line, str) else line)
        if hear is not None:
            _tell(reply, hear)
        return reply

    async def _line(self, request: Request) -> Line:
        if not callable(self._script):
            return self._next(self._script)
        line = self._script(request)
        return await line if inspect.isawaitable(line) else line

    def _next(self, lines: Sequence[Line]) -> Line:
        number = self._used
        self._used += 1
        if number < len(lines):
            return lines[number]
        if self._repeat and lines:
            return lines[-1]
        message = f"the script of {self._card.handle} holds {len(lines)} replies and is asked for one more; add a line"
        return Failure("logic", message, permanent=True)

    def _priced(self, reply: Reply) -> Reply:
        usage = self._usage if reply.usage is None else reply.usage
        micros = self._micros if reply.micros is None else reply.micros
        if usage is reply.usage and micros is reply.micros and reply.model:
            return reply
        return structs.replace(reply, usage=usage, micros=micros, model=reply.model or self._card.handle)


def _tell(reply: Reply, hear: Hear) -> None:
    """Tell thoughts, then the answer, word by word."""
    for word in _WORDS.findall(thought_text(reply.kept)):
        hear(word, "thought")
    for word in _WORDS.findall(reply.text):
        hear(word)


# --- recorded calls


_VOLATILE = re.compile(
    r"(?<=<data )[0-9a-f]{4,}|(?<=</data )[0-9a-f]{4,}"
    r"|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    r"|(?<=-)[0-9a-f]{8}(?![0-9A-Za-z-])"
    r"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d[\d:.]{0,12}(?:Z|[+-]\d\d:?\d\d)?"
)
"""What differs with every run: delimiters of data, ids, generated names of runs, and times."""
_SHOWN = 160  # characters of a request that are kept for people
_CARDS = ("workers", "skills")
_MODE = 0o600  # prompts may hold what only the owner may read


class RecordedCall(Struct, frozen=True, omit_defaults=True):
    """One line of a recording: the reply to a request, or the failure that came of it."""

    digest: str = ""
    asked: str = ""
    """How the request begins, for people who read the file."""
    card: ModelCard | None = None
    """What was known of the model; in the first line that a Recorder writes."""
    reply: Reply | None = None
    failure: Failure | None = None
    usage: Usage | None = None
    billed: bool = True


_CALL = msgspec.json.Decoder(RecordedCall)
_json = msgspec.json.encode


def digest(request: Request) -> str:
    """The same for requests that ask the same, whenever they are made and however their prompts are worded."""
    facts = {
        "subject": None if request.subject is None else _subject_facts(request),
        "messages": [_message_facts(message) for message in request.messages if _counts(message, request)],
        "tools": sorted(tool.name for tool in request.tools),
        "has_schema": request.schema is not None,
        "temperature": request.settings.temperature,
    }
    if request.provider_tools:
        facts["provider_tools"] = request.provider_tools
    if ways := ways_to_answer(request.settings):
        facts["settings"] = ways
    text = _VOLATILE.sub("", _json(facts, order="deterministic").decode())
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _subject_facts(request: Request) -> object:
    """The subject of a request, with the names of workers and tools in place of their cards."""
    facts = cast("dict[str, object]", msgspec.json.decode(_json(request.subject)))
    for field in _CARDS:
        if field in facts:
            facts[field] = [card["name"] for card in cast("list[dict[str, object]]", facts[field])]
    worker = facts.get("worker")
    if isinstance(worker, dict):
        facts["worker"] = cast("dict[str, object]", worker)["name"]
    return facts


def _counts(message: Message, request: Request) -> bool:
    """Whether a message is more than the wording of a subject: a call of a tool, or its result."""
    return request.subject is None or message.role in ("assistant", "tool")


def _message_facts(message: Message) -> list[object]:
    calls = [[call.name, call.arguments] for call in message.calls]
    return [message.role, message.text, calls]


class Recorder:
    """Passes every call on to `model` and adds it to the file at `path`, which only its owner may read.

    `secrets` are strings that are not written down even where they occur in a prompt or a reply.
    """

    def __init__(self, model: Model, path: Path, *, secrets: Collection[str] = ()) -> None:
        self._model = model
        self._path = path
        self._secrets = secrets
        self._has_written = False

    @property
    def card(self) -> ModelCard:
        return self._model.card

    async def reply(self, request: Request, hear: Hear | None = None) -> Reply:
        try:
            reply = await self._model.reply(request, hear)
        except ModelFailed as error:
            self._write(request, RecordedCall(failure=error.failure, usage=error.usage, billed=error.billed))
            raise
        self._write(request, RecordedCall(reply=reply))
        return reply

    def _write(self, request: Request, outcome: RecordedCall) -> None:
        call = structs.replace(
            outcome,
            digest=digest(request),
            asked=_describe_request(request, self._secrets),
            card=None if self._has_written else self.card,
        )
        line = _json(call)
        for secret in filter(None, self._secrets):
            line = line.replace(_json(secret)[1:-1], b"[secret]")
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, _MODE)
        except OSError as error:
            raise Invalid(f"{self._path} cannot be written ({error.strerror}); record to another file") from error
        with os.fdopen(descriptor, "ab", buffering=0) as file:
            file.write(line + b"\n")  # one write: lines of calls that end together do not mix
        self._has_written = True


class Replayer:
    """Answers from a file that a Recorder wrote, in whatever order it is asked. No model is called.

    What was asked more than once is answered as it was, one after the other; the last answer then repeats. A request
    that is not in the file fails, permanently, and the failure says how it begins.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._calls: dict[str, list[RecordedCall]] = {}
        card: ModelCard | None = None
        for number, line in enumerate(_read_lines(path), 1):
            try:
                call = _CALL.decode(line)
            except (ValueError, RecursionError) as error:
                raise Invalid(f"{path}, line {number}: this is no recorded call ({error}); record it again") from error
            card = card or call.card
            self._calls.setdefault(call.digest, []).append(call)
        if card is None:
            raise Invalid(f"{path} holds no recorded calls; record some with --model {RECORDING}:{path}#MODEL")
        notice = f"Nothing was asked of a model: its replies were replayed from {path.name}."
        self._card = structs.replace(
            card,
            handle=f"{RECORDED}:{path}",
            notice=notice,
            micros_in=card.micros_in or 0.0,
            micros_out=card.micros_out or 0.0,
            in_process=True,
            free=True,
        )

    @property
    def card(self) -> ModelCard:
        return self._card

    async def reply(self, request: Request, hear: Hear | None = None) -> Reply:
        calls = self._calls.get(digest(request))
        if calls is None:
            description = f"{_describe_request(request)!r}"
            message = f"{self._path} holds no reply to {description}; record it again (docs/testing-teams.md)"
            raise ModelFailed(Failure("logic", message, permanent=True), billed=False)
        call = calls.pop(0) if len(calls) > 1 else calls[0]
        if call.reply is None:
            failure = call.failure or Failure("logic", "the recording says only that it failed")
            raise ModelFailed(failure, call.usage, billed=call.billed)
        if hear is not None:
            _tell(call.reply, hear)
        return call.reply


def _describe_request(request: Request, secrets: Collection[str] = ()) -> str:
    """What a request is and how it begins, without secrets."""
    subject = request.subject
    text = request.messages[-1].text if request.messages else ""
    if subject is not None:
        text = str(getattr(subject, "instruction", "") or getattr(subject, "goal", ""))
    for secret in filter(None, secrets):
        text = text.replace(secret, "[secret]")
    kind = type(subject).__name__.lower() if subject is not None else "call"
    step = sum(message.role == "assistant" for message in request.messages)
    return f"{kind}{f', step {step + 1}' if step else ''}: {' '.join(text.split())[:_SHOWN]}"


def _read_lines(path: Path) -> list[bytes]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise Invalid(f"{path} cannot be read ({error.strerror}); name a file that was recorded") from error
    return [line for line in content.split(b"\n") if line]
