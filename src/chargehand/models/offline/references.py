"""What a clause leaves to be understood: pronouns, "that total", a period named once. And what a clause is about.

Which earlier task is meant in the end is settled while planning; here are the words for it.
"""

import re

from msgspec import Struct

from chargehand.models.offline.vocabulary import AUXILIARY, NUMBER_WORDS, PAST, PREPOSITIONS, VERBS
from chargehand.models.offline.words import dates, names, stem, tokens

RESULT = (
    r"results?|totals?|figures?|numbers?|sum|amount|outcomes?|findings?|answers?|differences?|winner|list|table|data"
)
_POINTER = re.compile(
    rf"\b(?:(?P<det>this|that|these|those|the same|the above|the resulting|such)\s+(?P<noun>[a-z]{{3,}})"
    rf"|(?P<own>its|their)\s+(?P<owned>[a-z]{{3,}})|(?P<bare>it|them|they|that|this|these|those|both|there)"
    rf"|(?:the|all|all the)\s+(?P<result>{RESULT}|values?|rows?)"
    r"(?=\s*(?:$|[,.?!)]|\b(?:to|into|in|as|by|with|from|and|for|is|are)\b)))\b",
    re.IGNORECASE,
)
_NO_THINGS = "year month week quarter morning day time one more less much many kind"
_NOT_A_THING = frozenset(_NO_THINGS.split())
_TURNED = """translate convert draw plot chart graph summarise summarize send explain describe review check rewrite
format print round illustrate email turn visualise visualize rank sort shorten simplify change"""
_TURNING = frozenset(_TURNED.split())  # what is to be done with something that is there
_THE = re.compile(r"\bthe\s+([a-z]{3,})(?=\s*(?:$|[,.?!]|\b(?:to|into|as|with)\b))", re.IGNORECASE)
_EMPTY_IT = re.compile(
    r"\b(?:does|did|will|would) it take\b|\bis it (?:possible|allowed|safe|true|ok|okay)\b", re.IGNORECASE
)
_ARTEFACT = (
    r"(?:chart|plot|graph|picture|diagram|histogram|memo|report|letter|summary|note|e-?mail|briefing|paragraph|overview|"
    r"recommendation|list|table|page|text|poster|comparison|timeline|reply|response|message|newsletter|press release|"
    r"article|post|announcement|statement|reminder|invitation|update|notice)s?"
)
_ABOUT = re.compile(
    rf"^(?:\w+\s+)?(?:(?:a|an|the|one|another)\s+)?(?:[\w-]+\s+){{0,3}}?{_ARTEFACT}"
    r"(?:\s+(?:to|for)\s+(?:the\s+|our\s+|all\s+|a\s+)?\w+(?=\s+(?:about|on|regarding)\b))?\s+"
    r"(?:(?:of|about|on|showing|comparing|covering|with|from|describing|regarding|that (?:shows?|explains?))\s+"
    r"|for\s+(?!the (?:board|team|manager|owner|director|press|public)))(?P<rest>.+)$",
    re.IGNORECASE,
)
_ONLY_SHAPE = re.compile(
    rf"^\w+\s+(?:(?:a|an|the|one|another)\s+)?(?:[\w-]+\s+){{0,2}}?{_ARTEFACT}(?:\s+(?:to|for)\s+.+)?$", re.IGNORECASE
)
_TAIL = re.compile(
    r"[,\s]+(?:(?:as|in|with|using|on)\s+(?:a|an|one|two|three)\s+(?:[\w-]+\s+){0,2}?"
    rf"(?:{_ARTEFACT}|sentences?|words?)\b.*"
    r"|(?:to|into|in)\s+(?:[A-Z]{3}\b|(?:euros?|(?:us |american )?dollars?|pounds?|francs?|yen)\b).*"
    r"|for the (?:board|team|manager|owner|director|press|public)\b.*)$"
)
_PAST_FORMS = "|".join(sorted(PAST)) + "|is|are|was|were|has|have|had|can|may|must"
_QUESTION = (
    (re.compile(r"^what\s+(?:is|are|was|were)\s+(.+)$", re.IGNORECASE), r"\1"),
    (
        re.compile(r"^how many\s+(?!.*\bdid\b|.*\bdo\b|.*\bdoes\b|.*\bare there\b)(\w+)\s+(.+)$", re.IGNORECASE),
        r"the number of \1 that \2",
    ),
    (re.compile(r"^how many\s+(.+?)\s+are there(.*)$", re.IGNORECASE), r"the number of \1\2"),
    (re.compile(r"^how much\s+(?:is|are|was|were)\s+(.+)$", re.IGNORECASE), r"\1"),
    (
        re.compile(rf"^which\s+((?:\w+\s+){{1,3}}?)((?:{_PAST_FORMS}|\w{{2,}}ed)\b.*)$", re.IGNORECASE),
        r"the \1that \2",
    ),
    (
        re.compile(
            rf"^which\s+((?:(?:\d+|{'|'.join(NUMBER_WORDS)})\s+)?\w+s\s+)(?!did\b|do\b|does\b)(\w.*)$", re.IGNORECASE
        ),
        r"the \1that \2",
    ),
    (re.compile(r"^what\s+((?!is|was|has|does)[a-z]+)\s+((?!does)[a-z]{3,}s\s.+)$", re.IGNORECASE), r"the \1 that \2"),
    (re.compile(r"^what\s+do(?:es)?\s+.+\ssay\s+about\s+(.+)$", re.IGNORECASE), r"\1"),
    (re.compile(r"^who\s+(.+)$", re.IGNORECASE), r"whoever \1"),
)


