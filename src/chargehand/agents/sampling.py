"""One request put to one worker several times, side by side: how often, and in which words. A judge picks later."""

from collections.abc import Sequence

from chargehand.agents.crew import Hand
from chargehand.agents.lead import Lead
from chargehand.agents.worker import Worker
from chargehand.models.model import Model
from chargehand.terms.budget import NOTHING, Amount

MOST = 10
_CALL = (1000, 1000)  # tokens in and out of a call, where nobody said what a task takes


def expected(worker: Worker, models: Sequence[Model]) -> Amount:
    """What one sample is taken to cost at least: what its worker is estimated at, and a call of its model."""
    guess = worker.estimate
    price = max((model.card.price(*_CALL) or 0 for model in models), default=0)
    return guess.max(Amount(tokens=sum(_CALL), micros=price, calls=1))


async def affordable(samples: int, worker: str, lead: Lead, hand: Hand) -> int:
    """How many samples of this worker's there is money and room for; one in any case."""
    wanted = min(samples, max(1, lead.most_tasks))
    one = NOTHING if lead.sample is None else lead.sample(worker)
    count = 1 + await hand.afford(one, wanted - 1) if wanted > 1 else 1
    if count < samples:
        hand.note(f"{count} of {samples} samples: what is left does not cover more")
    return count


def told_apart(goal: str, number: int, count: int) -> str:
    """The request for one sample. A mark tells them apart, so that none passes for another one done twice."""
    return f"{goal}\n\nAnswer on your own: this is sample S{number}." if count > 1 else goal
