"""A worker's step where memory plays a part: look up, do the rest as always, keep what was found, say what was kept.

Where a task has nothing to do with memory, what is done without one is done.
"""

import re
from collections.abc import Callable, Sequence

from msgspec import Raw, structs

from chargehand.models.messages import Message, Reply, ToolSpec
from chargehand.models.offline.choosing import choices
from chargehand.models.offline.composing import compose
from chargehand.models.offline.forms import unknown_form
from chargehand.models.offline.material import Material
from chargehand.models.offline.remembering.asks import Ask, ask
from chargehand.models.offline.remembering.family import INSERT, speaks_of_archives
from chargehand.models.offline.remembering.keeping import Wish, due, headed, told
from chargehand.models.offline.remembering.notebook import Notebook, calling, for_good, gave_up, giving_up, opened
from chargehand.models.offline.remembering.own_text import from_request
from chargehand.models.offline.remembering.recalling import (
    Recalled,
    any_block,
    from_archive,
    from_block,
    from_earlier,
    speaks_of,
)
from chargehand.models.offline.remembering.wishes import Keep, wishes, without
from chargehand.models.offline.shaping import shaped
from chargehand.models.offline.task_text import asked, hollow, says
from chargehand.models.subject import Working

Ordinary = Callable[[Working, Raw | None], Reply]
"""What a worker does without memory."""
_FIRST = re.compile(r"(?<=[.?!])\s+(?=[A-Z])")
_STANDING = re.compile(
    r"\b(?:keep|store|record|save|remember|note|file|archive|put|insert)s?\b[^.!?\n]{0,60}?"
    r"\b(?:findings?|what (?:you|i|we) (?:find|found|learn|discover)|insights?|discover(?:y|ies)|conclusions?|"
    r"results?)\b",
    re.IGNORECASE,
)
_WRITTEN = ("write", "draft", "compose", "memo", "letter")  # these rest on results, or there are none
_NOT = re.compile(r"\b(?:not|never|n't|without)\b[^.!?\n]{0,30}\Z", re.IGNORECASE)


def work_with_memory(
    subject: Working, messages: Sequence[Message], tools: Sequence[ToolSpec], schema: Raw | None, ordinary: Ordinary
) -> Reply:
    """The next step of a task."""
    book = opened(subject, messages, tools)
    if INSERT in book.tools and re.search(rf"\b{INSERT}\b", book.sent_back) and not book.results(INSERT):
        return calling([("keep_told", INSERT, {"content": headed(asked(subject.instruction), book.last)})])
    parts = wishes(book.subject.instruction, book.labels)
    if book.empty and not any(isinstance(one.wish, Keep) and one.wish.plain for one in parts):
        return ordinary(subject, schema)
    kept: list[Wish] = [one.wish for one in parts]
    rest = without(book.subject.instruction, parts) if parts else subject.instruction
    step = _Step(book, structs.replace(subject, instruction=rest), tools, schema, ordinary)
    return step.take(kept)