_DID = re.compile(
    r"^(?:how many|which|what)\s+(\w+(?:\s+(?:over|under|above|below)\s+\d[\d.,]*\s+\w+)?)\s+did\s+(.+?)"
    r"\s+(\w+(?:\s+(?:in|on|at|from|since|during)\b.*)?)$",
    re.IGNORECASE,
)
_MOVED = r"(?:grow|gr[eo]wn?|rise|risen|fall|fallen|change|increase|decrease|drop)(?:d|ed)?"
_GROWTH = re.compile(
    rf"\b(?:did|has|have|was|is)\s+(?:the\s+)?(?P<what>.+?)\s+{_MOVED}\b(?P<rest>.*)$"
    rf"|\b(?:growth|{_MOVED})\s+(?:of|in)\s+(?P<of>.+?)(?P<span>\s+(?:from|between)\b.*)$",
    re.IGNORECASE,
)


_OWNED = re.compile(
    r"^how (?:many|much)\s+[\w ]+?\s+(?:do|does|did)\s+(?P<having>.+?)\s+have$"
    r"|^what (?:is|was) the (?:\w+ ){1,2}?of (?P<of>(?:the |our )?[\w ]+)$",
    re.IGNORECASE,
)
_NAME = re.compile(r"[A-Z][\w-]*(?:\s+[A-Z][\w-]*)*")
# what is said of the first name holds for those that follow it bare: "the features of Ash and Birch"
_OF_NAME = re.compile(rf"(.+\s(?:of|for|in|by))\s+{_NAME.pattern}")


class Pointer(Struct, frozen=True):
    """A word that points back: where it stands, the noun beside it if any, and whether it owns what follows."""

    start: int
    end: int
    text: str
    noun: str = ""
    owns: bool = False
    many: bool = False


def pointers(text: str, said: frozenset[str] = frozenset()) -> list[Pointer]:
    """The words in a clause that point at something said before.

    `said` are the stems of what was asked before: who is to translate the plan means the one that was asked for.
    """
    found = _named_again(text, said)
    for match in _POINTER.finditer(text) if not found else ():
        before = (tokens(text[: match.start()]) or [""])[-1]
        if (pointer := _pointer(text, match, before)) is not None:
            found.append(pointer)
    return found


def _named_again(text: str, said: frozenset[str]) -> list[Pointer]:
    if text.partition(" ")[0].lower() not in _TURNING:
        return []
    again = [match for match in _THE.finditer(text) if stem(match[1].lower()) in said]
    return [Pointer(match.start(), match.end(), match[0], match[1].lower()) for match in again[:1]]


def _pointer(text: str, match: re.Match[str], before: str) -> Pointer | None:
    start, end = match.span()
    free = (
        not before
        or before in VERBS
        or before in PREPOSITIONS
        or before in AUXILIARY
        or before in ("of", "to", "by", "and", "about")
    )
    if result := match["result"]:
        return Pointer(start, end, match[0], result.lower(), many=result.lower().endswith("s") or result == "data")
    if owned := match["owned"]:
        return Pointer(start, match.end("own"), match["own"], owned.lower(), owns=True)
    if noun := match["noun"]:
        lower = noun.lower()
        word = match["det"].lower()
        if lower in PREPOSITIONS or lower in ("to", "into", "and", "of", "by"):  # "convert that to euros"
            begin, stop = match.span("det")
            return Pointer(begin, stop, match["det"], many=word in ("these", "those")) if free else None
        verb = lower in PAST or lower in AUXILIARY or (lower.endswith("ed") and word == "that")
        return Pointer(start, end, match[0], lower) if free and not verb and lower not in _NOT_A_THING else None
    return _bare(text, match, free=free)


def _bare(text: str, match: re.Match[str], *, free: bool) -> Pointer | None:
    word, (start, end) = match["bare"].lower(), match.span("bare")
    after = (tokens(text[end : end + 40]) or [""])[0]
    if word == "it" and _EMPTY_IT.search(text):
        return None
    if word in ("that", "this", "both") and (
        after and after not in PREPOSITIONS and after not in ("to", "into", "and")
    ):
        return None
    if word in ("that", "this", "these", "those") and not free:
        return None
    if word == "there" and (after in AUXILIARY or re.search(r"\b(?:is|are|was|were)\s+$", text[:start])):
        return None
    return Pointer(start, end, match["bare"], many=word in ("them", "these", "those", "both", "they"))


