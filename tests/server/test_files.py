"""Files that are uploaded once and given to runs by their ids, and what tools returned, as files to save."""

import base64
import json
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import httpx
import openai
import pytest

from chargehand.server.settings import ServerLimits
from chargehand.store_url import postgres_url
from tests.sample_files import make_pdf
from tests.server.api import Garden, garden, key_for
from tests.server.model_server import Answer, FakeModel, Question, fake_model
from tests.server.running import Running, running, settings_in

PNG = b"\x89PNG\r\n\x1a\n" + bytes(64)
PLAN = {"tasks": [{"id": "t1", "instruction": "Say what is in it.", "worker": "reader"}], "combine": "merge"}
TEAM = """
version: 1
name: desk
defaults: {{model: "{handle}"}}
workers:
  reader:
    description: Reads files and looks at pictures.
"""


def think(question: Question) -> Answer | str:
    if "Break the request into tasks" in question.system:
        return json.dumps(PLAN)
    return "There is a cat in it."


@contextmanager
def desk(folder: Path, **changes: object) -> Generator[tuple[Running, FakeModel, httpx.Client]]:
    """A server whose team has a language model behind a socket."""
    with fake_model(think) as model:
        team = folder / "team.yaml"
        team.write_text(TEAM.format(handle=model.handle))
        with (
            running(settings_in(folder / "data", teams=(team,), grace=0.5, **changes)) as server,
            httpx.Client(base_url=server.url, headers=server.headers, timeout=30) as client,
        ):
            yield server, model, client


def upload(client: httpx.Client, body: bytes, media_type: str, name: str = "cat.png") -> httpx.Response:
    return client.post("/api/files", content=body, headers={"Content-Type": media_type}, params={"name": name})


def wait(client: httpx.Client, run: str) -> dict[str, Any]:
    return Garden(None, client, Path()).wait(run)  # pyright: ignore[reportArgumentType] - only its client is used


def begin(client: httpx.Client, *files: str) -> str:
    begun = client.post("/api/runs", json={"team": "desk", "goal": "What is in the file?", "files": files})
    assert begun.status_code == 201, begun.text
    return begun.json()["run"]


def pictures(model: FakeModel) -> list[str]:
    """The addresses of all pictures that the model was shown."""
    urls: list[str] = []
    for question in model.questions:
        for message in question.messages:
            parts: Any = message["content"]
            if isinstance(parts, list):
                urls += [part["image_url"]["url"] for part in cast("list[Any]", parts) if part["type"] == "image_url"]
    return urls


DATA_URL = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"


def test_a_picture_is_shown_to_the_model_of_a_worker_and_no_journal_has_its_bytes(tmp_path: Path) -> None:
    with desk(tmp_path) as (_, model, client):
        sent = upload(client, PNG, "image/png").json()
        run = begin(client, sent["id"])
        shown = wait(client, run)
        assert shown["summary"]["state"] == "complete", shown
        assert pictures(model) == [DATA_URL]
        entries = client.get(f"/api/runs/{run}/entries").text
        assert base64.b64encode(PNG).decode() not in entries
        assert sent["id"] in entries
        forked = client.post(f"/api/runs/{run}/fork", json={"again": ["t1"]})
        assert forked.status_code == 201, forked.text
        wait(client, forked.json()["run"])
        assert pictures(model) == [DATA_URL, DATA_URL], "a run that is made from it has the same files"


def test_the_text_of_a_file_is_data_for_its_worker(tmp_path: Path) -> None:
    with desk(tmp_path) as (_, model, client):
        sent = upload(client, "city,people\nÅlesund,68000\n".encode(), "text/csv; charset=utf-8", "cities.csv").json()
        assert (sent["name"], sent["media_type"], sent["size"]) == ("cities.csv", "text/csv", 27)
        wait(client, begin(client, sent["id"]))
        asked = model.questions[1]  # the first one plans
        assert "Ålesund,68000" in asked.user
        assert "<data" in asked.user


def test_the_text_of_a_pdf_is_data_for_a_worker_whose_model_takes_no_pdfs(tmp_path: Path) -> None:
    with desk(tmp_path) as (_, model, client):
        sent = upload(client, make_pdf("The sum is 42."), "application/pdf", "paper.pdf").json()
        run = begin(client, sent["id"])
        assert wait(client, run)["citations"] == {}
        assert "[page 1]\nThe sum is 42." in model.questions[1].user
        broken = upload(client, b"%PDF-1.7 and no more", "application/pdf", "broken.pdf").json()["id"]
        found = client.post("/api/runs", json={"team": "desk", "goal": "What is in it?", "files": [broken]})
        assert (found.status_code, found.json()["code"]) == (415, "wrong_file_type"), found.text
        assert "the file broken.pdf cannot be read as a PDF" in found.json()["detail"]


