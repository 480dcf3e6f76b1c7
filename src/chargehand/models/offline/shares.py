"""A worker's share of what goes to several: of a request with many parts, or of a talk, it does what it can.

What is one piece of work is done as ever. How that is done is not known here.
"""

import re
from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec
from msgspec import Struct, structs

from chargehand.models.left_out import LEFT, NOTHING
from chargehand.models.messages import Message, Reply, ToolCall
from chargehand.models.offline.choosing import OURS
from chargehand.models.offline.drafts import sentence, without_returns
from chargehand.models.offline.ledger import Step, Steps
from chargehand.models.offline.listed import listed, only, without
from chargehand.models.offline.material import outcomes
from chargehand.models.offline.task_text import asked
from chargehand.models.offline.unknown_names import unknown
from chargehand.models.offline.vocabulary import VERBS
from chargehand.models.offline.words import stem
from chargehand.models.subject import Given, Planning, Working

_MOST = 6  # parts
_STEPS = 12  # of one of them; the rules take fewer
_TURN = re.compile(r"^Reply as \S+: it is your turn", re.MULTILINE)
_DOES = re.compile(r"^(?P<verb>[A-Za-z]+?)(?:s|es)?\s+(?P<rest>\S.*?)\.?$", re.DOTALL)
_NONE = Reply(calls=(ToolCall("", "give_up", "{}"),))
Do: TypeAlias = Callable[[Working, Sequence[Message]], Reply]


def is_turn(instruction: str) -> bool:
    """Whether a task is somebody's turn in a talk."""
    return _TURN.search(instruction) is not None


def share(subject: Working, messages: Sequence[Message], do: Do) -> Reply:
    """The next step. A part that cannot be done is left to the others, and said so."""
    told = _told(messages)
    if told is None:
        return do(subject, messages)
    pages = _Pages(*told, do)
    if without_returns(subject.instruction) != subject.instruction:  # a plan put it like this: it is one piece of work
        if len(listed(asked(subject.instruction))) < 2:
            return do(subject, messages)
        return _of_those_known(subject, pages) or pages.asked
    parts = _parts(subject, pages)
    if parts is None:
        return pages.asked
    if not _gave_up(parts) or pages.trouble:
        return parts
    whole = _of_those_known(subject, pages)
    if whole is None:
        return pages.asked
    heard = any(one.value is not None for one in subject.inputs)
    if not (is_turn(subject.instruction) and heard) or pages.trouble:
        return whole
    if not _gave_up(whole) and not _said_before(whole.text, subject):
        return whole
    own = pages.read(structs.replace(subject, instruction=_own_words(subject)))
    if own is None:
        return pages.asked
    return Reply(NOTHING) if _gave_up(own) or _said_before(own.text, subject) else own


def _of_those_known(subject: Working, pages: "_Pages") -> Reply | None:
    """What comes of it; where it is given up because of some of the names in a list, what comes of the others."""
    whole = pages.read(subject)
    if whole is None or not _gave_up(whole):
        return whole
    text = asked(subject.instruction)
    reason = msgspec.json.decode(whole.calls[0].arguments, type=_Reason).reason
    gone = unknown(text, reason, outcomes([one for step in pages.steps[: pages.at] for one in step]))
    if not gone:
        return whole
    instruction = subject.instruction.replace(text, without(text, gone)) if text in subject.instruction else ""
    rest = pages.read(structs.replace(subject, instruction=instruction)) if instruction else whole
    if rest is None or _gave_up(rest):
        return None if rest is None else whole
    alone = pages.read(structs.replace(subject, instruction=subject.instruction.replace(text, only(text, gone))))
    if alone is None:
        return None
    if not _gave_up(alone):  # it was only not found beside the others
        return structs.replace(rest, text=f"{rest.text}\n\n{alone.text}")
    left = " ".join(sentence(only(text, [one])) for one in gone)
    return structs.replace(rest, text=f"{rest.text}\n\n{LEFT}{left}")


class _Reason(Struct, frozen=True):
    reason: str = ""


