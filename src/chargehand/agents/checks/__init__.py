"""What a result must pass before it counts as done, as people declare it."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from chargehand.agents.roles import Worker
from chargehand.engine.declared import Declared
from chargehand.engine.plan import Task, digest
from chargehand.errors import Invalid
from chargehand.models.model import Model
from chargehand.text.words import did_you_mean

LONGEST_PATTERN = 1000
_LONGEST_NAME = 64


class Rule(Declared, frozen=True, omit_defaults=True):
    """What a result must hold: all that is set here.

    `contains` are words that must stand in it, in capitals or not; `matches` is a regular expression that must be found
    in it. `cites`: it names where it comes from. `has_number`: there is a number in it.
    """

    contains: str | Sequence[str] = ()
    matches: str = ""
    min_words: int = 0
    max_words: int = 0
    cites: bool = False
    has_number: bool = False

    @property
    def wanted_words(self) -> Sequence[str]:
        return (self.contains,) if isinstance(self.contains, str) else self.contains


class Reviewer(Declared, frozen=True):
    """A worker of the team, who is asked whether a result is acceptable: with its own prompt and model, no tools."""

    worker: str


class Verifier(Declared, frozen=True):
    """A model that looks for what is wrong. `prompt` is what it should look for besides; left out, `judge` is asked."""

    prompt: str = ""
    model: str | Model = ""


Check: TypeAlias = Callable[..., object] | type | dict[str, Any] | Rule | Reviewer | Verifier
"""A function of the result (true, or what is wrong in words), a type or a JSON Schema, a rule, or who is to look."""


class Checks(Struct, frozen=True):
    """The checks of a team by name, and which of them each worker's results must pass."""

    by_name: Mapping[str, Check]
    by_worker: Mapping[str, tuple[str, ...]]

    def of(self, task: Task | None, worker: str) -> tuple[str, ...]:
        """The checks of one task done by this worker, each once."""
        names = () if task is None else task.accept
        return tuple(dict.fromkeys((*self.by_worker.get(worker, ()), *names)))

    def vet(self, tasks: Iterable[Task]) -> None:
        """Raise Invalid where a task of a plan names a check that is not there, or its own worker as the reviewer."""
        for task in tasks:
            self.vet_names(f"task {task.id!r}", task.accept, task.worker)

    def vet_names(self, owner: str, names: Iterable[str], worker: str) -> None:
        for name in names:
            check = self.by_name.get(name)
            if check is None:
                raise Invalid(f"{owner} {describe_unknown(name, self.by_name)}")
            if isinstance(check, Reviewer) and check.worker == worker:
                raise Invalid(
                    f"{owner} would be reviewed by {worker!r}, who does it; let another worker review it "
                    f"(check {name!r})"
                )

    def mark(self, names: Sequence[str]) -> str:
        """A short hash that changes when one of these checks does, as far as that can be told."""
        return digest(*(f"{name}={_encode(self.by_name[name])}" for name in names))


NO_CHECKS = Checks({}, {})


def describe_unknown(name: str, known: Iterable[str]) -> str:
    """The end of a sentence about whatever names a check that is not there."""
    names = list(known)
    hint = did_you_mean(name, names, "" if names else "the team has none: declare it under `checks`")
    return f"names the check {name[:_LONGEST_NAME]!r}, which there is not; {hint}"


def declare_checks(checks: Mapping[str, Check], workers: Sequence[Worker]) -> Checks:
    """The checks of a team; Invalid, naming the one, where something is wrong with them."""
    by_worker = {worker.name: tuple(worker.accept) for worker in workers if worker.accept}
    if not checks and not by_worker:
        return NO_CHECKS
    for name, check in checks.items():
        if not name.strip() or len(name) > _LONGEST_NAME or not name.isprintable():
            raise Invalid(f"{name[:80]!r} is no name for a check; use up to {_LONGEST_NAME} printable characters")
        try:
            _vet_check(check, {worker.name: worker for worker in workers})
        except Invalid as error:
            raise Invalid(f"check {name!r}: {error}") from error
    declared = Checks(dict(checks), by_worker)
    for name, accepted in by_worker.items():
        declared.vet_names(f"worker {name!r}", accepted, name)
    return declared


def _vet_check(check: Check, workers: Mapping[str, Worker]) -> None:
    match check:
        case Rule():
            _vet_rule(check)
        case Reviewer():
            reviewer = workers.get(check.worker)
            if reviewer is None:
                hint = did_you_mean(str(check.worker), workers)
                raise Invalid(f"there is no worker {check.worker!r} to review; {hint}")
            if reviewer.is_delegated:
                kind = "a team" if reviewer.call is None else "a function"
                raise Invalid(f"{check.worker!r} is {kind}, which reviews nothing; name a worker with a model")
        case type() | dict():
            _vet_shape(check)
        case _:
            pass


def _vet_shape(wanted: type | dict[str, Any]) -> None:
    from chargehand.agents.shape import JsonShape  # noqa: PLC0415 - most teams have no such checks
    from chargehand.engine.json_schema import schema_problem  # noqa: PLC0415 - most teams have no such checks

    if wanted == {}:
        raise Invalid("the schema is empty and lets everything pass; say what is wanted")
    try:
        problem = schema_problem(JsonShape(wanted).schema)
    except (TypeError, ValueError, RecursionError) as error:
        raise Invalid(f"no schema can be made of it: {error}") from error
    if problem:
        raise Invalid(f"the schema is wrong: {problem}")


def _vet_rule(rule: Rule) -> None:
    try:
        re.compile(rule.matches)
    except (re.error, RecursionError, OverflowError) as error:
        raise Invalid(f"{rule.matches[:80]!r} is no regular expression: {error}") from error
    if rule == Rule():
        raise Invalid(f"the rule asks for nothing; set one of {', '.join(Rule.__struct_fields__)}")
    if not all(text.strip() for text in rule.wanted_words):
        raise Invalid("`contains` has a text without a word in it; write what must stand there, or leave it out")
    if len(rule.matches) > LONGEST_PATTERN:
        raise Invalid(f"the pattern has {len(rule.matches)} characters; at most {LONGEST_PATTERN} are allowed")
    least = rule.min_words
    most = rule.max_words
    if least < 0 or most < 0 or (most and least > most):
        raise Invalid(f"at least {least} and at most {most} words cannot be; use numbers from 0, the least first")


def _encode(check: Check) -> str:
    if isinstance(check, Rule | Reviewer | dict):
        return msgspec.json.encode(check).decode()
    if isinstance(check, Verifier):
        handle = check.model if isinstance(check.model, str) else check.model.card.handle
        return f"{check.prompt}\n{handle}"
    return f"{getattr(check, '__module__', '')}:{getattr(check, '__qualname__', type(check).__name__)}"
