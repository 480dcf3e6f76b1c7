"""Documents searched by meaning and by words, with the real small model."""

import asyncio
import gc
import json
import os
import subprocess
import sys
import weakref
from pathlib import Path

import pytest

from chargehand.models.artifacts import Passages
from chargehand.models.embeddings import open_embedder
from chargehand.models.local import pull
from chargehand.tools.documents import MOST_CHARACTERS, DocumentPiece, SemanticIndex, documents
from chargehand.tools.tool import Tool, ToolFailed
from tests.tools.asked import ANSWERED, FOREIGN, NEAR

MODELS = Path(os.environ.get("CHARGEHAND_MODELS") or Path(__file__).parents[2] / ".venv" / "models")
TEAMS = Path(__file__).parents[2] / "teams"


@pytest.fixture(scope="module")
def models() -> Path:
    return pull("minilm", MODELS).parent


@pytest.fixture
def leaflets(tmp_path: Path) -> Path:
    folder = tmp_path / "leaflets"
    folder.mkdir()
    (folder / "burns.md").write_text("# Burns\n\nCool it under running water for ten minutes.\n", encoding="utf-8")
    (folder / "sleep.md").write_text("# Sleep\n\nAdults need seven to nine hours of it.\n", encoding="utf-8")
    orders = "".join(f"## Order {number}\n\nA tent was sent to Mr {name}.\n\n" for number, name in ORDERS)
    (folder / "orders.md").write_text(f"# Orders\n\n{orders}", encoding="utf-8")
    return folder


ORDERS = ((20713, "Ott"), (20731, "Abel"), (20317, "Ruiz"))


async def sources(of: Tool, query: str, most: int = 5) -> list[str]:
    """Where the passages found stand; none where nothing was found."""
    try:
        found = await of.call(json.dumps({"query": query, "most": most}), "k")
    except ToolFailed as failed:
        if not str(failed).startswith("nothing found for "):
            raise
        return []
    assert isinstance(found, Passages)
    assert all(one.score > 0 and not one.why for one in found.found)
    return [passage.source for passage in found.found]


async def test_a_paraphrase_that_shares_no_word_is_found_by_meaning_alone(leaflets: Path, models: Path) -> None:
    asked = "I scalded my finger on the stove"
    assert await sources(documents(leaflets, models=models), asked) == ["burns.md#burns"]
    assert await sources(documents(leaflets), asked) == []


async def test_a_number_or_a_name_is_found_first_by_its_word(leaflets: Path, models: Path) -> None:
    tool = documents(leaflets, models=models)
    for number, name in ORDERS:
        assert (await sources(tool, f"What became of {number}?"))[0] == f"orders.md#order-{number}"
        assert (await sources(tool, f"What did Mr {name} get?"))[0] == f"orders.md#order-{number}"


async def test_what_is_in_quotes_must_occur_however_alike_a_passage_is(leaflets: Path, models: Path) -> None:
    tool = documents(leaflets, models=models)
    assert await sources(tool, 'I scalded my finger, "running water"') == ["burns.md#burns"]
    assert await sources(tool, 'I scalded my finger on the "stove"') == []


async def test_a_question_that_nothing_answers_finds_nothing(leaflets: Path, models: Path) -> None:
    tool = documents(leaflets, models=models)
    for query in ("What is the capital of France?", "Who painted the Mona Lisa?", "", " ", "zzz", "the of and"):
        assert await sources(tool, query) == []


async def test_without_a_model_that_works_words_decide(leaflets: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "model.onnx").write_bytes(b"no model")
    (broken / "vocab.txt").write_text("[UNK]\n[CLS]\n[SEP]", encoding="utf-8")
    for place in (tmp_path / "nowhere", broken):
        tool = documents(leaflets, models=place)
        for query in ("I scalded my finger on the stove", "running water", "Order 20731"):
            assert await sources(tool, query) == await sources(documents(leaflets), query)


