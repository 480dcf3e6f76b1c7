"""Scores of checks: how many wrong results they catch, and how many right ones they refuse."""

import re
import time
from collections.abc import Iterator, Mapping
from random import Random

from msgspec import Struct, structs

from chargehand.agents.checks.spec import Check, Reviewer, Verifier
from chargehand.agents.result import Result
from chargehand.agents.supervisor import Supervisor
from chargehand.agents.team_spec import TeamSpec
from chargehand.agents.worker import Worker
from chargehand.engine.events import AttemptFailed, Noted
from chargehand.engine.facts import NotReviewed
from chargehand.engine.failure import Failure
from chargehand.engine.plan import Plan, Task, TaskId
from chargehand.engine.policy import Policy, Retry
from chargehand.errors import ChargehandError, Invalid, Refused
from chargehand.evals.bench import Bench, check_workers, failed_to_try
from chargehand.evals.cases import Case, as_tuple
from chargehand.evals.measures import seeded_random
from chargehand.evals.report import Score
from chargehand.models.messages import Request
from chargehand.models.request_facts import Working
from chargehand.models.testing.scripted import ScriptedModel
from chargehand.team import Team
from chargehand.text.numbers import find_quantities

_ONE_ATTEMPT = Policy(retry=Retry(attempts=1, fallback_attempts=1))
_SOURCE = "source-of-the-material"
_AUTHOR = "author-of-the-result"
_SOURCE_TASK = TaskId("t1")
_RESULT_TASK = TaskId("t2")
_BLANK = " \u200b"
"""A reply with nothing in it."""


class CheckedResult(Struct, frozen=True):
    """A result that is put before the checks of a case: `name` and `request` are those of its score."""

    name: str
    request: str
    mistake: str
    """What is wrong with it; `right` where nothing is."""
    text: str


def checked_results(case: Case, seed: int) -> Iterator[CheckedResult]:
    """The right results of a case of the kind `verifier`, then the wrong ones.

    Wrong results are those of the case; a case that has none gets some that are made from a right one.
    """
    wrong = case.wrong or seed_mistakes(as_tuple(case.right)[0], seeded_random(seed, case.name))
    results = [("right", text) for text in as_tuple(case.right)] + list(wrong.items())
    for number, (mistake, text) in enumerate(results, 1):
        name = f"{case.name}: {mistake} ({number})"
        yield CheckedResult(name=name, request=f"{case.request}\n{text}", mistake=mistake, text=text)


async def score_results(bench: Bench, case: Case) -> list[Score]:
    """A score for each result that is put before the checks of a case of the kind `verifier`."""
    scores: list[Score] = []
    for checked in checked_results(case, bench.seed):
        try:
            score = await _score(bench, case, checked)
        except ChargehandError as error:
            score = failed_to_try(case, error)
        scores.append(structs.replace(score, case=checked.name, mistake=checked.mistake))
    return scores


async def _score(bench: Bench, case: Case, checked: CheckedResult) -> Score:
    team = _checking_team(bench, case, checked.text)
    began = time.perf_counter()
    result = await team.run(case.request)
    seconds = time.perf_counter() - began
    refusal = ""
    if _RESULT_TASK not in result.results:
        messages = [gap.message for gap in result.gaps if gap.task == _RESULT_TASK]
        refusal = messages[0] if messages else "it did not count as done"
    if broken := _broken_check(result):
        raise Refused(f"no check judged it: {broken}")
    is_right = checked.mistake == "right"
    why: tuple[str, ...] = ()
    if is_right and refusal:
        why = (f"refused, although it is right: {refusal}",)
    elif not is_right and not refusal:
        why = (f"not noticed: {checked.mistake}",)
    return Score(
        case=checked.name,
        kind="verifier",
        passed=not why,
        why=why,
        values={"false_alarms" if is_right else "caught": float(bool(refusal))},
        seconds=seconds,
        usd=result.spent.micros / 1_000_000,
        request=checked.request,
        got=refusal or "accepted",
        wanted="accepted" if is_right else "refused",
    )


