"""Whether passages say what was asked. A search by words always finds something; that does not make it an answer."""

import re
from collections.abc import Collection, Sequence

from chargehand.models.exhibits import Passage, Passages
from chargehand.models.offline.carriers import FIND, carriers, qualifiers
from chargehand.models.offline.holding import CAUSE, MEASURES, NUMBER, numbered, says, somebody
from chargehand.models.offline.question.reading import DOWN, UP
from chargehand.models.offline.searching import MEASURED, query, strangers
from chargehand.models.offline.words import Dated, dates, names, numbers, stem, terms, tokens

_EXCEPT = re.compile(r"\b(?:but not|except|excluding|other than|apart from)\b", re.IGNORECASE)
_NOT_ABOUT = re.compile(
    r"\b(?:say|says|said|know)\s+about\b.*\b(?:not about|except|excluding|other than|apart from)\b", re.IGNORECASE
)
_WHICH_ONE = re.compile(r"which one\b", re.IGNORECASE)
_ABSENT = re.compile(
    r"(?:which|who|list)\b[^.?!]*"
    r"\b(?:ha(?:ve|s) no|without|lacks?|lacking|(?:do|does|did|is|are|was|were|has|have) not)\b",
    re.IGNORECASE,
)
_COUNTED = re.compile(r"\b(?:how many|how much|number of)\b", re.IGNORECASE)
_MANY = re.compile(r"\bhow many\b", re.IGNORECASE)
_RECKONED = re.compile(rf"\b(?:average|total|sum|median|percentage|{'|'.join(sorted(UP | DOWN))})\b", re.IGNORECASE)
_FACT = re.compile(r"(?:which|who|whose|do|does|did|is|are|can|may|how (?:did|do|does|has|have))\b", re.IGNORECASE)
_ALLOWED = frozenset(map(stem, ("allowed", "possible", "permitted", "okay", "able", "need", "needed", "entitled")))
_STORY = re.compile(r"(?:i|we|my|our)\b", re.IGNORECASE)
_FURTHER = _ALLOWED | frozenset(
    map(
        stem,
        ("rights", "right", "first", "next", "wrong", "normal", "legal", "options", "causing", "reason", "problem"),
    )
)
_WHO = re.compile(r"who\b", re.IGNORECASE)
_FIRST = re.compile(r"(?<=[.?!])\s+(?=[A-Z])")
_LEAD = re.compile(
    r"^(?:find (?:out )?|look up |tell (?:me |us )?|say |report )(?=what|how|who|when|where|which|why)", re.IGNORECASE
)
_SAY_ABOUT = re.compile(r"\b(?:says?|said|know|mention|find|written)\s+about\s+([^.?!]+)", re.IGNORECASE)
_INVERTED = re.compile(
    r"(?:(?:how|what|which|who|when|where|why)\b(?:\s+\w+){0,4}?\s+)?(?:did|do|does|is|are|was|were|can|may|will)\b",
    re.IGNORECASE,
)
_DONE = re.compile(
    r"(?:convert|calculate|compute|draw|plot|translate|count|rank|sort|add|multiply|divide)\b", re.IGNORECASE
)
_SUM = re.compile(r"\d\s*(?:divided by|multiplied by|times|plus|minus|[-+*/x\u00d7\u00f7])\s*\(?\d", re.IGNORECASE)
_AHEAD = re.compile(
    r"\bwill\b.*\b(?:tomorrow|(?:next|coming)\s+(?:day|week|month|quarter|year|decade)s?|in the future)\b",
    re.IGNORECASE,
)
_EXPECTED = re.compile(r"\b(?:will|forecasts?|expect\w*|predict\w*|next|coming)\b", re.IGNORECASE)
_STATE = re.compile(
    r"\b(?:is|are|was|were|been?)\b.*\b(down|off|out|up|away)\s*(?=[?.]|\Z|(?:in|on|during|since|for|at)\b)",
    re.IGNORECASE,
)
_TELLING = frozenset(map(stem, ("recommend", "mention", "offer")))
_WENT = re.compile(r"how (?:did|do|does|has|have)\b.*\b(?:go|gone)\W*\Z", re.IGNORECASE)
_SHELVES = frozenset(map(stem, ("notes", "pages", "papers", "documents", "handbook", "guide", "manual")))
_LONG = 4
_TIME = r"(?!(?:day|week|month|year|hour|minute|second)s)"
_PRICED = re.compile(
    rf"\b(?:costs?|price|pay|charges?)\b.*\bfor (\d+) {_TIME}[a-z]+s\b|\b(\d+) {_TIME}[a-z]+s\b(?: of \w+)? cost\b",
    re.IGNORECASE,
)


