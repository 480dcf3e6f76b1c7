"""Check values against a JSON Schema, and check a schema itself.

jsonschema-rs decides what fits: all keywords of the drafts 4 to 2020-12, with formats. Nothing is fetched. Schemas come
from strangers (MCP servers, callers of the API), so the work that one check can cause is bounded.
"""

import re
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

import msgspec

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError, Validator

JsonType: TypeAlias = Literal["object", "array", "string", "boolean", "null", "integer", "number"]
_Table: TypeAlias = dict[str, Any]

_MAX_FAULTS = 10
_MAX_DEPTH = 200
"""The most schemas that lead from one to the next."""
_MAX_WORK = 100_000
"""The most schemas that one place of a value is held against."""
_MAX_BACKTRACKS = 10_000
"""The most steps back in a pattern with look-around or back-references. All other patterns take linear time."""
_MAX_SHOWN = 100
"""The most characters of a value in a message."""

# --- keywords that hold schemas

_ONE_IN_PLACE = ("not", "if", "then", "else")
_LISTS_IN_PLACE = ("allOf", "anyOf", "oneOf")
_TABLES = ("properties", "patternProperties")
_OF_PROPERTIES = ("additionalProperties", "unevaluatedProperties", "propertyNames")
_OF_ITEMS = ("items", "contains", "additionalItems", "unevaluatedItems")
_DEFINITIONS = ("$defs", "definitions")
_ONE = frozenset((*_ONE_IN_PLACE, *_OF_PROPERTIES, *_OF_ITEMS))
_MANY = frozenset((*_LISTS_IN_PLACE, "prefixItems", "items"))
_NAMED = frozenset((*_TABLES, *_DEFINITIONS, "dependentSchemas"))
_REFERENCES = frozenset(("$ref", "$dynamicRef", "$recursiveRef"))
_HOLDING = _ONE | _MANY | _NAMED | _REFERENCES | {"dependencies", "minContains", "maxContains"}

_NO_URI = re.compile(r"[^A-Za-z0-9$_.~-]")
_PERCENT = re.compile(rb"%([0-9A-Fa-f]{2})")

_FAULTS = {
    "type": "must be {wanted}, not {kind}",
    "enum": "is {value}; allowed are {wanted}",
    "const": "must be {wanted}",
    "minimum": "is {value}; it must be at least {wanted}",
    "maximum": "is {value}; it must be at most {wanted}",
    "exclusiveMinimum": "is {value}; it must be more than {wanted}",
    "exclusiveMaximum": "is {value}; it must be less than {wanted}",
    "multipleOf": "is {value}; it must be a multiple of {wanted}",
    "minLength": "has {count} characters; it must be at least {wanted}",
    "maxLength": "has {count} characters; it must be at most {wanted}",
    "pattern": "is {value}; it must match the pattern {wanted}",
    "format": "is {value}; it must have the format {wanted}",
    "minItems": "has {count} items; it must be at least {wanted}",
    "maxItems": "has {count} items; it must be at most {wanted}",
    "uniqueItems": "holds an item twice; each must be another",
    "minProperties": "has {count} properties; it must be at least {wanted}",
    "maxProperties": "has {count} properties; it must be at most {wanted}",
    "required": "lacks {wanted}",
}
"""What is said where a value breaks a keyword, behind its place."""
CHECKED_KEYWORDS = _HOLDING | _FAULTS.keys() | {"dependentRequired"}
"""The keywords by which a value can be refused."""
_KINDS = {"dict": "an object", "list": "a list", "str": "a text", "NoneType": "null", "bool": "true or false"}

_SCHEMAS = "an object of schemas"
_COUNT = "a whole number from 0"
_TAKES = {
    "type": "array, boolean, integer, null, number, object, string or a list of these",
    **dict.fromkeys(_ONE, "a schema"),
    **dict.fromkeys(_MANY - {"items"}, "a list of schemas"),
    **dict.fromkeys(_NAMED, _SCHEMAS),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), "a number"),
    **dict.fromkeys((f"{side}{of}" for side in ("min", "max") for of in ("Length", "Items", "Properties")), _COUNT),
    "multipleOf": "a number above 0",
    "required": "a list of names, each once",
    "enum": "a list of values",
    "pattern": "a regular expression",
    "format": "a text",
    "$ref": "a text",
}
"""What a keyword of a schema may hold."""


def problems(value: object, schema: _Table, place: str = "$") -> Iterator[str]:
    """Yield what of a value does not fit a schema, in words; at most ten faults.

    Raises:
        ValueError: values cannot be checked against the schema; `schema_problem` says why.
    """
    checker = _checker(msgspec.json.encode(schema))
    if isinstance(checker, str):
        raise ValueError(checker)  # noqa: TRY004 - the text says what is wrong with the schema
    try:
        msgspec.json.encode(value)  # its depth is bounded by this
        yield from dict.fromkeys(islice(checker.faults(value, place), _MAX_FAULTS))
    except RecursionError:
        yield f"{place} is nested too deep"
    except (TypeError, ValueError) as error:
        yield f"{place} holds what JSON cannot hold ({error})"


