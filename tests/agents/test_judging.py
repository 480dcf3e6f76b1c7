"""Several results and one answer: selected, voted on, or contradicting each other, with a ruling and its reason."""

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import pytest

from chargehand.agents.audit.contradictions import find_contradictions, read_yes_or_no
from chargehand.agents.judge import ballot, rule, ruling_schema, select, vote
from chargehand.agents.result import Result
from chargehand.agents.roles import Supervisor, Worker
from chargehand.agents.strategies import Broadcast
from chargehand.agents.writer import Piece, WriterCalls, join_pieces, reduce_results
from chargehand.engine import events as ev
from chargehand.engine.budget import Amount
from chargehand.engine.facts import Contradiction
from chargehand.engine.failure import Failure
from chargehand.engine.json_schema import problems
from chargehand.engine.plan import Plan, Task, TaskId
from chargehand.journal.memory import MemoryJournal
from chargehand.models.demo.model import DemoModel
from chargehand.models.local import LocalModel, pull
from chargehand.models.messages import Reply, Request, Usage
from chargehand.models.model import ModelCard
from chargehand.models.request_facts import Answering, Given, Judging, Working
from chargehand.models.testing.scripted import Line, ScriptedModel
from chargehand.team import Team
from tests.agents.crowd import FREE, call, calls, model, of_kind, plan, team
from tests.agents.judges import Desk, writer

MODELS = Path(os.environ.get("CHARGEHAND_MODELS") or Path(__file__).parents[2] / ".venv" / "models")
COUNT = "Count the apples in the cellar."
CREW = (Worker("ann", "counts"), Worker("bob", "counts"), Worker("cid", "counts"))


def judge(ruling: Line | Callable[[Request], Line], answer: Line = "So it is [t1].") -> ScriptedModel:
    """Rules like this, and writes this answer."""

    def script(request: Request) -> Line:
        if isinstance(request.subject, Answering):
            return answer
        assert isinstance(request.subject, Judging)
        return ruling(request) if callable(ruling) else ruling

    return ScriptedModel(script, usage=Usage(10, 5), micros=7, card=FREE)


async def run(
    judges: ScriptedModel, said: Sequence[Line], combine: str, instructions: Sequence[str] = (COUNT,) * 3
) -> Result:
    jobs = [(one, who.name, ()) for one, who in zip(instructions, CREW, strict=False)][: len(said)]
    by_worker = {who.name: line for who, line in zip(CREW, said, strict=False)}

    def work(request: Request) -> Line:
        assert isinstance(request.subject, Working)
        return by_worker[request.subject.worker.name]

    script = model(plans=[plan(*jobs, combine=combine)], work=work)
    return await team(script, *CREW, judge=judges).run("How many apples are there?")


def ruled(**fields: object) -> str:
    return json.dumps(fields)


def notes(found: Result) -> str:
    return "\n".join(one.text for one in of_kind(found.entries, ev.Noted) if isinstance(one, ev.Noted))


def answer_written(found: Result) -> ev.AnswerWritten:
    (written,) = [entry.event for entry in found.entries if isinstance(entry.event, ev.AnswerWritten)]
    return written


# --- select


async def test_the_selected_result_is_handed_through_word_for_word_with_the_reason() -> None:
    said = ["Twelve, I guess.", "There are 12 apples:\n\n| row | n |\n|---|---|\n| a | 12 |", "Many."]
    found = await run(judges := judge(ruled(why="It shows the count.", winner="t2")), said, "select")
    text, _, why = str(found.answer).rpartition("\n\n")
    assert text == said[1]
    assert why == "Chosen from 3 results: [t2]. Why: It shows the count."
    assert "Chosen from 3 results: [t2]" in notes(found)
    written = answer_written(found)
    assert (written.chosen, written.judged, [one.kind for one in written.sections]) == ("t2", True, ["chosen"])
    assert json.loads(bytes(written.answer)) == said[1]
    (asked,) = judges.requests
    assert "Choose the best result" in asked.messages[0].text
    assert all(one in asked.messages[1].text for one in said)
    assert found.trace().supervision[-1].used.calls == 1


