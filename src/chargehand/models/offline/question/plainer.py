"""A question in plainer words: "the trend of sales in 2026" is sales per month in 2026, the last result the latest.

Which column holds the time is not known here, nor whether there is one.
"""

import re

from chargehand.models.offline.schema_text import Relation
from chargehand.models.offline.words import stem, terms

_UNITS = r"day|week|month|quarter|year"
_HOW = re.compile(
    r"^(?P<lead>(?:please\s+)?(?:(?:show|tell)(?:\s+(?:me|us))?|say|report|find\s+out)?\s*)how\s+(?P<aux>did|do|does|has|have)\s+"
    r"(?P<what>.+?)\s+(?:develop|evolve)(?:ed|d)?\b",
    re.IGNORECASE,
)
_HOW_PLAIN = re.compile(r"^how\s+(?P<what>.+?)\s+(?:develop|evolve)(?:ed|d|s)\b", re.IGNORECASE)
_CHANGED = re.compile(
    r"^how\s+(?:did|do|does|has|have)\s+(?P<what>.+?)\s+chang(?:e|ed)(?=\s+(?:over|from\s+(?:" + _UNITS + r")\s+to\b|"
    r"(?:" + _UNITS + r")\s+by\b))",
    re.IGNORECASE,
)
_TREND = re.compile(
    r"\b(?:the\s+|a\s+)?trends?\s+(?:of|in|for)\s+"
    r"|(?:^|(?<=^report )|(?<=^show )|(?<=^describe )|(?<=^what was )|(?<=^what is ))"  # others build something
    r"the\s+(?:development|evolution)\s+of\s+",
    re.IGNORECASE,
)
_TAIL = re.compile(r"\s+trends?\b", re.IGNORECASE)
_OVER = re.compile(
    rf"\s*,?\s*\b(?:over\s+(?:the\s+)?(?P<over>{_UNITS})s\b(?:\s+of\b)?|over\s+time\b|(?P<by>{_UNITS})\s+by\s+(?P=by)\b"
    rf"|from\s+(?P<from>{_UNITS})\s+to\s+(?P=from)\b)",
    re.IGNORECASE,
)
_PER = re.compile(
    rf"\b(?:per|by|each|every)\s+(?:{_UNITS})\b|\b(?:monthly|weekly|daily|yearly|quarterly)\b", re.IGNORECASE
)
_NAMES = frozenset(map(stem, ("trend", "trends", "development", "evolution")))
# the last of several is the latest; "the last three months" and "the last name" are something else
_LAST = re.compile(
    rf"\bthe\s+last\s+(?=[a-z])(?!(?:{_UNITS}|name)s?\b|(?:few|one|two|three|four|five|six|seven|eight|nine|ten|twelve)\b"
    r"|\w+\s+(?:days|weeks|months|years)\b)"
)
_PRICES = frozenset(map(stem, ("price", "fee", "fare")))
_A_MONTH = re.compile(
    rf"(?P<money>\d[\d,.]*\s*(?:euros?|dollars?|pounds|francs|eur|usd|gbp|chf))\s+(?:a|per|each|every)\s+(?P<unit>{_UNITS})\b",
    re.IGNORECASE,
)
# what it is charged for, no table may say: that stands apart, and is told as not taken into account
_CHARGES = re.compile(
    r"\b(?:charges?|asks)\s+(?:the\s+)?(?P<end>most|least)\b(?P<per>\s+(?:per|a)\s+\w+)?", re.IGNORECASE
)
_HAS = re.compile(r"\b(?:charges|asks|shows|reaches)\s+(?=the\s+(?:most|least|\w+est)\b)")
_END = re.compile(r"[\s.?!]*$")


def plainer(text: str, schema: tuple[Relation, ...]) -> str:
    """The question in words that are told apart more easily."""
    latest = _LAST.sub("the latest ", _rated(text, schema))
    return over_time(_HAS.sub("has ", latest), schema)


def _rated(text: str, schema: tuple[Relation, ...]) -> str:
    """What is charged is a price, where there is one; dollars a month need no months where the price is of a month."""
    prices = [one for table in schema for one in table.columns if one.numeric and _PRICES & set(one.stems)]
    if len(prices) != 1:
        return text
    if (found := _A_MONTH.search(text)) and stem(found["unit"].lower()) in prices[0].stems:
        text = text[: found.end("money")] + text[found.end() :]
    if found := _CHARGES.search(text):
        best = "highest" if found["end"].lower() == "most" else "lowest"
        tail = f" {found['per'].strip().capitalize()}." if found["per"] else ""
        return f"{text[: found.start()]}has the {best} price{text[found.end() :].rstrip(' ?.')}?{tail}"
    return text


def over_time(text: str, schema: tuple[Relation, ...]) -> str:
    """The question as one for a number per month, or per what it says, where it asks for a development."""
    if _named(schema):
        return text
    first, rest = _sentence(text)
    plain = _plain(first)
    over = _OVER.search(plain)
    if over is not None:
        plain = plain[: over.start()] + (" in" if over[0].endswith("of") else "") + plain[over.end() :]
    if plain == first:
        return text
    unit = next((one for one in (over["over"], over["by"], over["from"]) if one), "month") if over else "month"
    said = "" if _PER.search(plain) else f" per {unit.lower()}"
    end = _END.search(plain)
    at = end.start() if end else len(plain)
    return f"{plain[:at]}{said}{plain[at:]}{rest}"


def _plain(first: str) -> str:
    """The sentence without the words for a development."""
    for pattern in (_HOW, _HOW_PLAIN, _CHANGED):
        if found := pattern.match(first):
            return f"What was {found['what']}{first[found.end() :]}"
    plain = _TREND.sub("the ", first, count=1)
    plain = re.sub(r"\bthe\s+the\b", "the", plain)
    return plain if plain != first else _TAIL.sub("", first, count=1)


def _sentence(text: str) -> tuple[str, str]:
    found = re.search(r"(?<=[.?!])\s+(?=[A-Z])", text)
    return (text, "") if found is None else (text[: found.start()], text[found.start() :])


def _named(schema: tuple[Relation, ...]) -> bool:
    """Whether tables have columns of that name: they know of trends themselves."""
    held = {
        term for table in schema for term in (*terms(table.name), *(t for c in table.columns for t in terms(c.name)))
    }
    return bool(held & _NAMES)
