"""A failed task put better: names, days and limits that an error offers take the place of what was refused.

An error may hold anything, also sentences that give orders. Only short values are ever taken from it, never sentences.
"""

import re
from difflib import SequenceMatcher, get_close_matches

from msgspec import Struct

from chargehand.models.offline.drafts import sentence, without_returns
from chargehand.models.offline.vocabulary import VERBS
from chargehand.models.offline.words import dates, kinship, numbers, quoted, spoken, stem, terms, tokens
from chargehand.models.subject import Refining

_READ = 4000
_MEANT = re.compile(
    r"\b(?:did you mean|do you mean|perhaps you meant|you may mean|maybe|similar(?: to|:)|try|"
    r"(?:closest|nearest)[^:;.?\n]{0,40}:|"
    r"(?:closest|nearest)(?: match(?:es)?)?(?:\s+(?:is|are|earlier day|later day|day|date|name|value))?(?: is)?:?)\s",
    re.IGNORECASE,
)
_CHOICES = re.compile(
    r"\b(?:one of|available(?: \w+)?(?: are| is)?|options(?: are)?|choose from|allowed(?: values)?(?: are)?|"
    r"valid \w+(?: are)?|known \w+(?: are)?|(?:columns|tables|names|values|fields|choices)(?: are)?|"
    r"there (?:is|are)(?: only)?)\s*:?\s",
    re.IGNORECASE,
)
_OFFERED = 400  # characters after such words
_END = re.compile(r"[?;\n)\]}]|\.(?=\s|$)")
_VALUE = re.compile(r"[\w][\w .&/+'\u2019-]{0,59}")
_REFUSED = re.compile(
    r"(?:no such (?:column|table|function|file|name|value|key)|unknown (?:\w+ )?|"
    r"no (?:rate|data|record|entry|result|match)s? (?:for|on|about)|invalid (?:\w+ )?|cannot find|could not find|"
    r"not found|no \w+ (?:called|named))\s*:?\s*"
    r"[\"'`\u2018\u201c]?(?P<value>[\w][\w.&/+-]{0,58})",
    re.IGNORECASE,
)
_UNSAID = re.compile(r"\bdocuments (?:do not (?:say|answer)|say nothing)|\bsays nothing about\b", re.IGNORECASE)
_LIMIT = re.compile(
    r"(?:at most|limit(?: is| of)?|maximum(?: is| of)?|no more than|up to)\s*:?\s*(\d{1,6})", re.IGNORECASE
)
_CAUSES: tuple[tuple[str, str, str], ...] = (
    (r"\Anot accepted by ", "the result was not accepted", "hold to the task and to what there is to work from"),
    (r"too (?:many|long|large|big)|exceed|over the limit|truncat", "too much came back", "ask for less"),
    (r"time[sd]?[ -]?out|deadline|too slow", "it took too long", "ask only for the essential part"),
    (r"nothing (?:was )?found|no (?:match|passage|document|row|result)|not found|empty result",
     "nothing was found", "look for fewer and more general words"),
    (r"\bno (?:rate|data|entry|value|record)s?\b", "there was nothing for that day or name", "use what there is"),
    (r"iso(?: ?8601)?|yyyy|date format|not a (?:valid )?date", "a date was not understood", "write days as YYYY-MM-DD"),
    (r"division by zero|divide by zero", "a divisor was zero", "leave out what is zero"),
    (r"required|missing|must (?:be|have)|expected|invalid|not a valid|wrong type", "an argument was not accepted",
     "give every argument in the form its schema asks for"),
    (r"ambiguous|more than one", "the name was not clear", "give the full name"),
    (r"no such|unknown|does not exist|unrecogni[sz]ed", "a name was not known", "use only names that exist"),
    (r"denied|forbidden|not allowed|permission|refused", "it was not allowed", "stay with what is allowed"),
)  # fmt: skip


class Better(Struct, frozen=True):
    """A new instruction, and whether the error offered something that changed it."""

    text: str
    offers: bool


def refine(subject: Refining) -> str:
    """The instruction for the next try."""
    return better(subject.instruction, subject.failure).text


def better(instruction: str, failure: str) -> Better:
    plain = without_returns(instruction)
    returns = instruction[len(plain) :].strip()
    plain = re.sub(r"\s*(?:Earlier this failed:[^;]*; [^.]*|Words that matter: [^.]*)\.", "", plain)
    plain = sentence(plain) if plain.strip() else ""
    said = failure[:_READ]
    text, notes = _substituted(plain, said)
    if limit := _LIMIT.search(said):
        notes.append(f"Ask for at most {limit[1]} rows or items.")
    if re.search(r"yyyy|iso ?8601|date format|not a (?:valid )?date", said, re.IGNORECASE):
        text = _iso(text)
    offers = text != plain or bool(notes)
    cause, way = _cause(said)
    if cause == "nothing was found":
        text, notes = _looser(text, notes)
    notes.append(f"Earlier this failed: {cause}; {way}.")
    new = [note for note in notes if note not in text]
    return Better(" ".join(part for part in (text.strip(), *new, returns) if part), offers)


def _cause(said: str) -> tuple[str, str]:
    found = [(match.start(), cause, way) for pattern, cause, way in _CAUSES
             if (match := re.search(pattern, said, re.IGNORECASE))]  # fmt: skip
    return (found[0][1], found[0][2]) if found else ("the worker could not do it", "do it another way")


