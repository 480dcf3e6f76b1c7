"""Trials of a model: small real calls, one after another, that show what works with it, and what each of them cost."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from struct import pack
from typing import Literal, TypeAlias
from zlib import compress, crc32

import msgspec
from msgspec import Raw, Struct, structs

from chargehand.engine.failure import Failure
from chargehand.engine.json_schema import problems
from chargehand.models.messages import Document, Image, Message, Reply, Request, Settings, ToolSpec, Usage
from chargehand.models.model import Model, ModelCard, ModelFailed, model_failed
from chargehand.models.token_count import TokenRates, measure_request

TrialState: TypeAlias = Literal["ok", "failed", "unsupported", "skipped"]

MAX_MICROS = 100_000
"""What all trials of a model may cost unless something else is said: ten cents."""
_MOST_TOKENS = 1_024  # of a reply, thinking included
_SETTINGS = Settings(max_tokens=_MOST_TOKENS)
_LOW = Settings(max_tokens=2 * _MOST_TOKENS, effort="low")
_SHOWN = 60
_OTHER_MODEL = "name another model, or see what its server does with a plain request"
_NO_PDFS = (
    "it is not known to take PDFs at this address, so it is sent their text; if it takes them: "
    "find_model(HANDLE, os.environ.get, documents=True), in Python"
)
_NO_LANGUAGE = "it reads no instructions: no language model is asked"


class TrialResult(Struct, frozen=True):
    """What came of one trial."""

    what: str
    state: TrialState
    """`unsupported`: the model has no such feature, by its card. `skipped`: nothing was sent."""
    message: str
    todo: str = ""
    """What to do next; empty where there is nothing to do."""
    input: int = 0
    """Tokens it read, as far as the provider counted them."""
    output: int = 0
    """Tokens it wrote."""
    seconds: float = 0.0
    micros: int | None = 0
    """Millionths of a dollar; None where that is not known."""


class TrialFailed(Exception):
    """A reply that is none of use: why, and what to do next."""

    def __init__(self, message: str, todo: str = "") -> None:
        self.todo = todo
        super().__init__(message)


class TooExpensive(Exception):
    """A call that might cost more than is left; it was not made."""


class MeteredCalls:
    """Calls of a model that together cost no more than a cap, as far as its price is known."""

    def __init__(self, model: Model, max_micros: int) -> None:
        self._model = model
        self._max_micros = max_micros
        self._rates = TokenRates()
        self.usage = Usage()
        self.micros = 0
        self.is_cost_known = True

    async def ask(self, request: Request) -> Reply:
        """Make one call.

        Raises:
            TooExpensive: it might cost more than is left.
            ModelFailed: it did not work out.
        """
        most = self._most(request)
        if self.micros + most > self._max_micros:
            raise TooExpensive
        try:
            reply = await self._model.reply(request)
        except Exception as error:
            failed = model_failed(error)
            if failed.sent and failed.billed:
                self._settle(failed.usage, None, most)
            raise failed from error
        self._settle(reply.usage, reply.micros, most, reply.tier)
        return reply

    def _most(self, request: Request) -> int:
        """Return the most that a call can cost; 0 where its price is not known."""
        read = self._rates.bound(measure_request(request))
        return self._model.card.highest_price(read, request.settings.max_tokens or _MOST_TOKENS) or 0

    def _settle(self, usage: Usage | None, micros: int | None, most: int, tier: str = "") -> None:
        """Count what a call used. One of unknown cost takes what it may have cost from what is left."""
        if usage is not None:
            self.usage += usage
            micros = self._model.card.price(usage, tier) if micros is None else micros
        self.is_cost_known = self.is_cost_known and micros is not None
        self.micros += most if micros is None else micros


class Trial(Struct, frozen=True):
    """One thing that is tried."""

    what: str
    run: Callable[[Model, MeteredCalls], Awaitable[str]]
    """Makes the calls and returns what came of them. Raises TrialFailed where the reply is of no use."""
    problem: Callable[[ModelCard], str] = lambda _: ""
    """Says why nothing is tried, by the card of the model; empty: it is tried."""
    todo: str = ""
    """What to do where the model refuses it."""


async def try_model(
    model: Model, *, max_micros: int = MAX_MICROS, trials: "Sequence[Trial] | None" = None
) -> AsyncIterator[TrialResult]:
    """Yield what came of each trial as it ends. Where the first fails, the others are not tried.

    Args:
        model: What is tried.
        max_micros: Millionths of a dollar that all calls together may cost. A model of unknown price is tried all the
            same: its replies are short.
        trials: What is tried; left out, everything.
    """
    calls = MeteredCalls(model, max_micros)
    failed = ""
    for number, trial in enumerate(TRIALS if trials is None else trials):
        if failed:
            yield TrialResult(trial.what, "skipped", f"{failed} failed, so this was not tried")
            continue
        if problem := _NO_LANGUAGE if model.card.reads_facts else trial.problem(model.card):
            yield TrialResult(trial.what, "unsupported", problem)
            continue
        result = await _run(trial, model, calls)
        if number == 0 and result.state == "failed":
            failed = trial.what
        yield result


async def _run(trial: Trial, model: Model, calls: MeteredCalls) -> TrialResult:
    usage = calls.usage
    micros = calls.micros
    calls.is_cost_known = True
    begun = time.monotonic()
    todo = ""
    try:
        message = await trial.run(model, calls)
        state: TrialState = "ok"
    except TooExpensive:
        state = "skipped"
        message = "it might cost more than is left of the cap"
        todo = "allow more: --max-usd"
    except TrialFailed as error:
        state = "failed"
        message = str(error)
        todo = error.todo or trial.todo
    except ModelFailed as error:
        state = "failed"
        message = failure_text(error.failure)
        todo = _next_step(error.failure, trial)
    return TrialResult(
        trial.what,
        state,
        message,
        todo,
        input=calls.usage.input - usage.input,
        output=calls.usage.output - usage.output,
        seconds=round(time.monotonic() - begun, 3),
        micros=calls.micros - micros if calls.is_cost_known else None,
    )


def failure_text(failure: Failure) -> str:
    """Return why a call failed, with what a person must change first."""
    return failure.message if failure.refusal is None else f"{failure.refusal.headline()} {failure.message}"


def _next_step(failure: Failure, trial: Trial) -> str:
    """What to do besides what the message says: a request that others were made like was refused for its feature."""
    is_about_request = failure.kind == "logic" if failure.refusal is None else failure.refusal.cause == "request"
    return trial.todo if is_about_request else ""


# --- what is tried


async def _try_text(_model: Model, calls: MeteredCalls) -> str:
    reply = await calls.ask(Request((Message("user", "Reply with the word ok and nothing else."),), settings=_SETTINGS))
    if reply.calls:
        raise TrialFailed(f"it called {reply.calls[0].name!r}, a tool it was not given", _OTHER_MODEL)
    return _checked(reply, f"it said {_short(reply.text)}")


_CODE = "K-4471"
_LOOK_UP = ToolSpec(
    "look_up",
    "Returns the code of a place.",
    Raw(
        b'{"type":"object","properties":{"place":{"type":"string"}},"required":["place"],"additionalProperties":false}'
    ),
)


async def _try_tool_round(model: Model, calls: MeteredCalls) -> str:
    """A tool is called and its result used; the model thinks a little, if it can, and gets its thoughts back."""
    order = "Call the tool look_up to find the code of Lisbon. Then reply with that code and nothing else."
    request = Request((Message("user", order),), tools=(_LOOK_UP,), settings=_LOW)
    first = await calls.ask(request)
    if not first.calls:
        raise TrialFailed(f"it called no tool; it said {_short(first.text)}")
    call = first.calls[0]
    if call.name != _LOOK_UP.name:
        raise TrialFailed(f"it called {call.name!r}, a tool it was not given")
    try:
        fault = next(iter(problems(msgspec.json.decode(call.arguments), msgspec.json.decode(_LOOK_UP.parameters))), "")
    except ValueError:
        fault = "no JSON"
    if fault:
        raise TrialFailed(f"the arguments of its call are wrong: {_short(fault)}")
    results = [Message("tool", f'{{"code": "{_CODE}"}}', call=each.id) for each in first.calls]
    last = await calls.ask(structs.replace(request, messages=(*request.messages, first.message(), *results)))
    if _CODE not in last.text:
        raise TrialFailed(f"it did not use the result {_CODE!r}; it said {_short(last.text)}")
    thought = "with thoughts that were sent back" if first.kept is not None else _thinking(first, last)
    notice = f" ({model.card.notice})" if model.card.notice else ""
    return _checked(last, f"it called the tool and used its result, {thought}{notice}")


def _thinking(*replies: Reply) -> str:
    thought = sum(reply.usage.reasoning for reply in replies if reply.usage is not None)
    return f"thinking {thought} tokens that are not shown" if thought else "without showing thoughts"


_SCHEMA = Raw(
    b'{"type":"object","properties":{"city":{"type":"string"},"country":{"type":"string"},'
    b'"inhabitants":{"type":"integer"}},"required":["city","country","inhabitants"],"additionalProperties":false}'
)


async def _try_schema(model: Model, calls: MeteredCalls) -> str:
    order = (
        f"Describe the capital of Portugal. Reply with JSON of this schema and nothing else: {bytes(_SCHEMA).decode()}"
    )
    reply = await calls.ask(Request((Message("user", order),), schema=_SCHEMA, settings=_LOW))
    try:
        fault = next(iter(problems(msgspec.json.decode(reply.text), msgspec.json.decode(_SCHEMA))), "")
    except ValueError:
        fault = f"it is no JSON: {_short(reply.text)}"
    if fault:
        raise TrialFailed(f"the reply does not fit the schema: {_short(fault)}")
    how = "it was held to the schema" if model.card.schema else "the schema was only told to it"
    return _checked(reply, f"the reply fits; {how}")


async def _try_picture(_model: Model, calls: MeteredCalls) -> str:
    image = Image("trial.png", "image/png", red_picture())
    order = Message("user", "Which colour does this picture have? Reply with one word.", images=(image,))
    reply = await calls.ask(Request((order,), settings=_SETTINGS))
    if "red" not in reply.text.lower():
        raise TrialFailed(f"the picture is red, and it said {_short(reply.text)}", "use a model that sees for pictures")
    return _checked(reply, "it saw that the picture is red")


def red_picture(side: int = 64) -> bytes:
    """Return a square of one colour as a PNG."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return pack(">I", len(data)) + kind + data + pack(">I", crc32(kind + data))

    rows = (b"\x00" + b"\xff\x00\x00" * side) * side
    header = pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", compress(rows)) + chunk(b"IEND", b"")