def unsaid(text: str, found: Sequence[Passages], about: str, shelf: str = "") -> str:
    """Why these passages do not answer a task, in words; empty where they may.

    `shelf` is what they need not say: what they are called (a contract), and whom an earlier result was about.
    """
    text = FIND.sub("", text)
    passages = [one for several in found for one in several.found]
    if not passages:
        return ""
    if reason := _unsearchable(text):
        return reason
    fitting = [one for one in passages if _timely(text, one)]
    if not fitting:
        return f"{_question(text)}: what they say is of another time{_nearest(passages)}"
    if _AHEAD.search(text) and not any(_looks_ahead(text, one) for one in fitting):
        return f"{_question(text)}: nothing found speaks of what will be{_nearest(passages)}"
    own = {*terms(shelf), *tokens(shelf)}
    exact = [one for one in _exact(text) if not set(tokens(one)) <= own]
    if named := [word for word in exact if not any(_holds(word, one) for one in fitting)]:
        return f"{_question(text)}: nothing there speaks of {', '.join(named)}{_nearest(fitting)}"
    fitting = [one for one in fitting if not exact or any(_holds(word, one) for word in exact)]
    every = [strangers(text, Passages("", (one,)), about) for one in fitting]
    if all(every):
        return f"{_question(text)}: nothing found speaks of {' and '.join(min(every, key=len))}{_nearest(fitting)}"
    near = [one for one, strange in zip(fitting, every, strict=True) if not strange]
    if lost := _lost(text, near, own):
        return f"{_question(text)}: nothing found speaks of {' and '.join(lost)}{_nearest(near)}"
    if alone := _one_sided(text, exact, near, own):
        return f"{_question(text)}: nothing found says it of {' and '.join(alone)}{_nearest(near)}"
    return ""


def _looks_ahead(text: str, one: Passage) -> bool:
    """Whether a sentence about what is asked for speaks of what will be."""
    wanted = set(terms(query(text)))
    return any(_EXPECTED.search(part) and wanted & set(terms(part)) for part in _FIRST.split(one.text))


def _unsearchable(text: str) -> str:
    """Why no passage could answer it."""
    if _DONE.match(text) or _SUM.search(text):
        return f"documents can be searched, but not for this: {_FIRST.split(text)[0].rstrip('. ')}"
    first = _FIRST.split(text)[0]
    if _WHICH_ONE.match(first):
        return f"{_question(text)}: who is meant is said elsewhere"
    if (
        _ABSENT.match(first)
        or _NOT_ABOUT.search(text)
        or (_EXCEPT.search(text) and first.lower().startswith(("which", "who", "how", "list")))
    ):
        return f"{_question(text)}: passages cannot be searched for what is left out or not there"
    return ""


def _one_sided(text: str, exact: Sequence[str], passages: Sequence[Passage], own: Collection[str]) -> list[str]:
    """Those that are to be compared of which no passage says what is asked."""
    if not text.lower().startswith("compare"):
        return []
    told = {name: [one for one in passages if _holds(name, one)] for name in exact}
    return [name for name, some in told.items() if not some or _lost(text, some, own)]


def answers(text: str, one: Passage) -> bool:
    """Whether a passage says all that must be said, by itself."""
    return not _lost(FIND.sub("", text), [one], ())


def unfound(text: str) -> str:
    """What to say when a search found nothing at all."""
    return f"{_question(text)}: nothing found"


def _question(text: str) -> str:
    """The task as what is not said: "how many parcels the second carrier lost"."""
    if told := _SAY_ABOUT.search(text):
        return f"the documents say nothing about {told[1].rstrip('?. ')}"
    first = _LEAD.sub("", _FIRST.split(" ".join(text.split()))[0]).rstrip("?. ")
    if _INVERTED.match(first):
        return f'the documents do not answer "{first}?"'
    asks = first.partition(" ")[0].lower() in {"how", "who", "what", "when", "where", "which", "why", "whether"}
    return (
        f"the documents do not say {first[:1].lower()}{first[1:]}"
        if asks
        else f"the documents do not say this: {first}"
    )


def _nearest(passages: Sequence[Passage]) -> str:
    return f" ({passages[0].source.partition('#')[0]} comes closest)"


def _exact(text: str) -> list[str]:
    """Names, codes and long numbers: what is about another one is about something else. So is the cost of so many."""
    many = [one for found in _PRICED.finditer(text) for one in found.groups() if one]
    return [*names(text), *many, *(one for one in numbers(text) if len(one) >= _LONG)]


