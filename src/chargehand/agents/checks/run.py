"""An attempt whose result must pass checks: it is done, or it failed in words that help the next attempt."""

import inspect
import re
import subprocess
import sys
import unicodedata
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from functools import partial
from json import JSONDecoder
from typing import Any, TypeVar, Unpack, cast

import msgspec
from msgspec import Struct, structs

from chargehand.agents.audit.claims import describe, is_claiming, read_off_loop, size_of, unsupported
from chargehand.agents.checks import Checks, Reviewer, Rule, Verifier, describe_unknown
from chargehand.agents.inputs import read_inputs, result_text, today
from chargehand.agents.loop import Attempt
from chargehand.agents.nested import ONCE, Came
from chargehand.agents.roles import Worker
from chargehand.agents.setup import ReadyWorker
from chargehand.agents.shape import JsonShape, encode_schema, list_schema, one_line, text_schema
from chargehand.agents.spending import Spending
from chargehand.agents.writer import Writer
from chargehand.engine.budget import NOTHING
from chargehand.engine.facts import CheckRefusal, NotReviewed, ResultAccepted, ResultRefused
from chargehand.engine.failure import Failure
from chargehand.engine.owed import Brief
from chargehand.engine.plan import digest
from chargehand.engine.value import decode_value, encode_value
from chargehand.errors import ChargehandError, Invalid
from chargehand.models.artifacts import WorkerOutput
from chargehand.models.messages import Message, Request, new_nonce, wrap
from chargehand.models.model import Model
from chargehand.models.request_facts import Given, Reviewing
from chargehand.models.token_count import TokenRates
from chargehand.runtime.executor import ContextProxy, Done, StepContext, StepOptions, WorkFailed
from chargehand.text.citations import names_source
from chargehand.text.words import WORD
from chargehand.tools.calling import THREADS, GivenUp, capped
from chargehand.tools.tool import CAP, ToolFailed

# --- rules


_MAX_SEARCHED = 100_000  # characters of a result that a pattern is tried on
_CPU_SECONDS = 2.0  # that a pattern may compute
_MAX_SECONDS = 30.0  # for it, however busy the machine is
_ATTEMPT_SECONDS = 86400.0  # the attempt's own time ends a function long before
_DETERMINISTIC = re.compile(r"[^()|*+?{]*\Z")  # a pattern that can match in one way only
_SOURCE_KEY = re.compile(r"\.(?:source|url|citation|reference)s?(?:\.|$)")
_SEARCH = (
    "import json,re,signal,sys\n"
    "given=json.load(sys.stdin.buffer)\n"
    "if hasattr(signal,'setitimer'):\n signal.setitimer(signal.ITIMER_PROF,given['seconds'])\n"
    "print(int(re.search(given['pattern'],given['text'],re.MULTILINE) is not None))"
)


class CheckFailed(ChargehandError):
    """The check itself does not work: nothing is known of the result."""


class CheckedResult(Struct, frozen=True):
    """A result as checks see it: as plain data, as words, and as what its shape is read from."""

    value: object
    text: str
    json: str


def read_result(result: object) -> CheckedResult:
    """NotJson for what cannot be kept. Of a product the words are its text, else all that is outcome in it."""
    raw = encode_value(result)
    value = decode_value(raw)
    if isinstance(result, WorkerOutput):
        return CheckedResult(value, result.text, result.text)
    if isinstance(value, str):
        return CheckedResult(value, value, value)
    texts: list[str] = []
    for _, leaf in _leaves(value):
        if isinstance(leaf, bool):
            texts.append(str(leaf).lower())
        elif leaf is not None:
            texts.append(str(leaf))
    return CheckedResult(value, "\n".join(texts), bytes(raw).decode())


