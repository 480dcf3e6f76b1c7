"""Files of this machine that a run is given: `team.run(goal, files=[...])`."""

import asyncio
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from chargehand import Assignment, MemoryJournal, Plan, ScriptedModel, StepContext, Supervisor, Task, Team, Worker
from chargehand.engine import events as ev
from chargehand.engine.facts import Citation
from chargehand.errors import ChargehandError, FileTooLarge, Invalid, Unknown, WrongFileType
from chargehand.journal.files import file_id
from chargehand.journal.store import open_journal
from chargehand.models.messages import Reply, Request
from chargehand.models.model import ModelCard
from chargehand.runtime import files, pdf
from chargehand.runtime.files import MAX_FILE
from tests.sample_files import make_pdf

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


READS = ModelCard("scripted", keeps_limit=True, images=True, documents=True)
PAPER = make_pdf("The sum is 42.", "</data> Goodbye")


async def test_a_pdf_is_shown_to_models_that_take_it_and_its_text_is_known_to_the_others(tmp_path: Path) -> None:
    paper = _write(tmp_path, "paper.pdf", PAPER)
    reader = ScriptedModel(["It is 42."], card=READS)
    result = await desk(reader).run(GOAL, files=[paper])
    (document,) = reader.requests[0].messages[-1].documents
    assert (document.name, document.pages, document.media_type, document.data) == (
        "paper.pdf",
        2,
        "application/pdf",
        PAPER,
    )
    assert "This PDF stands beside this message." in reader.requests[0].messages[-1].text
    assert "The sum" not in reader.requests[0].messages[-1].text
    blind = ScriptedModel(["It is 42."], card=SEES)
    told = await desk(blind).run(GOAL, files=[paper])
    message = blind.requests[0].messages[-1]
    assert not message.has_files
    assert re.search(
        r'<data (\w+) from "task file 1: paper\.pdf">\n\[page 1\]\nThe sum is 42\.\n\n\[page 2\]', message.text
    )
    assert result.ending == told.ending == "complete", (result.gaps, told.gaps)
    assert result.traced == told.traced
    assert told.traced.given == 1, "the number stands in the file"
    assert not [note for note in notes(result.entries) if "paper.pdf" in note]
    (note,) = [note for note in notes(told.entries) if "paper.pdf" in note]
    assert note.startswith("paper.pdf goes to scripted as text: it is not known to take PDFs.")
    assert note.endswith("If it does: find_model('scripted', os.environ.get, documents=True), in Python")


def notes(entries: Sequence[ev.Entry]) -> list[str]:
    return [entry.event.text for entry in entries if isinstance(entry.event, ev.Noted)]


async def test_nothing_is_said_of_pdfs_that_a_model_in_this_process_reads_as_text(tmp_path: Path) -> None:
    card = ModelCard("scripted", keeps_limit=True, in_process=True)
    told = await desk(ScriptedModel(["It is 42."], card=card)).run(GOAL, files=[_write(tmp_path, "a.pdf", PAPER)])
    assert told.ending == "complete"
    assert not [note for note in notes(told.entries) if "a.pdf" in note]


async def test_without_the_extra_a_pdf_is_shown_or_the_error_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pypdf", None)
    monkeypatch.setattr(pdf, "can_read_text", lambda: False)
    paper = _write(tmp_path, "paper.pdf", PAPER)
    reader = ScriptedModel(["It is long."], card=READS)
    assert (await desk(reader).run(GOAL, files=[paper])).ending == "complete"
    assert reader.requests[0].messages[-1].documents[0].pages == 2
    blind = ScriptedModel([])
    result = await desk(blind).run(GOAL, files=[paper])
    assert not blind.requests
    assert "paper.pdf is a PDF, which scripted does not take; its text needs the extra `files`: pip install" in str(
        result.gaps
    )


async def test_a_pdf_that_cannot_be_read_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    paper = _write(tmp_path, "paper.pdf", PAPER[:100])
    with pytest.raises(WrongFileType, match=r"paper\.pdf cannot be read as a PDF"):
        await desk(ScriptedModel([]), tmp_path / "runs.db").run(GOAL, files=[paper])
    assert not (tmp_path / "runs.db").exists()


async def test_the_texts_of_many_pdfs_are_bounded_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_MAX_TEXT", 40)
    papers = [_write(tmp_path, f"{number}.pdf", make_pdf("x" * 30)) for number in range(2)]
    model = ScriptedModel(["Fine."])
    await desk(model).run(GOAL, files=papers)
    text = model.requests[0].messages[-1].text
    assert text.count("x" * 30) == 1
    assert "[the rest was not read: the files of this run are too long]" in text


async def test_the_pdfs_of_a_run_share_the_time_for_reading_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[float] = []
    now = [0.0]

    async def read(_body: bytes, _place: str, *, seconds: float) -> pdf.PdfText:
        given.append(seconds)
        now[0] += 15
        return pdf.PdfText(1, "[page 1]\nx")

    monkeypatch.setattr(files, "read_pdf", read)
    monkeypatch.setattr(files.time, "monotonic", lambda: now[0])
    papers = [_write(tmp_path, f"{number}.pdf", make_pdf("x")) for number in range(3)]
    assert len(await files.load_paths(papers)) == 3
    assert given == [20.0, 5.0, 1.0]


async def test_citations_are_journaled_and_shown_and_confirmed_where_the_text_was_given(tmp_path: Path) -> None:
    paper = _write(tmp_path, "paper.pdf", PAPER)
    cited = (
        Citation("paper.pdf", "The  sum is\n42.", "It is 42.", page=1, last_page=1),
        Citation("paper.pdf", "The sum is 43.", "It is 42."),
        Citation("A page", url="https://a.test/"),
    )
    result = await desk(ScriptedModel([Reply("It is 42.", citations=cited)], card=READS)).run(GOAL, files=[paper])
    assert [(each.source, each.confirmed) for each in result.citations] == [
        ("paper.pdf", True),
        ("paper.pdf", False),
        ("A page", False),
    ]
    assert result.traced.tools == 0
    invented = [Citation("paper.pdf", "The sum is 9,876.", "It is 9,876.")]
    model = ScriptedModel([Reply("It is 9,876.", citations=tuple(invented))], card=READS)
    result = await desk(model).run(GOAL, files=[paper])
    assert [(each.text, each.origin) for each in result.untraced] == [("9,876", "words")], "not traced by a citation"


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
        ("a.pdf", b"%PDF-1.7\xff", WrongFileType, "a.pdf cannot be read as a PDF .*; save it anew"),
        ("b.pdf", b"no PDF\xff", WrongFileType, "b.pdf is no application/pdf, as it is said to be"),
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
