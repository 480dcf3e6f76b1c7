"""Listens to a model that is streamed."""

from chargehand.engine.state import TextKind
from chargehand.models.model import Hear


class Heard:
    """What was heard: the pieces of the answer, and those of thoughts."""

    def __init__(self) -> None:
        self.answer: list[str] = []
        self.thoughts: list[str] = []

    def __call__(self, text: str, kind: TextKind = "answer", /) -> None:
        (self.answer if kind == "answer" else self.thoughts).append(text)


def hear_answer(pieces: list[str]) -> Hear:
    """Return what adds the pieces of an answer to a list, and passes over thoughts."""
    heard = Heard()
    heard.answer = pieces
    return heard