def _leaves(value: object) -> Iterator[tuple[str, object]]:
    """Each text, number and truth in some data, in order, with the keys it stands under."""
    stack: list[tuple[str, object]] = [("", value)]
    while stack:
        key, item = stack.pop()
        if isinstance(item, dict):
            table = cast("dict[str, object]", item)
            stack.extend((f"{key}.{name}", part) for name, part in reversed(table.items()))
        elif isinstance(item, list):
            stack.extend((key, part) for part in reversed(cast("list[object]", item)))
        else:
            yield key, item


async def check_rule(rule: Rule, result: CheckedResult) -> list[str]:
    """What a rule finds wrong with a result."""
    text = result.text
    plain = _normalize(text)
    problems = [f"{wanted!r} is not in it" for wanted in rule.wanted_words if _normalize(wanted) not in plain]
    words = sum(WORD.search(chunk) is not None for chunk in text.split())
    if words < rule.min_words:
        problems.append(f"it has {words} words; at least {rule.min_words} are wanted")
    if rule.max_words and words > rule.max_words:
        problems.append(f"it has {words} words; at most {rule.max_words} are wanted")
    if rule.cites and not _cites(result):
        problems.append("it names no source")
    if rule.has_number and re.search(r"\d", text) is None:
        problems.append("there is no number in it")
    if rule.matches and not await _matches(rule.matches, text[:_MAX_SEARCHED]):
        problems.append(f"nothing in it matches {rule.matches[:100]!r}")
    return problems


def _normalize(text: str) -> str:
    """A text as it is compared: however it is spaced and capitalized, and whether accents stand alone or not."""
    return " ".join(unicodedata.normalize("NFC", text).casefold().split())


def _cites(result: CheckedResult) -> bool:
    if names_source(result.text):
        return True
    return any(leaf and _SOURCE_KEY.search(keys) for keys, leaf in _leaves(result.value))


async def _matches(pattern: str, text: str) -> bool:
    """Whether a pattern is found. One that might take for ever is tried in a process that can be ended."""
    if _DETERMINISTIC.match(pattern):
        return re.search(pattern, text, re.MULTILINE) is not None

    def search() -> bool:
        question = msgspec.json.encode({"pattern": pattern, "text": text, "seconds": _CPU_SECONDS})
        command = [sys.executable, "-I", "-S", "-c", _SEARCH]
        done = subprocess.run(command, input=question, capture_output=True, timeout=_MAX_SECONDS, check=True)  # noqa: S603 - ours
        return done.stdout.strip() == b"1"

    try:
        return await THREADS.call(search, {}, 2 * _MAX_SECONDS)
    except (ToolFailed, GivenUp) as error:
        is_late = isinstance(error, GivenUp) or any(sign in str(error) for sign in ("timed out", "died with"))
        why = f"it was not done after {_CPU_SECONDS:g} s; write it more simply" if is_late else str(error)
        raise CheckFailed(f"the pattern {pattern[:80]!r} could not be tried: {why}") from error


def check_shape(wanted: type | dict[str, Any], result: CheckedResult) -> list[str]:
    """What of a result does not have this shape. Of a product its text is read, which must hold JSON."""
    try:
        shape = JsonShape(wanted)
    except (TypeError, ValueError) as error:
        raise CheckFailed(f"no schema can be made of it: {error}") from error
    try:
        shape.read(result.json)
    except Invalid as error:
        return [str(error)]
    except Exception as error:
        raise CheckFailed(f"{type(error).__name__}: {error}") from error
    return []


async def check_function(function: Callable[..., object], value: object) -> list[str]:
    """What a function of the user finds wrong with a result; CheckFailed where it does not work itself."""
    try:
        if inspect.iscoroutinefunction(function):
            outcome: object = await function(value)
        else:
            outcome = await THREADS.call(lambda: function(value), {}, _ATTEMPT_SECONDS)
            outcome = await outcome if inspect.isawaitable(outcome) else outcome
    except (ToolFailed, GivenUp) as error:
        raise CheckFailed(str(error)) from error
    except Exception as error:
        raise CheckFailed(f"{type(error).__name__}: {error}") from error
    if isinstance(outcome, str):
        return [outcome] if outcome.strip() else []
    if type(outcome).__name__ in ("bool", "bool_"):  # numpy has its own
        return [] if outcome else [""]
    raise CheckFailed(f"it returned {type(outcome).__name__}; return True or False, or in words what is wrong")


