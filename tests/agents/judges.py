"""What the tests of answers share: somebody who writes them, and a desk that keeps what was noted."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

from chargehand.agents.prompts import Prompts
from chargehand.agents.spending import Spending
from chargehand.agents.writer import Writer
from chargehand.engine import events as ev
from chargehand.engine.budget import NOTHING, Amount, Budget
from chargehand.engine.events import Effect, NotedFact, StepKind
from chargehand.engine.failure import Failure
from chargehand.engine.plan import Task
from chargehand.engine.state import TextKind
from chargehand.models.messages import Settings
from chargehand.models.model import Model
from chargehand.runtime.executor import Claim, Done, KeptReply, NestedRequest, NestedRun, PromptMessage, Where
from chargehand.runtime.load import WorkerLoad

_Shape = TypeVar("_Shape")


def writer(model: Model, **settings: object) -> Writer:
    return Writer(model, Prompts(), "", Settings(**settings), Spending(Budget()))  # pyright: ignore[reportArgumentType] - of one test


class Desk:
    """A context without a journal: it keeps notes and prompts, and takes no steps."""

    heard = False
    where = Where("run", "", "", planned=True)
    route_examples = None

    def __init__(self, spending: int | None = None) -> None:
        self.spending = spending  # calls that can be paid for; None: any number
        self.held: list[int] = []
        self.notes: list[str] = []
        self.prompts: list[Sequence[PromptMessage]] = []

    @property
    def request(self) -> ev.RunRequested:
        raise NotImplementedError

    async def start_run(self, key: str, nested: NestedRequest) -> NestedRun:
        raise NotImplementedError

    async def run_share(self, estimate: Amount, own: Budget) -> Amount:
        raise NotImplementedError

    async def read_file(self, file: str) -> bytes:
        raise AssertionError(f"an answer reads no files: {file}")

    async def keep_file(self, name: str, media_type: str, body: bytes) -> tuple[ev.FileReference, str]:
        raise AssertionError(f"an answer keeps no files: {name}")

    def worker_loads(self) -> Mapping[str, WorkerLoad]:
        return {}

    def expect_work(self, workers: Sequence[str]) -> None: ...

    async def step(
        self,
        name: str,
        call: Callable[[str], Awaitable[Done]],
        *,
        kind: StepKind = "tool",
        request: str = "",
        effect: Effect = "read",
        reserve: Amount | Claim = NOTHING,
        shape: type[_Shape] = object,
        tool_call: str = "",
        arguments: str = "",
        look: bool = False,
    ) -> _Shape:
        raise AssertionError(f"an answer takes no steps: {name}")

    async def hold(self, claim: Claim, *, extra: bool = False) -> bool:
        if self.spending == 0:
            return False
        if self.spending is not None:
            self.spending -= 1
        claim.held = claim.wanted
        return True

    def release(self, amount: Amount) -> None: ...

    def model_call(self) -> AbstractContextManager[int]:
        return nullcontext(1)

    def record_call(
        self,
        model: str,
        seconds: float,
        tokens: Mapping[str, int],
        used: Amount | None,
        call: int = 0,
        expected: Amount | None = None,
        kept: KeptReply | None = None,
    ) -> None:
        pass

    def recorded_reply(self, request: str) -> str | None:
        return None

    def prompt(self, model: str, messages: Sequence[PromptMessage], tools: tuple[str, ...] = ()) -> None:
        self.prompts.append(messages)

    def say(self, text: str, kind: TextKind = "answer", /) -> None: ...

    async def grow(self, tasks: Sequence[Task]) -> None: ...

    def note(self, text: str, failure: Failure | None = None, fact: NotedFact | None = None) -> None:
        self.notes.append(text)
