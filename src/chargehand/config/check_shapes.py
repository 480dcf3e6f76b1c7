"""The shapes of a team file's `checks`: what results must pass. What becomes of them is decided in `checks`."""

from typing import Annotated, Any, TypeAlias

from msgspec import Meta, Struct

Text: TypeAlias = str
Prose: TypeAlias = str
Words: TypeAlias = Annotated[int, Meta(ge=0, le=1_000_000)]


class VerifierShape(Struct, frozen=True, forbid_unknown_fields=True):
    prompt: Prose = ""
    model: Text = ""


class CheckShape(Struct, frozen=True, forbid_unknown_fields=True):
    """One of python, schema, reviewer and verifier; or as many of the others as must hold together."""

    python: Text | None = None
    schema: Prose | dict[str, Any] | None = None
    reviewer: Text | None = None
    verifier: VerifierShape | bool | None = None
    contains: Text | tuple[Text, ...] | None = None
    matches: Text | None = None
    at_least_words: Words | None = None
    at_most_words: Words | None = None
    cites: bool | None = None
    has_number: bool | None = None


KINDS = ("python", "schema", "reviewer", "verifier")
"""A check is one of these, or a rule."""
