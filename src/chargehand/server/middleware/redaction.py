"""Secrets out of what is written and logged: every one that is known, also encoded, and what has the shape of a key.

What a run uses is what its journal holds. A resumed run reads the journal: had the first try used another text, the
resumed one would make other calls, and effects might happen twice. So results are cleaned before they are recorded,
and used as recorded.
"""

import base64
import logging
import re
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar, Unpack
from urllib.parse import quote

import msgspec
from msgspec import Raw, structs

from chargehand.code_errors import failure_of
from chargehand.engine import events as ev
from chargehand.engine.owed import Brief
from chargehand.engine.plan import Task
from chargehand.engine.state import TextKind
from chargehand.engine.value import decode_value, encode_value
from chargehand.journal.protocol import Journal, JournalProxy, Lease
from chargehand.models.messages import Message, Reply, drop_changed_parts
from chargehand.models.providers import OTHERS, OWN, key_variable
from chargehand.models.resolve import Lookup
from chargehand.runtime.executor import (
    ContextProxy,
    Done,
    Executor,
    ExecutorProxy,
    Listener,
    NestedRequest,
    NestedRun,
    PromptMessage,
    Proposal,
    Refined,
    RunBounds,
    StepContext,
    StepOptions,
    WorkFailed,
)
from chargehand.server.settings import ServerSettings

_Value = TypeVar("_Value")
MARK = "[redacted]"
_MARK = MARK.encode()
_SHORTEST = 8
_PLAIN = 16  # of one kind of letter only: a shorter one may be a word

# The keys of providers, and tokens of ours: how each begins, and what follows.
_SHAPES = tuple(
    (start, re.compile(re.escape(start) + rest))
    for start, rest in (
        (b"sk-", rb"[A-Za-z0-9_-]{20,}"),
        (b"ch_", rb"[0-9a-f]{8}_[A-Za-z0-9_-]{43}"),
        (b"ghp_", rb"[A-Za-z0-9]{36,}"),
        (b"github_pat_", rb"[A-Za-z0-9_]{40,}"),
        (b"xox", rb"[abp]-[A-Za-z0-9-]{20,}"),
        (b"AKIA", rb"[A-Z0-9]{16}"),
        (b"AIza", rb"[A-Za-z0-9_-]{35}"),
        (b"hf_", rb"[A-Za-z0-9]{30,}"),
        (b"gsk_", rb"[A-Za-z0-9]{40,}"),
    )
)
# What stands between is base64, with headers where it is encrypted; line ends may stand there as JSON writes them. Of
# a key that is cut off, the lines that are headers or base64.
_PRIVATE_KEY = re.compile(
    rb"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
    rb"(?:(?:[A-Za-z0-9+/=:,.()@<> \t\r\n]|-(?!-)|\\++[nrt])*+-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
    rb"|(?:(?:[ \t\r\n]|\\++[nrt])*+(?:[A-Za-z0-9+/=]{16,}+"
    rb"|(?:Proc-Type|DEK-Info|Version|Comment|Hash|Charset|MessageID): [^\r\n\\\"]{0,200}+))*+)"
)
# one look for the beginnings of all of them costs less than one for each, and nearly always that is it
_ANY = re.compile(
    b"(?:"
    + b"|".join(re.escape(start) for start, _ in _SHAPES)
    + rb")[A-Za-z0-9_-]{16}|-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY"
)
_WORD = re.compile(rb"[A-Za-z0-9]")
_DIGIT = re.compile(rb"\d")
_ENCODER = msgspec.json.Encoder()
_TRACES = logging.Formatter()


class Redactor:
    """Knows secrets. `clean` is for text and for JSON alike: what is put in a secret's place fits both."""

    def __init__(self, secrets: Iterable[str]) -> None:
        texts = [secret.strip() for secret in secrets]
        # the longest first: one may stand inside another
        self._forms = tuple(
            sorted({form for secret in texts if _worth(secret) for form in forms(secret)}, key=len, reverse=True)
        )

    def clean(self, body: bytes) -> bytes:
        """The body without secrets; the very same one where there are none."""
        for form in self._forms:
            if form in body:
                body = body.replace(form, _MARK)
        if _ANY.search(body) is None:
            return body
        for start, shape in _SHAPES:
            if start in body and (cleaned := shape.sub(_shaped, body)) != body:
                body = cleaned
        return _PRIVATE_KEY.sub(_MARK, body)

    def value(self, value: _Value, shape: Any = None) -> _Value:
        """The same for anything that JSON carries; `shape` is how it is read back, where its type does not say it."""
        try:
            body = _ENCODER.encode(value)
        except (TypeError, ValueError, RecursionError):
            return value  # it cannot be encoded, so it cannot be written either
        cleaned = self.clean(body)
        return value if cleaned is body else msgspec.json.decode(cleaned, type=shape or type(value))

    def text(self, text: str) -> str:
        """The same for text; lone surrogates are kept."""
        body = text.encode("utf-8", "surrogatepass")
        cleaned = self.clean(body)
        return text if cleaned is body else cleaned.decode("utf-8", "surrogatepass")