# --- reviews


FORM = '{"problems": ["…"], "accepted": true}'
_WINDOW_SHARE = 0.5  # that material and result may take
_MAX_PROBLEMS = 8
_MAX_PROBLEM = 300  # characters
_MAX_TRIES = 100  # places of a reply at which a verdict is looked for
# what is wrong comes first: a model that looks before it decides decides better
_SCHEMA = encode_schema(
    {
        "problems": list_schema(text_schema(_MAX_PROBLEM, min_length=1), _MAX_PROBLEMS),
        "accepted": {"type": "boolean"},
    }
)


class Verdict(Struct, frozen=True):
    """What a reviewer made of a result. `unsaid` is why there is no verdict; the result stands then."""

    accepted: bool = True
    problems: tuple[str, ...] = ()
    unsaid: str = ""


class Panel(Struct, frozen=True):
    """Who is asked: models to try in turn, their system prompt, and whose settings and estimate count."""

    models: Sequence[Model]
    system: str
    worker: Worker


class ReviewCase(Struct, frozen=True):
    """What is put before them. `material` is what there was to work from: inputs, and what tools returned."""

    brief: Brief
    result: CheckedResult
    material: tuple[Given, ...]


async def review(name: str, panel: Panel, case: ReviewCase, context: StepContext, spending: Spending) -> Verdict:
    """The verdict, as one journaled step: an attempt that is resumed does not pay for it twice."""
    size = len(case.result.text) + size_of(case.material) + len(case.brief.instruction)
    rates = spending.observations.of(panel.models[0]).rates
    request = _request(panel, case, await read_off_loop(size, find_doubts, case), rates)
    reservation = spending.reserve(panel.models, request, estimate=panel.worker.estimate)

    async def call(_key: str) -> Done:
        context.prompt(panel.models[0].card.handle, request.messages)
        try:
            reply, used = await spending.call(reservation, context)
        except WorkFailed as error:  # work that was done is not lost because it could not be reviewed
            return Done(Verdict(unsaid=error.failure.message[:_MAX_PROBLEM]), error.used, good=False)
        return Done(read_verdict(reply.text), used)

    # envelopes hold a new number each time, so what is asked is told by its parts
    inputs = [bytes(source.value or b"").decode() for source in case.brief.inputs]
    mark = digest(panel.system, case.brief.instruction, case.result.json, *inputs)
    return await spending.step(context, reservation, name, call, kind="check", request=mark, shape=Verdict)


def _request(panel: Panel, case: ReviewCase, doubts: Sequence[str], rates: TokenRates) -> Request:
    nonce = new_nonce()
    room = panel.models[0].card.window * _WINDOW_SHARE / (len(case.material) + 1)

    def cut(text: str) -> str:
        return capped(text, min(CAP, int(room * rates.bytes_per_token(text))))[0]

    parts = [f"Task: {case.brief.instruction}", today(case.brief)]
    for material in case.material:
        origin = material.task if material.from_tool else f"task {material.task}"
        parts.append(wrap(nonce, origin, cut(result_text(material.value, whole=True))))
    parts.append("The result:\n" + wrap(nonce, "result", cut(result_text(case.result.value))))
    if doubts:
        listed = "\n".join(f"- {doubt}" for doubt in doubts)
        parts.append(f"Word for word, this does not stand in the material (it may follow from it):\n{listed}")
    parts.append(f"Is the result acceptable? Reply with {FORM}")
    subject = Reviewing(
        instruction=case.brief.instruction,
        result=case.result.value,
        text=case.result.text,
        material=case.material,
        doubts=tuple(doubts),
    )
    messages = (Message("system", panel.system), Message("user", "\n\n".join(parts)))
    return Request(messages, schema=_SCHEMA, settings=panel.worker.settings, subject=subject)