def test_a_file_is_kept_over_a_restart_and_downloaded_as_it_was(tmp_path: Path) -> None:
    with desk(tmp_path) as (_, _, client):
        first = upload(client, PNG, "image/png").json()
        assert upload(client, PNG, "image/png").json() == first, "the same file again is the same file"
    with desk(tmp_path) as (_, model, client):
        assert client.get("/api/files").json() == {"files": [first], "next": None}
        assert client.get(f"/api/files/{first['id']}").json() == first
        content = client.get(f"/api/files/{first['id']}/content")
        assert content.content == PNG
        assert content.headers["content-disposition"] == "attachment; filename*=UTF-8''cat.png"
        wait(client, begin(client, first["id"]))
        assert pictures(model) == [DATA_URL]


@pytest.mark.parametrize(
    ("body", "media_type", "status", "code"),
    [
        (b"GIF89a" + bytes(9), "image/png", 415, "wrong_file_type"),
        (b"PDF-1.7", "application/pdf", 415, "wrong_file_type"),
        (b"%PDF-1.7", "application/msword", 415, "wrong_file_type"),
        (b"\xff\xfe\x00", "text/plain", 415, "wrong_file_type"),
        (b"", "text/plain", 422, "invalid"),
        (b"x" * 2001, "text/plain", 413, "too_large"),
        (b"x" * 2000, "text/plain", 409, "refused"),
    ],
)
def test_what_cannot_be_kept_is_refused_and_says_why(
    tmp_path: Path, body: bytes, media_type: str, status: int, code: str
) -> None:
    with garden(tmp_path, limits=ServerLimits(upload=2000, files=2100)) as home:
        assert upload(home.client, b"y" * 101, "text/plain").status_code == 200
        found = upload(home.client, body, media_type)
        assert (found.status_code, found.json()["code"]) == (status, code), found.text
        assert len(home.client.get("/api/files").json()["files"]) == 1


def test_an_upload_that_does_not_say_its_length_is_bounded_too(tmp_path: Path) -> None:
    with garden(tmp_path, limits=ServerLimits(upload=2000)) as home:
        pieces = iter([b"x" * 1500] * 2)
        found = home.client.post("/api/files", content=pieces, headers={"Content-Type": "text/plain"})
        assert (found.status_code, found.json()["code"]) == (413, "too_large"), found.text
        assert home.client.get("/api/files").json() == {"files": [], "next": None}


def test_files_of_another_tenant_and_deleted_ones_are_not_there(tmp_path: Path) -> None:
    with garden(tmp_path) as home:
        theirs = upload(home.client, b"secret", "text/plain").json()["id"]
        stranger = key_for(tmp_path, "other")
        for method, path in (("GET", ""), ("GET", "/content"), ("DELETE", "")):
            found = home.client.request(method, f"/api/files/{theirs}{path}", headers=stranger)
            assert found.status_code == 404, found.text
        body = {"team": "garden", "goal": "What is in it?", "files": [theirs]}
        assert home.client.post("/api/runs", json=body, headers=stranger).status_code == 404
        assert home.client.delete(f"/api/files/{theirs}").status_code == 204
        found = home.client.post("/api/runs", json=body)
        assert (found.status_code, found.json()["code"]) == (404, "unknown")
        assert theirs in found.json()["detail"]


def test_a_team_without_a_language_model_takes_no_files(tmp_path: Path) -> None:
    with garden(tmp_path) as home:
        sent = upload(home.client, b"city,people", "text/csv").json()["id"]
        found = home.client.post("/api/runs", json={"team": "garden", "goal": "What is in it?", "files": [sent]})
        assert (found.status_code, found.json()["code"]) == (422, "invalid"), found.text
        assert "the demo model takes no files" in found.json()["detail"]


def test_texts_that_are_too_long_together_are_refused(tmp_path: Path) -> None:
    with desk(tmp_path) as (_, _, client):
        sent = [upload(client, bytes([letter]) * 600_000, "text/plain").json()["id"] for letter in b"ab"]
        found = client.post("/api/runs", json={"team": "desk", "goal": "What is in it?", "files": sent})
        assert (found.status_code, found.json()["code"]) == (413, "too_large"), found.text


def test_a_picture_that_was_deleted_fails_its_task_and_says_so(tmp_path: Path) -> None:
    with desk(tmp_path) as (_, model, client):
        sent = upload(client, PNG, "image/png").json()["id"]
        plan = {**PLAN, "goal": "What is in the file?"}
        body = {"team": "desk", "goal": "What is in the file?", "files": [sent], "plan": plan, "approve": True}
        run = client.post("/api/runs", json=body).json()["run"]
        home = Garden(None, client, tmp_path)  # pyright: ignore[reportArgumentType] - only its client is used
        waiting: Any = home.wait(run, "needs_input")
        number = waiting["question"]["number"]
        client.delete(f"/api/files/{sent}")
        assert client.post(f"/api/runs/{run}/plan", json={"number": number, "verdict": "approve"}).status_code == 200
        shown = home.wait(run, "failed", "partial")
        assert "deleted" in json.dumps(shown["gaps"])
        assert not pictures(model)