def _worth(secret: str) -> bool:
    """Whether it can be told from a word; else half of everything would be taken for it."""
    return len(secret) >= (_PLAIN if secret.isalpha() and (secret.islower() or secret.isupper()) else _SHORTEST)


def _shaped(match: re.Match[bytes]) -> bytes:
    """Not within a word (`task-…`), and not without a digit, as names are."""
    body = match.string
    at = match.start()
    if (at and _WORD.match(body, at - 1)) or not _DIGIT.search(match[0]):
        return match[0]
    return _MARK


def forms(secret: str) -> set[bytes]:
    """A secret as it may stand in a text: plain, in JSON inside JSON, in a URL, in base64 at any of three offsets."""
    plain = secret.encode("utf-8", "replace")
    spellings = {plain, quote(secret, safe="", errors="replace").encode(), quote(secret, errors="replace").encode()}
    escaped = plain.decode()
    for _ in range(3):
        escaped = _ENCODER.encode(escaped)[1:-1].decode()
        spellings.add(escaped.encode())
    spellings |= {re.sub(rb"%[0-9A-F]{2}", lambda match: match[0].lower(), form) for form in tuple(spellings)}
    for offset in range(3):
        coded = base64.b64encode(b"\0" * offset + plain)
        # characters that hold bits of what stands before or behind are another each time
        inner = coded[(0, 2, 3)[offset] : len(coded) - (0, 3, 2)[(offset + len(plain)) % 3]]
        if len(inner) >= _SHORTEST:
            spellings |= {inner, inner.translate(bytes.maketrans(b"+/", b"-_"))}
    return spellings


@contextmanager
def clean_logs(redactor: Redactor) -> Generator[None]:
    """While it is open, every record that this process logs is cleaned as it is made, tracebacks as well."""
    before = logging.getLogRecordFactory()

    def make_record(*parts: Any, **more: Any) -> logging.LogRecord:
        record = before(*parts, **more)
        _clean_record(record, redactor)
        return record

    logging.setLogRecordFactory(make_record)
    try:
        yield
    finally:
        if logging.getLogRecordFactory() is make_record:
            logging.setLogRecordFactory(before)


def _clean_record(record: logging.LogRecord, redactor: Redactor) -> None:
    try:
        message = record.getMessage()
    except (TypeError, ValueError, KeyError):  # who logged it got it wrong, and is told so where it is written
        return
    cleaned = redactor.text(message)
    if cleaned is not message:
        record.msg = cleaned
        record.args = ()
    if record.exc_info and record.exc_info[0] is not None:
        record.exc_text = redactor.text(_TRACES.formatException(record.exc_info))


# --- journal, executor and step context without secrets


_Shape = TypeVar("_Shape")
_LONGEST_WORD = 512
_OPEN_END = re.compile(rf"[!-~]{{1,{_LONGEST_WORD}}}\Z")
"""The last word so far: it may go on, and then be a secret."""
_KEY_BEGINS = "-----BEGIN "
_KEY_ENDS = "-----END "
_LONGEST_KEY = 16 * 1024


class RedactedJournal(JournalProxy):
    """A journal that writes no secrets."""

    def __init__(self, journal: Journal, redactor: Redactor) -> None:
        super().__init__(journal)
        self._redactor = redactor

    async def create(self, run: str, entries: Sequence[ev.Entry]) -> None:
        await super().create(run, [self._clean_entry(entry) for entry in entries])

    async def append(self, lease: Lease, entries: Sequence[ev.Entry]) -> None:
        """The last safeguard: nearly all entries are clean already."""
        await super().append(lease, [self._clean_entry(entry) for entry in entries])

    def _clean_entry(self, entry: ev.Entry) -> ev.Entry:
        event = self._redactor.value(entry.event)
        return entry if event is entry.event else structs.replace(entry, event=event)


def redactor_of(settings: ServerSettings, lookup: Lookup) -> Redactor:
    """A redactor that knows the server's token, the operator's secrets, and the keys of every provider."""
    variables = {provider.key for provider in OWN.values()} | {key_variable(name) for name in OTHERS}
    return Redactor((settings.token, *settings.secrets, *(lookup(name) or "" for name in sorted(variables))))


