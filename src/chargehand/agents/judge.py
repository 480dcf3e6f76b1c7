"""A judge rules on results: which is best, what most agree on, which of two that contradict each other holds.

The winner is one of the results there are, or none; nothing else in a ruling is trusted.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from functools import partial
from math import ceil
from typing import Literal, cast

from msgspec import Raw, Struct, structs
from msgspec.json import encode

from chargehand.agents.inputs import origin_of, result_text
from chargehand.agents.shape import choice_schema, encode_schema, list_schema, one_line, read_reply, text_schema
from chargehand.agents.supervision import ModelQuestion
from chargehand.agents.writer import Piece, WriterCalls, cut_evenly
from chargehand.engine.facts import Contradiction, Ruling, SettledContradiction
from chargehand.errors import Invalid
from chargehand.models.artifacts import WorkerOutput
from chargehand.models.messages import new_nonce, wrap
from chargehand.models.request_facts import Given, Judging
from chargehand.models.token_count import measure
from chargehand.runtime.executor import WorkFailed
from chargehand.tools.tool import CAP

_WINDOW_SHARE = 0.5  # that results may take
_MAX_WHY = 300
_MAX_JUDGED = 12
_MAX_EXCERPT = 80
_INTRODUCTION = re.compile(
    r"\A(?:there (?:is|are)|it is|it's|that is|that makes|(?:the )?(?:answer|result|total)(?: is|:))\s+"
    r"(?=\S+(?: \S+)?$)",  # a longer sentence says what it is of
    re.IGNORECASE,
)
_QUOTED = re.compile(r"(\*\*|[\"'`])([^\"'`*]*)\1")
_CLEAR_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3}){2,}(?![\d,])")  # one comma may be that of a fraction
_VERDICT = re.compile(
    r"(?:(yes|true)(?:, (?:it|this|that) is)?|(?:no|false)(?:, (?:it|this|that) (?:is not|isn't))?)", re.IGNORECASE
)
_OUTPUT_FIELDS = frozenset(field.encode_name for field in structs.fields(WorkerOutput))
_MANNER = {
    "select": "Several workers tried the same. Choose the best result for the request, and say why in a sentence.",
    "vote": "Several workers tried the same. Choose the result that most of them agree on in substance, name in"
    " `agree` all that say the same as it does, and say why in a sentence.",
    "contradiction": "Some results say different things of the same. Say which holds and why in a sentence; where the"
    " results do not show it, the winner is null.",
}
_FORM = {
    "select": '{"why": "…", "winner": "t1"}',
    "vote": '{"why": "…", "agree": ["t1", "t3"], "winner": "t1"}',
    "contradiction": '{"why": "…", "ruling": "what holds", "winner": "t1"}, or null as the winner',
}


async def rule(calls: WriterCalls, subject: Judging, *, extra: bool = False) -> Ruling | None:
    """One call; None where it is not covered or the reply cannot be used. A call that fails is one of the answer."""
    tasks = [result.task for result in subject.results]
    read = partial(_read_ruling, tasks=tasks)
    whole = [Piece(result_text(result.value, whole=True), (result.task,)) for result in subject.results]
    fitting = _fit_window(calls, whole)
    shorter = cut_evenly(fitting, CAP * len(whole))  # where there is too little money for all of it
    for pieces in (fitting, shorter) if shorter != fitting else (fitting,):
        try:
            ruling = await calls.ask(_question(subject, tasks, pieces, extra=extra), read)
        except WorkFailed as error:
            if error.failure.kind not in ("budget", "logic"):
                raise
            calls.context.note(f"there is no ruling: {error}")
            if error.failure.kind == "logic":
                return None
        else:
            if cut := [piece.tasks[0] for piece, before in zip(pieces, whole, strict=True) if piece != before]:
                calls.lose(f"the judge read only the beginning of {', '.join(cut)}")
            return ruling
    return None


def _fit_window(calls: WriterCalls, pieces: Sequence[Piece]) -> Sequence[Piece]:
    """Return the pieces as they are, if they fit into the part of the window that results may take; else cut evenly."""
    text = "\n".join(piece.text for piece in pieces)
    room = calls.model.card.window * _WINDOW_SHARE
    tokens = calls.role.rates.estimate(measure(text))
    return pieces if tokens <= room else cut_evenly(pieces, int(room / tokens * len(text.encode(errors="replace"))))


def _question(subject: Judging, tasks: Sequence[str], pieces: Sequence[Piece], *, extra: bool) -> ModelQuestion:
    nonce = new_nonce()
    parts = [f"Request: {subject.goal}"]
    if subject.claims:
        parts.append("What they say:\n" + "\n".join(f"- {claim}" for claim in subject.claims))
    parts += [wrap(nonce, origin_of(result), piece.text) for result, piece in zip(subject.results, pieces, strict=True)]
    return ModelQuestion(
        purpose="a ruling on results this long",
        prompt="judge",
        parts=parts,
        subject=subject,
        schema=ruling_schema(tasks, subject.manner),
        slots={"manner": _MANNER[subject.manner], "form": _FORM[subject.manner]},
        nonce=nonce,
        extra=extra,
        keeps_reply=True,
    )


def ruling_schema(tasks: Sequence[str], manner: Literal["contradiction", "select", "vote"]) -> Raw:
    """Why comes first: a model that writes its reasons before its choice chooses better."""
    text = text_schema(_MAX_WHY, min_length=1)
    winner = choice_schema(tasks)
    if manner == "contradiction":
        return encode_schema({"why": text, "ruling": text, "winner": choice_schema(tasks, or_null=True)})
    if manner == "vote":
        return encode_schema({"why": text, "agree": list_schema(winner, len(tasks)), "winner": winner})
    return encode_schema({"why": text, "winner": winner})


class RulingReply(Struct, frozen=True):
    """A ruling as a model writes it."""

    winner: str | None = None
    why: str | None = None
    ruling: str | None = None
    agree: Sequence[str] | None = None


def _read_ruling(text: str, tasks: Sequence[str]) -> Ruling:
    reply = read_reply(text, RulingReply)
    winner = _named_task(reply.winner, tasks)
    ruling = one_line(reply.ruling, _MAX_WHY)
    why = one_line(reply.why, _MAX_WHY) or ruling
    is_open = reply.winner is None and why != ""
    if not winner and not is_open:
        raise Invalid("the reply names no result as the winner")
    others = [_named_task(task, tasks) for task in reply.agree or ()]
    agree = dict.fromkeys(task for task in (winner, *others) if task)
    return Ruling(winner=winner, why=why, ruling=ruling, agree=tuple(agree))


def _named_task(written: str | None, tasks: Sequence[str]) -> str:
    """The task that is meant, also with brackets or the word task around it; empty if there is none of that name."""
    plain = re.sub(r"^task\s+", "", one_line(written, _MAX_WHY), flags=re.IGNORECASE)
    return next((task for task in tasks if plain in (task, f"[{task}]")), "")


# --- contradictions


async def settle(
    calls: WriterCalls, goal: str, contradictions: Sequence[Contradiction], results: Sequence[Given]
) -> list[SettledContradiction]:
    """A ruling on each contradiction, side by side. One that cannot be had, or paid for, leaves it open."""
    by_task = {result.task: result for result in results}

    async def settle_one(contradiction: Contradiction) -> SettledContradiction:
        opposed = tuple(by_task[task] for task, _ in contradiction.values)
        claims = tuple(f"[{task}] {contradiction.about}: {value}" for task, value in contradiction.values)
        ruling: Ruling | None = None
        try:
            ruling = await rule(calls, Judging(goal, claims, opposed), extra=True)
        except WorkFailed as error:
            calls.context.note(f"there is no ruling on {contradiction.about!r}: {error}")
        return SettledContradiction(contradiction, ruling)

    async with asyncio.TaskGroup() as group:
        jobs = [group.create_task(settle_one(contradiction)) for contradiction in contradictions]
    return [job.result() for job in jobs]


def describe_contradictions(settled: Sequence[SettledContradiction]) -> str:
    """Every value with the ruling, to be read below the answer."""
    return "The results contradict each other:\n" + "\n".join(f"- {describe_contradiction(each)}" for each in settled)


def describe_contradiction(settled: SettledContradiction) -> str:
    """Both values, and which one a judge ruled for, or that it is open."""
    values = settled.contradiction.values
    opposed = f"{settled.contradiction.about}: " + " or ".join(f"{value} [{task}]" for task, value in values)
    why = settled.ruling.why.rstrip(".") if settled.ruling is not None else "there is no ruling"
    if not settled.winner:
        return f"{opposed}. This is open: {why}."
    winning = dict(values)[settled.winner]
    return f"{opposed}. Ruled for {winning} [{settled.winner}]" + (f": {why}." if why else ".")


# --- one of several results as the answer


class Choice(Struct, frozen=True):
    """The result that becomes the answer, why in words to show, and whether a judge chose it."""

    result: Given
    why: str = ""
    judged: bool = False


async def select(calls: WriterCalls, goal: str, results: Sequence[Given]) -> Choice:
    """The result that a judge finds best, and why. Without a ruling it is the first, and that is said.

    Those that say the same word for word count as one.
    """
    different: dict[str, Given] = {}
    for result in results:
        different.setdefault(_same_text(result.value), result)
    if len(different) == 1:
        return Choice(results[0], f"All {len(results)} results are the same: {_bracket(results[:_MAX_JUDGED])}.")
    choice = await _choose(calls, Judging(goal, results=tuple(different.values()), manner="select"))
    twins = f", of which {len(different)} differ" if len(different) < len(results) else ""
    why = f"Chosen from {len(results)} results{twins}: [{choice.result.task}]. {choice.why}"
    return Choice(choice.result, why, choice.judged)


async def vote(
    calls: WriterCalls, goal: str, results: Sequence[Given], stand_ins: Mapping[str, str] | None = None
) -> Choice:
    """Return the result that most agree on, counted where they can be compared, else as a judge reads them.

    Args:
        calls: The calls for the answer.
        goal: The request.
        results: What votes.
        stand_ins: Who did tasks that were meant for other workers, by task. A worker that has a vote gets no other one
            by stepping in.
    """
    results, repeated = _count_once(results, stand_ins or {})
    votes: dict[str, list[Given]] = {}
    for result in results:
        votes.setdefault(ballot(result.value), []).append(result)
    ranked = sorted(votes.values(), key=len, reverse=True)
    tied = [voters for voters in ranked if len(voters) == len(ranked[0])]
    if len(tied) == 1:
        choice = Choice(ranked[0][0])
        why = f"{len(ranked[0])} of {len(results)} results agree: {_bracket(ranked[0])}."
    else:
        judged = tuple(voters[0] for voters in tied)
        choice = await _choose(calls, Judging(goal, results=judged, manner="vote"))
        most = len(ranked[0])
        counted = f"{most} of {len(results)} each" if most > 1 else f"no two of {len(results)} results are the same"
        why = f"Undecided by count ({counted}): [{choice.result.task}] was chosen. {choice.why}"
    others = [voters[0] for voters in ranked if choice.result not in voters]
    why += "".join(f"\n- [{other.task}] says: {_excerpt(other)}" for other in others[:_MAX_JUDGED])
    why += "".join(
        f"\n- [{task}] is not counted: {worker} stepped in for it and votes once" for task, worker in repeated
    )
    return Choice(choice.result, why, choice.judged)


def _count_once(results: Sequence[Given], stand_ins: Mapping[str, str]) -> tuple[list[Given], list[tuple[str, str]]]:
    """Return the results that vote, and the tasks of those that do not, with the worker that votes elsewhere."""
    voted = {result.worker for result in results if result.task not in stand_ins}
    counted: list[Given] = []
    repeated: list[tuple[str, str]] = []
    for result in results:
        worker = stand_ins.get(result.task, "")
        if worker and worker in voted:
            repeated.append((result.task, worker))
        else:
            counted.append(result)
            voted.add(worker or result.worker)
    return counted, repeated


async def _choose(calls: WriterCalls, subject: Judging) -> Choice:
    """Return the result that a judge chooses, and why, in words to show.

    Of more results than a judge reads at once, those that won in their group are judged again.
    """
    results = subject.results
    unjudged: list[Given] = []
    is_first = True
    while len(results) > _MAX_JUDGED:
        count = ceil(len(results) / _MAX_JUDGED)
        winners: list[Given] = []
        for group in (results[at::count] for at in range(count)):
            choice = await _choose_one(calls, structs.replace(subject, results=group), extra=not is_first)
            winners.append(choice.result)
            unjudged += () if choice.judged else group
            is_first = False
        results = tuple(sorted(winners, key=results.index))
    choice = await _choose_one(calls, structs.replace(subject, results=results), extra=not is_first)
    why = choice.why
    if not is_first:
        why += f" Judged in groups of at most {_MAX_JUDGED}, and the winners of the groups again."
    if unjudged:
        why += f" There was no ruling on {_bracket(unjudged)}: of each group only the first was judged further."
    return structs.replace(choice, why=why)


async def _choose_one(calls: WriterCalls, subject: Judging, *, extra: bool) -> Choice:
    """Return the result that one call of the judge chooses, and why; the first one where there is no ruling."""
    ruling = await rule(calls, subject, extra=extra)
    if ruling is None:
        why = "The judge's ruling could not be read, so this is the first that succeeded."
        return Choice(subject.results[0], why)
    if not ruling.winner:
        why = f"The judge chose none of them ({ruling.why.rstrip('.')}), so this is the first that succeeded."
        return Choice(subject.results[0], why)
    chosen = next(result for result in subject.results if result.task == ruling.winner)
    count = len(ruling.agree)
    agreed = f"{count} of {len(subject.results)} say the same, as the judge reads them. " if count > 1 else ""
    why = f"Why: {ruling.why.rstrip('.')}." if ruling.why else "No reason was given."
    return Choice(chosen, agreed + why, judged=True)


def ballot(value: object) -> str:
    """Return what a result votes for. Results with the same ballot say the same; where that is in doubt they differ.

    Only what can change no meaning is left out: spaces, quotes around the whole, a full stop at the end, how a short
    answer is introduced, and a capital at its beginning.
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = _INTRODUCTION.sub("", _same_text(value)).removesuffix(".")
    if quoted := _QUOTED.fullmatch(text):
        text = quoted[2].removesuffix(".")
    text = _CLEAR_THOUSANDS.sub(lambda number: number[0].replace(",", ""), text)
    if verdict := _VERDICT.fullmatch(text):
        return "yes" if verdict[1] else "no"
    return text[:1].lower() + text[1:] if text[1:2].islower() else text


def _same_text(value: object) -> str:
    """Return a result as text with its lines, without spaces that say nothing; data with all of its fields."""
    if isinstance(value, dict) and not cast("dict[str, object]", value).keys() <= _OUTPUT_FIELDS:
        return encode(value, order="sorted").decode()
    lines = (" ".join(line.split()) for line in result_text(cast("object", value)).splitlines())
    return "\n".join(line for line in lines if line)


def _bracket(results: Sequence[Given]) -> str:
    return ", ".join(f"[{result.task}]" for result in results)


def _excerpt(result: Given) -> str:
    text = " ".join(result_text(result.value).split())
    return text if len(text) <= _MAX_EXCERPT else f"{text[:_MAX_EXCERPT].rsplit(' ', 1)[0]} …"
