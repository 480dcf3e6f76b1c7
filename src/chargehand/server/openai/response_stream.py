"""A response as it comes: its reasoning (how far the run is), then its message, in the events OpenAI's clients know."""

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing

from chargehand.server.openai.ear import Ear
from chargehand.server.openai.heard import Progress, Words, heard
from chargehand.server.openai.outcome import Told
from chargehand.server.openai.problem import AboutRun, error_of
from chargehand.server.openai.response_told import Head, completed, failed, message, part, reasoning, response
from chargehand.server.problem import Problem, problem_of
from chargehand.server.streams import event
from chargehand.server.tenants import Tenant


class ResponseEvents:
    """Writes the events of one response, numbered, every item opened and closed in order."""

    def __init__(self, head: Head) -> None:
        self._head = head
        self._number = 0
        self._thoughts = ""
        self._text = ""
        self._items: list[dict[str, object]] = []
        self._thinking = self._speaking = False

    def begin(self, notice: str) -> Iterator[bytes]:
        for kind in ("created", "in_progress"):
            yield self._event(f"response.{kind}", response=response(self._head, "in_progress", []))
        if notice:
            yield from self.think(f"{notice}\n")

    def think(self, text: str) -> Iterator[bytes]:
        if self._speaking:
            return  # an answer that has begun is not interrupted
        where = {"item_id": self._head.reasoning, "output_index": 0, "summary_index": 0}
        if not self._thinking:
            self._thinking = True
            yield self._event("response.output_item.added", output_index=0, item=reasoning(self._head, None))
            yield self._event("response.reasoning_summary_part.added", **where, part=_summary(""))
        self._thoughts += text
        yield self._event("response.reasoning_summary_text.delta", **where, delta=text)

    def speak(self, text: str) -> Iterator[bytes]:
        if not self._speaking:
            yield from self._think_no_more()
            self._speaking = True
            item = message(self._head, None)
            yield self._event("response.output_item.added", output_index=len(self._items), item=item)
            yield self._event("response.content_part.added", **self._where, part=part(""))
        self._text += text
        yield self._event("response.output_text.delta", **self._where, delta=text, logprobs=[])

    def end(self, came: Told) -> Iterator[bytes]:
        if not self._speaking:
            yield from self.speak("")
        yield self._event("response.output_text.done", **self._where, text=self._text, logprobs=[])
        yield self._event("response.content_part.done", **self._where, part=part(self._text))
        item = message(self._head, self._text)
        yield self._event("response.output_item.done", output_index=len(self._items), item=item)
        self._items.append(item)
        yield self._event("response.completed", response=completed(self._head, came, self._items))

    def fail(self, problem: Problem) -> Iterator[bytes]:
        if isinstance(problem, AboutRun):
            yield self._event("response.failed", response=failed(self._head, problem))
            return
        error = error_of(problem)
        yield self._event("error", code=error["code"], message=error["message"], param=None)

    @property
    def _where(self) -> dict[str, object]:
        return {"item_id": self._head.message, "output_index": len(self._items), "content_index": 0}

    def _think_no_more(self) -> Iterator[bytes]:
        if not self._thinking:
            return
        where = {"item_id": self._head.reasoning, "output_index": 0, "summary_index": 0}
        yield self._event("response.reasoning_summary_text.done", **where, text=self._thoughts)
        yield self._event("response.reasoning_summary_part.done", **where, part=_summary(self._thoughts))
        item = reasoning(self._head, self._thoughts)
        yield self._event("response.output_item.done", output_index=0, item=item)
        self._items.append(item)

    def _event(self, kind: str, **rest: object) -> bytes:
        told = {"type": kind, "sequence_number": self._number, **rest}
        self._number += 1
        return event(told, name=kind)


def _summary(text: str) -> dict[str, object]:
    return {"type": "summary_text", "text": text}


async def events(tenant: Tenant, head: Head, ear: Ear, notice: str) -> AsyncGenerator[bytes]:
    """Events, several at a time where they come together."""
    writer = ResponseEvents(head)
    yield b"".join(writer.begin(notice))
    async with aclosing(heard(tenant, head.run, ear)) as parts:
        try:
            async for one in parts:
                if isinstance(one, Progress):
                    found = b"".join(writer.think(one.text))
                elif isinstance(one, Words):
                    found = b"".join(writer.speak(one.text))
                else:
                    found = b"".join(writer.end(one))
                if found:  # nothing would be taken for the end
                    yield found
        except Exception as error:  # noqa: BLE001 - the status was sent long ago, so it is said in the stream
            yield b"".join(writer.fail(problem_of(error)))
