"""Clauses about memory: what is to be kept, where, and what is asked of an archive or a block; notes of turns."""

import re
from typing import cast

from msgspec import Struct

from chargehand.models.demo.job import Arguments, CallsNeededError, Job
from chargehand.models.demo.request import LOOKING, Clause, RefusedError, parse_request
from chargehand.models.demo.words import content_stems, join_words, shorten, stem, stem_set
from chargehand.models.messages import Reply
from chargehand.models.subject import Shown

INSERT = "archival_memory_insert"
APPEND = "core_memory_append"
SEARCH = "archival_memory_search"
_RETHINK = "memory_rethink"
_KEEPS_UNASKED = "Keep your findings in the archive"
"""What the prompt of a worker says that keeps everything it finds."""
_TAGGED = re.compile(r"\btagged (?:as |with )?(?P<tags>[\w-]+(?:(?:,\s*(?:and )?|\s+and\s+)[\w-]+)*)", re.IGNORECASE)
_PLACE = re.compile(r"\b(?:to|in|into|on|onto)\s+(?:the |our |my |your )?(?:block )?(?P<place>[\w-]+)", re.IGNORECASE)
_FACT = re.compile(
    r"\A(?:remember|note|keep in mind|record)(?: down)?(?: that)?[:\s]+(?P<fact>.+)", re.IGNORECASE | re.DOTALL
)
_ALREADY = re.compile(
    r"\b(?:already (?:know|have|found|kept)|in (?:the|our) archive|search the archive)\b", re.IGNORECASE
)
_ARCHIVE = stem_set("archive memory findings")
_ASKING = stem_set("already know known found kept archive search find memory learnt learned have")
_ARROW = " -> "
_LIMIT = re.compile(r"more than its limit of (\d+)")
_MARKUP = re.compile(r"^[\s#>*_-]+|[*_`#]+|\s*\[[^\[\]\n]{1,60}\]")


class Keeping(Struct, frozen=True):
    """Something that is to be kept: in an archive with tags, or on a block."""

    block: str = ""
    tags: tuple[str, ...] = ()
    text: str = ""
    """What is to be kept, where the clause itself says it; else it is what was found."""

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


def read_keeping(clause: Clause) -> Keeping | None:
    """What a clause of the kind `keep` asks for; None where it is not clear."""
    tagged = _TAGGED.search(clause.text)
    tags = tuple(re.findall(r"[\w-]+", re.sub(r"\band\b", " ", tagged["tags"]))) if tagged else ()
    places = _PLACE.findall(clause.text[: tagged.start()] if tagged else clause.text)
    fact = _FACT.match(clause.text)
    if fact is not None and not clause.points_back:
        return Keeping(text=fact["fact"].strip().rstrip("."), tags=tags)
    if places and stem(places[-1]) not in _ARCHIVE:
        return Keeping(block=places[-1].lower(), tags=tags)
    return Keeping(tags=tags) if places or tags or clause.points_back else None


def read_keepings(job: Job, clauses: tuple[Clause, ...]) -> list[Keeping]:
    """Everything a task asks to keep, or its prompt."""
    keepings = [keeping for clause in clauses if clause.kind == "keep" and (keeping := read_keeping(clause))]
    if not keepings and _KEEPS_UNASKED in job.prompt and job.tool(INSERT) is not None:
        return [Keeping()]
    return keepings


def keep(keeping: Keeping, job: Job, text: str) -> str:
    """Keep something, and say so."""
    content = keeping.text or text or "\n".join(job.given.texts)
    if job.tool(keeping.tool) is None:
        raise RefusedError(f"this worker may not add to {keeping.place}.")
    if not content:
        raise RefusedError("there is nothing to keep.")
    arguments: Arguments = {"content": content, "tags": list(keeping.tags)} if keeping.tags else {"content": content}
    if keeping.block:
        arguments = {"label": keeping.block, "content": " ".join(content.split())}
    outcome = job.outcomes_of(keeping.tool, [arguments])[0]
    if outcome.error:
        raise RefusedError(outcome.error)
    return f"Added to {keeping.place}." if keeping.block else f"Kept in {keeping.place}."


def asks_archive(clause: Clause) -> bool:
    """Whether a clause asks what was kept earlier."""
    return _ALREADY.search(clause.text) is not None


def archive_question(clause: Clause) -> Clause:
    """The question what an archive says about the words of a clause."""
    verb = clause.tokens[0] if clause.opening in LOOKING else None
    words = [token.text for token in clause.content if token.stem not in _ASKING and token is not verb]
    words += [period.words for period in clause.periods]
    return parse_request(f"What does the archive say about {' '.join(words)}").clauses[0]


def asked_block(clause: Clause, blocks: tuple[Shown, ...]) -> Shown | None:
    """The block that a clause asks about by its name."""
    words = {token.stem for token in clause.tokens}
    named = [block for block in blocks if content_stems(block.label) <= words]
    return named[0] if len(named) == 1 else None


# --- a background worker: one line a turn, what was asked and how the answer begins, on the block it may write


def note_turns(job: Job) -> Reply | None:
    """The next step of a worker that was given turns to note; None for any other task."""
    values = [cast("dict[str, object]", given.value) for given in job.subject.inputs if isinstance(given.value, dict)]
    turns = [value for value in values if value.get("kind") == "turn"]
    if not turns:
        return None
    written = [outcome for outcome in job.outcomes if not outcome.error]
    if written:
        return Reply(f"Noted: {written[-1].value}.")
    errors = [outcome.error for outcome in job.outcomes]
    place = next((block for block in job.subject.blocks if block.access in {"write", "append"}), None)
    if place is None or len(errors) > 2:
        raise RefusedError(errors[-1] if errors else "there is no block here that may be written to")
    noted = [line for line in place.text.splitlines() if line.strip()]
    new = [line for line in dict.fromkeys(_turn_line(turn) for turn in turns) if line not in noted]
    if not new:
        return Reply(f"Nothing new: what was asked is noted in {place.label} already.")
    if place.access == "write" and job.tool(_RETHINK) is not None:
        limit = next((int(match[1]) for error in errors if (match := _LIMIT.search(error))), 0)
        lines = _replace_lines(noted, new, limit)
        raise CallsNeededError([(_RETHINK, {"label": place.label, "new_memory": "\n".join(lines)})])
    raise CallsNeededError([(APPEND, {"label": place.label, "content": "\n".join(new)})])


def _replace_lines(noted: list[str], new: list[str], limit: int) -> list[str]:
    """The lines with new ones for what was asked again; the oldest go where a block has no room."""
    asked = {line.partition(_ARROW)[0] for line in new}
    kept = [line for line in noted if line.partition(_ARROW)[0] not in asked] + new
    while limit and len(kept) > 1 and sum(len(line) + 1 for line in kept) > 0.8 * limit:
        kept.pop(0)
    return kept


def _turn_line(turn: dict[str, object]) -> str:
    answer = " ".join(_MARKUP.sub("", line) for line in str(turn.get("answer", "")).splitlines() if line.strip())
    first = re.split(r"(?<=[.?!])\s+(?=[A-Z\"'(])", " ".join(answer.split()), maxsplit=1)[0]
    asked = shorten(str(turn.get("request", "")).replace("->", "=>"), 120)
    return f"- {asked}{_ARROW}{shorten(first.replace('->', '=>'), 200) or '(no answer)'}"
