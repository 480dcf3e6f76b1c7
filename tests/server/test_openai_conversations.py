"""What becomes of a conversation of an OpenAI client: its last message is the request, the others stay as they were."""

import base64
import re
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.server.model_server import Question
from tests.server.test_openai import client, desk, said

_PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PICTURE: list[Any] = [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{_PIXEL}"}}]
ORDER = "Pay Ott 120 euros."


def request_of(question: Question) -> str:
    """The request in a planner's prompt, up to the material."""
    return question.user.partition("<data ")[0]


def test_a_picture_without_words_is_the_request(tmp_path: Path) -> None:
    with desk(tmp_path, "Done.") as (server, fake):
        messages: Any = [*said(ORDER, "Paid."), {"role": "user", "content": PICTURE}]
        client(server).chat.completions.create(model="desk", messages=messages)
        assert ORDER not in request_of(fake.questions[0])
        assert ORDER in fake.questions[0].user
        assert "without any words" in request_of(fake.questions[0])


def test_a_picture_without_words_is_the_request_of_a_response(tmp_path: Path) -> None:
    with desk(tmp_path, "Done.") as (server, fake):
        calling = client(server)
        first = calling.responses.create(model="desk", input=ORDER)
        fake.questions.clear()
        picture: Any = [
            {"type": "input_image", "image_url": PICTURE[0]["image_url"]["url"]},
        ]
        items: Any = [{"role": "user", "content": picture}]
        calling.responses.create(model="desk", input=items, previous_response_id=first.id)
        assert ORDER not in request_of(fake.questions[0])
        assert ORDER in fake.questions[0].user


@pytest.mark.parametrize("last", ["", "  \n", [{"type": "text", "text": " "}]])
def test_a_blank_last_message_is_refused_and_pays_nothing_again(tmp_path: Path, last: Any) -> None:
    messages: Any = [*said(ORDER, "Paid."), {"role": "user", "content": last}]
    with desk(tmp_path, "Done.") as (server, fake):
        calling = client(server)
        with pytest.raises(openai.BadRequestError, match="the last user message is blank"):
            calling.chat.completions.create(model="desk", messages=messages)
        assert fake.questions == []


@pytest.mark.parametrize("items", ["  ", [], [{"role": "system", "content": "Be kind."}]])
def test_a_response_without_a_request_does_not_repeat_the_one_before(tmp_path: Path, items: Any) -> None:
    with desk(tmp_path, "Done.") as (server, fake):
        calling = client(server)
        first = calling.responses.create(model="desk", input=ORDER)
        fake.questions.clear()
        with pytest.raises(openai.BadRequestError, match="send a user message with some text or a file"):
            calling.responses.create(model="desk", input=items, previous_response_id=first.id)
        assert fake.questions == []


def test_turns_keep_their_numbers_when_the_first_are_left_out(tmp_path: Path) -> None:
    turns = [f"RULE{number} holds. {'x' * 3000}" for number in range(1, 41)]
    with desk(tmp_path, "Done.") as (server, fake):
        reply = client(server).chat.completions.create(model="desk", messages=said(*turns, "Which was the first?"))
        shown = re.findall(r'turn (\d+) \((user|assistant)\)">\nRULE(\d+) holds', fake.questions[0].user)
    assert shown
    assert all(number == rule for number, _, rule in shown)
    assert shown[-1][2] == "40"
    left = int(shown[0][2]) - 1
    assert f"… {left} earlier turns are left out here: only the client has them …" in fake.questions[0].user
    assert extra(reply)["left_out_turns"] == left


def test_a_turn_that_is_cut_says_how_much_is_left_out(tmp_path: Path) -> None:
    with desk(tmp_path, "Done.") as (server, fake):
        order = f"Pay all. {'x' * 20_000} Except Ott."
        reply = client(server).chat.completions.create(model="desk", messages=said(order, "Paid.", "And now?"))
        found = re.search(r"(x+) … ([\d,]+) characters are left out here", fake.questions[0].user)
    assert found is not None
    assert int(found[2].replace(",", "")) + len(found[1]) == len(order) - len("Pay all. ")
    assert "left_out_turns" not in extra(reply)


def test_numbers_go_on_from_one_response_to_the_next(tmp_path: Path) -> None:
    with desk(tmp_path, f"Done. {'y' * 3000}") as (server, fake):
        calling = client(server)
        response = calling.responses.create(model="desk", input=f"ASK0 {'x' * 3000}")
        for number in range(1, 9):
            fake.questions.clear()
            words = f"ASK{number} {'x' * 3000}"
            response = calling.responses.create(model="desk", input=words, previous_response_id=response.id)
        shown = re.findall(r'turn (\d+) \(user\)">\nASK(\d+)', fake.questions[0].user)
    assert shown
    assert [int(turn) for turn, _ in shown] == [2 * int(ask) + 1 for _, ask in shown]
    assert extra(response)["left_out_turns"] > 0
    assert f"… {extra(response)['left_out_turns']} earlier turns are left out here" in fake.questions[0].user


def test_speakers_are_named(tmp_path: Path) -> None:
    messages: Any = [
        {"role": "user", "name": "ann", "content": "My seat is 12A."},
        {"role": "user", "name": "bob", "content": "My seat is 30F."},
        {"role": "user", "name": "bob", "content": "Which is my seat?"},
    ]
    with desk(tmp_path, "Done.") as (server, fake):
        client(server).chat.completions.create(model="desk", messages=messages)
        text = fake.questions[0].user
        assert 'turn 1 (user ann)">\nMy seat is 12A.' in text
        assert 'turn 2 (user bob)">\nMy seat is 30F.' in text
        assert "Which is my seat?\n\n(This message is from bob.)" in request_of(fake.questions[0])


def test_system_items_hold_for_the_next_responses_and_instructions_do_not(tmp_path: Path) -> None:
    rule = {"role": "system", "content": "Never name prices."}
    items: Any = [rule, {"role": "user", "content": "Hello."}]
    with desk(tmp_path, "Done.") as (server, fake):
        calling = client(server)
        response = calling.responses.create(model="desk", input=items, instructions="Be short.")
        assert "Be short." in request_of(fake.questions[0])
        for words in ("What does a tent cost?", "And a stove?"):
            fake.questions.clear()
            again: Any = [rule, {"role": "user", "content": words}]
            response = calling.responses.create(model="desk", input=again, previous_response_id=response.id)
            assert request_of(fake.questions[0]).count("Never name prices.") == 1
            assert "Be short." not in fake.questions[0].user
        fake.questions.clear()
        calling.responses.create(model="desk", input="And a lamp?", previous_response_id=response.id)
        assert "Never name prices." in request_of(fake.questions[0])


def extra(reply: Any) -> dict[str, Any]:
    """What stands under `chargehand`."""
    return reply.model_extra["chargehand"]


def test_deleting_a_run_names_the_later_runs_that_hold_its_words(tmp_path: Path) -> None:
    with desk(tmp_path, "Done.") as (server, _):
        calling = client(server)
        first = calling.responses.create(model="desk", input="My IBAN is DE02 1203.")
        second = calling.responses.create(model="desk", input="Thanks.", previous_response_id=first.id)
        other = calling.responses.create(model="desk", input="Hello.")
        branch = calling.responses.create(model="desk", input="And?", previous_response_id=first.id)
        third = calling.responses.create(model="desk", input="Bye.", previous_response_id=second.id)
        calling.responses.create(model="desk", input="Bye.", previous_response_id=other.id)
        runs = [each.id.removeprefix("resp_") for each in (first, second, branch, third)]
        headers = {"Authorization": f"Bearer {server.token}"}
        with httpx.Client(base_url=server.url, headers=headers) as http:
            told = http.delete(f"/api/runs/{runs[0]}").json()
            assert told == {"runs": [runs[0]], "kept_in": runs[1:]}
            for run in told["kept_in"]:
                http.delete(f"/api/runs/{run}").raise_for_status()
        with pytest.raises(openai.NotFoundError):
            calling.responses.create(model="desk", input="Who am I?", previous_response_id=third.id)


def picture(colour: str) -> dict[str, Any]:
    """A picture that differs by its colour."""
    chart = base64.b64encode(base64.b64decode(_PIXEL) + colour.encode()).decode()
    return {"type": "input_image", "image_url": f"data:image/png;base64,{chart}"}


def message(text: str, *files: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "input_text", "text": text}, *files]}


