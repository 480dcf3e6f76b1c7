"""How well somebody checks: results that are known to be wrong are put before them, and those they notice counted.

Who checks, and in what words, is not known here. It measures; it mends nothing.
"""

import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from random import Random

from msgspec import Struct

_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_SENTENCE = re.compile(r"(?<=[.!?])\s+")
_TURNS = (
    (" is not ", " is "), (" are not ", " are "), (" was not ", " was "), (" is ", " is not "), (" are ", " are not "),
    (" was ", " was not "), (" were ", " were not "), (" has ", " has never "), (" before ", " after "),
    (" more ", " less "), (" highest ", " lowest "), (" most ", " least "),
)  # fmt: skip


class Mutant(Struct, frozen=True):
    """A result with one thing made wrong. `kind` is one of: number, turned, swapped, dropped."""

    kind: str
    text: str


class CatchRate(Struct, frozen=True):
    """What somebody made of results: of the wrong ones `caught` were noticed, of the right ones `refused` were not.

    `missed` are the wrong ones that passed.
    """

    mutants: int
    caught: int
    good: int
    refused: int
    missed: tuple[Mutant, ...] = ()

    @property
    def rate(self) -> float:
        """The share of wrong results that were noticed; 0 where there were none to notice."""
        return self.caught / self.mutants if self.mutants else 0.0


def mutants(text: str, chance: Random) -> tuple[Mutant, ...]:
    """Wrong versions of a right text, at most one of each kind; the same chance makes the same ones."""
    made = [one for one in _made(text, chance) if one.text != text]
    return tuple({one.text: one for one in made}.values())


def _made(text: str, chance: Random) -> Iterator[Mutant]:
    numbers = list(_NUMBER.finditer(text))
    if numbers:
        one = chance.choice(numbers)
        yield Mutant("number", f"{text[: one.start()]}{_other(one.group(), chance)}{text[one.end() :]}")
    turns = [(old, new) for old, new in _TURNS if old in text]
    if turns:
        yield Mutant("turned", text.replace(*turns[0], 1))
    different = [(a, b) for a in numbers[:50] for b in numbers[:50] if a.start() < b.start() and a.group() != b.group()]
    if different:
        first, second = chance.choice(different)
        between = text[first.end() : second.start()]
        swapped = f"{text[: first.start()]}{second.group()}{between}{first.group()}{text[second.end() :]}"
        yield Mutant("swapped", swapped)
    sentences = _SENTENCE.split(text)
    if len(sentences) > 1:
        gone = chance.randrange(len(sentences))
        yield Mutant("dropped", " ".join(one for at, one in enumerate(sentences) if at != gone))


def _other(number: str, chance: Random) -> str:
    """The number with its first digit changed: wrong by enough to matter."""
    first = chance.choice([digit for digit in "123456789" if digit != number[0]])
    return first + number[1:]


async def catch_rate(approves: Callable[[str], Awaitable[bool]], good: Sequence[str], chance: Random) -> CatchRate:
    """Put right results and wrong versions of them before somebody who `approves` them or not, one at a time."""
    refused = 0
    wrong: list[Mutant] = []
    missed: list[Mutant] = []
    for text in good:
        refused += not await approves(text)
        for mutant in mutants(text, chance):
            wrong.append(mutant)
            if await approves(mutant.text):
                missed.append(mutant)
    return CatchRate(len(wrong), len(wrong) - len(missed), len(good), refused, tuple(missed))
