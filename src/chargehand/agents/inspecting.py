"""The end of an attempt whose result must pass checks: it is done, or it failed in words that help the next one.

What each check looks at is the business of `predicates` and `verifying`.
"""

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar, cast

from msgspec import Struct, structs

from chargehand.agents.acceptance import Checks, Reviewer, Rule, Verifier, unknown
from chargehand.agents.crew import Claim, Done, Hand, WorkFailed
from chargehand.agents.equip import Equipped
from chargehand.agents.handover import ONCE, Came, Partly
from chargehand.agents.inputs import told
from chargehand.agents.loop import Attempt
from chargehand.agents.money import Purse
from chargehand.agents.predicates import CheckFailed, Held, broken, held, misshapen, objections
from chargehand.agents.prompts import Prompts
from chargehand.agents.recall import REMEMBER
from chargehand.agents.relay import Relay
from chargehand.agents.verifying import FORM, TOOL, Case, Panel, Verdict, ruled
from chargehand.agents.worker import Worker
from chargehand.core.owed import Brief
from chargehand.models.exhibits import Product
from chargehand.models.model import Model
from chargehand.models.subject import Given
from chargehand.terms.budget import NOTHING, Amount
from chargehand.terms.events import Effect
from chargehand.terms.failure import Failure
from chargehand.terms.plan import digest
from chargehand.terms.value import decode_value, encode_value

_LONGEST = 1500  # characters of what is wrong
# results of tools that are kept as material, and bytes of them
_MOST = 24
_LARGEST = 256 * 1024
_REPEATED = "this result was refused before, and nothing was looked up since"
_OURS = frozenset(("model", "memory", "summary", "make worker"))
_Shape = TypeVar("_Shape")


class Inspector(Struct, frozen=True):
    """The checks of a team and whoever makes them. `models` are those of verifiers, by check; `usual` is the judge's.

    `estimate` is what a call is taken to cost whose price nobody knows.
    """

    checks: Checks
    workers: Mapping[str, Equipped]
    usual: Model
    models: Mapping[str, Model]
    prompts: Prompts
    purse: Purse
    estimate: Amount = NOTHING

    def panel(self, name: str, worker: str) -> Panel | str:
        """Who says whether a result is acceptable; in words, why nobody does."""
        check = self.checks.by_name[name]
        if isinstance(check, Verifier):
            system = self.prompts.text("verify", instructions=check.prompt, form=FORM)
            return Panel([self.models.get(name, self.usual)], system, Worker("verifier", estimate=self.estimate))
        assert isinstance(check, Reviewer), "others need nobody"
        found = self.workers.get(check.worker)
        if found is None or check.worker == worker:
            return f"{check.worker} did it, and nobody reviews its own work" if found else f"{check.worker} is not here"
        one = found.worker
        system = self.prompts.text("review", name=one.name, description=one.description, prompt=one.prompt, form=FORM)
        return Panel(found.models, system, one)


class Witness(Relay):
    """A hand that remembers what tools returned, for those who look at the result.

    What the worker is to remember of its task waits (`late`) until the result is accepted.
    """

    def __init__(self, hand: Hand) -> None:
        super().__init__(hand)
        self._left = _LARGEST
        self.seen: list[Given] = []
        self.called = False  # a tool was, in this attempt
        self.acted = False  # a team whose run changed something: another run of it would do so again
        self.late: Callable[[], Awaitable[object]] | None = None

    async def step(
        self,
        name: str,
        call: Callable[[str], Awaitable[Done]],
        *,
        request: str = "",
        effect: Effect = "read",
        reserve: Amount | Claim = NOTHING,
        share: bool = False,
        shape: type[_Shape] = object,
    ) -> _Shape:
        if name == REMEMBER and not request:  # a tool of that name has arguments
            self.late = partial(self._hand.step, name, call, effect=effect)
            return cast("_Shape", None)  # nobody reads it
        found = await super().step(
            name, call, request=request, effect=effect, reserve=reserve, share=share, shape=shape
        )
        self.acted = self.acted or (isinstance(found, Came) and found.acted)
        value: object = getattr(found, "value", None)
        self.called = self.called or (name not in _OURS and " " not in name)
        if name not in _OURS and " " not in name and value is not None and len(self.seen) < _MOST:
            self._left -= len(bytes(encode_value(value)))
            if self._left >= 0:
                self.seen.append(
                    Given(task=f"{TOOL}{name} {len(self.seen) + 1}", instruction="", worker="", value=value)
                )
        return found


