"""Cases of an evaluation, a request and what is expected of it, and the files they are read from."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, cast

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, structs

from chargehand.agents.checks import LONGEST_PATTERN
from chargehand.config.source import NotYaml, read_bytes, read_yaml
from chargehand.engine.declared import describe_misfit
from chargehand.engine.json_schema import CHECKED_KEYWORDS, inner_schemas, schema_problem
from chargehand.errors import Invalid

Kind: TypeAlias = Literal["routing", "plan", "worker", "run", "verifier"]
KINDS: tuple[Kind, ...] = ("routing", "plan", "worker", "run", "verifier")
NO_WORKER = "out of scope"
"""The label of requests that are for no worker."""
JSON_LINES = (".jsonl", ".ndjson")
SUFFIXES = (*JSON_LINES, ".yaml", ".yml", ".json")

_Text: TypeAlias = Annotated[str, Meta(min_length=1)]
_Number: TypeAlias = Annotated[float, Meta(ge=-1e300, le=1e300)]
_Limit: TypeAlias = Annotated[float, Meta(ge=0, le=1e300)]
_Texts: TypeAlias = _Text | tuple[_Text, ...]


class CaseNumber(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A number that the answer must hold, with its tolerance."""

    value: _Number
    within: _Limit = 0.0
    percent: _Limit = 0.0


