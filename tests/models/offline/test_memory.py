"""What texts want of shared memory: what is to be kept, what is to be looked up, and what is neither."""

import pytest

from chargehand.models.offline.remembering.asks import ask
from chargehand.models.offline.remembering.places import Labels
from chargehand.models.offline.remembering.wishes import Keep, Rewrite, Swap, wishes, without

LABELS = Labels(("notes", "status", "team_log", "guidelines", "research_guidelines"))

# --- what is to be kept

KEPT = {
    "Remember that our second carrier is Postwing from July on.": Keep("Our second carrier is Postwing from July on."),
    "Please remember: the safe is in the cellar.": Keep("The safe is in the cellar."),
    "Remember this for later: the door code is 4711.": Keep("The door code is 4711."),
    "Record in the archive that Sellmark's contract ends in 2027.": Keep("Sellmark's contract ends in 2027."),
    "Keep in the archive, tagged carrier: \u201cPostwing is slow.\u201d": Keep("Postwing is slow.", tags=("carrier",)),
    "Find the strike and keep it in the archive.": Keep(),
    "Find the strike and keep it in the archive tagged carrier and strike.": Keep(tags=("carrier", "strike")),
    'Find it. Keep what you find in the archive, tagged "late parcels", may.': Keep(tags=("late parcels", "may")),
    "Find the strike and store the findings in the findings archive.": Keep(archive="findings"),
    "Find the strike and save what you learn in our memory.": Keep(),
    "Find the strike, then file your findings under the tags carrier, strike.": Keep(tags=("carrier", "strike")),
    "What was the total? Remember it for later.": Keep(),
    "What was the total? Archive the answer.": Keep(),
    'Add "Anna called." to the notes.': Keep("Anna called.", label="notes"),
    "Note in status that the report is done.": Keep("The report is done.", label="status"),
    "Note in the status block that the report is done.": Keep("The report is done.", label="status"),
    "Add a line to the notes: The carrier changed. Postwing is new.": Keep(
        "The carrier changed. Postwing is new.", label="notes"
    ),
    "Jot down in the team log that Anna called.": Keep("Anna called.", label="team_log"),
    "Convert the total to dollars and add the result to our notes.": Keep(label="notes"),
    "Convert the total to dollars and note it in the notes, and draw a chart.": Keep(label="notes"),
    "Write the total revenue to the notes.": Keep(about="the total revenue", label="notes"),
    'Append the amount to block "status".': Keep(about="the amount", label="status"),
}


@pytest.mark.parametrize("text", KEPT)
def test_what_is_to_be_kept_is_understood(text: str) -> None:
    (part,) = wishes(text, LABELS)
    keep = part.wish
    wanted = KEPT[text]
    assert isinstance(keep, Keep)
    told = (keep.said, keep.about, keep.label, keep.archive, keep.tags)
    assert told == (wanted.said, wanted.about, wanted.label, wanted.archive, wanted.tags)


NOT_KEPT = (
    "Keep it short.",
    "Keep the answer short and say what is in the archive.",
    "What is the revenue in May? Note that amounts are in euros.",
    "What is the revenue in May? Remember to name your sources.",
    "What is the revenue? Remember that amounts are in euros.",
    "Do not keep anything in the archive. What is the total?",
    "Never store the results in the archive.",
    "Note that files in the archive are old. Which ones?",
    "Add 15 percent to the price.",
    "Add the total and the average.",
    "Save the chart.",
    "File a complaint with the carrier.",
    "Record the revenue per country.",
    "Write a memo to the team about the strike.",
    "Put the countries in order of revenue.",
    "What do our notes say about watering tomatoes?",
    "How much memory does the server have?",
    "Store hours in May: how many?",
    "Change euros to dollars.",
    "Replace the worn lamp.",
)


@pytest.mark.parametrize("text", NOT_KEPT)
def test_ordinary_words_keep_nothing(text: str) -> None:
    assert wishes(text, LABELS) == []


