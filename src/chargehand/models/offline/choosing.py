"""Which tool a task is for: what each is good at by its schema, and how well its words fit those of the task.

How arguments are filled is the business of `arguments`.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, TypeAlias, cast

import msgspec
from msgspec import Raw, Struct

from chargehand.models.messages import ToolSpec
from chargehand.models.offline.remembering.family import FAMILY
from chargehand.models.offline.schema_text import Relation, read_schema
from chargehand.models.offline.words import similarity, terms, tokens
from chargehand.models.subject import Skill

Role: TypeAlias = Literal["query", "compute", "draw", "search", "code", "other"]
OURS = frozenset({"give_up", "read_more"}) | FAMILY  # nothing that a task is for
_SEARCHED = frozenset({"query", "question", "q", "search", "keywords", "topic", "phrase", "search_query", "terms"})
_COMPUTED = frozenset({"expression", "formula", "calculation"})
_SOURCE = frozenset({"code", "script", "program", "source"})
_DEEPEST = 6


class Parameter(Struct, frozen=True):
    """One argument as a JSON Schema describes it. `items` is of what a list is."""

    name: str
    type: str
    required: bool
    description: str = ""
    enum: tuple[str, ...] = ()
    format: str = ""
    items: "Parameter | None" = None
    fields: tuple["Parameter", ...] = ()
    pattern: str = ""


class Choice(Struct, frozen=True):
    """A tool, what it is good at, and what it must be given."""

    name: str
    description: str
    role: Role
    parameters: tuple[Parameter, ...]
    tables: tuple[Relation, ...] = ()


def choices(tools: Sequence[ToolSpec | Skill]) -> list[Choice]:
    """The tools a worker may choose from."""
    return [_choice(one.name, one.description, bytes(one.parameters)) for one in tools if one.name not in OURS]


@lru_cache(maxsize=512)
def _choice(name: str, description: str, schema: bytes) -> Choice:
    parameters = read_parameters(Raw(schema))
    tables = read_schema(description)
    return Choice(name, description, _role(parameters, tables), parameters, tables)


def _role(parameters: tuple[Parameter, ...], tables: tuple[Relation, ...]) -> Role:
    names = {one.name.lower() for one in parameters if one.type in {"string", ""}}
    kinds = [one.items.type for one in parameters if one.type == "array" and one.items]
    if tables and names:
        return "query"
    if names & _COMPUTED:
        return "compute"
    if any(kind in {"number", "integer"} for kind in kinds) or any(
        one.name == "rows" and one.type == "array" for one in parameters
    ):
        return "draw"
    if names & _SOURCE:
        return "code"
    asked = [one for one in parameters if one.required]
    if any(one.name.lower() in _SEARCHED for one in asked) and len(asked) == 1:
        return "search"
    return "other"


def read_parameters(schema: Raw) -> tuple[Parameter, ...]:
    """The arguments a schema asks for; none where it cannot be read."""
    try:
        whole = msgspec.json.decode(schema, type=dict[str, object])
    except msgspec.MsgspecError:
        return ()
    return _fields(whole, _mapping(whole.get("$defs")), 0)


def _fields(schema: dict[str, object], shared: dict[str, object], depth: int) -> tuple[Parameter, ...]:
    schema = _resolved(schema, shared)
    required = schema.get("required")
    wanted = {str(one) for one in cast("list[object]", required)} if isinstance(required, list) else set[str]()
    if depth > _DEEPEST:
        return ()
    return tuple(
        _parameter(name, _mapping(part), shared, required=name in wanted, depth=depth)
        for name, part in _mapping(schema.get("properties")).items()
    )


def _parameter(
    name: str, part: dict[str, object], shared: dict[str, object], *, required: bool, depth: int
) -> Parameter:
    said = str(part.get("description") or "")
    part = _resolved(part, shared)
    kind = part.get("type")
    if isinstance(kind, list):
        kind = next((one for one in cast("list[object]", kind) if one != "null"), "")
    items = _mapping(part.get("items"))
    inner = _parameter("item", items, shared, required=True, depth=depth + 1) if items and depth < _DEEPEST else None
    enum = part.get("enum", [part["const"]] if "const" in part else [])
    return Parameter(
        name, str(kind or ""), required, said or str(part.get("description") or ""),
        tuple(str(one) for one in cast("list[object]", enum)) if isinstance(enum, list) else (),
        str(part.get("format") or ""), inner, _fields(part, shared, depth + 1), str(part.get("pattern") or ""),
    )  # fmt: skip


def _resolved(part: dict[str, object], shared: dict[str, object]) -> dict[str, object]:
    """Without references, and of several shapes the first that is not null."""
    for _ in range(_DEEPEST):
        several = part.get("anyOf") or part.get("oneOf")
        if isinstance(several, list):
            shapes = [_mapping(one) for one in cast("list[object]", several)]
            part = {**part, **next((one for one in shapes if one.get("type") != "null"), _mapping(None))}
            part = {key: value for key, value in part.items() if key not in {"anyOf", "oneOf"}}
        elif isinstance(part.get("$ref"), str):
            part = _mapping(shared.get(str(part["$ref"]).rpartition("/")[2]))
        else:
            break
    return part


def _mapping(value: object) -> dict[str, object]:
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def fit(choice: Choice, text: str) -> float:
    """How much of a task's words a tool's own words answer, 0 to 1; a word of its name counts most."""
    wanted = terms(text)
    own = [*terms(choice.name), *terms(choice.description)]
    own += [term for one in choice.parameters for term in terms(f"{one.name} {one.description}")]
    said = similarity(wanted, own)
    name = terms(" ".join(tokens(choice.name)))
    return min(1.0, said + 0.5 * similarity(name, wanted))