class Expect(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What an answer must be: all that is set here."""

    exact: str | None = None
    contains: _Texts = ()
    any_of: tuple[_Text, ...] = ()
    """At least one of these is in it."""
    excludes: _Texts = ()
    matches: Annotated[str, Meta(max_length=LONGEST_PATTERN)] = ""
    numbers: _Number | CaseNumber | tuple[_Number | CaseNumber, ...] = ()
    schema: dict[str, object] | None = None
    rubric: _Texts = ()
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
    unserved: int = 0
    """How many parts of the request without a task are allowed."""


class Case(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One request, or one task whose results are put before checks."""

    request: _Text
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
    max_gaps: Annotated[int, Meta(ge=0)] | None = None
    coverage: Annotated[float, Meta(ge=0, le=1)] = 0.0
    """The share of the plan that the answer must cover."""
    max_usd: _Limit | None = None
    max_seconds: _Limit | None = None
    source: str = ""
    """What the checks of a verifier case may compare with."""
    right: _Texts = ()
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
        return as_tuple(self.worker)


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


# --- checks of cases


_FIELDS_OF_ALL = frozenset(("request", "name", "kind", "answer"))
_FIELDS_OF_RUNS = frozenset(("expect", "workers", "ending", "gaps", "max_gaps", "coverage", "max_usd", "max_seconds"))
_FIELDS: dict[Kind, frozenset[str]] = {
    "routing": _FIELDS_OF_ALL | {"worker"},
    "plan": _FIELDS_OF_ALL | {"plan"},
    "run": _FIELDS_OF_ALL | _FIELDS_OF_RUNS,
    "worker": _FIELDS_OF_ALL | _FIELDS_OF_RUNS | {"worker"},
    "verifier": _FIELDS_OF_ALL | {"worker", "source", "right", "wrong", "checks"},
}
_SCHEMA_KEYS = CHECKED_KEYWORDS | {
    *("title", "description", "default", "examples", "$schema", "$id", "$anchor", "$comment", "deprecated"),
}
"""Keys of a schema that are checked, or say nothing of the answer."""


def check_case(written: object) -> Case:
    """The case that is written here; Invalid for one that would pass or fail whatever the team does."""
    try:
        case = msgspec.convert(written, Case)
    except msgspec.ValidationError as error:
        raise Invalid(f"this is not a case: {describe_misfit(error, Case, written)}") from error
    if problem := next(_problems(case, kind_of(case)), ""):
        raise Invalid(problem)
    return structs.replace(case, kind=kind_of(case))


def _problems(case: Case, kind: Kind) -> Iterator[str]:
    yield from _missing_fields(case, kind)
    for name in cast("dict[str, object]", msgspec.to_builtins(case)):
        if name not in _FIELDS[kind]:
            yield f"`{name}` is not read in a case of the kind {kind}; leave it out, or say which kind it is: kind: …"
    for name, text in case.wrong.items():
        if name == "right" or text in as_tuple(case.right):
            yield f"the wrong result {name!r} is called right, or is one of the right ones; write another"
    if case.expect is not None:
        yield from _grader_problems(case.expect)


def _missing_fields(case: Case, kind: Kind) -> Iterator[str]:
    if kind == "routing" and isinstance(case.worker, UnsetType):
        yield "a case of routing says which worker it is for: worker: NAME, or null for none"
    if kind == "worker" and len(case.labels) != 1:
        yield "a case of one worker names it: worker: NAME"
    if kind == "worker" and case.expect in (None, Expect()):
        yield "nothing is expected of the worker; write  expect:"
    if kind == "plan" and case.plan is None:
        yield "nothing is expected of the plan; write  plan: {workers: […]}"
    if kind == "verifier" and not case.right:
        yield "a case of a verifier has a result that is right: right: …"


def _grader_problems(expect: Expect) -> Iterator[str]:
    try:
        re.compile(expect.matches)
    except (re.error, OverflowError, RecursionError) as error:
        yield f"{expect.matches[:80]!r} is no regular expression: {error}"
    if expect.schema is not None:
        if problem := schema_problem(expect.schema):
            yield problem
        else:
            yield from _unchecked_keys(expect.schema)


def _unchecked_keys(schema: dict[str, Any]) -> Iterator[str]:
    """Parts of a schema that would go unchecked: a grader that passes everything is none."""
    for key in schema:
        if key not in _SCHEMA_KEYS:
            yield f"{key!r} of a schema is no keyword that is checked; leave it out, or grade by a function (python:)"
    for part in inner_schemas(schema):
        if isinstance(part, dict):  # true and false are schemas, too
            yield from _unchecked_keys(cast("dict[str, Any]", part))


def name_cases(cases: Sequence[Case]) -> tuple[Case, ...]:
    """Every case with a name of its own: comparisons go by it."""
    cases_by_name: dict[str, Case] = {}
    for case in cases:
        usual = case.name or " ".join(case.request.split())[:60]
        name = usual
        number = 1
        while name in cases_by_name:
            number += 1
            name = f"{usual} ({number})"
        cases_by_name[name] = structs.replace(case, name=name)
    return tuple(cases_by_name.values())


# --- files


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    """A dataset as it is written in YAML."""

    cases: Annotated[list[dict[str, object]], Meta(min_length=1)]
    name: str = ""
    kind: Kind | None = None
    gate: dict[str, float] = {}
    judge: str = ""


def read_dataset(file: Path) -> Dataset:
    """The cases of a file: JSON lines with one case each, or YAML with a list `cases`.

    Invalid names the file, the line and what is wrong with it.
    """
    if file.suffix.lower() not in SUFFIXES:
        raise Invalid(f"{file} is no dataset; its name ends with one of {', '.join(SUFFIXES)}")
    try:
        text = read_bytes(file, "a dataset").decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Invalid(f"{file} is not text in UTF-8 (byte {error.start}); save it as UTF-8") from error
    read_text = _read_json_lines if file.suffix.lower() in JSON_LINES else _read_yaml
    written, lines = read_text(file, text)
    cases: list[Case] = []
    for row, line in zip(written.cases, lines, strict=True):
        kind = {} if written.kind is None else {"kind": written.kind}
        try:
            cases.append(check_case({**kind, **row}))
        except Invalid as error:
            raise Invalid(f"{file}, line {line}: {error}") from error
    return Dataset(
        name=written.name or file.stem,
        cases=name_cases(cases),
        gate=written.gate,
        judge=written.judge,
        folder=str(file.parent),
    )


def _read_json_lines(file: Path, text: str) -> tuple[_File, list[int]]:
    rows: dict[int, dict[str, object]] = {}
    for number, line in enumerate(text.split("\n"), 1):  # other line breaks may stand inside a JSON text
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            rows[number] = msgspec.json.decode(line, type=dict[str, object])
        except (msgspec.DecodeError, RecursionError) as error:
            raise Invalid(f"{file}, line {number}: this is not JSON: {error}; write one case a line") from error
    if not rows:
        raise Invalid(f"{file} holds no cases; write at least one")
    return _File(list(rows.values())), list(rows)


def _read_yaml(file: Path, text: str) -> tuple[_File, list[int]]:
    try:
        document = read_yaml(text)
    except NotYaml as error:
        raise Invalid(f"{file}, line {error.line}: {error}") from error
    is_list = isinstance(document.data, list)
    data = {"cases": document.data} if is_list else document.data
    try:
        written = msgspec.convert(data, _File)
    except msgspec.ValidationError as error:
        hint = "begin with  cases:  and one  - request: …  each"
        raise Invalid(f"{file} is no dataset: {describe_misfit(error, _File, data)} ({hint})") from error
    prefix = () if is_list else ("cases",)
    return written, [document.lines.get((*prefix, index), 0) for index in range(len(written.cases))]


def find_datasets(team: Path) -> tuple[Path, ...]:
    """The datasets of a team: those in the folder `evals` beside its file."""
    folder = team.parent / "evals"
    datasets = sorted(file for file in folder.glob("*") if file.suffix.lower() in SUFFIXES)
    if not datasets:
        raise Invalid(f"{folder} holds no datasets; name one: chargehand eval FILE")
    return tuple(datasets)
