"""The tools a team file names: from Python, from the toolbox, and what the file says of them besides.

Which worker holds which tool is decided in `assemble`.
"""

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias, cast

from msgspec import structs

from chargehand.config.environment import lookup_beside
from chargehand.config.folder import inside
from chargehand.config.python import named_object
from chargehand.config.shapes import PLAIN_SOURCES, SOURCES, ToolShape
from chargehand.errors import Invalid
from chargehand.models.find import models_folder
from chargehand.text.names import listed
from chargehand.tools.tool import Tool, as_tool
from chargehand.tools.toolbox import renamed, tools_named

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
    named = [name for name in SOURCES if getattr(shape, name) not in (None, False)]
    if len(named) != 1:
        many = f"names {len(named)} sources ({listed(named)})" if named else "names no source"
        raise Invalid(f"{many}; a tool has exactly one of {', '.join(SOURCES)}")
    return named[0]


def make_tools(name: str, written: ToolShape | str, folder: Path) -> tuple[Tool, ...]:
    """The tools of one entry: one for most sources, several for some."""
    shape = long_form(written)
    made = _MAKERS[source_of(shape)](name, shape, folder)
    if shape.effect is not None and shape.side_effects is not None:
        raise Invalid("names effect and side_effects, which mean the same; keep effect")
    if shape.embed is not None and shape.documents is None:
        raise Invalid("embed is for documents only; take it away")
    changes: dict[str, object] = {
        "effect": shape.effect or shape.side_effects,
        "timeout": None if shape.timeout is None else float(shape.timeout),
        "cap": None if shape.cap is None else int(shape.cap),
        "approve": None if shape.approve is None else shape.approve in (True, "always"),
    }
    wanted = {key: value for key, value in changes.items() if value is not None}
    return tuple(structs.replace(tool, **wanted) for tool in made)


def plain_tools(name: str, folder: Path) -> tuple[Tool, ...]:
    """The tools of a source that needs no settings, named by a worker without an entry."""
    return make_tools(name, name, folder)


# --- one maker a source


def _python(name: str, shape: ToolShape, folder: Path) -> tuple[Tool, ...]:
    handle = shape.python or ""
    found = _made(handle, named_object(folder, handle))
    tools = [as_tool(cast("Callable[..., object]", one)) for one in found if callable(one) or isinstance(one, Tool)]
    if not tools or len(tools) != len(found):
        kinds = listed(dict.fromkeys(type(one).__name__ for one in found)) or "an empty list"
        raise Invalid(f"{handle!r} is {kinds}, not a tool, a function, or a function that makes tools")
    return (renamed(tools[0], name),) if len(tools) == 1 else tuple(tools)


def _made(handle: str, found: object) -> list[object]:
    """What was found, or what it makes, as a list."""
    if callable(found) and not isinstance(found, Tool | type) and _makes_tools(found):
        try:
            found = found()
        except Exception as error:  # a foreign function
            raise Invalid(f"{handle!r} failed when it was called: {type(error).__name__}: {error}") from error
    return list(cast("Sequence[object]", found)) if isinstance(found, list | tuple) else [cast("object", found)]


def _makes_tools(found: Callable[..., object]) -> bool:
    """Whether this is a function without arguments that says it returns tools."""
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):
        return False
    promised = signature.return_annotation
    said = promised if isinstance(promised, str) else getattr(promised, "__name__", "") + repr(promised)
    return not signature.parameters and promised is not inspect.Signature.empty and "Tool" in said


def _sql(name: str, shape: ToolShape, folder: Path) -> tuple[Tool, ...]:
    from chargehand.tools.sql import sql  # noqa: PLC0415 - a team pays only for the tools it names

    return (sql(inside(folder, shape.sql or ""), name),)


def _documents(name: str, shape: ToolShape, folder: Path) -> tuple[Tool, ...]:
    from chargehand.tools.documents import documents  # noqa: PLC0415 - as above

    models = None if shape.embed == "words" else models_folder(lookup_beside(folder))
    return (documents(inside(folder, shape.documents or ""), name, models=models),)


def _files(name: str, shape: ToolShape, folder: Path) -> tuple[Tool, ...]:
    from chargehand.tools.files import files  # noqa: PLC0415 - as above

    made = files(inside(folder, shape.files or ""))
    return made if name == "files" else tuple(renamed(tool, f"{name}_{tool.name}") for tool in made)


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
    **{source: _built_in(source) for source in PLAIN_SOURCES},
}