@pytest.mark.parametrize(
    "reply", ["I like the second.", "[1]", ruled(why="x", winner="t9"), ruled(why="x", winner=""), ""]
)
async def test_a_ruling_nobody_can_read_leaves_the_first_and_says_so(reply: str) -> None:
    found = await run(judge(reply), ["one", "two", "three"], "select")
    assert found.ending == "complete"
    assert str(found.answer).startswith("one\n\n")
    assert "could not be read, so this is the first that succeeded" in str(found.answer)
    assert (answer_written(found).chosen, answer_written(found).judged) == ("t1", False)


async def test_a_judge_that_chooses_none_is_told_as_such() -> None:
    found = await run(judge(ruled(why="None counts the cellar.", winner=None)), ["one", "two"], "select")
    assert str(found.answer) == (
        "one\n\nChosen from 2 results: [t1]. The judge chose none of them (None counts the cellar),"
        " so this is the first that succeeded."
    )


@pytest.mark.parametrize("combine", ["select", "vote"])
@pytest.mark.parametrize(("count", "calls"), [(12, 1), (13, 3), (20, 3), (150, 16)])
async def test_more_results_than_a_judge_reads_at_once_are_judged_in_rounds(
    combine: Literal["select", "vote"], count: int, calls: int
) -> None:
    def best(request: Request) -> Line:
        assert isinstance(request.subject, Judging)
        assert len(request.subject.results) <= 12
        return ruled(why="It is best.", winner=max(request.subject.results, key=lambda each: int(str(each.value))).task)

    results = [Given(f"t{number}", "?", f"w{number}", str(number * 7919 % count)) for number in range(count)]
    judges = ScriptedModel(best, card=FREE)
    choice = await {"select": select, "vote": vote}[combine](WriterCalls(writer(judges), Desk()), "?", results)
    assert choice.result.value == str(count - 1)
    assert len(judges.requests) == calls


async def test_a_group_without_a_ruling_is_named() -> None:
    replies = iter(["no ruling", ruled(why="It is best.", winner="t1"), ruled(why="It is best.", winner="t1")])
    judges = ScriptedModel(lambda _: next(replies), card=FREE)
    results = [Given(f"t{number}", "?", "w", f"text {number}") for number in range(13)]
    choice = await select(WriterCalls(writer(judges), Desk()), "?", results)
    assert choice.result.task == "t1"
    assert "There was no ruling on [t0], [t2], [t4]" in choice.why


@pytest.mark.parametrize("winner", ["t2", "[t2]", "task t2", " t2 "])
async def test_a_winner_is_known_by_its_id_however_it_is_written(winner: str) -> None:
    found = await run(judge(f"My ruling:\n```json\n{ruled(why='so', winner=winner)}\n```"), ["one", "two"], "select")
    assert str(found.answer).startswith("two\n\n")


async def test_a_judge_that_cannot_be_reached_is_asked_again() -> None:
    lines: list[Line] = [Failure("network", "the line went dead"), ruled(why="so", winner="t2")]
    found = await run(judges := judge(lambda _: lines.pop(0)), ["one", "two"], "select")
    assert (found.ending, len(judges.requests)) == ("complete", 2)
    assert str(found.answer).startswith("two\n\n")


async def test_one_result_needs_no_judge() -> None:
    found = await run(judges := judge("never asked"), ["one", calls(call("give_up", reason="dark"))], "select")
    assert judges.requests == []
    assert str(found.answer) == "one\n\nNot answered:\n- t2: dark"
    assert [one.kind for one in answer_written(found).sections] == ["gaps"]


async def test_the_demo_model_selects_what_speaks_to_the_request() -> None:
    results = (Given("t1", "?", "w", "Nothing."), Given("t2", "?", "w", "There are 12 apples in the cellar."))
    calls = WriterCalls(writer(DemoModel()), desk := Desk())
    choice = await select(calls, "How many apples are in the cellar?", results)
    assert choice.result is results[1]
    assert choice.judged
    assert choice.why.startswith("Chosen from 2 results: [t2]. Why: It speaks to")
    assert desk.prompts


