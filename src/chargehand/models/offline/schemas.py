"""What tools must be given, read from their JSON Schemas: numbers, lists of them, or only words.

How arguments are filled is the business of whoever calls the tool.
"""

from functools import lru_cache
from typing import Literal

import msgspec
from msgspec import Struct

from chargehand.models.offline.kinds import asked, done
from chargehand.models.offline.words import numbers, related, terms, tokens
from chargehand.models.subject import Skill, WorkerCard

Need = Literal["series", "values", "words", "nothing", "results"]
_COUNT_LIKE = "limit top n count max maximum size page days year month width height rows steps decimals k"
_COUNTS = frozenset(_COUNT_LIKE.split())
_FORMULA = frozenset(("expression", "formula", "calculation"))
_UNITS = frozenset(
    terms("EUR USD GBP CHF euro dollar pound franc currency money exchange rate km mile kg metre celsius")
)


class _Part(Struct):
    type: object = None
    items: object = None

    @property
    def numeric(self) -> bool:
        return _table(self.items).get("type") != "string"


class _Object(Struct):
    properties: dict[str, _Part] = {}
    required: list[str] = []


def said_in(skill: Skill) -> str:
    """Descriptions and choices in a tool's schema as one text."""
    try:
        return _said(msgspec.json.decode(skill.parameters, type=dict[str, object]))
    except msgspec.MsgspecError:
        return ""


def parameter_names(skill: Skill) -> list[str]:
    """What a tool's arguments are called."""
    try:
        return list(_table(msgspec.json.decode(skill.parameters, type=dict[str, object]).get("properties")))
    except msgspec.MsgspecError:
        return []


def _said(schema: dict[str, object], depth: int = 0) -> str:
    found: list[str] = []
    for key, value in schema.items() if depth < 6 else ():
        if key in ("description", "title", "const") and isinstance(value, str):
            found.append(value[:2000])
        elif key in ("enum", "examples") and isinstance(value, list):
            found.extend(str(one)[:80] for one in msgspec.convert(value, list[object])[:40])
        elif isinstance(value, dict):
            inner = _table(value)  # pyright: ignore[reportUnknownArgumentType] - JSON of any shape
            parts = inner.values() if key == "properties" else [inner]
            found.extend(_said(_table(part), depth + 1) for part in parts)
    return " ".join(found)


def _table(value: object) -> dict[str, object]:
    try:
        return msgspec.convert(value, dict[str, object])
    except msgspec.ValidationError:
        return {}


def need(text: str, card: WorkerCard, *, writes: bool) -> Need:
    """What the best tool for a clause must be given that words cannot say; `results` for a writer without tools."""
    if not card.skills:
        return "results" if writes else "words"
    wanted = list(dict.fromkeys(terms(text)))
    kinds = asked(text)

    def fit(skill: Skill) -> float:
        own = frozenset(terms(f"{skill.name} {skill.description[:2000]}"))
        does = done(skill.name, skill.description[:2000], "")
        hits = sum(term in own or any(related(term, other) >= 0.8 for other in own) for term in wanted)
        return hits + 3 * max((sure * does.get(name, 0.0) for name, sure in kinds.items()), default=0.0)

    return needed(max(card.skills, key=fit))


def needed(skill: Skill) -> Need:
    return _needed(bytes(skill.parameters))


@lru_cache(maxsize=256)
def _needed(parameters: bytes) -> Need:
    try:
        schema = msgspec.json.decode(parameters, type=_Object)
    except msgspec.MsgspecError:
        return "words"
    wanted = {name: schema.properties[name] for name in schema.required if name in schema.properties}
    if any(part.type == "array" and part.numeric for part in wanted.values()):
        return "series"
    for name, part in wanted.items():
        if name.lower() not in _COUNTS and (part.type in ("number", "integer") or _FORMULA & set(tokens(name))):
            return "values"
    return "words" if wanted else "nothing"


def filled(text: str, wants: Need, about: frozenset[str]) -> bool:
    """Whether a clause itself holds the numbers that a tool wants; `about` are the terms of its subject."""
    given = len(numbers(text))
    if wants == "series":
        return given >= 3
    if wants == "values":
        return given >= 1 and (given >= 2 or not about - _UNITS)
    return wants != "results"
