"""The document of this API, made from its table: OpenAPI 3.1, for /api and nothing else.

The other two manners of speaking have contracts of their own, which are not ours to write down.
"""

import re
from collections.abc import Iterable
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from chargehand.server.api.problem import CODES, TYPE, Told
from chargehand.server.api.table import Operation
from chargehand.server.problem import Fault

Json: TypeAlias = dict[str, Any]
VERSION = "1"
SSE = "text/event-stream"
_JSON = "application/json"
_TEXT = {"type": "string"}
_STREAM = {"type": "object", "properties": {"id": _TEXT, "event": _TEXT, "data": _TEXT}, "required": ["data"]}
"""One event of a stream; its data is an EntryShown as JSON."""
_ALWAYS = (401, 403, 429, 500)
_ABOUT = (
    "Teams, runs and what they write. Errors are problem+json with a stable `code`. The APIs of letta-client and of "
    "OpenAI clients are under /v1 and documented by those who made them; docs/http-api.md says what is kept of them."
)


def document(operations: Iterable[Operation]) -> Json:
    """The whole document, as plain data."""
    every = list(operations)
    shapes = [one for each in every for one in (each.asked, each.told) if one is not None]
    components = _components([*dict.fromkeys(shapes), Told, Fault])
    assert all(one.__name__ in components for one in shapes), "no two shapes of this API have the same name"
    paths: dict[str, Json] = {}
    for one in every:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one)
    return {
        "openapi": "3.1.0",
        "info": {"title": "chargehand", "version": VERSION, "description": _ABOUT},
        "security": [{"bearer": []}, {"basic": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "basic": {"type": "http", "scheme": "basic", "description": "The token is the password."},
            },
        },
    }


def _components(shapes: list[type[Struct]]) -> Json:
    template = "#/components/schemas/{name}"
    return msgspec.json.schema_components(shapes, schema_hook=_anything, ref_template=template)[1]


def _anything(kind: type) -> Json:
    if kind is object:
        return {"description": "Any JSON."}
    raise NotImplementedError


def _operation(one: Operation) -> Json:
    told: Json = {
        "operationId": one.name,
        "summary": one.summary,
        "tags": [one.group],
        "description": f"A key needs the scope `{one.scope}`.",
        "parameters": [*_path(one.path), *_query(one), *_headers(one)],
        "responses": _responses(one),
    }
    if one.asked is not None:
        needed = any(field.required for field in msgspec.structs.fields(one.asked))
        told["requestBody"] = {"required": needed, "content": {_JSON: {"schema": _ref(one.asked)}}}
    return told


def _responses(one: Operation) -> Json:
    content: Json = {} if one.told is None else {_JSON: {"schema": _ref(one.told)}}
    content |= {media: {"schema": _STREAM if media == SSE else {"type": "string"}} for media in one.media}
    good: Json = {"description": "It is so.", "content": content}
    if one.creates:
        good["headers"] = {
            "Location": {"description": "The run.", "schema": {"type": "string"}},
            "Idempotency-Replayed": {"description": "Sent before.", "schema": {"type": "string"}},
        }
    found: Json = {str(one.status): good}
    if one.empty:
        found["204"] = {"description": "Nothing will follow."}
    for status in sorted({*_ALWAYS, *one.problems}):
        found[str(status)] = _problem(f"Codes: {', '.join(CODES[status])}.")
    return {**found, "default": _problem("Anything else that is wrong.")}


def _problem(words: str) -> Json:
    return {"description": words, "content": {TYPE: {"schema": _ref(Told)}}}


def _path(path: str) -> list[Json]:
    schema = {"type": "string", "minLength": 1}
    return [{"name": name, "in": "path", "required": True, "schema": schema} for name in re.findall(r"\{(\w+)\}", path)]


def _query(one: Operation) -> list[Json]:
    if one.query is None:
        return []
    shape: Json = _components([one.query])[one.query.__name__]
    needed: list[str] = shape.get("required", [])
    return [
        {"name": name, "in": "query", "required": name in needed, "schema": schema}
        for name, schema in shape["properties"].items()
    ]


def _headers(one: Operation) -> list[Json]:
    if not one.creates:
        return []
    words = "The same key with the same body is the same run, however often it is sent."
    schema = {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"}
    return [{"name": "Idempotency-Key", "in": "header", "required": False, "description": words, "schema": schema}]


def _ref(shape: type[Struct]) -> Json:
    return {"$ref": f"#/components/schemas/{shape.__name__}"}
