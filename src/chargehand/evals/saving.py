"""Cases from runs: what a run did becomes a case, which is appended to a dataset."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from chargehand.agents.inputs import result_text
from chargehand.agents.result import fallback_answer, planned
from chargehand.engine.events import Entry
from chargehand.engine.fold import replay
from chargehand.engine.value import decode_value
from chargehand.errors import Invalid, Refused
from chargehand.evals.cases import JSON_LINES, YAML, Case, Expect, parse_dataset, read_dataset_text
from chargehand.evals.graders import written_numbers
from chargehand.models.request_facts import Given

_MAX_NUMBERS = 8
_MAX_ANSWER_CHARS = 4000
_LIST_ITEM = re.compile(r"^( *)- (?:request|name|kind):", re.MULTILINE)


def case_of_run(run: str, entries: Sequence[Entry]) -> Case:
    """The case that a run makes: the same again would pass. Refused while it is under way, and for a message."""
    state = replay(entries)
    plan = state.requested.plan
    if plan is not None and plan.combine == "none":  # the team would plan it anew, and may choose other workers
        raise Refused(f"run {run!r} asked workers directly, and a case asks the whole team; ask it: chargehand run")
    workers = tuple(dict.fromkeys(name for task in planned(state).tasks if (name := task.worker)))
    if state.ended is None and state.input is not None and state.input.what == "tool":
        # it waits for approval of a call, and an evaluation goes no further either
        return Case(state.requested.goal, name=run, expect=Expect(), workers=workers, ending="needs_input")
    ended = state.ended
    if ended is None:
        raise Refused(f"run {run!r} has not come to an end; go on with it first: chargehand resume {run}")
    if ended.ending == "cancelled":
        raise Refused(f"run {run!r} was cancelled, so it does not show how it ends; ask again: chargehand run")
    value = fallback_answer(state) if state.answer is None else decode_value(state.answer)
    text = result_text(Given(task="", instruction="", worker="", value=value))
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

    The rest of the file stays as it is, comments and all. The new text is read before it replaces the old one.
    """
    if file.suffix not in (*JSON_LINES, *YAML):
        raise Invalid(f"{file} is no dataset; its name ends with one of {', '.join((*JSON_LINES, *YAML))}")
    text = read_dataset_text(file) if file.exists() else ""
    before = parse_dataset(file, text).cases if _has_content(text) else ()
    if any(existing.name == case.name for existing in before):
        raise Refused(f"{file} has a case {case.name!r} already; change it there, or name the new one with --name")
    draft = file.with_name(f".{file.stem}.{os.getpid()}{file.suffix}")
    try:
        text = text if not text or text.endswith("\n") else f"{text}\n"
        text += _as_yaml(case, text) if file.suffix in YAML else f"{msgspec.json.encode(case).decode()}\n"
        _check_appended(file, text, before)
        file.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(text, encoding="utf-8", newline="")
        draft.replace(file)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise Invalid(f"{file} cannot be written: {error.strerror}; name another file with --to") from error
    return len(before) + 1


def _has_content(text: str) -> bool:
    """Whether there is more in a dataset than comments and blank lines."""
    return any(line.strip() and not line.lstrip().startswith("#") for line in text.splitlines())


def _check_appended(file: Path, text: str, before: Sequence[Case]) -> None:
    try:
        cases = parse_dataset(file, text).cases
    except Invalid:
        cases = ()
    if cases[:-1] != tuple(before):
        raise Invalid(f"{file} does not end with its list of cases; move `cases` to the end, then save again")


def _as_yaml(case: Case, before: str) -> str:
    indents = _LIST_ITEM.findall(before)
    indent = indents[-1] if indents else "  "
    lines = msgspec.yaml.encode([case]).decode().splitlines()
    body = "".join(f"{indent}{line}\n" if line.strip() else "\n" for line in lines)
    return body if _has_content(before) else f"cases:\n{body}"