class RedactedExecutor(ExecutorProxy):
    """An executor whose context, results and failures hold no secrets."""

    def __init__(self, executor: Executor, redactor: Redactor, listeners: Sequence[Listener] = ()) -> None:
        super().__init__(executor)
        self._redactor = redactor
        self._listeners = listeners
        self._nested: dict[Executor, RedactedExecutor] = {}

    @property
    def listeners(self) -> Sequence[Listener]:
        return (*self._executor.listeners, *self._listeners)

    def team_of(self, worker: str) -> Executor | None:
        executor = self._executor.team_of(worker)
        return None if executor is None else self.wrap_nested(executor)

    def wrap_nested(self, executor: Executor) -> Executor:
        """The executor of a team inside the team: the same one for each of its runs."""
        return self._nested.setdefault(executor, RedactedExecutor(executor, self._redactor))

    async def plan(self, brief: Brief, context: StepContext) -> Proposal:
        return self._redactor.value(await self._execute(self._executor.plan, brief, context))

    async def attempt(self, brief: Brief, context: StepContext) -> Done:
        return self._clean_done(await self._execute(self._executor.attempt, brief, context))

    async def refine(self, brief: Brief, context: StepContext) -> Refined:
        refined = await self._execute(self._executor.refine, brief, context)
        return structs.replace(refined, instruction=self._redactor.text(refined.instruction))

    async def answer(self, brief: Brief, context: StepContext) -> Done:
        return self._clean_done(await self._execute(self._executor.answer, brief, context))

    def _clean_done(self, done: Done) -> Done:
        """Clean every field: all of them are recorded and shown."""
        body = bytes(encode_value(done.value))
        clean_body = self._redactor.clean(body)
        rest = structs.replace(done, value=None)
        clean_rest = self._redactor.value(rest)
        if clean_body is body and clean_rest is rest:
            return done
        return structs.replace(clean_rest, value=decode_value(clean_body))

    async def _execute(
        self, duty: Callable[[Brief, StepContext], Coroutine[Any, Any, _Shape]], brief: Brief, context: StepContext
    ) -> _Shape:
        redacted = RedactedContext(context, self._redactor, self.wrap_nested)
        try:
            return await duty(brief, redacted)
        except WorkFailed as error:
            findings = tuple(map(self._redactor.value, error.findings))
            raise WorkFailed(self._redactor.value(error.failure), error.used, findings, error.refused) from error
        except Exception as error:
            failure = failure_of(error)
            cleaned = self._redactor.value(failure)
            if cleaned is not failure:
                raise WorkFailed(cleaned) from None
            raise
        finally:
            redacted.flush()


class RedactedContext(ContextProxy):
    """A step context that cleans the result of each call before it is recorded and used."""

    __slots__ = ("_kind", "_redactor", "_unsaid", "_wrap_nested")

    def __init__(self, context: StepContext, redactor: Redactor, wrap_nested: Callable[[Executor], Executor]) -> None:
        super().__init__(context)
        self._redactor = redactor
        self._wrap_nested = wrap_nested
        self._unsaid = ""
        self._kind: TextKind = "answer"

    async def step(
        self,
        name: str,
        call: Callable[[str], Awaitable[Done]],
        *,
        shape: type[_Shape] = object,
        **options: Unpack[StepOptions],
    ) -> _Shape:
        async def clean_call(key: str) -> Done:
            done = await call(key)
            self.flush()
            whole = bytes(encode_value(done.value))
            body = self._redactor.clean(whole)
            if body is not whole and isinstance(done.value, Reply):
                clean_reply = drop_changed_parts(done.value, msgspec.json.decode(body, type=Reply))
                body = bytes(encode_value(clean_reply))
            return structs.replace(done, value=Raw(body))

        return await super().step(name, clean_call, shape=shape, **options)

    async def start_run(self, key: str, nested: NestedRequest) -> NestedRun:
        def make_request(bounds: RunBounds) -> ev.RunRequested:
            return self._redactor.value(nested.request(bounds))

        executor = None if nested.executor is None else self._wrap_nested(nested.executor)
        clean = structs.replace(nested, request=make_request, executor=executor)
        return await super().start_run(key, clean)

    def prompt(self, model: str, messages: Sequence[PromptMessage], tools: tuple[str, ...] = ()) -> None:
        super().prompt(model, self._redactor.value(tuple(messages), tuple[Message, ...]), tools)

    def say(self, text: str, kind: TextKind = "answer", /) -> None:
        """Pass on whole words only: half a secret is not recognised."""
        if kind != self._kind:
            self.flush()
            self._kind = kind
        unsaid = self._unsaid + text
        open_word = _OPEN_END.search(unsaid, max(0, len(unsaid) - _LONGEST_WORD))
        cut = _open_key(unsaid[: open_word.start()] if open_word else unsaid)
        self._unsaid = unsaid[cut:]
        if cut:
            super().say(self._redactor.text(unsaid[:cut]), kind)

    def flush(self) -> None:
        """Pass on the word that was kept back."""
        unsaid = self._unsaid
        self._unsaid = ""
        if unsaid:
            super().say(self._redactor.text(unsaid), self._kind)

    async def grow(self, tasks: Sequence[Task]) -> None:
        await super().grow(self._redactor.value(tuple(tasks), tuple[Task, ...]))

    def note(self, text: str, failure: ev.Failure | None = None, fact: ev.NotedFact | None = None) -> None:
        super().note(self._redactor.text(text), self._redactor.value(failure), self._redactor.value(fact, ev.NotedFact))


def _open_key(text: str) -> int:
    """Where a PEM block begins that has not come to its end; the end of the text where there is none."""
    start = text.rfind(_KEY_BEGINS)
    if start < 0 or len(text) - start > _LONGEST_KEY:
        return len(text)
    end = text.find(_KEY_ENDS, start)
    is_whole = end >= 0 and "-----" in text[end + len(_KEY_ENDS) :]
    return len(text) if is_whole else start
