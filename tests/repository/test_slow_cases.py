"""Slow cases are few, each has a reason, and those without one are listed."""

from collections.abc import Callable
from io import StringIO

import pytest

from tests.support.hunts import hunt_size
from tests.support.slow_cases import LIMIT, SlowCases

MOST = 60


def test_slow_cases_are_few_and_have_reasons(request: pytest.FixtureRequest) -> None:
    """It sees the cases that were collected: all of them in `make test`."""
    markers = [(case.nodeid, marker) for case in request.session.items for marker in case.iter_markers("slow")]
    assert len({case for case, _ in markers}) <= MOST
    assert [case for case, marker in markers if not (len(marker.args) == 1 and str(marker.args[0]).strip())] == []


def _report(name: str, duration: float, when: str = "call", **keywords: int) -> pytest.TestReport:
    return pytest.TestReport(name, (name, 1, name), keywords, "passed", None, when, duration=duration)  # pyright: ignore[reportArgumentType]


@pytest.fixture
def summary(pytestconfig: pytest.Config) -> Callable[..., list[str]]:
    """What is listed after these reports, by lines."""

    def summarise(*reports: pytest.TestReport) -> list[str]:
        cases, terminal = SlowCases(), StringIO()
        for report in reports:
            cases.pytest_runtest_logreport(report)
        cases.pytest_terminal_summary(pytest.TerminalReporter(pytestconfig, terminal))
        return terminal.getvalue().splitlines()

    return summarise


def test_cases_over_the_limit_are_listed_slowest_first(summary: Callable[..., list[str]]) -> None:
    title, *lines = summary(_report("a", LIMIT + 0.5), _report("b", LIMIT + 1), _report("c", LIMIT - 0.5))
    assert "2 cases over 1 s" in title
    assert lines == ["  2.0 s  b", "  1.5 s  a"]


def test_marked_cases_and_fixtures_are_not_listed(summary: Callable[..., list[str]]) -> None:
    assert summary(_report("a", LIMIT + 1, slow=1), _report("b", LIMIT + 1, when="setup")) == []


def test_a_long_list_is_cut(summary: Callable[..., list[str]]) -> None:
    lines = summary(*(_report(f"case{number}", LIMIT + 1) for number in range(50)))
    assert "50 cases" in lines[0]
    assert (len(lines), lines[-1]) == (42, "and 10 more")


def test_hunts_have_the_size_that_the_command_chose(pytestconfig: pytest.Config) -> None:
    assert hunt_size(quick=False, thorough=True) == pytestconfig.getoption("thorough")
