"""Datasets in files: JSON lines with one case each, or YAML with a list `cases`. Cases are read and appended here."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import msgspec
from msgspec import structs

from chargehand.agents.exhibit_text import shown
from chargehand.agents.levels import end_of
from chargehand.config.source import read_bytes
from chargehand.config.yaml import NotYaml, read
from chargehand.core.fold import replay
from chargehand.errors import Invalid, Refused
from chargehand.evals.cases import KINDS, Case, Dataset, Expect, find_problem, kind_of
from chargehand.evals.gates import gate_of_kinds
from chargehand.evals.graders import written_numbers
from chargehand.models.subject import Given
from chargehand.runtime.result import plain_answer, planned
from chargehand.terms.events import Entry
from chargehand.terms.value import decode_value

JSON_LINES = (".jsonl", ".ndjson")
YAML = (".yaml", ".yml")
SUFFIXES = (*JSON_LINES, *YAML, ".json")
_KEYS = ("name", "kind", "gate", "judge", "cases")
_MAX_NUMBERS = 8
_MAX_ANSWER_CHARS = 4000
_LIST_ITEM = re.compile(r"^( *)- (?:request|name|kind):", re.MULTILINE)


def read_dataset(file: Path) -> Dataset:
    """The cases of a file; Invalid names the file, the case and what is wrong with it."""
    try:
        text = read_bytes(file, "a dataset").decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Invalid(f"{file} is not text in UTF-8 (byte {error.start}); save it as UTF-8") from error
    suffix = file.suffix.lower()
    if suffix not in SUFFIXES:
        raise Invalid(f"{file} is no dataset; its name ends with one of {', '.join(SUFFIXES)}")
    head: Mapping[str, object] = {}
    if suffix in JSON_LINES:
        rows = _read_json_lines(file, text)
    else:
        head, rows = _read_table(file, text)
    if not rows:
        raise Invalid(f"{file} holds no cases; write at least one")
    cases = name_cases([_read_case(file, where, row, head.get("kind")) for where, row in rows])
    name = head.get("name") or file.stem
    judge = head.get("judge", "")
    if not isinstance(name, str) or not isinstance(judge, str):
        raise Invalid(f"{file}: `name` and `judge` are texts; write them in quotation marks")
    gate = _read_gate(file, head.get("gate", {}))
    return Dataset(name=name, cases=cases, gate=gate, judge=judge, folder=str(file.parent))


def find_datasets(team: Path) -> tuple[Path, ...]:
    """The datasets of a team: those in the folder `evals` beside its file."""
    folder = team.parent / "evals"
    files = folder.glob("*") if folder.is_dir() else ()
    datasets = sorted(file for file in files if file.suffix.lower() in SUFFIXES)
    if not datasets:
        raise Invalid(
            f"{folder} holds no datasets; name one (chargehand eval FILE), or save a case: chargehand eval save"
        )
    return tuple(datasets)


def select_kinds(datasets: Sequence[Dataset], kinds: Sequence[str]) -> list[Dataset]:
    """The cases of these kinds, all where none is named; Invalid where there are no such cases."""
    if unknown := next((kind for kind in kinds if kind not in KINDS), None):
        raise Invalid(f"{unknown!r} is no kind of cases; there are {', '.join(KINDS)}")
    if not kinds:
        return list(datasets)
    selected: list[Dataset] = []
    for dataset in datasets:
        cases = tuple(case for case in dataset.cases if kind_of(case) in kinds)
        if cases:
            gate = gate_of_kinds(dataset.gate, {kind_of(case) for case in cases})
            selected.append(structs.replace(dataset, cases=cases, gate=gate))
    if not selected:
        existing = {kind_of(case) for dataset in datasets for case in dataset.cases}
        listed = ", ".join(kind for kind in KINDS if kind in existing)
        raise Invalid(f"there are no cases of {' or '.join(kinds)} in these datasets; there are some of {listed}")
    return selected


def name_cases(cases: Sequence[Case]) -> tuple[Case, ...]:
    """Every case with a name of its own: comparisons go by it."""
    named: dict[str, Case] = {}
    for case in cases:
        usual = case.name or " ".join(case.request.split())[:60]
        name = usual
        number = 1
        while name in named:
            number += 1
            name = f"{usual} ({number})"
        named[name] = structs.replace(case, name=name)
    return tuple(named.values())


def _read_json_lines(file: Path, text: str) -> list[tuple[str, object]]:
    rows: list[tuple[str, object]] = []
    for number, line in enumerate(text.split("\n"), 1):  # other line breaks may stand inside a JSON text
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            rows.append((f"line {number}", msgspec.json.decode(line)))
        except (msgspec.DecodeError, RecursionError) as error:
            raise Invalid(f"{file}, line {number}: this is not JSON: {error}; write one case a line") from error
    return rows


def _read_table(file: Path, text: str) -> tuple[Mapping[str, object], list[tuple[str, object]]]:
    try:
        document = read(text)
    except NotYaml as error:
        raise Invalid(f"{file}, line {error.line}: {error}") from error
    data = document.data
    head = cast("dict[str, object]", data) if isinstance(data, dict) else {"cases": data}
    if unknown := next((key for key in head if key not in _KEYS), None):
        raise Invalid(f"{file}: {unknown!r} is not understood; a dataset has {', '.join(_KEYS)}")
    cases = head.get("cases")
    if not isinstance(cases, list):
        raise Invalid(f"{file} holds no list of cases; begin with  cases:  and one  - request: …  each")
    prefix = ("cases",) if isinstance(data, dict) else ()
    rows = enumerate(cast("list[object]", cases))
    return head, [(f"line {document.lines.get((*prefix, index), 0)}", row) for index, row in rows]


def _read_case(file: Path, where: str, row: object, kind: object) -> Case:
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
    if problem := find_problem(case):
        raise Invalid(f"{file}, {where}: {problem}")
    return structs.replace(case, kind=kind_of(case))


def _read_gate(file: Path, written: object) -> dict[str, float]:
    try:
        return msgspec.convert(written, dict[str, float])
    except msgspec.ValidationError as error:
        raise Invalid(f"{file}: the gate is not understood: {error}; write it like  gate: {{accuracy: 0.9}}") from error


# --- from runs to cases


def case_of_run(run: str, entries: Sequence[Entry]) -> Case:
    """The case that a run makes: the same again would pass. Refused while it is under way, and for a message."""
    state = replay(entries)
    given = state.requested.plan
    if given is not None and given.combine == "none":  # the team would plan the request, and may choose other workers
        raise Refused(f"run {run!r} asked workers directly, and a case asks the whole team; ask it: chargehand run")
    workers = tuple(dict.fromkeys(name for task in planned(state).tasks if (name := task.worker)))
    if state.ended is None and state.input is not None and state.input.what == "tool":
        # it waits for approval of a call, and an evaluation goes no further either
        return Case(state.requested.goal, name=run, expect=Expect(), workers=workers, ending="needs_input")
    ended = end_of(state)
    if ended is None:
        raise Refused(f"run {run!r} has not come to an end; go on with it first: chargehand resume {run}")
    if ended.ending == "cancelled":
        raise Refused(f"run {run!r} was cancelled, so it does not show how it ends; ask again: chargehand run")
    value = plain_answer(entries) if state.answer is None else decode_value(state.answer)
    text = shown(Given(task="", instruction="", worker="", value=value))
    return Case(
        state.requested.goal,
        name=run,
        expect=Expect(numbers=written_numbers(text)[:_MAX_NUMBERS]),
        workers=workers,
        ending=ended.ending,
        max_gaps=len(ended.gaps),
        answer="\n".join(line.rstrip() for line in text[:_MAX_ANSWER_CHARS].splitlines()),
    )


def append_case(case: Case, file: Path) -> int:
    """Add a case to a dataset, which is made where it is missing; how many it has then.

    The rest of the file stays as it is, comments and all. The new file is read before it replaces the old one.
    """
    if file.suffix not in (*JSON_LINES, *YAML):
        raise Invalid(f"{file} is no dataset; its name ends with one of {', '.join((*JSON_LINES, *YAML))}")
    if file.exists() and not file.is_file():
        raise Invalid(f"{file} is no regular file; name a dataset with --to")
    text_before, cases_before = _read_existing(file)
    if any(existing.name == case.name for existing in cases_before):
        raise Refused(f"{file} has a case {case.name!r} already; change it there, or name the new one with --name")
    start = text_before if not text_before or text_before.endswith("\n") else f"{text_before}\n"
    added = _as_yaml(case, start) if file.suffix in YAML else f"{msgspec.json.encode(case).decode()}\n"
    draft = file.with_name(f".{file.stem}.{os.getpid()}{file.suffix}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(start + added, encoding="utf-8", newline="")
        cases = _read_draft(draft)
        if cases[: len(cases_before)] != cases_before or len(cases) != len(cases_before) + 1:
            raise Invalid(f"{file} does not end with its list of cases; move `cases` to the end, then save again")
        draft.replace(file)
    except OSError as error:
        raise Invalid(f"{file} cannot be written: {error.strerror}; name another file with --to") from error
    finally:
        draft.unlink(missing_ok=True)
    return len(cases)


def _read_existing(file: Path) -> tuple[str, tuple[Case, ...]]:
    """The text of a file to the letter, and its cases; nothing where there is no file."""
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        return "", ()
    except OSError as error:
        raise Invalid(f"{file} cannot be read: {error.strerror}; name another file with --to") from error
    except UnicodeDecodeError:
        text = "?"  # reading it as a dataset says what is wrong
    return text, (read_dataset(file).cases if text.strip() else ())


def _read_draft(draft: Path) -> tuple[Case, ...]:
    try:
        return read_dataset(draft).cases
    except Invalid:
        return ()


def _as_yaml(case: Case, before: str) -> str:
    import yaml  # noqa: PLC0415 - only saving a case writes YAML

    class BlockDumper(yaml.SafeDumper):
        """Writes texts of several lines as blocks."""

    def represent_text(_dumper: yaml.SafeDumper, text: str) -> yaml.Node:
        return yaml.ScalarNode("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)

    BlockDumper.add_representer(str, represent_text)
    data = [msgspec.to_builtins(case)]
    text = yaml.dump(data, Dumper=BlockDumper, sort_keys=False, allow_unicode=True, width=110)
    indents = _LIST_ITEM.findall(before)
    indent = indents[-1] if indents else "  "
    body = "".join(f"{indent}{line}\n" if line.strip() else "\n" for line in text.splitlines())
    return body if before.strip() else f"cases:\n{body}"
