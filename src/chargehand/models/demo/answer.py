"""The answer: what each task found with the task behind it, tables, sources, what was kept and what is missing."""

import re

from msgspec import Struct

from chargehand.models.demo.plan import without_returns
from chargehand.models.demo.results import figure_in_words, markdown_table, read_product, table_in_words
from chargehand.models.demo.words import MENTIONS_MODEL, shorten
from chargehand.models.exhibits import Chart, Figure, Passages, Product, Table
from chargehand.models.left_out import LEFT
from chargehand.models.subject import Answering, Given

_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
_KEPT = ("Kept in the archive", "Added to the block", "Not kept:")
_RESULT = re.compile(r" ?\(the results? of [^()]{0,200}\)")
_LEADING = re.compile(
    r"\A(?:compare|show|list|report|draw a chart of|find out|find|say|tell me|give me|what (?:is|was|are|were)|which|"
    r"how many)\s+",
    re.IGNORECASE,
)
_FORMS = ("Memo", "Report", "Summary", "Outline", "Letter", "Reply", "Note", "Post", "Overview", "Brief", "Dear ")
_LONGEST_LINE = 600


class Part(Struct, frozen=True):
    """The result of one task, cut into what was found, what was kept and what was left out."""

    task: str
    worker: str
    instruction: str
    product: Product
    lines: tuple[str, ...]
    kept: tuple[str, ...]
    left: tuple[str, ...]

    @property
    def is_text(self) -> bool:
        """Whether it was written as one text, such as the answer of a team; it is shown whole."""
        if len(self.lines) < 2:
            return False
        return self.lines[0].startswith(_FORMS) or any(line.startswith("#") for line in self.lines)

    @property
    def is_code(self) -> bool:
        return any(line.startswith(("    ", "\t")) for line in self.product.text.splitlines())

    @property
    def title(self) -> str:
        plain = _RESULT.sub("", without_returns(self.instruction)[:2_000]).split(". ")[0].rstrip("?. ")
        plain = re.sub(r"\Athe\s+", "", _LEADING.sub("", plain))
        return shorten(plain[:1].upper() + plain[1:], 100)


def write_answer(subject: Answering) -> str:
    """One answer from all results, in Markdown."""
    parts = [_part(given) for given in subject.results if given.value is not None]
    sections = [*_texts(parts), *_bullets(parts), *_code(parts)]
    if subject.combine != "reduce":
        sections += [*_tables(parts), *_notes(parts)]
    sections += [*_sources(parts), *_kept(parts), *_missing(subject, parts)]
    return "\n\n".join(section for section in sections if section) or f"Nothing was found. {MENTIONS_MODEL}"


def _part(given: Given) -> Part:
    product = read_product(given.value)
    lines = [line for line in product.text.splitlines() if line.strip() and not line.startswith("Sources: ")]
    if not lines:
        lines = _exhibit_lines(product)
    kept = tuple(line.strip() for line in lines if line.startswith(_KEPT))
    left = tuple(line.removeprefix(LEFT).strip() for line in lines if line.startswith(LEFT))
    found = tuple(line.strip() for line in lines if not line.startswith((*_KEPT, LEFT)))
    return Part(
        task=given.task,
        worker=given.worker,
        instruction=given.instruction,
        product=product,
        lines=found,
        kept=kept,
        left=left,
    )


def _exhibit_lines(product: Product) -> list[str]:
    lines: list[str] = []
    for exhibit in product.exhibits:
        if isinstance(exhibit, Table):
            lines.append(table_in_words(exhibit, "Result"))
        elif isinstance(exhibit, Figure):
            lines.append(figure_in_words(exhibit))
        elif isinstance(exhibit, Passages):
            lines += [f"{passage.text} ({passage.source})" for passage in exhibit.found[:2]]
    return lines


def _texts(parts: list[Part]) -> list[str]:
    return [f"{part.product.text.strip()}\n\n[{part.task}]" for part in parts if part.is_text]


def _bullets(parts: list[Part]) -> list[str]:
    plain = [part for part in parts if part.lines and not part.is_text and not part.is_code]
    asked_alike = len({part.instruction.partition("\n")[0] for part in plain}) == 1 and len(plain) > 1
    bullets: list[str] = []
    written = "\n".join(part.product.text for part in parts if part.is_text)
    for part in plain:
        if _is_repeated(part, plain) or part.lines[0] in written:
            continue
        line = _cited(part.lines[0], part.task)
        bullets.append(f"- {part.worker}: {line}" if asked_alike and part.worker else f"- {line}")
    return ["\n".join(bullets)] if bullets else []


