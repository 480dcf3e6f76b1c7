"""The checks a team file declares, and which of them its workers name. How a check is made is not known here."""

from msgspec import structs

from chargehand.agents.acceptance import Check, Reviewer, Rule, Verifier, declared
from chargehand.config import folder
from chargehand.config.findings import Path, near
from chargehand.config.parts import Parts
from chargehand.config.python import named_object
from chargehand.config.shapes import CHECK_KINDS, CheckShape, VerifierShape, WorkerShape
from chargehand.errors import Invalid
from chargehand.text.names import listed


def make_checks(parts: Parts) -> dict[str, Check]:
    """The checks by name. What is wrong with them, or with who names them, is added to the findings."""
    found: dict[str, Check] = {}
    for name, shape in parts.team.checks.items():
        made = parts.made(("checks", name), lambda name=name, shape=shape: _check(parts, name, shape), None)
        if made is None:
            continue
        found[name] = made
        if not isinstance(made, Reviewer):  # who reviews is looked at above, with its place
            parts.made(("checks", name), lambda name=name, made=made: declared({name: made}, ()), None)
    for name, written in parts.team.workers.items():
        if isinstance(written, WorkerShape):
            _check_named(parts, name, written, found)
    _check_unused(parts)
    return found


def _check_unused(parts: Parts) -> None:
    workers = parts.team.workers.values()
    named = {name for one in workers if isinstance(one, WorkerShape) for name in one.accept}
    for name in parts.team.checks:
        if name not in named:
            words = "no worker names it under `accept`, so only a task of a plan of yours can be held to it"
            parts.say(("checks", name), words, grave=False)


def _check(parts: Parts, name: str, shape: CheckShape) -> Check:
    rules = {key: value for key, value in structs.asdict(shape).items() if key not in CHECK_KINDS and value is not None}
    kinds = [key for key in CHECK_KINDS if getattr(shape, key) not in (None, False)]
    if len(kinds) + bool(rules) != 1:
        said = listed([*kinds, *rules])
        raise Invalid(
            f"{f'mixes {said}' if said else 'checks nothing'}; a check is one of {', '.join(CHECK_KINDS)}, or a rule "
            "of contains, matches, at_least_words, at_most_words, cites, has_number"
        )
    path: Path = ("checks", name, kinds[0] if kinds else "")
    if shape.python is not None:
        return _function(parts, shape.python)
    if shape.schema is not None:
        return folder.schema(parts.source.folder, shape.schema)
    if shape.reviewer is not None:
        if shape.reviewer not in parts.team.workers:
            raise Invalid(f"there is no worker {shape.reviewer!r} to review{near(shape.reviewer, parts.team.workers)}")
        return Reviewer(shape.reviewer)
    if shape.verifier:
        told = shape.verifier if isinstance(shape.verifier, VerifierShape) else VerifierShape()
        prompt = parts.prose((*path, "prompt"), told.prompt)
        return Verifier(prompt, parts.handle(told.model) if told.model else "")
    return structs.replace(Rule(), **rules)


def _function(parts: Parts, handle: str) -> Check:
    found = named_object(parts.source.folder, handle)
    if isinstance(found, Rule | Reviewer | Verifier):
        return found
    if not callable(found):
        raise Invalid(f"{handle!r} is {type(found).__name__}, not a function of a result")
    return found


def _check_named(parts: Parts, worker: str, shape: WorkerShape, checks: dict[str, Check]) -> None:
    known = parts.team.checks
    for at, name in enumerate(shape.accept):
        place: Path = ("workers", worker, "accept", at)
        if name not in known:
            there = f"; there are {listed(known)}" if known else "; write it under  checks:"
            parts.say(place, f"there is no check {name!r}{near(name, known) or there}")
            continue
        check = checks.get(name)
        if isinstance(check, Reviewer) and check.worker == worker:
            parts.say(place, f"{worker!r} would review its own results; let another worker review them")
