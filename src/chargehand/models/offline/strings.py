"""Text for an argument: a quotation, a name, a code, an address, a query or a title, by what the argument is called."""

import re

from msgspec import Struct

from chargehand.models.offline.carriers import carriers
from chargehand.models.offline.choosing import Parameter
from chargehand.models.offline.currencies import currencies
from chargehand.models.offline.material import Material, Series, words_of
from chargehand.models.offline.searching import query
from chargehand.models.offline.task_text import asked, title
from chargehand.models.offline.words import STOP, VERBS, names, quoted, stem, terms, tokens

TITLES = frozenset({"title", "subject", "heading", "caption", "headline"})
_QUERIES = frozenset({"query", "question", "q", "search", "keywords", "keyword", "topic", "phrase"})
_BODIES = frozenset({"text", "content", "body", "message", "passage", "document", "markdown", "note", "input"})
_URL = re.compile(r"https?://[^\s\"'<>)]+")
_MAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_PATH = re.compile(r"(?<!\w)(?:[\w.-]+/)*[\w-]+\.[A-Za-z]\w{0,4}\b")
_ADDRESS = {
    "url": _URL, "link": _URL, "email": _MAIL, "mail": _MAIL, "recipient": _MAIL, "path": _PATH, "file": _PATH,
    "filename": _PATH,
}  # fmt: skip
_CODE = re.compile(r"(?<![\w-])(?=[\w-]*\d)[A-Za-z]*[-_]?\d[\w-]*(?![\w-])")
_CODED = frozenset({"id", "code", "number", "no", "key", "isbn", "sku", "reference", "ref", "plate"})
_LAST = re.compile(
    r"\b(?:of|for|in|at|from|about|named|called)\s+(?:the\s+|an?\s+|our\s+)?([\w-]+(?:\s+[\w-]+)?)[.?!]?\s*\Z"
)
_SERIES = re.compile(r"(?::|such as|one of|for example|e\.g\.|like)\s+([^.:;()\n]{3,200})", re.IGNORECASE)
_LISTED = re.compile(r"'([^']{1,40})'|\"([^\"]{1,40})\"|`([^`]{1,40})`")


class Said(Struct, frozen=True):
    """The task, what was given with it, the arguments that are filled already, and what the tool says of itself."""

    text: str
    have: Material
    data: Series | None
    taken: set[str]
    about: str = ""


def text_for(parameter: Parameter, said: Said) -> list[object]:
    """What a task says for a text argument; nothing where it does not, or where it need not."""
    text, have, data, taken = said.text, said.have, said.data, said.taken
    words = set(tokens(parameter.name))
    body = asked(text)
    if words & TITLES and data is None and (quotes := quoted(body)):
        return [*quotes[:1]]
    if words & TITLES:
        named = f"{words_of(data.value)} by {words_of(data.label)}" if data and data.value else asked(text)[:80]
        return [title(text) or named[:1].upper() + named[1:]]
    if data is not None and (found := _axis(parameter.name.lower(), data)):
        return [found]
    if found := _pointed(parameter, words, body, taken):
        return [*found]
    if words & _ADDRESS.keys():
        return []  # an address is known by its form, and no other word will do
    told = f"{said.about}. {parameter.description}" if parameter.required else parameter.description
    if found := _enumerated(told, body, taken):
        return [*found]
    if not parameter.required:
        return []
    if words & _QUERIES:
        return [query(body, have.tables)]
    if words & _BODIES:
        return _body(body, have)
    return [*_name(parameter, body, taken, said.about)]


def _enumerated(about: str, text: str, taken: set[str]) -> list[str]:
    """The values a description lists that the task names: "How many are in stock: anvils, bellows or tongs"."""
    words = {stem(word) for word in tokens(text)}
    found: list[str] = []
    for match in _SERIES.finditer(about):
        parts = [part.strip(" .'\"") for part in re.split(r"\s*,\s*(?:and\s+|or\s+)?|\s+(?:and|or)\s+", match[1])]
        if len(parts) > 1:
            found += [one for one in parts if tokens(one) and all(stem(word) in words for word in tokens(one))]
    return [one for one in dict.fromkeys(found) if one not in taken]


