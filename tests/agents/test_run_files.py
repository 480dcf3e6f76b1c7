"""Files of this machine that a run is given: `team.run(goal, files=[...])`."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from chargehand import Assignment, MemoryJournal, Plan, ScriptedModel, StepContext, Supervisor, Task, Team, Worker
from chargehand.engine import events as ev
from chargehand.errors import ChargehandError, FileTooLarge, Invalid, Unknown, WrongFileType
from chargehand.journal.files import file_id
from chargehand.journal.store import open_journal
from chargehand.models.messages import Request
from chargehand.models.model import ModelCard
from chargehand.runtime.files import MAX_FILE

PNG = b"\x89PNG\r\n\x1a\n" + bytes(64)
GOAL = "What is in the files?"
SEES = ModelCard("scripted", keeps_limit=True, images=True)


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    table = tmp_path / "cities.csv"
    table.write_text("city,people\nÅlesund,68000\n", encoding="utf-8")
    photo = tmp_path / "photo.png"
    photo.write_bytes(PNG)
    return [table, photo]


def desk(model: ScriptedModel, journal: MemoryJournal | Path | None = None) -> Team:
    plan = Plan((Task("t1", "Say what is in them.", "reader"),), "forward")
    return Team([Worker("reader", "reads files")], supervisor=Supervisor(model=model, plan=plan), journal=journal)


def images(request: Request) -> list[bytes]:
    return [image.data for message in request.messages for image in message.images]


@pytest.mark.parametrize("kind", ["memory", "sqlite", "left out"])
async def test_texts_are_data_of_the_first_tasks_and_pictures_are_shown(
    tmp_path: Path, paths: Sequence[Path], kind: str
) -> None:
    model = ScriptedModel(["Cities and a cat."], card=SEES)
    journal = {"memory": MemoryJournal(), "sqlite": tmp_path / "runs.db", "left out": None}[kind]
    result = await desk(model, journal).run(GOAL, files=paths)
    assert result.ending == "complete", result.gaps
    (request,) = model.requests
    assert "Ålesund,68000" in request.messages[-1].text
    assert images(request) == [PNG]
    asked = result.entries[0].event
    assert isinstance(asked, ev.RunRequested)
    assert asked.outside, "effects that follow may need approval"
    files = [item.file for item in asked.inputs if item.file is not None]
    assert [(file.name, file.media_type) for file in files] == [("cities.csv", "text/csv"), ("photo.png", "image/png")]
    if kind == "sqlite":
        kept = await open_journal(tmp_path / "runs.db")
        assert await kept.files.read(files[1].id) == PNG
        await kept.close()


def test_a_run_without_a_loop_a_stream_and_a_plan_take_files_too(paths: list[Path]) -> None:
    model = ScriptedModel(["Cities and a cat."], card=SEES, repeat=True)
    assert desk(model).run_sync(GOAL, files=[str(path) for path in paths]).ending == "complete"

    async def follow() -> None:
        async for _ in desk(model).stream(GOAL, files=paths):
            pass

    asyncio.run(follow())
    assert [images(request) for request in model.requests] == [[PNG], [PNG]]
    planner = ScriptedModel(['{"tasks": [{"id": "t1", "instruction": "Read them.", "worker": "reader"}]}'])
    team = Team([Worker("reader", "reads files")], supervisor=Supervisor(model=planner))
    draft = asyncio.run(team.plan(GOAL, files=paths))
    assert [task.worker for task in draft.plan.tasks] == ["reader"]
    assert "Ålesund,68000" in planner.requests[0].messages[-1].text


async def test_a_function_reads_the_bytes_of_a_file(paths: Sequence[Path]) -> None:
    async def look(assignment: Assignment, context: StepContext) -> str:
        return ", ".join([str(len(await context.read_file(file.id))) for file in assignment.files])

    plan = Plan((Task("t1", "Look.", "looker"),), "forward")
    team = Team([Worker("looker", "looks", call=look)], supervisor=Supervisor(plan=plan))
    assert (await team.run(GOAL, files=paths)).answer == f"27, {len(PNG)}"


def _write(folder: Path, name: str, body: bytes) -> Path:
    path = folder / name
    path.write_bytes(body)
    return path


@pytest.mark.parametrize(
    ("name", "body", "error", "words"),
    [
        ("none.txt", None, Invalid, "No such file"),
        ("a\0b", None, Invalid, "is no path: embedded null byte"),
        ("\udcff.txt", b"text", Invalid, "characters of UTF-8"),
        ("", None, Invalid, "is a folder; name the files in it"),
        ("empty.txt", b"", Invalid, "is empty"),
        ("a.pdf", b"%PDF-1.7\xff", WrongFileType, "is of type application/pdf; convert it"),
        ("a.csv.gz", b"\x1f\x8b\xff", WrongFileType, "convert it"),
        ("a.png", b"no picture\xff", WrongFileType, "is no image/png"),
        ("a.txt", "Å".encode("utf-16"), WrongFileType, "save it as UTF-8"),
        ("large.txt", b"x" * 1_048_577, FileTooLarge, "1,048,576 bytes at most"),
        ("large.png", PNG + bytes(MAX_FILE), FileTooLarge, "is the most"),
    ],
)
async def test_what_cannot_be_given_is_refused_before_anything_is_written(
    tmp_path: Path, name: str, body: bytes | None, error: type[ChargehandError], words: str
) -> None:
    path = tmp_path / name if body is None else _write(tmp_path, name, body)
    model = ScriptedModel([])
    with pytest.raises(error, match=words):
        await desk(model, tmp_path / "runs.db").run(GOAL, files=[path])
    assert not (tmp_path / "runs.db").exists()
    assert not model.requests


@pytest.mark.parametrize(
    ("name", "body", "media_type"),
    [
        ("photo", PNG, "image/png"),
        ("photo.txt", PNG, "image/png"),
        ("module.ts", b"const x = 1", "text/plain"),
        ("LICENSE", b"Apache", "text/plain"),
        ("data.json", b"{}", "application/json"),
    ],
)
async def test_the_type_is_what_is_in_the_file(tmp_path: Path, name: str, body: bytes, media_type: str) -> None:
    (new,) = await desk(ScriptedModel([])).load_files([_write(tmp_path, name, body)])
    assert new.file.media_type == media_type


async def test_too_many_files_one_path_in_place_of_a_list_and_a_team_that_reads_none_are_refused(
    paths: Sequence[Path],
) -> None:
    team = desk(ScriptedModel([]))
    with pytest.raises(Invalid, match="20 files at most"):
        await team.run(GOAL, files=[paths[0]] * 21)
    with pytest.raises(Invalid, match="paths of files"):
        await team.run(GOAL, files="cities.csv")
    with pytest.raises(Invalid, match="the demo model takes no files"):
        await Team([Worker("reader", "reads files", model="demo")]).run(GOAL, files=paths)


async def test_a_journal_in_memory_forgets_files_with_the_last_run_that_was_given_them(
    tmp_path: Path, paths: Sequence[Path]
) -> None:
    journal = MemoryJournal(max_ended_runs=2)
    team = desk(ScriptedModel(["fine"], repeat=True), journal)
    own = _write(tmp_path, "own.txt", b"only of the first run")
    await team.run(GOAL, files=[*paths, own])
    await team.run(GOAL, files=paths)
    await team.run(GOAL)
    assert {file.name for file in await journal.files.list(limit=9)} == {"cities.csv", "photo.png"}
    with pytest.raises(Unknown):
        await journal.files.get(file_id("own.txt", "text/plain", own.read_bytes()))
    await team.run(GOAL)
    assert await journal.files.list(limit=9) == []
