"""Learned token counts at work: windows, reservations and rate limits follow them, resumed attempts do not change."""

import re
from collections.abc import Sequence

import msgspec
import pytest
from msgspec import structs

from chargehand.agents.inputs import WorkerHistory
from chargehand.agents.roles import Worker
from chargehand.agents.spending import Spending
from chargehand.engine import events as ev
from chargehand.engine.budget import Budget
from chargehand.journal.memory import MemoryJournal
from chargehand.memory.catalog import Memory
from chargehand.models.guard import Guarded
from chargehand.models.limits import Limiter, Pace, Ticket
from chargehand.models.messages import Message, Reply, Request, Settings, Usage
from chargehand.models.model import ModelCard
from chargehand.models.testing.scripted import Line, ScriptedModel
from chargehand.models.token_count import TokenRates, measure_request
from chargehand.team import Team
from chargehand.tools.tool import tool
from tests.agents.crowd import call, calls, model, team

SMALL = ModelCard("small", window=4_000, micros_in=0.0, micros_out=0.0)
ROWS = 8
_NONCE = re.compile(r"\bd[0-9a-f]{15}\b")


@tool
def rows(number: int) -> str:
    """Return some rows of a table."""
    return f"table {number} of many\n" + "\n".join(f"{number * 31 + n},{n * 7919},{n / 7:.3f}" for n in range(60))


def place(request: Request) -> int:
    """Return the number of the last table that a request shows; 0: none yet."""
    return max((int(found) for one in request.messages for found in re.findall(r"table (\d+) of", one.text)), default=0)


def estimated(request: Request) -> int:
    """Return the tokens of a request, whatever the number of its envelopes is."""
    messages = [structs.replace(one, text=_NONCE.sub("N", one.text)) for one in request.messages]
    return TokenRates().estimate(measure_request(structs.replace(request, messages=messages)))


class Counting:
    """A model that reads one table after the other, and counts `factor` times as many tokens as are estimated."""

    def __init__(self, factor: float) -> None:
        self.factor = factor
        self.script = model(work=self._work, card=SMALL)

    def _work(self, request: Request) -> Line:
        at = place(request)
        usage = Usage(int(self.factor * estimated(request)), 5)
        reply = Reply("done") if at == ROWS else calls(call("rows", at + 1, number=at + 1))
        return Reply(reply.text, reply.calls, reply.finish, usage)


def counting(factor: float) -> ScriptedModel:
    return Counting(factor).script


def crew(script: ScriptedModel, journal: MemoryJournal | None = None, *, remembers: bool = False) -> Team:
    worker = Worker("ann", tools=[rows], steps=ROWS + 2, remembers=remembers)
    memory = Memory() if remembers else None
    return team(script, worker, journal=journal, memory=memory, name="team")


def shown(script: ScriptedModel) -> dict[int, list[str]]:
    """What a worker was shown at each place."""
    working = [one for one in script.requests if one.tools]
    return {place(one): [_NONCE.sub("N", message.text) for message in one.messages] for one in working}


async def cut(entries: Sequence[ev.Entry], at: int) -> MemoryJournal:
    journal = MemoryJournal()
    lease = await journal.claim("r", new=True)
    await journal.append(lease, entries[:at])
    await journal.release(lease)
    return journal


@pytest.mark.parametrize("remembers", [False, True])
async def test_a_resumed_attempt_shows_its_model_the_same_whatever_was_learned_since(*, remembers: bool) -> None:
    first = counting(1.6)
    whole = await crew(first, remembers=remembers).run("Count", run="r")
    assert whole.ending == "complete"
    assert len(shown(first)[ROWS]) < 2 + 2 * ROWS, "something was left out"
    steps = [one.seq for one in whole.entries if isinstance(one.event, ev.StepFinished)]
    for at in range(steps[1], steps[-3], 3):
        other = Counting(4.0)
        async with crew(other.script, await cut(whole.entries, at), remembers=remembers) as again:
            await again.run("Count")
            other.script.requests.clear()
            other.factor = 1.6
            assert (await again.resume("r")).ending == "complete"
        told = shown(other.script)
        assert told, at
        assert told == {number: shown(first)[number] for number in told}, at