def schema_problem(schema: object) -> str:
    """Return what is wrong with a schema, and where; empty if values can be checked against it."""
    if not isinstance(schema, dict):
        return f"$ is {_shown(schema)}; a JSON Schema is an object"
    try:
        encoded = msgspec.json.encode(schema)
    except (TypeError, ValueError, RecursionError) as error:
        return f"it is no JSON ({error})"
    checker = _checker(encoded)
    return checker if isinstance(checker, str) else ""


def inner_schemas(schema: _Table) -> Iterator[object]:
    """Yield the schemas that a schema holds, one level down."""
    for keyword, part in schema.items():
        if keyword in _NAMED and isinstance(part, dict):
            yield from cast("dict[str, object]", part).values()
        elif keyword in _MANY and isinstance(part, list):
            yield from cast("list[object]", part)
        elif keyword in _ONE:
            yield part


# --- one schema


@lru_cache(maxsize=256)
def _checker(encoded: bytes) -> "_Checker | str":
    """Return what checks values against a schema, or what is wrong with it."""
    schema: _Table = msgspec.json.decode(encoded)
    _prepare(schema)
    if problem := _work_problem(schema):
        return problem
    from jsonschema_rs import ValidationError  # noqa: PLC0415 - it is loaded only where a schema is checked

    try:
        return _Checker(schema)
    except ValidationError as error:
        return _described(error)
    except ValueError:
        return f"it is nested more than {_MAX_DEPTH} levels deep"


def _fetch_nothing(reference: str) -> Any:
    raise ValueError(f"{reference} is not in the schema")


@cache
def _options() -> dict[str, Any]:
    from jsonschema_rs import FancyRegexOptions  # noqa: PLC0415 - as above

    patterns = FancyRegexOptions(backtrack_limit=_MAX_BACKTRACKS)
    return {"offline": True, "validate_formats": True, "pattern_options": patterns}


