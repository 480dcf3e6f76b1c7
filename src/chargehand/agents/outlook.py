"""What a plan will take, with dollars, as it is told. How they are reckoned is the business of `outlay`."""

from msgspec import Struct

from chargehand.terms.forecast import Forecast
from chargehand.terms.plan import TaskId


class Share(Struct, frozen=True):
    """Dollars for one task, or (without one) for the answer; null: nobody knows, or there is no most.

    `about` is what is usual, the others are bounds.
    """

    task: TaskId
    worker: str
    model: str
    least: float | None
    about: float | None
    most: float | None


class Outlay(Struct, frozen=True):
    """Dollars for a whole plan. `unknown` are models nobody knows the price of: then there is no sum.

    `grows` says why there is no most but the budget's. `rests_on` says in words what is taken for granted.
    """

    least: float | None
    about: float | None
    most: float | None
    tasks: tuple[Share, ...]
    answer: Share
    unknown: tuple[str, ...] = ()
    grows: str = ""
    rests_on: str = ""
    budget: float | None = None

    @property
    def too_much(self) -> bool:
        """Whether even the least is above the budget."""
        return self.least is not None and self.budget is not None and self.least > self.budget


class Outlook(Forecast, frozen=True, omit_defaults=True):
    """A forecast with dollars."""

    usd: Outlay | None = None
