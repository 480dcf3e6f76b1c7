"""The honesty rule: a clause is served only by a call that accounts for every word, number, date and name of it.

Each way to serve a clause keeps an `Account` of it: which of its words the call takes as arguments, and which ones the
tool, the tables or the passage say themselves. What is left in the end makes the clause a gap.
"""

from collections.abc import Set as AbstractSet

from chargehand.models.demo.request import Clause, RefusedError
from chargehand.models.demo.words import Token
from chargehand.text.dates import Date
from chargehand.text.words import join_words


class Account:
    """The words and periods of a clause, and which of them are accounted for."""

    def __init__(self, clause: Clause) -> None:
        self.clause = clause
        self.used: set[int] = set()
        """The places of the words that are accounted for."""
        self.used_periods: set[Date] = set()

    def use_span(self, start: int, end: int) -> None:
        """Account for all words between two places of the text."""
        self.used.update(at for at, token in enumerate(self.clause.tokens) if start <= token.start < end)

    def use_words(self, keys: AbstractSet[str]) -> None:
        """Account for all words with these keys."""
        self.used.update(at for at, token in enumerate(self.clause.tokens) if token.key in keys)

    @property
    def open_words(self) -> dict[int, Token]:
        """The words that are not accounted for yet, by their places; little words say nothing."""
        tokens = enumerate(self.clause.tokens)
        return {at: token for at, token in tokens if at not in self.used and not token.is_free}

    @property
    def understood(self) -> int:
        """How many words are accounted for."""
        return len(self.clause.content) - len(self.open_words)

    @property
    def leftover(self) -> list[str]:
        """Words and periods that are not accounted for."""
        words = [token.text for token in self.open_words.values()]
        return words + [period.text for period in self.clause.periods if period not in self.used_periods]

    def settle(self, problem: str) -> None:
        """RefusedError with the problem and the words it is about, unless everything is accounted for."""
        if self.leftover:
            raise RefusedError(
                f"{problem} {join_words([repr(words) for words in self.leftover])}", understood=self.understood
            )