# --- vote


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("12", "12."),
        ("There are 12.", "12"),
        ("The answer is 12 EUR.", "12 EUR"),
        ("1,200,000 EUR", "1200000 EUR"),
        ("Yes.", "yes, it is"),
        ("**Paris**", '"Paris."'),
        ("Take  road A.", "Take road A"),
        ({"text": "Paris."}, "Paris"),
        ({"town": "Paris", "road": "A"}, {"road": "A", "town": "Paris"}),
        ("Blue", "blue."),
        (True, "Yes"),
    ],
)
def test_results_that_say_the_same_vote_for_the_same(one: object, other: object) -> None:
    assert ballot(one) == ballot(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("12", "13"),
        ("12 kg", "12 g"),
        ("Yes.", "No."),
        ("blue", "red"),
        ("-5", "5"),
        ("+1", "-1"),
        ("$5", "€5"),
        ("$5k", "$5M"),
        ("5 mW", "5 MW"),
        ("C++", "C#"),
        ("No. 7", "No. 3"),
        ("Yes, take road A.", "Yes, take road B."),
        ("Yes, it is.", "Yes, it is not."),
        ("✓", "✗"),
        ("5 < 3", "5 > 3"),
        ("5!", "5"),
        ("_id", "id"),
        ("*p", "p"),
        ("1,000", "1.000"),
        ("Python 3.10", "Python 3.1"),
        ("Ann owes Bob 5 euros", "Bob owes Ann 5 euros"),
        ("-5 to -3", "5 to 3"),
        ("- Ann\n- Bob and Eve", "- Ann and\n- Bob Eve"),
        ("Ann\nBob Eve", "Ann Bob\nEve"),
        ("The total is 12 of 20 boats", "12 of 20 boats were lost"),
        ({"text": "Approve it.", "amount": 5}, {"text": "Approve it.", "amount": 500}),
        ({"town": "Paris"}, {"town": "Lyon"}),
    ],
)
def test_results_that_say_otherwise_do_not(one: object, other: object) -> None:
    assert ballot(one) != ballot(other)


async def test_votes_are_counted_without_a_judge() -> None:
    found = await run(judges := judge("never asked"), ["11", "12", "There are 12."], "vote")
    assert judges.requests == []
    assert str(found.answer) == "12\n\n2 of 3 results agree: [t2], [t3].\n- [t1] says: 11"
    assert found.trace().supervision[-1].used.calls == 0


async def test_a_vote_without_a_majority_goes_to_the_judge() -> None:
    said = ["Red, like all of them.", "It looks blue to me.", "Blue, I would say."]
    ruling = ruled(why="Two see blue.", agree=["t2", "t3"], winner="t2")
    found = await run(judges := judge(ruling), said, "vote")
    assert str(found.answer).startswith("It looks blue to me.\n\nUndecided by count (no two of 3 results are the same)")
    assert "2 of 3 say the same, as the judge reads them. Why: Two see blue." in str(found.answer)
    assert len(judges.requests) == 1


async def test_a_worker_that_steps_in_for_another_votes_once() -> None:
    dead = ScriptedModel([Failure("logic", "no", permanent=True)], repeat=True)
    workers = [Worker("a", "reads", model=dead, fallbacks=["b"])]
    said = {"b": "Lyon", "c": "Paris", "d": "Paris"}
    workers += [Worker(name, "reads", model=ScriptedModel([text], repeat=True)) for name, text in said.items()]
    lead = Supervisor(model=ScriptedModel([]), strategy=Broadcast(), combine="vote")
    result = await Team(workers, supervisor=lead).run("Which town?")
    assert str(result.answer) == (
        "Paris\n\n2 of 3 results agree: [t3], [t4].\n- [t2] says: Lyon\n"
        "- [t1] is not counted: b stepped in for it and votes once"
    )


async def test_each_sample_is_served_by_a_cached_result_of_its_own() -> None:
    said = iter(["Lyon", "Paris", "Nice", "Rome"])
    worker = Worker("a", "reads", model=ScriptedModel(lambda _: next(said)))

    def samples(count: int) -> Supervisor:
        tasks = tuple(Task(TaskId(f"t{number}"), "Name the town.", "a") for number in range(count))
        return Supervisor(model=judge(ruled(why="So it is.", winner="t1")), plan=Plan(tasks, "vote"))

    journal = MemoryJournal()
    first = await Team([worker], supervisor=samples(3), cache=600, journal=journal).run("Which town?")
    again = await Team([worker], supervisor=samples(4), cache=600, journal=journal).run("Which town?")
    assert again.results == {**first.results, "t3": {"text": "Rome"}}
    assert "no two of 4 results are the same" in str(again.answer)


