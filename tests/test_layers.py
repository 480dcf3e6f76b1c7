"""The contracts of import-linter bite: each breaks when its rule is broken, and holds when it is not."""

from copy import deepcopy
from pathlib import Path

import pytest
from grimp import ImportGraph, build_graph
from importlinter.application.app_config import settings
from importlinter.application.use_cases import create_report, read_user_options
from importlinter.configuration import configure
from importlinter.contracts.forbidden import ForbiddenContract
from importlinter.contracts.layers import LayersContract
from importlinter.domain.contract import registry

ROOT = Path(__file__).parents[1]


class KnownGraph:
    """Hands import-linter a graph that is there already."""

    def __init__(self, graph: ImportGraph) -> None:
        self._graph = graph

    def build(self, **_options: object) -> ImportGraph:
        return self._graph


@pytest.fixture(scope="module")
def package() -> ImportGraph:
    """The imports of the package as it is."""
    configure()
    registry.register(LayersContract, "layers")
    registry.register(ForbiddenContract, "forbidden")
    return build_graph("chargehand", include_external_packages=True, cache_dir=None)


def broken_contracts(package: ImportGraph, *imports: tuple[str, str], module: str = "") -> list[str]:
    """Return the names of the contracts that break when imports or a module are added to the package."""
    graph = deepcopy(package)
    if module:
        graph.add_module(f"chargehand.{module}")
    for importer, imported in imports:
        if imported not in graph.modules:
            graph.add_module(imported, is_squashed=True)
        graph.add_import(importer=f"chargehand.{importer}", imported=imported, line_number=1, line_contents="import")
    settings.configure(GRAPH_BUILDER=KnownGraph(graph))
    report = create_report(read_user_options(str(ROOT / "pyproject.toml")))
    checks = [(contract.name, check.kept) for contract, check in report.get_contracts_and_checks()]
    assert checks
    return [name for name, is_kept in checks if not is_kept]


def test_the_package_as_it_is_keeps_every_contract(package: ImportGraph) -> None:
    assert broken_contracts(package) == []


def test_a_package_may_not_import_a_package_above(package: ImportGraph) -> None:
    assert broken_contracts(package, ("journal", "chargehand.cli")) == ["Packages are layered"]


@pytest.mark.parametrize("above", ["agents", "tools", "models", "team"])
def test_the_runtime_knows_no_agents(package: ImportGraph, above: str) -> None:
    assert broken_contracts(package, ("runtime.runner", f"chargehand.{above}")) == ["Packages are layered"]


def test_a_new_package_must_be_placed_on_purpose(package: ImportGraph) -> None:
    assert broken_contracts(package, module="attic") == ["Packages are layered"]


def test_the_engine_may_not_import_upwards_within_itself(package: ImportGraph) -> None:
    assert broken_contracts(package, ("engine.state", "chargehand.engine.fold")) == ["The engine is layered"]


def test_a_new_module_of_the_engine_must_be_placed_on_purpose(package: ImportGraph) -> None:
    assert broken_contracts(package, module="engine.attic") == ["The engine is layered"]


@pytest.mark.parametrize("module", ["engine.state", "engine.roster"])
@pytest.mark.parametrize("impurity", ["random", "time", "os", "asyncio", "logging"])
def test_the_engine_may_not_touch_the_world(package: ImportGraph, module: str, impurity: str) -> None:
    assert broken_contracts(package, (module, impurity)) == ["The engine is pure"]