_ANIMAL = "ostrich"


async def _try_pdf(_model: Model, calls: MeteredCalls) -> str:
    document = Document("trial.pdf", "trial.pdf", data=one_page_pdf(f"This page is about the {_ANIMAL}."))
    order = Message("user", "Which animal is the page about? Reply with one word.", documents=(document,))
    reply = await calls.ask(Request((order,), settings=_SETTINGS))
    if _ANIMAL not in reply.text.lower():
        raise TrialFailed(f"the page is about the {_ANIMAL}, and it said {_short(reply.text)}")
    return _checked(reply, "it read the page")


def one_page_pdf(line: str) -> bytes:
    """Return a PDF of one page with one line of plain letters."""
    content = f"BT /F1 24 Tf 40 100 Td ({line}) Tj ET".encode()
    objects = (
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 500 200]/Contents 4 0 R/Resources<</Font<</F1 5 0 R>>>>>>",
        b"<</Length %d>>stream\n%b\nendstream" % (len(content), content),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    )
    file = b"%PDF-1.4\n"
    places: list[int] = []
    for number, body in enumerate(objects, 1):
        places.append(len(file))
        file += b"%d 0 obj\n%b\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    count = len(objects) + 1
    head = b"xref\n0 %d\n0000000000 65535 f \n%b" % (count, table)
    return file + head + b"trailer<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF\n" % (count, len(file))


