"""A request taken apart: one clause for each thing that is asked, with what holds for it said beside it.

Who could do a clause, and what a pronoun in it stands for, is decided elsewhere.
"""

import re
from collections.abc import Sequence

from msgspec import Struct, structs

from chargehand.models.offline.axes import drawn
from chargehand.models.offline.elided import bare_period, goes_on, period_behind, with_noun
from chargehand.models.offline.reading import read_text
from chargehand.models.offline.respects import in_respects, sides
from chargehand.models.offline.vocabulary import (
    AFTER_VERB,
    ASKING,
    AUXILIARY,
    DEEDS,
    NOUNS_TOO,
    PAST,
    PREPOSITIONS,
    RELATIVE,
    VERBS,
)
from chargehand.models.offline.words import dates, terms

LONGEST = 1_000  # characters of one clause
_NOW = re.compile(r",?\s+(?:at the moment|at present|right now|as of now)(?=\s*(?:[?.!,;]|$))", re.IGNORECASE)


class Clause(Struct, frozen=True):
    """One thing asked for.

    `scope` was said once for all clauses of its sentence, `given` are statements made before, `limits` say how the
    result is to be ("only paperback ones"). `sentence` counts from 0.
    """

    text: str
    sentence: int = 0
    scope: str = ""
    given: str = ""
    limits: tuple[str, ...] = ()