# --- long results


def long_text(lines: int) -> str:
    return "START\n" + "Nothing to report from the pump.\n" * lines + "RECALL: it leaks gas."


@pytest.mark.parametrize("combine", ["merge", "reduce", "select", "vote"])
@pytest.mark.parametrize(("window", "is_read"), [(1_000_000, True), (8_000, False)])
async def test_long_results_are_read_whole_or_the_answer_says_that_they_were_not(
    combine: str, window: int, is_read: bool
) -> None:
    read: list[str] = []

    def script(request: Request) -> Line:
        read.append(request.messages[-1].text)
        return ruled(why="So it is.", winner="t2") if isinstance(request.subject, Judging) else "All quiet."

    card = ModelCard("judge", window=window, micros_in=0.0, micros_out=0.0)
    found = await run(ScriptedModel(script, card=card), [long_text(9000), "All quiet."], combine)
    in_whole = any("RECALL" in text and "START" in text for text in read)
    assert in_whole == is_read
    is_told = "Not all of the results were read: the judge read only the beginning of t1." in str(found.answer)
    assert is_told == (not is_read and combine in ("select", "vote"))
    assert is_told or any("RECALL" in text for text in read), "what does not fit is shortened in pieces"


# --- contradictions


def given(task: str, text: object, instruction: str = COUNT) -> Given:
    return Given(task, instruction, "w", text)


def table(*rows: tuple[object, ...]) -> dict[str, object]:
    artifact = {"kind": "table", "columns": ["country", "revenue"], "rows": rows}
    return {"text": "", "artifacts": [artifact]}


def test_other_numbers_for_the_same_thing_are_a_contradiction() -> None:
    (found,) = find_contradictions(
        [given("t1", "There are 12 apples in the cellar."), given("t2", "There are 14 apples in the cellar.")]
    )
    assert found == Contradiction("apples in the cellar", (("t1", "12"), ("t2", "14")))
    (found,) = find_contradictions(
        [given("t1", table(("Spain", 12.5), ("Chile", 3))), given("t2", table(("Spain", 15.5), ("Chile", 3)))]
    )
    assert found.values == (("t1", "12.5"), ("t2", "15.5"))
    figures = (
        {"text": "", "artifacts": [{"kind": "figure", "value": v, "unit": "EUR", "label": "Rent"}]} for v in "78"
    )
    (found,) = find_contradictions([given(f"t{n}", one) for n, one in enumerate(figures, 1)])
    assert found == Contradiction("Rent", (("t1", "7 eur"), ("t2", "8 eur")))


def test_yes_and_no_to_one_question_are_a_contradiction() -> None:
    (found,) = find_contradictions([given("t1", "Yes, it is.", "Is it open?"), given("t2", "No.", "Is it open?")])
    assert found.values == (("t1", "yes"), ("t2", "no"))
    assert [read_yes_or_no(one) for one in ("No dogs here.", "Nothing", {"text": "No: closed"}, 3)] == [
        "",
        "",
        "no",
        "",
    ]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (given("t1", "Sales: 12 EUR.", "Report sales in May."), given("t2", "Sales: 14 EUR.", "Report sales in June.")),
        (given("t1", "Sales: 12 EUR.", "Sales in the north."), given("t2", "Sales: 14 EUR.", "Sales in the south.")),
        (given("t1", table(("Spain", 12)), "Sales this month"), given("t2", table(("Spain", 14)), "Sales last month")),
        (given("t1", "The rent is 12 EUR."), given("t2", "The rent is 13 USD.")),
        (given("t1", "The weight is 12.31 kg."), given("t2", "The weight is 12.3 kg.")),
        (given("t1", "The weight is 12 kg."), given("t2", "The weight is about 14 kg.")),
        (given("t1", "The price was 12 in 2024 and 13 in 2025."), given("t2", "The price was 14.")),
        (given("t1", "Apples: 12. Apples: 13."), given("t2", "Apples: 14.")),
        (given("t1", "Yes.", "Is A open?"), given("t2", "No.", "Is B open?")),
        (given("t1", 12), given("t2", 13)),
    ],
)
def test_what_may_be_about_something_else_is_none(one: Given, other: Given) -> None:
    assert find_contradictions([one, other]) == ()