async def inspected(
    inspector: Inspector,
    doing: Coroutine[Any, Any, Done],
    names: Sequence[str],
    brief: Brief,
    hand: Witness,
    attempt: Attempt | None = None,
) -> Done:
    """Have it done, then looked at. WorkFailed says by whom it was not accepted, and why.

    With an `attempt`, a result that is not accepted is first sent back to it: it has found everything already.
    """
    if strange := next((one for one in names if one not in inspector.checks.by_name), None):
        doing.close()
        said = f"the task {unknown(strange, inspector.checks.by_name)}"
        raise WorkFailed(Failure("logic", said, permanent=True), NOTHING)
    done = await doing
    mark = digest(held(done.value).json)
    wrong = await _objections(
        inspector=inspector, names=names, brief=brief, hand=hand, done=done, refused=brief.refused, before=brief.failure
    )
    if wrong and attempt is not None and attempt.can_go_on:
        hand.note(f"{wrong}; sent back")
        hand.called = False
        try:
            done = await attempt.mend(wrong)
        except WorkFailed as error:
            raise _with_reason(error, wrong, mark) from error
        wrong = await _objections(
            inspector=inspector,
            names=names,
            brief=brief,
            hand=hand,
            done=done,
            refused=(*brief.refused, mark),
            before=wrong,
        )
        mark = digest(held(done.value).json)
    if wrong:
        hand.note(wrong)
        failure = Failure("logic", f"{wrong} ({ONCE})", permanent=True) if hand.acted else Failure("logic", wrong)
        raise WorkFailed(failure, done.used, refused=mark)
    if hand.late is not None:
        await hand.late()
    return done


async def _objections(
    inspector: Inspector,
    names: Sequence[str],
    brief: Brief,
    hand: Witness,
    done: Done,
    refused: Sequence[str],
    before: str,
) -> str:
    """By whom a result is not accepted, and why; nothing if it is.

    One that was `refused` before is not looked at: what was said then (`before`) still holds.
    """
    result = held(done.value)
    asked = [name for name in names if isinstance(inspector.checks.by_name[name], Reviewer | Verifier)]
    plain = [name for name in names if name not in asked]
    wrong = [said for name in plain if (said := await _plainly(inspector, name, result, done))]
    if plain and not wrong:
        hand.note(f"accepted by {', '.join(plain)}", code="accepted")
    if not wrong and digest(result.json) in refused and not hand.called:  # whoever looks again may tire of it
        wrong.append(_still_refused(before))
    for name in asked if not wrong else ():  # nobody is paid to look at what is wrong already
        if said := await _looked(inspector, name, Case(brief, result, _material(brief, hand, done.value)), hand):
            wrong.append(said)
            break
    return "; ".join(wrong)[:_LONGEST]


def _with_reason(error: WorkFailed, wrong: str, mark: str) -> WorkFailed:
    """The failure of a worker whose result was sent back and that sent no other, with what was wrong with that one."""
    if error.failure.kind in ("approval", "uncertain"):  # the attempt goes on from here
        return error
    failure = structs.replace(error.failure, message=f"{error.failure.message} (its result was {wrong})"[:_LONGEST])
    return WorkFailed(failure, error.used, error.findings, refused=mark)


def _still_refused(before: str) -> str:
    """Why a result that came again is not accepted: for the same reason, which is not to be lost."""
    if _REPEATED in before:
        return before
    return f"{before or 'not accepted'}; {_REPEATED}"


async def _plainly(inspector: Inspector, name: str, result: Held, done: Done) -> str:
    """What a check that needs nobody finds wrong. One that does not work fails the task for good: it would again."""
    check = inspector.checks.by_name[name]
    try:
        if isinstance(check, Rule):
            found = await broken(check, result)
        elif isinstance(check, type | dict):
            found = misshapen(cast("type | dict[str, Any]", check), result)
        else:
            assert callable(check), "declared as a check"
            # of its own: what it does to it is nothing to those who look next
            found = await objections(check, decode_value(encode_value(result.value)))
    except CheckFailed as error:
        said = f"the check {name!r} failed itself, so nothing can be accepted: {error}"[:_LONGEST]
        raise WorkFailed(Failure("logic", said, permanent=True), done.used) from error
    return _refused(name, found) if found else ""


async def _looked(inspector: Inspector, name: str, case: Case, hand: Hand) -> str:
    """What somebody who was asked finds wrong. Where nobody can be asked the result stands, and that is noted."""
    panel = inspector.panel(name, case.brief.worker)
    if isinstance(panel, str):
        verdict = Verdict(unsaid=panel)
    else:
        try:
            verdict = await ruled(name, panel, case, hand, inspector.purse)
        except WorkFailed as error:
            if error.failure.kind != "budget":
                raise
            verdict = Verdict(unsaid=error.failure.message)
    if verdict.unsaid:
        hand.note(f"not reviewed by {name}: {verdict.unsaid}; the result stands")
    elif verdict.accepted:
        remarks = f", with remarks: {'; '.join(verdict.problems)}" if verdict.problems else ""
        hand.note(f"accepted by {name}{remarks}", code="accepted")
    else:
        return _refused(name, verdict.problems)
    return ""


def _refused(name: str, problems: Sequence[str]) -> str:
    said = "; ".join(one for one in problems if one)
    return f"not accepted by {name}" + (f": {said}" if said else "")


def _material(brief: Brief, hand: Witness, result: object) -> tuple[Given, ...]:
    exhibits = result.exhibits if isinstance(result, Product | Partly) and not hand.seen else ()
    shown = [Given(task=f"{TOOL}{at}", instruction="", worker="", value=one) for at, one in enumerate(exhibits, 1)]
    return (*told(brief, "0").inputs, *hand.seen, *shown)
