"""A shelf to remember on, for tests of the offline model: small tools with the names and arguments of the real ones."""

from msgspec import Struct, field

from chargehand.models.exhibits import Passage, Passages
from chargehand.models.offline.words import terms
from chargehand.models.subject import Shown, Skill, WorkerCard
from chargehand.tools.remember import described
from chargehand.tools.tool import Tool, ToolFailed, tool

SKILLS = tuple(Skill(one.name, one.spec.description, one.spec.parameters) for one in described().values())
GUIDELINES = Shown("guidelines", "Amounts are in euros. Name the source of every figure.", "house rules")
STATUS = Shown("status", "The report is a draft. Nobody has read it.", access="write")
EMPTY = Shown("notes", "", "a running log", "append")


def skilled(card: WorkerCard, *names: str) -> WorkerCard:
    """Somebody with tools of memory besides their own: these, or all of them."""
    given = tuple(one for one in SKILLS if not names or one.name in names)
    return WorkerCard(card.name, card.description, card.tags, (*card.skills, *given))


class Shelf(Struct):
    """What was kept, and the blocks. `refuses` is what every attempt to keep something is told."""

    kept: list[tuple[str, list[str]]] = field(default_factory=list[tuple[str, list[str]]])
    lines: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    turns: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    refuses: str = ""

    def tools(self, *names: str) -> list[Tool]:
        made = {one.name: one for one in [*self._archive(), *self._blocks()]}
        return [made[name] for name in names] if names else list(made.values())

    def _refuse(self) -> None:
        if self.refuses:
            raise ToolFailed(self.refuses)

    def _archive(self) -> list[Tool]:
        def archival_memory_insert(content: str, tags: list[str] = [], archive: str = "") -> str:  # noqa: B006 - a schema
            self._refuse()
            if archive not in ("", "findings"):
                raise ToolFailed(f"you have no archive {archive!r}; there is 'findings'")
            if any(content == text for text, _ in self.kept):
                return "findings has this text already; its tags are joined"
            self.kept.append((content, tags))
            return "kept in findings"

        def archival_memory_search(
            query: str,
            tags: list[str] = [],  # noqa: B006 - a schema
            start_datetime: str = "",
            end_datetime: str = "",
            archive: str = "",
        ) -> Passages | str:
            wanted = set(terms(query))
            found = [text for text, own in self.kept if wanted & set(terms(text)) and set(tags) <= {*own}]
            source = f"findings{archive and ':'}{archive}{start_datetime}{end_datetime}"
            shown = tuple(Passage(source, one, 1.0) for one in found)
            return Passages(query, shown) if shown else f"nothing found for {query!r} in findings (0 passages)"

        def conversation_search(query: str) -> list[dict[str, str]] | str:
            found = [one for one in self.turns if not query or set(terms(query)) & set(terms(one["text"]))]
            return found or f"nothing found for {query!r} among your earlier tasks"

        return [tool(archival_memory_insert), tool(archival_memory_search), tool(conversation_search)]

    def _blocks(self) -> list[Tool]:
        def core_memory_append(label: str, content: str) -> str:
            self._refuse()
            self.lines.append((label, content))
            return f"appended; {label} is at version 2"

        def memory_insert(label: str, new_string: str, insert_line: int = -1) -> str:
            self.lines.append((label, f"{insert_line}{new_string}"))
            return "inserted"

        def memory_replace(label: str, old_string: str, new_string: str) -> str:
            self.lines.append((label, f"{old_string} -> {new_string}"))
            return "replaced"

        def core_memory_replace(label: str, old_content: str, new_content: str) -> str:
            self.lines.append((label, f"{old_content} => {new_content}"))
            return "replaced"

        def memory_rethink(label: str, new_memory: str) -> str:
            self.lines.append((label, f"= {new_memory}"))
            return "rewritten"

        def memory_apply_patch(label: str, patch: str) -> str:
            raise AssertionError(f"nobody asked to patch {label}: {patch}")

        return [
            tool(core_memory_append),
            tool(memory_insert),
            tool(memory_replace),
            tool(core_memory_replace),
            tool(memory_rethink),
            tool(memory_apply_patch),
        ]
