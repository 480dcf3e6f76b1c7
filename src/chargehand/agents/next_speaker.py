"""Who speaks next, by the supervisor: what its model is asked, and what the reply amounts to.

Whether whom it names may speak is the business of `talking`.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import cast

from msgspec import Raw, Struct

from chargehand.agents.crew import Hand
from chargehand.agents.inputs import gap_text, today, told
from chargehand.agents.lead import Lead, held_call
from chargehand.agents.memory_text import instructions, material, shortened
from chargehand.agents.money import call_held, too_dear
from chargehand.agents.shape import choice_schema, encode_schema, find_json, text_schema
from chargehand.core.owed import Brief
from chargehand.errors import Invalid
from chargehand.models.envelope import new_nonce
from chargehand.models.messages import Message, Reply, Request
from chargehand.models.subject import Given, Speaking, WorkerCard
from chargehand.terms.budget import Amount
from chargehand.terms.plan import Task
from chargehand.tools.tool import CAP

_NOBODY = frozenset(("", "nobody", "no one", "none", "null"))
_LEAST = 400  # bytes that are shown of each turn, however many there are
_LONGEST = 200


class Named(Struct, frozen=True):
    """Whom a reply names: empty where nobody is to speak, None where it does not say; then `problem` says why."""

    name: str | None
    why: str = ""
    problem: str = ""


async def ask_who(
    open_to: tuple[str, ...], left: int, lead: Lead, brief: Brief, hand: Hand
) -> tuple[Reply, Amount | None]:
    """One call of the supervisor's model, and what it cost. An empty reply is one: a talk does not stop for it."""
    request = await _request(open_to, left, lead, brief)
    held = await held_call(lead, request, hand)
    if held is None:
        raise too_dear("asking who speaks next", alone=not brief.tasks)
    hand.prompt(lead.model.card.handle, request.messages)
    called = await call_held(
        hand=hand,
        purse=lead.purse,
        model=lead.model,
        held=held,
        settings=lead.settings,
        hear=hand.say if hand.heard else None,
    )
    return called.reply, called.used


def named(text: str, names: Sequence[str]) -> Named:
    """Whom a reply names: in JSON, or with nothing but a name. A name in the midst of prose is none."""
    try:
        found = find_json(text)
    except Invalid as error:
        found = text.strip().strip("\"'`*. ")
        if not found or (found not in names and found.casefold() not in _NOBODY):
            return Named(None, problem=str(error)[:_LONGEST])
    why = ""
    if isinstance(found, dict):
        table = cast("Mapping[str, object]", found)
        if "next" not in table:
            return Named(None, problem="the reply has no `next`")
        found = table["next"]
        reason = table.get("why")
        why = f": {' '.join(reason.split())[:_LONGEST]}" if isinstance(reason, str) and reason.strip() else ""
    if found is None:
        return Named("", why)
    if not isinstance(found, str):
        return Named(None, problem="the reply is not a name")
    wanted = found.strip()
    alike = [wanted] if wanted in names else [one for one in names if one.casefold() == wanted.casefold()]
    if len(alike) == 1:
        return Named(alike[0], why)
    if wanted.casefold() in _NOBODY:
        return Named("", why)
    return Named(None, problem=f"there is no worker {wanted[:80]!r}")


async def _request(open_to: tuple[str, ...], left: int, lead: Lead, brief: Brief) -> Request:
    blocks = () if lead.shared is None else await lead.shared()
    window = lead.model.card.window
    nonce = new_nonce()
    spoke = {one.id: Task(one.id, f"turn {at}", one.worker) for at, one in enumerate(brief.tasks, 1)}
    heard = told(brief, nonce, spoke, min(CAP, max(_LEAST, window // max(1, len(spoke)))))
    by_task = {one.task: one for one in heard.inputs}
    said = tuple(
        by_task.get(one.id) or Given(task=one.id, instruction=one.instruction, worker=one.worker, value=None)
        for one in spoke.values()
    )
    parts = [material(blocks, (), nonce, shortened(blocks, window // 4)).strip(), f"Request: {brief.goal}"]
    parts.append(today(brief))
    if brief.findings:
        parts.append("Your last choice cannot stand:\n" + "\n".join(f"- {one.message}" for one in brief.findings))
    parts += ["What was said so far:" if spoke else "", heard.text, *(gap_text(one, nonce) for one in brief.gaps)]
    last = brief.tasks[-1].worker if brief.tasks else ""
    told_last = f"{last} spoke last. " if last else ""
    parts.append(f"Turns left: {left}. {told_last}Who speaks next? One of: {', '.join(open_to)}.")
    listing = "\n".join(map(_line, lead.cards))
    system = lead.prompts.text("speak", workers=listing, instructions=lead.instructions) + instructions(blocks)
    messages = (Message("system", system), Message("user", "\n\n".join(one for one in parts if one)))
    subject = Speaking(brief.goal, lead.cards, said, last)
    return Request(
        messages=messages,
        tools=(),
        schema=_schema(open_to, may_end=bool(spoke)),
        settings=lead.settings,
        subject=subject,
    )


def _line(card: WorkerCard) -> str:
    tags = f" (tags: {', '.join(card.tags)})" if card.tags else ""
    tools = f"; tools: {', '.join(one.name for one in card.skills)}" if card.skills else ""
    return f"- {card.name}: {card.description or 'no description'}{tags}{tools}"


@lru_cache(maxsize=256)
def _schema(names: tuple[str, ...], *, may_end: bool) -> Raw:
    """One of these names, or nobody where the talk may end."""
    return encode_schema({"next": choice_schema(names, or_null=may_end), "why": text_schema(300)})
