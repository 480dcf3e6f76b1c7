"""Objects named `module:attr`: from a module beside a file (the team's, or one of cases), else from an installed one.

Modules beside a team file get private names, so that two teams with a `tools.py` each do not meet; `sys.path` is never
touched. What the object is good for is not known here.
"""

import re
import sys
from contextlib import redirect_stdout
from hashlib import blake2b
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from chargehand.config.findings import near
from chargehand.config.folder import inside
from chargehand.errors import Invalid
from chargehand.text.names import listed

_HANDLE = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*)\Z")


def named_object(folder: Path, handle: str, beside: str = "the team file") -> object:
    """What `module:attr` names; Invalid says what is missing, and what comes nearest. `beside` is what lies there."""
    found = _HANDLE.match(handle.replace(".py:", ":", 1))  # people write the name of the file, and mean the same
    if not found:
        raise Invalid(f"{handle!r} names no Python object; write module:attribute, for example tools:convert")
    module_name = found[1]
    attribute = found[2]
    module = _module(folder, module_name, beside)
    if not hasattr(module, attribute):
        public = [name for name in vars(module) if not name.startswith("_")]
        own = [name for name in public if getattr(vars(module)[name], "__module__", "") == module.__name__] or public
        hint = near(attribute, public) or (f"; it has {listed(own)}" if own else "; it is empty")
        raise Invalid(f"{module_name!r} has no {attribute!r}{hint}")
    return getattr(module, attribute)


def _module(folder: Path, name: str, named: str) -> ModuleType:
    top, _, rest = name.partition(".")
    beside = [path for path in (folder / f"{top}.py", folder / top / "__init__.py") if path.is_file()]
    if not beside and (folder / top).is_dir() and rest:
        raise Invalid(f"the folder {top!r} beside {named} is no package; put an __init__.py into it")
    try:
        with redirect_stdout(sys.stderr):  # standard output is for data, whatever a module prints
            if not beside:
                return import_module(name)
            package = _beside(inside(folder, str(beside[0].relative_to(folder))))
            return import_module(f"{package.__name__}.{rest}") if rest else package
    except Invalid:
        raise
    except ModuleNotFoundError as error:
        raise _missing(folder, name, error, named) from error
    except (Exception, SystemExit) as error:  # a foreign module
        raise Invalid(f"{name!r} failed when it was loaded: {type(error).__name__}: {error}") from error


def _missing(folder: Path, name: str, error: ModuleNotFoundError, named: str) -> Invalid:
    if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
        return Invalid(f"{name!r} imports {error.name!r}, which is not installed (modules beside it need a package)")
    here = [path.stem for path in folder.glob("*.py")]
    hint = near(name, here) or (f"; beside {named} there is {listed(here)}" if here else "")
    return Invalid(f"there is no module {name!r}, neither beside {named} nor installed{hint}")


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
