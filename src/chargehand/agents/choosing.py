"""One of several results as the answer, word for word: the one a judge selects, or the one most agree on.

How a judge is asked is not known here.
"""

from collections.abc import Sequence

from chargehand.agents.asking import Bill, Writer
from chargehand.agents.contradictions import verdict
from chargehand.agents.crew import Hand
from chargehand.agents.exhibit_text import shown
from chargehand.agents.judging import rule
from chargehand.models.subject import Given, Judging
from chargehand.text.numbers import find_quantities
from chargehand.text.words import FUNCTION_WORDS, split_words

_MOST = 12  # results a judge is shown
_SHORT = 12  # words of a result whose one number is what it says
_EXCERPT = 80
_FILLER = FUNCTION_WORDS | {"all", "answer", "equals", "exactly", "makes", "result", "so", "total"}


async def select(writer: Writer, bill: Bill, hand: Hand, goal: str, results: Sequence[Given]) -> str:
    """The result that a judge finds best. Without a ruling it is the first, and that is said.

    Those that say the same word for word count as one.
    """
    if len(results) == 1:
        return shown(results[0])
    different: dict[str, Given] = {}
    for one in results:
        different.setdefault(" ".join(shown(one).split()), one)
    if len(different) == 1:
        said = f"All {len(results)} results are the same: {_ids(results[:_MOST])}."
        hand.note(said)
        return f"{shown(results[0])}\n\n{said}"
    judged = tuple(different.values())[:_MOST]
    ruling = await _ruled(writer, bill, hand, Judging(goal, results=judged, manner="select"))
    chosen = _by_id(judged, ruling[0])
    twins = f", of which {len(different)} differ" if len(different) < len(results) else ""
    said = f"Chosen from {len(results)} results{twins}: [{chosen.task}]. {ruling[1]}"
    hand.note(said)
    return f"{shown(chosen)}\n\n{said}"


async def vote(writer: Writer, bill: Bill, hand: Hand, goal: str, results: Sequence[Given]) -> str:
    """The result that most agree on, counted where they can be compared, else as a judge reads them."""
    if len(results) == 1:
        return shown(results[0])
    votes: dict[str, list[Given]] = {}
    for one in results:
        votes.setdefault(ballot(one.value), []).append(one)
    ranked = sorted(votes.values(), key=len, reverse=True)
    if len(ranked) == 1 or len(ranked[0]) > len(ranked[1]):
        said = f"{len(ranked[0])} of {len(results)} results agree: {_ids(ranked[0])}."
        chosen = ranked[0][0]
        others = [held[0] for held in ranked[1:]]
    else:
        chosen, said = await _undecided(
            writer=writer, bill=bill, hand=hand, goal=goal, ranked=ranked, all_of_them=len(results)
        )
        others = [held[0] for held in ranked if chosen not in held]
    hand.note(said)
    against = "".join(f"\n- [{one.task}] says: {_excerpt(one)}" for one in others[:_MOST])
    return f"{shown(chosen)}\n\n{said}{against}"


async def _undecided(
    writer: Writer, bill: Bill, hand: Hand, goal: str, ranked: Sequence[Sequence[Given]], all_of_them: int
) -> tuple[Given, str]:
    """A vote without a majority: a judge decides between those with the most votes."""
    tied = [held for held in ranked if len(held) == len(ranked[0])]
    judged = tuple(held[0] for held in tied)[:_MOST]
    winner, why = await _ruled(writer, bill, hand, Judging(goal, results=judged, manner="vote"))
    chosen = _by_id(judged, winner)
    most = len(ranked[0])
    counted = f"{most} of {all_of_them} each" if most > 1 else f"no two of {all_of_them} results are the same"
    return chosen, f"Undecided by count ({counted}): [{chosen.task}] was chosen. {why}"


async def _ruled(writer: Writer, bill: Bill, hand: Hand, subject: Judging) -> tuple[str, str]:
    """Who was chosen, and why, in words to show."""
    ruling = await rule(writer, bill, hand, subject)
    if ruling is None:
        return subject.results[0].task, "The judge's ruling could not be read, so this is the first that succeeded."
    count = len(ruling.agree)
    agreed = f"{count} of {len(subject.results)} say the same, as the judge reads them. " if count > 1 else ""
    return ruling.winner, agreed + (f"Why: {ruling.why.rstrip('.')}." if ruling.why else "No reason was given.")


def ballot(value: object) -> str:
    """What a result votes for: results with the same ballot say the same."""
    if said := verdict(value):
        return said
    text = " ".join(shown(Given(task="", instruction="", worker="", value=value)).split())
    found = list(find_quantities(text))
    words = _words(text)
    if len(found) == 1 and len(words) <= _SHORT:
        number = found[0].readings[0][0].normalize()
        cut = f"{text[: found[0].start]} {text[found[0].end :]}"
        rest = sorted(set(_words(cut)) - _FILLER)
        return f"{number:f} {' '.join(rest)}"
    return " ".join(words)


def _words(text: str) -> list[str]:
    return split_words(text.replace("%", " percent "))


def _by_id(results: Sequence[Given], task: str) -> Given:
    return next((one for one in results if one.task == task), results[0])


def _ids(results: Sequence[Given]) -> str:
    return ", ".join(f"[{one.task}]" for one in results)


def _excerpt(given: Given) -> str:
    text = " ".join(shown(given).split())
    return text if len(text) <= _EXCERPT else f"{text[:_EXCERPT].rsplit(' ', 1)[0]} …"
