"""The page on models cannot drift: modes, providers, numbers and sizes stand there as they are in the code."""

import re
from pathlib import Path
from typing import get_args

import pytest

from chargehand.models.guard import BREAKING, RETRY
from chargehand.models.http import MOST_BYTES, PATIENCE
from chargehand.models.limits import Pace
from chargehand.models.local import CATALOG, CatalogModel
from chargehand.models.messages import Caching, Effort, ServiceTier, Settings
from chargehand.models.providers import OTHERS, OWN, Place, key_variable
from chargehand.models.resolve import Finder
from chargehand.models.testing.fault_server import MODES

PAGE = (Path(__file__).parents[1] / "docs" / "models.md").read_text(encoding="utf-8")
PLAIN = " ".join(PAGE.split())


def test_every_mode_of_the_fault_server_is_listed_as_it_is() -> None:
    table = PAGE.partition("## The fault server")[2]
    assert dict(re.findall(r"^\| `([\w-]+)` \| (.+) \|$", table, re.MULTILINE)) == MODES


@pytest.mark.parametrize(("name", "place"), OWN.items(), ids=list(OWN))
def test_every_provider_of_ours_has_its_line(name: str, place: Place) -> None:
    (line,) = re.findall(rf"^\| `{name}:NAME` \|.*$", PAGE, re.MULTILINE)
    assert f"`{place.key}`" in line
    assert f"`{place.base}`" in line
    assert place.needs_key == ("if it wants one" not in line)


def test_every_other_provider_is_named_with_its_key() -> None:
    assert [name for name in OTHERS if f"`{name}`" not in PAGE] == []
    assert [name for name, key in OTHERS.items() if key and f"`{key}` ({name})" not in PLAIN] == []
    assert key_variable("groq") == "GROQ_API_KEY"


def test_every_setting_has_its_line_with_all_its_values() -> None:
    table = PAGE.partition("## Settings")[2].partition("```yaml")[0]
    lines = dict(re.findall(r"^\| `(\w+)` \| ([^|]*) \|", table, re.MULTILINE))
    assert set(lines) == set(Settings.__struct_fields__)
    for name, words in (("effort", Effort), ("service_tier", ServiceTier), ("cache", Caching)):
        assert lines[name] == ", ".join(f"`{word}`" for word in get_args(words))


def test_every_variable_for_headers_is_named() -> None:
    assert [place.headers for place in OWN.values() if f"`{place.headers}`" not in PAGE] == []


def test_every_option_of_a_model_is_named() -> None:
    annotations = Finder.find.__annotations__["options"].__args__[0].__annotations__
    assert [name for name in annotations if f"`{name}`" not in PAGE and f"{name}=" not in PAGE] == []


@pytest.mark.parametrize("name", ["connect", "first", "whole", "idle", "total"])
def test_the_times_are_those_of_the_code(name: str) -> None:
    (usual, own) = re.findall(rf"^\| `{name}`[^|]*\| (\d+) \| (\d+) \|$", PAGE, re.MULTILINE)[0]
    assert float(usual) == getattr(PATIENCE, name)
    assert {float(own)} == {getattr(OWN[place].timeouts, name) for place in ("ollama", "vllm", "llamacpp")}


def test_the_numbers_of_the_guard_are_those_of_the_code() -> None:
    pace = Pace()
    for words in (
        f"at most {MOST_BYTES // 2**20} MiB; of an error page",
        f"up to {RETRY.attempts} times in all",
        f"a random wait of up to {RETRY.base:g} s, then {RETRY.base * 2:g} s",
        f"obeyed up to {RETRY.obey_retry_after:g} s",
        f"{pace.concurrency} calls at once (ollama and llamacpp: {OWN['ollama'].pace.concurrency})",
        f"one more every {pace.recover:g} s",
        f"After {BREAKING.consecutive} failures in a row (`network` or `timeout`)",
        f"half of at least {BREAKING.sample} calls within {BREAKING.window:g} s",
        f"not called for {BREAKING.open:g} s",
        f"up to {BREAKING.open_ceiling:g} s",
    ):
        assert words in PLAIN, words
    assert BREAKING.share == 0.5


@pytest.mark.parametrize(("name", "entry"), CATALOG.items(), ids=list(CATALOG))
def test_every_local_model_has_its_size(name: str, entry: CatalogModel) -> None:
    assert f"| `{name}` | {entry.size / 1e6:,.0f} MB |" in PAGE
