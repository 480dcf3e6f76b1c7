"""Scores of checks: how many wrong results they catch, and how many right ones they refuse."""

import time
from collections.abc import Mapping, Sequence
from random import Random

from msgspec import Struct

from chargehand.agents.acceptance import Check, Reviewer, Verifier
from chargehand.agents.hiring import Hiring
from chargehand.agents.worker import Worker
from chargehand.errors import ChargehandError, Invalid, Refused
from chargehand.evals.cases import Case, several
from chargehand.evals.measures import accuracy, share, usd
from chargehand.evals.scores import Measure, Part, Score, Table
from chargehand.evals.seeding import seeded
from chargehand.evals.trials import Bench, expected
from chargehand.models.messages import Request
from chargehand.models.scripted import ScriptedModel
from chargehand.models.subject import Working
from chargehand.runtime.result import Result
from chargehand.team import Supervisor
from chargehand.terms.events import Noted
from chargehand.terms.plan import Plan, Task, TaskId
from chargehand.terms.policy import Policy, Retry

_ONCE = Policy(retry=Retry(attempts=1, fallback_attempts=1))
_SOURCE, _AUTHOR = "source of the material", "author of the result"
_FIRST, _SECOND = TaskId("t1"), TaskId("t2")
_TORN, _UNASKED = "failed itself, so nothing can be accepted", "not reviewed by "  # as the engine says it
_BLANK = " \u200b"  # a reply without anything in it


async def score_results(bench: Bench, case: Case, random: Random) -> list[Score]:
    """A score for each result that is put before the checks of a case of the kind `verifier`.

    Wrong ones are those of the case; a case that has none gets some that are made from a right one.
    """
    wrong = case.wrong or seeded(several(case.right)[0], random)
    results = [("right", text) for text in several(case.right)] + list(wrong.items())
    scores: list[Score] = []
    for number, (kind, text) in enumerate(results, 1):
        name = f"{case.name}: {kind} ({number})"
        try:
            looked = await _looked(bench, case, text)
        except ChargehandError as error:
            said = f"it could not be tried: {error}"
            scores.append(Score(name, "verifier", passed=False, why=(said,), error=True, request=case.request))
            continue
        scores.append(_score(name, kind, looked, f"{case.request}\n{text}"))
    return scores


def _score(name: str, kind: str, looked: "_Looked", request: str) -> Score:
    good, refused = kind == "right", looked.refused
    held = bool(refused) != good
    why = () if held else (f"refused, although it is right: {refused}",) if good else (f"not noticed: {kind}",)
    values = {"alarm" if good else "caught": float(bool(refused))}
    return Score(
        name, "verifier", held, why, values=values, seconds=looked.seconds, micros=looked.micros, request=request,
        got=refused or "accepted", wanted="accepted" if good else "refused",
    )  # fmt: skip


class _Looked(Struct, frozen=True):
    """Why a result does not count as done (empty: it does), how long it took to say so, and what it cost."""

    refused: str
    seconds: float
    micros: int


async def _looked(bench: Bench, case: Case, text: str) -> _Looked:
    """What a team with these checks makes of a result."""
    team = bench.team()
    expected(team, case.labels)
    hiring = team.hiring
    checks = _checks(case, hiring)

    def said(request: Request) -> str:
        assert isinstance(request.subject, Working), "only workers have this model"
        return case.source if request.subject.worker.name == _SOURCE else text or _BLANK

    model = ScriptedModel(said)
    reviewers = [one.worker for one in checks.values() if isinstance(one, Reviewer)]
    others = [
        Worker(one.name, one.description, one.prompt, model=one.model or hiring.models[0])
        for one in hiring.workers
        if one.name in reviewers
    ]
    workers = [Worker(_SOURCE, model=model), Worker(_AUTHOR, model=model, accept=tuple(checks)), *others]
    first = (Task(_FIRST, "Hand over what there is to work from.", _SOURCE),) if case.source else ()
    task = Task(_SECOND, case.request, _AUTHOR, after=(_FIRST,) if case.source else ())
    team = Supervisor(
        workers, model=hiring.models[0], judge=hiring.models[2], plan=Plan((*first, task), "none"), policy=_ONCE,
        checks=checks, lookup=bench.lookup,
    )  # fmt: skip
    began = time.perf_counter()
    found = await team.run(case.request)
    took, gaps = time.perf_counter() - began, [gap.message for gap in found.gaps if gap.task == _SECOND]
    refused = "" if _SECOND in found.results else (gaps or ["it did not count as done"])[0]
    if unread := _unread(found, refused):
        raise Refused(f"nobody judged it: {unread}")
    return _Looked(refused, took, found.spent.micros)


def _unread(found: Result, refused: str) -> str:
    """Why a verdict says nothing of the checks: one did not work itself, or nobody could be asked."""
    notes = (one.event.text for one in found.entries if isinstance(one.event, Noted))
    return refused if _TORN in refused else next((text for text in notes if text.startswith(_UNASKED)), "")


def _checks(case: Case, hiring: Hiring) -> Mapping[str, Check]:
    """Those that the case names, else those of its worker; where there are none, a verifier."""
    known = hiring.checks
    names = case.checks or tuple(name for worker in case.labels for name in known.by_worker.get(worker, ()))
    if strange := [name for name in names if name not in known.by_name]:
        there = ", ".join(known.by_name) or "none"
        raise Invalid(f"the team has no check {strange[0]!r}; there are {there}")
    return {name: known.by_name[name] for name in names} or {"verifier": Verifier()}


def report_results(dataset: str, scores: Sequence[Score], random: Random) -> Part:
    """All that is to be said of such cases."""
    caught = [one for one in scores if "caught" in one.values]
    right = [one for one in scores if "alarm" in one.values]
    measures: list[Measure] = [accuracy(scores)]
    measures += [share("caught", sum(one.passed for one in caught), len(caught))] if caught else []
    measures += [share("false_alarms", sum(not one.passed for one in right), len(right), "less")] if right else []
    measures += usd([*caught, *right], random)
    kinds: dict[str, list[Score]] = {}
    for one in (*caught, *right):
        kinds.setdefault(one.case.rsplit(": ", 1)[-1].rsplit(" (", 1)[0], []).append(one)
    rows = tuple((kind, str(len(found)), str(sum(one.passed for one in found))) for kind, found in kinds.items())
    table = Table("Results by what is wrong with them", ("kind", "results", "judged rightly"), rows)
    return Part(dataset, "verifier", tuple(scores), tuple(measures), (table,))
