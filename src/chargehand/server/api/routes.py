"""Our own API: the routes of every operation that its modules declare, and the OpenAPI document made from them.

The other two APIs have contracts of their own, which are not ours to write down.
"""

import functools
import re
from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct
from starlette.convertors import StringConvertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response

from chargehand.server.api import control, events, files, runs, teams
from chargehand.server.api.operations import (
    CODES,
    OPERATIONS,
    PROBLEM_TYPE,
    Operation,
    ProblemDetails,
    render_own_problem,
)
from chargehand.server.routing import Api
from chargehand.server.streams import MEDIA_TYPE
from chargehand.server.tenants import Tenant
from chargehand.server.wire import Fault

DECLARED_IN = (teams, runs, control, events, files)
Json: TypeAlias = dict[str, Any]
VERSION = "1"
_JSON = "application/json"
_TEXT = {"type": "string"}
_BYTES = {"type": "string", "format": "binary"}
_STREAM = {"type": "object", "properties": {"id": _TEXT, "event": _TEXT, "data": _TEXT}, "required": ["data"]}
"""One event of a stream; its data is an EntryInfo as JSON."""
_IDEMPOTENCY_KEY: Json = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "The same key with the same body is done once, however often it is sent.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
}
_ABOUT = (
    "Teams, runs and what they write. Errors are problem+json with a stable `code`. The APIs of letta-client and of "
    "OpenAI clients are under /v1 and documented by those who made them; docs/http-api.md says what is kept of them."
)


class _RunName(StringConvertor):
    """The name of a run in a path: that of a run inside another says where, with slashes."""

    regex = r"[^/]+(?:/[^/]+/[0-9]+/[0-9]+/[0-9a-f]{8})*"


def own_api() -> Api:
    register_url_convertor("run", _RunName())
    api = Api("api", render_own_problem, prefixes=("/api",))
    # the shortest paths first: they are called most; and a fixed path before one that has a name in its place
    for operation in sorted(OPERATIONS, key=lambda declared: (declared.path.count("/"), declared.path.count("{"))):
        path = operation.path.replace("{run}", "{run:run}").replace("{task}", "{task:path}")  # an id may have slashes
        api.add(operation.method, path, operation.call, operation.scope)
    api.add("GET", "/api/openapi.json", _document, "read")
    return api


@functools.cache
def written() -> bytes:
    """The document as it is served and kept in docs/openapi.json."""
    return msgspec.json.format(msgspec.json.encode(document(), order="deterministic"), indent=1) + b"\n"


async def _document(_request: Request, _tenant: Tenant) -> Response:
    return Response(written(), media_type="application/json")


# --- the document


def document(operations: Sequence[Operation] = OPERATIONS) -> Json:
    """The whole document, as plain data."""
    shapes = [shape for each in operations for shape in (each.body, each.reply) if shape is not None]
    components = _components([*dict.fromkeys(shapes), ProblemDetails, Fault])
    assert all(shape.__name__ in components for shape in shapes), "no two shapes of this API have the same name"
    paths: dict[str, Json] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
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


def _operation(operation: Operation) -> Json:
    described: Json = {
        "operationId": operation.name,
        "summary": operation.summary,
        "tags": [operation.path.split("/")[2]],
        "description": f"A key needs the scope `{operation.scope}`.",
        "parameters": _parameters(operation),
        "responses": _responses(operation),
    }
    if operation.body is not None:
        is_required = any(field.required for field in msgspec.structs.fields(operation.body))
        described["requestBody"] = {"required": is_required, "content": {_JSON: {"schema": _ref(operation.body)}}}
    if operation.uploads:
        described["requestBody"] = {"required": True, "content": {"*/*": {"schema": _BYTES}}}
    return described


def _responses(operation: Operation) -> Json:
    content: Json = {} if operation.reply is None else {_JSON: {"schema": _ref(operation.reply)}}
    content |= {media: {"schema": _STREAM if media == MEDIA_TYPE else _TEXT} for media in operation.media}
    good: Json = {"description": "It is so.", "content": content}
    if operation.creates:
        good["headers"] = {
            "Location": {"description": "The run.", "schema": _TEXT},
            "Idempotency-Replayed": {"description": "RequestBody before.", "schema": _TEXT},
        }
    responses: Json = {"201" if operation.creates else "200": good}
    if operation.body is not None and "in_place" in operation.body.__struct_fields__:
        changed: Json = {"schema": {"$ref": "#/components/schemas/RunInfo"}}
        responses["200"] = {"description": "The run, changed in place.", "content": {_JSON: changed}}
    if operation.may_be_empty:
        responses["204"] = {"description": "Nothing will follow."}
    for status in sorted(_problem_statuses(operation)):
        responses[str(status)] = _problem(f"Codes: {', '.join(CODES[status])}.")
    return {**responses, "default": _problem("Anything else that is wrong.")}


def _problem_statuses(operation: Operation) -> set[int]:
    statuses = {401, 403, 429, 500}
    if "{" in operation.path or operation.creates or operation.media:
        statuses |= {404, 409}
    if operation.query is not None or operation.body is not None:
        statuses.add(422)
    if operation.uploads:
        statuses |= {413, 415}
    return statuses if operation.scope == "read" else {*statuses, 409, 503}


def _problem(words: str) -> Json:
    return {"description": words, "content": {PROBLEM_TYPE: {"schema": _ref(ProblemDetails)}}}


def _parameters(operation: Operation) -> list[Json]:
    names = re.findall(r"\{(\w+)\}", operation.path)
    schema: Json = {"type": "string", "minLength": 1}
    parameters: list[Json] = [{"name": name, "in": "path", "required": True, "schema": schema} for name in names]
    if operation.query is not None:
        shape: Json = _components([operation.query])[operation.query.__name__]
        required: list[str] = shape.get("required", [])
        parameters += [
            {"name": name, "in": "query", "required": name in required, "schema": schema}
            for name, schema in shape["properties"].items()
        ]
    if operation.takes_key:
        parameters.append(_IDEMPOTENCY_KEY)
    return parameters


def _ref(shape: type[Struct]) -> Json:
    return {"$ref": f"#/components/schemas/{shape.__name__}"}
