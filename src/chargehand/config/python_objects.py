"""Python objects that people name as text: `module:attr`, beside a team file or as a program would import it."""

import re
import sys
from contextlib import redirect_stdout
from hashlib import blake2b
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from threading import RLock
from types import ModuleType

from chargehand.config.source import inside, near
from chargehand.errors import Invalid
from chargehand.text.words import listed

APIS = "chargehand.apis"
"""The entry points of HTTP APIs that packages add to the server."""
LISTENERS = "chargehand.listeners"
"""The entry points of listeners."""
_HANDLE = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*)\Z")


def named_object(folder: Path, handle: str, beside: str = "the team file") -> object:
    """What `module:attr` names; Invalid says what is missing, and what comes nearest. `beside` is what lies there."""
    module_name, attribute = _split(handle)
    return _attribute(_module(folder, module_name, beside), module_name, attribute)


def is_python_name(written: object) -> bool:
    """Whether this is written like `module:attr`."""
    return isinstance(written, str) and _HANDLE.match(written) is not None


def installed_object(handle: str) -> object:
    """What `module:attr` names as a program of this folder would import it; Invalid as `named_object`."""
    module_name, attribute = _split(handle)
    folder = Path.cwd()
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        with redirect_stdout(sys.stderr):  # standard output is for data, whatever a module prints
            module = import_module(module_name)
    except ModuleNotFoundError as error:
        raise _missing(folder, module_name, error, "the working directory") from error
    except (Exception, SystemExit) as error:  # a foreign module
        raise _failed(module_name, error) from error
    return _attribute(module, module_name, attribute)


def find_plugin(written: str) -> object:
    """What a package offers under this name as an entry point, or what `module:attr` names."""
    if is_python_name(written):
        return installed_object(written)
    from importlib.metadata import entry_points  # noqa: PLC0415 - it takes longer to load than all else here

    offered = {point.name: point for group in (APIS, LISTENERS) for point in entry_points(group=group)}
    if written not in offered:
        hint = near(written, offered) or (f"; there are {listed(sorted(offered))}" if offered else "")
        raise Invalid(f"no installed package offers {written!r} to the server{hint}; or write module:attribute")
    try:
        return offered[written].load()
    except (Exception, SystemExit) as error:  # a foreign package
        raise Invalid(f"{written!r} ({offered[written].value}) cannot be loaded: {_reason(error)}") from error


def _split(handle: str) -> tuple[str, str]:
    match = _HANDLE.match(handle.replace(".py:", ":", 1))  # people write the name of the file, and mean the same
    if not match:
        raise Invalid(f"{handle!r} names no Python object; write module:attribute, for example tools:convert")
    return match[1], match[2]


def _attribute(module: ModuleType, module_name: str, attribute: str) -> object:
    if not hasattr(module, attribute):
        public = [name for name in vars(module) if not name.startswith("_")]
        own = [name for name in public if getattr(vars(module)[name], "__module__", "") == module.__name__] or public
        hint = near(attribute, public) or (f"; it has {listed(own)}" if own else "; it is empty")
        raise Invalid(f"{module_name!r} has no {attribute!r}{hint}")
    return getattr(module, attribute)


def _failed(name: str, error: BaseException) -> Invalid:
    return Invalid(f"{name!r} failed when it was loaded: {_reason(error)}")


def _reason(error: BaseException) -> str:
    return error.args[0] if isinstance(error, Invalid) else f"{type(error).__name__}: {error}"


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
        raise _failed(name, error) from error


def _missing(folder: Path, name: str, error: ModuleNotFoundError, team_file: str) -> Invalid:
    if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
        return Invalid(f"{name!r} imports {error.name!r}, which is not installed (modules beside it need a package)")
    here = [path.stem for path in folder.glob("*.py")]
    hint = near(name, here) or (f"; beside {team_file} there is {listed(here)}" if here else "")
    return Invalid(f"there is no module {name!r}, neither beside {team_file} nor installed{hint}")


_loading = RLock()
"""Held while a module is loaded: another thread must not be given a module that is not whole yet."""


def _beside(file: Path) -> ModuleType:
    """A module of the team's folder. It is loaded again only when its file has changed."""
    stamp = file.stat()
    mark = f"{file}\0{stamp.st_mtime_ns}\0{stamp.st_size}"
    private = f"_chargehand_{blake2b(mark.encode(), digest_size=8).hexdigest()}_{file.stem.strip('_')}"
    with _loading:
        return sys.modules.get(private) or _load(file, private)


def _load(file: Path, private: str) -> ModuleType:
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
