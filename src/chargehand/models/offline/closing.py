"""What an answer ends with: where each part comes from, and what is missing."""

import re
from collections.abc import Sequence

import msgspec
from msgspec import Struct, structs

from chargehand.models.exhibits import Passages, Product, Table
from chargehand.models.offline.drafts import without_returns
from chargehand.models.offline.references import subject_of
from chargehand.models.subject import Answering, Given
from chargehand.terms.events import Gap

_SENTENCE = re.compile(r".+?[.!?](?=\s|$)(?<!\b[A-Z]\.)|.+$", re.DOTALL)
_QUERY = 400
_KEPT = re.compile(
    r"(?:Kept in the archive|Added to the block|The (?:archive|block) \S+ ha[sd] this already|This could not be kept)\b"
)
_ROWS = re.compile(r"^[\d,]+ rows[^\n]*:(?:\n- [^\n]*)+(?:\nand [\d,]+ more)?\s*", re.MULTILINE)
_SAYS = re.compile(r"^(?:find\s+)?what\b.*?\b(?:says?|know|said|find)\s+about\s+(?P<about>.+)$", re.IGNORECASE)


class Part(Struct, frozen=True):
    """A result and what it holds."""

    given: Given
    product: Product

    @property
    def task(self) -> str:
        return self.given.task

    @property
    def words(self) -> str:
        shown = msgspec.json.encode(msgspec.to_builtins(self.product.exhibits)).decode()
        return f"{self.product.text} {shown[:20_000]}"


def asked(given: Given) -> str:
    """What a task was asked, in its first sentence and without pointers to other tasks."""
    plain = re.sub(r"\s*\((?:the result of|from) t\d+[^()]*\)", "", without_returns(given.instruction))
    first = _SENTENCE.match(plain.strip())
    said = " ".join((first[0] if first else plain).split()).rstrip(".")
    said = re.sub(r"^(?:Report|Find out)\s+(?=\w)", "", said)
    said = f"{said[:1].upper()}{said[1:]}"
    return said[:120].rsplit(" ", 1)[0] + " \u2026" if len(said) > 120 else said or f"Task {given.task}"


def heading(given: Given) -> str:
    """What a result is about, as a phrase and not as the question again."""
    said = asked(given)
    if told := _SAYS.match(said):
        return f"{told['about'][:1].upper()}{told['about'][1:].rstrip('?')}"
    phrase = re.sub(r"^(?:the|our)\s+", "", subject_of(said) or said).rstrip("?. ")
    return f"{phrase[:1].upper()}{phrase[1:]}"


def sources(parts: Sequence[Part]) -> list[str]:
    """Where each result comes from; a query as it was asked."""
    lines: list[str] = []
    for part in parts:
        found = dict.fromkeys(part.product.sources)
        for held in part.product.exhibits:
            if isinstance(held, Passages):
                quoted = [one.source for one in held.found if one.source in part.product.text]
                for one in held.found if quoted else ():
                    found.pop(one.source, None)
                found.update(dict.fromkeys(quoted or [one.source for one in held.found[:3]]))
            elif isinstance(held, Table) and held.source and held.query:
                found.pop(held.source, None)
                query = " ".join(held.query.split())
                shown = query if len(query) <= _QUERY else f"{query[:_QUERY]} \u2026"
                found[f"{held.source}: `{shown}`"] = None
            elif held.source:
                found[held.source] = None
        if named := [" ".join(source.split()) for source in found if source.strip()]:
            lines.append(f"- [{part.task}] {'; '.join(named)}")
    return ["## Sources", "\n".join(lines)] if lines else []


def tabled(held: Product) -> Product:
    """A result without rows in words where it has them as a table too: nobody reads them twice."""
    if not any(isinstance(one, Table) and len(one.rows) > 1 for one in held.exhibits):
        return held
    return structs.replace(held, text=_ROWS.sub("", held.text).strip())


def tells_of_memory(line: str) -> bool:
    """Whether a line of a result says what was kept, and nothing else."""
    return _KEPT.match(line) is not None


def kept(parts: Sequence[Part]) -> tuple[list[Part], list[str]]:
    """The results without what they say was kept in memory, and that for itself; unless it is all they say."""
    plain: list[Part] = []
    lines: list[str] = []
    for part in parts:
        said = part.product.text.splitlines()
        told = [line for line in said if tells_of_memory(line)]
        rest = "\n".join(line for line in said if line not in told).strip()
        if told and rest:
            lines += [f"- [{part.task}] {line}" for line in told]
            part = Part(part.given, structs.replace(part.product, text=rest))  # noqa: PLW2901 - the same, shorter
        plain.append(part)
    return plain, ["## Kept", "\n".join(lines)] if lines else []


def missing(subject: Answering) -> list[str]:
    """What has no result, and why."""
    questions = {given.task: asked(given) for given in subject.results}
    lines = [_gap(gap, questions) for gap in subject.gaps]
    named = {str(gap.task) for gap in subject.gaps}
    lines += [
        f"- {questions[given.task]}: there is no result. [{given.task}]"
        for given in subject.results
        if given.value is None and given.task not in named
    ]
    return ["## Not answered", "\n".join(lines)] if lines else []


def _gap(gap: Gap, asked: dict[str, str]) -> str:
    task = str(gap.task)
    why = " ".join(gap.message.split()) or gap.reason.replace("_", " ")
    if gap.status == "skipped" and gap.because:
        why = f"not tried, since it needs {gap.because}, which has no result"
    elif gap.status == "unfinished":
        why = f"not finished: {why}"
    what = f"{asked[task]}: " if task in asked and not why.startswith("the documents ") else ""
    why = why[:400].rstrip(". ")
    why += "" if why.endswith(("?", "!")) else "."  # a part that was left may be a question
    return f"- {what}{why if what else why[:1].upper() + why[1:]}{f' [{task}]' if task else ''}"