def object_of(text: str) -> str:
    """What a clause is about, without the verb and without the shape that is wanted: "a chart of X" is about X."""
    plain = text.strip().rstrip("?.! ")
    plain = re.sub(
        r"^(?:what|how much)\s+(?:is|are|was|were)\s+(?:\d[\d.,]*\s*(?:%|percent|per cent)\s+of\s+)?",
        "",
        plain,
        flags=re.IGNORECASE,
    )
    if found := _ABOUT.match(plain):
        plain = found["rest"]
    elif _ONLY_SHAPE.match(plain):
        return ""
    else:
        first, _, rest = plain.partition(" ")
        plain = re.sub(r"^(?:out|up)\s+(?=\w)", "", rest) if first.lower() in VERBS and rest else plain
        plain = re.sub(r"^\d[\d.,]*\s*(?:%|percent|per cent)\s+of\s+", "", plain)
    return _TAIL.sub("", plain).strip(" ,") or plain


def subject_of(text: str, *, many: bool = False) -> str:
    """A phrase for the result of a clause, to stand where a pronoun stood; empty when there is no good one.

    After "How many orders were late?", `many` (as in "them") are the orders, and else it is their number.
    """
    plain = text.strip().rstrip("?.! ")
    if many and (found := _DID.match(plain)):
        return f"the {found[1]} that {found[2]} did {found[3]}"
    if many and plain.lower().startswith("how many"):
        return subject_of(text).replace("the number of", "the", 1)
    for pattern, phrase in _QUESTION:
        if found := pattern.match(plain):
            return found.expand(phrase)
    first = plain.partition(" ")[0].lower()
    if first in VERBS:
        return object_of(plain)
    return plain if first in ("the", "our", "all", "a", "an") else ""


def growth_of(text: str) -> str:
    """What grew or fell, by the parts of time that are compared: "revenue by month from April to May 2026"."""
    found = _GROWTH.search(text.strip().rstrip("?.! "))
    if found is None:
        return ""
    what, rest = found["what"] or found["of"], found["rest"] or found["span"] or ""
    spans = dates(rest)
    if not spans:
        return ""
    length = {4: "year", 10: "day"}.get(len(spans[0].normal), "quarter" if "-Q" in spans[0].normal else "month")
    if len(spans) > 1:
        return f"{what} by {length} {when(rest)}"
    year = spans[0].normal[:4]
    return f"{what} by {length}{f' in {year}' if length != 'year' and year.isdigit() else ''}"


def when(text: str) -> str:
    """The period a clause names, with the words before it: "from March to May 2026", "in Q2 2026"."""
    found = dates(text)
    if not found:
        return ""
    first, last = found[0], found[0]
    for dated in found[1:]:
        if dated.start - last.end > 9:
            break
        last = dated
    lead = re.search(
        r"\b(?:in|on|during|for|since|from|between|until|before|after|of|by|the|through)\s+(?:the\s+)?$",
        text[: first.start],
        re.IGNORECASE,
    )
    return text[lead.start() if lead else first.start : last.end]


def where(text: str) -> str:
    """The proper name a clause is limited to, with its preposition: "for Germany", "at the Harbour branch"."""
    for name in names(text):
        if found := re.search(
            rf"\b(?:for|in|at|across|within|from|to)\s+(?:the\s+)?{re.escape(name)}(?:\s+(?:branch|region|shop|store|office|ward))?",
            text,
        ):
            return found[0]
    return ""


def parts(phrase: str, kind: str) -> list[str]:
    """A phrase that joins several things, as these: "revenue in May and the returns policy"."""
    joints = r"\s*,\s+(?:and\s+)?|\s+and\s+|\s+(?:versus|vs\.?|against)\s+"
    if " and " not in phrase.partition(" with ")[0]:
        joints += r"|\s+with(?!\s+\d)\s+"
    if kind == "calculate":
        joints += r"|\s+(?:divided by|minus|plus|times)\s+|\s+(?:by|from|to)\s+(?=the\b|our\b)"
    found = [part.strip(" ,") for part in re.split(joints, phrase) if part.strip(" ,")]
    found = [part if not at else _with_owner(part, found[0]) for at, part in enumerate(found)]
    head = _OF_NAME.fullmatch(found[0]) if found else None
    return [f"{head[1]} {part}" if head and at and _NAME.fullmatch(part) else part for at, part in enumerate(found)]


def _with_owner(part: str, owner: str) -> str:
    """A part that says "its" or "it" of the first one, with that one named: it will be read alone."""
    if _POINTER.search(owner) or not owner:
        return part
    part = re.sub(r"^its\s+(.+?)(?=\s+(?:with|for|in|at|on|of)\b|$)", lambda found: f"the {found[1]} of {owner}", part)
    return re.sub(r"\bit\b", lambda _: owner, part)


def owner_of(text: str) -> str:
    """Whose number or quality a clause asks for: after "How many votes does the plan have?" "its" is the plan's."""
    found = _OWNED.match(text.strip().rstrip("?.! "))
    return (found["having"] or found["of"]) if found else ""
