import msgspec
import pytest

from chargehand.models.messages import Message, Request
from chargehand.models.model import Model, ModelFailed
from chargehand.models.offline.model import OfflineModel
from chargehand.models.subject import Answering, Given, Making, Planning, Refining, Subject, WorkerCard, Working
from tests.models.offline.teams import CALCULATE, RETAIL, Plan

CARD = WorkerCard("reckoner", "does arithmetic", (), (CALCULATE,))


def asked(subject: Subject | None, said: str = "Prose that this model does not read.") -> Request:
    return Request((Message("system", "You are here."), Message("user", said)), subject=subject)


def test_it_is_labelled_as_no_language_model() -> None:
    model: Model = OfflineModel()
    assert model.card.handle == "offline"
    assert model.card.native_tools
    assert model.card.schema
    assert "No language model was asked" in model.card.notice


async def test_planning_gives_a_plan_and_is_heard_word_by_word() -> None:
    heard: list[str] = []
    reply = await OfflineModel().reply(asked(Planning("What was revenue in May 2026?", RETAIL, 9)), heard.append)
    assert [task["worker"] for task in msgspec.json.decode(reply.text, type=Plan)["tasks"].values()] == ["analyst"]
    assert "".join(heard) == reply.text
    assert len(heard) > 5


async def test_each_subject_has_its_own_rules() -> None:
    model = OfflineModel()
    refined = await model.reply(asked(Refining("Find Rme.", "unknown city 'Rme'; did you mean 'Rome'?", CARD)))
    assert refined.text.startswith("Find Rome.")
    answered = await model.reply(asked(Answering("g", (Given("t1", "Count.", "w", 7),))))
    assert answered.text == "7 [t1]\n"
    made = await model.reply(asked(Making("What is 3 * 4?", (CALCULATE,))))
    assert '"tools":["calculate"]' in made.text


async def test_it_costs_nothing_and_says_how_much_it_read() -> None:
    reply = await OfflineModel().reply(asked(Answering("g", (Given("t1", "Count.", "w", 7),)), "x" * 400))
    assert reply.micros == 0
    assert reply.usage is not None
    assert reply.usage.input > 100
    assert reply.model == "offline"


async def test_work_goes_to_the_worker_half_with_a_subject_or_without() -> None:
    request = asked(Working("Work out 12 * 4.", CARD), "Work out 12 * 4.")
    one = await OfflineModel().reply(request)
    other = await OfflineModel().reply(asked(None, "Work out 12 * 4."))
    assert one.calls or one.text
    assert other.calls or other.text


async def test_being_asked_nothing_is_a_failure() -> None:
    for request in (Request(()), asked(None, "  ")):
        with pytest.raises(ModelFailed, match="asked nothing"):
            await OfflineModel().reply(request)


async def test_what_breaks_the_rules_fails_as_a_model_does() -> None:
    class Odd:
        def embed(self, texts: object) -> list[list[float]]:
            raise RuntimeError("no vectors today")

    with pytest.raises(ModelFailed, match="no vectors today") as failed:
        await OfflineModel(Odd()).reply(asked(Planning("What was revenue?", RETAIL, 9)))
    assert failed.value.failure.permanent