class _Checker:
    """Values against one schema. What is wrong with a value is looked for only where it does not fit."""

    def __init__(self, schema: _Table) -> None:
        from jsonschema_rs import Registry, validator_for  # noqa: PLC0415 - as above

        self._schema = schema
        self._make: Callable[..., Validator] = validator_for
        self._whole = validator_for(schema, **_options())
        self._registry = Registry([("urn:schema", schema)], retriever=_fetch_nothing)
        self._parts: dict[str, Validator] = {"#": self._whole}
        self._plain: dict[str, Validator] = {}

    def faults(self, value: object, place: str, pointer: str = "#", schema: object = None) -> Iterator[str]:
        """Yield what of a value does not fit the part of the schema at a JSON pointer."""
        part = self._schema if pointer == "#" else schema
        if self._fits(value, pointer):
            return
        if not isinstance(part, dict):
            yield f"{place} is not wanted"
            return
        table = cast("_Table", part)
        fault = ""
        for fault in self._found(value, place, pointer, table):
            yield fault
        if not fault:
            yield f"{place} does not fit {', '.join(sorted(_HOLDING & table.keys()))} of its schema"

    def _fits(self, value: object, pointer: str) -> bool:
        if pointer not in self._parts:
            reference = {"$ref": f"urn:schema{pointer}"}
            self._parts[pointer] = self._make(reference, registry=self._registry, **_options())
        return self._parts[pointer].is_valid(value)

    def _found(self, value: object, place: str, pointer: str, schema: _Table) -> Iterator[str]:
        """Yield the faults of a value that does not fit."""
        place_of = {keyword: number for number, keyword in enumerate(schema)}
        errors = self._without_parts(pointer, schema).iter_errors(value)
        for error in sorted(errors, key=lambda error: place_of.get(error.kind.name, 0)):  # as they are written
            yield f"{place} {_words(error, schema, value)}"
            if error.kind.name == "type":
                return
        yield from self._in_place(value, place, pointer, schema)
        if isinstance(value, dict):
            yield from self._in_object(cast("_Table", value), place, pointer, schema)
        elif isinstance(value, list):
            yield from self._in_list(cast("list[object]", value), place, pointer, schema)

    def _without_parts(self, pointer: str, schema: _Table) -> "Validator":
        """Return the check of the keywords that hold no other schemas."""
        if pointer not in self._plain:
            draft = {"$schema": self._schema["$schema"]} if "$schema" in self._schema else {}
            plain = {name: part for name, part in schema.items() if name not in _HOLDING}
            self._plain[pointer] = self._make({**plain, **draft}, **_options())
        return self._plain[pointer]

    def _in_place(self, value: object, place: str, pointer: str, schema: _Table) -> Iterator[str]:
        """Yield the faults by schemas that are about the same value."""
        reference = schema.get("$ref")
        if isinstance(reference, str):
            yield from self.faults(value, place, reference, _resolve(reference, self._schema))
        for number, part in enumerate(schema.get("allOf", ())):
            yield from self.faults(value, place, f"{pointer}/allOf/{number}", part)
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                yield from self._of_options(value, place, f"{pointer}/{keyword}", schema[keyword])
        if "not" in schema and self._fits(value, f"{pointer}/not"):
            yield f"{place} has a form that is not allowed"
        if "if" in schema:
            branch = "then" if self._fits(value, f"{pointer}/if") else "else"
            if branch in schema:
                yield from self.faults(value, place, f"{pointer}/{branch}", schema[branch])
        for name, part in schema.get("dependentSchemas", {}).items():
            if isinstance(value, dict) and name in value:
                yield from self.faults(
                    cast("object", value), place, f"{pointer}/dependentSchemas/{_escaped(name)}", part
                )

    def _of_options(self, value: object, place: str, pointer: str, options: list[object]) -> Iterator[str]:
        fitting = sum(self._fits(value, f"{pointer}/{number}") for number in range(len(options)))
        if fitting > 1 and pointer.endswith("oneOf"):
            yield f"{place} fits {fitting} of the allowed forms; it must fit one"
        elif not fitting:
            # a value that is not null is meant for the only form that has values
            meant = [number for number, option in enumerate(options) if option != {"type": "null"}]
            if value is not None and len(meant) == 1:
                yield from self.faults(value, place, f"{pointer}/{meant[0]}", options[meant[0]])
            else:
                yield f"{place} fits none of the allowed forms"

    def _in_object(self, value: _Table, place: str, pointer: str, schema: _Table) -> Iterator[str]:
        properties: _Table = schema.get("properties", {})
        patterns: _Table = schema.get("patternProperties", {})
        rest: object = schema.get("additionalProperties", True)
        for name, item in value.items():
            inner = f"{place}.{name}"
            if name in properties:
                yield from self.faults(item, inner, f"{pointer}/properties/{_escaped(name)}", properties[name])
            matching = [pattern for pattern in patterns if self._matches(pattern, name)]
            for pattern in matching:
                key = f"{pointer}/patternProperties/{_escaped(pattern)}"
                yield from self.faults(item, inner, key, patterns[pattern])
            if name in properties or matching:
                continue
            if rest is False:
                yield f"{place} has {name!r}, which is not wanted"
            elif isinstance(rest, dict):
                yield from self.faults(item, inner, f"{pointer}/additionalProperties", cast("object", rest))

    def _matches(self, pattern: str, name: str) -> bool:
        return self._without_parts(f"pattern {pattern}", {"pattern": pattern}).is_valid(name)

    def _in_list(self, value: list[object], place: str, pointer: str, schema: _Table) -> Iterator[str]:
        items: object = schema.get("items")
        keyword = "items" if isinstance(items, list) else "prefixItems"
        first: list[object] = schema.get(keyword, [])
        for number, (item, part) in enumerate(zip(value, first, strict=False)):
            yield from self.faults(item, f"{place}[{number}]", f"{pointer}/{keyword}/{number}", part)
        if isinstance(items, dict | bool):
            for number, item in enumerate(value[len(first) :], len(first)):
                yield from self.faults(item, f"{place}[{number}]", f"{pointer}/items", cast("object", items))


# --- words


def _words(error: "ValidationError", schema: _Table, value: object) -> str:
    """Return what is said of a value that breaks a keyword."""
    keyword = error.kind.name
    if keyword not in _FAULTS:
        return f"does not fit {keyword} of its schema"
    wanted = error.kind.as_dict()["property"] if keyword == "required" else schema.get(keyword)
    if keyword == "type":
        wanted = " or ".join(cast("list[str]", wanted)) if isinstance(wanted, list) else wanted
    elif keyword == "enum":
        wanted = ", ".join(map(repr, cast("list[object]", wanted)))
    elif keyword in ("const", "required"):
        wanted = repr(wanted)
    kind = _KINDS.get(type(value).__name__, "a number")
    count = len(cast("list[object]", value)) if isinstance(value, dict | list | str) else 0
    return _FAULTS[keyword].format(value=_shown(cast("object", value)), count=count, wanted=wanted, kind=kind)


def _described(error: "ValidationError") -> str:
    """Return what is wrong with a schema that jsonschema-rs refuses."""
    path = error.instance_path
    if not path:
        return error.message
    place = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)
    keyword = next((key for key in reversed(path) if isinstance(key, str)), "")
    return f"${place} is {_shown(error.instance)}; {keyword!r} takes {_TAKES.get(keyword, 'something else')}"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"


