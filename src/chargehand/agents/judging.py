"""One call of a model that rules on results: which of several is best, which of two that contradict each other holds.

The ruling is read here and never trusted further than that: who wins is one of those there are, or nobody.
"""

import asyncio
import re
from collections.abc import Sequence
from typing import Literal, cast

from msgspec import Raw, Struct

from chargehand.agents.asking import Bill, Writer, held_call
from chargehand.agents.contradictions import Contradiction
from chargehand.agents.crew import Hand, WorkFailed
from chargehand.agents.exhibit_text import shown
from chargehand.agents.shape import choice_schema, encode_schema, find_json, list_schema, text_schema
from chargehand.errors import Invalid
from chargehand.models.envelope import new_nonce, wrap
from chargehand.models.messages import Message, Request
from chargehand.models.subject import Given, Judging
from chargehand.tools.calling import capped
from chargehand.tools.tool import CAP

_SHARE = 2  # bytes of results for every token of the window: the half of it
_WHY = 300
_MANNER = {
    "select": "Several workers tried the same. Choose the best result for the request, and say why in a sentence.",
    "vote": "Several workers tried the same. Choose the result that most of them agree on in substance, name in"
    " `agree` all that say the same as it does, and say why in a sentence.",
    "contradiction": "Some results say different things of the same. Say which holds and why in a sentence; where the"
    " results do not show it, the winner is null.",
}
_FORM = {
    "select": '{"why": "…", "winner": "t1"}',
    "vote": '{"why": "…", "agree": ["t1", "t3"], "winner": "t1"}',
    "contradiction": '{"why": "…", "ruling": "what holds", "winner": "t1"}, or null as the winner',
}


class Ruling(Struct, frozen=True):
    """What was ruled and why. Without a winner nobody could tell; `agree` are those that say what the winner says."""

    winner: str
    why: str
    ruling: str = ""
    agree: tuple[str, ...] = ()


class Settled(Struct, frozen=True):
    """A contradiction and the ruling on it; None: it is open."""

    contradiction: Contradiction
    ruling: Ruling | None


async def rule(writer: Writer, bill: Bill, hand: Hand, subject: Judging) -> Ruling | None:
    """One call; None where it is not covered or the reply cannot be used. A call that fails is one of the answer."""
    shape = schema([one.task for one in subject.results], subject.manner)
    request = Request(_messages(writer, subject), schema=shape, settings=writer.settings, subject=subject)
    held = await held_call(writer, request, hand)
    if held is None:
        hand.note("the budget does not cover a ruling on results this long")
        return None
    hand.prompt(writer.model.card.handle, request.messages)
    reply = await bill.reply(writer, held, hand)
    return _read(reply.text, tuple(one.task for one in subject.results), subject.manner)


async def settle(
    writer: Writer, bill: Bill, hand: Hand, goal: str, found: Sequence[Contradiction], results: Sequence[Given]
) -> list[Settled]:
    """A ruling on each contradiction, side by side. One that cannot be had, or paid for, leaves it open."""
    by_task = {one.task: one for one in results}

    async def one(contradiction: Contradiction) -> Settled:
        given = tuple(by_task[task] for task, _ in contradiction.values)
        claims = tuple(f"[{task}] {contradiction.about}: {value}" for task, value in contradiction.values)
        subject = Judging(goal, claims, given)
        if not await hand.afford(writer.reserve, 1):
            hand.note(f"the budget does not cover a ruling on {contradiction.about!r}")
            return Settled(contradiction, None)
        try:
            ruling = await rule(writer, bill, hand, subject)
        except WorkFailed as error:
            hand.note(f"nobody could rule on {contradiction.about!r}: {error}")
            ruling = None
        return Settled(contradiction, ruling)

    async with asyncio.TaskGroup() as calls:
        made = [calls.create_task(one(contradiction)) for contradiction in found]
    return [task.result() for task in made]


def contradicted(settled: Sequence[Settled]) -> str:
    """Every value with the ruling, to be read below the answer."""
    return "The results contradict each other:\n" + "\n".join(f"- {_line(one)}" for one in settled)


def _line(settled: Settled) -> str:
    values = settled.contradiction.values
    said = f"{settled.contradiction.about}: " + " or ".join(f"{value} [{task}]" for task, value in values)
    ruling = settled.ruling
    if ruling is None or not ruling.winner:
        return f"{said}. This is open: " + (ruling.why.rstrip(".") if ruling else "there is no ruling") + "."
    held = dict(values)[ruling.winner]
    return f"{said}. Ruled for {held} [{ruling.winner}]" + (f": {ruling.why.rstrip('.')}." if ruling.why else ".")


def _messages(writer: Writer, subject: Judging) -> tuple[Message, Message]:
    nonce = new_nonce()
    manner = _MANNER[subject.manner]
    form = _FORM[subject.manner]
    system = writer.prompts.text("judge", instructions=writer.instructions, manner=manner, form=form)
    room = min(CAP, writer.model.card.window * _SHARE // max(1, len(subject.results)))
    parts = [f"Request: {subject.goal}"]
    if subject.claims:
        parts.append("What they say:\n" + "\n".join(f"- {one}" for one in subject.claims))
    for given in subject.results:
        asked = f", {given.worker}: {given.instruction}" if given.instruction else ""
        parts.append(wrap(nonce, f"task {given.task}{asked}", capped(shown(given, whole=True), room)[0]))
    return Message("system", system), Message("user", "\n\n".join(parts))


def schema(names: Sequence[str], manner: Literal["contradiction", "select", "vote"]) -> Raw:
    """Why comes first: a model that writes its reasons before its choice chooses better."""
    text = text_schema(_WHY, min_length=1)
    winner = choice_schema(names)
    properties: dict[str, object] = {"why": text}
    if manner == "contradiction":
        properties |= {"ruling": text, "winner": choice_schema(names, or_null=True)}
    elif manner == "vote":
        properties |= {"agree": list_schema(winner, len(names)), "winner": winner}
    else:
        properties |= {"winner": winner}
    return encode_schema(properties)


def _read(text: str, names: Sequence[str], manner: str) -> Ruling | None:
    try:
        found = find_json(text)
    except Invalid:
        return None
    if not isinstance(found, dict):
        return None
    table = cast("dict[str, object]", found)
    winner = _named(table.get("winner"), names)
    why = _words(table.get("why")) or _words(table.get("reason"))
    ruling = _words(table.get("ruling"))
    if not winner and (manner != "contradiction" or table.get("winner") is not None or not (why or ruling)):
        return None
    listed = table.get("agree")
    agree = [_named(one, names) for one in cast("list[object]", listed)] if isinstance(listed, list) else []
    return Ruling(
        winner=winner,
        why=why or ruling,
        ruling=ruling,
        agree=tuple(dict.fromkeys(one for one in (winner, *agree) if one)),
    )


def _named(said: object, names: Sequence[str]) -> str:
    """The task that is meant, also with brackets or the word task around it."""
    if not isinstance(said, str):
        return ""
    plain = re.sub(r"^(?:task\s+)?\[?|\]?$", "", said.strip(), flags=re.IGNORECASE)
    return next((one for one in names if plain in (one, f"[{one}]")), said.strip() if said.strip() in names else "")


def _words(said: object) -> str:
    return " ".join(said.split())[:_WHY] if isinstance(said, str) else ""