@pytest.mark.parametrize(
    ("one", "other", "values"),
    [
        ("The balance is -5 euros.", "The balance is 5 euros.", ("-5 eur", "5 eur")),
        ("The balance is -$5.", "The balance is $5.", ("-5 usd", "5 usd")),
        ("The price is $5.", "The price is €5.", ("5 usd", "5 eur")),
        ("The price is $5k.", "The price is $5M.", ("5k usd", "5M usd")),
        ("The cost is 5 million euros.", "The cost is 5 billion euros.", ("5 million", "5 billion")),
    ],
)
def test_a_sign_a_currency_and_a_scale_are_part_of_a_value(one: str, other: str, values: tuple[str, str]) -> None:
    (found,) = find_contradictions([given("t1", one), given("t2", other)])
    assert tuple(value for _, value in found.values) == values


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The price is $5k.", "The price is $5,000."),
        ("The cost is 5 million euros.", "The cost is 5,000,000 euros."),
        ("The price is 5.", "The price is $5."),
        ("The mast is 5 m high.", "The mast is 5 m high."),
    ],
)
def test_the_same_value_in_other_words_is_no_contradiction(one: str, other: str) -> None:
    assert find_contradictions([given("t1", one), given("t2", other)]) == ()


def test_a_result_that_was_made_from_another_may_correct_it() -> None:
    results = [given("t1", "Rent: 12 EUR."), given("t2", "Rent: 14 EUR.")]
    assert find_contradictions(results)
    assert find_contradictions(results, {"t2": ("t1",)}) == ()


CLASH = ("There are 12 apples in the cellar.", "There are 14 apples in the cellar.")


async def test_a_contradiction_is_ruled_on_and_shown_with_both_values() -> None:
    ruling = ruled(why="It counted twice.", ruling="There are 14.", winner="t2")
    found = await run(judges := judge(ruling, "There are 14 apples [t2]."), CLASH, "merge")
    assert str(found.answer) == (
        "There are 14 apples [t2].\n\nThe results contradict each other:\n"
        "- apples in the cellar: 12 [t1] or 14 [t2]. Ruled for 14 [t2]: It counted twice.\n\n"
        "Checked: 1 figure traced only to a worker's words; 1 contradiction ruled on; not used: t1."
    )
    subject = judges.requests[0].subject
    assert isinstance(subject, Judging)
    assert subject.claims == ("[t1] apples in the cellar: 12", "[t2] apples in the cellar: 14")
    assert "Ruled for 14 [t2]" in judges.requests[1].messages[1].text
    assert found.trace().supervision[-1].used == found.trace().supervision[0].used.__class__(30, 14, 2)
    assert "contradict each other" in notes(found)


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (ruled(why="Neither shows its work.", ruling="open", winner=None), "open: Neither shows its work."),
        ("no JSON", "open: there is no ruling."),
        (ruled(why="x", ruling="y", winner="t7"), "open: there is no ruling."),
        (Failure("network", "gone"), "open: there is no ruling."),
    ],
)
async def test_without_a_usable_ruling_a_contradiction_stays_open(reply: Line, why: str) -> None:
    found = await run(judge(reply, "There are 12 or 14 apples [t1, t2]."), CLASH, "merge")
    assert found.ending == "complete"
    assert f"12 [t1] or 14 [t2]. This is {why}" in str(found.answer)
    assert "; 1 contradiction open." in str(found.answer)


async def test_no_more_than_five_contradictions_are_judged() -> None:
    said = ["\n".join(f"The weight of box {name} is {n} kg." for name in "abcdefgh") for n in (1, 2)]
    found = await run(judges := judge(ruled(why="so", ruling="1", winner="t1")), said, "merge")
    assert len([one for one in judges.requests if isinstance(one.subject, Judging)]) == 5
    assert str(found.answer).count("Ruled for 1 kg [t1]") == 5


async def test_the_demo_model_leaves_a_contradiction_open() -> None:
    results = (given("t1", "Rent: 12 EUR."), given("t2", "Rent: 14 EUR."))
    ruling = await rule(WriterCalls(writer(DemoModel()), Desk()), Judging("Rent?", results=results))
    assert ruling is not None
    assert ruling.winner == ""


