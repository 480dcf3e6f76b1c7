"""Archives on the labelled set, with the real model and the real store: both ways together beat either alone."""

import os
from collections import Counter
from pathlib import Path

import pytest

from bench.hybrid import Figures, Half, Kind, Strategy, measured, passages, questions
from chargehand.memory.session import open_catalog
from chargehand.models.embeddings import LocalEmbedding
from chargehand.models.local import pull
from tests.support.hunts import hunt_size

MODELS = Path(os.environ.get("CHARGEHAND_MODELS") or Path(__file__).parents[2] / ".venv" / "models")


def test_every_question_has_one_answer_in_the_set() -> None:
    kept = passages()
    asked = questions()
    assert len({one.id for one in kept}) == len({one.text for one in kept}) == len(kept) == 300
    assert len({one.id for one in asked}) == len({one.ask for one in asked}) == len(asked)
    assert {one.answer for one in asked} <= {one.id for one in kept}
    assert Counter((one.kind, one.half) for one in asked) == {
        ("paraphrase", "tune"): 60,
        ("paraphrase", "test"): 60,
        ("identifier", "tune"): 74,
        ("identifier", "test"): 74,
        ("distracted", "tune"): 8,
        ("distracted", "test"): 8,
    }


HALVES: tuple[Half, ...] = hunt_size(quick=("test",), thorough=("tune", "test"))


@pytest.mark.slow("300 passages and 142 questions go through the real model")
async def test_both_ways_together_are_no_worse_on_paraphrases_and_better_on_names() -> None:
    embedding = LocalEmbedding(pull("minilm", MODELS).parent)
    catalog = await open_catalog()
    try:
        figures = await measured(catalog, embedding, HALVES)
        found = {(one.kind, one.half, one.strategy): one for one in figures}
    finally:
        await catalog.close()
        await embedding.close()

    def at(kind: Kind, strategy: Strategy, half: Half = "test") -> Figures:
        return found[kind, half, strategy]

    meaning = at("paraphrase", "meaning")
    both = at("paraphrase", "both")
    assert (both.mrr, both.first, both.ten) >= (meaning.mrr, meaning.first, meaning.ten)
    assert both.first >= meaning.first
    assert both.ten >= meaning.ten
    assert meaning.ten > at("paraphrase", "words").ten  # else the set would say nothing about meaning
    meaning = at("identifier", "meaning")
    words = at("identifier", "words")
    both = at("identifier", "both")
    assert both.mrr > max(meaning.mrr + 0.15, words.mrr)
    assert both.first > max(meaning.first + 0.2, words.first)
    assert both.ten >= 0.98
    assert at("distracted", "both").first >= at("distracted", "words").first
    if "tune" in HALVES:  # nothing was learnt that holds on the half it was learnt from alone
        assert both.mrr == pytest.approx(at("identifier", "both", "tune").mrr, abs=0.05)