_LIMITING = re.compile(
    r"(?:keep|use|do not|don't|never|only|avoid|no more than|at most|be|answer|reply|respond|ignore|exclude|leave out|"
    r"limit|make sure|ensure|assume|note that|remember|round)\b(?!\s+(?:what|how|which|the (?:question|answer)))",
    re.IGNORECASE,
)
_FILLER = re.compile(
    r"(?:(?:hi|hello|hey|thanks|thank you|ok|okay|please|kindly|so|well|and|then|also|next|finally|lastly|afterwards|"
    r"after that|but|plus|now|just|firstly|secondly|thirdly|additionally|moreover|furthermore)\b[\s,:!.-]*"
    r"|(?:first|second|third)(?:,\s*|\s+of\s+all,?\s*)|first\s+(?=(?:" + "|".join(sorted(VERBS)) + r")\b)"
    r"|dear\s+\w+[\s,:!]+|good (?:morning|afternoon|evening|day)[\s,:!.]*)+",
    re.IGNORECASE,
)
_POLITE = re.compile(
    r"(?:(?:can|could|would|will)\s+(?:you|we|someone|anybody)\s+(?:please\s+|kindly\s+)?"
    r"|(?:i|we)(?:'d|\u2019d|\s+would)\s+like\s+(?:you\s+)?(?:to\s+)?(?:(?:know|see|have|understand|learn)\s+)?"
    r"|(?:i|we)\s+(?:want|need|wish)\s+(?:you\s+)?(?!to\b)"
    r"|(?:i|we)\s+(?:want|need|wish)\s+(?:you\s+)?to\s+(?:(?:know|see|have|understand|learn)\s+"
    r"|(?=(?:" + "|".join(sorted(VERBS | DEEDS)) + r")\b))"  # who wants to borrow says what is so, and asks then
    r"|ask\s+(?:the|your|our|all|every)\s+(?:the\s+)?\w+\s*(?::\s*|\Z)"
    r"|i\s+wonder\s+|help\s+(?:me|us)\s+(?:to\s+|with\s+)?"
    r"|(?:tell\s+(?:me|us)|let\s+(?:me|us)\s+know|find\s+out|say|show\s+me|figure\s+out)\s+"
    r"(?=(?:what|how|which|who|when|where|why|whether|if)\b)"
    r"|(?:do|answer)\s+the\s+following\b[\s:,]*)",
    re.IGNORECASE,
)
_FOR_ME = re.compile(r"^(show|give|tell|get|find|send|make|draw|list|write)\s+(?:me|us)\s+(?!about)", re.IGNORECASE)
_HIDDEN = re.compile(
    r"\"[^\"\n]{0,1000}\"|\u201c[^\u201d\n]{0,1000}\u201d|(?<!\w)'[^'\n]{0,1000}'(?!\w)|https?://\S+|\([^()\n]{0,1000}\)"
)
_ABBREVIATION = re.compile(
    r"(?:\b(?:dr|mr|mrs|ms|st|no|vs|e\.g|i\.e|etc|approx|prof|inc|ltd|co|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec)"
    r"|\b[A-Z])\.$",
    re.IGNORECASE,
)
_MARKER = re.compile(
    r"(?:(?<=\s)|\A)(?:\(?(\d{1,2})[.)]|step \d+[:.)])\s+(?=\S)|^[ \t]*[-*\u2022]\s+(?=\S)",
    re.IGNORECASE | re.MULTILINE,
)
_STOPS = re.compile(r"[.!?]+(?=\s|$)|;|\n+")
_JOINTS = re.compile(
    r"(?:\s*[,\u2013\u2014]\s*|\s+-\s+|\s+)"
    r"(?:(?:and|but)\s+(?:then|also|finally)|and|then|also|plus|as well as|next|finally)\s*,?\s+"
    r"|\s*,\s*|\s+[\u2013\u2014]\s+|\s+--?\s+|\s*:\s+",
    re.IGNORECASE,
)
# "... and a chart of them": something more is wanted, though no verb says so
_MADE = re.compile(
    r"(?:also\s+)?(?P<what>(?:a|an|one)\s+(?:[\w-]+\s+){0,2}?(?:(?P<drawn>chart|graph|plot|diagram)|memo|summary|letter|briefing|note)"
    r"\s+(?:of|about|on|for|showing|with)\s+(?:it|them|that|these|this|those|the (?:results?|numbers|figures))\b)",
    re.IGNORECASE,
)
_DO = re.compile(
    r"^do\s+(?:the|a|an|some|our)\s+(?P<what>(?:[\w-]+\s+){0,3}[\w-]+)\s+(?P<deed>research|analysis|review)\b",
    re.IGNORECASE,
)
_DEED = {"research": "analyse", "analysis": "analyse", "review": "review"}
_OPENERS = VERBS | ASKING | RELATIVE | AUXILIARY  # a clause that begins so is no statement
_WORD = re.compile(r"[\w'\u2019-]+")
_STATEMENT = re.compile(
    rf"(?:(?i:we|i|they|he|she)\s|(?i:our|my)\s+\w+\s+(?:\w{{2,}}ed|{'|'.join(sorted(PAST))})\b|"
    r"(?:(?i:our|my|the|this|there|it|a|an)|[A-Z]\w+)\s(?:\S+\s){0,8}?"
    r"(?:is|are|was|were|am|has|have|had|will|would|does|keeps?|hangs?|fails?|crashes|opens?|closes?|plans?|wants?|needs?|starts?)\b)",
)

_OWN = re.compile(r"(?:i|we|my|our)\s", re.IGNORECASE)


def split(request: str) -> list[Clause]:
    """The things asked for, in order. A text that asks for nothing is taken as one thing asked for."""
    reading = _Reading()
    said = (one for sentence in _sentences(_NOW.sub("", read_text(request))) for one in in_respects(sentence))
    for at, sentence in enumerate(said):
        reading.sentence(at, sentence)
    reading.late()
    return _dated_back(reading.clauses) or [Clause(text) for text in reading.statements[:8]]


def _dated_back(clauses: list[Clause]) -> list[Clause]:
    """A period at the end of one sentence holds for all the numbers it asks for."""
    found: list[Clause] = []
    for clause in clauses:
        later = [one.text for one in clauses if one.sentence == clause.sentence][-1]
        period = period_behind(clause.text, later) if not clause.scope else ""
        found.append(structs.replace(clause, text=f"{clause.text.rstrip('? ')} {period}") if period else clause)
    return found


