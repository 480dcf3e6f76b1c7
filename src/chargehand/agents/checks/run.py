"""An attempt whose result must pass checks: it is done, or it failed in words that help the next attempt."""

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar, cast

from msgspec import Struct, structs

from chargehand.agents.checks.review import FORM, Panel, ReviewCase, Verdict, review
from chargehand.agents.checks.rules import (
    CheckedResult,
    CheckFailed,
    check_function,
    check_rule,
    check_shape,
    read_result,
)
from chargehand.agents.checks.spec import Checks, Reviewer, Rule, Verifier, describe_unknown
from chargehand.agents.inputs import read_inputs
from chargehand.agents.loop import Attempt
from chargehand.agents.nested import ONCE, Came
from chargehand.agents.setup import ReadyWorker
from chargehand.agents.worker import Worker
from chargehand.agents.writer import Writer
from chargehand.engine.budget import NOTHING, Amount
from chargehand.engine.events import Effect, StepKind
from chargehand.engine.facts import NotReviewed, ResultAccepted
from chargehand.engine.failure import Failure
from chargehand.engine.owed import Brief
from chargehand.engine.plan import digest
from chargehand.engine.value import decode_value, encode_value
from chargehand.models.artifacts import Product
from chargehand.models.model import Model
from chargehand.models.request_facts import Given
from chargehand.runtime.executor import Claim, ContextProxy, Done, StepContext, WorkFailed

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
        kind: StepKind = "tool",
        request: str = "",
        effect: Effect = "read",
        reserve: Amount | Claim = NOTHING,
        share: bool = False,
        shape: type[_Shape] = object,
    ) -> _Shape:
        if kind == "remember":
            self.late = partial(self._context.step, name, call, kind=kind, effect=effect)
            return cast("_Shape", None)  # it is not read
        result = await super().step(
            name, call, kind=kind, request=request, effect=effect, reserve=reserve, share=share, shape=shape
        )
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
        known = self.inspector.checks.by_name
        if unknown := next((name for name in self.names if name not in known), None):
            doing.close()
            message = f"the task {describe_unknown(unknown, known)}"
            raise WorkFailed(Failure("logic", message, permanent=True), NOTHING)
        done = await doing
        mark = _mark(done)
        wrong = await self._check(done, self.brief.refused, self.brief.failure)
        if wrong and attempt is not None and attempt.can_go_on:
            self.context.note(f"{wrong}; sent back")
            self.context.called = False
            try:
                done = await attempt.mend(wrong)
            except WorkFailed as error:
                raise _with_reason(error, wrong, mark) from error
            wrong = await self._check(done, (*self.brief.refused, mark), wrong)
            mark = _mark(done)
        if wrong:
            self.context.note(wrong)
            failure = Failure("logic", wrong)
            if self.context.acted:
                failure = Failure("logic", f"{wrong} ({ONCE})", permanent=True)
            raise WorkFailed(failure, done.used, refused=mark)
        if self.context.late is not None:
            await self.context.late()
        return done

    async def _check(self, done: Done, refused: Sequence[str], before: str) -> str:
        """Which check does not accept a result, and why; nothing if all do.

        One that was `refused` before is not reviewed: what was said then (`before`) still holds.
        """
        result = read_result(done.value)
        checks = self.inspector.checks.by_name
        reviews = [name for name in self.names if isinstance(checks[name], Reviewer | Verifier)]
        rules = [name for name in self.names if name not in reviews]
        refusals = [refusal for name in rules if (refusal := await self._apply(name, result, done))]
        if refusals:  # no model is paid to look at what is wrong already
            return "; ".join(refusals)[:_MAX_MESSAGE]
        if rules:
            self.context.note(f"accepted by {', '.join(rules)}", fact=ResultAccepted(tuple(rules)))
        if digest(result.json) in refused and not self.context.called:  # a reviewer that looks again may tire of it
            reason = before if _REPEATED in before else f"{before or 'not accepted'}; {_REPEATED}"
            return reason[:_MAX_MESSAGE]
        for name in reviews:
            if refusal := await self._review(name, ReviewCase(self.brief, result, self._material(done.value))):
                return refusal[:_MAX_MESSAGE]
        return ""

    async def _apply(self, name: str, result: CheckedResult, done: Done) -> str:
        """Why a check that asks no model refuses. One that does not work fails the task for good: it would again."""
        try:
            problems = await self.inspector.problems(name, result)
        except CheckFailed as error:
            message = f"the check {name!r} failed itself, so nothing can be accepted: {error}"[:_MAX_MESSAGE]
            failure = Failure("logic", message, permanent=True, code="check_failed")
            raise WorkFailed(failure, done.used) from error
        return _refusal(name, problems) if problems else ""

    async def _review(self, name: str, case: ReviewCase) -> str:
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
            self.context.note(f"accepted by {name}{remarks}", fact=ResultAccepted((name,)))
        else:
            return _refusal(name, verdict.problems)
        return ""

    def _material(self, result: object) -> tuple[Given, ...]:
        """What there was to work from: inputs, and what tools returned, else what the result shows."""
        material = [*read_inputs(self.brief, {}), *self.context.returned]
        if isinstance(result, Product) and not self.context.returned:
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


def _refusal(name: str, problems: Sequence[str]) -> str:
    listed = "; ".join(problem for problem in problems if problem)
    return f"not accepted by {name}" + (f": {listed}" if listed else "")
