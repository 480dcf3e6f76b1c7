"""Answers out of memory: from blocks, from what an archive returned, from earlier tasks. Nothing is made up.

A search by words always finds something; whether that is about the matter is checked here.
"""

import re
from collections.abc import Sequence
from typing import cast

from msgspec import Struct

from chargehand.models.exhibits import Passage, Passages
from chargehand.models.messages import Reply
from chargehand.models.offline.closing import asked as question_of
from chargehand.models.offline.closing import tells_of_memory
from chargehand.models.offline.evidence import unsaid
from chargehand.models.offline.material import Material, Outcome, gather
from chargehand.models.offline.phrasing import passages_text
from chargehand.models.offline.remembering.asks import Ask
from chargehand.models.offline.remembering.asks import ask as ask_of
from chargehand.models.offline.remembering.family import CONVERSATION, SEARCH
from chargehand.models.offline.remembering.notebook import Notebook, calling
from chargehand.models.offline.searching import query, shorter
from chargehand.models.offline.words import related, terms
from chargehand.models.subject import Given, Said, Shown

_NOTHING = re.compile(
    r"\b(?:nothing|no (?:passages?|results?|match(?:es)?))\s+(?:was |were )?found\b|\Anothing\b", re.IGNORECASE
)
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9\"'])|\n+")
_LONGEST = 600
_TURNS = _PASSAGES = 3


class Recalled(Struct, frozen=True):
    """What memory says; or, with no text, why it says nothing. `calls` have to be made first."""

    text: str = ""
    why: str = ""
    calls: Reply | None = None
    have: Material | None = None


def from_archive(book: Notebook, ask: Ask, words: str) -> Recalled:
    """Search, search once more with fewer words, then say what was found."""
    if SEARCH not in book.tools:
        return Recalled(why="there is no archive here to search")
    looked_for = query(ask.topic or words)
    tries = list(dict.fromkeys((looked_for, shorter(looked_for))))
    for number, one in enumerate(tries, 1):
        outcome = book.came_of(f"search_{number}")
        if outcome is None:
            return Recalled(calls=calling([(f"search_{number}", SEARCH, _searched(one, ask))]))
        if outcome.error:
            return Recalled(why=f"{SEARCH} failed: {outcome.error}")
        have = _passages(outcome, one)
        if have.passages and have.passages[0].found:
            return _told(have, ask.topic or words)
    return Recalled(why=f"the archive says nothing about {_topic(ask.topic or words)}")


def _searched(looked_for: str, ask: Ask) -> dict[str, object]:
    more = {
        "tags": list(ask.tags), "start_datetime": ask.since, "end_datetime": ask.until, "archive": ask.archive,
    }  # fmt: skip
    return {"query": looked_for, **{name: value for name, value in more.items() if value}}


def _passages(outcome: Outcome, looked_for: str) -> Material:
    """What a search returned, as passages; a list of texts becomes some too."""
    have = gather([outcome.value])
    if have.passages:
        return have
    found = [_passage(one) for one in have.objects if one.get("content") or one.get("text")]
    if isinstance(outcome.value, list):
        rows = [cast("dict[str, object]", one) for one in cast("list[object]", outcome.value) if isinstance(one, dict)]
        found = [_passage(one) for one in rows if one.get("content") or one.get("text")]
    found += [Passage("archive", one) for one in have.texts if not _NOTHING.search(one[:200])]
    return Material(passages=[Passages(looked_for, tuple(found))])


def _passage(one: dict[str, object]) -> Passage:
    return Passage(str(one.get("source") or one.get("id") or "archive"), str(one.get("content") or one["text"]))


def _told(have: Material, topic: str) -> Recalled:
    """The passages that know the words of a topic: all of two, of more at most a third may be missing."""
    about = _topic(topic)
    every = have.passages[0]
    fitting = tuple(one for one in every.found if speaks_of(f"{one.text} {' '.join(one.tags)}", topic))
    if not fitting:
        return Recalled(why=f"the archive says nothing about {about} ({every.found[0].source} comes closest)")
    found = Passages(every.query, fitting)
    if why := unsaid(f"What is said about {about}?", [found], ""):
        return Recalled(why=f"the archive says nothing about {about}: {why.partition(': ')[2]}")
    each = [passages_text(Passages(found.query, (one,)), topic) for one in fitting[:_PASSAGES]]
    return Recalled("\n".join(each), have=Material(passages=[found]))


def speaks_of(text: str, topic: str) -> bool:
    own = set(terms(text))
    wanted = [term for term in dict.fromkeys(terms(query(_topic(topic)))) if not term[0].isdigit()]
    lost = [term for term in wanted if not any(related(term, other) >= 0.6 for other in own)]
    return len(lost) <= len(wanted) // 3