async def test_without_the_extra_words_decide(leaflets: Path, models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for library in ("numpy", "onnxruntime"):
        with monkeypatch.context() as hidden:
            hidden.setitem(sys.modules, library, None)
            tool = documents(leaflets, models=models)
            assert await sources(tool, "I scalded my finger on the stove") == []
            assert await sources(tool, "running water") == ["burns.md#burns"]


async def test_the_same_question_has_the_same_answer_also_when_many_ask_at_once(leaflets: Path, models: Path) -> None:
    tool = documents(leaflets, models=models)
    asked = "How long must a person rest at night? Order 20317"
    async with asyncio.TaskGroup() as group:
        several = [group.create_task(tool.call(json.dumps({"query": asked}), "k")) for _ in range(4)]
    (again,) = {repr(one.result()) for one in several}
    assert again == repr(await documents(leaflets, models=models).call(json.dumps({"query": asked}), "k"))
    assert "sleep.md#sleep" in again


async def test_the_loop_goes_on_while_vectors_are_made(tmp_path: Path, models: Path) -> None:
    (tmp_path / "long.md").write_text("".join(f"# Part {n}\n\n{'a walk in rain ' * 30}\n\n" for n in range(12)))
    tool = documents(tmp_path, models=models)
    turns = 0
    async with asyncio.TaskGroup() as group:
        search = group.create_task(sources(tool, "a walk in rain"))
        while not search.done():
            await asyncio.sleep(0.001)
            turns += 1
    assert len(search.result()) == 5
    assert turns > 5


def test_more_text_than_can_be_compared_is_left_to_words(models: Path) -> None:
    assert SemanticIndex([DocumentPiece("a", "x" * MOST_CHARACTERS)], models).likeness("x") is not None
    assert SemanticIndex([DocumentPiece("a", "x" * (MOST_CHARACTERS + 1))], models).likeness("x") is None


def test_a_tool_that_nobody_has_searched_with_has_loaded_nothing(leaflets: Path, models: Path) -> None:
    program = (
        "import sys; from chargehand.tools.documents import documents; "
        f"documents({str(leaflets)!r}, models={str(models)!r}); "
        "print([name for name in ('onnxruntime', 'numpy', 'sqlite3') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=50)
    assert done.stdout.strip() == "[]"


async def test_tools_share_one_model_and_it_goes_when_the_last_of_them_goes(leaflets: Path, models: Path) -> None:
    tools = [documents(leaflets, models=models) for _ in range(2)]
    for place in range(2):
        assert await sources(tools[place], "running water")
    embedder = open_embedder(models)
    assert embedder is not None
    assert open_embedder(models) is embedder
    seen = weakref.ref(embedder)
    del embedder
    gc.collect()
    assert seen() is not None
    tools.clear()
    for _ in range(200):  # the thread of the last call may be about to let go of it
        gc.collect()
        if seen() is None:
            break
        await asyncio.sleep(0.01)
    assert seen() is None


@pytest.mark.slow("the documents of all bundled teams go through the real model")
async def test_the_bundled_teams_find_more_and_no_more_of_what_is_not_there(models: Path) -> None:
    both = {place: documents(TEAMS / place, models=models) for _, place, _ in NEAR}
    words = {place: documents(TEAMS / place) for place in both}
    answered = {"both": 0, "words": 0}
    for strategy, tools in (("both", both), ("words", words)):
        for half, place, question, start in ANSWERED:
            if half == "test":
                answered[strategy] += any(one.startswith(start) for one in await sources(tools[place], question))
    assert answered["words"] <= 6  # else the questions are no paraphrases
    assert answered["both"] >= 13
    foreign = [(place, question) for half, question in FOREIGN if half == "test" for place in list(both)[::4]]
    near = [(place, question) for half, place, question in NEAR if half == "test"]
    more = [
        one
        for one in foreign + near
        if await sources(both[one[0]], one[1]) and not await sources(words[one[0]], one[1])
    ]
    assert more == []
