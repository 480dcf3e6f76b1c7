"""Who is taken for whom: a matrix of what was wanted and what was got, and what follows for each label. Pure."""

from collections import Counter
from collections.abc import Sequence

from msgspec import Struct

from chargehand.evals.scores import Score, Table

_MOST = 50  # labels that a table shows
_GLANCE, _SHOWN = 8, 20  # labels that are taken in at a glance; sorts of mistakes that are listed


class Class(Struct, frozen=True):
    """One label: how often it was wanted, got, and both."""

    label: str
    wanted: int
    got: int
    right: int

    @property
    def precision(self) -> float:
        return self.right / self.got if self.got else 0.0

    @property
    def recall(self) -> float:
        return self.right / self.wanted if self.wanted else 0.0

    @property
    def f1(self) -> float:
        return 2 * self.right / (self.wanted + self.got) if self.wanted + self.got else 0.0


class Confusion(Struct, frozen=True):
    """`counts` by what was wanted and what was got; `classes` are the labels that occur, in the order of the team."""

    classes: tuple[Class, ...]
    counts: dict[tuple[str, str], int]

    @property
    def macro_f1(self) -> float:
        """The mean over the labels that were wanted: a rare one counts as much as a common one."""
        asked = [one.f1 for one in self.classes if one.wanted]
        return sum(asked) / len(asked) if asked else 0.0

    def mistakes(self) -> Table | None:
        """Who was taken for whom, the commonest first; None where that is seen at a glance from the matrix."""
        wrong = sorted(((count, *pair) for pair, count in self.counts.items() if pair[0] != pair[1]), reverse=True)
        if len(self.classes) <= _GLANCE or not wrong:
            return None
        rows = tuple((wanted, got, str(count)) for count, wanted, got in wrong[:_SHOWN])
        left = f", {_SHOWN} of {len(wrong)} sorts" if len(wrong) > _SHOWN else ""
        return Table(f"The commonest mistakes{left}", ("wanted", "got", "cases"), rows)

    def table(self) -> Table:
        """A row for each label that was wanted, a column for each that was got; of many, those with most mistakes."""
        worst = sorted(self.classes, key=lambda one: 2 * one.right - one.wanted - one.got)[:_MOST]
        known = [one for one in self.classes if one in worst]
        rows = [one.label for one in known if one.wanted]
        columns = [one.label for one in known]
        cells = [[self.counts.get((row, column), 0) for column in columns] for row in rows]
        asked = {one.label: one.wanted for one in known}
        whole = [max(1, asked[row]) for row in rows]
        left = f": the {_MOST} of {len(self.classes)} with most mistakes" if len(self.classes) > _MOST else ""
        return Table(
            f"Wanted (rows) and got (columns){left}",
            ("", *columns),
            tuple((row, *(str(cell) if cell else "·" for cell in line)) for row, line in zip(rows, cells, strict=True)),
            tuple((0.0, *(cell / all_ for cell in line)) for all_, line in zip(whole, cells, strict=True)),
        )


def confusion(scores: Sequence[Score], order: Sequence[str]) -> Confusion:
    """The matrix of these cases."""
    counts = Counter((one.wanted, one.got) for one in scores)
    wanted, got = Counter(one.wanted for one in scores), Counter(one.got for one in scores)
    known = dict.fromkeys([*order, *wanted, *got])
    labels = [name for name in known if wanted[name] or got[name]]
    classes = tuple(Class(name, wanted[name], got[name], counts[name, name]) for name in labels)
    return Confusion(classes, dict(counts))
