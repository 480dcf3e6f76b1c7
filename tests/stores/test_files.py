"""Uploaded files in a store: kept once, bounded together, read by another process, deleted."""

import asyncio

import pytest
from msgspec import structs

from chargehand.errors import Refused, Unknown
from chargehand.journal.files import StoredFile, file_id
from chargehand.journal.protocol import Journal
from chargehand.journal.store import open_journal

BODY = bytes(range(256))
FILE = StoredFile(file_id("a.png", "image/png", BODY), "a.png", "image/png", len(BODY), 7.5)


async def test_a_journal_lists_its_files_and_keeps_each_once_within_their_room(journal: Journal) -> None:
    files = journal.files
    assert await files.add(FILE, BODY, room=300) == FILE
    assert await files.add(structs.replace(FILE, at=9.0), BODY, room=300) == FILE
    other = StoredFile("file-2", "b", "text/plain", 45, 8.0)
    with pytest.raises(Refused, match="no room"):
        await files.add(other, bytes(45), room=300)
    await files.add(other, bytes(45), room=301)
    assert await files.list(limit=5) == [other, FILE]
    assert await files.list(before=other.id, limit=1) == [FILE]
    assert await files.list(before="file-0", limit=1) == []
    await files.delete(FILE.id)
    for call in (files.get, files.read, files.delete):
        with pytest.raises(Unknown, match="deleted"):
            await call(FILE.id)


async def test_files_that_are_added_at_the_same_time_keep_to_their_room(store: str) -> None:
    """Each of them would fit alone. Large ones, so that a transaction takes a while."""
    journals = [await open_journal(store) for _ in range(2)]
    body = bytes(1_000_000)
    new = [StoredFile(f"file-{number}", "b", "text/plain", len(body), 8.0) for number in range(12)]
    refused: list[StoredFile] = []

    async def add(opened: Journal, file: StoredFile) -> None:
        try:
            await opened.files.add(file, body, room=3 * len(body))
        except Refused:
            refused.append(file)

    async with asyncio.TaskGroup() as group:
        for number, file in enumerate(new):
            group.create_task(add(journals[number % 2], file))
    kept = await journals[0].files.list(limit=20)
    for opened in journals:
        await opened.close()
    assert len(kept) == 3
    assert len(refused) == 9


async def test_files_are_kept_once_within_their_room_and_read_by_another_process(store: str) -> None:
    first = await open_journal(store)
    second = await open_journal(store)
    try:
        assert await first.files.add(FILE, BODY, room=300) == FILE
        again = StoredFile(FILE.id, FILE.name, FILE.media_type, FILE.size, 9.0)
        assert await second.files.add(again, BODY, room=300) == FILE, "one that is there needs no room"
        other = StoredFile("file-2", "b", "text/plain", 45, 8.0)
        with pytest.raises(Refused, match="no room"):
            await second.files.add(other, bytes(45), room=300)
        await second.files.add(other, bytes(45), room=301)
        assert await first.files.list(limit=5) == [other, FILE]
        assert await first.files.list(limit=1) == [other]
        assert await first.files.list(before=other.id, limit=1) == [FILE]
        assert await first.files.list(before=FILE.id, limit=1) == []
        assert await second.files.read(FILE.id) == BODY
        await first.files.delete(FILE.id)
        for call in (second.files.get, second.files.read, second.files.delete):
            with pytest.raises(Unknown, match="deleted"):
                await call(FILE.id)
    finally:
        await first.close()
        await second.close()
