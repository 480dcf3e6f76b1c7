"""The answer: what each task found with the task behind it, tables, sources, what was kept and what is missing."""

import re
from collections.abc import Iterable

from msgspec import Struct

from chargehand.models.artifacts import Artifact, Figure, Passages, Table
from chargehand.models.demo.request import without_returns
from chargehand.models.demo.results import figure_in_words, markdown_table, read_product, table_in_words
from chargehand.models.demo.words import MENTIONS_MODEL, shorten
from chargehand.models.partial_text import LEFT
from chargehand.models.request_facts import Answering, Given

_KEPT = ("Kept in the archive", "Added to the block", "Not kept:")
_SOURCE_BEHIND = re.compile(r"\s\([\w./-]+\.\w+(?:#[\w-]+)?\)\Z")
_FORMS = ("Memo", "Report", "Summary", "Outline", "Letter", "Reply", "Note", "Overview")
_LONGEST_LINE = 600


class Part(Struct, frozen=True):
    """The result of one task, cut into what was found, what was kept and what was left out."""

    given: Given
    text: str
    artifacts: tuple[Artifact, ...]
    lines: list[str]
    kept: list[str]
    left: list[str]

    @property
    def task(self) -> str:
        return self.given.task

    @property
    def is_text(self) -> bool:
        """Whether it was written as one text, such as the answer of a team; it is shown whole."""
        if len(self.lines) < 2:
            return False
        marks = ("#", "    ", "\t")  # headings, code
        return self.lines[0].startswith(_FORMS) or any(line.startswith(marks) for line in self.text.splitlines())


def write_answer(subject: Answering) -> str:
    """One answer from all results, in Markdown."""
    parts = [_read_part(given) for given in subject.results if given.value is not None]
    texts = [part for part in parts if part.is_text]
    written = "\n".join(part.text for part in texts)
    facts = [part for part in parts if not part.is_text]
    sections = [f"{part.text.strip()}\n\n[{part.task}]" for part in texts]
    sections.append(_section("", _bullets(facts, written)))
    if subject.combine != "reduce":
        sections += _tables(parts)
        sections.append(_section("### Notes\n\n", _notes(facts, written)))
    sections.append(_section("## Sources\n\n", _sources(parts)))
    sections.append(_section("## Kept\n\n", [f"- [{part.task}] {line}" for part in parts for line in part.kept]))
    if missing := _missing(subject, parts):
        sections.append(_section("## Not answered\n\n", missing) + f"\n\n{MENTIONS_MODEL}")
    return "\n\n".join(filter(None, sections)) or f"Nothing was found. {MENTIONS_MODEL}"


def _section(heading: str, lines: Iterable[str]) -> str:
    text = "\n".join(dict.fromkeys(lines))
    return heading + text if text else ""


def _read_part(given: Given) -> Part:
    product = read_product(given.value)
    lines = [line.strip() for line in product.text.splitlines() if line.strip() and not line.startswith("Sources: ")]
    if not lines:
        lines = [figure_in_words(artifact) for artifact in product.artifacts if isinstance(artifact, Figure)]
        lines += [table_in_words(artifact, "Result") for artifact in product.artifacts if isinstance(artifact, Table)]
    return Part(
        given=given,
        text=product.text,
        artifacts=product.artifacts,
        lines=[line for line in lines if not line.startswith((*_KEPT, LEFT))],
        kept=[line for line in lines if line.startswith(_KEPT)],
        left=[line.removeprefix(LEFT) for line in lines if line.startswith(LEFT)],
    )


def _bullets(facts: list[Part], written: str) -> list[str]:
    """The first line of each result with its task; with the worker where all were asked the same."""
    shown = [part for part in facts if part.lines and part.lines[0] not in written]
    asked_alike = len(shown) > 1 and len({part.given.instruction.partition("\n")[0] for part in shown}) == 1
    bullets: list[str] = []
    for part in shown:
        text = _SOURCE_BEHIND.sub("", shorten(part.lines[0], _LONGEST_LINE))
        cited = f"{text[:-1]} [{part.task}]." if text.endswith(".") else f"{text} [{part.task}]"
        bullets.append(f"- {part.given.worker}: {cited}" if asked_alike else f"- {cited}")
    return bullets


def _tables(parts: list[Part]) -> list[str]:
    headings: dict[str, str] = {}
    for part in parts:
        heading = without_returns(part.given.instruction).partition(". ")[0].rstrip("?. ")
        for table in part.artifacts:
            if isinstance(table, Table) and (len(table.rows) > 1 or (table.rows and len(table.columns) > 2)):
                headings.setdefault(markdown_table(table), f"### {shorten(heading, 100)} [{part.task}]")
    return [f"{heading}\n\n{text}" for text, heading in headings.items()]


def _notes(facts: list[Part], written: str) -> list[str]:
    """What a result says beyond its first line, and how figures were worked out."""
    notes: list[str] = []
    for part in facts:
        lines = [line for line in part.lines[1:] if line not in written]
        notes += [f"- {shorten(line, _LONGEST_LINE)} [{part.task}]" for line in lines]
        figures = [artifact for artifact in part.artifacts if isinstance(artifact, Figure) and artifact.expression]
        notes += [f"- Worked out as `{figure.expression}` [{part.task}]." for figure in figures]
    return notes


def _sources(parts: list[Part]) -> list[str]:
    lines: list[str] = []
    for part in parts:
        named: list[str] = []
        for artifact in part.artifacts:
            if isinstance(artifact, Passages):
                named += [passage.source for passage in artifact.found if passage.text.strip()[:40] in part.text]
            elif isinstance(artifact, Table) and artifact.query:
                named.append(f"{artifact.source}: `{artifact.query}`")
            elif isinstance(artifact, Table | Figure) and artifact.source:
                named.append(artifact.source)
        if named and "## Sources" not in part.text:  # a team has named them
            lines.append(f"- [{part.task}] {'; '.join(dict.fromkeys(named))}")
    return lines


def _missing(subject: Answering, parts: list[Part]) -> list[str]:
    """The gaps of tasks, and what results say they left out; what no task was planned for is added to every answer."""
    asked = {given.task: without_returns(given.instruction).rstrip("?. ") for given in subject.results}
    lines: list[tuple[str, str]] = []
    for gap in subject.gaps:
        if gap.message and gap.task:
            is_of_run = gap.reason != "logic" and gap.task in asked  # it does not say what was asked
            lines.append((gap.task, f"{asked[gap.task]}: {gap.message.rstrip('.')}." if is_of_run else gap.message))
    lines += [(part.task, line) for part in parts for line in part.left]
    plain = [(task, line.replace(MENTIONS_MODEL, "").strip()) for task, line in lines]
    return [f"- {line[:1].upper()}{line[1:]} [{task}]" for task, line in plain]
