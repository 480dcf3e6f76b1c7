"""What becomes of a conversation of an OpenAI client: its last message is the request, the others stay as they were."""

from pathlib import Path
from typing import Any

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