def find_doubts(case: ReviewCase) -> tuple[str, ...]:
    """Numbers, addresses and quotations of a result that stand nowhere in what there was to work from."""
    if not case.material or not is_claiming(case.result.text):
        return ()
    statements = unsupported(case.result.text, case.material, [case.brief.instruction])
    return tuple(describe(statement) for statement in statements[:_MAX_PROBLEMS])


def read_verdict(text: str) -> Verdict:
    """What a reply says. Problems of one that accepts are remarks; one that only names problems does not accept.

    A reply may quote what stands in the result, a verdict even: if any in it refuses, it is refused.
    """
    verdicts = [verdict for table in _find_objects(text) if (verdict := _to_verdict(table)) is not None]
    if not verdicts:
        return Verdict(unsaid="the verdict could not be read: it does not say whether the result is accepted")
    return next((verdict for verdict in verdicts if not verdict.accepted), verdicts[-1])


def _find_objects(text: str) -> Iterator[dict[str, object]]:
    """All JSON objects that stand in a text, one behind the other."""
    decoder = JSONDecoder()
    start = text.find("{")
    for _ in range(_MAX_TRIES):
        if start < 0:
            return
        try:
            table, end = cast("tuple[dict[str, object], int]", decoder.raw_decode(text, start))
            yield table
        except (ValueError, RecursionError):
            end = start + 1
        start = text.find("{", end)


def _to_verdict(table: dict[str, object]) -> Verdict | None:
    listed = table.get("problems")
    items = cast("list[object]", listed) if isinstance(listed, list) else [listed]
    problems = [problem for item in items if (problem := one_line(item, _MAX_PROBLEM))]
    accepted = table.get("accepted")
    if isinstance(accepted, str):  # not every model is held to the schema
        accepted = {"true": True, "false": False}.get(accepted.strip().casefold())
    if not isinstance(accepted, bool) and not problems:
        return None
    return Verdict(accepted is True, tuple(problems[:_MAX_PROBLEMS]))


# --- checked attempts


_MAX_MESSAGE = 1500  # characters of what is wrong
_MAX_TOOL_RESULTS = 24
_MAX_TOOL_BYTES = 256 * 1024
_REPEATED = "this result was refused before, and nothing was looked up since"
_Shape = TypeVar("_Shape")


class Witness(ContextProxy):
    """A context that remembers what tools returned, for those who look at the result.

    What the worker is to remember of its task waits (`late`) until the result is accepted.
    """

    def __init__(self, context: StepContext) -> None:
        super().__init__(context)
        self._bytes_left = _MAX_TOOL_BYTES
        self.returned: list[Given] = []
        self.called = False
        """A tool was called, in this attempt."""
        self.acted = False
        """It is a team whose run changed something: another run of it would do so again."""
        self.late: Callable[[], Awaitable[object]] | None = None

    async def step(
        self,
        name: str,
        call: Callable[[str], Awaitable[Done]],
        *,
        shape: type[_Shape] = object,
        **options: Unpack[StepOptions],
    ) -> _Shape:
        kind = options.get("kind", "tool")
        if kind == "remember":
            self.late = partial(self._context.step, name, call, **options)
            return cast("_Shape", None)  # it is not read
        result = await super().step(name, call, shape=shape, **options)
        self.acted = self.acted or (isinstance(result, Came) and result.acted)
        if kind == "tool":
            self.called = True
            self._keep(name, getattr(result, "value", None))
        return result

    def _keep(self, name: str, value: object) -> None:
        if value is None or len(self.returned) >= _MAX_TOOL_RESULTS:
            return
        self._bytes_left -= len(bytes(encode_value(value)))
        if self._bytes_left >= 0:
            label = f"tool {name} {len(self.returned) + 1}"
            self.returned.append(Given(task=label, instruction="", worker="", value=value, from_tool=True))


