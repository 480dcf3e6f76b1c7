"""A plan when no planner can make one: each part of the request to the worker whose card speaks of it.

No model is asked. When it is wanted, and what is said about it, is decided in `makeshift`.
"""

import re
from collections.abc import Sequence

from msgspec import Struct

from chargehand.agents.routing.words import Lexicon
from chargehand.engine.plan import Edge, Task, TaskId
from chargehand.models.subject import WorkerCard
from chargehand.text.sentences import split_sentences
from chargehand.text.words import split_words

_LEAST_FIT = 0.34  # of what a part is about, that somebody's card must speak of
_NEXT_PART = re.compile(r",\s(?:and|then|and then)\s|\sand then\s", re.IGNORECASE)
_POINTERS = frozenset({"it", "its", "that", "them", "these", "those", "this", "result", "results"})


class Shares(Struct, frozen=True):
    """Tasks for several workers, and what nobody was found for, in words."""

    tasks: tuple[Task, ...]
    unserved: tuple[str, ...]
    workers: tuple[str, ...]


def fitting_worker(text: str, cards: Sequence[WorkerCard]) -> str:
    """The worker whose card speaks of what a text is about; empty where nobody's does."""
    return _fitting_worker(text, Lexicon(cards))


def shares(goal: str, cards: Sequence[WorkerCard], most: int) -> Shares | None:
    """A request with parts for at least two of these workers, as tasks; None for any other."""
    lexicon = Lexicon(cards)
    tasks: list[Task] = []
    unserved: list[str] = []
    for part in _parts(goal):
        worker = _fitting_worker(part, lexicon)
        if not worker:
            unserved.append(part)
            continue
        points_back = bool(tasks) and not _POINTERS.isdisjoint(split_words(part))
        after = (Edge(tasks[-1].id, "required"),) if points_back else ()
        tasks.append(Task(TaskId(f"t{len(tasks) + 1}"), part, worker, after=after))
    workers = tuple(dict.fromkeys(task.worker for task in tasks))
    if len(workers) < 2 or len(tasks) > most:
        return None
    return Shares(tuple(tasks), tuple(unserved), workers)


def _fitting_worker(text: str, lexicon: Lexicon) -> str:
    worker, fit = lexicon.best_fit(text)
    return worker if fit >= _LEAST_FIT else ""


def _parts(goal: str) -> list[str]:
    parts = [part.strip() for sentence in split_sentences(goal, ".!?;") for part in _NEXT_PART.split(sentence)]
    return [part[:1].upper() + part[1:] for part in parts if part]
