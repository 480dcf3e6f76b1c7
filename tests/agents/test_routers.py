"""Routers: whom they choose, how sure they are, and that nothing is calibrated on what is stored."""

import math
import os
import random
import struct
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from chargehand.agents.routing.decision import Decision, shift_by_load
from chargehand.agents.routing.space import ENOUGH
from chargehand.agents.routing.words import by_rules, by_tags, by_words, worker_texts
from chargehand.agents.strategies.route import LEAST, by_meaning, fit_meaning, is_clear, read_decision, route_schema
from chargehand.engine.json_schema import problems
from chargehand.errors import Invalid, StoreUnavailable
from chargehand.models.demo.model import DemoModel
from chargehand.models.embeddings import LocalEmbedding
from chargehand.models.local import pull
from chargehand.models.messages import Request
from chargehand.models.request_facts import Routing, WorkerCard
from chargehand.runtime.load import WorkerLoad

MODELS = Path(os.environ.get("CHARGEHAND_MODELS") or Path(__file__).parents[2] / ".venv" / "models")
TEAM = (
    WorkerCard("baker", "bakes bread, cakes and oven rolls", ("oven",), phrases=("bake a cake", "sell bread")),
    WorkerCard(
        "smith", "forges nails, gates and horseshoes", ("iron", "fire"), phrases=("shoe a horse", "mend a gate")
    ),
    WorkerCard("clerk", "writes letters and pays bills", ("paper",), phrases=("write a letter", "pay a bill")),
)
WORDS = ("cake", "bread", "oven", "gate", "horse", "nail", "letter", "bill", "stamp")
OWNER = {word: TEAM[at // 3].name for at, word in enumerate(WORDS)}


class Bag:
    """An embedding made of counted words: texts are alike as far as they share them."""

    handle = "bag"
    width = 12

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        self.asked.append(list(texts))
        return [self._vector(text) for text in texts]

    def _vector(self, text: str) -> bytes:
        words = text.lower().replace("?", " ").split()
        counts = [float(sum(one.startswith(word) for one in words)) for word in WORDS]
        rest = len(words) - sum(counts)
        row = [*counts, 0.05 * rest, 0.05, 0.3 * (not any(counts))]
        long = sum(one * one for one in row) ** 0.5
        return struct.pack("<12f", *(one / long for one in row))

    async def close(self) -> None: ...


class Dead(Bag):
    handle = "dead"

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        raise StoreUnavailable("the embedding cannot be reached")


def requests(count: int, seed: int) -> list[tuple[str, str]]:
    chance = random.Random(seed)
    found: dict[str, str] = {}
    while len(found) < count:
        word = chance.choice(WORDS)
        found[f"{chance.choice(('the', 'a', 'my', 'that'))} {word} number {chance.randrange(10_000)}"] = OWNER[word]
    return list(found.items())


def with_examples(count: int) -> list[WorkerCard]:
    many = requests(count * 9, 1)
    return [
        msgspec.structs.replace(card, examples=tuple([text for text, name in many if name == card.name][:count]))
        for card in TEAM
    ]


# --- rules and tags


def test_the_longest_rule_wins_whatever_comes_first() -> None:
    rules = {"bill": "clerk", "electricity  bill": "smith", "paid": "baker"}
    found = by_rules("I paid the Electricity bill", rules)
    assert (found.worker, found.second, found.confidence) == ("smith", "baker", 1.0)
    assert "electricity" in found.why


@pytest.mark.parametrize("text", ["billing is hard", "handbill", "nothing of it", ""])
def test_a_rule_matches_whole_words_only(text: str) -> None:
    assert by_rules(text, {"bill": "clerk", "  ": "smith"}).worker is None


def test_a_rule_with_signs_is_no_pattern() -> None:
    assert by_rules("what is c++ (really)?", {"c++": "smith"}).worker == "smith"
    assert by_rules("abc", {"a.c": "smith"}).worker is None


def test_tags_are_found_as_words_and_a_rare_one_tells_more() -> None:
    cards = [
        WorkerCard("a", "", ("data", "sales figures")),
        WorkerCard("b", "", ("data",)),
        WorkerCard("c", "", ("art",)),
    ]
    found = by_tags("Get the data on the sales figure", cards)
    assert (found.worker, found.second) == ("a", "b")
    assert found.confidence == pytest.approx(0.75)
    assert by_tags("Get the data", cards).confidence == 1.0, "both fit as well, for the same tag"
    assert by_tags("Get data on art", cards).confidence == 0.5, "it is not clear who: they fit for other tags"
    assert by_tags("Sing of database artists", cards).worker is None


# --- words


@pytest.mark.parametrize(
    ("text", "worker"),
    [("Please bake me two cakes", "baker"), ("The garden gate is broken", "smith"), ("Write to the mayor", "clerk")],
)
async def test_words_find_who_speaks_of_them(text: str, worker: str) -> None:
    found = await by_words(text, TEAM)
    assert found.worker == worker
    assert found.confidence > 0.4


async def test_the_reason_has_whole_words_in_one_order() -> None:
    cards = [
        WorkerCard("billing", "Knows invoices, prices and twice paid bills."),
        WorkerCard("desk", "Answers the rest."),
    ]
    found = await by_words("Twice the price on my invoices?", cards)
    assert found.why == "billing speaks of: invoices, price, twice"


async def test_words_that_nobody_uses_go_to_nobody() -> None:
    found = await by_words("Fly me to Jupiter", TEAM)
    assert (found.worker, found.confidence) == (None, 0.0)


async def test_an_example_teaches_words_that_no_description_has() -> None:
    taught = (*TEAM[:2], msgspec.structs.replace(TEAM[2], examples=("reconcile the quarterly ledger",)))
    assert (await by_words("Is the ledger reconciled?", TEAM)).worker is None
    assert (await by_words("Is the ledger reconciled?", taught)).worker == "clerk"


# --- meaning


async def test_the_nearest_phrase_decides_and_a_stranger_goes_to_nobody() -> None:
    found = await by_meaning("my horse is lame", TEAM, Bag())
    assert (found.worker, found.router) == ("smith", "meaning")
    assert found.scores[0][0] == "smith"
    assert sum(share for _, share in found.scores) == pytest.approx(1.0, abs=0.01)
    strange = await by_meaning("quantum chromodynamics lecture", TEAM, Bag())
    assert strange.worker is None
    assert "needed" in strange.why


async def test_the_more_alike_workers_are_the_more_like_them_a_request_must_be() -> None:
    apart_ = [WorkerCard("a", "", phrases=("cake",)), WorkerCard("b", "", phrases=("gate",))]
    alike = [WorkerCard("a", "", phrases=("cake bread",)), WorkerCard("b", "", phrases=("cake oven",))]
    assert (await fit_meaning(apart_, Bag())).space.threshold < (await fit_meaning(alike, Bag())).space.threshold


async def test_the_more_workers_there_are_the_less_sure_is_the_same_lead() -> None:
    few = await fit_meaning([WorkerCard(word, "", phrases=(word,)) for word in WORDS[:2]], Bag())
    many = await fit_meaning(
        [WorkerCard(f"{word}{at}", "", phrases=(word,)) for word in WORDS for at in range(9)], Bag()
    )
    assert few.space.confidence(1.0) > many.space.confidence(1.0)
    assert few.space.confidence(0.0) < LEAST["meaning"], "between two equals nobody is sure"


# --- descriptions of one sentence


def test_a_description_is_cut_where_it_lists_things() -> None:
    (one,) = worker_texts(
        [WorkerCard("ann", "Plans trips, e.g. flights or hotels: visas, such as for China (and luggage).")]
    )
    assert one.phrases == ("Plans trips, e.g. flights or hotels: visas, such as for China (and luggage).",)
    assert one.clauses == ("Plans trips", "flights", "hotels", "visas", "for China", "luggage")
    assert one.described
    (simple,) = worker_texts([WorkerCard("bob", "Counts apples.", phrases=("count",))])
    assert (simple.clauses, simple.described) == ((), False)


async def test_where_there_are_only_descriptions_words_decide_what_meaning_leaves_open() -> None:
    described = [WorkerCard("ann", "Sells tulips."), WorkerCard("bob", "Sells roses.")]  # the bag knows neither word
    found = await by_meaning("roses, please", described, Bag())
    assert (found.worker, found.router) == ("bob", "meaning")
    assert found.scores[0][1] > 0.7
    phrases = [WorkerCard(card.name, "", phrases=(card.description,)) for card in described]
    assert (await by_meaning("roses, please", phrases, Bag())).scores[0][1] == pytest.approx(0.5, abs=0.01)


@pytest.mark.slow("160 requests go through the real model")
async def test_one_sentence_each_routes_two_of_three_requests_that_nothing_was_tuned_on() -> None:
    teams = msgspec.json.decode((Path(__file__).parents[2] / "bench" / "data" / "routing_teams.json").read_bytes())
    embedding = LocalEmbedding(pull("minilm", MODELS).parent)
    right: list[bool] = []
    try:
        for team in teams["teams"].values():
            known = await fit_meaning([WorkerCard(name, does) for name, does in team["workers"].items()], embedding)
            for worker, asked in team["requests"].items():
                right += [(await known.decide(text)).scores[0][0] == worker for text in asked]
    finally:
        await embedding.close()
    assert len(right) == 160
    assert sum(right) / len(right) > 0.66, "0.59 while descriptions were cut at full stops alone"


async def test_a_team_is_embedded_once_and_again_when_its_words_change() -> None:
    bag = Bag()
    for _ in range(3):
        await by_meaning("a cake", TEAM, bag)
    first = len(bag.asked)
    changed = (*TEAM[:2], msgspec.structs.replace(TEAM[2], phrases=("stamp a form",)))
    assert (await by_meaning("stamp it", changed, bag)).worker == "clerk"
    assert len(bag.asked) == first + 2


async def test_with_enough_examples_several_decide_and_confidence_is_learnt_from_them() -> None:
    few = await fit_meaning(with_examples(ENOUGH - 1), Bag())
    many = await fit_meaning(with_examples(20), Bag())
    assert (few.space.nearest, many.space.nearest) == (1, 3)
    asked = requests(120, 2)
    found = [(await many.decide(text), name) for text, name in asked]
    right = sum(one.worker == name for one, name in found) / len(found)
    assert right >= 0.95
    assert abs(right - sum(one.confidence for one, _ in found) / len(found)) < 0.1
    assert (await many.decide("quantum chromodynamics lecture")).worker is None


async def test_the_same_examples_give_the_same_decision_to_the_last_digit() -> None:
    from chargehand.agents.strategies import route as module

    first = await (await fit_meaning(with_examples(8), Bag())).decide("a bill to pay")
    module._SPACES.clear()
    assert await (await fit_meaning(with_examples(8), Bag())).decide("a bill to pay") == first


async def test_an_embedding_that_cannot_be_reached_leaves_it_to_words_and_says_so() -> None:
    for embedding, reason in ((Dead(), "cannot be reached"), (None, "there is no embedding")):
        found = await by_meaning("bake a cake", TEAM, embedding)
        assert (found.worker, found.router) == ("baker", "words")
        assert reason in found.why


class Ragged(Bag):
    handle = "ragged"

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        return [b"1234" * (1 + len(text) % 3) for text in texts]


async def test_vectors_that_do_not_fit_each_other_leave_it_to_words() -> None:
    found = await by_meaning("bake a cake", TEAM, Ragged())
    assert (found.worker, found.router) == ("baker", "words")


class Empty(Bag):
    """Some of its vectors hold no numbers: those of texts that hold this word."""

    def __init__(self, word: str) -> None:
        super().__init__()
        self.handle = f"empty of {word}"
        self._word = word

    def _vector(self, text: str) -> bytes:
        return struct.pack("<12f", *[math.nan] * 12) if self._word in text else super()._vector(text)


@pytest.mark.parametrize("word", ["cake", "bill", "strudel"])
async def test_vectors_without_numbers_leave_it_to_words(word: str) -> None:
    found = await by_meaning("bake a cake or strudel", TEAM, Empty(word))
    assert (found.worker, found.router) == ("baker", "words")
    assert "no numbers" in found.why


@pytest.mark.parametrize(
    ("text", "worker"),
    [
        ("two dozen muffins and a croissant", "baker"),
        ("my mare lost a shoe on the road", "smith"),
        ("the invoice from the miller is due", "clerk"),
        ("what is the airspeed of a swallow", None),
    ],
)
async def test_the_real_small_model_knows_words_that_no_card_has(text: str, worker: str | None) -> None:
    embedding = LocalEmbedding(pull("minilm", MODELS).parent)
    try:
        assert (await by_meaning(text, TEAM, embedding)).worker == worker
    finally:
        await embedding.close()


# --- the load


def test_a_busy_first_gives_way_to_a_second_that_fits_about_as_well() -> None:
    found = Decision(
        worker="ann", second="bob", confidence=0.6, scores=(("ann", 0.5), ("bob", 0.4)), why="it fits", router="meaning"
    )
    other = shift_by_load(found, {"ann": WorkerLoad(4, 4), "bob": WorkerLoad(0, 4)})
    assert (other.worker, other.second) == ("bob", "ann")
    assert "4 of 4 at work" in other.why
    assert shift_by_load(found, {"ann": WorkerLoad(failures=0.9)}).worker == "bob"
    assert "90% failed lately" in shift_by_load(found, {"ann": WorkerLoad(failures=0.9)}).why


@pytest.mark.parametrize(
    ("second", "share", "load"),
    [
        ("bob", 0.1, {"ann": WorkerLoad(4, 4)}),
        (None, 0.0, {"ann": WorkerLoad(4, 4)}),
        ("bob", 0.4, {"ann": WorkerLoad(4, 4), "bob": WorkerLoad(4, 4)}),
        ("bob", 0.4, {"ann": WorkerLoad(1, 4)}),
        ("bob", 0.4, {}),
    ],
)
def test_otherwise_it_stays_with_the_first(second: str | None, share: float, load: dict[str, WorkerLoad]) -> None:
    found = Decision(
        worker="ann",
        second=second,
        confidence=0.6,
        scores=(("ann", 0.5), *(((second, share),) if second else ())),
        why="it fits",
        router="meaning",
    )
    assert shift_by_load(found, load) is found


@pytest.mark.parametrize("count", [2, 3, 5])
async def test_equal_workers_are_as_sure_as_one_and_the_less_busy_gets_it(count: int) -> None:
    pool = [WorkerCard(f"desk{number}", "answers questions about invoices", ("invoices",)) for number in range(count)]
    cards = [*pool, WorkerCard("pumps", "repairs pumps", ("pumps",))]
    for found in (by_tags("My invoices are wrong", cards), await by_words("My invoices are wrong", cards)):
        assert found.confidence >= LEAST[found.router]
        assert shift_by_load(found, {"desk0": WorkerLoad(3)}).worker == "desk1"


# --- the model


def test_a_reply_is_read_and_bounded() -> None:
    found = read_decision('{"primary": "a", "secondary": "b", "confidence": 7, "reason": "x"}', ("a", "b"))
    assert (found.worker, found.second, found.confidence, found.why) == ("a", "b", 1.0, "x")
    assert read_decision('{"primary": null}', ("a",)).worker is None
    assert read_decision('{"primary": "a", "secondary": "a", "confidence": "0.9"}', ("a",)).second is None


@pytest.mark.parametrize("text", ['{"primary": "zoe"}', "[]", "{}", "to ann, I think", '{"primary": 3}'])
def test_a_reply_that_names_nobody_there_is_refused(text: str) -> None:
    with pytest.raises(Invalid):
        read_decision(text, ("ann", "bob"))


@pytest.mark.parametrize(
    ("goal", "worker"),
    [("Bake bread for Sunday", "baker"), ("Write a letter to the mayor", "clerk"), ("How far is it to Jupiter?", None)],
)
async def test_the_demo_model_chooses_by_its_rules_in_the_form_that_is_asked_for(goal: str, worker: str | None) -> None:
    reply = await DemoModel().reply(Request((), subject=Routing(goal, TEAM)))
    names = tuple(card.name for card in TEAM)
    assert not list(problems(msgspec.json.decode(reply.text), msgspec.json.decode(route_schema(names))))
    assert read_decision(reply.text, names).worker == worker


def test_what_is_clear_needs_no_second_opinion() -> None:
    assert is_clear(
        Decision(worker="a", second="b", confidence=0.9, scores=(("a", 0.8), ("b", 0.1)), why="", router="meaning")
    )
    assert not is_clear(
        Decision(worker="a", second="b", confidence=0.9, scores=(("a", 0.5), ("b", 0.45)), why="", router="meaning")
    )
    assert not is_clear(
        Decision(worker="a", second=None, confidence=0.5, scores=(("a", 1.0),), why="", router="meaning")
    )
    assert not is_clear(Decision(worker=None, second=None, confidence=0.0, scores=(), why="", router="meaning"))


def test_a_name_counts_only_where_a_card_says_nothing_else() -> None:
    one, two = worker_texts([WorkerCard("tax_adviser", ""), WorkerCard("ann", "Counts apples. Counts pears.")])
    assert one.phrases == ("tax adviser",)
    assert two.phrases == ("Counts apples.", "Counts pears.")
