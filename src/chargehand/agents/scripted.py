"""Executor that does what a script says: results, delays, costs and faults, move by move. For tests and demonstrations.

No model is called. What a task without moves returns is made from its instruction and its inputs.
"""

import asyncio
from typing import TypeVar, cast

from msgspec import Struct, field

from chargehand.engine.budget import Amount
from chargehand.engine.failure import Failure, FailureKind
from chargehand.engine.owed import Brief
from chargehand.engine.plan import Plan
from chargehand.engine.policy import Seconds
from chargehand.engine.value import decode_value
from chargehand.runtime.executor import Done, Executor, Proposal, Refined, StepContext, WorkFailed


class Move(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One reply. With `fail` it is a failure of that kind, else `result` is what comes back."""

    result: object = None
    fail: FailureKind | None = None
    message: str = "scripted failure"
    retry_after: Seconds = 0.0
    permanent: bool = False
    seconds: Seconds = 0.0
    used: Amount | None = None


class Script(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Moves by task id (the last one repeats), the plans to propose in turn, refinements by task id, and the answer."""

    moves: dict[str, tuple[Move, ...]] = field(default_factory=dict[str, tuple[Move, ...]])
    plans: tuple[Plan, ...] = ()
    refined: dict[str, str] = field(default_factory=dict[str, str])
    answers: tuple[Move, ...] = ()
    otherwise: Move = Move()


_T = TypeVar("_T")


class ScriptedExecutor(Executor):
    def __init__(self, script: Script) -> None:
        self._script = script

    async def plan(self, brief: Brief, context: StepContext) -> Proposal:
        plan = _pick(self._script.plans, brief.work.number)
        if plan is None:
            raise WorkFailed(Failure("logic", "the script holds no plan"))
        return Proposal(plan.tasks, plan.combine)

    async def attempt(self, brief: Brief, context: StepContext) -> Done:
        move = _pick(self._moves(brief), brief.work.number) or self._script.otherwise
        await _play(move)
        if move.result is not None:
            return Done(move.result, move.used)
        inputs = {
            source.task: None if source.value is None else _plain_result(decode_value(source.value))
            for source in brief.inputs
        }
        return Done({"did": brief.instruction, "from": inputs} if inputs else {"did": brief.instruction}, move.used)

    async def refine(self, brief: Brief, context: StepContext) -> Refined:
        better = self._script.refined.get(brief.item_of or brief.work.task)
        return Refined(better or f"{brief.instruction} (last time: {brief.failure})")

    async def answer(self, brief: Brief, context: StepContext) -> Done:
        move = _pick(self._script.answers, brief.work.number) or Move()
        await _play(move)
        if move.result is not None:
            return Done(move.result, move.used)
        done = [
            f"[{source.task}] {_plain_result(decode_value(source.value))!s}"
            for source in brief.inputs
            if source.value is not None
        ]
        missing = [f"Missing: {gap.task} ({gap.status}: {gap.message})." for gap in brief.gaps]
        return Done("\n".join([*done, *missing]), move.used)

    def _moves(self, brief: Brief) -> tuple[Move, ...]:
        """Those of the task; the items of a repeated task share its moves."""
        moves = self._script.moves
        return moves.get(brief.work.task) or moves.get(brief.item_of) or ()


def _pick(moves: tuple[_T, ...], number: int) -> _T | None:
    return moves[min(number, len(moves)) - 1] if moves else None


async def _play(move: Move) -> None:
    if move.seconds:
        await asyncio.sleep(move.seconds)
    if move.fail is not None:
        raise WorkFailed(Failure(move.fail, move.message, move.retry_after, move.permanent), move.used)


def _plain_result(value: object) -> object:
    """What a result made here says, without what it was made from: results do not nest."""
    if not isinstance(value, dict):
        return value
    fields = cast("dict[str, object]", value)
    return fields.get("did", fields)
