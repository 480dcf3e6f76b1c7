"""The tools a team file names: from Python, built-in ones, and what the file says of them besides.

Which worker holds which tool is decided in `assemble`.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias, cast

from msgspec import structs

from chargehand.config.environment import lookup_beside
from chargehand.config.python_objects import named_object
from chargehand.config.schema import PLAIN_SOURCES, SOURCES, ToolShape
from chargehand.config.source import inside
from chargehand.errors import Invalid
from chargehand.models.resolve import models_folder
from chargehand.text.words import listed
from chargehand.tools.built_in import renamed, tools_named
from chargehand.tools.tool import Tool, as_tool, with_approval

Maker: TypeAlias = Callable[[str, ToolShape, Path], tuple[Tool, ...]]


def long_form(written: ToolShape | str) -> ToolShape:
    """A tool written in one word: `calculator`, or `module:attr`."""
    if isinstance(written, ToolShape):
        return written
    if written in PLAIN_SOURCES:
        return structs.replace(ToolShape(), **{written: True})
    if ":" in written:
        return ToolShape(python=written)
    raise Invalid(f"{written!r} is no tool; write module:attribute, or one of {', '.join(PLAIN_SOURCES)}")


def source_of(shape: ToolShape) -> str:
    """The one source a tool comes from; Invalid when there is none, or more than one."""
    sources = [name for name in SOURCES if getattr(shape, name) not in (None, False)]
    if len(sources) != 1:
        many = f"names {len(sources)} sources ({listed(sources)})" if sources else "names no source"
        raise Invalid(f"{many}; a tool has exactly one of {', '.join(SOURCES)}")
    return sources[0]


def make_tools(name: str, written: ToolShape | str, folder: Path) -> tuple[Tool, ...]:
    """The tools of one entry: one for most sources, several for some."""
    shape = long_form(written)
    tools = _MAKERS[source_of(shape)](name, shape, folder)
    if shape.embed is not None and shape.documents is None:
        raise Invalid("embed is for documents only; take it away")
    if shape.show_values is not None and shape.sql is None:
        raise Invalid("show_values is for sql only; take it away")
    changes: dict[str, object] = {
        "effect": shape.effect,
        "timeout": shape.timeout,
        "cap": shape.cap,
    }
    wanted = {key: value for key, value in changes.items() if value is not None}
    tools = tuple(structs.replace(tool, **wanted) for tool in tools)
    return tools if shape.approve is None else tuple(with_approval(tool, shape.approve) for tool in tools)


# --- one maker a source


def _python(name: str, shape: ToolShape, folder: Path) -> tuple[Tool, ...]:
    handle = shape.python or ""
    value = named_object(folder, handle)
    objects = list(cast("Sequence[object]", value)) if isinstance(value, list | tuple) else [value]
    tools = [
        as_tool(cast("Callable[..., object]", item)) for item in objects if callable(item) or isinstance(item, Tool)
    ]
    if not tools or len(tools) != len(objects):
        kinds = listed(dict.fromkeys(type(item).__name__ for item in objects)) or "an empty list"
        raise Invalid(f"{handle!r} is {kinds}, not a tool, a function, or a list of them")
    return (renamed(tools[0], name),) if len(tools) == 1 else tuple(tools)


def _sql(name: str, shape: ToolShape, folder: Path) -> tuple[Tool, ...]:
    from chargehand.tools.sql import sql  # noqa: PLC0415 - a team pays only for the tools it names

    return (sql(inside(folder, shape.sql or ""), name, show_values=shape.show_values or {}),)


def _documents(name: str, shape: ToolShape, folder: Path) -> tuple[Tool, ...]:
    from chargehand.tools.documents import documents  # noqa: PLC0415 - as above

    models = None if shape.embed == "words" else models_folder(lookup_beside(folder))
    return (documents(inside(folder, shape.documents or ""), name, models=models),)


def _files(name: str, shape: ToolShape, folder: Path) -> tuple[Tool, ...]:
    from chargehand.tools.files import files  # noqa: PLC0415 - as above

    tools = files(inside(folder, shape.files or ""))
    return tools if name == "files" else tuple(renamed(tool, f"{name}_{tool.name}") for tool in tools)


def _skills(name: str, shape: ToolShape, folder: Path) -> tuple[Tool, ...]:
    from chargehand.tools.skills import skills  # noqa: PLC0415 - as above

    return (skills(inside(folder, shape.skills or ""), name),)


def _fetch(name: str, shape: ToolShape, _folder: Path) -> tuple[Tool, ...]:
    from chargehand.tools.fetch import fetch  # noqa: PLC0415 - as above

    return (renamed(fetch(shape.fetch.allow if shape.fetch else ()), name),)


def _built_in(source: str) -> Maker:
    def make(name: str, _shape: ToolShape, _folder: Path) -> tuple[Tool, ...]:
        return tools_named(source, name)

    return make


_MAKERS: dict[str, Maker] = {
    "python": _python,
    "sql": _sql,
    "documents": _documents,
    "files": _files,
    "fetch": _fetch,
    "skills": _skills,
    **{source: _built_in(source) for source in PLAIN_SOURCES},
}
