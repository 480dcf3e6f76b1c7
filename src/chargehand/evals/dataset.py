"""Datasets from files: JSON lines, one case each, or YAML with a list `cases`. What cases mean is not known here."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import msgspec
from msgspec import structs

from chargehand.config.source import read_bytes
from chargehand.config.yaml import NotYaml, read
from chargehand.errors import Invalid
from chargehand.evals.cases import KINDS, Case, Dataset, Kind, kind_of
from chargehand.evals.fitness import unfit
from chargehand.evals.gates import MEASURES

LINES, TABLES = (".jsonl", ".ndjson"), (".yaml", ".yml", ".json")
_WHAT = "a dataset"
_KEYS = ("name", "kind", "gate", "judge", "cases")


def read_dataset(file: Path) -> Dataset:
    """The cases of a file; Invalid names the file, the case and what is wrong with it."""
    try:
        text = read_bytes(file, _WHAT).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Invalid(f"{file} is not text in UTF-8 (byte {error.start}); save it as UTF-8") from error
    if file.suffix.lower() in LINES:
        head: Mapping[str, object] = {}
        rows = _lines(file, text)
    elif file.suffix.lower() in TABLES:
        head, rows = _table(file, text)
    else:
        raise Invalid(f"{file} is no dataset; its name ends with one of {', '.join((*LINES, *TABLES))}")
    if not rows:
        raise Invalid(f"{file} holds no cases; write at least one")
    cases = named([_case(file, where, row, head.get("kind")) for where, row in rows])
    name, judge = head.get("name") or file.stem, head.get("judge", "")
    if not isinstance(name, str) or not isinstance(judge, str):
        raise Invalid(f"{file}: `name` and `judge` are texts; write them in quotation marks")
    return Dataset(name, cases, _gate(file, head.get("gate", {})), judge, str(file.parent))


def find_datasets(team: Path) -> tuple[Path, ...]:
    """The datasets of a team: those in the folder `evals` beside its file."""
    folder = team.parent / "evals"
    found = (
        sorted(one for one in folder.glob("*") if one.suffix.lower() in (*LINES, *TABLES)) if folder.is_dir() else []
    )
    if not found:
        raise Invalid(
            f"{folder} holds no datasets; name one (chargehand eval FILE), or save a case: chargehand eval save"
        )
    return tuple(found)


def only(datasets: Sequence[Dataset], kinds: Sequence[str]) -> list[Dataset]:
    """The cases of these kinds, all where none is named; Invalid where there are no such cases."""
    if strange := next((one for one in kinds if one not in KINDS), None):
        raise Invalid(f"{strange!r} is no kind of cases; there are {', '.join(KINDS)}")
    if not kinds:
        return list(datasets)
    chosen = [
        structs.replace(one, cases=tuple(case for case in one.cases if kind_of(case) in kinds)) for one in datasets
    ]
    found = [structs.replace(one, gate=_gate_left(one)) for one in chosen if one.cases]
    if not found:
        there = {kind_of(case) for one in datasets for case in one.cases}
        named = ", ".join(one for one in KINDS if one in there)
        raise Invalid(f"there are no cases of {' or '.join(kinds)} in these datasets; there are some of {named}")
    return found


def _gate_left(dataset: Dataset) -> dict[str, float]:
    """What a dataset's own gate says of the cases it has left."""
    kinds: set[Kind] = {kind_of(case) for case in dataset.cases}
    known = {name for kind in kinds for one in MEASURES[kind] for name in (one, f"{kind}.{one}")}
    lost = {name for kind in KINDS for one in MEASURES[kind] for name in (one, f"{kind}.{one}")} - known
    return {name: value for name, value in dataset.gate.items() if name not in lost}


def _lines(file: Path, text: str) -> list[tuple[str, object]]:
    rows: list[tuple[str, object]] = []
    for number, line in enumerate(text.split("\n"), 1):  # only there do lines of JSON end, whatever a text holds
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            rows.append((f"line {number}", msgspec.json.decode(line)))
        except (msgspec.DecodeError, RecursionError) as error:
            raise Invalid(f"{file}, line {number}: this is not JSON: {error}; write one case a line") from error
    return rows


def _table(file: Path, text: str) -> tuple[Mapping[str, object], list[tuple[str, object]]]:
    try:
        document = read(text)
    except NotYaml as error:
        raise Invalid(f"{file}, line {error.line}: {error}") from error
    data = document.data
    head = cast("dict[str, object]", data) if isinstance(data, dict) else {"cases": data}
    if strange := next((key for key in head if key not in _KEYS), None):
        raise Invalid(f"{file}: {strange!r} is not understood; a dataset has {', '.join(_KEYS)}")
    cases = head.get("cases")
    if not isinstance(cases, list):
        raise Invalid(f"{file} holds no list of cases; begin with  cases:  and one  - request: …  each")
    whole = ("cases",) if isinstance(data, dict) else ()
    listed = cast("list[object]", cases)
    return head, [(f"line {document.lines.get((*whole, at), 0)}", row) for at, row in enumerate(listed)]


def _case(file: Path, where: str, row: object, kind: object) -> Case:
    if kind is not None and kind not in KINDS:
        raise Invalid(f"{file}: {kind!r} is no kind of cases; there are {', '.join(KINDS)}")
    try:
        case = msgspec.convert(row, Case)
    except msgspec.ValidationError as error:
        raise Invalid(f"{file}, {where}: this is not a case: {error}") from error
    if not case.request.strip():
        raise Invalid(f"{file}, {where}: the request is empty; say what is asked")
    if case.kind is None and kind is not None:
        case = msgspec.convert({**cast("dict[str, object]", row), "kind": kind}, Case)
    if problem := unfit(case):
        raise Invalid(f"{file}, {where}: {problem}")
    return structs.replace(case, kind=kind_of(case))


def named(cases: Sequence[Case]) -> tuple[Case, ...]:
    """Every case with a name of its own: a comparison goes by it."""
    found: dict[str, Case] = {}
    for case in cases:
        usual = case.name or " ".join(case.request.split())[:60]
        name = next(one for number in range(1, len(cases) + 1) if (one := _numbered(usual, number)) not in found)
        found[name] = structs.replace(case, name=name)
    return tuple(found.values())


def _numbered(name: str, number: int) -> str:
    return name if number == 1 else f"{name} ({number})"


def _gate(file: Path, written: object) -> dict[str, float]:
    try:
        return msgspec.convert(written, dict[str, float])
    except msgspec.ValidationError as error:
        raise Invalid(f"{file}: the gate is not understood: {error}; write it like  gate: {{accuracy: 0.9}}") from error
