"""Which team file is meant (named, of the environment, the nearest upwards, or bundled), and a new team's model."""

import json
import os
from collections.abc import Mapping
from http.client import HTTPException
from pathlib import Path
from typing import Literal, TypeAlias, cast
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, build_opener

from msgspec import Struct

from chargehand.errors import Invalid
from chargehand.models.prices import is_local
from chargehand.models.providers import BUILT_IN, OWN, is_free

NAMES = ("team.yaml", "team.yml", "team.toml")
VARIABLE = "CHARGEHAND_TEAM"
BUNDLED = "shop"
TEMPLATES = Path(__file__).parent / "templates"

How: TypeAlias = Literal["named", "environment", "found", "bundled"]


class Found(Struct, frozen=True):
    """A team file, and how it was come by."""

    file: Path
    how: How

    @property
    def words(self) -> str:
        return {
            "named": "named on the command line",
            "environment": f"named by {VARIABLE}",
            "found": "the nearest one upwards",
            "bundled": f"the bundled team {BUNDLED!r}, because there is no team file here or above",
        }[self.how]


def find_team(named: Path | str | None = None, start: Path | None = None) -> Found:
    """The team file to use; Invalid where one is named that is not there."""
    if named is not None:
        if not str(named):  # a variable of a script that is not set: another team than was meant must not run
            raise Invalid("the team has an empty name; name a team file or its folder, or name none")
        return Found(_file(Path(named), ""), "named")
    if variable := os.environ.get(VARIABLE):
        return Found(_file(Path(variable), f" (from {VARIABLE})"), "environment")
    if (nearest := _upwards((start or Path.cwd()).resolve())) is not None:
        return Found(nearest, "found")
    return Found(TEMPLATES / BUNDLED / NAMES[0], "bundled")


def _file(named: Path, how: str) -> Path:
    if named.is_dir():
        inside = [named / name for name in NAMES if (named / name).is_file()]
        if not inside:
            raise Invalid(f"{named}{how} holds no {' or '.join(NAMES)}; write one, or: chargehand init minimal {named}")
        return _only(inside)
    if not named.exists():
        template = named.parent == Path() and (TEMPLATES / named / NAMES[0]).is_file()
        bundled = f"; for the bundled one: chargehand init {named}" if template else ""
        raise Invalid(f"there is no team file {named}{how}{bundled or '; to begin one: chargehand init minimal'}")
    return named


def _only(inside: list[Path]) -> Path:
    if len(inside) > 1:
        both = " and ".join(file.name for file in inside)
        raise Invalid(f"{inside[0].parent} holds {both}; keep one, or name the one you mean with --team")
    return inside[0]


def _upwards(start: Path) -> Path | None:
    """The nearest team file, not above the root of the repository we are in."""
    for folder in (start, *start.parents):
        inside = [folder / name for name in NAMES if (folder / name).is_file()]
        if inside:
            return _only(inside)
        if (folder / ".git").exists():
            return None
    return None


# --- the model of a new team


_USUAL_NAMES = {"openai": "gpt-5-mini", "anthropic": "claude-haiku-4-5", "openrouter": "openai/gpt-5-mini"}
_MODEL = "CHARGEHAND_MODEL"
_PATIENCE = 0.5  # seconds: it runs on this machine, or it does not run
_MOST_BYTES = 1_000_000


class Detected(Struct, frozen=True):
    """A model by its handle, and why it was chosen. `charged`: its calls cost money."""

    handle: str
    why: str
    charged: bool = False


def detect_model(environment: Mapping[str, str]) -> Detected:
    """Nothing is sent but one question to the Ollama of this machine, and that only where no key is set."""
    if handle := environment.get(_MODEL, "").strip():
        return Detected(handle, f"{_MODEL} names it", charged=not is_free(handle))
    for provider, name in _USUAL_NAMES.items():
        if environment.get(OWN[provider].key, "").strip():
            return Detected(f"{provider}:{name}", f"{OWN[provider].key} is set", charged=True)
    place = OWN["ollama"]
    url = environment.get(place.base, "").strip() or place.url
    where = urlsplit(url).netloc.rpartition("@")[2]
    names = ollama_models(url)
    if names:
        return Detected(f"ollama:{names[0]}", f"Ollama runs on {where} and has it")
    if names is not None:
        return Detected(BUILT_IN, f"no key is set, and Ollama on {where} has no model yet (ollama pull NAME)")
    return Detected(BUILT_IN, f"no key is set, and no Ollama answers on {where}")


def ollama_models(url: str) -> list[str] | None:
    """The models an Ollama on this machine has; None where none runs there."""
    if not is_local(url):
        return None
    address = f"{url.rstrip('/').removesuffix('/v1')}/api/tags"
    try:
        with build_opener(ProxyHandler({})).open(address, timeout=_PATIENCE) as reply:
            listed: object = json.loads(reply.read(_MOST_BYTES))
    except (URLError, HTTPException, OSError, ValueError):
        return None
    models = cast("dict[str, object]", listed).get("models") if isinstance(listed, dict) else None
    if not isinstance(models, list):
        return None
    named = [cast("dict[str, object]", model) for model in cast("list[object]", models) if isinstance(model, dict)]
    return [str(model["name"]) for model in named if model.get("name")]
