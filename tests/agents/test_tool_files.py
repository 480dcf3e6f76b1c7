"""Pictures and PDFs that tools return: shown to models that take them, kept beside the runs, the same on a resume."""

import sys
from collections.abc import Callable
from typing import Any

import pytest

from chargehand import (
    MemoryJournal,
    ModelCard,
    Plan,
    ScriptedModel,
    Supervisor,
    Task,
    Team,
    ToolFile,
    WithFiles,
    Worker,
)
from chargehand.agents.attachments import MAX_SHOWN
from chargehand.engine import events as ev
from chargehand.models.anthropic import AnthropicMessages
from chargehand.models.http import Transport
from chargehand.models.messages import Message, Reply, Request, ToolCall
from chargehand.models.model import Model
from chargehand.models.openai import OpenAIChat
from chargehand.models.testing.fault_server import FaultServer
from chargehand.runtime import pdf
from chargehand.tools.tool_files import MAX_FILES, MAX_PICTURE
from tests.agents.test_thoughts import cut
from tests.sample_files import PNG, make_pdf

SEES = ModelCard("scripted", keeps_limit=True, images=True, documents=True)
BLIND = ModelCard("scripted", keeps_limit=True)
PAPER = make_pdf("The sum is 42.", "Goodbye")


def shooting(number: int) -> Reply:
    return Reply(calls=(ToolCall(f"c{number}", "shoot", f'{{"number": {number}}}'),), finish="tools")


def team_of(model: Model, returned: Callable[[int], object], journal: MemoryJournal | None = None, **more: Any) -> Team:
    def shoot(number: int) -> object:
        """Take a picture."""
        return returned(number)

    plan = Plan((Task("t1", 'Look. [[tool:shoot {"number": 1}]]', "eye"),), "forward")
    worker = Worker("eye", "looks", model=model, tools=[shoot], **more)
    return Team([worker], supervisor=Supervisor(plan=plan), journal=journal)


def pictures(number: int, count: int) -> list[ToolFile]:
    """So many pictures, each of them another one."""
    return [ToolFile(PNG + bytes([number, item])) for item in range(count)]


def results(request: Request) -> list[Message]:
    return [message for message in request.messages if message.role == "tool"]


@pytest.mark.parametrize(
    "returned",
    [
        ToolFile(PNG, "cat.png"),
        [ToolFile(PNG, "cat.png")],
        WithFiles("A cat.", [ToolFile(PNG, "cat.png")]),
        WithFiles({"seen": "A cat."}, [ToolFile(PNG, "../x\n\0")]),
        WithFiles(None, [ToolFile(PNG)]),
    ],
)
async def test_a_picture_of_a_tool_is_shown_with_its_result_and_the_journal_has_only_its_id(returned: object) -> None:
    journal = MemoryJournal()
    model = ScriptedModel([shooting(1), "A cat."], card=SEES)
    result = await team_of(model, lambda _: returned, journal).run("Look", run="r")
    assert result.ending == "complete", result.gaps
    (message,) = results(model.requests[-1])
    (image,) = message.images
    assert (image.data, image.media_type) == (PNG, "image/png")
    assert f"image/png, {image.file}): it is shown with this result]" in message.text
    assert message.text.startswith("<data "), "its name is text from outside"
    assert ("A cat." in message.text) == ("A cat." in str(returned))
    (step,) = [
        entry.event for entry in result.entries if isinstance(entry.event, ev.StepFinished) and entry.event.files
    ]
    assert step.files == (image.file,)
    stored = await journal.files.get(image.file)
    assert stored.name in ("cat.png", ".._x_", "result-1.png")
    assert "iVBOR" not in str(result.entries), "no bytes"
    assert repr(PNG)[2:20] not in str(result.entries)


async def test_a_model_that_does_not_see_is_told_in_words_and_reads_the_text_of_a_pdf() -> None:
    model = ScriptedModel([shooting(1), "It is 42."], card=BLIND)
    files = [ToolFile(PNG, "cat.png"), ToolFile(PAPER, "paper.pdf")]
    result = await team_of(model, lambda _: WithFiles("Two files.", files)).run("Look")
    (message,) = results(model.requests[-1])
    assert not message.has_files
    assert "not shown, you cannot be shown such files" in message.text
    assert "[page 1]\nThe sum is 42." in message.text
    assert result.traced.tools == 1, "the number stands in a file that the tool returned"


async def test_a_fallback_model_that_does_not_see_keeps_pictures_from_all_models_of_the_worker() -> None:
    model = ScriptedModel([shooting(1), "A cat."], card=SEES)
    other = ScriptedModel([], card=BLIND)
    await team_of(model, lambda _: ToolFile(PNG), fallback_models=[other]).run("Look")
    assert not results(model.requests[-1])[0].has_files