def _topic(said: str) -> str:
    plain = re.sub(
        r"\A(?:what|which|who|how|when|where|why|whether|did|do|does|is|are|was|were|has|have)\b(?:\s+(?:is|are|was|were|did|do|does|has|have|many|much)\b)*\s*",
        "",
        said.strip(),
        flags=re.IGNORECASE,
    )
    return (plain or said).strip(" ?.,")[:200]


def from_block(block: Shown, topic: str) -> Recalled:
    """What a block says about something; all of it where nothing is named."""
    text = block.text.strip()
    if not text:
        return (
            Recalled(f"The block {block.label} is empty.")
            if not topic
            else Recalled(why=f"the block {block.label} is empty")
        )
    if not topic:
        return Recalled(_sourced(text[: 10 * _LONGEST], block))
    wanted = [term for term in dict.fromkeys(terms(_topic(topic))) if not term[0].isdigit()]
    said = [one for one in _SENTENCE.split(text) if one.strip() and _shares(one, wanted)]
    if not said or not wanted:
        return Recalled(why=f"the block {block.label} says nothing about {_topic(topic)}")
    return Recalled(_sourced(" ".join(one.strip() for one in said)[: 5 * _LONGEST], block))


def _sourced(text: str, block: Shown) -> str:
    """The source before the full stop, so that no sentence is without it."""
    plain = text.rstrip(".")
    return f"{plain} (block {block.label})."


def _shares(sentence: str, wanted: Sequence[str], part: float = 0.5) -> bool:
    own = set(terms(sentence))
    hits = sum(any(related(term, other) >= 0.8 for other in own) for term in wanted)
    return hits > 0 and hits >= part * len(wanted)


def any_block(book: Notebook, question: str) -> Recalled:
    """The block that answers a question nobody put to a block; only where it has all its words."""
    wanted = [term for term in dict.fromkeys(terms(_topic(question))) if not term[0].isdigit()]
    for block in book.subject.blocks if wanted else ():
        if any(_shares(one, wanted, 1.0) for one in _SENTENCE.split(block.text)):
            return from_block(block, question)
    return Recalled(why="no block says it")


def from_earlier(book: Notebook, ask: Ask) -> Recalled:
    """What came of earlier tasks: those it still sees, else those a search finds."""
    wanted = list(dict.fromkeys(terms(ask.topic)))
    pairs = _pairs(book.subject.earlier)
    pairs = [one for one in pairs if (past := ask_of(question_of(_given(one[0])))) is None or past.kind != "earlier"]
    fitting = [one for one in pairs if not wanted or _shares(f"{one[0]} {one[1]}", wanted)]
    if fitting:
        return Recalled("\n".join(_turn(*one) for one in fitting[-_TURNS if wanted else -1 :]))
    about = f" about {ask.topic}" if ask.topic else ""
    if CONVERSATION not in book.tools:
        return Recalled(why=f"nothing{about} was said earlier")
    outcome = book.came_of("recall_1")
    if outcome is None:
        return Recalled(calls=calling([("recall_1", CONVERSATION, {"query": query(ask.topic) if ask.topic else ""})]))
    rows = cast("list[object]", outcome.value) if isinstance(outcome.value, list) else []
    turns = [cast("dict[str, object]", one) for one in rows if isinstance(one, dict)]
    said = [Said(str(one.get("role", "")), str(one.get("text") or one.get("content") or "")) for one in turns]
    if outcome.error or not said:
        return Recalled(why=f"nothing{about} was said earlier")
    return Recalled("\n".join(_turn(*one) for one in _pairs(said)[:_TURNS]))


def _pairs(turns: Sequence[Said]) -> list[tuple[str, str]]:
    """Each question with what came of it, the same only once; a summary stands alone."""
    found: dict[tuple[str, str], None] = {}
    asked = ""
    for one in turns:
        if one.role == "user":
            asked = one.text
        else:
            found.pop((asked, one.text), None)
            found[asked, one.text] = None
            asked = ""
    return [*found, *([(asked, "")] if asked else [])]


def _turn(asked: str, said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip() and not tells_of_memory(line)]
    answer = " ".join(lines)[:_LONGEST]
    if not asked.strip():
        return f"Earlier: {answer}"
    question = question_of(_given(asked)).rstrip("?")
    return f'Asked earlier: "{question}". What came of it: {answer or "nothing"}'


def _given(instruction: str) -> Given:
    return Given("", instruction, "", None)