def test_the_number_of_the_envelopes_does_not_change_what_is_left_out() -> None:
    def left(nonce: str) -> list[str]:
        brief = (Message("system", "s"), Message("user", f"<data {nonce}>u</data {nonce}>"))
        history = WorkerHistory(brief, 3_000, nonce)
        for number in range(80):
            history.add(Message("user", f"<data {nonce}>{number}</data {nonce}>"))
            history.add(Message("assistant", "more"))
            history.fit()
        return [message.text.replace(nonce, "N") for message in history.messages]

    assert left("d" + "a" * 15) == left("d" + "7a" * 7 + "1") != []


async def test_a_window_is_filled_by_what_the_model_counts() -> None:
    sizes: dict[float, int] = {}
    for factor in (0.7, 1.0, 2.0):
        script = counting(factor)
        assert (await crew(script).run("Count")).ending == "complete"
        working = [one for one in script.requests if one.tools]
        true = [factor * TokenRates().estimate(measure_request(one)) for one in working]
        assert max(true[2:]) <= SMALL.window
        sizes[factor] = max(sum(len(message.text) for message in one.messages) for one in working[2:])
    assert sizes[0.7] > sizes[2.0]


def test_a_history_far_below_its_window_is_not_measured() -> None:
    brief = (Message("system", "s"), Message("user", "u"))
    history = WorkerHistory(brief, 128_000)
    history.add(Message("tool", "row " * 1_000))
    assert (history.is_short, history.tokens, history.fit()) == (True, 0, False)
    history.add(Message("tool", "9,9," * 10_000))
    assert not history.is_short
    assert history.tokens > 30_000


async def test_what_is_reserved_follows_what_the_model_counts() -> None:
    script = ScriptedModel(lambda _: Reply("yes", usage=Usage(5_000, 1)), card=SMALL)
    spending = Spending(Budget(tokens=1_000_000))
    request = Request((Message("user", "12,34,56\n" * 500),), settings=Settings(max_tokens=100))
    size = measure_request(request)
    rates = spending.observations.of(script).rates
    before = spending.reserve([script], request).most_read(script)
    for _ in range(4):
        rates.learn(size, 5_000)
    reservation = spending.reserve([script], request)
    assert reservation.read(script) == pytest.approx(5_000, rel=0.15)
    assert reservation.most_read(script) >= 5_000
    assert reservation.most_read(script) > before
    assert reservation.make_claim().wanted.tokens >= 5_100


async def test_a_rate_limit_counts_what_the_model_counts() -> None:
    true = 4_000
    asked: list[int] = []

    class Noting(Limiter):
        async def enter(self, tokens: int = 0) -> Ticket:
            asked.append(tokens)
            return await super().enter(tokens)

    script = ScriptedModel(lambda _: Reply("yes", usage=Usage(true, 1)), card=SMALL)
    guarded = Guarded(script, limiter=Noting(Pace(tokens_per_minute=10**9)))
    request = Request((Message("user", "12,34,56\n" * 300),), settings=Settings(max_tokens=1))
    for _ in range(4):
        await guarded.reply(request)
    assert asked[0] < 0.85 * true
    assert asked[3] == pytest.approx(true, rel=0.15)


async def test_what_was_learned_without_a_cap_is_there_when_memory_is_looked_at() -> None:
    script = counting(2.0)
    async with crew(script, remembers=True) as again:
        first = await again.run("Count")
        second = await again.run("Count")

    def rates(entries: Sequence[ev.Entry]) -> list[float]:
        done = [one.event for one in entries if isinstance(one.event, ev.StepFinished)]
        return msgspec.json.decode(done[0].result).get("rates", [])

    assert rates(first.entries) == []
    assert sum(rates(second.entries)) > 1.1 * len(TokenRates().ratios)


def test_the_first_look_of_an_attempt_keeps_what_was_known() -> None:
    rates = TokenRates()
    rates.restore([2.0] * len(rates.ratios))
    assert rates.ratios == [2.0] * len(rates.ratios)
    rates.restore([3.0])
    assert rates.ratios == [2.0] * len(rates.ratios), "of a version with other kinds"