class _Reading(Struct):
    clauses: list[Clause] = []
    statements: list[str] = []
    scope: str = ""

    def sentence(self, at: int, sentence: str) -> None:
        asks = sentence.rstrip().endswith("?")
        scope = self.scope
        self.scope = ""
        for piece in (side for one in _pieces(sentence) for side in sides(one)):
            text, asked = _plain(piece)
            text = bare_period(text) if self.clauses else text
            first = _first(text)
            told = not asks or (_OWN.match(text) is not None and not sentence.endswith(piece))
            if not terms(text) and not _points(text) and not (first == "why" and self.clauses):
                continue
            if first in PREPOSITIONS and not asked and not _asks_later(text):
                if self.clauses and (asks or self.clauses[-1].sentence == at) and not scope:
                    self.elided(at, text)
                else:
                    scope = f"{scope}, {text}".strip(", ")
            elif _LIMITING.match(text) and not asked and self.clauses:
                self.limit(text)
            elif _STATEMENT.match(text) and not asked and told and first not in _OPENERS:
                self.statements.append(text)
            else:
                text = with_noun(text, self.clauses[-1].text if self.clauses else "")
                given = ". ".join(self.statements)[:300]
                self.clauses.append(Clause(text[:LONGEST], at, scope[:LONGEST], given))
        if scope and not any(clause.sentence == at for clause in self.clauses):
            self.scope = scope  # "For Germany:" on a line of its own

    def late(self) -> None:
        """What is told after the last thing asked for belongs to that: nothing said is passed over."""
        rest = [one for one in self.statements if not any(one in clause.given for clause in self.clauses)]
        if rest and self.clauses:
            last = self.clauses[-1]
            self.clauses[-1] = structs.replace(last, given=". ".join([*filter(None, [last.given]), *rest])[:LONGEST])

    def limit(self, text: str) -> None:
        last = self.clauses[-1]
        self.clauses[-1] = Clause(last.text, last.sentence, last.scope, last.given, (*last.limits, text))

    def elided(self, at: int, text: str) -> None:
        """Ask again what was asked last, with this in place of its like: "And in 2025?"."""
        last = self.clauses[-1]
        if last.sentence == at and not dates(text):
            self.clauses[-1] = Clause(f"{last.text}, {text}", at, last.scope, last.given, last.limits)
            return
        before = last.text
        for dated in reversed(dates(before)) if dates(text) else ():
            head = re.sub(r"\s+(?:in|on|of|for|during|since|at)\s*$", "", before[: dated.start])
            before = head + before[dated.end :]
        self.clauses.append(Clause(f"{before.rstrip(' ?')} {text}", at, last.scope, last.given, last.limits))


def _masked(text: str) -> str:
    """The text with what must not be cut (quotations, addresses, brackets) made of x, as long as before."""
    return _HIDDEN.sub(lambda found: "x" * len(found[0]), text)


def _sentences(text: str) -> list[str]:
    masked = _masked(text)
    counts = _counts(masked)
    cuts = [found.span() for found in _MARKER.finditer(masked) if found[1] is None or counts]
    marked = {at for start, end in cuts for at in range(start, end)}
    for found in _STOPS.finditer(masked):
        before = masked[max(0, found.start() - 12) : found.start() + 1]
        if found.start() not in marked and not (found[0] == "." and _ABBREVIATION.search(before)):
            keep = found.start() + 1 if "?" in found[0] else found.start()
            cuts.append((keep, found.end()))
    return _between(text, sorted(cuts))


def _counts(masked: str) -> bool:
    found = [int(match[1]) for match in _MARKER.finditer(masked) if match[1]]
    return len(found) > 1 and found == list(range(found[0], found[0] + len(found)))


