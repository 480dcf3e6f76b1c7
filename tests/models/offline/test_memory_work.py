"""A worker at its task with shared memory at hand: used when the task asks for it, and only then."""

from functools import cache
from pathlib import Path

import pytest

import chargehand.config as config
from chargehand.models.exhibits import Passages
from chargehand.models.messages import Message
from chargehand.models.offline.remembering.family import FAMILY, INSERT
from chargehand.models.offline.work import work
from chargehand.models.subject import Given, Said, Shown, WorkerCard, Working
from chargehand.tools.calculator import calculator
from chargehand.tools.chart import chart
from chargehand.tools.documents import documents
from chargehand.tools.remember import NAMES
from chargehand.tools.sql import sql
from chargehand.tools.tool import Tool, ToolFailed, tool
from tests.models.offline.shelf import EMPTY, GUIDELINES, STATUS, Shelf
from tests.models.offline.working import do, given

SHOP = Path(config.__file__).parent / "templates" / "shop"
STRIKE = "21 parcels were late in May 2026 because of a strike."
BLOCKS = (GUIDELINES, STATUS, EMPTY)


@cache
def papers() -> Tool:
    return documents(SHOP / "docs", name="papers")


@cache
def sales() -> Tool:
    return sql(SHOP / "data", name="sales")


def test_the_family_is_that_of_the_real_tools() -> None:
    assert frozenset(NAMES) == FAMILY


def test_findings_are_kept_after_the_search_and_the_result_says_so() -> None:
    shelf = Shelf()
    task = "Find out what our incident reports say about late deliveries in May 2026."
    plain = do(task, [papers()])
    done = do(f"{task} Keep what you find in the archive, tagged carrier and strike.", [*shelf.tools(), papers()])
    assert done.names == ["papers", "archival_memory_insert"]
    ((text, tags),) = shelf.kept
    assert text == f"Late deliveries in May 2026: {plain.text}"
    assert tags == ["carrier", "strike"]
    assert done.text == f"{plain.text}\nKept in the archive findings, tagged carrier and strike."


def test_a_number_is_noted_in_a_block_with_what_it_is() -> None:
    shelf = Shelf()
    task = "Report the total revenue in May 2026. Add what you find to the block notes."
    done = do(task, [*shelf.tools(), sales(), calculator()], blocks=BLOCKS)
    assert done.names == ["sales", "core_memory_append"]
    assert shelf.lines == [("notes", "Total revenue in May 2026. Revenue in EUR in May 2026: 12,223.40.")]
    assert "Added to the block notes" in done.text


def test_a_line_the_block_has_already_is_not_added_again() -> None:
    shelf = Shelf()
    held = Shown("notes", "First.\nAnna called.\n", access="append")
    done = do('Add "Anna called." to the notes.', shelf.tools(), blocks=[held])
    assert done.names == []
    assert done.text == "The block notes has this already."


def test_a_text_that_is_kept_already_is_not_called_new() -> None:
    shelf = Shelf([("Our carrier is Postwing.", [])])
    done = do("Remember that our carrier is Postwing.", shelf.tools())
    assert len(shelf.kept) == 1
    assert done.text == "The archive findings had this already: Our carrier is Postwing."


def test_stated_text_is_kept_word_for_word() -> None:
    shelf = Shelf()
    done = do(
        "Keep in the archive, tagged carrier: \u201cThe new carrier is Postwing\u201d.", [*shelf.tools(), papers()]
    )
    assert shelf.kept == [("The new carrier is Postwing.", ["carrier"])]
    assert done.text == "Kept in the archive findings, tagged carrier: The new carrier is Postwing."


def test_results_of_others_are_kept_with_what_they_are_about() -> None:
    shelf = Shelf()
    inputs = [
        Given("t1", "How many parcels were late? Return the figures.", "analyst", "21."),
        Given("t2", "Find what the papers say about strikes.", "archivist", STRIKE),
    ]
    done = do("Keep the results of t1 and t2 in the archive. Return the answer.", shelf.tools(), inputs)
    ((text, _),) = shelf.kept
    assert text == f"Number of parcels that were late: 21.\n{STRIKE}"
    assert STRIKE in done.text


def test_what_was_to_be_kept_but_could_not_be_is_said() -> None:
    shelf = Shelf(refuses="findings is full")
    found = do("Report the total revenue in May 2026. Keep what you find in the archive.", [*shelf.tools(), sales()])
    assert "12,223.40" in found.text
    assert "This could not be kept: findings is full." in found.text
    alone = do("Remember that the safe is open.", shelf.tools())
    assert alone.gave_up == "findings is full"
    without_any = do("Report the total revenue in May 2026. Keep what you find in the archive.", [sales()])
    assert "could not be kept: there is no archive here that may be added to" in without_any.text