class Inspector(Struct, frozen=True):
    """The checks of a team, and the models and workers that make them."""

    checks: Checks
    workers: Mapping[str, ReadyWorker]
    writer: Writer
    """Its model judges for verifiers without one of their own."""
    verifiers: Mapping[str, Model]
    """Models of verifiers, by check."""

    def panel(self, name: str, worker: str) -> Panel | str:
        """Who says whether a result is acceptable; in words, why none can."""
        check = self.checks.by_name[name]
        if isinstance(check, Verifier):
            system = self.writer.prompts.text("verify", instructions=check.prompt, form=FORM)
            model = self.verifiers.get(name, self.writer.model)
            return Panel([model], system, Worker("verifier", estimate=self.writer.reserve))
        assert isinstance(check, Reviewer), "other checks ask no model"
        equipped = self.workers.get(check.worker)
        if equipped is None or check.worker == worker:
            return (
                f"{check.worker} did it, and no worker reviews its own work"
                if equipped
                else f"{check.worker} is not here"
            )
        reviewer = equipped.worker
        system = self.writer.prompts.text(
            "review", name=reviewer.name, description=reviewer.description, prompt=reviewer.prompt, form=FORM
        )
        return Panel(equipped.models, system, reviewer)

    async def problems(self, name: str, result: CheckedResult) -> list[str]:
        """What a check that asks no model finds wrong."""
        check = self.checks.by_name[name]
        if isinstance(check, Rule):
            return await check_rule(check, result)
        if isinstance(check, type | dict):
            return check_shape(cast("type | dict[str, Any]", check), result)
        assert callable(check), "declared as a check"
        # a copy of its own: what the function does to it is nothing to those who look next
        return await check_function(check, decode_value(encode_value(result.value)))


class _Wrong(Struct, frozen=True):
    """Why a result is not accepted: in words for the worker, and check by check."""

    text: str
    refusals: tuple[CheckRefusal, ...] = ()