def test_what_is_kept_is_taken_out_of_the_task_and_the_rest_stays_as_it_was() -> None:
    text = "Find out what the reports say and keep it in the archive tagged carrier and strike, and count the parcels."
    assert without(text, wishes(text, LABELS)) == "Find out what the reports say, and count the parcels."
    own = "Find the strike. Keep what you find in the archive. Return the passages."
    assert without(own, wishes(own, LABELS)) == "Find the strike. Return the passages."


@pytest.mark.parametrize(
    ("text", "wish"),
    [
        ('Replace "draft" by "final" in the notes.', Swap("draft", "final", "notes")),
        ("In the status block, replace draft with final.", Swap("draft", "final", "status")),
        ("Change the deadline from 3 May to 5 May in the notes.", Swap("3 May", "5 May", "notes")),
        ('Rewrite the status block: "All is done."', Rewrite("status", "All is done.")),
    ],
)
def test_changes_of_a_block_are_understood(text: str, wish: Swap | Rewrite) -> None:
    assert [one.wish for one in wishes(text, LABELS)] == [wish]


# --- what is to be looked up

ASKED = {
    "What do we already know about late deliveries?": ("archive", "late deliveries"),
    "Find out what we already know about late deliveries.": ("archive", "late deliveries"),
    "What did we find about Sellmark?": ("archive", "Sellmark"),
    "What have we recorded about carriers in May 2026?": ("archive", "carriers in May 2026"),
    "Have we recorded anything about the flood?": ("archive", "the flood"),
    "Search the archive for late deliveries.": ("archive", "late deliveries"),
    "Search our findings archive for refunds.": ("archive", "refunds"),
    "Look up everything about headlamps in the archive.": ("archive", "headlamps"),
    "What does the archive say about refunds?": ("archive", "refunds"),
    "Is there anything in the archive about floods?": ("archive", "floods"),
    "What do you remember about the flood?": ("archive", "the flood"),
    "What did the carrier lose, according to the archive?": ("archive", "What did the carrier lose"),
    "What did you find last time about refunds?": ("earlier", "refunds"),
    "What did you find last time?": ("earlier", ""),
    "What was I told before about tents?": ("earlier", "tents"),
    "Search our conversation for tents.": ("earlier", "tents"),
    "What do our guidelines say about amounts?": ("block", "amounts"),
    "What do the research guidelines say about sources?": ("block", "sources"),
    "What is on the status block?": ("block", ""),
    "Show me the notes.": ("block", ""),
}


@pytest.mark.parametrize("text", ASKED)
def test_what_is_to_be_looked_up_in_memory_is_understood(text: str) -> None:
    found = ask(text, LABELS)
    assert found is not None
    assert (found.kind, found.topic) == ASKED[text]


@pytest.mark.parametrize(
    "text",
    [
        "What do we know about their suppliers?",
        "What does our returns policy say about damaged items?",
        "What did we sell before May 2026?",
        "How many orders were late before May 2026?",
        "What is the status of order 1042?",
        "How many archives do we have?",
        "Search the documents for the archive policy.",
        "Who wrote the notes?",
        "Which customers have late orders?",
        "Find what the handbook says about refunds.",
    ],
)
def test_other_questions_are_not_for_memory(text: str) -> None:
    assert ask(text, LABELS) is None


def test_tags_times_and_the_name_of_an_archive_narrow_a_search() -> None:
    found = ask("Search our findings archive for refunds tagged may and carrier.", LABELS)
    assert found is not None
    assert (found.archive, found.tags) == ("findings", ("may", "carrier"))
    for when, span in {
        "recorded since 1 May 2026": ("2026-05-01", ""),
        "noted in May 2026": ("2026-05-01", "2026-05-31"),
        "kept before 2 May 2026": ("", "2026-05-01"),
    }.items():
        found = ask(f"Search the archive for refunds {when}.", LABELS)
        assert found is not None
        assert (found.topic, found.since, found.until) == ("refunds", *span)