def test_nothing_is_kept_of_a_task_that_failed() -> None:
    shelf = Shelf()
    task = "Find out how many parcels the second carrier lost. Keep what you find in the archive."
    done = do(task, [*shelf.tools(), papers()])
    assert "the documents do not say how many parcels" in done.gave_up
    assert shelf.kept == []


def test_a_word_before_archive_need_not_be_its_name() -> None:
    shelf = Shelf()
    done = do(
        "Report the total revenue in May 2026. Keep what you find in the dusty archive.", [*shelf.tools(), sales()]
    )
    assert len(shelf.kept) == 1
    assert "Kept in the archive findings" in done.text


def test_the_archive_answers_with_its_source() -> None:
    shelf = Shelf([(STRIKE, ["strike"]), ("Tents are bulky goods.", [])])
    done = do("What do we already know about late parcels?", shelf.tools())
    assert done.names == ["archival_memory_search"]
    assert done.text == f"{STRIKE} (findings)"
    tagged = do("Search the archive for late parcels tagged strike, recorded since 1 May 2026.", shelf.tools())
    assert tagged.arguments() == {"query": "late parcels", "tags": ["strike"], "start_datetime": "2026-05-01"}


def test_what_the_archive_does_not_hold_is_not_made_up() -> None:
    shelf = Shelf([("Tents are bulky goods.", [])])
    done = do("What do we already know about late parcels?", shelf.tools())
    assert done.gave_up == "the archive says nothing about late parcels"
    beside = do("What do we already know about stolen tents?", shelf.tools())
    assert beside.gave_up.startswith("the archive says nothing about stolen tents")


def test_an_empty_archive_leaves_the_question_to_other_tools() -> None:
    shelf = Shelf()
    done = do("What do we already know about late deliveries in May 2026?", [*shelf.tools(), papers()])
    assert done.names[0] == "archival_memory_search"
    assert done.names[-1] == "papers"
    assert "21 parcels were late" in done.text


def test_a_tool_that_searches_another_archive_is_meant_where_it_says_so() -> None:
    @tool
    def search(query: str) -> Passages:
        """Search the town archive."""
        raise ToolFailed("nothing found")

    done = do("What does the archive say about the harbour?", [*Shelf().tools(), search])
    assert set(done.names) == {"search"}


def test_blocks_answer_questions_about_them() -> None:
    tools = Shelf().tools()
    amounts = do("What do our guidelines say about amounts?", [*tools, papers()], blocks=BLOCKS)
    assert (amounts.names, amounts.text) == ([], "Amounts are in euros (block guidelines).")
    whole = do("What is on the status block?", tools, blocks=BLOCKS)
    assert whole.text == "The report is a draft. Nobody has read it (block status)."
    assert do("What is on the notes block?", tools, blocks=BLOCKS).text == "The block notes is empty."
    other = do("What do our guidelines say about dogs?", tools, blocks=BLOCKS)
    assert other.gave_up == "the block guidelines says nothing about dogs"


def test_blocks_are_changed_as_told() -> None:
    shelf = Shelf()
    done = do('Replace "a draft" by "final" in the status block.', shelf.tools(), blocks=BLOCKS)
    assert shelf.lines == [("status", "a draft -> final")]
    assert done.text == 'In the block status, "a draft" was replaced by "final".'
    do('Rewrite the status block: "Done."', shelf.tools(), blocks=BLOCKS)
    assert shelf.lines[-1] == ("status", "= Done.")
    barred = do('Replace "euros" by "pounds" in the guidelines.', shelf.tools("core_memory_append"), blocks=BLOCKS)
    assert barred.gave_up == "the block 'guidelines' may not be changed here"


def test_earlier_tasks_answer_what_was_found_before() -> None:
    earlier = (Said("user", "Find what the papers say about tents."), Said("assistant", "Tents are bulky goods."))
    seen = do("What did you find last time about tents?", Shelf().tools("conversation_search"), earlier=earlier)
    assert seen.names == []
    assert "Tents are bulky goods." in seen.text
    turns = [{"role": "user", "text": "And lamps?"}, {"role": "assistant", "text": "Lamps were recalled."}]
    searched = do("What was I told before about lamps?", Shelf(turns=turns).tools(), earlier=earlier)
    assert searched.names == ["conversation_search"]
    assert "Lamps were recalled." in searched.text
    assert do("What was I told before about boats?", Shelf().tools()).gave_up == "nothing about boats was said earlier"


# --- somebody with nothing but memory

KEEPER = "You are technical_worker. I analyze technical documentation. I store my findings in the archive."


