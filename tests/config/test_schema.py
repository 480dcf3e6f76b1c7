"""The JSON Schema for editors agrees with the loader: on the templates, on short forms, and on what is wrong."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from chargehand.config.keys import json_schema
from chargehand.config.source import TEMPLATES, read_yaml
from tests.config.files import shaped, write

SCHEMA = json_schema()
TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}


def fits(value: object, schema: dict[str, Any]) -> bool:
    """As much of a JSON Schema validator as our schema needs; what it does not know is an error."""
    unknown = set(schema) - set(CHECKS) - {"$schema", "$defs", "title", "description", "default", "properties"}
    assert not unknown, unknown
    return all(check(value, schema[key], schema) for key, check in CHECKS.items() if key in schema)


def _type(value: object, wanted: str, _schema: dict[str, Any]) -> bool:
    return isinstance(value, TYPES[wanted]) and (wanted == "boolean" or not isinstance(value, bool))


def _properties(value: object, more: bool | dict[str, Any], schema: dict[str, Any]) -> bool:
    if not isinstance(value, dict):
        return True
    known: dict[str, dict[str, Any]] = schema.get("properties", {})
    for key, item in cast("dict[str, object]", value).items():
        if key in known:
            if not fits(item, known[key]):
                return False
        elif more is False or (more is not True and not fits(item, more)):
            return False
    return True


def _items(value: object, wanted: dict[str, Any], _schema: dict[str, Any]) -> bool:
    return not isinstance(value, list) or all(fits(one, wanted) for one in cast("list[object]", value))


def _size(value: object) -> int:
    return len(cast("dict[str, object]", value)) if isinstance(value, dict) else 1


CHECKS: dict[str, Callable[[Any, Any, dict[str, Any]], bool]] = {
    "$ref": lambda value, name, _: fits(value, SCHEMA["$defs"][name.removeprefix("#/$defs/")]),
    "type": _type,
    "enum": lambda value, known, _: value in known,
    "anyOf": lambda value, known, _: any(fits(value, one) for one in known),
    "oneOf": lambda value, known, _: sum(fits(value, one) for one in known) == 1,
    "required": lambda value, names, _: (
        not isinstance(value, dict) or set(names) <= set(cast("dict[str, object]", value))
    ),
    "additionalProperties": _properties,
    "items": _items,
    "pattern": lambda value, pattern, _: not isinstance(value, str) or bool(re.search(pattern, value)),
    "minimum": lambda value, least, _: isinstance(value, str) or value >= least,
    "maximum": lambda value, most, _: isinstance(value, str) or value <= most,
    "minProperties": lambda value, least, _: _size(value) >= least,
    "maxProperties": lambda value, most, _: _size(value) <= most,
}


@pytest.mark.parametrize("name", sorted(path.name for path in TEMPLATES.iterdir() if path.is_dir()))
def test_a_template_fits_the_schema(name: str) -> None:
    assert fits(read_yaml((TEMPLATES / name / "team.yaml").read_text(encoding="utf-8")).data, SCHEMA)


GOOD = [
    "workers: {ann: Reads.}",
    "tools: {a: calculator, b: {calculator: {}}, c: {dates: true}, d: {fetch: {allow: [example.com]}}}",
    'defaults: {steps: "${STEPS:-3}", settings: {temperature: "${WARMTH:-1}"}, timeout: "${TIME:-3s}"}',
    "budget: {usd: 0.5, tokens: 200k, calls: 3}",
    "timeout: 1h30m",
    "policy: {retry: {base: 1s}, refine: false, approve: true, limits: {max_tasks: 3}}",
    "supervisor: {combine: merge, hedge: true}",
    "workers: {ann: {rules: [{run_first: a}, {conditional: {tool: a, cases: {x: b}}}], output: {type: object}}}",
    "supervisor: {factory: {tools: [calculator], max_tools: 2}}",
    "memory: {}",
    "workers: {ann: {blocks: {a: write, b: {access: append, tainted: true}}, archives: {c: read}}}",
    "workers: {ann: {archives: [c]}}",
    "memory: {blocks: {a: x, b: {value: y, limit: 2k, trusted: true, share: append}}}",
    "memory: {file: m.db, archives: {a: x, b: {embed: words, add: texts, share: write}}}",
]
BAD = [
    "budgett: {}",
    "workers: [ann]",
    "workers: {ann: {rools: []}}",
    "workers: {ann: {concurrency: many}}",
    "defaults: {timeout: soon}",
    "defaults: {steps: 0}",
    "budget: {tokens: 200q}",
    "timeout: -3",
    "supervisor: {refine: 'yes'}",
    "supervisor: {combine: mix}",
    "tools: {a: {effect: sometimes, calculator: true}}",
    "memory: {block: {}}",
    "memory: {blocks: {a: {share: some}}}",
    "memory: {archives: {a: {limit: 3}}}",
    "workers: {ann: {blocks: {a: some}}}",
]


@pytest.mark.parametrize("text", GOOD)
def test_what_the_loader_takes_fits(tmp_path: Path, text: str) -> None:
    body = f"version: 1\n{text}\n"
    assert fits(read_yaml(body).data, SCHEMA)
    assert list(shaped(write(tmp_path, body))[1]) == []


@pytest.mark.parametrize("text", BAD)
def test_what_the_loader_refuses_does_not_fit(tmp_path: Path, text: str) -> None:
    body = f"version: 1\n{text}\n"
    assert not fits(read_yaml(body).data, SCHEMA)
    assert list(shaped(write(tmp_path, body))[1]) != []


@pytest.mark.parametrize("text", ["tools: {a: {}}", "tools: {a: {sql: x, files: y}}", "workers: {a: {rules: [{}]}}"])
def test_exactly_one_source_and_one_rule_are_asked_for(text: str) -> None:
    assert not fits(read_yaml(f"version: 1\n{text}\n").data, SCHEMA)


def test_nothing_of_our_own_names_shows() -> None:
    assert "Shape" not in repr(SCHEMA)
    assert SCHEMA["required"] == ["version"]
