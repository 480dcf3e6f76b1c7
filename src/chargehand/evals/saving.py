"""A case from a run: what was asked, who worked, how it ended, and the figures of its answer. People put it right."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from chargehand.agents.exhibit_text import shown
from chargehand.agents.instances import meant
from chargehand.agents.levels import end_of
from chargehand.core.fold import replay
from chargehand.errors import Invalid, Refused
from chargehand.evals.cases import Case, Expect, as_data
from chargehand.evals.dataset import LINES, TABLES, read_dataset
from chargehand.evals.figures import told
from chargehand.models.subject import Given
from chargehand.runtime.plain_answer import plain_answer
from chargehand.runtime.result import planned
from chargehand.terms.events import Entry
from chargehand.terms.value import decode_value

_FIGURES = 8
_ITEM = re.compile(r"^( *)- (?:request|name|kind):", re.MULTILINE)
_ANSWER = 4000


def case_of(run: str, entries: Sequence[Entry]) -> Case:
    """The case that a run makes: the same again would pass. Refused while it is under way, and for a message."""
    state = replay(entries)
    given = state.requested.plan
    if given is not None and given.combine == "none":  # the team would plan the request, and whoever was asked need not
        raise Refused(f"run {run!r} asked workers directly, and a case asks the whole team; ask it: chargehand run")
    workers = tuple(dict.fromkeys(name for task in planned(state).tasks if (name := meant(task))))
    if state.ended is None and state.input is not None and state.input.what == "tool":
        # it came as far as to ask for leave, and an evaluation does no more either
        return Case(state.requested.goal, name=run, expect=Expect(), workers=workers, ending="needs_input")
    ended = end_of(state)
    if ended is None:
        raise Refused(f"run {run!r} has not come to an end; go on with it first: chargehand resume {run}")
    if ended.ending == "cancelled":
        raise Refused(f"run {run!r} was cancelled, so it does not show how it ends; ask again: chargehand run")
    value = plain_answer(entries) if state.answer is None else decode_value(state.answer)
    text = shown(Given("", "", "", value))
    return Case(
        state.requested.goal,
        name=run,
        expect=Expect(numbers=told(text)[:_FIGURES]),
        workers=workers,
        ending=ended.ending,
        most_gaps=len(ended.gaps),
        answer="\n".join(line.rstrip() for line in text[:_ANSWER].splitlines()),
    )


def append(case: Case, file: Path) -> int:
    """Add a case to a dataset, which is made where it is missing; how many it has then.

    What stands there stays as it is, comments and all. The file is read again before it is kept.
    """
    if file.suffix not in (*LINES, *TABLES[:2]):
        raise Invalid(f"{file} is no dataset; its name ends with one of {', '.join((*LINES, *TABLES[:2]))}")
    if file.exists() and not file.is_file():
        raise Invalid(f"{file} is no regular file; name a dataset with --to")
    known, before = _there(file)
    if any(one.name == case.name for one in known):
        raise Refused(f"{file} has a case {case.name!r} already; change it there, or name the new one with --name")
    whole = _lines(case, before) if file.suffix in LINES else _yaml(case, before)
    draft = file.with_name(f".{file.stem}.{os.getpid()}{file.suffix}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(whole, encoding="utf-8", newline="")
        now = _read_again(draft)
        if now[: len(known)] != known or len(now) != len(known) + 1:
            raise Invalid(f"{file} does not end with its list of cases; move `cases` to the end, then save again")
        draft.replace(file)
    except OSError as error:
        raise Invalid(f"{file} cannot be written: {error.strerror}; name another file with --to") from error
    finally:
        draft.unlink(missing_ok=True)
    return len(now)


def _there(file: Path) -> tuple[tuple[Case, ...], str]:
    """The cases of a file, and its text to the letter."""
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        return (), ""
    except OSError as error:
        raise Invalid(f"{file} cannot be read: {error.strerror}; name another file with --to") from error
    except UnicodeDecodeError:
        text = "?"  # who reads it as a dataset says what is wrong
    return (read_dataset(file).cases if text.strip() else ()), text


def _read_again(draft: Path) -> tuple[Case, ...]:
    """What a file would hold; nothing where a case at its end is not read as one."""
    try:
        return read_dataset(draft).cases
    except Invalid:
        return ()


def _lines(case: Case, before: str) -> str:
    start = before if not before or before.endswith("\n") else f"{before}\n"
    return f"{start}{msgspec.json.encode(case).decode()}\n"


def _yaml(case: Case, before: str) -> str:
    import yaml  # noqa: PLC0415 - only who saves a case writes YAML

    class Plain(yaml.SafeDumper):
        """Long texts as they are read, line by line."""

    def lines(_dumper: yaml.SafeDumper, text: str) -> yaml.Node:
        return yaml.ScalarNode("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)

    Plain.add_representer(str, lines)
    text = yaml.dump([as_data(case)], Dumper=Plain, sort_keys=False, allow_unicode=True, width=110)
    listed = _ITEM.findall(before)
    room = listed[-1] if listed else "  "
    body = "".join(f"{room}{line}\n" if line.strip() else "\n" for line in text.splitlines())
    start = before if before.strip() else "cases:\n"
    return f"{start if start.endswith(chr(10)) else start + chr(10)}{body}"
