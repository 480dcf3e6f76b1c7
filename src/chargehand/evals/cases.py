"""Cases of an evaluation: a request and what is expected of it. How they are scored is not known here."""

import math
import re
from collections.abc import Iterator
from typing import Literal, TypeAlias, cast

from msgspec import UNSET, Struct, UnsetType

from chargehand.agents.acceptance import LONGEST_PATTERN
from chargehand.agents.shape import objection

Kind: TypeAlias = Literal["routing", "plan", "worker", "run", "verifier"]
KINDS: tuple[Kind, ...] = ("routing", "plan", "worker", "run", "verifier")
OUT_OF_SCOPE = frozenset(("", "none", "nobody", "out_of_scope", "out of scope"))
"""Other ways to write that a request is for no worker; the usual one is null."""


class Number(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A number that the answer must hold, with its tolerance."""

    value: float
    within: float = 0.0
    percent: float = 0.0


class Expect(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What an answer must be: all that is set here."""

    exact: str | None = None
    contains: str | tuple[str, ...] = ()
    any_of: tuple[str, ...] = ()
    """At least one of these is in it."""
    excludes: str | tuple[str, ...] = ()
    matches: str = ""
    numbers: float | Number | tuple[float | Number, ...] = ()
    schema: dict[str, object] | None = None
    rubric: str | tuple[str, ...] = ()
    """Judged by a model."""
    python: str = ""
    """A function beside the cases (`graders.py:name`): it gets the answer, and returns True or what is wrong."""


class PlanShape(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a plan must be."""

    workers: tuple[str, ...] = ()
    edges: tuple[tuple[str, str], ...] = ()
    """Pairs of workers of which the second works from the first's result."""
    independent: tuple[tuple[str, str], ...] = ()
    """Pairs of workers of which neither waits for the other."""
    width: int = 0
    """How many tasks can at least run in parallel."""
    max_tasks: int = 0
    vague: int = 0
    """How many vague tasks are allowed."""
    needless: int = 0
    """How many inputs that no task reads are allowed."""
    unserved: int = 0
    """How many parts of the request without a task are allowed."""


class Case(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One request, or one task whose results are put before checks."""

    request: str
    name: str = ""
    kind: Kind | None = None
    worker: str | tuple[str, ...] | UnsetType | None = UNSET
    """Without `expect`: the worker it is for (null: none). With `expect`: the worker that is asked."""
    expect: Expect | None = None
    plan: PlanShape | None = None
    workers: tuple[str, ...] = ()
    """Workers that must have worked on the run."""
    ending: Literal["complete", "partial", "failed", "needs_input"] | None = None
    gaps: str | tuple[str, ...] = ()
    """Texts that the gaps must hold."""
    max_gaps: int | None = None
    coverage: float = 0.0
    """The share of the plan that the answer must cover."""
    max_usd: float | None = None
    max_seconds: float | None = None
    source: str = ""
    """What the checks of a verifier case may compare with."""
    right: str | tuple[str, ...] = ()
    """Results that a verifier must accept."""
    wrong: dict[str, str] = {}
    """Results that a verifier must refuse, by what is wrong with them."""
    checks: tuple[str, ...] = ()
    """Names of the checks to try."""
    answer: str = ""
    """Kept for people to compare with; not graded."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The workers it is for; empty where it is out of scope."""
        if isinstance(self.worker, UnsetType) or self.worker is None:
            return ()
        return tuple(name for name in as_tuple(self.worker) if name.strip().casefold() not in OUT_OF_SCOPE)


class Dataset(Struct, frozen=True):
    """Cases that are scored together."""

    name: str
    cases: tuple[Case, ...]
    gate: dict[str, float] = {}
    """What measures over these cases must reach."""
    judge: str = ""
    """The model that judges rubrics."""
    folder: str = ""
    """Where grader functions are looked for."""


def as_tuple(value: str | tuple[str, ...]) -> tuple[str, ...]:
    """What may be written as one text or as a list."""
    return (value,) if isinstance(value, str) else value


def kind_of(case: Case) -> Kind:
    """What a case is about, by what it holds."""
    if case.kind is not None:
        return case.kind
    if case.plan is not None:
        return "plan"
    if case.right or case.wrong:
        return "verifier"
    if isinstance(case.worker, UnsetType):
        return "run"
    return "routing" if case.expect is None else "worker"


def wanted_numbers(expect: Expect) -> tuple[Number, ...]:
    written = expect.numbers if isinstance(expect.numbers, tuple) else (expect.numbers,)
    return tuple(number if isinstance(number, Number) else Number(number) for number in written)


# --- what is wrong with a case as it is written


_FIELDS_OF_ALL = frozenset(("request", "name", "kind", "answer"))
_FIELDS_OF_RUNS = frozenset(("expect", "workers", "ending", "gaps", "max_gaps", "coverage", "max_usd", "max_seconds"))
_FIELDS: dict[Kind, frozenset[str]] = {
    "routing": _FIELDS_OF_ALL | {"worker"},
    "plan": _FIELDS_OF_ALL | {"plan"},
    "run": _FIELDS_OF_ALL | _FIELDS_OF_RUNS,
    "worker": _FIELDS_OF_ALL | _FIELDS_OF_RUNS | {"worker"},
    "verifier": _FIELDS_OF_ALL | {"worker", "source", "right", "wrong", "checks"},
}
_SCHEMA_KEYS_CHECKED = {
    *("$ref", "$defs", "definitions", "anyOf", "oneOf", "enum", "const", "type", "properties", "required"),
    *("additionalProperties", "items", "minItems", "maxItems", "minLength", "maxLength", "minimum", "maximum"),
}
_SCHEMA_KEYS_IGNORED = {"title", "description", "default", "examples", "$schema", "$id", "$comment", "deprecated"}


def find_problem(case: Case) -> str:
    """Why a case would pass or fail whatever the team does; empty where it is fine."""
    return next(_problems(case), "")


def _problems(case: Case) -> Iterator[str]:
    kind = kind_of(case)
    yield from _missing_fields(case, kind)
    defaults = Case("")
    for name in Case.__struct_fields__:
        if getattr(case, name) != getattr(defaults, name) and name not in _FIELDS[kind]:
            yield f"`{name}` is not read in a case of the kind {kind}; leave it out, or say which kind it is: kind: …"
    yield from _out_of_bounds(case)
    if case.expect is not None:
        yield from _useless_graders(case.expect)
    if "right" in case.wrong:
        yield "a result that is wrong cannot be called 'right'; call it by what is wrong with it"
    for name, text in case.wrong.items():
        if text in as_tuple(case.right):
            yield f"the wrong result {name!r} is one of the right ones; write another"


def _missing_fields(case: Case, kind: Kind) -> Iterator[str]:
    if kind == "routing" and isinstance(case.worker, UnsetType):
        yield "a case of routing says which worker it is for: worker: NAME, or null for none"
    if kind == "worker" and len(case.labels) != 1:
        yield "a case of one worker names it: worker: NAME"
    if kind == "worker" and case.expect in (None, Expect()):
        yield "nothing is expected of the worker; write  expect:"
    if kind == "plan" and case.plan is None:
        yield "nothing is expected of the plan; write  plan: {workers: […]}"
    if kind == "verifier" and not all(as_tuple(case.right) or ("",)):
        yield "a case of a verifier has a result that is right: right: …"


def _out_of_bounds(case: Case) -> Iterator[str]:
    if not 0 <= case.coverage <= 1:
        yield f"`coverage` is a share from 0 to 1, not {case.coverage:g}"
    limits = {"max_gaps": case.max_gaps, "max_usd": case.max_usd, "max_seconds": case.max_seconds}
    for name, limit in limits.items():
        if limit is not None and not 0 <= limit < math.inf:
            yield f"`{name}` cannot be {limit:g}; write 0 or more"
    for number in () if case.expect is None else wanted_numbers(case.expect):
        tolerances = (number.within, number.percent)
        if not math.isfinite(number.value) or not all(0 <= tolerance < math.inf for tolerance in tolerances):
            yield f"no number can be {number.value:g} within {number.within:g} or {number.percent:g} %"


def _useless_graders(expect: Expect) -> Iterator[str]:
    """Graders that every answer passes, and graders that cannot work."""
    texts = {
        "contains": as_tuple(expect.contains),
        "any_of": expect.any_of,
        "excludes": as_tuple(expect.excludes),
        "rubric": as_tuple(expect.rubric),
    }
    for name, values in texts.items():
        if any(not text.strip() for text in values):
            yield f"`{name}` has an empty text, which says nothing; leave it out"
    if expect.matches:
        yield from _pattern_problems(expect.matches)
    if expect.schema is not None:
        if problem := objection(expect.schema):
            yield problem
        yield from _schema_problems(expect.schema, expect.schema)


def _pattern_problems(pattern: str) -> Iterator[str]:
    if len(pattern) > LONGEST_PATTERN:
        yield f"the pattern has {len(pattern)} characters; at most {LONGEST_PATTERN} are allowed"
        return
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        yield f"{pattern[:80]!r} is no regular expression: {error}"


def _schema_problems(schema: object, root: dict[str, object]) -> Iterator[str]:
    """Parts of a schema that would go unchecked: a grader that passes everything is none."""
    if not isinstance(schema, dict):
        return
    table = cast("dict[str, object]", schema)
    for key in table:
        if key not in _SCHEMA_KEYS_CHECKED and key not in _SCHEMA_KEYS_IGNORED:
            yield f"{key!r} of a schema is not checked here; leave it out, or grade by a function (python:)"
    if "$ref" in table and not _resolves(table["$ref"], root):
        yield f"the schema refers to {table['$ref']!r}, which is not in it"
    for part in _subschemas(table):
        yield from _schema_problems(part, root)


def _subschemas(table: dict[str, object]) -> Iterator[object]:
    yield table.get("items")
    yield table.get("additionalProperties")
    for key in ("properties", "$defs", "definitions"):
        named = table.get(key)
        if isinstance(named, dict):
            yield from cast("dict[str, object]", named).values()
    for key in ("anyOf", "oneOf"):
        options = table.get(key)
        if isinstance(options, list):
            yield from cast("list[object]", options)


def _resolves(reference: object, root: object) -> bool:
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return False
    target = root
    for part in reference[2:].split("/"):
        target = cast("dict[str, object]", target).get(part) if isinstance(target, dict) else None
    return isinstance(target, dict)