def _parts(subject: Working, pages: "_Pages") -> Reply | None:
    """What comes of the parts, one after the other; a give-up where nothing does."""
    steps, missed = _planned(subject)
    found: dict[str, Given] = {}
    for name, step in steps.items():
        inputs = tuple(found[one] for one in step.after if one in found)
        lacking = len(inputs) < len(step.after)
        part = structs.replace(subject, instruction=step.instruction, inputs=inputs, gaps=())
        reply = None if lacking else pages.read(part)
        if reply is None and not lacking:
            return None
        if reply is None or _gave_up(reply):
            missed.append(asked(without_returns(step.instruction)))
        else:
            found[name] = Given(name, step.instruction, subject.worker.name, reply.text)
    if not found:
        return pages.last if pages.trouble else _NONE
    said = [str(one.value) for one in found.values()]
    return Reply("\n\n".join([*said, *([LEFT + " ".join(missed)] if missed else [])]))


def _planned(subject: Working) -> tuple[dict[str, Step], list[str]]:
    """The parts as a plan for this worker alone would have them, and those it would not have."""
    from chargehand.models.offline.planning import plan  # noqa: PLC0415 - most tasks are one piece of work

    goal = asked(subject.instruction)
    found = msgspec.json.decode(plan(Planning(goal, (subject.worker,), _MOST)), type=Steps)
    if len(found.tasks) + len(found.unserved) < 2:
        return {}, []
    return dict(found.tasks), [sentence(re.split(r": (?=nobody|no )", one)[0]) for one in found.unserved]


def _own_words(subject: Working) -> str:
    """What a worker says it does, as something to do: "Adds up the costs." becomes "Add up the costs."."""
    found = _DOES.match(subject.worker.description.strip())
    if found is None:
        return subject.worker.description or subject.instruction
    verb = found["verb"].lower()
    plain = next((one for one in (verb, f"{verb}e") if one in VERBS), verb)
    return f"{plain.capitalize()} {found['rest']}."


def _said_before(text: str, subject: Working) -> bool:
    """Whether every word of it was said by others, or says what they could not."""
    known = [*(str(one.value) for one in subject.inputs), *(f"Missing: {one.message}" for one in subject.gaps)]
    said = {stem(word) for one in known for word in re.findall(r"\w+", one.lower())}
    return all(stem(one) in said for one in re.findall(r"\w+", text.lower()))


# --- what was done so far, read again part by part


class _Pages(Struct):
    """The steps that were taken, in order. The rules say the same each time, so who took which can be told."""

    opening: list[Message]
    steps: list[list[Message]]
    do: Do
    at: int = 0
    asked: Reply = Reply()
    last: Reply = Reply()
    trouble: bool = False
    known: dict[tuple[str, str], str] = {}

    def read(self, subject: Working) -> Reply | None:
        """What comes of a piece of work in the end; None where its next step, `asked`, is yet to be taken."""
        mine: list[Message] = list(self.opening)
        for _ in range(_STEPS):
            self.last = reply = self.do(subject, mine)
            if not reply.calls or _gave_up(reply):
                self.trouble = self.trouble or (_gave_up(reply) and " failed: " in reply.calls[0].arguments)
                return reply
            if all((call.name, call.arguments) in self.known for call in reply.calls):
                mine += self._again(reply)
            elif self.at >= len(self.steps):
                self.asked = _numbered(reply, len(self.steps) + 1)
                return None
            else:
                mine += self._taken()
        return _NONE

    def _taken(self) -> list[Message]:
        step = self.steps[self.at]
        self.at += 1
        asked = {call.id: (call.name, call.arguments) for call in step[0].calls}
        self.known |= {asked[one.call]: one.text for one in step[1:] if one.call in asked}
        return step

    def _again(self, reply: Reply) -> list[Message]:
        """What another part asked for already is not asked for twice."""
        made = [Message("tool", self.known[call.name, call.arguments], call=call.id) for call in reply.calls]
        return [reply.message(), *made]


def _told(messages: Sequence[Message]) -> tuple[list[Message], list[list[Message]]] | None:
    """What was said before the first step, and the steps; None where there is more to it than calls and results."""
    opening: list[Message] = []
    steps: list[list[Message]] = []
    for message in messages:
        if message.role == "assistant":
            if not message.calls or any(call.name in OURS for call in message.calls):
                return None
            steps.append([message])
        elif not steps:
            opening.append(message)
        elif message.role != "tool":
            return None
        else:
            steps[-1].append(message)
    return opening, steps


def _numbered(reply: Reply, step: int) -> Reply:
    calls = tuple(structs.replace(call, id=f"call_{step}_{at}") for at, call in enumerate(reply.calls, 1))
    return structs.replace(reply, calls=calls)


def _gave_up(reply: Reply) -> bool:
    return any(call.name == "give_up" for call in reply.calls)