def _substituted(plain: str, said: str) -> tuple[str, list[str]]:
    refused = [match["value"].rstrip(".") for match in _REFUSED.finditer(said)] + [
        one for one in quoted(said) if len(one) < 60
    ]
    if _UNSAID.search(said):
        return plain, []  # nobody offers anything here: what is not said is not said in other words either
    if values := _values(_MEANT, said, refused):
        return _swap(plain, refused, values[0])
    if values := _values(_CHOICES, said, refused):
        return _choose(plain, refused, values[:12])
    return plain, []


def _values(trigger: re.Pattern[str], said: str, refused: list[str]) -> list[str]:
    """What is offered after such words, up to the end of the sentence."""
    if (found := trigger.search(said)) is None:
        return []
    tail = said[found.end() : found.end() + _OFFERED]
    end = _END.search(tail)
    cut = re.split(r",\s*or\s+|\s*,\s*|\s+(?:or|and)\s+", tail[: end.start()] if end else tail)
    bare = [one.strip(" \"'`\u201c\u201d\u2018\u2019.[](){}:") for one in cut]
    return [one for one in bare if _VALUE.fullmatch(one) and _harmless(one, refused)]


def _harmless(value: str, refused: list[str]) -> bool:
    """A value, not an order: one word, or like what was refused, or of words that do not begin with a verb."""
    said = tokens(value)
    if len(said) <= 1 or dates(value):
        return True
    if any(SequenceMatcher(None, value.lower(), other.lower()).ratio() > 0.6 for other in refused):
        return True
    return (
        len(said) <= 3 and said[0] not in VERBS and said[0] not in ("ignore", "forget", "delete", "disregard", "stop")
    )


def _swap(plain: str, refused: list[str], value: str) -> tuple[str, list[str]]:
    """Put the value where the refused one stood; beside it, where the refused one is not in the instruction."""
    if days := dates(value):
        return _swap_day(plain, refused, days[0].normal)
    for bad in refused:
        if bad.lower() != value.lower() and (
            found := re.search(rf"(?<!\w){re.escape(bad)}(?!\w)", plain, re.IGNORECASE)
        ):
            return plain[: found.start()] + value + plain[found.end() :], []
    near = _nearest_word(plain, value)
    if near and near.lower() != value.lower():
        return re.sub(rf"(?<!\w){re.escape(near)}(?!\w)", lambda _: value, plain, count=1), []
    bad = next((one for one in refused if one.lower() != value.lower()), "")
    return plain, [f"Use '{value}'{f', not {bad!r}' if bad and len(tokens(bad)) <= 3 else ''}."]


def _swap_day(plain: str, refused: list[str], day: str) -> tuple[str, list[str]]:
    if day in plain:
        return plain, []
    bad = {dated.normal for one in refused for dated in dates(one)}
    own = [dated for dated in dates(plain) if len(dated.normal) == 10 and dated.normal != day]
    found = next((dated for dated in own if dated.normal in bad), own[0] if len(own) == 1 else None)
    if found is None:
        return plain, [f"Use the day {day}."]
    text = plain[: found.start] + day + plain[found.end :]
    return text, [f"The day {day} is the nearest there is to {found.normal}: say so."]


def _choose(plain: str, refused: list[str], values: list[str]) -> tuple[str, list[str]]:
    lower = {value.lower(): value for value in values}
    for bad in refused:
        if close := get_close_matches(bad.lower(), lower, 1, 0.7):  # below, words alike by chance pass
            return _swap(plain, [bad], lower[close[0]])
    for bad in refused:
        kin = sorted(values, key=lambda value: -kinship(bad, value))
        if kinship(bad, kin[0]) and (len(kin) == 1 or kinship(bad, kin[0]) > kinship(bad, kin[1])):
            return _swap(plain, [bad], kin[0])
    if any(re.search(rf"(?<!\w){re.escape(value)}(?!\w)", plain, re.IGNORECASE) for value in values):
        return plain, [f"Use only these names: {', '.join(values)}."]
    for value in values:
        if near := _nearest_word(plain, value):
            return _swap(plain, [near], value)
    return plain, [f"Use only these names: {', '.join(values)}."]


def _nearest_word(plain: str, value: str) -> str:
    """A word of the instruction that is misspelt or another form of the value."""
    said = re.findall(r"[^\W_][\w-]{3,}", plain)
    close = get_close_matches(value.lower(), [word.lower() for word in said], 1, 0.75)
    same = [word for word in said if stem(word.lower()) == stem(value.lower())]
    return same[0] if same else next((word for word in said if close and word.lower() == close[0]), "")


def _iso(text: str) -> str:
    for dated in reversed(dates(text)):
        text = text[: dated.start] + dated.normal.removeprefix("--") + text[dated.end :]
    return text


def _looser(text: str, notes: list[str]) -> tuple[str, list[str]]:
    for said in quoted(text):
        text = re.sub(rf"[\"'`\u201c\u2018]{re.escape(said)}[\"'`\u201d\u2019]", lambda _, bare=said: bare, text)
    words = spoken(text)
    key = [
        words.get(term, term)
        for term in dict.fromkeys(terms(text))
        if not term[0].isdigit() and term not in numbers(text)
    ]
    return text, [*notes, f"Words that matter: {', '.join(sorted(key, key=len, reverse=True)[:4])}."] if key else notes