class CheckedAttempt(Struct):
    """An attempt whose result must pass the checks of these names."""

    inspector: Inspector
    names: Sequence[str]
    brief: Brief
    context: Witness

    async def run(self, doing: Coroutine[Any, Any, Done], attempt: Attempt | None = None) -> Done:
        """Have it done, then checked. WorkFailed says which check did not accept it, and why.

        With an `attempt`, a result that is not accepted is first sent back to it: it has found everything already.
        """
        checks = self.inspector.checks.by_name
        if unknown := next((name for name in self.names if name not in checks), None):
            doing.close()
            message = f"the task {describe_unknown(unknown, checks)}"
            raise WorkFailed(Failure("logic", message, permanent=True), NOTHING)
        done = await doing
        mark = _mark(done)
        wrong = await self._check(done, self.brief.refused, self.brief.failure)
        if wrong is not None and attempt is not None and attempt.can_go_on:
            self.context.note(f"{wrong.text}; sent back", fact=ResultRefused(wrong.refusals, sent_back=True))
            self.context.called = False
            try:
                done = await attempt.mend(wrong.text)
            except WorkFailed as error:
                raise _with_reason(error, wrong.text, mark) from error
            wrong = await self._check(done, (*self.brief.refused, mark), wrong.text)
            mark = _mark(done)
        if wrong is not None:
            self.context.note(wrong.text, fact=ResultRefused(wrong.refusals))
            failure = Failure("logic", wrong.text)
            if self.context.acted:
                failure = Failure("logic", f"{wrong.text} ({ONCE})", permanent=True)
            raise WorkFailed(failure, done.used, refused=mark)
        if self.context.late is not None:
            await self.context.late()
        return done

    async def _check(self, done: Done, refused: Sequence[str], before: str) -> "_Wrong | None":
        """Which check does not accept a result, and why; None if all do.

        One that was `refused` before is not reviewed: what was said then (`before`) still holds.
        """
        result = read_result(done.value)
        checks = self.inspector.checks.by_name
        reviews = [name for name in self.names if isinstance(checks[name], Reviewer | Verifier)]
        rules = [name for name in self.names if name not in reviews]
        refusals = [refusal for name in rules if (refusal := await self._apply(name, result, done))]
        if refusals:  # no model is paid to look at what is wrong already
            return _Wrong("; ".join(map(_describe_refusal, refusals))[:_MAX_MESSAGE], tuple(refusals))
        if rules:
            self.context.note(f"accepted by {', '.join(rules)}", fact=ResultAccepted(tuple(rules)))
        if digest(result.json) in refused and not self.context.called:  # a reviewer that looks again may tire of it
            reason = before if _REPEATED in before else f"{before or 'not accepted'}; {_REPEATED}"
            return _Wrong(reason[:_MAX_MESSAGE])
        for name in reviews:
            refusal = await self._review(name, ReviewCase(self.brief, result, self._material(done.value)))
            if refusal is not None:
                return _Wrong(_describe_refusal(refusal)[:_MAX_MESSAGE], (refusal,))
        return None

    async def _apply(self, name: str, result: CheckedResult, done: Done) -> CheckRefusal | None:
        """Why a check that asks no model refuses. One that does not work fails the task for good: it would again."""
        try:
            problems = await self.inspector.problems(name, result)
        except CheckFailed as error:
            message = f"the check {name!r} failed itself, so nothing can be accepted: {error}"[:_MAX_MESSAGE]
            failure = Failure("logic", message, permanent=True, code="check_failed")
            raise WorkFailed(failure, done.used) from error
        return CheckRefusal(name, tuple(problems)) if problems else None

    async def _review(self, name: str, case: ReviewCase) -> CheckRefusal | None:
        """Why a reviewer refuses. Where none can be asked the result stands, and that is noted."""
        panel = self.inspector.panel(name, case.brief.worker)
        if isinstance(panel, str):
            verdict = Verdict(unsaid=panel)
        else:
            try:
                verdict = await review(name, panel, case, self.context, self.inspector.writer.spending)
            except WorkFailed as error:
                if error.failure.kind != "budget":
                    raise
                verdict = Verdict(unsaid=error.failure.message)
        if verdict.unsaid:
            text = f"not reviewed by {name}: {verdict.unsaid}; the result stands"
            self.context.note(text, fact=NotReviewed(name))
        elif verdict.accepted:
            remarks = f", with remarks: {'; '.join(verdict.problems)}" if verdict.problems else ""
            self.context.note(f"accepted by {name}{remarks}", fact=ResultAccepted((name,), verdict.problems))
        else:
            return CheckRefusal(name, verdict.problems)
        return None

    def _material(self, result: object) -> tuple[Given, ...]:
        """What there was to work from: inputs, and what tools returned, else what the result shows."""
        material = [*read_inputs(self.brief, {}), *self.context.returned]
        if isinstance(result, WorkerOutput) and not self.context.returned:
            for number, artifact in enumerate(result.artifacts, 1):
                label = f"tool {number}"
                material.append(Given(task=label, instruction="", worker="", value=artifact, from_tool=True))
        return tuple(material)


def _mark(done: Done) -> str:
    return digest(read_result(done.value).json)


def _with_reason(error: WorkFailed, wrong: str, mark: str) -> WorkFailed:
    """The failure of a worker whose result was sent back and that sent no other, with what was wrong with that one."""
    if error.failure.kind in ("approval", "uncertain"):  # the attempt goes on from here
        return error
    message = f"{error.failure.message} (its result was {wrong})"[:_MAX_MESSAGE]
    return WorkFailed(structs.replace(error.failure, message=message), error.used, error.findings, refused=mark)


def _describe_refusal(refusal: CheckRefusal) -> str:
    listed = "; ".join(problem for problem in refusal.problems if problem)
    return f"not accepted by {refusal.check}" + (f": {listed}" if listed else "")