# --- what no result bears out, and coverage


async def test_an_invented_number_is_named_below_the_answer_and_noted() -> None:
    found = await run(judge("never asked", "There are 21 apples [t1], see https://apples.example."), CLASH[:1], "merge")
    assert str(found.answer) == (
        "There are 21 apples [t1], see https://apples.example.\n\n"
        "Not traced to a tool:\n- https://apples.example, cited from [t1]\n- 21, cited from [t1]\n\n"
        "Checked: 2 figures traced to nothing."
    )
    assert (found.ending, [gap.status for gap in found.gaps]) == ("partial", ["untraced", "untraced"])
    assert ("21", ("t1",)) in [(one.text, one.cited) for one in found.untraced]


async def test_gaps_lower_the_coverage_and_a_complete_answer_says_nothing_of_it() -> None:
    gone = calls(call("give_up", reason="dark"))
    found = await run(judge("never", "There are 12 apples [t1]."), [CLASH[0], CLASH[0], gone], "merge")
    assert str(found.answer).endswith(
        "Checked: 1 figure traced only to a worker's words; 2 of 3 parts covered; not used: t2; not covered: t3."
    )
    found = await run(judge("never", "There are 12 apples [t1, t2]."), [CLASH[0], CLASH[0]], "merge")
    assert str(found.answer) == "There are 12 apples [t1, t2]."


async def test_a_call_that_reports_no_usage_counts_as_a_call() -> None:
    clueless = ScriptedModel([Reply("a", usage=Usage(1, 1), micros=1), Reply("b")])
    made = WriterCalls(writer(clueless), Desk())
    for _ in range(2):
        held = await made.hold(Request(()))
        assert held is not None
        await made.write(held)
    assert made.total() == Amount(tokens=2, micros=1, calls=2)


# --- a real model, if a tiny one


@pytest.mark.thorough
async def test_a_real_model_selects_rules_and_reduces() -> None:
    pull("smollm2-135m", MODELS)
    local = LocalModel("smollm2-135m", folder=MODELS)
    try:
        results = (given("t1", "I do not know."), given("t2", "There are 12 apples in the cellar."))
        made = WriterCalls(writer(local, temperature=0.0), Desk())
        choice = await select(made, COUNT, results)
        assert choice.why.startswith(f"Chosen from 2 results: [{choice.result.task}]. Why: ")
        total = made.total()
        assert total is not None
        assert (total.calls, total.tokens > 100) == (1, True)
        clash = (given("t1", CLASH[0]), given("t2", CLASH[1]))
        claims = ("[t1] apples in the cellar: 12", "[t2] apples in the cellar: 14")
        ruling = await rule(WriterCalls(writer(local, temperature=0.0), Desk()), Judging(COUNT, claims, clash))
        assert ruling is not None
        assert ruling.winner in ("t1", "t2", "")
        assert ruling.why
    finally:
        await local.close()


@pytest.mark.thorough
async def test_a_real_model_reduces_what_its_window_does_not_hold() -> None:
    pull("smollm2-135m", MODELS)
    local = LocalModel("smollm2-135m", folder=MODELS)

    class Narrow:
        """The real model, said to read no more than this."""

        card = ModelCard("local:narrow", window=160, micros_in=0.0, micros_out=0.0)
        reply = local.reply

    try:
        text = "There are 12 red apples here. " * 8
        pieces = [Piece(text, (f"t{n}",), f"task t{n}, ann: count") for n in (1, 2)]
        made = WriterCalls(writer(Narrow(), temperature=0.0, max_tokens=24), Desk())
        short = join_pieces(await reduce_results(made, COUNT, pieces, "ab"), "ab")
        assert 0 < len(short) < 2 * len(text)
        assert "t1]" in short
        assert made.total() is not None
    finally:
        await local.close()


def test_the_schema_of_a_ruling_allows_what_is_asked_for() -> None:

    held = json.loads(bytes(ruling_schema(("t1", "t2"), "contradiction")))
    assert list(problems({"why": "a", "ruling": "b", "winner": None}, held)) == []
    assert list(problems({"why": "a", "ruling": "b", "winner": "t3"}, held))
    assert list(problems({"why": "a", "winner": None}, json.loads(bytes(ruling_schema(("t1",), "select")))))
