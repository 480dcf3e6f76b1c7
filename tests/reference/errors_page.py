"""The page about errors: the tree of exceptions, what a check says of a plan, and the kinds of failure."""

import re
from collections.abc import Iterator
from typing import get_args

from chargehand import errors
from chargehand.cli.exit_codes import error_exit_code
from chargehand.engine import lint
from chargehand.engine.failure import FailureKind
from chargehand.errors import ChargehandError
from tests.reference.markdown import code, page, sentence, table

_ABOUT = """\
What is raised, what a check says of a plan, and what can become of a task. What is an error here and what is data,
with an example, is in [errors.md](../library.md#errors)."""

_PLACES = {"0": "TASK", "1": "…", "2": "…", "3": "…", "near": ""}

_KINDS = {
    "network": ("the line is dead, a reply is garbled", "the same again after a wait; then a fallback; then given up"),
    "timeout": ("nobody answers in time", "as `network`"),
    "resource": ("the provider wants a pause, a key is refused, a tool is out of order", "as `network`"),
    "logic": (
        "wrong work: bad JSON, a missing part, a worker that gives up or goes in circles, an exception in one",
        "the supervisor rewrites the task with the error in view, then it is tried again",
    ),
    "uncertain": (
        "an effect began and it is not known whether it happened",
        "the task fails, or a person is asked (`supervisor.uncertain`)",
    ),
    "budget": ("the money does not cover the next step", "the task fails"),
    "deadline": ("the time ran out", "the task fails; the answer is written from what there is"),
    "approval": (
        "a tool may be called only with a person's leave",
        "nothing failed: the run asks, and the attempt goes on with the answer",
    ),
    "stopped": ("a person stopped the attempt", "the task fails; the other tasks go on"),
}
"""Of each kind an example, and what follows."""

_OTHER_CODES = {
    "not_json": "What was sent is not JSON.",
    "wrong_shape": "It is JSON, and not a plan.",
    "unchanged": "A new plan proposes only what the run has already.",
    "rejected_by_person": "A person rejected the plan; the sentence is what they said.",
    "not_a_plan": "What the planner wrote holds no plan.",
    "not_an_answer": "What the supervisor's model wrote is no JSON object.",
    "cut_off": "The reply of the supervisor's model was longer than it may be, and cut off there.",
    "no_route": "A model that was asked who should do it named nobody on the team.",
    "no_next": "A model that was asked what comes next did not say who does what (`strategy: loop`).",
    "repeated": "It asked for the same task again (`strategy: loop`).",
    "stalled": "It makes no progress; it is to start afresh (`strategy: loop`).",
    "nothing_done": "It called the request done, without a result (`strategy: loop`).",
}
"""Codes of findings that are made elsewhere than in the check of a plan."""


def errors_page() -> str:
    return page("Errors: reference", _ABOUT, *_raised(), *_findings(), *_failures())


def _raised() -> Iterator[str]:
    yield "## Exceptions"
    yield "In Python: `from chargehand.errors import Invalid`. The exit code is that of a command that ends with it."
    yield "\n".join(["```text", *_tree(ChargehandError), "```"])
    rows: list[tuple[str, str, str, str]] = []
    for one in _all(ChargehandError):
        who, colon, what = (one.__doc__ or "").partition(": ")
        assert colon, f"{one.__name__}: begin its docstring with who can act, and a colon"
        rows.append((code(one.__name__), who.lower(), sentence(what), str(error_exit_code(one))))
    yield table(("class", "who can act", "what it is, what to do", "exit"), rows[1:])


def _all(kind: type[ChargehandError]) -> Iterator[type[ChargehandError]]:
    yield kind
    for one in _below(kind):
        yield from _all(one)


def _below(kind: type[ChargehandError]) -> list[type[ChargehandError]]:
    return [one for one in kind.__subclasses__() if one.__module__ == errors.__name__]


def _tree(kind: type[ChargehandError], lead: str = "") -> Iterator[str]:
    if not lead:
        yield kind.__name__
    inner = _below(kind)
    for one in inner:
        last = one is inner[-1]
        yield f"{lead}{'└' if last else '├'}── {one.__name__}"
        yield from _tree(one, lead + ("    " if last else "│   ")) if _below(one) else ()


def _findings() -> Iterator[str]:
    yield "## Findings of a plan"
    yield (
        "Each has a code, a place and a sentence that a planner can act on; `chargehand plan --from FILE` shows them. "
        "Errors stop a plan (`PlanInvalid`), warnings ride along, and repairs are made and said."
    )
    yield table(
        ("error", "sentence"), [*_sentences(lint._ERRORS), *((code(one), said) for one, said in _OTHER_CODES.items())]
    )
    yield table(("warning", "sentence"), _sentences(lint._WARNINGS))
    fields = ("id", "worker", "after", "for_each", "replaces")
    yield table(
        ("repair", "sentence"),
        [(code(f"repaired_{one}"), f"What stood in `{one}` was read as what it must mean.") for one in fields],
    )


def _sentences(found: dict[str, str]) -> list[tuple[str, str]]:
    return [(code(name), _filled(said)) for name, said in found.items()]


def _filled(said: str) -> str:
    """Without the slots: what stands in them depends on the plan."""
    return re.sub(r"\{(\w+)(?:!r)?\}", lambda found: _PLACES[found[1]], said)


def _failures() -> Iterator[str]:
    yield "## Failures of tasks"
    yield "A task's failure is data ([`Failure`](events.md#failure)), no exception. Its kind decides what follows."
    yield table(("kind", "example", "what follows"), [(code(kind), *_KINDS[kind]) for kind in get_args(FailureKind)])
    yield "`permanent: true` skips the remaining attempts of that worker."