def test_pictures_are_told_with_their_turns(tmp_path: Path) -> None:
    def turns_shown(question: Question) -> list[str]:
        return re.findall(r'file file \(image/png, file-\w+\)([^"]*)"', question.user)

    ok = {"role": "assistant", "content": "Ok."}
    items: Any = [message("Ann's badge.", picture("red")), ok, message("Bob's.", picture("blue")), ok]
    items.append(message("Bob has Ann's now. Whose is this?", picture("red"), picture("green")))
    with desk(tmp_path, "Done.") as (server, fake):
        calling = client(server)
        first = calling.responses.create(model="desk", input=items)
        assert turns_shown(fake.questions[0]) == [", sent in turns 1 and 5", ", sent in turn 3", ""]
        fake.questions.clear()
        more: Any = [message("And these?", picture("blue"))]
        calling.responses.create(model="desk", input=more, previous_response_id=first.id)
        assert turns_shown(fake.questions[0]) == [
            ", sent in turns 1 and 5",
            ", sent in turns 3 and 7",
            ", sent in turn 5",
        ]
        fake.questions.clear()
        calling.responses.create(model="desk", input=[message("Alone.", picture("red"))])  # pyright: ignore[reportArgumentType] - plain data
        assert turns_shown(fake.questions[0]) == [""]