async def test_what_is_no_picture_too_large_or_too_many_is_left_out_and_said() -> None:
    model = ScriptedModel([shooting(1), "Well."], card=SEES)
    files = [ToolFile(b"MZ"), ToolFile(PNG + bytes(MAX_PICTURE)), ToolFile(b"%PDF-1.4 broken"), *[ToolFile(PNG)] * 9]
    await team_of(model, lambda _: WithFiles("Many.", files)).run("Look")
    (message,) = results(model.requests[-1])
    assert len(message.images) == MAX_FILES - 3
    note = message.text.rpartition("</data")[2]
    assert "File 1 is neither a picture (PNG, JPEG, GIF, WebP) nor a PDF, and is left out." in note
    assert "Picture 2 has 5,242,952 bytes, more than 5,242,880: it is left out." in note
    assert "File 3 is left out: it cannot be read as a PDF" in note
    assert f"Of 12 files the first {MAX_FILES} are kept." in note


async def test_in_one_attempt_a_bounded_number_is_shown() -> None:
    rounds = 4
    model = ScriptedModel([*map(shooting, range(rounds)), "Well."], card=SEES)
    await team_of(model, lambda number: pictures(number, 7), steps=rounds + 1).run("Look")
    messages = results(model.requests[-1])
    assert [len(message.images) for message in messages] == [7, 7, 6, 0]
    assert sum(len(message.images) for message in messages) == MAX_SHOWN
    assert messages[-1].text.count("not shown, too many were shown already") == 7


async def test_a_resumed_attempt_shows_the_same() -> None:
    journal = MemoryJournal()
    first = ScriptedModel([shooting(1), "A cat."], card=SEES)
    await team_of(first, lambda _: WithFiles("Both.", [ToolFile(PNG), ToolFile(PAPER, "paper.pdf")]), journal).run(
        "Look", run="r"
    )
    entries = await journal.read("r")
    returned = next(
        at for at, one in enumerate(entries, 1) if isinstance(one.event, ev.StepFinished) and one.event.files
    )
    again = await cut(entries, returned)
    again.files = journal.files
    second = ScriptedModel(["A cat."], card=SEES)

    def unexpected(_: int) -> object:
        raise AssertionError("the call was recorded")

    assert (await team_of(second, unexpected, again).resume("r")).ending == "complete"
    (before,), (after,) = results(first.requests[-1]), results(second.requests[-1])
    assert (after.images, after.documents) == (before.images, before.documents)
    assert [document.data for document in after.documents] == [PAPER]


async def test_a_picture_that_was_deleted_fails_the_task_clearly() -> None:
    journal = MemoryJournal()

    async def forget(request: Request) -> Reply | str:
        if not results(request):
            return shooting(1)
        return "A cat."

    team = team_of(ScriptedModel(forget, card=SEES), lambda _: ToolFile(PNG), journal)
    await team.run("Look", run="r")
    entries = await journal.read("r")
    returned = next(
        at for at, one in enumerate(entries, 1) if isinstance(one.event, ev.StepFinished) and one.event.files
    )
    again = await cut(entries, returned)  # without the files
    result = await team_of(ScriptedModel(forget, card=SEES), lambda _: ToolFile(PNG), again).resume("r")
    assert "it was never uploaded here, or it was deleted" in str(result.gaps)


async def test_a_journal_in_memory_forgets_files_of_tools_with_their_runs() -> None:
    journal = MemoryJournal(max_ended_runs=1)

    def script(request: Request) -> Reply | str:
        return "A cat." if results(request) else shooting(1)

    await team_of(ScriptedModel(script, card=SEES), lambda _: ToolFile(PNG, "first.png"), journal).run("Look")
    assert [file.name for file in await journal.files.list(limit=9)] == ["first.png"]
    await team_of(ScriptedModel(script, card=SEES), lambda _: ToolFile(PNG, "second.png"), journal).run("Look")
    assert [file.name for file in await journal.files.list(limit=9)] == ["second.png"]


@pytest.mark.parametrize("make", [OpenAIChat, AnthropicMessages])
async def test_both_protocols_take_the_rounds_over_a_socket(make: Any) -> None:
    transport = Transport()
    async with FaultServer() as server:
        model = make("test:m", server.url("takes-files"), "m", transport=transport, documents=True)
        files = [ToolFile(PNG, "cat.png"), ToolFile(PAPER, "paper.pdf")]
        result = await team_of(model, lambda _: WithFiles("Two files.", files)).run("Look")
        assert server.requests == {"takes-files": 2}
    await transport.close()
    assert result.ending == "complete", result.gaps


async def test_pictures_are_taken_out_of_a_history_that_grows_too_long() -> None:
    card = ModelCard("scripted", keeps_limit=True, images=True, window=24_000)
    rounds = 9
    model = ScriptedModel([*map(shooting, range(rounds)), "Well."], card=card)
    result = await team_of(model, lambda number: pictures(number, 2), steps=rounds + 1).run("Look")
    assert result.ending == "complete", result.gaps
    messages = results(model.requests[-1])
    assert not messages[0].has_files
    assert "(Its pictures and PDFs are not shown any more.)" in messages[0].text
    assert messages[-1].has_files


async def test_without_the_extra_a_pdf_of_a_tool_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pypdf", None)
    monkeypatch.setattr(pdf, "can_read_text", lambda: False)
    model = ScriptedModel([shooting(1), "Well."], card=BLIND)
    await team_of(model, lambda _: ToolFile(PAPER, "paper.pdf")).run("Look")
    assert "PDF paper.pdf (application/pdf, file-" in results(model.requests[-1])[0].text
