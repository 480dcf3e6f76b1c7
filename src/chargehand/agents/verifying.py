"""One call of a model that says whether a result is acceptable: by a reviewer of the team, or by a verifier.

It is shown the task, what there was to work from and the result, never how its worker came to it. The verdict is read
here; what becomes of the result is decided elsewhere.
"""

from collections.abc import Iterator, Sequence
from json import JSONDecoder
from typing import cast

from msgspec import Struct

from chargehand.agents.audit.claims import describe, is_claiming, read_off_loop, size_of, unsupported
from chargehand.agents.crew import Done, Hand
from chargehand.agents.exhibit_text import shown
from chargehand.agents.inputs import today
from chargehand.agents.money import CallClaim, Purse, with_lost
from chargehand.agents.predicates import Held
from chargehand.agents.shape import encode_schema, find_json, list_schema, text_schema
from chargehand.agents.worker import Worker
from chargehand.core.owed import Brief
from chargehand.errors import Invalid
from chargehand.models.code_errors import model_failed
from chargehand.models.envelope import new_nonce, wrap
from chargehand.models.messages import Message, Request
from chargehand.models.model import Model, ModelFailed
from chargehand.models.subject import Given, Reviewing
from chargehand.terms.budget import NOTHING
from chargehand.terms.plan import digest
from chargehand.tools.calling import capped
from chargehand.tools.tool import CAP

STEP = "check "
"""What the name of a step begins with that asks for a verdict; no tool is called so."""
TOOL = "tool "
"""What the name of material begins with that a tool returned; no task is called so by those who make plans."""
FORM = '{"problems": ["…"], "accepted": true}'
_SHARE = 2  # bytes of material for every token of the window: the half of it
_MOST = 8
_LONGEST = 300
_TRIES = 100  # places of a reply at which a verdict is looked for
# what is wrong comes first: a model that looks before it decides decides better
_SCHEMA = encode_schema(
    {"problems": list_schema(text_schema(_LONGEST, min_length=1), _MOST), "accepted": {"type": "boolean"}}
)


class Verdict(Struct, frozen=True):
    """What somebody made of a result. `unsaid` is why there is no verdict; the result stands then."""

    accepted: bool = True
    problems: tuple[str, ...] = ()
    unsaid: str = ""


class Panel(Struct, frozen=True):
    """Who is asked: models to try in turn, what they are told of themselves, and whose settings and estimate count."""

    models: Sequence[Model]
    system: str
    worker: Worker


class Case(Struct, frozen=True):
    """What is put before them. `material` is what there was to work from: inputs, and what tools returned."""

    brief: Brief
    result: Held
    material: tuple[Given, ...]


async def ruled(name: str, panel: Panel, case: Case, hand: Hand, purse: Purse) -> Verdict:
    """The verdict, as one journaled step: an attempt that is taken up again does not pay for it twice."""
    size = len(case.result.text) + size_of(case.material) + len(case.brief.instruction)
    hints = await read_off_loop(size, doubts, case)
    request = _request(panel, case, hints)
    claim = purse.claim(panel.models, request, estimate=panel.worker.estimate)
    reserve = claim if purse.capped else NOTHING

    async def call(_key: str) -> Done:
        hand.prompt(panel.models[0].card.handle, request.messages)
        return await _first_that_answers(panel.models, request, purse, claim)

    # envelopes hold a new number each time, so what is asked is told by its parts
    inputs = [bytes(one.value or b"").decode() for one in case.brief.inputs]
    asked = digest(panel.system, case.brief.instruction, case.result.json, *inputs)
    return await hand.step(f"{STEP}{name}", call, request=asked, reserve=reserve, shape=Verdict)


