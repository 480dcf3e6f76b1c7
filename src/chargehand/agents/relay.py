"""A hand that passes everything on to another: whoever stands in between says only what is different with it."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from chargehand.agents.crew import Claim, Done, Hand, Where
from chargehand.models.messages import Message
from chargehand.terms.budget import NOTHING, Amount
from chargehand.terms.events import Effect, Failure, NoteCode
from chargehand.terms.plan import Task

_Shape = TypeVar("_Shape")


class Relay:
    """As it is, nobody notices it."""

    __slots__ = ("_hand",)

    def __init__(self, hand: Hand) -> None:
        self._hand = hand

    async def step(
        self,
        name: str,
        call: Callable[[str], Awaitable[Done]],
        *,
        request: str = "",
        effect: Effect = "read",
        reserve: Amount | Claim = NOTHING,
        share: bool = False,
        shape: type[_Shape] = object,
    ) -> _Shape:
        return await self._hand.step(
            name, call, request=request, effect=effect, reserve=reserve, share=share, shape=shape
        )

    async def afford(self, one: Amount, most: int) -> int:
        return await self._hand.afford(one, most)

    async def hold(self, claim: Claim, covered: Amount) -> bool:
        return await self._hand.hold(claim, covered)

    def release(self, amount: Amount) -> None:
        self._hand.release(amount)

    @property
    def where(self) -> Where:
        return self._hand.where

    def prompt(self, model: str, messages: Sequence[Message], tools: tuple[str, ...] = ()) -> None:
        self._hand.prompt(model, messages, tools)

    @property
    def heard(self) -> bool:
        return self._hand.heard

    def say(self, text: str) -> None:
        self._hand.say(text)

    async def grow(self, tasks: Sequence[Task]) -> None:
        await self._hand.grow(tasks)

    def note(self, text: str, failure: Failure | None = None, code: NoteCode = "") -> None:
        self._hand.note(text, failure, code)