def test_who_has_only_memory_still_writes_from_inputs() -> None:
    done = do("Write a short memo about the strike.", Shelf().tools(), [given(STRIKE)], blocks=BLOCKS)
    assert done.names == []
    assert done.text.startswith("Memo: ")
    assert STRIKE in done.text


def test_a_free_question_is_answered_from_the_archive_and_not_kept_again() -> None:
    shelf = Shelf([("The agents endpoint takes a name and a model.", [])])
    tools = shelf.tools("archival_memory_insert", "archival_memory_search")
    done = do("What does the agents endpoint take?", tools, blocks=BLOCKS, told=KEEPER)
    assert done.names == ["archival_memory_search"]
    assert "a name and a model" in done.text


def test_a_text_that_comes_with_the_question_is_read_and_kept_once_where_the_worker_is_told_to() -> None:
    task = "Analyze this documentation: The agents endpoint takes a name and a model. What does the endpoint take?"
    shelf = Shelf()
    tools = shelf.tools("archival_memory_insert", "archival_memory_search")
    done = do(task, tools, told=KEEPER)
    assert done.names == ["archival_memory_insert"]
    assert "a name and a model" in shelf.kept[0][0]
    assert "Kept in the archive findings." in done.text
    assert do(task, tools, told="You are technical_worker. I analyze technical documentation.").names == []
    assert do(task, tools, told="Never store findings in the archive.").names == []


def test_a_free_question_nobody_can_answer_ends_with_the_reason() -> None:
    shelf = Shelf()
    done = do("Analyze the API documentation of the agents endpoint.", shelf.tools(), told=KEEPER)
    assert "the archive says nothing about" in done.gave_up
    assert set(done.names) == {"archival_memory_search"}
    assert shelf.kept == []


def test_standing_orders_keep_what_other_tools_found() -> None:
    shelf = Shelf()
    done = do("Report the total revenue in May 2026.", [*shelf.tools(), sales()], told=f"{KEEPER} Ask the database.")
    assert done.names == ["sales", "archival_memory_insert"]


ORDINARY = (
    "How many orders did we have in May 2026?",
    "Report the revenue per country in May 2026.",
    "Find out what our incident reports say about late deliveries in May 2026.",
    "What do we know about Sellmark?",
    "What is 17 percent of 340?",
    "What does our returns policy say about damaged items? Keep it short.",
    "How many visitors did our website have?",
    "Note that amounts are in euros. What was the revenue in May 2026?",
    "Which three products brought the most revenue in 2026?",
    "Cancel order 3.",
    "What is the capital of France?",
    "Write a poem about tents.",
)


@pytest.mark.parametrize("task", ORDINARY)
def test_memory_at_hand_changes_nothing_in_ordinary_work(task: str) -> None:
    own = [sales(), papers(), calculator(), chart()]
    earlier = (Said("user", task), Said("assistant", "Something else."))
    plain = do(task, own)
    assert do(task, [*Shelf().tools(), *own], blocks=BLOCKS, earlier=earlier) == plain


def test_a_result_of_a_wanted_shape_is_kept_as_words() -> None:
    shelf = Shelf()
    schema: dict[str, object] = {
        "type": "object",
        "properties": {"revenue": {"type": "number"}},
        "required": ["revenue"],
    }
    task = "Report the total revenue in May 2026. Keep what you find in the archive."
    done = do(task, [*shelf.tools(), sales()], schema=schema)
    assert done.text == '{"revenue":12223.4}'
    assert "12,223.40" in shelf.kept[0][0]


def test_a_call_that_has_to_be_made_before_the_end_keeps_the_result() -> None:
    messages = [
        Message("user", "Say how many parcels were late."),
        Message("assistant", STRIKE),
        Message("user", f"Call {INSERT} before you finish."),
    ]
    specs = tuple(one.spec for one in Shelf().tools())
    reply = work(Working("Say how many parcels were late.", WorkerCard("worker", "")), messages, specs, None)
    assert [one.name for one in reply.calls] == [INSERT]
    assert STRIKE in reply.calls[0].arguments


def test_what_was_asked_of_earlier_tasks_is_no_earlier_finding() -> None:
    earlier = (
        Said("user", "Find what the papers say about tents."),
        Said("assistant", "Tents are bulky goods.\nKept in the archive findings."),
        Said("user", "What did you find last time about tents?"),
        Said("assistant", "Asked earlier: something about tents."),
    )
    done = do("What did you find last time about tents?", Shelf().tools(), earlier=earlier)
    found = 'Asked earlier: "Find what the papers say about tents". What came of it: Tents are bulky goods.'
    assert done.text == found