def _checked(reply: Reply, message: str) -> str:
    """Return the message for a reply that came to its end; TrialFailed for any other."""
    if reply.finish == "refused":
        raise TrialFailed(f"it refused: {_short(reply.text)}", "name another model, or see the provider's rules")
    if reply.finish == "length":
        raise TrialFailed(
            "it was cut off: it wrote, or thought, too long", "give it a lower effort, or longer replies: max_tokens"
        )
    return message


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return repr(flat if len(flat) <= _SHOWN else f"{flat[:_SHOWN]}…")


TRIALS: tuple[Trial, ...] = (
    Trial("text", _try_text),
    Trial(
        "tool round",
        _try_tool_round,
        lambda card: "" if card.native_tools else "it calls no tools by itself; it is given a schema of actions",
        "if the model has no tools of its own: native_tools=False",
    ),
    Trial("schema", _try_schema, todo="if it cannot be held to a schema: schema=False"),
    Trial(
        "picture",
        _try_picture,
        lambda card: "" if card.images else "it is shown no pictures",
        "if the model sees no pictures: images=False",
    ),
    Trial(
        "PDF",
        _try_pdf,
        lambda card: "" if card.documents else _NO_PDFS,
        "if the model reads no PDFs: documents=False",
    ),
)
"""Everything that is tried, in order. All but the first are tried only where the first works."""