def _checking_team(bench: Bench, case: Case, text: str) -> Team:
    """A team with the checks of the case, in which a worker returns this text."""
    team = bench.new_team()
    check_workers(team, case.labels)
    spec = team.spec
    checks = _checks_of(case, spec)

    def reply(request: Request) -> str:
        assert isinstance(request.subject, Working), "only workers have this model"
        return case.source if request.subject.worker.name == _SOURCE else text or _BLANK

    model = ScriptedModel(reply)
    workers = [Worker(_SOURCE, model=model), Worker(_AUTHOR, model=model, accept=tuple(checks))]
    reviewers = [check.worker for check in checks.values() if isinstance(check, Reviewer)]
    for worker in spec.workers:
        if worker.name in reviewers:
            reviewer_model = worker.model or spec.models[0]
            workers.append(
                Worker(name=worker.name, description=worker.description, prompt=worker.prompt, model=reviewer_model)
            )
    source = (Task(_SOURCE_TASK, "Hand over what there is to work from.", _SOURCE),) if case.source else ()
    task = Task(_RESULT_TASK, case.request, _AUTHOR, after=tuple(before.id for before in source))
    return Team(
        workers,
        supervisor=Supervisor(model=spec.models[0], judge=spec.models[2], plan=Plan((*source, task), "none")),
        policy=_ONE_ATTEMPT,
        checks=checks,
        lookup=bench.lookup,
    )


def _broken_check(result: Result) -> str:
    """Why a verdict says nothing of the checks: one did not work, or its reviewer could not be asked."""
    for entry in result.entries:
        match entry.event:
            case AttemptFailed(failure=Failure(code="check_failed", message=message)):
                return message
            case Noted(fact=NotReviewed(), text=text):
                return text
            case _:
                pass
    return ""


def _checks_of(case: Case, spec: TeamSpec) -> Mapping[str, Check]:
    """The checks that the case names, else those of its worker; where there are none, a verifier."""
    known = spec.checks
    names = case.checks or tuple(name for worker in case.labels for name in known.by_worker.get(worker, ()))
    if unknown := [name for name in names if name not in known.by_name]:
        existing = ", ".join(known.by_name) or "none"
        raise Invalid(f"the team has no check {unknown[0]!r}; there are {existing}")
    return {name: known.by_name[name] for name in names} or {"verifier": Verifier()}


# --- wrong results made from right ones


MISTAKES = ("number", "missing", "empty", "half", "address", "other")
_PART_END = re.compile(r"(?<=[.!?;,])\s+|\n+")
_OTHER_SUBJECT = "The meeting was moved to the large hall because the small one is being painted."


def seed_mistakes(right: str, random: Random) -> dict[str, str]:
    """Results with one mistake each, by its kind; kinds that do not change this text are left out."""
    wrong = {
        "number": _change_number(right, random),
        "missing": _leave_out_part(right, random),
        "empty": "",
        "half": right[: len(right) // 2].rstrip() if len(right.split()) > 3 else right,
        "address": f"{right} See https://records.example/{random.randrange(1000, 9999)}.",
        "other": _OTHER_SUBJECT,
    }
    return {mistake: text for mistake, text in wrong.items() if text != right}


def _change_number(right: str, random: Random) -> str:
    numbers = list(find_quantities(right))
    if not numbers:
        return right
    number = random.choice(numbers)
    digits = [index for index in range(number.start, number.end) if right[index].isdigit()]
    index = random.choice(digits[:2])
    digit = (int(right[index]) + random.randrange(1, 9)) % 10
    return f"{right[:index]}{digit}{right[index + 1 :]}"


def _leave_out_part(right: str, random: Random) -> str:
    """One part less, not the first: what is left still reads well."""
    parts = [part for part in _PART_END.split(right) if part]
    if len(parts) < 2:
        return right
    del parts[random.randrange(1, len(parts))]
    return " ".join(parts)
