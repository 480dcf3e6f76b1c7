"""The tools a team file names: from Python, from the toolbox, and what the file says of them besides.

Which worker holds which tool is decided in `assemble`.
"""

import re
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from hashlib import blake2b
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TypeAlias, cast

from msgspec import structs

from chargehand.config.environment import lookup_beside
from chargehand.config.schema import PLAIN_SOURCES, SOURCES, ToolShape
from chargehand.config.source import inside, near
from chargehand.errors import Invalid
from chargehand.models.resolve import models_folder
from chargehand.text.words import listed
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
    changes: dict[str, object] = {
        "effect": shape.effect,
        "timeout": shape.timeout,
        "cap": shape.cap,
        "approve": None if shape.approve is None else shape.approve in (True, "always"),
    }
    wanted = {key: value for key, value in changes.items() if value is not None}
    return tuple(structs.replace(tool, **wanted) for tool in tools)


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

    return (sql(inside(folder, shape.sql or ""), name),)


def _documents(name: str, shape: ToolShape, folder: Path) -> tuple[Tool, ...]:
    from chargehand.tools.documents import documents  # noqa: PLC0415 - as above

    models = None if shape.embed == "words" else models_folder(lookup_beside(folder))
    return (documents(inside(folder, shape.documents or ""), name, models=models),)


def _files(name: str, shape: ToolShape, folder: Path) -> tuple[Tool, ...]:
    from chargehand.tools.files import files  # noqa: PLC0415 - as above

    tools = files(inside(folder, shape.files or ""))
    return tools if name == "files" else tuple(renamed(tool, f"{name}_{tool.name}") for tool in tools)


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


# --- objects that are named `module:attr`


_HANDLE = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*)\Z")


def named_object(folder: Path, handle: str, beside: str = "the team file") -> object:
    """What `module:attr` names; Invalid says what is missing, and what comes nearest. `beside` is what lies there."""
    match = _HANDLE.match(handle.replace(".py:", ":", 1))  # people write the name of the file, and mean the same
    if not match:
        raise Invalid(f"{handle!r} names no Python object; write module:attribute, for example tools:convert")
    module_name = match[1]
    attribute = match[2]
    module = _module(folder, module_name, beside)
    if not hasattr(module, attribute):
        public = [name for name in vars(module) if not name.startswith("_")]
        own = [name for name in public if getattr(vars(module)[name], "__module__", "") == module.__name__] or public
        hint = near(attribute, public) or (f"; it has {listed(own)}" if own else "; it is empty")
        raise Invalid(f"{module_name!r} has no {attribute!r}{hint}")
    return getattr(module, attribute)


def _module(folder: Path, name: str, team_file: str) -> ModuleType:
    top, _, rest = name.partition(".")
    beside = [path for path in (folder / f"{top}.py", folder / top / "__init__.py") if path.is_file()]
    if not beside and (folder / top).is_dir() and rest:
        raise Invalid(f"the folder {top!r} beside {team_file} is no package; put an __init__.py into it")
    try:
        with redirect_stdout(sys.stderr):  # standard output is for data, whatever a module prints
            if not beside:
                return import_module(name)
            package = _beside(inside(folder, str(beside[0].relative_to(folder))))
            return import_module(f"{package.__name__}.{rest}") if rest else package
    except Invalid:
        raise
    except ModuleNotFoundError as error:
        raise _missing(folder, name, error, team_file) from error
    except (Exception, SystemExit) as error:  # a foreign module
        raise Invalid(f"{name!r} failed when it was loaded: {type(error).__name__}: {error}") from error


def _missing(folder: Path, name: str, error: ModuleNotFoundError, team_file: str) -> Invalid:
    if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
        return Invalid(f"{name!r} imports {error.name!r}, which is not installed (modules beside it need a package)")
    here = [path.stem for path in folder.glob("*.py")]
    hint = near(name, here) or (f"; beside {team_file} there is {listed(here)}" if here else "")
    return Invalid(f"there is no module {name!r}, neither beside {team_file} nor installed{hint}")


def _beside(file: Path) -> ModuleType:
    """A module of the team's folder. It is loaded again only when its file has changed."""
    stamp = file.stat()
    mark = f"{file}\0{stamp.st_mtime_ns}\0{stamp.st_size}"
    private = f"_chargehand_{blake2b(mark.encode(), digest_size=8).hexdigest()}_{file.stem.strip('_')}"
    if private in sys.modules:
        return sys.modules[private]
    places = [str(file.parent)] if file.name == "__init__.py" else None
    spec = spec_from_file_location(private, file, submodule_search_locations=places)
    if spec is None or spec.loader is None:
        raise Invalid(f"{file.name} cannot be loaded as a Python module")
    module = module_from_spec(spec)
    sys.modules[private] = module  # types are looked up there while the module runs
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[private]
        raise
    return module