def _escaped(key: str) -> str:
    """Return a key as it stands in a JSON pointer in a URI."""
    key = key.replace("~", "~0").replace("/", "~1")
    return _NO_URI.sub(lambda match: "".join(f"%{byte:02X}" for byte in match[0].encode()), key)


# --- references, and the work that a schema can cause


def _prepare(schema: _Table) -> None:
    """Take the names of a schema and of its parts away, and write its references as URIs: they go by place."""
    parts: list[object] = [schema]
    while parts:
        part = parts.pop()
        if isinstance(part, dict):
            table = cast("_Table", part)
            table.pop("$id", None)
            table.pop("id", None)
            for keyword in _REFERENCES & table.keys():
                reference: object = table[keyword]
                if isinstance(reference, str) and reference.startswith("#/"):
                    table[keyword] = "/".join(("#", *map(_escaped, _keys(reference))))
            parts += inner_schemas(table)


def _keys(reference: str) -> list[str]:
    """Return the keys on the way from a schema to the part that a reference names."""
    text = _PERCENT.sub(lambda match: bytes.fromhex(match[1].decode()), reference.encode()).decode(errors="replace")
    return [key.replace("~1", "/").replace("~0", "~") for key in text.split("/")[1:]]


def _resolve(reference: object, root: object) -> object:
    """Return the part of a schema that a reference names; None where it names none."""
    if not isinstance(reference, str) or reference.partition("/")[0] != "#":
        return None
    target = root
    for name in _keys(reference):
        if isinstance(target, dict):
            target = cast("_Table", target).get(name)
        elif isinstance(target, list) and name.isdecimal() and int(name) < len(cast("list[object]", target)):
            target = cast("list[object]", target)[int(name)]
        else:
            return None
    return target


def _work_problem(schema: _Table) -> str:
    """Return why a check could go on for too long; empty if it cannot."""
    try:
        work = _Work(schema).of(schema, [], 0)
    except ValueError as error:
        return str(error)
    return "" if work <= _MAX_WORK else "its forms are combined in too many ways; leave some of anyOf and allOf out"


class _Work:
    """Counts the schemas that one place of a value may be held against, and those in it along one path.

    A schema that leads back to itself is counted once: jsonschema-rs remembers what it found there.
    """

    def __init__(self, root: _Table) -> None:
        self._root = root
        self._known: dict[int, int] = {}
        self._begun: set[int] = set()
        self._followed: object = ""

    def of(self, schema: object, same: list[int], depth: int) -> int:
        """Count for one schema. `same` are those before it that are about the same value.

        Raises:
            ValueError: the schema refers to nothing, or only to itself, or is nested too deep.
        """
        if not isinstance(schema, dict):
            return 1
        table = cast("_Table", schema)
        mark = id(table)
        if mark in same:
            raise ValueError(f"it refers to {self._followed!r}, which leads back to itself; name what a value must be")
        if depth > _MAX_DEPTH:
            raise ValueError(f"it is nested more than {_MAX_DEPTH} levels deep")
        if mark in self._known:
            return self._known[mark]
        if mark in self._begun:
            return 1
        self._begun.add(mark)
        here = [*same, mark]
        work = 1 + sum(self.of(part, here, depth + 1) for part in self._in_place(table))
        for keyword in (*_TABLES, *_OF_PROPERTIES):  # a property is one of them
            parts = _parts(table, keyword)
            work += max((self.of(part, [], depth + 1) for part in parts), default=0)
        for keyword in (*_OF_ITEMS, "prefixItems"):
            work += max((self.of(part, [], depth + 1) for part in _parts(table, keyword)), default=0)
        for keyword in _DEFINITIONS:  # for the depth
            for part in _parts(table, keyword):
                self.of(part, [], depth + 1)
        self._begun.remove(mark)
        self._known[mark] = work
        return work

    def _in_place(self, schema: _Table) -> Iterator[object]:
        for keyword in _REFERENCES & schema.keys():
            target = _resolve(schema[keyword], self._root)
            if not isinstance(target, dict | bool):
                reason = f"it refers to {schema[keyword]!r}, which is not in it"
                raise ValueError(f"{reason}; name a part of it, as #/$defs/NAME")  # noqa: TRY004 - as above
            self._followed = schema[keyword]
            yield cast("object", target)
        yield from chain.from_iterable(_parts(schema, key) for key in (*_LISTS_IN_PLACE, "dependentSchemas"))
        yield from (schema[key] for key in _ONE_IN_PLACE if key in schema)


def _parts(schema: _Table, keyword: str) -> list[object]:
    """Return the schemas that one keyword holds."""
    part: object = schema.get(keyword)
    return [] if part is None else list(inner_schemas({keyword: part}))
