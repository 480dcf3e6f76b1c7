"""Clauses about memory: what is to be kept and where, and notes of turns."""

import re
from typing import cast

from msgspec import Struct

from chargehand.models.demo.job import Arguments, CallsNeededError, Job
from chargehand.models.demo.request import Clause, RefusedError
from chargehand.models.demo.words import join_words, shorten, stem, stem_set
from chargehand.models.messages import Reply

INSERT = "archival_memory_insert"
APPEND = "core_memory_append"
_KEEPS_UNASKED = "Keep your findings in the archive"
"""What the prompt of a worker says that keeps everything it finds."""
_TAGGED = re.compile(r"\btagged (?:as |with )?(?P<tags>[\w-]+(?:(?:,\s*(?:and )?|\s+and\s+)[\w-]+)*)", re.IGNORECASE)
_PLACE = re.compile(r"\b(?:to|in|into|on|onto)\s+(?:the |our |my |your )?(?:block )?(?P<place>[\w-]+)", re.IGNORECASE)
_ARCHIVE = stem_set("archive memory findings")


class Keeping(Struct, frozen=True):
    """Where results are to be kept: in an archive with tags, or on a block."""

    block: str = ""
    tags: tuple[str, ...] = ()

    @property
    def tool(self) -> str:
        return APPEND if self.block else INSERT

    @property
    def place(self) -> str:
        if self.block:
            return f"the block {self.block}"
        return "the archive" + (f", tagged {join_words(list(self.tags))}" if self.tags else "")

    def sentence(self, what: str = "what you find") -> str:
        """How a task says it."""
        return f"Add {what} to {self.place}." if self.block else f"Keep {what} in {self.place}."


def read_keeping(clause: Clause) -> Keeping:
    """Where a clause of the kind `keep` wants results kept; RefusedError where that is not clear."""
    tagged = _TAGGED.search(clause.text)
    tags = tuple(re.findall(r"[\w-]+", re.sub(r"\band\b", " ", tagged["tags"]))) if tagged else ()
    places = _PLACE.findall(clause.text[: tagged.start()] if tagged else clause.text)
    if not clause.points_back or not (places or tags):
        raise RefusedError("what is to be kept, or where, is not clear")
    if places and stem(places[-1]) not in _ARCHIVE:
        return Keeping(block=places[-1].lower(), tags=tags)
    return Keeping(tags=tags)


def read_keepings(job: Job, clauses: tuple[Clause, ...]) -> list[Keeping]:
    """Everything that a task, or the prompt of its worker, wants kept."""
    keepings = [read_keeping(clause) for clause in clauses if clause.kind == "keep"]
    if not keepings and _KEEPS_UNASKED in job.prompt and job.tool(INSERT) is not None:
        return [Keeping()]
    return keepings


def keep(keeping: Keeping, job: Job, text: str) -> str:
    """Keep a result, and say so."""
    content = text or "\n".join(job.given.texts)
    if job.tool(keeping.tool) is None or not content:
        raise RefusedError(f"this worker has nothing that it may add to {keeping.place}.")
    arguments: Arguments = {"content": content}
    if keeping.block:
        arguments = {"label": keeping.block, "content": " ".join(content.split())}
    elif keeping.tags:
        arguments["tags"] = list(keeping.tags)
    outcome = job.outcomes_of(keeping.tool, [arguments])[0]
    if outcome.error:
        raise RefusedError(outcome.error)
    return f"Added to {keeping.place}." if keeping.block else f"Kept in {keeping.place}."


def note_turns(job: Job) -> Reply | None:
    """The next step of a background worker: a line for each turn it was given, on the block it may add to.

    None for any other task.
    """
    values = [cast("dict[str, object]", given.value) for given in job.subject.inputs if isinstance(given.value, dict)]
    turns = [value for value in values if value.get("kind") == "turn"]
    if not turns:
        return None
    block = next((block for block in job.subject.blocks if block.access in {"write", "append"}), None)
    if block is None or job.tool(APPEND) is None:
        raise RefusedError("there is no block here that lines may be added to")
    if job.outcomes:
        outcome = job.outcomes[-1]
        if outcome.error:
            raise RefusedError(outcome.error)
        return Reply(f"Noted: {outcome.value}.")
    noted = block.text.splitlines()
    new = [line for line in dict.fromkeys(_turn_line(turn) for turn in turns) if line not in noted]
    if not new:
        return Reply(f"Nothing new: what was asked is noted in {block.label} already.")
    raise CallsNeededError([(APPEND, {"label": block.label, "content": "\n".join(new)})])


def _turn_line(turn: dict[str, object]) -> str:
    """What was asked, and how the answer begins."""
    asked = shorten(str(turn.get("request", "")), 120)
    answer = str(turn.get("answer", "")).strip().partition("\n")[0]
    return f"- {asked} -> {shorten(answer, 200) or '(no answer)'}"