def _holds(name: str, one: Passage) -> bool:
    own = {stem(word) for word in tokens(f"{one.source} {one.text}")}
    return any(stem(word) in own for word in tokens(name) if len(word) > 1)


def _lost(text: str, passages: Sequence[Passage], own: Collection[str]) -> list[str]:
    """The words that matter which the passage that knows most of them does not know; not those of its own name."""
    first = _asking(text)
    wanted = _wanted(first)
    if wanted and (telling := [word for word in wanted if stem(word.lower()) not in own] or _beside(first, own)):
        wanted = telling
    thing = next(iter(carriers(first)), "")
    best: list[str] | None = None
    for one in passages if wanted else ():
        lost = [word for word in wanted if not says(word, one)]
        if lost and all(_general(word, first) for word in lost) and _all_else(first, one, own):
            lost = []
        if (
            not lost
            and thing
            and _COUNTED.search(first)
            and not numbered(thing, one, names(first), counted=_MANY.search(first) is not None)
        ):
            lost = [f"a number of {thing}"]
        if not lost and thing and _WHO.match(first) and not somebody(thing, one):
            lost = ["who that is"]
        if best is None or len(lost) < len(best):
            best = lost
    return best or []


def _general(word: str, first: str) -> bool:
    """Whether documents do it without saying so: they recommend, mention, offer, and tell how something went."""
    return stem(word.lower()) in _TELLING or (word.lower() in {"go", "gone"} and _WENT.match(first) is not None)


def _all_else(first: str, one: Passage, own: Collection[str]) -> bool:
    """Whether a passage speaks of two things or more that are asked about, and of each of them."""
    said = [word.strip('"').lower() for word in query(first).split()]
    rest = [word for word in said if word.isalpha() and not _general(word, first)]
    rest = [word for word in rest if stem(word) not in _SHELVES and not {word, stem(word)} & set(own)]
    return len(rest) >= 2 and all(says(word, one) for word in rest)


def _asking(text: str) -> str:
    """The sentence whose words must be said: nobody's own story has to, nor "What now?" after it."""
    first, *rest = _FIRST.split(text)
    if first.endswith("?") or not _STORY.match(first):
        return first
    asks = next((one for one in rest if one.endswith("?")), "")
    own = [word for word in terms(asks) if word.isalpha() and word not in _FURTHER]
    return asks if own else ""


def _beside(first: str, own: Collection[str]) -> list[str]:
    """What else is said where the thing that is asked for is only what the documents are: termination clauses."""
    known = {word for name in names(first) for word in tokens(name)} | set(own)
    said = [word.strip('"') for word in query(first).split()]
    return [word for word in said if word.isalpha() and not {word.lower(), stem(word.lower())} & known]


def _wanted(first: str) -> list[str]:
    """What must be said: of a question for facts every telling word, of others those that carry it."""
    wanted = carriers(first)
    wanted += [word for word in _RECKONED.findall(first.lower()) if word not in wanted]
    wanted += [word for word in qualifiers(first) if word not in wanted]
    wanted += [word.lower() for word in _STATE.findall(first)]
    if _FACT.match(first) or _COUNTED.search(first):
        plain = [word.strip('"') for word in query(first).split()]
        wanted += [word for word in plain if word.isalpha() and word.lower() not in wanted]
        wanted = [word for word in wanted if stem(word.lower()) not in _ALLOWED]
    if measured := MEASURED.match(first):
        how = measured[0].lower().split()[-1]
        wanted += [NUMBER] if wanted or how not in MEASURES else [how, NUMBER]
    return [*wanted, *([CAUSE] if first.lower().startswith("why") else [])]


def _timely(text: str, one: Passage) -> bool:
    """Whether a passage is of the time that is asked for, as far as it says."""
    wanted, said = dates(text), dates(f"{one.text} {one.source}".replace("-", " "))
    return not wanted or not said or any(_meet(this, that) for this in wanted for that in [*said, *dates(one.text)])


def _meet(one: Dated, other: Dated) -> bool:
    """Whether two dates may be of one time: neither year nor month speaks against it."""
    (year, month), (their_year, their_month) = _parts(one), _parts(other)
    same_year = not year or not their_year or year == their_year
    return same_year and (not month or not their_month or month == their_month)


def _parts(one: Dated) -> tuple[str, str]:
    year = one.normal[:4] if one.normal[0].isdigit() else ""
    rest = one.normal[5:7] if year else one.normal[2:4]
    return year, rest if rest.isdigit() else ""