class _Step:
    def __init__(
        self, book: Notebook, subject: Working, tools: Sequence[ToolSpec], schema: Raw | None, ordinary: Ordinary
    ) -> None:
        self.book = book
        self.subject = subject
        self.idle = not choices(tools)
        self.filed = any(speaks_of_archives(one) for one in choices(tools))
        self.schema = schema
        self.ordinary = ordinary
        self.recalled = False
        self.have = Material()

    def take(self, kept: list[Wish]) -> Reply:
        found = self.found(kept)
        if found.calls:
            return found
        kept = kept or self.standing(found.text)
        if not kept:
            plain = self.schema is None or self.recalled
            return self.shape(found.text) if plain else self.ordinary(self.subject, self.schema)
        about = asked(self.subject.instruction) if not hollow(self.subject.instruction) else ""
        if calls := due(self.book, kept, about, found.text):
            return calling(calls)
        done, failed = told(self.book, kept, about, found.text)
        if failed and not found.text:
            return giving_up("; ".join(failed))
        lines = [*done, *(f"This could not be kept: {one}." for one in failed)]
        if self.schema is not None and found.text:
            return self.shape(found.text) if self.recalled else self.ordinary(self.subject, self.schema)
        return self.shape("\n".join(part for part in (found.text, *lines) if part))

    def shape(self, text: str) -> Reply:
        if self.schema is None:
            return Reply(text)
        made, missing = shaped(self.schema, self.have, text, self.subject.instruction)
        return (
            giving_up(f"what was found does not say {' and '.join(missing)}: {text[:300]}") if missing else Reply(made)
        )

    def found(self, kept: Sequence[Wish]) -> Reply:
        """What the task asks for, apart from keeping it; no text where it asks for nothing else."""
        instruction = self.subject.instruction
        if not kept or not hollow(instruction):
            wanted = ask(_FIRST.split(asked(instruction))[0], self.book.labels)
            meant = wanted is not None and not (wanted.kind == "archive" and wanted.plain and self.filed)
            return self.looked_up(wanted) if wanted is not None and meant else self.done()
        open_ = [one for one in kept if isinstance(one, Keep) and not one.said]
        if not open_:
            return Reply()
        if facts := _facts(self.subject):
            return Reply(facts)
        if about := next((one.about for one in open_ if one.about), ""):
            self.subject = structs.replace(self.subject, instruction=f"{about[:1].upper()}{about[1:]}.")
            return self.done()
        return giving_up("there is nothing to keep: no results were given, and the task does not say it")

    def looked_up(self, wanted: Ask) -> Reply:
        match wanted.kind:
            case "archive":
                recalled = from_archive(self.book, wanted, self.subject.instruction)
            case "earlier":
                recalled = from_earlier(self.book, wanted)
            case "block":
                block = self.book.block(wanted.label)
                recalled = Recalled(why=f"there is no block {wanted.label!r} here")
                recalled = recalled if block is None else from_block(block, wanted.topic)
        if recalled.calls is not None:
            return recalled.calls
        if recalled.text:
            return self.answered(recalled)
        if self.idle:
            return giving_up(recalled.why, final=True)
        if wanted.kind == "archive":
            self.subject = structs.replace(self.subject, instruction=_without_archive(wanted))
        other = self.ordinary(self.subject, None)
        if reason := gave_up(other):
            return giving_up(f"{recalled.why}; {reason}", final=for_good(other))
        if wanted.topic and not other.calls and not speaks_of(other.text, wanted.topic):
            return giving_up(f"{recalled.why}, and neither does what else was found", final=True)
        return other

    def answered(self, recalled: Recalled) -> Reply:
        self.recalled = True
        self.have = recalled.have or self.have
        return Reply(recalled.text)

    def done(self) -> Reply:
        """The rest as always; who has no tool for it may know it from what it sees, or from its archive."""
        reply = self.ordinary(self.subject, None)
        reason = gave_up(reply)
        question = asked(self.subject.instruction)
        if not reason or not self.idle or unknown_form(question) or says(question, *_WRITTEN):
            return reply
        own = from_request(question)
        if own:
            self.recalled = True
            return Reply(own)
        recalled = any_block(self.book, question)
        if not recalled.text:
            recalled = from_archive(self.book, Ask("archive"), question)
        if recalled.calls is not None:
            return recalled.calls
        return self.answered(recalled) if recalled.text else giving_up(f"{reason}; {recalled.why}")

    def standing(self, text: str) -> list[Wish]:
        """Whether whoever works here keeps findings anyway, because it was told so once for all."""
        remembered = self.recalled and self.have.passages
        if not text or remembered or INSERT not in self.book.tools:
            return []
        for told_so in _STANDING.finditer(self.book.orders):
            if not _NOT.search(self.book.orders[max(0, told_so.start() - 60) : told_so.start()]):
                return [Keep(whole=True)]
        return []


def _without_archive(wanted: Ask) -> str:
    """The same question for tools that know nothing of archives."""
    asks = re.match(r"(?:what|which|who|how|when|where|why|is|are|do|does|did|has|have)\b", wanted.topic, re.IGNORECASE)
    return f"{wanted.topic}?" if asks else f"What do we know about {wanted.topic}?"


def _facts(subject: Working) -> str:
    """What the inputs say, each with what it is about."""
    told = [headed(one.instruction, compose("", [one], ())) for one in subject.inputs]
    missing = [f"Missing: {one.message}" for one in subject.gaps if one.message and any(told)]
    return "\n".join(one for one in (*told, *missing) if one)
