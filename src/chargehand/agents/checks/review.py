"""One call of a model that says whether a result is acceptable: by a reviewer of the team, or by a verifier.

It is shown the task, what there was to work from and the result, never how its worker came to it.
"""

from collections.abc import Iterator, Sequence
from json import JSONDecoder
from typing import cast

from msgspec import Struct

from chargehand.agents.artifact_text import result_text
from chargehand.agents.audit.claims import describe, is_claiming, read_off_loop, size_of, unsupported
from chargehand.agents.checks.rules import CheckedResult
from chargehand.agents.inputs import today
from chargehand.agents.shape import encode_schema, list_schema, one_line, text_schema
from chargehand.agents.spending import Spending
from chargehand.agents.worker import Worker
from chargehand.engine.owed import Brief
from chargehand.engine.plan import digest
from chargehand.models.messages import Message, Request, new_nonce, wrap
from chargehand.models.model import Model
from chargehand.models.request_facts import Given, Reviewing
from chargehand.runtime.executor import Done, StepContext, WorkFailed
from chargehand.tools.calling import capped
from chargehand.tools.tool import CAP

FORM = '{"problems": ["…"], "accepted": true}'
_BYTES_A_TOKEN = 2  # of material, for every token of the window: the half of it
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
    request = _request(panel, case, await read_off_loop(size, find_doubts, case))
    reservation = spending.reserve(panel.models, request, estimate=panel.worker.estimate)

    async def call(_key: str) -> Done:
        context.prompt(panel.models[0].card.handle, request.messages)
        try:
            reply, used = await spending.call(reservation, context)
        except WorkFailed as error:  # work that was done is not lost because it could not be reviewed
            return Done(Verdict(unsaid=error.failure.message[:_MAX_PROBLEM]), error.used, good=False)
        return Done(read_verdict(reply.text), used)

    # envelopes hold a new number each time, so what is asked is told by its parts
    inputs = [bytes(given.value or b"").decode() for given in case.brief.inputs]
    mark = digest(panel.system, case.brief.instruction, case.result.json, *inputs)
    return await context.step(name, call, kind="check", request=mark, reserve=reservation.for_step, shape=Verdict)


def _request(panel: Panel, case: ReviewCase, doubts: Sequence[str]) -> Request:
    nonce = new_nonce()
    room = min(CAP, panel.models[0].card.window * _BYTES_A_TOKEN // (len(case.material) + 1))
    parts = [f"Task: {case.brief.instruction}", today(case.brief)]
    for given in case.material:
        origin = given.task if given.from_tool else f"task {given.task}"
        parts.append(wrap(nonce, origin, capped(result_text(given, whole=True), room)[0]))
    result = result_text(Given(task="", instruction="", worker="", value=case.result.value))
    parts.append("The result:\n" + wrap(nonce, "result", capped(result, room)[0]))
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
