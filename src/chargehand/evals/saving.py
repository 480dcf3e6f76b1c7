"""A case from a run: what was asked, who worked, how it ended, and the figures of its answer. People put it right."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from chargehand.agents.exhibit_text import shown
from chargehand.agents.instances import meant
from chargehand.agents.quantities import quantities
from chargehand.core.fold import replay
from chargehand.errors import Invalid, Refused
from chargehand.evals.cases import Case, Expect, as_data
from chargehand.evals.dataset import LINES, TABLES, read_dataset
from chargehand.evals.graders import stated
from chargehand.models.subject import Given
from chargehand.runtime.plain_answer import plain_answer
from chargehand.runtime.result import planned
from chargehand.terms.events import Entry
from chargehand.terms.value import decode_value

_FIGURES = 8
_ANSWER = 4000


def case_of(run: str, entries: Sequence[Entry]) -> Case:
    """The case that a run makes: the same again would pass. Refused while it is under way."""
    state = replay(entries)
    if state.ended is None or state.ended.ending == "cancelled":
        raise Refused(f"run {run!r} has not come to an end; go on with it first: chargehand resume {run}")
    value = plain_answer(entries) if state.answer is None else decode_value(state.answer)
    text = shown(Given("", "", "", value))
    figures = dict.fromkeys(float(one.readings[0][0]) for one in quantities(stated(text)) if len(one.text) > 1)
    workers = dict.fromkeys(name for task in planned(state).tasks if (name := meant(task)))
    return Case(
        state.requested.goal,
        name=run,
        expect=Expect(numbers=tuple(figures)[:_FIGURES]),
        workers=tuple(workers),
        ending=state.ended.ending,
        most_gaps=len(state.ended.gaps),
        answer="\n".join(line.rstrip() for line in text[:_ANSWER].splitlines()),
    )


def append(case: Case, file: Path) -> int:
    """Add a case to a dataset, which is made where it is missing; how many it has then.

    What stands there stays as it is, comments and all. The file is read again before it is kept.
    """
    if file.suffix not in (*LINES, *TABLES[:2]):
        raise Invalid(f"{file} is no dataset; its name ends with one of {', '.join((*LINES, *TABLES[:2]))}")
    before = file.read_text(encoding="utf-8") if file.exists() else ""
    known = read_dataset(file).cases if before.strip() else ()
    if any(one.name == case.name for one in known):
        raise Refused(f"{file} has a case {case.name!r} already; change it there, or name the new one with --name")
    whole = _lines(case, before) if file.suffix in LINES else _yaml(case, before)
    draft = file.with_name(f".{file.stem}.new{file.suffix}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(whole, encoding="utf-8")
        now = read_dataset(draft).cases
        if now[: len(known)] != known or len(now) != len(known) + 1:
            raise Invalid(f"{file} does not end with its list of cases; move `cases` to the end, then save again")
        draft.replace(file)
    except OSError as error:
        raise Invalid(f"{file} cannot be written: {error.strerror}; name another file with --to") from error
    finally:
        draft.unlink(missing_ok=True)
    return len(now)


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
    body = "".join(f"  {line}\n" if line.strip() else "\n" for line in text.splitlines())
    start = before if before.strip() else "cases:\n"
    return f"{start if start.endswith(chr(10)) else start + chr(10)}{body}"