def _between(text: str, cuts: Sequence[tuple[int, int]]) -> list[str]:
    parts: list[str] = []
    at = 0
    for start, end in cuts:
        parts.append(text[at : max(at, start)])
        at = max(at, end)
    parts.append(text[at:])
    return [part.strip() for part in parts if part.strip(" \t\n.,;:!?-")]


def _pieces(sentence: str) -> list[str]:
    masked = _masked(sentence)
    cuts: list[tuple[int, int]] = []
    for at, found in enumerate(_JOINTS.finditer(masked)):
        rest = masked[found.end() : found.end() + 300]
        before = masked[: found.start()]
        if (
            _tells(sentence, before, found[0], rest)
            or (_starts(rest, found[0].lower()) and not goes_on(before, rest))
            or _leads(before if at == 0 else "", found[0], rest)
        ):
            cuts.append(found.span())
    return _between(sentence, cuts)


def _tells(sentence: str, before: str, joint: str, rest: str) -> bool:
    """Whether a second thing is told after a first one: "My laptop does not start, and I have a fever"."""
    if sentence.rstrip().endswith("?") or "and" not in joint.lower() or not _OWN.match(rest):
        return False
    return _STATEMENT.match(before.strip()) is not None and _STATEMENT.match(rest) is not None


def _leads(before: str, joint: str, rest: str) -> bool:
    """Whether what stands before the first joint only says when or where ("In 2026, ...") or announces the rest."""
    if not before or not (":" in joint or joint.strip() == ","):
        return False
    if ":" in joint:
        return not terms(_plain(before)[0]) or _first(before) in PREPOSITIONS
    return _first(before) in PREPOSITIONS and _starts(rest, "and")


def _starts(rest: str, joint: str) -> bool:
    """Whether something new is asked for here."""
    text, asked = _plain(rest)
    said = [word.lower() for word in _WORD.findall(text[:200])[:2]]
    if not said or asked:
        return asked
    if _MADE.match(text):
        return True
    first, second = said[0], said[1] if len(said) > 1 else ""
    firm = any(word in joint for word in ("and", "then", "plus", "also", "finally", "but"))
    if first in ASKING:
        return True
    if first in RELATIVE:
        return firm or not (second in AUXILIARY or second in PAST or second.endswith("ed"))
    if first in AUXILIARY:
        return firm and (second in AFTER_VERB or joint.lstrip().startswith(","))
    if first in VERBS:
        return first not in NOUNS_TOO or second in AFTER_VERB or "then" in joint
    return firm and first in PREPOSITIONS and bool(dates(text)) and "?" in text and len(text) < 40


def _plain(piece: str) -> tuple[str, bool]:
    """A piece without words of courtesy, and whether these showed that something is asked for."""
    text, asked = piece.strip(" \t\n,;:-"), False
    for _ in range(4):
        if filler := _FILLER.match(text):
            text = text[filler.end() :].lstrip()
        elif polite := _POLITE.match(text):
            text, asked = text[polite.end() :].lstrip(), True
        else:
            break
    text = _DO.sub(lambda found: f"{_DEED[found['deed'].lower()]} the {found['what']}", text)
    text = drawn(text)
    if made := _MADE.match(text):
        text = f"{'draw' if made['drawn'] else 'write'} {text}"
    return _FOR_ME.sub(r"\1 ", text).strip(" \t\n.,;:!"), asked


def _asks_later(text: str) -> bool:
    """A preposition, and yet a question: "For how many days ...", "In which month ..."."""
    said = [word.lower() for word in _WORD.findall(text[:80])[:3]]
    return any(word in ASKING or word in RELATIVE for word in said[1:])


def _points(text: str) -> bool:
    return re.search(r"\b(?:it|them|that|these|those|this)\b", text, re.IGNORECASE) is not None


def _first(text: str) -> str:
    found = _WORD.match(text.lstrip("\"'(\u201c"))
    return found[0].lower() if found else ""