def test_a_file_that_one_server_took_is_read_by_another_of_the_same_database(
    tmp_path: Path, postgres_store: str
) -> None:
    store = postgres_url(postgres_store)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with desk(tmp_path / "a", store=store) as (_, _, first), desk(tmp_path / "b", store=store) as (_, model, second):
        sent = upload(first, PNG, "image/png").json()["id"]
        assert second.get(f"/api/files/{sent}/content").content == PNG
        wait(second, begin(second, sent))
        assert pictures(model) == [DATA_URL]


# --- what tools returned


def test_what_tools_returned_is_saved_as_files(tmp_path: Path) -> None:
    with garden(tmp_path) as home:
        run = home.begin("What do our notes say about planting out tomatoes?")
        home.wait(run)
        (info,) = home.client.get(f"/api/runs/{run}/artifacts").json()["artifacts"]
        assert (info["kind"], info["number"], info["name"]) == ("passages", 1, "passages-1.json")
        saved = home.client.get(f"/api/runs/{run}/tasks/{info['task']}/artifacts/1")
        assert "15 May" in saved.text
        assert saved.headers["content-disposition"].startswith("attachment")
        assert home.client.get(f"/api/runs/{run}/tasks/{info['task']}/artifacts/2").status_code == 404


# --- clients of OpenAI


def test_an_openai_client_uploads_once_and_names_the_file_in_its_messages(tmp_path: Path) -> None:
    with (
        desk(tmp_path) as (server, model, _),
        openai.OpenAI(base_url=f"{server.url}/v1", api_key=server.token, max_retries=0) as client,
    ):
        file = client.files.create(file=("cat.png", PNG), purpose="user_data")
        assert (file.filename, file.bytes, file.status) == ("cat.png", len(PNG), "processed")
        assert [one.id for one in client.files.list(limit=1)] == [file.id]
        assert client.files.content(file.id).content == PNG
        text: Any = {"type": "text", "text": "What is in it?"}
        parts: list[Any] = [text, {"type": "file", "file": {"file_id": file.id}}]
        client.chat.completions.create(model="team/desk", messages=[{"role": "user", "content": parts}])
        assert pictures(model) == [DATA_URL]
        first = client.responses.create(
            model="team/desk",
            input=[
                {
                    "role": "user",
                    "content": [
                        {"type": "input_text", "text": "What is in it?"},
                        {"type": "input_image", "detail": "auto", "file_id": file.id},
                    ],
                }
            ],
        )
        client.responses.create(model="team/desk", input="And what else?", previous_response_id=first.id)
        assert pictures(model) == [DATA_URL] * 3, "an earlier picture is still there"
        assert client.files.delete(file.id).deleted
        with pytest.raises(openai.NotFoundError):
            client.files.retrieve(file.id)
        with pytest.raises(openai.NotFoundError):
            client.chat.completions.create(model="team/desk", messages=[{"role": "user", "content": parts}])


def test_a_picture_in_a_message_is_shown_and_one_elsewhere_is_not_fetched(tmp_path: Path) -> None:
    with (
        desk(tmp_path) as (server, model, _),
        openai.OpenAI(base_url=f"{server.url}/v1", api_key=server.token, max_retries=0) as client,
    ):

        def ask(url: str) -> None:
            text: Any = {"type": "text", "text": "What is in it?"}
            parts: list[Any] = [text, {"type": "image_url", "image_url": {"url": url}}]
            client.chat.completions.create(model="team/desk", messages=[{"role": "user", "content": parts}])

        ask(DATA_URL)
        assert pictures(model) == [DATA_URL]
        for url in (
            "http://127.0.0.1:1/cat.png",
            "data:image/png;base64,A",
            "data:image/png,cat",
            "data:video/mp4;base64,AAAA",
        ):
            with pytest.raises(openai.BadRequestError) as caught:
                ask(url)
            assert caught.value.param == "messages[0].content[1]"


# --- workers that are functions


FUNCTION = """
async def look(assignment, context):
    (file,) = assignment.files
    return f"{file.name} has {len(await context.read_file(file.id))} bytes"
"""


def test_a_function_reads_the_bytes_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(FUNCTION)
    team = tmp_path / "team.yaml"
    entry = '  looker: {description: looks at files, call: "tools:look"}\n'
    team.write_text(f"version: 1\nname: desk\nworkers:\n{entry}")
    plan = {"tasks": [{"id": "t1", "instruction": "Look.", "worker": "looker"}], "combine": "forward"}
    with (
        running(settings_in(tmp_path / "data", teams=(team,))) as server,
        httpx.Client(base_url=server.url, headers=server.headers, timeout=30) as client,
    ):
        sent = upload(client, PNG, "image/png").json()["id"]
        body = {"team": "desk", "goal": "Look at it.", "plan": plan, "files": [sent]}
        run = client.post("/api/runs", json=body).json()["run"]
        shown = wait(client, run)
        assert shown["answer"] == f"cat.png has {len(PNG)} bytes", shown
