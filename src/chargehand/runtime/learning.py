"""What a team that routes offers to programs: judge a run, report what was learnt, forget it.

How lessons shift a route is `agents.routers.lessons`', what is made of a judgement `lessons`'.
"""

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from chargehand.agents.hiring import Hiring
from chargehand.agents.ways import Route
from chargehand.errors import Invalid
from chargehand.models.find import Lookup
from chargehand.runtime.front import without_a_loop
from chargehand.runtime.lessons import Keeps, judged
from chargehand.runtime.shared import SharedFile
from chargehand.stores.journal import Journal
from chargehand.stores.lessons import Lesson, Source

if TYPE_CHECKING:
    from chargehand.runtime.lesson_report import Report


class Learning:
    """Feedback on runs that were led by a route, and what became of it."""

    name: str
    hiring: Hiring
    _journal: Journal | SharedFile | None
    _lookup: Lookup

    def _open(self) -> AbstractAsyncContextManager[Journal]:
        raise NotImplementedError

    async def feedback(
        self, run: str, good: float, *, worker: str = "", source: Source = "feedback"
    ) -> tuple[Lesson, ...]:
        """Say how a run went: True, False, or from 0 to 1; `worker` is who should have done it.

        It takes the place of what the same source said before. A person's feedback outweighs an eval's and a judge's,
        and these that a run ended well. It works while another process drives runs of the same file.
        """
        async with self._kept() as kept:
            return await judged(kept, run, good, worker, source)

    def feedback_sync(self, run: str, good: float, *, worker: str = "") -> tuple[Lesson, ...]:
        """The same for code without an event loop."""
        return without_a_loop("feedback", lambda: self.feedback(run, good, worker=worker))

    async def learnt(self, journal: Path | None = None) -> "Report":
        """What was learnt from runs, and what goes elsewhere because of it. `journal`: another file than its own."""
        from chargehand.runtime.lesson_report import report  # noqa: PLC0415 - only who asks needs the routers

        way = self.hiring.way
        if not isinstance(way, Route):
            said = f"team {self.name} is not led by a route, and only routes are learnt"
            raise Invalid(f"{said}; lead it by one: way=Route(), or  way: route  in its file")
        embedding = self.hiring.route_embedding(self._lookup)
        try:
            async with self._kept(journal) as kept:
                return await report(kept.lessons(self.name), way, self.hiring.cards(), embedding)
        finally:
            if embedding is not None:
                await embedding.close()

    async def forget_lessons(self, journal: Path | None = None) -> int:
        """Drop all that was learnt; how many lessons there were."""
        async with self._kept(journal) as kept:
            return await kept.lessons(self.name).forget()

    @asynccontextmanager
    async def _kept(self, journal: Path | None = None) -> AsyncGenerator[Keeps]:
        """Where the lessons are. A file is not taken over for it: another process may have it."""
        path = journal or (self._journal.path if isinstance(self._journal, SharedFile) else None)
        if path is not None:
            from chargehand.stores.lessons_file import opened_lessons  # noqa: PLC0415 - as for a journal's file

            async with opened_lessons(path) as kept:
                yield kept
            return
        async with self._open() as opened:
            if not isinstance(opened, Keeps):
                raise Invalid("this journal has no room for lessons; give the team a file: journal='runs.db'")
            yield opened