def _axis(name: str, data: Series) -> str:
    if name in {"x_label", "xlabel", "x_title", "x_axis"}:
        return data.label.replace("_", " ")
    return data.value.replace("_", " ") if name in {"y_label", "ylabel", "y_title", "y_axis"} else ""


def _pointed(parameter: Parameter, words: set[str], text: str, taken: set[str]) -> list[str]:
    """What only this argument can mean: an address, a code, a value its description lists, a name after its own."""
    for word in words:
        if word in _ADDRESS and (found := _ADDRESS[word].findall(text)):
            return found
    if "currency" in words and (codes := [one for one in currencies(text) if one not in taken]):
        return codes[-1:] if {"to", "target"} & words else codes[:1] if {"from", "source"} & words else codes
    listed = [next(part for part in found.groups() if part) for found in _LISTED.finditer(parameter.description)]
    present = [one for one in listed if re.search(rf"(?<!\w){re.escape(one)}(?!\w)", text, re.IGNORECASE)]
    if present:
        return present
    if words & _CODED and (found := [one for one in _CODE.findall(text) if one not in taken]):
        return _beside(words - _CODED, text, found)
    if found := _directed(words, text):
        return found
    own = "|".join(re.escape(word) for word in tokens(parameter.name) if len(word) > 2)
    word = r"[A-Z0-9][\w'\u2019-]*"
    link = r"(?:\s+(?:is|of|named|called|for|no\.?))?\s*[:=]?\s+[\"'\u201c]?"
    named = rf"\b(?:{own})s?{link}({word}(?:\s+{word})*)"
    after = re.search(named, text) if own else None
    return [after[1]] if after and after[1] not in taken else []


def _directed(words: set[str], text: str) -> list[str]:
    """Where something goes from and to."""
    for side, lead in (
        ({"origin", "from", "source", "departure"}, "from"),
        ({"destination", "to", "target", "arrival"}, "to"),
    ):
        if side & words and (found := re.search(rf"\b{lead}\s+([A-Z][\w-]*(?:\s+[A-Z][\w-]*)*)", text)):
            return [found[1]]
    return []


def _beside(words: set[str], text: str, found: list[str]) -> list[str]:
    def near(one: str) -> bool:
        patterns = [rf"\b{re.escape(word)}\w*\s+(?:\w+\s+)?{re.escape(one)}" for word in words]
        return any(re.search(pattern, text, re.IGNORECASE) for pattern in patterns)

    return [one for one in found if near(one)] or found


def _body(text: str, have: Material) -> list[object]:
    if said := quoted(text):
        return [said[0]]
    if have.texts:
        return ["\n\n".join(have.texts)]
    _, colon, rest = text.partition(":")
    return [rest.strip()] if colon and rest.strip() else [text]


def _name(parameter: Parameter, text: str, taken: set[str], tool: str) -> list[str]:
    """A quotation, else names, else the words that stand where the argument's name is spoken of, else what is left.

    Words the tool says of itself are what is done, and not to what.
    """
    if said := [one for one in quoted(text) if one not in taken]:
        return said[:1]
    if named := [one for one in names(text) if one not in taken and not currencies(one)]:
        side_by_side = re.search(rf"{re.escape(named[0])}\s*(?:,|and|or|&)\s*(?:the\s+)?{re.escape(named[-1])}", text)
        return named if len(named) > 2 or side_by_side else named[:1]
    about = {stem(word) for word in tokens(f"{parameter.name} {parameter.description} {tool}")}
    after = _LAST.search(text)
    if after and (said := set(terms(after[1]))) and not said & about:  # "about them" says nothing
        return [after[1]]
    things = [word for word in carriers(text) if stem(word) not in about and word not in taken]
    left = [word for word in tokens(text) if word not in STOP and stem(word) not in about and word not in taken]
    left = [word for word in left if word not in VERBS and not word[0].isdigit()]
    return things[:1] or (left if len(left) == 1 else [])
