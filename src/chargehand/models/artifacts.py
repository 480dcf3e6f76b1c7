"""What work leaves behind besides prose: tables, figures, passages, charts. Tools return them, answers show them."""

from typing import TypeAlias

from msgspec import Struct


class Table(Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="table"):
    """`more` rows were left out; `query` is how it was asked for, `source` where it comes from."""

    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]
    source: str = ""
    query: str = ""
    more: int = 0
    note: str = ""
    """What a reader of the rows may overlook, such as that a NULL means that no row matched."""


class Figure(Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="figure"):
    """One number: exact as text, how it was worked out, and in what unit."""

    value: str
    expression: str = ""
    unit: str = ""
    label: str = ""
    source: str = ""


class FoundPassage(Struct, frozen=True, omit_defaults=True):
    """A piece of a document. `source` names the document and the place in it.

    From an archive it also has an id, when it was kept (ISO 8601), its tags, and why it was found.
    """

    source: str
    text: str
    score: float = 0.0
    id: str = ""
    when: str = ""
    tags: tuple[str, ...] = ()
    why: str = ""


class Passages(Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="passages"):
    query: str
    found: tuple[FoundPassage, ...]


class Chart(Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="chart"):
    """A picture as SVG, and what it shows in words. Models read it without `svg` and without what was `plotted`."""

    title: str
    svg: str = ""
    summary: str = ""
    source: str = ""
    plotted: tuple[tuple[str, float], ...] = ()


PICTURES = frozenset(("svg", "plotted"))
"""Fields of a chart that are looked at: neither words nor evidence."""


Artifact: TypeAlias = Table | Figure | Passages | Chart


class WorkerOutput(Struct, frozen=True, omit_defaults=True):
    """What a worker without an output shape of its own returns: its words, and what its tools returned for them."""

    text: str
    artifacts: tuple[Artifact, ...] = ()
    sources: tuple[str, ...] = ()