def _cited(line: str, task: str) -> str:
    text = shorten(line, _LONGEST_LINE)
    source = re.search(r"\s\([\w./-]+\.\w+(?:#[\w-]+)?\)\Z", text)
    if source is not None:
        text = text[: source.start()]
    return f"{text[:-1]} [{task}]." if text.endswith(".") else f"{text} [{task}]"


def _is_repeated(part: Part, parts: list[Part]) -> bool:
    """Whether every number of a short result stands in another one, which was worked out from it."""
    numbers = set(_NUMBER.findall(part.lines[0].partition(":")[2]))
    if len(part.lines) > 1 or not numbers or part.kept:
        return False
    later = parts[parts.index(part) + 1 :]
    return any(numbers <= set(_NUMBER.findall(other.lines[0])) and "Converted" in other.lines[0] for other in later)


def _code(parts: list[Part]) -> list[str]:
    sections: list[str] = []
    for part in parts:
        if part.is_code:
            text = part.product.text.strip()
            fenced = text if "```" in text else f"```\n{text}\n```"
            sections.append(f"### {part.title} [{part.task}]\n\n{fenced}")
    return sections


def _tables(parts: list[Part]) -> list[str]:
    sections: list[str] = []
    shown: set[str] = set()
    for part in parts:
        for exhibit in part.product.exhibits:
            if (
                not isinstance(exhibit, Table)
                or (len(exhibit.rows) < 2 and len(exhibit.columns) < 3)
                or not exhibit.rows
            ):
                continue
            if exhibit.columns[0] == "place":  # names that were looked up
                continue
            text = markdown_table(exhibit)
            if text not in shown:
                shown.add(text)
                sections.append(f"### {part.title} [{part.task}]\n\n{text}")
    return sections


def _notes(parts: list[Part]) -> list[str]:
    notes: list[str] = []
    written = "\n".join(part.product.text for part in parts if part.is_text)
    for part in parts:
        if part.is_text or part.is_code:
            continue
        notes += [f"- {shorten(line, _LONGEST_LINE)} [{part.task}]" for line in part.lines[1:] if line not in written]
        notes += [
            f"- Worked out as `{exhibit.expression}` [{part.task}]."
            for exhibit in part.product.exhibits
            if isinstance(exhibit, Figure) and exhibit.expression
        ]
    return ["### Notes\n\n" + "\n".join(notes)] if notes else []


def _sources(parts: list[Part]) -> list[str]:
    lines: list[str] = []
    for part in parts:
        if "## Sources" in part.product.text:  # a team has named them
            continue
        named: dict[str, None] = {}
        for exhibit in part.product.exhibits:
            if isinstance(exhibit, Passages):
                quoted = [passage.source for passage in exhibit.found if passage.text.strip()[:40] in part.product.text]
                named |= dict.fromkeys(quoted)
            elif isinstance(exhibit, Table) and exhibit.query:
                if exhibit.columns[0] == "place":
                    continue
                named[f"{exhibit.source}: `{exhibit.query}`"] = None
            elif not isinstance(exhibit, Chart) and exhibit.source:
                named[exhibit.source] = None
        if named:
            lines.append(f"- [{part.task}] {'; '.join(named)}")
    return ["## Sources\n\n" + "\n".join(lines)] if lines else []


def _kept(parts: list[Part]) -> list[str]:
    lines = [f"- [{part.task}] {line}" for part in parts for line in part.kept]
    return ["## Kept\n\n" + "\n".join(lines)] if lines else []


def _missing(subject: Answering, parts: list[Part]) -> list[str]:
    lines: list[str] = []
    for gap in subject.gaps:
        message = gap.message.replace(MENTIONS_MODEL, "").strip()
        asked = next((given.instruction for given in subject.results if given.task == gap.task), "")
        if gap.reason != "logic" and asked:
            message = f"{without_returns(asked).rstrip('?. ')}: {message.rstrip('.')}."
        if message and gap.task:  # what is unserved is added to every answer
            lines.append(f"- {message[:1].upper()}{message[1:]} [{gap.task}]")
    lines += [f"- {line.replace(MENTIONS_MODEL, '').strip()} [{part.task}]" for part in parts for line in part.left]
    if not lines:
        return []
    return ["## Not answered\n\n" + "\n".join(dict.fromkeys(lines)) + f"\n\n{MENTIONS_MODEL}"]
