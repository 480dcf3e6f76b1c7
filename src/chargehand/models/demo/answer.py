"""The answer: one text from the results of all tasks, with tables, sources, what was kept and what is missing."""

import re
from collections.abc import Iterable

from msgspec import Struct

from chargehand.models.artifacts import Artifact, Figure, Passages, Table
from chargehand.models.demo.request import MENTIONS_MODEL, without_returns
from chargehand.models.demo.results import figure_in_words, gather, markdown_table, table_in_words
from chargehand.models.partial_text import LEFT
from chargehand.models.request_facts import Answering, Given
from chargehand.text.words import shorten

_KEPT = ("Kept in the archive", "Added to the block", "Not kept:")
_SOURCE_BEHIND = re.compile(r"\s\([\w./-]+\.\w+(?:#[\w-]+)?\)\Z")
_LONGEST_LINE = 600


class AnswerPart(Struct, frozen=True):
    """The result of one task, cut into what was found, what was kept and what was left out."""

    task: str
    result: Given
    text: str
    artifacts: list[Artifact]
    lines: list[str]
    memory_lines: list[str]
    missing: list[str]

    @property
    def is_text(self) -> bool:
        """Whether it was written as one text, such as the answer of a team; it is shown whole."""
        marks = ("#", "    ", "\t")  # headings, code
        return len(self.lines) > 1 and any(line.startswith(marks) for line in self.text.splitlines())


def write_answer(subject: Answering) -> str:
    """One answer from all results, in Markdown."""
    parts = [_read_part(result) for result in subject.results if result.value is not None]
    facts = [part for part in parts if not part.is_text]
    sections = [f"{part.text.strip()}\n\n[{part.task}]" for part in parts if part.is_text]
    sections.append(_section("", _bullets(facts)))
    if subject.combine != "reduce":
        sections += _tables(parts)
        notes = [f"- {shorten(line, _LONGEST_LINE)} [{part.task}]" for part in facts for line in part.lines[1:]]
        sections.append(_section("### Notes\n\n", notes))
    sections.append(_section("## Sources\n\n", _sources(parts)))
    kept = [f"- [{part.task}] {line}" for part in parts for line in part.memory_lines]
    sections.append(_section("## Kept\n\n", kept))
    missing = "\n".join(_missing(subject, parts))
    sections.append(_section("## Not answered\n\n", [missing.replace(f" {MENTIONS_MODEL}", "")]))
    sections.append(MENTIONS_MODEL if MENTIONS_MODEL in missing else "")
    return "\n\n".join(filter(None, sections)) or f"Nothing was found. {MENTIONS_MODEL}"


def _section(heading: str, lines: Iterable[str]) -> str:
    text = "\n".join(dict.fromkeys(lines))
    return heading + text if text else ""


def _read_part(result: Given) -> AnswerPart:
    material = gather([result.value])
    text = "\n".join(material.texts)
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("Sources: ")]
    if not lines:
        lines = [figure_in_words(figure) for figure in material.of(Figure)]
        lines += [table_in_words(table, "Result") for table in material.of(Table)]
    return AnswerPart(
        task=result.task,
        result=result,
        text=text,
        artifacts=material.artifacts,
        lines=[line for line in lines if not line.startswith((*_KEPT, LEFT))],
        memory_lines=[line for line in lines if line.startswith(_KEPT)],
        missing=[line.removeprefix(LEFT) for line in lines if line.startswith(LEFT)],
    )


def _bullets(facts: list[AnswerPart]) -> list[str]:
    """The first line of each result with its task; with the worker where all were asked the same."""
    listed = [part for part in facts if part.lines]
    asked_alike = len(listed) > 1 and len({part.result.instruction.partition("\n")[0] for part in listed}) == 1
    bullets: list[str] = []
    for part in listed:
        text = _SOURCE_BEHIND.sub("", shorten(part.lines[0], _LONGEST_LINE))
        cited = f"{text[:-1]} [{part.task}]." if text.endswith(".") else f"{text} [{part.task}]"
        bullets.append(f"- {part.result.worker}: {cited}" if asked_alike else f"- {cited}")
    return bullets


def _tables(parts: list[AnswerPart]) -> list[str]:
    headings: dict[str, str] = {}
    for part in parts:
        heading = without_returns(part.result.instruction).partition(". ")[0].rstrip("?. ")
        for table in part.artifacts:
            if isinstance(table, Table) and (len(table.rows) > 1 or (table.rows and len(table.columns) > 2)):
                headings.setdefault(markdown_table(table), f"### {shorten(heading, 100)} [{part.task}]")
    return [f"{heading}\n\n{text}" for text, heading in headings.items()]


def _sources(parts: list[AnswerPart]) -> list[str]:
    lines: list[str] = []
    for part in parts:
        sources: list[str] = []
        for artifact in part.artifacts:
            if isinstance(artifact, Passages):
                sources += [passage.source for passage in artifact.found if passage.text.strip()[:40] in part.text]
            elif isinstance(artifact, Table) and artifact.query:
                sources.append(f"{artifact.source}: `{artifact.query}`")
            elif isinstance(artifact, Table | Figure) and artifact.source:
                sources.append(artifact.source)
        if sources and "## Sources" not in part.text:  # a team has named them
            lines.append(f"- [{part.task}] {'; '.join(dict.fromkeys(sources))}")
    return lines


def _missing(subject: Answering, parts: list[AnswerPart]) -> list[str]:
    """The gaps of tasks, and what results say they left out; what no task was planned for is added to every answer."""
    instructions = {result.task: without_returns(result.instruction).rstrip("?. ") for result in subject.results}
    missing: list[tuple[str, str]] = []
    for gap in subject.gaps:
        if gap.message and gap.task:
            is_of_run = gap.reason != "logic" and gap.task in instructions  # it does not say what was asked
            text = f"{instructions[gap.task]}: {gap.message.rstrip('.')}." if is_of_run else gap.message
            missing.append((gap.task, text))
    missing += [(part.task, line) for part in parts for line in part.missing]
    return [f"- {text[:1].upper()}{text[1:]} [{task}]" for task, text in missing]
