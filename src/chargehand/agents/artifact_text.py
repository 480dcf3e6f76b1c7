"""A result as Markdown: its words, its tables and figures, its sources. Nothing is added.

Readers are not shown passages that fit much worse than those the result names; a judge is.
"""

from collections.abc import Sequence

import msgspec

from chargehand.models.artifacts import Artifact, Chart, Figure, Passages, Product, Table
from chargehand.models.request_facts import Given

_MAX_ROWS = 20
_MAX_PASSAGES = 3


def result_text(given: Given, *, whole: bool = False) -> str:
    """A result with what backs it. `whole`: also what hardly does, for those that judge it."""
    if isinstance(given.value, str):
        return given.value
    try:
        product = msgspec.convert(given.value, Product)
    except msgspec.ValidationError:
        return msgspec.json.format(msgspec.json.encode(given.value), indent=2).decode()
    unrelated = frozenset[str]() if whole else _unrelated_sources(product)
    texts = [_artifact_text(artifact, product.text, unrelated) for artifact in product.artifacts]
    sources = f"Sources: {', '.join(source for source in product.sources if source not in unrelated)}"
    if product.sources and not product.text.endswith(sources):  # the answer of a team has them already
        texts.append(sources)
    return "\n\n".join([product.text, *(text for text in texts if text and text not in product.text)])


def _unrelated_sources(product: Product) -> frozenset[str]:
    """The sources of passages that the result does not name and that fit much worse than those it names."""
    artifacts = [artifact for artifact in product.artifacts if isinstance(artifact, Passages)]
    passages = [passage for artifact in artifacts for passage in artifact.found]
    best = max((passage.score for passage in passages if passage.source in product.text), default=0.0)
    kept = {passage.source for passage in passages if passage.score >= best / 3 or passage.source in product.text}
    return frozenset(passage.source for passage in passages) - kept


def _artifact_text(artifact: Artifact, text: str, unrelated: frozenset[str]) -> str:
    match artifact:
        case Table():
            rows = [artifact.columns, ["---"] * len(artifact.columns), *artifact.rows[:_MAX_ROWS]]
            more = artifact.more + max(0, len(artifact.rows) - _MAX_ROWS)
            return "\n".join(map(_row_text, rows)) + (f"\n\n… and {more} more rows" if more else "")
        case Chart():
            return f"Chart: {artifact.title}" + (f" ({artifact.summary})" if artifact.summary else "")
        case Figure():
            return f"{artifact.expression} = {artifact.value} {artifact.unit}".strip() if artifact.expression else ""
        case Passages():
            plain = " ".join(text.split())
            passages = [passage for passage in artifact.found[:_MAX_PASSAGES] if passage.source not in unrelated]
            new = [
                passage
                for passage in passages
                if passage.source not in plain or " ".join(passage.text.split()) not in plain
            ]
            return "\n".join(f"> {passage.text.strip()}\n> ({passage.source})" for passage in new)


def _row_text(cells: Sequence[object]) -> str:
    return f"| {' | '.join(str('' if cell is None else cell).replace('|', '/') for cell in cells)} |"