async def _first_that_answers(models: Sequence[Model], request: Request, purse: Purse, claim: CallClaim) -> Done:
    """A call that fails leaves the result as it is: work that was done is not lost because nobody could look at it."""
    reserve = claim.amount if purse.capped else NOTHING
    lost: list[tuple[Model, ModelFailed]] = []
    for model in models:
        if lost and not await purse.next_turn(model, claim, reserve):
            continue
        try:
            reply = await model.reply(purse.limited(model, request, claim.limit))
        except Exception as error:  # noqa: BLE001 - a foreign model may raise anything; the next one may answer
            lost.append((model, model_failed(error)))
            continue
        purse.observe(model, claim.read, claim.limit, reply)
        used = purse.used(model, reply, reserve)
        return Done(read(reply.text), with_lost(used, lost, reserve) if lost else used)
    said = lost[-1][1].failure.message if lost else "there is no model to ask"
    return Done(Verdict(unsaid=said[:_LONGEST]), purse.lost(lost), good=False)


def _request(panel: Panel, case: Case, hints: Sequence[str]) -> Request:
    nonce = new_nonce()
    room = min(CAP, panel.models[0].card.window * _SHARE // (len(case.material) + 1))
    parts = [f"Task: {case.brief.instruction}", today(case.brief)]
    parts += [wrap(nonce, _origin(one), capped(shown(one, whole=True), room)[0]) for one in case.material]
    parts.append("The result:\n" + wrap(nonce, "result", capped(_shown(case.result), room)[0]))
    if hints:
        said = "\n".join(f"- {one}" for one in hints)
        parts.append(f"Word for word, this does not stand in the material (it may follow from it):\n{said}")
    parts.append(f"Is the result acceptable? Reply with {FORM}")
    subject = Reviewing(
        instruction=case.brief.instruction,
        result=case.result.value,
        text=case.result.text,
        material=case.material,
        doubts=tuple(hints),
    )
    messages = (Message("system", panel.system), Message("user", "\n\n".join(parts)))
    return Request(messages, schema=_SCHEMA, settings=panel.worker.settings, subject=subject)


def _origin(given: Given) -> str:
    return given.task if given.task.startswith(TOOL) else f"task {given.task}"


def _shown(result: Held) -> str:
    return shown(Given(task="", instruction="", worker="", value=result.value))


def doubts(case: Case) -> tuple[str, ...]:
    """Numbers, addresses and quotations of a result that stand nowhere in what there was to work from."""
    if not case.material or not is_claiming(case.result.text):
        return ()
    found = unsupported(case.result.text, case.material, [case.brief.instruction])
    return tuple(describe(one) for one in found[:_MOST])


def read(text: str) -> Verdict:
    """What a reply says. Problems of who accepts nevertheless are remarks; who only names some does not accept.

    A reply may quote what stands in the result, a verdict even: if any in it refuses, it is refused.
    """
    said = [_verdict(one) for one in _objects(text)]
    known = [one for one in said if one is not None]
    if known:
        return next((one for one in known if not one.accepted), known[-1])
    try:
        find_json(text)
    except Invalid as error:
        return Verdict(unsaid=f"the verdict could not be read: {error}"[:_LONGEST])
    return Verdict(unsaid="the verdict could not be read: it does not say whether the result is accepted")


def _objects(text: str) -> Iterator[dict[str, object]]:
    """All JSON objects that stand in a text, one behind the other."""
    decoder = JSONDecoder()
    at = text.find("{")
    for _ in range(_TRIES):
        if at < 0:
            return
        try:
            found, end = cast("tuple[dict[str, object], int]", decoder.raw_decode(text, at))
            yield found
        except (ValueError, RecursionError):
            end = at + 1
        at = text.find("{", end)


def _verdict(table: dict[str, object]) -> Verdict | None:
    listed = table.get("problems")
    items = cast("list[object]", listed) if isinstance(listed, list) else [listed]
    problems = tuple(" ".join(one.split())[:_LONGEST] for one in items if isinstance(one, str) and one.strip())[:_MOST]
    accepted = table.get("accepted")
    if isinstance(accepted, str):  # not every model is held to the schema
        accepted = {"true": True, "false": False}.get(accepted.strip().casefold())
    return Verdict(accepted is True, problems) if isinstance(accepted, bool) or problems else None
