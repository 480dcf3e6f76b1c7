"""How much of a request an answer covers, and how far it can be relied on. Pure.

Whether the results themselves are right is not known here: only what can be counted is.
"""

import re
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from chargehand.agents.claims import Claim
from chargehand.agents.judging import Settled
from chargehand.models.subject import Given
from chargehand.terms.failure import Gap
from chargehand.terms.plan import Task, needs

_MOST = 0.8  # of the parts: below, the confidence is not high
_HALF = 0.5
_FEW = 2  # parts or fewer: the gap itself says how much is missing
_MANY = 3  # statements that are not borne out
Confidence = Literal["high", "medium", "low"]

_WORD = re.compile(r"\w+")


class Coverage(Struct, frozen=True):
    """Which parts are covered, which are not, which results the answer does not cite, and what follows from it."""

    covered: tuple[str, ...]
    missing: tuple[str, ...]
    unused: tuple[str, ...]
    confidence: Confidence
    why: str
    worth_saying: bool

    @property
    def parts(self) -> int:
        return len(self.covered) + len(self.missing)

    @property
    def share(self) -> float:
        return len(self.covered) / self.parts if self.parts else 1.0

    def line(self) -> str:
        """To be read below the answer."""
        what = f"{len(self.covered)} of {self.parts} parts"
        return f"Coverage: {what}; confidence {self.confidence} because {self.why}."


def coverage(
    answer: str,
    results: Sequence[Given],
    tasks: Sequence[Task],
    gaps: Sequence[Gap],
    claims: Sequence[Claim] = (),
    settled: Sequence[Settled] = (),
) -> Coverage:
    """How an answer stands to the plan it is made from."""
    covered = tuple(one.task for one in results if one.value is not None)
    missing = tuple(gap.task or gap.message for gap in gaps)
    done, said = set(covered), set(_WORD.findall(answer))
    cited = {one for one in covered if one in said or (not one.isalnum() and _cited(one, answer))}
    read = {name for task in tasks if task.id in done for name, _ in needs(task)} if cited else done
    unused = tuple(one for one in covered if one not in read and one not in cited)
    share = len(covered) / max(1, len(covered) + len(missing))
    still_open = [one for one in settled if one.ruling is None or not one.ruling.winner]
    return Coverage(
        covered,
        missing,
        unused,
        _confidence(share, len(claims), len(settled), len(still_open)),
        _why(len(claims), len(settled), len(still_open), len(missing) if share < _MOST else 0),
        bool(claims or settled) or (bool(missing) and len(covered) + len(missing) > _FEW),
    )


def _confidence(share: float, claims: int, settled: int, still_open: int) -> Confidence:
    if claims >= _MANY or still_open or share < _HALF:
        return "low"
    return "medium" if claims or settled or share < _MOST else "high"


def _why(claims: int, settled: int, still_open: int, missing: int) -> str:
    said: list[str] = []
    if claims:
        said.append(f"{_count(claims, 'statement')} not found in the results")
    if ruled := settled - still_open:
        said.append(f"{_count(ruled, 'contradiction')} ruled on")
    if still_open:
        said.append(f"{_count(still_open, 'contradiction')} open")
    if missing:
        said.append(f"{_count(missing, 'part')} not answered")
    borne = "" if claims else "every number, address and quotation stands in a result"
    if not said:
        return borne
    listed = ", ".join(said[:-1]) + (" and " if len(said) > 1 else "") + said[-1]
    return f"{listed}, though {borne}" if borne else listed


def _count(number: int, what: str) -> str:
    return f"1 {what} is" if number == 1 else f"{number} {what}s are"


def _cited(task: str, answer: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(task)}(?!\w)", answer) is not None
